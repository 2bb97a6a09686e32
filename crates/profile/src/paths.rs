//! Paths as the program writes them: a number for each that is opened, and whose they are.
//!
//! A path counts as a volume's by its beginning: symbolic links are not followed. A relative one is
//! put behind the working directory, or behind the path of the directory that it is relative to.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use record::{By, FILES, PATH_MAX};
use vfs::composite::MEMBERS_MAX;

use crate::descriptors;
use crate::next_symbol::{Next, keeping_errno};
use crate::process::{map, variable};

/// Bytes of a path that are looked at.
pub const LONGEST: usize = 512;
/// Rows that are looked at for a path.
const PROBES: usize = 32;

/// Below which directories who serves the files.
struct Prefixes {
    count: usize,
    all: [(By, usize, [u8; LONGEST]); MEMBERS_MAX + 1],
}

static PREFIXES: OnceLock<Prefixes> = OnceLock::new();

/// Reads what the preload library was told, and whether it serves anything.
pub fn learn() {
    type Serves = extern "C" fn() -> c_int;
    descriptors::learn();
    // SAFETY: a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"solera_serves".as_ptr()) };
    if found.is_null() {
        return;
    }
    // SAFETY: the library's function of this name has this signature.
    let serves = unsafe { std::mem::transmute::<*mut libc::c_void, Serves>(found) }();
    PREFIXES.get_or_init(|| {
        let mut list = Prefixes { count: 0, all: [(By::Kernel, 0, [0; LONGEST]); MEMBERS_MAX + 1] };
        if serves & 2 != 0 {
            list.add(By::Split, variable(c"SOLERA_SPLIT"));
        }
        if serves & 1 != 0 {
            list.add(By::Volume, variable(c"SOLERA_AT"));
            for number in 2..=MEMBERS_MAX {
                let mut name = *b"SOLERA_AT_00\0\0";
                // The number without a leading zero: as `SOLERA_AT_2`.
                let (tens, ones) = (b'0' + (number / 10) as u8, b'0' + (number % 10) as u8);
                name[10..12].copy_from_slice(&if tens == b'0' { [ones, 0] } else { [tens, ones] });
                let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
                list.add(By::Volume, variable(name));
            }
        }
        list
    });
}

impl Prefixes {
    fn add(&mut self, by: By, text: Option<&CStr>) {
        let mut bytes = text.map_or(&b""[..], CStr::to_bytes);
        while let [head @ .., b'/'] = bytes {
            bytes = head;
        }
        if let Some(place) = self.all.get_mut(self.count)
            && (1..=LONGEST).contains(&bytes.len())
        {
            place.0 = by;
            place.1 = bytes.len();
            place.2[..bytes.len()].copy_from_slice(bytes);
            self.count += 1;
        }
    }
}

/// Whose an absolute path is.
pub fn prefixed(path: &[u8]) -> By {
    let Some(list) = PREFIXES.get() else { return By::Kernel };
    let below = |(_, length, bytes): &&(By, usize, [u8; LONGEST])| {
        let rest = path.strip_prefix(&bytes[..*length]);
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
    };
    list.all[..list.count].iter().find(below).map_or(By::Kernel, |found| found.0)
}

/// The working directory, as it was asked for last.
struct Directory {
    busy: AtomicBool,
    path: UnsafeCell<([u8; LONGEST], usize)>,
}

// SAFETY: `path` is reached by the thread that has set `busy`.
unsafe impl Sync for Directory {}

static DIRECTORY: Directory =
    Directory { busy: AtomicBool::new(false), path: UnsafeCell::new(([0; LONGEST], 0)) };

/// It may be another now.
pub fn changed_directory() {
    with_directory(|place| place.1 = 0);
}

/// In a child: the thread that looked at it is not here.
pub fn forget_directory() {
    DIRECTORY.busy.store(false, Ordering::Relaxed);
    changed_directory();
}

/// Works on it, unless another thread, or what a handler has interrupted, does.
fn with_directory<T>(work: impl FnOnce(&mut ([u8; LONGEST], usize)) -> T) -> Option<T> {
    if DIRECTORY.busy.swap(true, Ordering::Acquire) {
        return None;
    }
    // SAFETY: nobody else has it.
    let done = work(unsafe { &mut *DIRECTORY.path.get() });
    DIRECTORY.busy.store(false, Ordering::Release);
    Some(done)
}

