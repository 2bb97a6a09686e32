//! What the kernel knows of this process's memory: what is mapped at an address, which of its pages
//! were changed, how mappings are marked.
//!
//! Two files of `/proc` stay open while unmodified programs' buffers may be attached: an `open` for
//! each question would cost more than what is asked (`PROCMAP_QUERY` 0.34 us, with `open` and
//! `close` 3.4; `PAGEMAP_SCAN` of 2 MiB 0.7, and 2.5 more). They show the memory of who opened
//! them, so a forked child opens them anew, by `/proc`, which stays open, too.

use crate::program;
use crate::segments;
use os::InternalFd;
use os::interrupt::system_call;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// The files that are kept open.
pub(crate) struct Files {
    maps: InternalFd,
    pagemap: InternalFd,
    /// `/proc`: a child of a program that changed its root cannot find it any more.
    proc: InternalFd,
}

static FILES: OnceLock<Files> = OnceLock::new();

// Of the calling thread: the first one may have ended, and then nothing is mapped there.
const MAPS: &CStr = c"thread-self/maps";
const PAGEMAP: &CStr = c"thread-self/pagemap";

/// Opens a file of `/proc`.
fn open(path: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    match FILES.get() {
        Some(files) => rustix::fs::openat(&files.proc, path, flags, Mode::empty()),
        None => rustix::fs::openat(open_proc()?, path, flags, Mode::empty()),
    }
}

fn open_proc() -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(c"/proc", flags, Mode::empty())
}

/// Whether a mapping that fails leaves what was there: from Linux 6.12 on.
pub(crate) fn is_new_enough() -> bool {
    // SAFETY: a structure of texts.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    let arguments = [&raw mut name as usize, 0, 0, 0, 0, 0];
    // SAFETY: the kernel fills in the structure, and ends each text.
    let told = unsafe { system_call(libc::SYS_uname, arguments) };
    // SAFETY: as above; zeros if it failed.
    let release = unsafe { CStr::from_ptr(name.release.as_ptr()) };
    let release = release.to_str().ok().filter(|_| told.is_ok()).unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 12)
}

/// Opens the files. Refused where the kernel does not know both requests (`PROCMAP_QUERY`: Linux
/// 6.11, `PAGEMAP_SCAN`: 6.7), or there is no `/proc`.
pub(crate) fn begin() -> rustix::io::Result<()> {
    if FILES.get().is_some() {
        return Ok(());
    }
    let (maps, pagemap) = (open(MAPS)?, open(PAGEMAP)?);
    let here = &raw const FILES as usize;
    query(maps.as_fd(), here, 0)?;
    scan(pagemap.as_fd(), here / 4096 * 4096, 4096, &HUGE)?;
    let [maps, pagemap, proc] = [maps, pagemap, open_proc()?].map(InternalFd::new);
    let files = Files { maps, pagemap, proc };
    // Another thread may have been faster.
    let _ = FILES.set(files);
    Ok(())
}

/// In a forked child: its own memory, under the same numbers.
pub(crate) fn forked() {
    let Some(files) = FILES.get() else { return };
    for (fd, path) in [(&files.maps, MAPS), (&files.pagemap, PAGEMAP)] {
        // What cannot be opened shows the parent's memory: it is closed instead, so that every
        // question fails.
        if open(path).and_then(|new| os::put_in_place(fd, &new)).is_err() {
            // SAFETY: the number is this module's; nobody else closes it.
            drop(unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) });
        }
    }
}

/// The files' descriptors.
pub(crate) fn descriptors<'f>() -> impl Iterator<Item = &'f InternalFd> {
    FILES.get().into_iter().flat_map(|files| [&files.maps, &files.pagemap, &files.proc])
}

// ---- what is mapped -----------------------------------------------------------------------------

/// The kernel's `struct procmap_query`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_address: u64,
    start: u64,
    end: u64,
    flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: (u32, u32),
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}
const _: () = assert!(size_of::<ProcmapQuery>() == 104);

/// `PROCMAP_QUERY`: `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: rustix::ioctl::Opcode =
    rustix::ioctl::opcode::read_write::<ProcmapQuery>(b'f', 17);
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;
/// The mapping at the address, or the next one.
const OR_NEXT: u64 = 16;

