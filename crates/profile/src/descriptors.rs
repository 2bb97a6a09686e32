//! Which file a descriptor is of, and who serves it: one word for each number.
//!
//! It is written where the number is made, and taken back where it is closed. A number that came
//! from elsewhere (from another program, by a message, by a function that is not seen) is looked at
//! at its first call. What is no file (a pipe, a socket, a terminal, another device) is marked, and
//! its calls are passed on without more.
//!
//! The first numbers stand in the shared file, too, where the image behind an exec finds them.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use record::{BYS, By, FILES, KEPT};
use rustix::fs::FileType;
use vfs::lock_waits::Waits;
use vfs::preloaded::{Preloaded, SYMBOL, Told, VERSION};

use crate::next_symbol::keeping_errno;
use crate::paths;
use crate::process;

/// Numbers that are known.
const COUNT: usize = 1 << 16;
/// Not looked at yet, or not open.
pub const UNKNOWN: u32 = 0;
const KNOWN: u32 = 1 << 31;
const OTHER: u32 = 1 << 30;
const BY: u32 = 16;

const _: () = assert!(FILES <= 1 << BY);

static TABLE: [AtomicU32; COUNT] = [const { AtomicU32::new(UNKNOWN) }; COUNT];

/// What is known of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Known(u32);

impl Known {
    /// A file of this number.
    pub fn file(number: u32, by: By) -> Self {
        Self(KNOWN | (by as u32) << BY | number)
    }

    /// It was not looked at yet.
    #[inline]
    pub fn is_unknown(self) -> bool {
        self.0 == UNKNOWN
    }

    /// It is no file.
    #[inline]
    pub fn is_other(self) -> bool {
        self.0 & OTHER != 0
    }

    /// The number of its path.
    #[inline]
    pub fn number(self) -> u32 {
        self.0 & (FILES as u32 - 1)
    }

    /// Who serves it: a number of [`By`].
    #[inline]
    pub fn by(self) -> usize {
        (self.0 >> BY) as usize % BYS
    }

    /// The same by its name.
    pub fn server(self) -> By {
        By::ALL.get(self.by()).copied().unwrap_or(By::Kernel)
    }
}

fn slot(fd: c_int) -> Option<&'static AtomicU32> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// What is known of a number.
#[inline]
pub fn get(fd: c_int) -> Known {
    Known(slot(fd).map_or(UNKNOWN, |slot| slot.load(Ordering::Relaxed)))
}

/// A number stands for this.
pub fn set(fd: c_int, known: Known) {
    if let Some(slot) = slot(fd) {
        slot.store(known.0, Ordering::Relaxed);
        let kept = process::kept().and_then(|kept| kept.get(fd as usize));
        if let Some(kept) = kept {
            kept.store(known.0, Ordering::Relaxed);
        }
    }
}

/// A number is about to be closed; what it was.
pub fn take(fd: c_int) -> Known {
    let known = get(fd);
    if !known.is_unknown() {
        set(fd, Known(UNKNOWN));
    }
    known
}

/// These are about to be closed.
pub fn take_all(first: usize, last: usize) {
    for fd in first..=last.min(COUNT - 1) {
        take(fd as c_int);
    }
}

