//! The calls that ask about files: the `stat` families, `statx`, `access`, `statfs`, `statvfs`,
//! `pathconf`.
//!
//! `st_dev` is the volume's own device number; times have nanoseconds.

use std::ffi::{CString, c_char, c_int, c_long, c_ulong};

use vfs::cred::{Cred, WRITE};
use vfs::{Attr, Changing, Errno, FileRef, FileSystemExt, Kind, Nanos};

use crate::descriptors::special_files;
use crate::entry::fdtable::ours;
use crate::entry::pointers::{Out, Text};
use crate::entry::process::{Process, VolumeView};
use crate::entry::{Served, Stop};
use crate::paths::credentials;
use crate::paths::flags;
use crate::paths::{self, Plain, Target};

const SECOND: i64 = 1_000_000_000;
/// The unit in which programs should read and write.
const BLOCK_BYTES: i64 = 4096;
/// `f_type`: no kernel file system has this number ("SOLE").
const MAGIC: i64 = 0x534f_4c45;

/// Words of a `struct stat`.
const STAT: usize = size_of::<libc::stat>() / 8;

/// The word of a `struct stat` in which a field stands.
macro_rules! word {
    ($field:ident) => {
        const { std::mem::offset_of!(libc::stat, $field) / 8 }
    };
}

/// `struct stat`, by words: two fields of half a word are put together in a register, and no load
/// of what was just stored is wider than the store.
#[inline]
fn stat_of(process: &Process, attr: &Attr) -> [u64; STAT] {
    let mut stat = [0; STAT];
    stat[word!(st_dev)] = process.volume_of(attr.node).device;
    stat[word!(st_ino)] = attr.node.number();
    stat[word!(st_nlink)] = u64::from(attr.nlink);
    stat[word!(st_mode)] = u64::from(attr.kind.mode_bits() | attr.mode) | u64::from(attr.uid) << 32;
    stat[word!(st_gid)] = u64::from(attr.gid);
    stat[word!(st_rdev)] = attr.rdev;
    stat[word!(st_size)] = attr.size;
    stat[word!(st_blksize)] = BLOCK_BYTES.cast_unsigned();
    stat[word!(st_blocks)] = attr.blocks;
    let times = [
        (word!(st_atime), attr.atime),
        (word!(st_mtime), attr.mtime),
        (word!(st_ctime), attr.ctime),
    ];
    for (at, time) in times {
        let (seconds, rest) = split(time);
        (stat[at], stat[at + 1]) = (seconds.cast_unsigned(), rest.cast_unsigned());
    }
    stat
}

const _: () = assert!(
    word!(st_mode) * 8 == std::mem::offset_of!(libc::stat, st_mode)
        && word!(st_mode) == word!(st_uid)
        && word!(st_gid) * 8 == std::mem::offset_of!(libc::stat, st_gid)
        && word!(st_ctime) + 1 == word!(st_ctime_nsec)
        && cfg!(target_endian = "little")
);

/// Whole seconds, and the nanoseconds behind them.
#[inline]
const fn split(time: Nanos) -> (i64, i64) {
    if time >= 0 {
        // Without a sign it is a quarter of the work.
        let (time, second) = (time.cast_unsigned(), SECOND.cast_unsigned());
        return ((time / second).cast_signed(), (time % second).cast_signed());
    }
    (time.div_euclid(SECOND), time.rem_euclid(SECOND))
}

/// What a file's `statx` says beyond its `stat`: that it lies below no automount and is not
/// immutable, append-only, left out of dumps or mapped past the page cache by the kernel.
const NEVER_SET: u64 = (libc::STATX_ATTR_IMMUTABLE
    | libc::STATX_ATTR_APPEND
    | libc::STATX_ATTR_NODUMP
    | libc::STATX_ATTR_AUTOMOUNT
    | libc::STATX_ATTR_DAX) as u64;
const MOUNT_ROOT: u64 = libc::STATX_ATTR_MOUNT_ROOT as u64;
/// Asks for a number that no later mount gets.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// The bit of the mask and the number of the mount: the kernel's, if the volume is mounted; else
/// one of the volume's own, which the kernel gives to no mount, since it counts them from below.
fn mount_of(seen: &VolumeView, mask: u32) -> (u32, u64) {
    let unique = mask & STATX_MNT_ID_UNIQUE != 0;
    let bit = if unique { STATX_MNT_ID_UNIQUE } else { libc::STATX_MNT_ID };
    if seen.mounted {
        let prefix = &seen.texts.prefix;
        // SAFETY: all zeros is a value of this plain structure, which the kernel fills in.
        let mut told: libc::statx = unsafe { std::mem::zeroed() };
        let (path, out) = (prefix.as_ptr() as usize, (&raw mut told) as usize);
        let arguments = [libc::AT_FDCWD as usize, path, 0, bit as usize, out, 0];
        // SAFETY: a text and a structure of our own.
        let asked = unsafe { os::interrupt::system_call(libc::SYS_statx, arguments) };
        return if asked.is_ok() { (told.stx_mask & bit, told.stx_mnt_id) } else { (0, 0) };
    }
    (bit, if unique { 1 << 63 | seen.device } else { 1 << 30 | seen.device })
}