/// A mapping of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) page_size: u64,
    flags: u64,
    device: (u32, u32),
    inode: u64,
}

impl Mapping {
    /// As memory is that was attached and nothing else since.
    pub(crate) const PLAIN: Self = Self {
        start: 0,
        end: 0,
        page_size: 4096,
        flags: READABLE | WRITABLE,
        device: (0, 0),
        inode: 0,
    };

    /// Private, to read and to write, and no more.
    pub(crate) fn is_plain(&self) -> bool {
        self.flags & (READABLE | WRITABLE | EXECUTABLE | SHARED) == READABLE | WRITABLE
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.flags & SHARED != 0
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.inode == 0
    }

    pub(crate) fn is_private_file(&self) -> bool {
        !self.is_anonymous() && !self.is_shared()
    }

    /// Of the file.
    pub(crate) fn mark(&self) -> u32 {
        mark_of(self.device, self.inode)
    }

    pub(crate) fn prot(&self) -> ProtFlags {
        let bits = [
            (READABLE, ProtFlags::READ),
            (WRITABLE, ProtFlags::WRITE),
            (EXECUTABLE, ProtFlags::EXEC),
        ];
        bits.iter().filter(|(bit, _)| self.flags & bit != 0).map(|(_, prot)| *prot).collect()
    }
}

/// What tells one file from others, nearly: 32 bits.
pub(crate) fn mark(device: u64, inode: u64) -> u32 {
    mark_of((rustix::fs::major(device), rustix::fs::minor(device)), inode)
}

fn mark_of((major, minor): (u32, u32), inode: u64) -> u32 {
    let device = u64::from(major) << 32 | u64::from(minor);
    let mixed = (inode ^ device.rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as u32
}

/// Whether the kernel answers: a program may have forbidden itself the call.
pub(crate) fn answers() -> bool {
    mapping_from(&raw const FILES as usize).is_some()
}

/// The mapping at an address, or the first one behind it. `None`: the kernel does not say, or is
/// not to be asked any more.
pub(crate) fn mapping_from(address: usize) -> Option<Mapping> {
    if program::is_stopped() {
        return None;
    }
    query(FILES.get()?.maps.as_fd(), address, OR_NEXT).ok()
}

/// The devices on which caches of this process lie.
static DEVICES: [OnceLock<u64>; 8] = [const { OnceLock::new() }; 8];

/// A cache lies in this directory.
pub(crate) fn add_place(directory: BorrowedFd<'_>) {
    let Ok(stat) = rustix::fs::fstat(directory) else { return };
    for slot in &DEVICES {
        if *slot.get_or_init(|| stat.st_dev) == stat.st_dev {
            return;
        }
    }
}

/// Whether a mapping of a file is one of a segment, by its device and the end of its name: the rest
/// of it goes where the cache is unmounted meanwhile.
pub(crate) fn is_segment(there: &Mapping) -> bool {
    let is_of =
        |device: u64| (rustix::fs::major(device), rustix::fs::minor(device)) == there.device;
    if !DEVICES.iter().filter_map(OnceLock::get).any(|device| is_of(*device)) {
        return false;
    }
    let mut name = [0; 512];
    let Some(files) = FILES.get() else { return false };
    let Ok((_, length)) = query_named(files.maps.as_fd(), there.start, 0, &mut name) else {
        return false;
    };
    let name = &name[..length.min(name.len())];
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut parts = name.strip_suffix(b" (deleted)").unwrap_or(name).rsplit(|byte| *byte == b'/');
    let number = parts.next().and_then(segments::number);
    let era = parts.next().and_then(|era| segments::era(std::str::from_utf8(era).ok()?));
    number.is_some() && era.is_some()
}

fn query(maps: BorrowedFd<'_>, address: usize, flags: u64) -> rustix::io::Result<Mapping> {
    query_named(maps, address, flags, &mut []).map(|(there, _)| there)
}

/// With the name that it has, and how long that is.
fn query_named(
    maps: BorrowedFd<'_>,
    address: usize,
    flags: u64,
    name: &mut [u8],
) -> rustix::io::Result<(Mapping, usize)> {
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        query_flags: flags,
        query_address: address as u64,
        name_size: name.len() as u32,
        name: if name.is_empty() { 0 } else { name.as_mut_ptr() as u64 },
        ..ProcmapQuery::default()
    };
    // SAFETY: the request takes this structure, and there is room for the name.
    unsafe {
        rustix::ioctl::ioctl(
            maps,
            rustix::ioctl::Updater::<PROCMAP_QUERY, ProcmapQuery>::new(&mut query),
        )?;
    }
    let there = Mapping {
        start: query.start as usize,
        end: query.end as usize,
        page_size: query.page_size,
        flags: query.flags,
        device: query.device,
        inode: query.inode,
    };
    Ok((there, query.name_size as usize))
}

