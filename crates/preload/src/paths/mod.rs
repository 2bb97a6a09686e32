//! Which paths are the volume's, and where they lead.
//!
//! A path is the volume's if its text, resolved from the process's working directory or the given
//! directory descriptor, reaches the prefix; or if it starts at a directory of the volume. Symlinks
//! *outside* are looked into only where the kernel does not find what they lead to, and where a
//! symlink of the volume led there (`links`).
//! `/proc/self/fd/N`, `/dev/fd/N` and `/dev/std*` that name a descriptor of ours mean that
//! descriptor.

pub(crate) mod calls;
pub(crate) mod credentials;
pub(crate) mod cwd;
pub(crate) mod flags;
pub(crate) mod identity;
pub(crate) mod links;
pub(crate) mod mount;
pub(crate) mod standins;
mod symbols;

use std::borrow::Cow;
use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::CWD;
use vfs::walk::{Found, LINKS_MAX, Last, PATH_BYTES_MAX, Place, strip_prefix};
use vfs::{Attr, Errno, FileSystemExt, Kind, Node};

use crate::entry::Served;
use crate::entry::fdtable;
use crate::entry::process::{Process, VolumeView};

/// Where a path led.
#[allow(clippy::large_enum_variant)] // On the stack, short-lived: a box would cost more.
pub enum Target<'t> {
    /// A place on the volume.
    Volume(Found<'t>),
    /// A descriptor of ours, named through `/proc` or `/dev`.
    Descriptor(c_int),
    /// The kernel's affair, as it was written.
    Kernel,
    /// The kernel's affair, under this absolute path.
    Elsewhere(CString),
}

/// Resolves `path` as a call with `dirfd` does. `follow`: also a symlink at the end.
#[inline]
pub fn resolve<'t>(
    process: &Process,
    dirfd: c_int,
    path: &'t [u8],
    follow: bool,
) -> Result<Target<'t>, Errno> {
    if let Some((node, text)) = plain_start(process, dirfd, path) {
        return walk_text(process, node, text, follow);
    }
    resolve_further(process, dirfd, path, follow)
}

/// As [`resolve`], where the way is plain: writes where the path leads to `found`, which is long;
/// `false` says nothing.
#[inline]
pub fn plain_name<'t>(
    process: &Process,
    dirfd: c_int,
    path: &'t [u8],
    follow: bool,
    found: &mut Found<'t>,
) -> bool {
    let start = plain_start(process, dirfd, path).filter(|(_, text)| !text.is_empty());
    start.is_some_and(|(node, text)| process.walk(node).plain_name(node, text, follow, found))
}

/// As [`resolve`], of a path that begins neither with a prefix nor in a working directory on a
/// volume.
#[inline(never)]
fn resolve_further<'t>(
    process: &Process,
    dirfd: c_int,
    path: &'t [u8],
    follow: bool,
) -> Result<Target<'t>, Errno> {
    if let Some(rest) = working_directory_link(process, path)
        && (follow || rest.contains(&b'/'))
    {
        let node = process.cwd_node().ok_or(Errno::NOENT)?;
        let rest = if rest.is_empty() { rest } else { &rest[1..] };
        let rest: &[u8] = if rest.is_empty() { b"." } else { rest };
        return walk(process, Start::At(node, Cow::Borrowed(rest)), follow);
    }
    if follow && let Some((whole, program)) = program_link(process, path) {
        let leads = resolve(process, libc::AT_FDCWD, whole.as_bytes(), true);
        let node_of = |at: &Found<'_>| at.attr.as_ref().map(|attr| attr.node);
        let is_it =
            |at: &Target<'_>| matches!(at, Target::Volume(at) if node_of(at) == Some(program));
        // One that has another name by now is the kernel's copy of it.
        return Ok(leads.ok().filter(is_it).unwrap_or(Target::Kernel));
    }
    match start(process, dirfd, path, follow) {
        None => Ok(Target::Kernel),
        // The link itself is the kernel's.
        Some(Start::Descriptor(_)) if !follow => Ok(Target::Kernel),
        Some(start) => walk(process, start, follow),
    }
}