pub fn statx_of(process: &Process, attr: &Attr, mask: u32) -> libc::statx {
    let time = |nanos| {
        let (seconds, rest) = split(nanos);
        // SAFETY: all zeros is a value of this plain structure.
        let mut time: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        (time.tv_sec, time.tv_nsec) = (seconds, rest as u32);
        time
    };
    // SAFETY: as above.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    let seen = process.volume_of(attr.node);
    let (bit, mount) = mount_of(seen, mask);
    statx.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME | bit;
    statx.stx_mnt_id = mount;
    statx.stx_attributes_mask = NEVER_SET | MOUNT_ROOT;
    if attr.node == seen.root {
        statx.stx_attributes = MOUNT_ROOT;
    }
    statx.stx_blksize = BLOCK_BYTES as u32;
    statx.stx_nlink = attr.nlink;
    statx.stx_uid = attr.uid;
    statx.stx_gid = attr.gid;
    statx.stx_mode = (attr.kind.mode_bits() | attr.mode) as u16;
    statx.stx_ino = attr.node.number();
    statx.stx_size = attr.size;
    statx.stx_blocks = attr.blocks;
    statx.stx_atime = time(attr.atime);
    statx.stx_btime = time(attr.btime);
    statx.stx_ctime = time(attr.ctime);
    statx.stx_mtime = time(attr.mtime);
    statx.stx_rdev_major = libc::major(attr.rdev);
    statx.stx_rdev_minor = libc::minor(attr.rdev);
    let device = seen.device;
    statx.stx_dev_major = libc::major(device);
    statx.stx_dev_minor = libc::minor(device);
    statx
}

/// What a call with a directory descriptor, a path and `AT_*` flags means: `None`, and `attr` has
/// the attributes; else the path by which the kernel is to be asked.
#[inline]
pub fn ask(
    process: &Process,
    (dirfd, path, flags): (c_int, Text, c_int),
    attr: &mut Attr,
) -> Served<Option<CString>> {
    // Since Linux 6.11 no path at all is as good as an empty one.
    let text = path.bytes().or_else(|errno| {
        let none = path.0.is_null() && flags & libc::AT_EMPTY_PATH != 0;
        if none { Ok(b"".as_slice()) } else { Err(errno) }
    })?;
    if !text.is_empty() {
        match paths::plain(process, dirfd, text, attr) {
            Plain::Attributes => return Ok(None),
            Plain::Kernel => return Err(Stop::Kernel),
            Plain::Unknown => {}
        }
    }
    ask_further(process, (dirfd, text, flags), attr)
}

/// As [`ask`], where the path is not plain.
fn ask_further(
    process: &Process,
    (dirfd, text, flags): (c_int, &[u8], c_int),
    attr: &mut Attr,
) -> Served<Option<CString>> {
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    *attr = if text.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        attr_of_descriptor(process, dirfd)?
    } else {
        match paths::resolve(process, dirfd, text, follow)? {
            Target::Elsewhere(path) => return Ok(Some(path)),
            target => paths::existing(process, &target)?,
        }
    };
    Ok(None)
}

/// The attributes of a descriptor of ours, or of the working directory on the volume.
pub fn attr_of_descriptor(process: &Process, fd: c_int) -> Served<Attr> {
    if fd == libc::AT_FDCWD {
        let node = process.cwd_node().ok_or(Stop::Kernel)?;
        return Ok(process.fs.attributes(node)?);
    }
    match ours(fd) {
        Ok(desc) => Ok(process.fs.attributes(process.fs.describe(desc)?.0)?),
        Err(stop) => attr_of_fifo(process, fd, stop),
    }
}

/// The attributes of the fifo that a number of the kernel's is, or why it is not ours.
#[cold]
pub fn attr_of_fifo(process: &Process, fd: c_int, stop: Stop) -> Served<Attr> {
    match (stop, special_files::node_of(process, fd)) {
        (Stop::Kernel, Some(node)) => Ok(process.fs.attributes(node)?),
        (stop, _) => Err(stop),
    }
}

/// Answers a `stat` by path; `kernel` asks the kernel for another path.
pub fn stat_path(
    process: &Process,
    kernel: impl Fn(*const c_char) -> c_int,
    (dirfd, path, flags): (c_int, Text, c_int),
    out: Out<libc::stat>,
) -> Served<c_int> {
    let mut attr = Attr::NONE;
    if let Some(path) = ask(process, (dirfd, path, flags), &mut attr)? {
        return Ok(kernel(path.as_ptr()));
    }
    out.put_words(&stat_of(process, &attr))?;
    Ok(0)
}

#[inline]
pub fn stat_descriptor(process: &Process, fd: c_int, out: Out<libc::stat>) -> Served<c_int> {
    let mut attr = Attr::NONE;
    match ours(fd) {
        Ok(desc) => process.fs.of(desc).attr(desc.into(), &mut attr)?,
        Err(stop) => attr = attr_of_fifo(process, fd, stop)?,
    }
    out.put_words(&stat_of(process, &attr))?;
    Ok(0)
}