// ---- what became of pages -----------------------------------------------------------------------

/// The kernel's `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// The kernel's `struct pm_scan_arg`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    region_count: u64,
    pages_max: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    told: u64,
}
const _: () = assert!(size_of::<ScanArguments>() == 96);

/// `PAGE_IS_FILE`: of a file, or shared.
const IS_FILE: u64 = 1 << 2;
/// `PAGE_IS_PRESENT`, `PAGE_IS_SWAPPED`.
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
/// `PAGE_IS_HUGE`: mapped by one entry, of 2 MiB.
const IS_HUGE: u64 = 1 << 6;
/// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: rustix::ioctl::Opcode =
    rustix::ioctl::opcode::read_write::<ScanArguments>(b'f', 16);

/// `PAGE_IS_GUARD`: nobody may access it (Linux 6.15).
const IS_GUARD: u64 = 1 << 8;

/// What is looked for.
struct Looked {
    inverted: u64,
    all_of: u64,
    any_of: u64,
}

const HUGE: Looked = Looked { inverted: 0, all_of: IS_HUGE, any_of: 0 };
const GUARD: Looked = Looked { inverted: 0, all_of: 0, any_of: IS_GUARD };
/// Of a private mapping of a file: pages of the program's own.
const CHANGED: Looked =
    Looked { inverted: IS_FILE, all_of: IS_FILE, any_of: IS_PRESENT | IS_SWAPPED };

/// The first part of a range whose pages are so.
fn scan(
    pagemap: BorrowedFd<'_>,
    start: usize,
    length: usize,
    looked: &Looked,
) -> rustix::io::Result<Option<(usize, usize)>> {
    let mut region = PageRegion::default();
    let mut arguments = ScanArguments {
        size: size_of::<ScanArguments>() as u64,
        start: start as u64,
        end: (start + length) as u64,
        regions: &raw mut region as u64,
        region_count: 1,
        inverted: looked.inverted,
        all_of: looked.all_of,
        any_of: looked.any_of,
        told: looked.all_of | looked.any_of,
        ..ScanArguments::default()
    };
    // SAFETY: the request takes this structure, and there is room for one region.
    let found = unsafe {
        rustix::ioctl::ioctl(
            pagemap,
            rustix::ioctl::Updater::<PAGEMAP_SCAN, ScanArguments>::new(&mut arguments),
        )
    };
    found?;
    // SAFETY: the kernel may have written to it.
    let region = unsafe { std::ptr::read_volatile(&raw const region) };
    Ok((region.end != 0).then_some((region.start as usize, region.end as usize)))
}

/// Whether a range is mapped by huge pages, all of it. `None`: the kernel does not say.
pub(crate) fn is_huge(start: usize, length: usize) -> Option<bool> {
    let found = match FILES.get() {
        Some(files) => scan(files.pagemap.as_fd(), start, length, &HUGE),
        None => open(PAGEMAP).and_then(|pagemap| scan(pagemap.as_fd(), start, length, &HUGE)),
    };
    found.ok().map(|found| found == Some((start, start + length)))
}

/// Where the first guard page of a range is (`MADV_GUARD_INSTALL`): no mapping tells of it.
pub(crate) fn guard(start: usize, end: usize) -> rustix::io::Result<Option<usize>> {
    let files = FILES.get().ok_or(Errno::NOENT)?;
    let found = scan(files.pagemap.as_fd(), start, end - start, &GUARD)?;
    Ok(found.map(|(first, _)| first))
}

