//! Descriptors that leave this process by an exec or a message: their form, and how the new image
//! or process takes them over.
//!
//! Before `exec`, and in a message that carries descriptors (`messages.rs`), a descriptor of ours
//! takes *hand-over form*: it becomes one of the description's own *carrier*, whose file name tells
//! what the engine called it (`volume::carry`). The kernel carries that through whatever happens in
//! between (a program without this library, `dup2` in a shell, a socket), and as long as it does
//! the engine keeps the description. A slipped read gives `EISDIR`, a slipped write `EBADF`; below
//! a directory that slips there is nothing (`ENOTDIR`).
//!
//! A number in hand-over form keeps the carrier while it is open: so it is closed before the engine
//! closes the description, at the end of the process too ([`close_handed`]).

use std::ffi::c_int;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::fs::{Mode, OFlags};
use rustix::io::{DupFlags, FdFlags};
use vfs::composite::name_of_member;
use vfs::{Desc, Errno, FileSystemExt, Kind, Node};

use crate::descriptors::placeholder;
use crate::entry::fdtable;
use crate::entry::process::{Cwd, Process};

/// Environment variable: the descriptions that the old image held.
pub const HELD: &str = "SOLERA_HELD";
/// Environment variable: inode and generation of the working directory.
pub const CWD: &str = "SOLERA_CWD";
/// Environment variable: the process that executes an image which inherits nothing of the volume,
/// and behind a colon its memory node + 1; 0: it has none.
pub const LATE: &str = "SOLERA_LATE";
/// Environment variable: the engine's token for the new image.
pub const RESUME: &str = "SOLERA_RESUME";

/// Environment variable: the file that the new image is executed from, and that of the old one.
pub const PROGRAM: &str = "SOLERA_PROGRAM";

/// What a received number turned out to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The kernel's affair, or another volume's.
    Foreign,
    /// Another process's placeholder, which names nothing.
    Placeholder,
    /// In hand-over form, with this name, as the engine wants it.
    Named(u64),
}

/// A descriptor in hand-over form for `desc`.
pub fn form(process: &Process, desc: Desc) -> Result<OwnedFd, Errno> {
    let (name, kind) = process.fs.hand_over(desc)?;
    let anchor = &process.volume_of(desc).anchor;
    let carry = || volume::carry(anchor, name, kind == Kind::Directory);
    let carried = placeholder::within_numbers(carry);
    // Another thread may have closed it before the carrier was held.
    if let Err(errno) = process.fs.describe(desc) {
        volume::dismiss(anchor, name);
        return Err(errno);
    }
    carried
}

/// Puts every inherited descriptor into hand-over form. They go on working in this image.
pub fn prepare(process: &Process) -> Result<(), Errno> {
    let _lock = process.lock();
    for (fd, desc) in fdtable::all() {
        if fdtable::is_handed(fd)
            || rustix::io::fcntl_getfd(fdtable::borrow(fd))?.contains(FdFlags::CLOEXEC)
        {
            continue;
        }
        let own = form(process, desc)?;
        os::put_at(&own, fd, DupFlags::empty())?;
        fdtable::set_handed(fd);
    }
    Ok(())
}

/// At the end of the process: closes its numbers in hand-over form, which would look in flight.
pub fn close_handed(process: &Process) {
    let _lock = process.lock();
    for (fd, _) in fdtable::all().filter(|&(fd, _)| fdtable::is_handed(fd)) {
        fdtable::close_number(fd);
    }
}

/// The variables that tell the new image that it inherits nothing but a working directory, perhaps.
/// `home`: see [`home`].
pub fn late_variables(process: &Process, home: u32) -> Vec<Vec<u8>> {
    let own = rustix::process::getpid().as_raw_nonzero();
    let mut variables = vec![format!("{LATE}={own}:{home}").into_bytes()];
    variables.extend(directory_variable(process));
    variables
}

/// The memory node + 1 that this process is at home on, as far as is known; else 0.
pub fn home(process: &Process) -> u32 {
    let known = process.fs.known().and_then(|known| known.0.home()).map(|home| home + 1);
    known.unwrap_or_else(|| process.home.load(Ordering::Relaxed))
}

fn directory_variable(process: &Process) -> Option<Vec<u8>> {
    let node = process.cwd().node?;
    Some(format!("{CWD}={}", said(node)).into_bytes())
}

fn said(node: Node) -> String {
    format!("{}.{}", node.ino, node.generation)
}

/// A node as [`said`].
pub fn node(text: &str) -> Option<Node> {
    pair(text).map(|(ino, generation)| Node { ino, generation })
}