/// Why a walk failed at a name: that it begins at no directory counts more than how long it is.
#[cold]
fn begins(process: &Process, from: Node, errno: Errno) -> Errno {
    let long = errno == Errno::NAMETOOLONG;
    let from = if long { process.fs.attributes(from).ok() } else { None };
    if from.is_some_and(|attr| attr.kind != vfs::Kind::Directory) { Errno::NOTDIR } else { errno }
}

/// Resolves the path of a call that makes, moves or removes the name at its end: so no symlink
/// there is followed, even if a slash follows it.
pub fn resolve_name<'t>(
    process: &Process,
    dirfd: c_int,
    path: &'t [u8],
) -> Result<Target<'t>, Errno> {
    let slashes = path.iter().rev().take_while(|&&byte| byte == b'/').count();
    let plain = &path[..path.len() - slashes];
    if slashes == 0 || plain.is_empty() {
        return resolve(process, dirfd, path, false);
    }
    Ok(match resolve(process, dirfd, plain, false)? {
        Target::Volume(found) => {
            let slash = matches!(found.last, Last::Name(_));
            Target::Volume(Found { slash, ..found })
        }
        Target::Elsewhere(path) => Target::Elsewhere(c_text(&[path.as_bytes(), b"/"].concat())?),
        target => target,
    })
}

/// A walk's beginning.
enum Start<'a> {
    /// From this directory with this text.
    At(Node, Cow<'a, [u8]>),
    Descriptor(c_int),
}

/// What [`plain`] found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// Its attributes.
    Attributes,
    /// The path is the kernel's: [`resolve`] would say the same.
    Kernel,
    Unknown,
}

impl Plain {
    fn of(found: bool) -> Self {
        if found { Self::Attributes } else { Self::Unknown }
    }
}

/// Writes to `attr` the attributes of what `path` leads to, if that is on the volume and reached
/// the plain way.
#[inline]
pub fn plain(process: &Process, dirfd: c_int, path: &[u8], attr: &mut Attr) -> Plain {
    if let Some((seen, rest)) = below_prefix(process, path) {
        return Plain::of(process.walk_in(seen).plain(seen.root, &rest[1..], attr));
    }
    if path.first() != Some(&b'/')
        && let Some(desc) = fdtable::get(dirfd)
    {
        // Which volume's surroundings these are makes no difference: a plain path meets no prefix.
        return Plain::of(process.walk_in(process.first()).plain_at(desc, path, attr));
    }
    plain_elsewhere(process, dirfd, path, attr)
}

/// As [`plain`], of a path that is not written with the prefix.
fn plain_elsewhere(process: &Process, dirfd: c_int, path: &[u8], attr: &mut Attr) -> Plain {
    if is_elsewhere(process, path) && links::is_left() {
        return Plain::Kernel;
    }
    match start(process, dirfd, path, true) {
        Some(Start::At(node, text)) => Plain::of(process.walk(node).plain(node, &text, attr)),
        // Where a symlink at the end is followed, more leads to the volume.
        None if working_directory_link(process, path).is_none()
            && program_link(process, path).is_none() =>
        {
            Plain::Kernel
        }
        Some(Start::Descriptor(_)) | None => Plain::Unknown,
    }
}

/// Whether an absolute path is outside by its text alone: no link of `/proc` or `/dev`, and none
/// that begins with a prefix or would after its dots and slashes.
#[expect(clippy::inline_always, reason = "nearly every call on a path asks")]
#[inline(always)]
pub fn is_elsewhere(process: &Process, path: &[u8]) -> bool {
    path.first() == Some(&b'/')
        && !path.starts_with(b"/proc/")
        && !path.starts_with(b"/dev/")
        && !begins_as_prefix(process, path)
        && !is_winding(path)
}