/// Bytes of small pages that were attached, and to which the program has stored since. `None`: the
/// kernel does not say.
pub(crate) fn changed(start: usize, length: usize) -> Option<usize> {
    let pagemap = FILES.get()?.pagemap.as_fd();
    let (mut from, end, mut bytes) = (start, start + length, 0);
    while from < end
        && let Some((first, last)) = scan(pagemap, from, end - from, &CHANGED).ok()?
    {
        bytes += last - first;
        from = last;
    }
    Some(bytes)
}

/// Page faults that needed no medium, of this process or thread (`RUSAGE_SELF`, `RUSAGE_THREAD`).
pub(crate) fn faults(of: i32) -> u64 {
    // SAFETY: a structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let arguments = [of as usize, &raw mut usage as usize, 0, 0, 0, 0];
    // SAFETY: the kernel fills in the structure.
    let told = unsafe { system_call(libc::SYS_getrusage, arguments) };
    told.map_or(0, |_| usage.ru_minflt.cast_unsigned())
}

// ---- how mappings are marked --------------------------------------------------------------------

/// Why segments are not mapped over memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Reason {
    Short = 2,
    Incongruent,
    SmallPages,
    SharedMapping,
    FileMapping,
    Executable,
    Stack,
    Locked,
    NotInherited,
    NotDumped,
    MemoryPolicy,
    ProtectionKey,
    Userfaultfd,
    HugeMapping,
    Pinned,
    Device,
    Rewritten,
    TooMany,
    Unchecked,
    Kernel,
}

impl Reason {
    const ALL: [(Self, &'static str); 20] = [
        (Self::Short, "attach:short"),
        (Self::Incongruent, "attach:incongruent"),
        (Self::SmallPages, "attach:small-pages"),
        (Self::SharedMapping, "attach:shared-mapping"),
        (Self::FileMapping, "attach:file-mapping"),
        (Self::Executable, "attach:executable"),
        (Self::Stack, "attach:stack"),
        (Self::Locked, "attach:locked"),
        (Self::NotInherited, "attach:not-inherited"),
        (Self::NotDumped, "attach:not-dumped"),
        (Self::MemoryPolicy, "attach:memory-policy"),
        (Self::ProtectionKey, "attach:protection-key"),
        (Self::Userfaultfd, "attach:userfaultfd"),
        (Self::HugeMapping, "attach:huge-mapping"),
        (Self::Pinned, "attach:pinned"),
        (Self::Device, "attach:device"),
        (Self::Rewritten, "attach:rewritten"),
        (Self::TooMany, "attach:too-many"),
        (Self::Unchecked, "attach:unchecked"),
        (Self::Kernel, "attach:kernel"),
    ];

    /// As `--report` says it.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(reason, _)| *reason == self)
            .map_or("attach:kernel", |(_, name)| name)
    }

    pub(crate) fn of_code(code: u64) -> Option<Self> {
        Self::ALL.iter().map(|(reason, _)| *reason).find(|reason| *reason as u64 == code)
    }
}

/// Flags of `/proc/thread-self/smaps` with which memory is left as it is.
const FLAGS: [(&[u8; 2], Reason); 13] = [
    (b"lo", Reason::Locked),
    (b"dc", Reason::NotInherited),
    (b"wf", Reason::NotInherited),
    (b"dd", Reason::NotDumped),
    (b"um", Reason::Userfaultfd),
    (b"uw", Reason::Userfaultfd),
    (b"ui", Reason::Userfaultfd),
    (b"gd", Reason::Stack),
    (b"ss", Reason::Stack),
    (b"ht", Reason::HugeMapping),
    (b"io", Reason::Device),
    (b"pf", Reason::Device),
    (b"sl", Reason::Kernel),
];

/// Tells of each mapping of this process, in order: where it is, and what speaks against mapping
/// over it. Linear in the memory that is mapped: 0.1 ms for a small program, 3 for 256 MiB of small
/// pages. An error: not all were told.
pub(crate) fn each_mapping(
    each: &mut dyn FnMut(usize, usize, Option<Reason>),
) -> rustix::io::Result<()> {
    let file = open(c"thread-self/smaps")?;
    let mut lines = Lines::default();
    let mut current: Option<(usize, usize)> = None;
    let mut found: Option<Reason> = None;
    lines.read(&file, &mut |line| {
        if line.first().is_some_and(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte)) {
            current = range_of(line);
            found = None;
        } else if let Some(rest) = line.strip_prefix(b"ProtectionKey:") {
            if rest.iter().any(|byte| (b'1'..=b'9').contains(byte)) {
                found = Some(Reason::ProtectionKey);
            }
        } else if let Some(rest) = line.strip_prefix(b"VmFlags:")
            && let Some((start, end)) = current
        {
            let flags = || rest.split(|byte| *byte == b' ');
            let flagged = FLAGS.iter().find(|(flag, _)| flags().any(|one| one == *flag));
            each(start, end, found.or(flagged.map(|(_, reason)| *reason)));
        }
    })
}

