//! The names under which `/proc` shows what is ours: the links of descriptors and of the working
//! directory, the files behind mappings (`maps`, `smaps`), the volume among the mounts.
//!
//! The kernel knows only the region's file, its offsets and the anchor directory. A program that
//! opens one of its own lists gets a memory file with the list as it would be if the volume were
//! mounted at the prefix.
//!
//! Locks: the structure lock, for the mappings.

use std::ffi::c_int;
use std::io::Write as _;
use std::os::fd::{AsRawFd, IntoRawFd};

use os::InternalFd;
use rustix::buffer::spare_capacity;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use vfs::{Desc, Errno, FileSystemExt};

use crate::entry::cached_fd;
use crate::entry::hooks;
use crate::entry::maptable::Mappings;
use crate::entry::process::{Listed, Process, VolumeView};
use crate::entry::{Served, Stop};
use crate::paths;
use crate::runtime::code::Line;

/// The kernel's mark behind a name that is gone.
const DELETED: &[u8] = b" (deleted)";

/// The path of what is open: where it was found, under the name it has there now.
pub fn path_of_descriptor(process: &Process, desc: Desc) -> Result<Vec<u8>, Errno> {
    let (node, _) = process.fs.describe(desc)?;
    let walk = process.walk(node);
    if let Ok(path) = walk.path_of(node) {
        return Ok(path);
    }
    let noted = || {
        let dir = process.fs.place(desc)?;
        let name = walk.name_in(dir, node.number())?;
        Ok::<_, Errno>([walk.path_of(dir)?, name].join(&b'/'))
    };
    if let Ok(path) = noted() {
        return Ok(path);
    }
    // It has moved, or is gone.
    if process.fs.attributes(node)?.nlink > 0
        && let Some(path) = walk.path_of_any(node.number())?
    {
        return Ok(path);
    }
    let dir = process.fs.place(desc).and_then(|dir| walk.path_of(dir));
    let mut path = dir.unwrap_or_else(|_| walk.tree.prefix.clone());
    let _ = write!(path, "/#{}", node.number());
    path.extend_from_slice(DELETED);
    Ok(path)
}

/// The path of the working directory on the volume.
pub fn working_directory(process: &Process) -> Result<Vec<u8>, Errno> {
    let node = process.cwd().node.ok_or(Errno::NOENT)?;
    let path = paths::directory_path(process, node);
    let prefix = &process.volume_of(node).prefix;
    path.or_else(|_| Ok([prefix, b"/#".as_slice(), DELETED].concat()))
}

/// Opens a path that the kernel serves: itself, unless it is one of the process's own lists.
pub fn open(process: &Process, path: &[u8], flags: c_int) -> Served<c_int> {
    if !path.starts_with(b"/proc/") && path != b"/etc/mtab"
        || flags & (libc::O_ACCMODE | libc::O_PATH) != libc::O_RDONLY
    {
        return Err(Stop::Kernel);
    }
    let rewrite: fn(&Process, &[u8]) -> Vec<u8> = match paths::own_process(path) {
        Some(b"maps" | b"smaps") if !process.lock().is_empty() => with_files,
        Some(b"mountinfo") => with_mount,
        Some(b"mounts") => with_table_line,
        None if path == b"/proc/mounts" || path == b"/etc/mtab" => with_table_line,
        _ => return Err(Stop::Kernel),
    };
    let Ok(list) = read(path) else { return Err(Stop::Kernel) };
    cached_fd::give_back();
    // At a high number: what is opened below gets the lowest.
    let file = InternalFd::new(rustix::fs::memfd_create(c"list", MemfdFlags::CLOEXEC)?);
    let text = rewrite(process, &list);
    let mut done = 0;
    while done < text.len() {
        done += rustix::io::write(&file, &text[done..])?;
    }
    // Once more, to be read only.
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut once_more = OFlags::RDONLY;
    once_more.set(OFlags::CLOEXEC, flags & libc::O_CLOEXEC != 0);
    Ok(rustix::fs::open(link, once_more, Mode::empty())?.into_raw_fd())
}

/// Most bytes that one call reads: of lists that change, what it gives is of one moment.
const READ_AT_ONCE: usize = 64 << 10;

fn read(path: &[u8]) -> Result<Vec<u8>, Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut whole = Vec::new();
    loop {
        // Only what is read is touched.
        whole.reserve(READ_AT_ONCE);
        if rustix::io::read(&file, spare_capacity(&mut whole))? == 0 {
            return Ok(whole);
        }
    }
}

