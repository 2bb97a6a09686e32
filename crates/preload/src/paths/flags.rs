//! Which bits of its flags a call knows. Linux refuses the others, before it looks at anything else
//! that the call names: so a program may ask in this way what there is.
//!
//! One table for all calls, by function and by number. What is not here has no such bits (`open`
//! and `fcntl` ignore what they do not know), or its flags say one of several things. Of its own
//! files the kernel may know more than this table.

use std::ffi::{c_int, c_uint};

use vfs::Errno;

use crate::entry::Stop;
use crate::entry::pointers::Text;
use crate::entry::process::Process;
use crate::paths::{self, Target};

/// The bits that a call knows, and the error for others.
pub struct KnownFlags(u32, Errno);

impl KnownFlags {
    const fn new(bits: c_int) -> Self {
        Self(bits.cast_unsigned(), Errno::INVAL)
    }

    /// Refuses bits that the call does not know.
    #[inline]
    pub const fn check(&self, flags: c_int) -> Result<(), Errno> {
        if flags.cast_unsigned() & !self.0 == 0 { Ok(()) } else { Err(self.1) }
    }

    /// The same of a call with a path, which may be the kernel's.
    #[inline]
    pub fn check_at(&self, process: &Process, at: (c_int, Text), flags: c_int) -> Result<(), Stop> {
        self.check(flags).map_err(|errno| unless_kernels(process, at, errno))
    }
}

/// Refuses a call, unless its path is the kernel's.
#[cold]
fn unless_kernels(process: &Process, (dirfd, path): (c_int, Text), errno: Errno) -> Stop {
    let path = path.bytes().unwrap_or_default();
    match paths::resolve(process, dirfd, path, false) {
        Ok(Target::Kernel) => Stop::Kernel,
        _ => Stop::Errno(errno),
    }
}

const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;
const EMPTY: c_int = libc::AT_EMPTY_PATH;
/// How current what is told must be: it always is.
const CURRENT: c_int = libc::AT_STATX_SYNC_TYPE;

/// `fstatat`, and `statx` but for what [`check_statx`] says.
pub const STAT: KnownFlags = KnownFlags::new(NOFOLLOW | EMPTY | libc::AT_NO_AUTOMOUNT | CURRENT);
/// `faccessat`, also by the number of `faccessat2`.
pub const ACCESS: KnownFlags = KnownFlags::new(NOFOLLOW | EMPTY | libc::AT_EACCESS);
/// `fchmodat`, also by the number of `fchmodat2`; `fchownat`, `utimensat`.
pub const CHANGE: KnownFlags = KnownFlags::new(NOFOLLOW | EMPTY);
pub const LINK: KnownFlags = KnownFlags::new(libc::AT_SYMLINK_FOLLOW | EMPTY);
pub const UNLINK: KnownFlags = KnownFlags::new(libc::AT_REMOVEDIR);
/// `execveat`. The bit by which a later kernel only checks is not served.
pub const EXECUTE: KnownFlags = KnownFlags::new(NOFOLLOW | EMPTY);
pub const SET_ATTRIBUTE: KnownFlags = KnownFlags::new(libc::XATTR_CREATE | libc::XATTR_REPLACE);
pub const SYNC_RANGE: KnownFlags = KnownFlags::new(
    (libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER)
        .cast_signed(),
);
/// `splice` and `tee`.
pub const SPLICE: KnownFlags = KnownFlags::new(
    (libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT)
        .cast_signed(),
);
/// What `access` may ask for.
pub const PERMISSIONS: KnownFlags = KnownFlags::new(libc::R_OK | libc::W_OK | libc::X_OK);

/// Of Linux 6.9: not at the end, although the description says so.
pub const RWF_NOAPPEND: c_int = 0x20;
/// Of Linux 6.18: about signals, which no file raises.
const RWF_NOSIGNAL: c_int = 0x100;
/// `preadv2` and `pwritev2`. Everything is high priority here, and nothing waits.
const VECTORS: KnownFlags = KnownFlags(
    (libc::RWF_HIPRI
        | libc::RWF_DSYNC
        | libc::RWF_SYNC
        | libc::RWF_NOWAIT
        | libc::RWF_APPEND
        | RWF_NOAPPEND
        | RWF_NOSIGNAL)
        .cast_unsigned(),
    Errno::OPNOTSUPP,
);

/// `MAP_ABOVE4G`, and the sizes of huge pages.
const MAP_MORE: c_int = 0x80 | 0x7c00_0000;
/// `mmap` with `MAP_SHARED_VALIDATE`; without it bits that it does not know are ignored.
const MAP_VALIDATED: KnownFlags = KnownFlags(
    (libc::MAP_TYPE
        | libc::MAP_FIXED
        | libc::MAP_ANONYMOUS
        | libc::MAP_32BIT
        | libc::MAP_GROWSDOWN
        | libc::MAP_DENYWRITE
        | libc::MAP_EXECUTABLE
        | libc::MAP_LOCKED
        | libc::MAP_NORESERVE
        | libc::MAP_POPULATE
        | libc::MAP_NONBLOCK
        | libc::MAP_STACK
        | libc::MAP_HUGETLB
        | libc::MAP_SYNC
        | MAP_MORE)
        .cast_unsigned(),
    Errno::OPNOTSUPP,
);

/// `statx`: its flags and what it is asked for.
#[inline]
pub fn check_statx(
    process: &Process,
    at: (c_int, Text),
    flags: c_int,
    mask: c_uint,
) -> Result<(), Stop> {
    /// Kept for a longer mask.
    const STATX_RESERVED: c_uint = 0x8000_0000;
    if mask & STATX_RESERVED != 0 || flags & CURRENT == CURRENT {
        return Err(unless_kernels(process, at, Errno::INVAL));
    }
    STAT.check_at(process, at, flags)
}

/// `preadv2` and `pwritev2`.
pub fn check_vectors(flags: c_int) -> Result<(), Errno> {
    VECTORS.check(flags)?;
    let both = libc::RWF_APPEND | RWF_NOAPPEND;
    if flags & both == both { Err(Errno::INVAL) } else { Ok(()) }
}

/// `mmap` of a file.
pub fn check_map(flags: c_int) -> Result<(), Errno> {
    if flags & libc::MAP_TYPE == libc::MAP_SHARED_VALIDATE {
        MAP_VALIDATED.check(flags)?;
    }
    // Of memory only.
    if flags & libc::MAP_GROWSDOWN != 0 { Err(Errno::INVAL) } else { Ok(()) }
}

/// `renameat2`: its flags, of which some exclude each other.
pub fn check_rename(flags: c_uint) -> Result<(), Errno> {
    let known = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT;
    let exchange = flags & libc::RENAME_EXCHANGE != 0;
    let fits = flags & !known == 0 && !(exchange && flags != libc::RENAME_EXCHANGE);
    if fits { Ok(()) } else { Err(Errno::INVAL) }
}