/// Whether a path begins with the text of a prefix. Most differ at its last byte.
#[inline]
fn begins_as_prefix(process: &Process, path: &[u8]) -> bool {
    let begins = |seen: &VolumeView| {
        let last = seen.prefix.len().wrapping_sub(1);
        path.get(last) == seen.prefix.last() && path.starts_with(&seen.prefix)
    };
    begins(process.first()) || process.others().iter().any(begins)
}

/// The volume with whose prefix a path begins as it is, and what follows there, from its slash on:
/// no path below `/proc` or `/dev/fd` has any.
#[inline]
fn below_prefix<'a, 'p>(
    process: &'p Process,
    path: &'a [u8],
) -> Option<(&'p VolumeView, &'a [u8])> {
    let first = process.first();
    match below(first, path) {
        Some(rest) => Some((first, rest)),
        None if process.others().is_empty() => None,
        None => below_another(process, path),
    }
}

#[cold]
fn below_another<'a, 'p>(
    process: &'p Process,
    path: &'a [u8],
) -> Option<(&'p VolumeView, &'a [u8])> {
    process.others().iter().find_map(|seen| Some((seen, below(seen, path)?)))
}

#[inline]
fn below<'a>(seen: &VolumeView, path: &'a [u8]) -> Option<&'a [u8]> {
    path.strip_prefix(&*seen.prefix).filter(|rest| rest.first() == Some(&b'/'))
}

/// The volume whose prefix a path reaches by its text, and what follows there: `.` for the root.
pub fn strip<'a>(process: &Process, path: &'a [u8]) -> Option<(Node, &'a [u8])> {
    process.volumes().find_map(|seen| {
        let rest = strip_prefix(&seen.prefix, path)?;
        Some((seen.root, if rest.is_empty() { b"." } else { rest }))
    })
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "what is found is long, and made where it stays")]
fn walk_text<'t>(
    process: &Process,
    from: Node,
    text: &'t [u8],
    follow: bool,
) -> Result<Target<'t>, Errno> {
    match process.walk(from).walk(from, text, follow) {
        Ok(Place::Inside(found)) => Ok(Target::Volume(found)),
        Ok(Place::Outside(outside)) => come_back(process, outside, follow),
        Err(errno) => Err(begins(process, from, errno)),
    }
}

fn walk<'t>(process: &Process, start: Start<'t>, follow: bool) -> Result<Target<'t>, Errno> {
    let outside = match start {
        Start::Descriptor(fd) => return Ok(Target::Descriptor(fd)),
        Start::At(node, Cow::Borrowed(text)) => return walk_text(process, node, text, follow),
        Start::At(node, Cow::Owned(text)) => match process.walk(node).walk(node, &text, follow)? {
            Place::Inside(found) => return Ok(Target::Volume(found.into_owned())),
            Place::Outside(outside) => outside,
        },
    };
    come_back(process, outside, follow)
}

/// Where a path leads that has left the tree: it may come back, as `/pm/../pm/x` does, or a symlink
/// to `/proc/self/fd/3`, or by the kernel's own symlinks.
#[cold]
fn come_back(process: &Process, outside: Vec<u8>, follow: bool) -> Result<Target<'static>, Errno> {
    let mut outside = outside;
    for _ in 0..LINKS_MAX {
        let start = absolute(process, &outside);
        let start = start.or_else(|| links::through(process, outside.clone(), follow).map(owned));
        let (node, text) = match start {
            None => return Ok(Target::Elsewhere(c_text(&outside)?)),
            Some(Start::Descriptor(_)) if !follow => {
                return Ok(Target::Elsewhere(c_text(&outside)?));
            }
            Some(Start::Descriptor(fd)) => return Ok(Target::Descriptor(fd)),
            Some(Start::At(node, text)) => (node, text),
        };
        outside = match process.walk(node).walk(node, &text, follow)? {
            Place::Inside(found) => return Ok(Target::Volume(found.into_owned())),
            Place::Outside(outside) => outside,
        };
    }
    Err(Errno::LOOP)
}

