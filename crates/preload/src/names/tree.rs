//! Functions of glibc that read directories inside themselves, where nothing can be interposed:
//! `glob` (which takes other functions: ours), `nftw` and `ftw` (walked here).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use vfs::Errno;

use crate::entry::pointers::Text;
use crate::entry::{Served, Stop, outside};
use crate::paths;

type Entry = libc::dirent64;

// ---- glob

/// glibc's `glob_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Glob {
    count: usize,
    paths: *mut *mut c_char,
    offset: usize,
    pub flags: c_int,
    closedir: Option<unsafe extern "C" fn(*mut c_void)>,
    readdir: Option<unsafe extern "C" fn(*mut c_void) -> *mut Entry>,
    opendir: Option<unsafe extern "C" fn(*const c_char) -> *mut c_void>,
    lstat: Option<unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
    stat: Option<unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int>,
}

impl Glob {
    /// `glob` is to read directories by our functions.
    pub fn read_by_ours(&mut self) {
        self.closedir = Some(glob_close);
        self.readdir = Some(glob_read);
        self.opendir = Some(glob_open);
        self.lstat = Some(glob_lstat);
        self.stat = Some(glob_stat);
    }
}

/// `GLOB_ALTDIRFUNC`.
pub const ALTDIRFUNC: c_int = 1 << 9;

unsafe extern "C" fn glob_close(dir: *mut c_void) {
    // SAFETY: opened by `libc::opendir`, which is ours.
    unsafe { libc::closedir(dir.cast()) };
}
unsafe extern "C" fn glob_read(dir: *mut c_void) -> *mut Entry {
    // SAFETY: as above.
    unsafe { libc::readdir64(dir.cast()) }
}
unsafe extern "C" fn glob_open(path: *const c_char) -> *mut c_void {
    // SAFETY: glob passes a path.
    unsafe { libc::opendir(path).cast() }
}
unsafe extern "C" fn glob_lstat(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: glob passes a path and room for the answer.
    unsafe { libc::lstat(path, out) }
}
unsafe extern "C" fn glob_stat(path: *const c_char, out: *mut libc::stat) -> c_int {
    // SAFETY: as above.
    unsafe { libc::stat(path, out) }
}

pub type GlobError = Option<unsafe extern "C" fn(*const c_char, c_int) -> c_int>;

// ---- tree walks

pub type Visit =
    unsafe extern "C-unwind" fn(*const c_char, *const libc::stat, c_int, *mut c_void) -> c_int;
/// `struct FTW`.
#[repr(C)]
struct Depth {
    base: c_int,
    level: c_int,
}

const PHYSICAL: c_int = 1;
const MOUNT: c_int = 2;
const CHDIR: c_int = 4;
const DEPTH: c_int = 8;
const ACTION: c_int = 16;
const FILE: c_int = 0;
const DIRECTORY: c_int = 1;
const UNREADABLE: c_int = 2;
const NO_STAT: c_int = 3;
const SYMLINK: c_int = 4;
const DIRECTORY_AFTER: c_int = 5;
const DANGLING: c_int = 6;
const SKIP_SUBTREE: c_int = 2;
const SKIP_SIBLINGS: c_int = 3;

struct TreeWalk {
    visit: Visit,
    flags: c_int,
    /// `ftw` does not know of `FTW_SL` and the fourth argument.
    plain: bool,
    device: u64,
    /// Directories above the present one, against cycles when links are followed.
    above: Vec<(u64, u64)>,
}

/// Where the last name of a path begins. (Of `/` alone: at its end.)
fn base_of(path: &[u8]) -> usize {
    path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1)
}

