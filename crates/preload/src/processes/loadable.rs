//! Tells whether the dynamic linker will load this library into a program. Asked before `exec`, so
//! that a program that would see a directory's descriptor instead of a file, or nothing where the
//! volume is, does not run at all (docs/differences.md, "Which programs see the volume").

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use vfs::executable::{self, Dependencies, Linkage};

use crate::entry::cancel;
use crate::processes::exec::interpreter;
use crate::processes::host_program;

/// How much of a script's beginning is looked at.
const HEAD_BYTES: usize = 4096;
/// How often an interpreter may itself be a script, as in the kernel.
const INTERPRETERS_MAX: u32 = 4;

const STATIC: &str = "it is statically linked";
const VALGRIND: &str = "it is a tool of Valgrind's, which gives all addresses away itself";
const GO: &str = "it is a Go program, which makes its system calls without the C library";
const FOREIGN: &str = "it is no 64-bit x86 program";
const GAINS: &str = "it changes its user or group, or has capabilities";
const DIFFERS: &str = "this process's real and effective user or group differ";

/// Why a program is not preloaded.
#[derive(Clone, Copy)]
pub enum Obstacle {
    /// For this reason, whatever it is given.
    Never(&'static str),
    /// It is the dynamic loader: that depends on what it is given.
    Loader,
    /// A host runs it; else it is not preloaded for this reason.
    Host(&'static str),
}

/// Whether a program that is not preloaded for this reason would suffer from a library that it, or
/// what it runs, is told to preload: a linker of 32 bits says that it cannot, and what runs inside
/// Valgrind's tool does not survive it.
pub fn suffers(reason: &str) -> bool {
    [FOREIGN, VALGRIND].contains(&reason)
}

/// What the dynamic linker will do with a program.
#[derive(Default)]
pub struct Looked {
    /// Why it is not preloaded; `None`: it is, or it cannot be read or executed.
    pub obstacle: Option<Obstacle>,
    /// What it needs, if it is preloaded; of a script, what its interpreter does.
    pub needs: Option<Needs>,
}

/// What a program needs, and where it lies.
pub struct Needs {
    pub said: Dependencies,
    /// Its directory; empty if what it says does not depend on that.
    pub origin: Vec<u8>,
}

/// Looks at a kernel's program.
pub fn look_at(dirfd: BorrowedFd<'_>, path: &CString) -> Looked {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(dirfd, path, flags, Mode::empty());
    file.ok().and_then(|file| look(&file, INTERPRETERS_MAX)).unwrap_or_default()
}

/// The same for an open program.
pub fn look_at_open(program: BorrowedFd<'_>) -> Looked {
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&program));
    CString::new(link).map_or_else(|_| Looked::default(), |link| look_at(rustix::fs::CWD, &link))
}

/// Why the dynamic loader, told to start this program, preloads nothing into it: who it belongs to
/// does not matter then.
pub fn obstacle_of_contents(path: &CString) -> Option<&'static str> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let read = |at, to: &mut [u8]| rustix::io::pread(&file, to, at).unwrap_or(0);
    match obstacle_in(&read)? {
        Obstacle::Never(reason) | Obstacle::Host(reason) => Some(reason),
        // It does not load itself.
        Obstacle::Loader => None,
    }
}

fn look(file: &OwnedFd, depth: u32) -> Option<Looked> {
    let stat = rustix::fs::fstat(file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut head = [0; HEAD_BYTES];
    let length = rustix::io::pread(file, &mut head, 0).ok()?;
    let head = &head[..length];
    if let Some((name, _)) = interpreter(head) {
        let name = Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name));
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let next = rustix::fs::open(name, flags, Mode::empty()).ok()?;
        return depth.checked_sub(1).and_then(|depth| look(&next, depth));
    }
    // Most of what is asked for stands at its beginning.
    let read = |at: u64, to: &mut [u8]| {
        let known = usize::try_from(at).ok().and_then(|at| head.get(at..at + to.len()));
        match known {
            Some(known) => {
                to.copy_from_slice(known);
                to.len()
            }
            None => rustix::io::pread(file, to, at).unwrap_or(0),
        }
    };
    let obstacle = match obstacle_in(&read) {
        Some(Obstacle::Never(reason)) => Some(Obstacle::Never(reason)),
        found => gains(file, &stat).map(Obstacle::Never).or(found),
    };
    let needs = if obstacle.is_some() { None } else { needs(file, &read) };
    Some(Looked { obstacle, needs })
}

fn needs(file: &OwnedFd, read: &dyn Fn(u64, &mut [u8]) -> usize) -> Option<Needs> {
    let said = executable::dependencies(read)?;
    let mut texts = said.needed.iter().chain(&said.rpath).chain(&said.runpath);
    let has_token = texts.any(|text| text.contains(&b'$'));
    let link = || {
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
        Some(directory_of(rustix::fs::readlink(link, Vec::new()).ok()?.as_bytes()).to_vec())
    };
    let origin = if has_token { link().unwrap_or_default() } else { Vec::new() };
    Some(Needs { said, origin })
}

/// The directory in which a file lies, by its path.
pub fn directory_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    &path[..end.max(1).min(path.len())]
}

/// Whether the linker will be in its secure mode, in which it preloads nothing.
fn gains(file: &OwnedFd, stat: &Stat) -> Option<&'static str> {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let user = stat.st_mode & 0o4000 != 0 && stat.st_uid != uid;
    let group = stat.st_mode & 0o2010 == 0o2010 && stat.st_gid != gid;
    let capabilities = || {
        let mut value = [0_u8; 64];
        rustix::fs::fgetxattr(file.as_fd(), "security.capability", &mut value[..]).is_ok()
    };
    if user || group || uid != 0 && capabilities() {
        return Some(GAINS);
    }
    let keeps = |bit| stat.st_mode & bit == 0;
    let differs =
        keeps(0o4000) && geteuid().as_raw() != uid || keeps(0o2000) && getegid().as_raw() != gid;
    differs.then_some(DIFFERS)
}

fn of_host(reason: &'static str) -> Obstacle {
    if host_program::is_possible() { Obstacle::Host(reason) } else { Obstacle::Never(reason) }
}

/// Why the program that `read` reads is not preloaded, as far as its contents show.
pub fn obstacle_in(read: &dyn Fn(u64, &mut [u8]) -> usize) -> Option<Obstacle> {
    match executable::linkage(read) {
        Linkage::Foreign => Some(Obstacle::Never(FOREIGN)),
        Linkage::Static => Some(of_host(STATIC)),
        Linkage::Valgrind => Some(Obstacle::Never(VALGRIND)),
        Linkage::Go => Some(of_host(GO)),
        Linkage::GoBesideC => (!cancel::sees_outside()).then_some(Obstacle::Never(GO)),
        Linkage::Loader => Some(Obstacle::Loader),
        // The kernel refuses it, or knows its format by other means.
        Linkage::OtherFormat | Linkage::Damaged | Linkage::Dynamic => None,
    }
}