/// The image before the exec knew these.
pub fn remember(kept: &[AtomicU32; KEPT]) {
    for (slot, known) in TABLE.iter().zip(kept) {
        slot.store(known.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// What is known is put where an exec finds it.
pub fn keep(kept: &[AtomicU32; KEPT]) {
    for (slot, to) in TABLE.iter().zip(kept) {
        to.store(slot.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// What the preload library tells, once [`learn`] has found it.
static PRELOADED: AtomicPtr<Preloaded> = AtomicPtr::new(std::ptr::null_mut());

/// The same; `None`: it is not there, or of another version.
fn preloaded() -> Option<&'static Preloaded> {
    // SAFETY: none, or a table that stays.
    unsafe { PRELOADED.load(Ordering::Acquire).as_ref() }
}

/// What the calling thread waits for locks of volumes, from now on.
pub fn waits() -> Option<&'static Waits> {
    // SAFETY: they are there as long as the thread.
    preloaded().and_then(|table| unsafe { (table.waits)().as_ref() })
}

/// Finds the preload library. Where there is none the dynamic linker allocates the message that
/// says so, and the program's allocator may begin by opening files: those calls come here,
/// meanwhile.
pub fn learn() {
    type Gives = extern "C" fn() -> *const Preloaded;
    // SAFETY: a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr()) };
    if found.is_null() {
        return;
    }
    // SAFETY: the library's function of this name has this signature, in all versions.
    let table = unsafe { std::mem::transmute::<*mut libc::c_void, Gives>(found) }();
    // SAFETY: the table stays, and begins so in all versions.
    let version = unsafe { std::ffi::CStr::from_ptr((*table).version) };
    if version == VERSION {
        PRELOADED.store(table.cast_mut(), Ordering::Release);
    }
}

fn is_of_volume(fd: c_int) -> bool {
    let mut told = Told::NOTHING;
    // SAFETY: there is room for what is told.
    preloaded().is_some_and(|table| unsafe { (table.of_descriptor)(fd, &raw mut told) } != 0)
}

/// Whether the kernel has a file behind the number; `None`: it is not open.
fn is_file(fd: c_int) -> Option<bool> {
    // SAFETY: a number that the program has open, or an error.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    Some(matches!(kind, FileType::RegularFile | FileType::Directory | FileType::BlockDevice))
}

/// A descriptor has been made, by a path. What it is.
pub fn made(fd: c_int, dirfd: c_int, path: *const c_char) -> Known {
    if process::map().is_none() {
        // Nothing is counted, or whose it is cannot be known yet.
        return Known(UNKNOWN);
    }
    let known = keeping_errno(|| {
        if is_of_volume(fd) {
            return Known::file(paths::number(dirfd, path), By::Volume);
        }
        if is_file(fd) != Some(true) {
            return Known(KNOWN | OTHER);
        }
        let by = match paths::whose(dirfd, path) {
            By::Split => By::Split,
            _ => By::Kernel,
        };
        Known::file(paths::number(dirfd, path), by)
    });
    set(fd, known);
    known
}

/// A descriptor that came from elsewhere.
#[cold]
pub fn met(fd: c_int) -> Known {
    let known = keeping_errno(|| {
        if fd < 0 || process::map().is_none() {
            return Known(UNKNOWN);
        }
        if is_of_volume(fd) {
            return Known::file(paths::number_of(b"(not opened by the program)"), By::Volume);
        }
        match is_file(fd) {
            None => Known(UNKNOWN),
            Some(false) => Known(KNOWN | OTHER),
            Some(true) => named(fd),
        }
    });
    if !known.is_unknown() {
        set(fd, known);
    }
    known
}

/// By the name that the kernel gives it.
fn named(fd: c_int) -> Known {
    let mut link = [0; 32];
    let head = b"/proc/self/fd/";
    link[..head.len()].copy_from_slice(head);
    let mut digits = [0_u8; 10];
    let (mut at, mut rest) = (digits.len(), fd);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    link[head.len()..][..digits.len() - at].copy_from_slice(&digits[at..]);
    let link = std::ffi::CStr::from_bytes_until_nul(&link).unwrap_or_default();
    let mut room = [const { MaybeUninit::uninit() }; paths::LONGEST];
    match rustix::fs::readlinkat_raw(rustix::fs::CWD, link, &mut room) {
        Ok((path, _)) => {
            let by = if paths::prefixed(path) == By::Split { By::Split } else { By::Kernel };
            Known::file(paths::number_of(path), by)
        }
        Err(_) => Known::file(0, By::Kernel),
    }
}