/// The working directory, to come back to.
fn here() -> Option<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a path of our own. What is opened is nobody else's.
    unsafe {
        let fd = libc::open(c".".as_ptr(), flags);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

/// A working directory, left again by [`SavedDirectory::back`].
enum SavedDirectory {
    /// It stayed as it was.
    Stayed,
    /// Upwards.
    Up,
    /// To this directory: by a symlink it is not above.
    To(OwnedFd),
}

impl SavedDirectory {
    /// Enters a directory by its name. `None`: it cannot be entered.
    fn into(name: &CStr, physical: bool) -> Option<Self> {
        let way = if physical { Self::Up } else { Self::To(here()?) };
        // SAFETY: a text.
        (unsafe { libc::chdir(name.as_ptr()) } == 0).then_some(way)
    }

    fn back(&self) -> bool {
        // SAFETY: a text, and a number of our own.
        unsafe {
            match self {
                Self::Stayed => true,
                Self::Up => libc::chdir(c"..".as_ptr()) == 0,
                Self::To(directory) => libc::fchdir(directory.as_raw_fd()) == 0,
            }
        }
    }
}

impl TreeWalk {
    /// What the calls about a path are given: with `FTW_CHDIR` its last name alone.
    fn name_of<'p>(&self, path: &'p CStr) -> &'p CStr {
        let base = base_of(path.to_bytes());
        if self.flags & CHDIR != 0 && base < path.count_bytes() {
            return &path[base..];
        }
        path
    }

    fn tell(&self, path: &[u8], stat: &libc::stat, mut what: c_int, level: c_int) -> c_int {
        if self.plain && what == DANGLING {
            what = NO_STAT;
        }
        let mut depth = Depth { base: base_of(path) as c_int, level };
        let Ok(path) = paths::c_text(path) else { return -1 };
        // SAFETY: the program's own function with the arguments of its manual.
        unsafe { (self.visit)(path.as_ptr(), stat, what, (&raw mut depth).cast()) }
    }

    /// As [`TreeWalk::walk`], in the directory of `path`; the working directory is then as before.
    fn there(&mut self, path: &[u8]) -> c_int {
        let Some(before) = here() else { return -1 };
        let base = base_of(path);
        if base > 0 {
            let directory = path[..base.max(2) - 1].to_vec();
            let Ok(directory) = paths::c_text(&directory) else { return -1 };
            // SAFETY: a text.
            if unsafe { libc::chdir(directory.as_ptr()) } != 0 {
                return -1;
            }
        }
        let told = self.walk(path, 0);
        let failed = crate::entry::errno();
        // SAFETY: a number of our own.
        let back = unsafe { libc::fchdir(before.as_raw_fd()) };
        if told == -1 {
            crate::entry::set_errno(failed);
        }
        if back == 0 { told } else { -1 }
    }

    /// Tells of `path` and what is below it. Runs outside: all calls are interposed as the
    /// program's.
    fn walk(&mut self, path: &[u8], level: c_int) -> c_int {
        let Ok(whole) = paths::c_text(path) else { return -1 };
        let text = self.name_of(&whole);
        // SAFETY: all zeros is a value of this plain structure; then libc fills it.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        let physical = self.flags & PHYSICAL != 0;
        // SAFETY: a path and room for the answer.
        let (mut found, mut what) = unsafe {
            if physical {
                (libc::lstat(text.as_ptr(), &raw mut stat) == 0, NO_STAT)
            } else if libc::stat(text.as_ptr(), &raw mut stat) == 0 {
                (true, NO_STAT)
            } else {
                (libc::lstat(text.as_ptr(), &raw mut stat) == 0, DANGLING)
            }
        };
        if !found && level == 0 {
            return -1;
        }
        if found && what != DANGLING {
            what = match stat.st_mode & libc::S_IFMT {
                libc::S_IFDIR => DIRECTORY,
                libc::S_IFLNK => SYMLINK,
                _ => FILE,
            };
            if self.flags & MOUNT != 0 && level > 0 && stat.st_dev != self.device {
                return 0;
            }
            if level == 0 {
                self.device = stat.st_dev;
            }
        } else if !found {
            found = true;
            what = NO_STAT;
        }
        let here = (stat.st_dev, stat.st_ino);
        if what == DIRECTORY && (physical || !self.above.contains(&here)) {
            return self.directory(path, text, &stat, level);
        }
        if what == DIRECTORY || !found { 0 } else { self.tell(path, &stat, what, level) }
    }

    fn directory(&mut self, path: &[u8], text: &CStr, stat: &libc::stat, level: c_int) -> c_int {
        let Some(names) = names_in(text) else {
            return self.tell(path, stat, UNREADABLE, level);
        };
        let after = self.flags & DEPTH != 0;
        if !after {
            match self.tell(path, stat, DIRECTORY, level) {
                0 => {}
                SKIP_SUBTREE if self.flags & ACTION != 0 => return 0,
                other => return other,
            }
        }
        let way = if self.flags & CHDIR == 0 {
            SavedDirectory::Stayed
        } else {
            let Some(way) = SavedDirectory::into(text, self.flags & PHYSICAL != 0) else {
                return -1;
            };
            way
        };
        self.above.push((stat.st_dev, stat.st_ino));
        for name in names {
            let mut below = path.to_vec();
            if below.last() != Some(&b'/') {
                below.push(b'/');
            }
            below.extend_from_slice(&name);
            match self.walk(&below, level + 1) {
                0 => {}
                SKIP_SIBLINGS if self.flags & ACTION != 0 => break,
                SKIP_SUBTREE if self.flags & ACTION != 0 => {}
                other => return other,
            }
        }
        self.above.pop();
        // As in glibc, it is told of from inside.
        let told = if after { self.tell(path, stat, DIRECTORY_AFTER, level) } else { 0 };
        if way.back() { told } else { -1 }
    }
}

/// The names in a directory; `None`: it cannot be read.
fn names_in(path: &CStr) -> Option<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    // SAFETY: a stream that is opened, read and closed here.
    unsafe {
        let dir = libc::opendir(path.as_ptr());
        if dir.is_null() {
            return None;
        }
        loop {
            let entry = libc::readdir64(dir);
            if entry.is_null() {
                break;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr()).to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        libc::closedir(dir);
    }
    Some(names)
}

/// Walks a tree that may be on the volume in part, wholly, or not at all.
pub fn tree(path: Text, visit: Option<Visit>, flags: c_int, plain: bool) -> Served<c_int> {
    let known = PHYSICAL | MOUNT | CHDIR | DEPTH | ACTION;
    let visit = visit.filter(|_| flags & !known == 0).ok_or(Errno::INVAL)?;
    let mut path = path.bytes()?.to_vec();
    if path.is_empty() {
        return Err(Stop::Errno(Errno::NOENT));
    }
    while path.len() > 1 && path.ends_with(b"/") {
        path.pop();
    }
    let mut walk = TreeWalk { visit, flags, plain, device: 0, above: Vec::new() };
    Ok(outside(|| if flags & CHDIR == 0 { walk.walk(&path, 0) } else { walk.there(&path) }))
}