/// `access`: by the real identity unless `AT_EACCESS` asks for the effective one.
pub fn may(
    process: &Process,
    kernel: impl Fn(*const c_char) -> c_int,
    place: (c_int, Text, c_int),
    mode: c_int,
) -> Served<c_int> {
    flags::PERMISSIONS.check(mode)?;
    if place.2 & libc::AT_EACCESS == 0
        && let Some(real) = credentials::real(process)
    {
        return may_really(process, &kernel, place, mode, real);
    }
    may_as(process, &kernel, place, mode)
}

/// The same, where the real identity is another one.
#[cold]
fn may_really(
    process: &Process,
    kernel: &impl Fn(*const c_char) -> c_int,
    place: (c_int, Text, c_int),
    mode: c_int,
    real: &'static Cred,
) -> Served<c_int> {
    credentials::acting_as(process, real, || may_as(process, kernel, place, mode))
}

/// The same, of the identity that the thread acts as.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the usual way is straight on")]
fn may_as(
    process: &Process,
    kernel: &impl Fn(*const c_char) -> c_int,
    (dirfd, path, flags): (c_int, Text, c_int),
    mode: c_int,
) -> Served<c_int> {
    let mut attr = Attr::NONE;
    if let Some(path) = ask(process, (dirfd, path, flags), &mut attr)? {
        return Ok(kernel(path.as_ptr()));
    }
    let mode = mode.cast_unsigned();
    let inert =
        matches!(attr.kind, Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice);
    let may_change = || process.fs.region_descriptor(attr.node.into()).1 == Changing::Here;
    if mode & WRITE != 0 && !inert && !may_change() {
        return Err(Stop::Errno(Errno::ROFS));
    }
    process.cred().check(&attr, mode)?;
    Ok(0)
}

pub fn statfs_of(process: &Process, of: FileRef) -> Result<libc::statfs, Errno> {
    let stat = process.fs.stat_fs(of)?;
    // SAFETY: all zeros is a value of this plain structure.
    let mut out: libc::statfs = unsafe { std::mem::zeroed() };
    out.f_type = MAGIC;
    out.f_bsize = stat.block_size as i64;
    out.f_frsize = stat.block_size as i64;
    out.f_blocks = stat.blocks;
    out.f_bfree = stat.blocks_free;
    out.f_bavail = stat.blocks_available;
    out.f_files = stat.inodes;
    out.f_ffree = stat.inodes_free;
    out.f_namelen = vfs::walk::NAME_BYTES_MAX as i64;
    // SAFETY: the word behind `f_frsize`, inside the structure, is `f_flags`; `f_fsid` is two words
    // of 32 bits. libc names neither.
    unsafe {
        (&raw mut out).cast::<i64>().add(FLAGS_WORD).write(VALID | flags_of(&stat).cast_signed());
        out.f_fsid = std::mem::transmute::<u64, libc::fsid_t>(stat.fsid);
    }
    Ok(out)
}

/// In `f_flags`: they are valid.
const VALID: i64 = 0x20;
/// Its place in `struct statfs`, in words.
const FLAGS_WORD: usize = std::mem::offset_of!(libc::statfs, f_frsize) / 8 + 1;
const _: () = assert!(FLAGS_WORD == 10 && size_of::<libc::statfs>() == 120);

/// How the volume is mounted, as it were: access times are relative.
fn flags_of(stat: &vfs::FsStat) -> c_ulong {
    libc::ST_RELATIME | if stat.read_only { libc::ST_RDONLY } else { 0 }
}

/// `pathconf`'s values on the volume.
pub fn limit(name: c_int) -> Served<c_long> {
    Ok(match name {
        libc::_PC_LINK_MAX => 0xffff_fff0,
        libc::_PC_MAX_CANON | libc::_PC_MAX_INPUT => 255,
        libc::_PC_NAME_MAX => vfs::walk::NAME_BYTES_MAX as c_long,
        libc::_PC_PATH_MAX => vfs::walk::PATH_BYTES_MAX as c_long + 1,
        libc::_PC_SYMLINK_MAX => vfs::walk::PATH_BYTES_MAX as c_long,
        libc::_PC_PIPE_BUF => 4096,
        libc::_PC_CHOWN_RESTRICTED | libc::_PC_NO_TRUNC | libc::_PC_2_SYMLINKS => 1,
        libc::_PC_VDISABLE => 0,
        libc::_PC_FILESIZEBITS => 64,
        libc::_PC_ALLOC_SIZE_MIN | libc::_PC_REC_MIN_XFER_SIZE | libc::_PC_REC_XFER_ALIGN => {
            BLOCK_BYTES
        }
        libc::_PC_SYNC_IO
        | libc::_PC_ASYNC_IO
        | libc::_PC_PRIO_IO
        | libc::_PC_SOCK_MAXBUF
        | libc::_PC_REC_INCR_XFER_SIZE
        | libc::_PC_REC_MAX_XFER_SIZE => {
            // No limit: -1 with errno as it was.
            return Ok(-1);
        }
        _ => return Err(Stop::Errno(Errno::INVAL)),
    })
}