/// Where a path begins that is written with a prefix, or goes on from the working directory, and
/// its text from there. `None` says nothing.
#[inline]
fn plain_start<'a>(process: &Process, dirfd: c_int, path: &'a [u8]) -> Option<(Node, &'a [u8])> {
    if path.first() == Some(&b'/') {
        return below_prefix(process, path).map(|(seen, rest)| (seen.root, rest));
    }
    let here = if dirfd == libc::AT_FDCWD { process.cwd_node() } else { None };
    here.map(|node| (node, path))
}

/// Decides whether a path is the volume's.
fn start<'a>(process: &Process, dirfd: c_int, path: &'a [u8], follow: bool) -> Option<Start<'a>> {
    if path.first() == Some(&b'/') {
        return absolute(process, path)
            .or_else(|| links::leave(process, || Some(path.to_vec()), follow).map(owned));
    }
    if dirfd == libc::AT_FDCWD {
        if let Some((node, text)) = plain_start(process, dirfd, path) {
            return Some(Start::At(node, Cow::Borrowed(text)));
        }
        let cwd = process.cwd();
        return joined(process, path, follow, || Some(cwd.path.clone()));
    }
    if fdtable::get(dirfd).is_some() {
        return at_descriptor(process, dirfd, Cow::Borrowed(path));
    }
    joined(process, path, follow, || kernel_path(dirfd))
}

fn owned<'a>((root, rest): (Node, Vec<u8>)) -> Start<'a> {
    Start::At(root, Cow::Owned(rest))
}

/// Below the directory behind a number of ours.
fn at_descriptor<'a>(process: &Process, fd: c_int, path: Cow<'a, [u8]>) -> Option<Start<'a>> {
    let desc = fdtable::get(fd)?;
    // A description that went away meanwhile fails in the walk.
    let node = process.fs.describe(desc).map_or(Node { ino: 0, generation: 0 }, |is| is.0);
    Some(Start::At(node, path))
}

#[inline]
fn absolute<'a>(process: &Process, path: &'a [u8]) -> Option<Start<'a>> {
    if let Some((seen, rest)) = below_prefix(process, path) {
        return Some(Start::At(seen.root, Cow::Borrowed(rest)));
    }
    absolute_elsewhere(process, path)
}

/// As [`absolute`], of a path that is not written with a prefix.
fn absolute_elsewhere<'a>(process: &Process, path: &'a [u8]) -> Option<Start<'a>> {
    if let Some((node, rest)) = standins::stands_for(path) {
        return Some(Start::At(node, Cow::Borrowed(rest)));
    }
    if let Some((fd, rest)) = descriptor_link(path) {
        if rest.is_empty() {
            return Some(Start::Descriptor(fd));
        }
        return at_descriptor(process, fd, Cow::Borrowed(rest));
    }
    if !begins_as_prefix(process, path) && !is_winding(path) {
        return None;
    }
    let (root, rest) = strip(process, path)?;
    Some(Start::At(root, Cow::Borrowed(rest)))
}

/// Whether a slash in a path is followed by another one, or by a dot: eight places at once, the
/// bytes there and those behind them.
pub fn is_winding(path: &[u8]) -> bool {
    const WORD: usize = size_of::<u64>();
    const ONES: u64 = u64::from_ne_bytes([1; WORD]);
    const SLASHES: u64 = u64::from_ne_bytes([b'/'; WORD]);
    let winds = |one: &[u8; WORD], next: &[u8; WORD]| {
        let (one, next) = (u64::from_ne_bytes(*one), u64::from_ne_bytes(*next));
        // With its lowest bit a dot is a slash, and so is a slash.
        let differs = (one ^ SLASHES) | ((next | ONES) ^ SLASHES);
        // A byte of it is zero.
        differs.wrapping_sub(ONES) & !differs & ONES << 7 != 0
    };
    let behind = path.get(1..).unwrap_or_default();
    let before = &path[..behind.len()];
    if before.as_chunks().0.iter().zip(behind.as_chunks().0).any(|(one, next)| winds(one, next)) {
        return true;
    }
    match (before.last_chunk(), behind.last_chunk()) {
        (Some(one), Some(next)) => winds(one, next),
        _ => path.windows(2).any(|pair| matches!(pair, [b'/', b'.' | b'/'])),
    }
}