/// The list of mappings with the files of the volume in place of the pieces of the region.
fn with_files(process: &Process, list: &[u8]) -> Vec<u8> {
    let maps: &Mappings = &process.lock();
    let mut text = Vec::with_capacity(list.len());
    for line in list.split_inclusive(|&byte| byte == b'\n') {
        let parsed = Line::parse(line);
        let ours = parsed.and_then(|line| {
            let (file, access) = (maps.at(line.start)?, maps.access_at(line.start)?);
            Some((file, access, line))
        });
        match &ours {
            Some((file, access, line)) if file_line(process, *file, line, access, &mut text) => {}
            _ => text.extend_from_slice(line),
        }
    }
    text
}

/// `false`: nothing is known of the description, and nothing was written.
fn file_line(
    process: &Process,
    (desc, offset): (Desc, u64),
    line: &Line,
    access: &str,
    text: &mut Vec<u8>,
) -> bool {
    let (Ok((node, _)), Ok(path)) = (process.fs.describe(desc), path_of_descriptor(process, desc))
    else {
        return false;
    };
    let Line { start, end, .. } = line;
    let device = process.volume_of(node).device;
    let (major, minor) = (libc::major(device), libc::minor(device));
    let from = text.len();
    let ino = node.number();
    let _ =
        write!(text, "{start:08x}-{end:08x} {access} {offset:08x} {major:02x}:{minor:02x} {ino} ");
    // The kernel's column of names.
    text.resize(text.len().max(from + 73), b' ');
    for byte in path {
        match byte {
            b'\n' => text.extend_from_slice(b"\\012"),
            byte => text.push(byte),
        }
    }
    text.push(b'\n');
    true
}

/// A path as the lists of mounts write it.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => {
                let _ = write!(text, "\\{byte:03o}");
            }
            byte => text.push(byte),
        }
    }
    text
}

/// The volumes that the kernel does not list. A process that has not attached them does not for
/// this: Go's runtime looks at `mountinfo` in every program, before it begins.
fn unlisted(process: &Process) -> Vec<Listed> {
    if !process.fs.is_attached()
        && let Some(foretold) = (hooks::get().foretold)()
    {
        return foretold;
    }
    let listed = |seen: &VolumeView| Listed {
        source: seen.source.clone(),
        prefix: seen.prefix.clone(),
        device: seen.device,
        read_only: process.fs.stat_fs(seen.root.into()).is_ok_and(|stat| stat.read_only),
    };
    process.volumes().filter(|seen| !seen.mounted).map(listed).collect()
}

fn access_of(volume: &Listed) -> &'static str {
    if volume.read_only { "ro" } else { "rw" }
}

/// `mounts` with a line for each volume.
fn with_table_line(process: &Process, list: &[u8]) -> Vec<u8> {
    let mut text = list.to_vec();
    for volume in unlisted(process) {
        text.extend_from_slice(&escaped(&volume.source));
        text.push(b' ');
        text.extend_from_slice(&escaped(&volume.prefix));
        let _ = writeln!(text, " solera {},relatime 0 0", access_of(&volume));
    }
    text
}

/// `mountinfo` with a line for each volume: a child of the mount that its prefix lies on.
fn with_mount(process: &Process, list: &[u8]) -> Vec<u8> {
    unlisted(process).iter().fold(list.to_vec(), |list, volume| with_mount_of(volume, &list))
}

fn with_mount_of(volume: &Listed, list: &[u8]) -> Vec<u8> {
    let prefix = escaped(&volume.prefix);
    let (mut highest, mut parent, mut longest) = (0_u64, 0_u64, 0);
    for line in list.split(|&byte| byte == b'\n') {
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let number = words.first().and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
        let (Some(number), Some(&place)) = (number, words.get(4)) else { continue };
        highest = highest.max(number);
        let above = place == b"/"
            || prefix.strip_prefix(place).is_some_and(|rest| rest.first() == Some(&b'/'));
        if above && place.len() >= longest {
            (parent, longest) = (number, place.len());
        }
    }
    let (major, minor) = (libc::major(volume.device), libc::minor(volume.device));
    let mut text = list.to_vec();
    let _ = write!(text, "{} {parent} {major}:{minor} / ", highest + 1);
    text.extend_from_slice(&prefix);
    let access = access_of(volume);
    let _ = write!(text, " {access},relatime - solera ");
    text.extend_from_slice(&escaped(&volume.source));
    let _ = writeln!(text, " {access}");
    text
}