/// The variables that tell the new image what it inherits. `program`: what it is executed from, and
/// the path of that.
pub fn variables(
    process: &Process,
    token: &str,
    (program, path): (Option<Node>, &[u8]),
) -> Vec<Vec<u8>> {
    let maps = process.lock();
    let closed = closed_by_exec(process);
    let held: Vec<String> = Process::held(&maps)
        .iter()
        .map(|desc| {
            let mark = if closed.contains(desc) { CLOSED } else { "" };
            format!("{mark}{}.{}", desc.index(), desc.generation())
        })
        .collect();
    drop(maps);
    let mut variables = vec![
        format!("{RESUME}={token}").into_bytes(),
        format!("{HELD}={}", held.join(",")).into_bytes(),
    ];
    variables.extend(directory_variable(process));
    let before = process.program.get().copied();
    if program.is_some() || before.is_some() {
        let [now, before] = [program, before].map(|node| node.map_or_else(String::new, said));
        let path = std::str::from_utf8(path).unwrap_or_default();
        variables.push(format!("{PROGRAM}={now},{before},{path}").into_bytes());
    }
    variables
}

/// Marks a description of which an exec closes a number: that drops the process's record locks on
/// its file, as any close does.
const CLOSED: &str = "c";

/// The descriptions of which an exec closes a number, if the process may have record locks.
fn closed_by_exec(process: &Process) -> Vec<Desc> {
    if !process.record_locks.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let closes = |fd| {
        let flags = rustix::io::fcntl_getfd(fdtable::borrow(fd));
        flags.is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC))
    };
    fdtable::all().filter(|&(fd, _)| closes(fd)).map(|(_, desc)| desc).collect()
}

fn pair(text: &str) -> Option<(u64, u32)> {
    let (first, second) = text.split_once('.')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// In the new image: its file counts as executed, and that of the old image no more. `said`: the
/// variable. Gives its file.
pub fn take_program(process: &Process, said: &str) -> Option<Node> {
    let (now, rest) = said.split_once(',')?;
    // An image of an earlier build says no path.
    let (before, path) = rest.split_once(',').unwrap_or((rest, ""));
    let [now, before] = [now, before].map(node);
    if now.is_some() && !path.is_empty() {
        process.program_path.set(path.to_owned());
    }
    // If the table of locks is full, the file can be written to.
    let _ = process.fs.execute(before, now);
    now
}

/// In the new image: takes over what was handed over and drops what was not. `resumed`: the engine
/// kept the old image's holds.
pub fn take_over(process: &Process, resumed: bool, held: &str, cwd: Option<&str>) {
    let mut inherited: Vec<Desc> = Vec::new();
    for (fd, name) in found(process) {
        inherited.extend(adopt(process, fd, name));
    }
    if resumed {
        for held in held.split(',') {
            let named = held.strip_prefix(CLOSED);
            let Some((index, generation)) = pair(named.unwrap_or(held)) else { continue };
            let desc = Desc::new(index as u32, generation);
            if named.is_some()
                && let Ok((node, _)) = process.fs.describe(desc)
            {
                // Nothing was locked, or it is unlocked.
                let _ = process.fs.release_locks(node.into());
            }
            if !inherited.contains(&desc) {
                // It was close-on-exec, or only a mapping held it.
                let _ = process.fs.close(desc);
            }
        }
    }
    if let Some(node) = cwd.and_then(node)
        && process.fs.attributes(node).is_ok()
    {
        process.set_cwd(Cwd { node: Some(node), path: Vec::new() });
    }
}

/// Makes `fd`, which is in hand-over form, a number of ours. `None`: what it names is gone (its
/// runtime ended, or it is beyond the table), and the number stays a directory that fails.
pub fn adopt(process: &Process, fd: c_int, name: u64) -> Option<Desc> {
    if fd as usize >= fdtable::NUMBERS_MAX {
        return None;
    }
    let _lock = process.lock();
    let desc = process.fs.adopt(name).ok()?;
    let mut shared = false;
    for (other, _) in fdtable::all().filter(|&(other, known)| known == desc && other != fd) {
        fdtable::set_shared(other);
        shared = true;
    }
    fdtable::set(fd, desc, shared);
    fdtable::set_handed(fd);
    Some(desc)
}

/// What a number from another process or image is.
pub fn look(process: &Process, fd: c_int) -> Received {
    let number = fdtable::borrow(fd);
    let Ok(link) = rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new()) else {
        return Received::Foreign;
    };
    let link = link.into_bytes();
    if placeholder::is_placeholder(&link) {
        return Received::Placeholder;
    }
    let name = process.volumes().enumerate().find_map(|(member, seen)| {
        Some(name_of_member(volume::carried(&seen.anchor, number, &link)?, member))
    });
    name.map_or(Received::Foreign, Received::Named)
}

/// The open numbers that are in hand-over form.
fn found(process: &Process) -> Vec<(c_int, u64)> {
    let mut found = Vec::new();
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
        if process.is_internal(fd) {
            continue;
        }
        if let Received::Named(name) = look(process, fd) {
            found.push((fd, name));
        }
    }
    found
}