/// A relative path below a directory of the kernel's: it can reach the prefix only by way of one of
/// the prefix's own components, or of `..`.
fn joined(
    process: &Process,
    path: &[u8],
    follow: bool,
    base: impl Fn() -> Option<Vec<u8>>,
) -> Option<Start<'static>> {
    let whole = || {
        let mut whole = base()?;
        whole.push(b'/');
        whole.extend_from_slice(path);
        Some(whole)
    };
    let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
    let is_part = |seen: &VolumeView| {
        seen.prefix.split(|&byte| byte == b'/').any(|name| !name.is_empty() && name == first)
    };
    let leads = first == b".." || first == b"." && path.len() > 1 || process.volumes().any(is_part);
    if leads
        && let Some(whole) = whole()
        && let Some((root, rest)) = strip(process, &whole)
    {
        return Some(owned((root, rest.to_vec())));
    }
    links::leave(process, whole, follow).map(owned)
}

/// The path of a directory descriptor of the kernel's.
fn kernel_path(dirfd: c_int) -> Option<Vec<u8>> {
    let link = format!("/proc/self/fd/{dirfd}");
    let path = rustix::fs::readlinkat(CWD, link, Vec::new()).ok()?.into_bytes();
    (path.first() == Some(&b'/')).then_some(path)
}

/// What follows `/proc/self/cwd` (nothing, or a slash and more) while the working directory is on
/// the volume.
pub fn working_directory_link<'a>(process: &Process, path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = own_process(path)?.strip_prefix(b"cwd")?;
    let whole = rest.is_empty() || rest[0] == b'/';
    (whole && process.cwd_node().is_some()).then_some(rest)
}

/// Where a path that is `/proc/self/exe`, or one of its other names, leads: the file on a volume
/// that this program is executed from, which the kernel knows as a copy of it.
pub fn program_link(process: &Process, path: &[u8]) -> Option<(&'static str, Node)> {
    let whole = process.program_path.get()?;
    let program = process.program.get()?;
    (own_process(path)? == b"exe").then_some((whole, *program))
}

/// What follows `/proc/self/` or its other names.
pub fn own_process(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(b"/proc/")?;
    if let Some(rest) = rest.strip_prefix(b"self/").or_else(|| rest.strip_prefix(b"thread-self/")) {
        return Some(rest);
    }
    let (process, rest) = number(rest)?;
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let rest = rest.strip_prefix(b"/").filter(|_| process == own)?;
    // Of one of its threads, all of which have the same program and directory.
    let of_thread = rest.strip_prefix(b"task/").and_then(number);
    Some(of_thread.and_then(|(_, rest)| rest.strip_prefix(b"/")).unwrap_or(rest))
}

