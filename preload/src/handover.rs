//! Descriptors that cross `exec`: their form, and how the new image takes them over.
//!
//! Before `exec` each descriptor of ours that the new image shall have becomes an open description
//! of its own of the anchor directory, whose *file position* names the engine's description:
//! `(index + 1) << 32 | generation`. The kernel carries it through whatever happens in between (a
//! program without this library, `dup2` in a shell, a socket), a slipped read gives `EISDIR`, a
//! slipped write `EBADF`. Placeholders have position 0.

use std::ffi::c_int;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::{DupFlags, FdFlags};
use vfs::{Desc, Errno, Node};

use crate::fdtable;
use crate::process::{Cwd, Process};

/// Environment variable: the descriptions that the old image held.
pub const HELD: &str = "SOLERA_HELD";
/// Environment variable: inode and generation of the working directory.
pub const CWD: &str = "SOLERA_CWD";
/// Environment variable: the engine's token for the new image.
pub const RESUME: &str = "SOLERA_RESUME";

const fn position(desc: Desc) -> u64 {
    (desc.index as u64 + 1) << 32 | desc.generation as u64
}

const fn from_position(position: u64) -> Option<Desc> {
    match (position >> 32) as u32 {
        0 => None,
        index => Some(Desc { index: index - 1, generation: position as u32 }),
    }
}

/// Puts every inherited descriptor into hand-over form. They go on working in this image.
pub fn prepare(process: &Process) -> Result<(), Errno> {
    let _lock = process.lock();
    for (fd, desc) in fdtable::all() {
        if rustix::io::fcntl_getfd(fdtable::borrow(fd))?.contains(FdFlags::CLOEXEC) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = rustix::fs::openat(&process.anchor, ".", flags, Mode::empty())?;
        rustix::fs::seek(&own, SeekFrom::Start(position(desc)))?;
        // SAFETY: never dropped: the number is the program's.
        let mut number = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
        rustix::io::dup3(&own, &mut number, DupFlags::empty())?;
    }
    Ok(())
}

/// The variables that tell the new image what it inherits.
pub fn variables(process: &Process, token: &str) -> Vec<Vec<u8>> {
    let maps = process.lock();
    let held: Vec<String> = Process::held(&maps)
        .iter()
        .map(|desc| format!("{}.{}", desc.index, desc.generation))
        .collect();
    drop(maps);
    let mut variables = vec![
        format!("{RESUME}={token}").into_bytes(),
        format!("{HELD}={}", held.join(",")).into_bytes(),
    ];
    if let Some(node) = process.cwd().node {
        variables.push(format!("{CWD}={}.{}", node.ino, node.generation).into_bytes());
    }
    variables
}

fn pair(text: &str) -> Option<(u64, u32)> {
    let (first, second) = text.split_once('.')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// In the new image: takes over what was handed over and drops what was not. `resumed`: the engine
/// kept the old image's holds.
pub fn take_over(process: &Process, resumed: bool, held: &str, cwd: Option<&str>) {
    let mut inherited: Vec<Desc> = Vec::new();
    for (fd, desc) in found(process) {
        let known = inherited.contains(&desc);
        // Without the old image's holds the description may be gone: the number stays a placeholder
        // that fails.
        if !known && !resumed && process.fs.adopt(desc).is_err() {
            continue;
        }
        if known {
            fdtable::set(fd, desc, true);
            for (other, _) in fdtable::all().filter(|&(_, other)| other == desc) {
                fdtable::set_shared(other);
            }
        } else {
            inherited.push(desc);
            fdtable::set(fd, desc, false);
        }
    }
    if resumed {
        for (index, generation) in held.split(',').filter_map(pair) {
            let desc = Desc { index: index as u32, generation };
            if !inherited.contains(&desc) {
                // It was close-on-exec, or only a mapping needed it.
                let _ = process.fs.close(desc);
            }
        }
    }
    if let Some((ino, generation)) = cwd.and_then(pair) {
        let node = Node { ino, generation };
        if process.fs.attr(node).is_ok() {
            process.set_cwd(Cwd { node: Some(node), path: Vec::new() });
        }
    }
    for fd in 0..3 {
        if fdtable::get(fd).is_some() {
            crate::stdio::number_taken(fd);
        }
    }
}

/// The open numbers that are in hand-over form.
fn found(process: &Process) -> Vec<(c_int, Desc)> {
    let mut found = Vec::new();
    let Ok(anchor) = rustix::fs::fstat(&process.anchor) else {
        return found;
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(list) = rustix::fs::open("/proc/self/fd", flags, Mode::empty()) else {
        return found;
    };
    let mut buffer = Vec::with_capacity(4096);
    let mut entries = rustix::fs::RawDir::new(list.as_fd(), buffer.spare_capacity_mut());
    while let Some(Ok(entry)) = entries.next() {
        let Some(fd) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if process.is_internal(fd) || fd as usize >= fdtable::NUMBERS_MAX {
            continue;
        }
        let number = fdtable::borrow(fd);
        let same = rustix::fs::fstat(number)
            .is_ok_and(|stat| stat.st_dev == anchor.st_dev && stat.st_ino == anchor.st_ino);
        if !same {
            continue;
        }
        let position = rustix::fs::seek(number, SeekFrom::Current(0)).unwrap_or(0);
        if let Some(desc) = from_position(position) {
            found.push((fd, desc));
        }
    }
    found
}