/// Copies the working directory; how many bytes it has.
fn directory(to: &mut [u8; LONGEST]) -> usize {
    type Function = unsafe extern "C-unwind" fn(*mut c_char, usize) -> *mut c_char;
    static NEXT: Next = Next::new("getcwd\0");
    let copied = with_directory(|(path, length)| {
        if *length == 0 {
            // SAFETY: the next function of this name, and room for so much.
            let found = keeping_errno(|| unsafe {
                let getcwd = std::mem::transmute::<usize, Function>(NEXT.address());
                getcwd(path.as_mut_ptr().cast(), LONGEST)
            });
            if found.is_null() {
                return 0;
            }
            *length = path.iter().position(|&byte| byte == 0).unwrap_or(0);
        }
        to[..*length].copy_from_slice(&path[..*length]);
        *length
    });
    copied.unwrap_or(0)
}

/// The bytes of a path that a call has taken.
fn bytes<'a>(path: *const c_char) -> &'a [u8] {
    if path.is_null() {
        return b"";
    }
    // SAFETY: a path that was read just now: it ends with a NUL, or goes on beyond what is looked
    // at.
    unsafe {
        let length = libc::strnlen(path, LONGEST);
        std::slice::from_raw_parts(path.cast(), length)
    }
}

/// Whose a path is, that a call has taken.
pub fn whose(dirfd: c_int, path: *const c_char) -> By {
    if PREFIXES.get().is_none_or(|list| list.count == 0) {
        return By::Kernel;
    }
    let path = bytes(path);
    if path.first() == Some(&b'/') {
        return prefixed(path);
    }
    if dirfd != libc::AT_FDCWD {
        let known = descriptors::get(dirfd);
        let known = if known.is_unknown() { descriptors::met(dirfd) } else { known };
        return known.server();
    }
    let mut room = [0; LONGEST];
    let length = directory(&mut room);
    prefixed(&room[..length])
}

/// The number of a path that was opened.
pub fn number(dirfd: c_int, path: *const c_char) -> u32 {
    let mut path = bytes(path);
    if path.first() == Some(&b'/') {
        return number_of(path);
    }
    while let [b'.', b'/', rest @ ..] = path {
        path = rest;
    }
    let mut room = [0; LONGEST];
    let head = match dirfd {
        libc::AT_FDCWD => directory(&mut room),
        dirfd => of_directory(dirfd, &mut room),
    };
    let slash = usize::from(head > 0 && room[head - 1] != b'/');
    let length = head + slash + path.len();
    if length > LONGEST || path == b"." {
        return number_of(if path == b"." { &room[..head] } else { path });
    }
    room[head..head + slash].fill(b'/');
    room[head + slash..length].copy_from_slice(path);
    number_of(&room[..length])
}

/// Copies the path of a directory that is open; how many bytes it has.
fn of_directory(dirfd: c_int, to: &mut [u8; LONGEST]) -> usize {
    let Some(map) = map() else { return 0 };
    let row = map.path(descriptors::get(dirfd).number() as usize);
    let length = (row.length.load(Ordering::Acquire) as usize).min(PATH_MAX);
    for (to, byte) in to.iter_mut().zip(&row.bytes[..length]) {
        *to = byte.load(Ordering::Relaxed);
    }
    length
}

/// The number of a path; 0 where there is no row for it.
pub fn number_of(path: &[u8]) -> u32 {
    let Some(map) = map() else { return 0 };
    let hash = hash(path);
    for probe in 0..PROBES {
        let number = (hash as usize).wrapping_add(probe) % FILES;
        if number == 0 {
            continue;
        }
        let row = map.path(number);
        let now = match row.hash.load(Ordering::Relaxed) {
            0 => match row.hash.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let last = &path[path.len().saturating_sub(PATH_MAX)..];
                    for (to, &byte) in row.bytes.iter().zip(last) {
                        to.store(byte, Ordering::Relaxed);
                    }
                    row.length.store(last.len() as u32, Ordering::Release);
                    return number as u32;
                }
                Err(now) => now,
            },
            now => now,
        };
        if now == hash {
            return number as u32;
        }
    }
    0
}

/// FNV-1a, never 0.
fn hash(path: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    path.iter().fold(start, mix).max(1)
}