fn range_of(line: &[u8]) -> Option<(usize, usize)> {
    let text = std::str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?;
    let (start, end) = text.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

/// Lines of a file of `/proc`; of one that is longer than the buffer its end.
struct Lines {
    bytes: [u8; 4096],
    length: usize,
}

impl Default for Lines {
    fn default() -> Self {
        Self { bytes: [0; 4096], length: 0 }
    }
}

impl Lines {
    fn read(&mut self, file: &OwnedFd, each: &mut dyn FnMut(&[u8])) -> rustix::io::Result<()> {
        loop {
            if self.length == self.bytes.len() {
                self.length = 0;
            }
            let read = rustix::io::retry_on_intr(|| {
                rustix::io::read(file, &mut self.bytes[self.length..])
            })?;
            if read == 0 {
                return Ok(());
            }
            self.length += read;
            let mut at = 0;
            while let Some(line) = self.bytes[at..self.length].iter().position(|b| *b == b'\n') {
                each(&self.bytes[at..at + line]);
                at += line + 1;
            }
            self.bytes.copy_within(at..self.length, 0);
            self.length -= at;
        }
    }
}

/// What speaks against mapping anything in this process: `is_own` tells which descriptors are not
/// the program's.
pub(crate) fn process_wide(is_own: fn(i32) -> bool) -> rustix::io::Result<Option<Reason>> {
    let mut is_pinned = false;
    let status = open(c"thread-self/status")?;
    Lines::default().read(&status, &mut |line| {
        if let Some(rest) = line.strip_prefix(b"VmPin:") {
            is_pinned |= rest.iter().any(|byte| (b'1'..=b'9').contains(byte));
        }
    })?;
    if is_pinned {
        return Ok(Some(Reason::Pinned));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let files = FILES.get().ok_or(Errno::NOENT)?;
    let numbers = rustix::fs::openat(&files.proc, c"thread-self/fd", flags, Mode::empty())?;
    let mut room = [std::mem::MaybeUninit::uninit(); 2048];
    let mut entries = rustix::fs::RawDir::new(&numbers, &mut room);
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_bytes().to_vec();
        let number = std::str::from_utf8(&name).ok().and_then(|name| name.parse::<i32>().ok());
        let Some(number) = number.filter(|number| !is_own(*number)) else { continue };
        // SAFETY: looked at, once; if it is closed meanwhile it is no device.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(stat) = rustix::fs::fstat(fd) else { continue };
        if is_device(stat.st_mode, stat.st_rdev) {
            return Ok(Some(Reason::Device));
        }
    }
    Ok(None)
}

/// Whether this is a device that may reach memory past the kernel's page tables: any but terminals,
/// and `null`, `zero`, `full`, `random`, `urandom`, `kmsg`.
fn is_device(mode: u32, device: u64) -> bool {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::BlockDevice => true,
        rustix::fs::FileType::CharacterDevice => {
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            !matches!((major, minor), (1, 3 | 5 | 7 | 8 | 9 | 11) | (4 | 5 | 136..=143, _))
        }
        _ => false,
    }
}

/// Whether a memory policy of the program's governs an address, or the calling thread.
pub(crate) fn has_policy(address: usize) -> bool {
    const OF_ADDRESS: usize = 2;
    [(address, OF_ADDRESS), (0, 0)].iter().any(|&(address, flags)| {
        let mut mode = 0_i32;
        let arguments = [&raw mut mode as usize, 0, 0, address, flags, 0];
        // SAFETY: the kernel writes one number. A kernel without policies refuses.
        let told = unsafe { system_call(libc::SYS_get_mempolicy, arguments) };
        told.is_ok() && mode != 0
    })
}