/// The number that a text begins with, and what follows.
fn number(text: &[u8]) -> Option<(i32, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

/// The descriptor of ours that a path under `/proc` or `/dev` names, and what follows its name.
pub fn descriptor_link(path: &[u8]) -> Option<(c_int, &[u8])> {
    let (number, rest) = match path.strip_prefix(b"/dev/") {
        Some(b"stdin") => (0, &[][..]),
        Some(b"stdout") => (1, &[][..]),
        Some(b"stderr") => (2, &[][..]),
        device => {
            let text = match device {
                Some(device) => device.strip_prefix(b"fd/")?,
                None => own_descriptors(path)?,
            };
            let end = text.iter().position(|&byte| byte == b'/').unwrap_or(text.len());
            let slashes = text[end..].iter().take_while(|&&byte| byte == b'/').count();
            let number = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
            (number, &text[end + slashes..])
        }
    };
    fdtable::get(number).map(|_| (number, rest))
}

/// What follows `/proc/self/fd/` or its other names. The kernel is asked who this is only where a
/// number stands in that place.
fn own_descriptors(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(b"/proc/")?;
    if let Some(rest) = rest.strip_prefix(b"self/").or_else(|| rest.strip_prefix(b"thread-self/")) {
        return rest.strip_prefix(b"fd/");
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = rest.split_at(digits);
    let of_task = rest.strip_prefix(b"/task/").and_then(|rest| rest.strip_prefix(number));
    let rest = of_task.unwrap_or(rest).strip_prefix(b"/fd/")?;
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    (number == own.as_bytes()).then_some(rest)
}

/// What exists at a path of ours: through a descriptor link, the descriptor's node.
pub fn existing(process: &Process, target: &Target<'_>) -> Served<Attr> {
    match target {
        Target::Volume(found) => Ok(found.existing()?),
        Target::Descriptor(fd) => {
            let desc = fdtable::get(*fd).ok_or(Errno::BADF)?;
            Ok(process.fs.attributes(process.fs.describe(desc)?.0)?)
        }
        Target::Kernel | Target::Elsewhere(_) => Err(crate::entry::Stop::Kernel),
    }
}

/// The absolute path of something that was found now: its directory's path and its last name.
pub fn name_of(process: &Process, found: &Found<'_>) -> Result<Vec<u8>, Errno> {
    let mut path = directory_path(process, found.dir)?;
    if let Last::Name(name) = &found.last {
        path.push(b'/');
        path.extend_from_slice(name.as_bytes());
    }
    Ok(path)
}

/// The absolute path of a directory of the volume.
pub fn directory_path(process: &Process, dir: Node) -> Result<Vec<u8>, Errno> {
    let path = process.walk(dir).path_of(dir)?;
    if path.len() > PATH_BYTES_MAX { Err(Errno::NAMETOOLONG) } else { Ok(path) }
}

/// Whether an attribute is a directory's: `ENOTDIR` otherwise.
pub fn require_directory(attr: &Attr) -> Result<(), Errno> {
    if attr.kind == Kind::Directory { Ok(()) } else { Err(Errno::NOTDIR) }
}

/// A path as C text.
pub fn c_text(path: &[u8]) -> Result<CString, Errno> {
    CString::new(std::ffi::OsStr::from_bytes(path).as_bytes()).map_err(|_| Errno::INVAL)
}

/// The volume that a path leads onto; a path that cannot be walked does if it is a volume's.
/// `follow`: a link at its end is followed.
pub fn volume_at<'p>(process: &'p Process, path: &[u8], follow: bool) -> Option<&'p VolumeView> {
    if path.is_empty() {
        return None;
    }
    match resolve(process, libc::AT_FDCWD, path, follow) {
        Ok(Target::Kernel | Target::Elsewhere(_)) => None,
        Ok(Target::Volume(found)) => Some(process.volume_of(found.dir)),
        Ok(Target::Descriptor(fd)) => {
            Some(fdtable::get(fd).map_or(process.first(), |desc| process.volume_of(desc)))
        }
        Err(_) => Some(match strip(process, path) {
            Some((root, _)) => process.volume_of(root),
            None => process.first(),
        }),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_path_winds_at_any_place() {
        let plain = b"/usr/lib/x86_64-linux-gnu/libc.so.6";
        for length in 0..=plain.len() {
            assert!(!super::is_winding(&plain[..length]), "{length}");
            for at in 0..length.saturating_sub(1) {
                for pair in [b"//", b"/."] {
                    let mut path = plain[..length].to_vec();
                    path[at..at + 2].copy_from_slice(pair);
                    assert!(super::is_winding(&path), "{length}, {at}");
                }
            }
        }
        assert!(super::is_winding(b"/usr/.") && !super::is_winding(b"/a.b/c/d-e/"));
    }
}
