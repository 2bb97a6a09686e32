//! `openat2`: as `openat`, with rules for the walk (`RESOLVE_*`), which are the kernel's.
//!
//! With rules the path is walked here, component by component: each step is one walk of a single
//! name, so permissions are checked as always. Only a walk that begins on the volume is restricted
//! here; one that begins at a directory of the kernel's and leads onto the volume is refused.
//!
//! No locks. The tree may change underneath; a step goes by what it finds, and `..` is compared
//! with the beginning at each step, so a walk that was to stay beneath a directory stays there
//! unless that very directory's tree is moved out of it meanwhile.

use std::ffi::{c_int, c_long};

use vfs::walk::{Found, LINKS_MAX, Last, PATH_BYTES_MAX, Place};
use vfs::{Attr, Errno, Kind, Node};

use crate::descriptors::open;
use crate::entry::fdtable;
use crate::entry::pointers::{Out, Text};
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::{Served, Stop, outside};
use crate::paths::{self, Target};

const HOW_BYTES: usize = size_of::<[u64; 3]>();
const PAGE_BYTES: usize = 4096;

const KNOWN_RULES: u64 = libc::RESOLVE_NO_XDEV
    | libc::RESOLVE_NO_MAGICLINKS
    | libc::RESOLVE_NO_SYMLINKS
    | libc::RESOLVE_BENEATH
    | libc::RESOLVE_IN_ROOT
    | libc::RESOLVE_CACHED;

/// Flags that `openat2` knows: it refuses others, which `open` ignores.
const KNOWN_FLAGS: c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOCTTY
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_ASYNC
    | libc::O_DIRECT
    | 0o10_0000 // O_LARGEFILE
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_CLOEXEC
    | libc::O_PATH
    | libc::O_TMPFILE;

/// What is to be opened, and how.
struct How {
    flags: c_int,
    mode: u32,
    rules: u64,
}

impl How {
    /// The structure, checked as the kernel checks it.
    fn read(how: *mut [u64; 3], size: usize) -> Result<Self, Errno> {
        if size < HOW_BYTES {
            return Err(Errno::INVAL);
        }
        if size > PAGE_BYTES {
            return Err(Errno::TOOBIG);
        }
        let [flags, mode, rules] = Out(how).value()?;
        // Fields of a later kernel may be ignored only if they are zero.
        for at in HOW_BYTES..size {
            if Out(how.cast::<u8>().wrapping_add(at)).value()? != 0 {
                return Err(Errno::TOOBIG);
            }
        }
        let both = libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT;
        let strange = flags & !u64::from(KNOWN_FLAGS.cast_unsigned()) != 0;
        let makes = flags as c_int & (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) != 0;
        let with_path = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let path_only = flags as c_int & libc::O_PATH != 0;
        if strange
            || rules & !KNOWN_RULES != 0
            || rules & both == both
            || mode & !0o7777 != 0
            || mode != 0 && !makes
            || path_only && flags as c_int & !with_path != 0
        {
            return Err(Errno::INVAL);
        }
        let changes = makes || flags as c_int & libc::O_TRUNC != 0;
        if rules & libc::RESOLVE_CACHED != 0 && changes {
            return Err(Errno::AGAIN);
        }
        Ok(Self { flags: flags as c_int, mode: mode as u32, rules })
    }

    const fn has(&self, rule: u64) -> bool {
        self.rules & rule != 0
    }
}

/// `openat2(dirfd, path, how, size)`.
pub fn open(
    process: &Process,
    (dirfd, path): (c_int, Text),
    how: *mut [u64; 3],
    size: usize,
) -> Served<c_long> {
    // As the kernel: how comes before where.
    let wrong = |errno| How::read(how, size).err().unwrap_or(errno);
    let text = path.bytes().map_err(wrong)?;
    let begin = beginning(process, dirfd);
    let ours = begin.is_some() && text.first() != Some(&b'/')
        || !matches!(paths::resolve(process, dirfd, text, true), Ok(Target::Kernel));
    if !ours {
        // `RESOLVE_IN_ROOT` gives an absolute path a root, which is on the volume.
        let rooted = begin.is_some() && How::read(how, size)?.has(libc::RESOLVE_IN_ROOT);
        if !rooted {
            return kernel_path(begin.is_some(), how, size);
        }
    }
    let how = How::read(how, size)?;
    if how.rules & !libc::RESOLVE_CACHED == 0 {
        return Ok(
            outside(|| crate::descriptors::calls::openat(dirfd, path, how.flags, how.mode)).into()
        );
    }
    let walk = Restricted { process, how: &how, base: begin };
    let found = match begin {
        Some(node) => walk.begin(node, text)?,
        None => return Err(Stop::Refused("openat2-resolve", Errno::NOSYS)),
    };
    let flags = open::taken(how.flags)?;
    match open::open_found(process, &Target::Volume(found), flags, how.mode)? {
        Ok(fd) => Ok(fd.into()),
        // A symlink out of the volume, made since the walk.
        Err(_) => Err(Stop::Errno(Errno::AGAIN)),
    }
}

/// An absolute path of the kernel's, given with a directory of ours.
fn kernel_path(from_volume: bool, how: *mut [u64; 3], size: usize) -> Served<c_long> {
    if from_volume && How::read(how, size)?.has(libc::RESOLVE_BENEATH) {
        return Err(Stop::Errno(Errno::XDEV));
    }
    Err(Stop::Kernel)
}

/// The directory of the volume that a walk begins at.
fn beginning(process: &Process, dirfd: c_int) -> Option<Node> {
    if dirfd == libc::AT_FDCWD {
        return process.cwd().node;
    }
    let desc = fdtable::get(dirfd)?;
    process.fs.describe(desc).ok().map(|is| is.0)
}

/// A walk under rules.
struct Restricted<'a> {
    process: &'a Process,
    how: &'a How,
    /// What it must not leave, or takes for the root.
    base: Option<Node>,
}

impl Restricted<'_> {
    fn begin(&self, from: Node, path: &[u8]) -> Result<Found<'static>, Stop> {
        if path.is_empty() {
            return Err(Stop::Errno(Errno::NOENT));
        }
        if path[0] != b'/' {
            return self.walk(from, path.to_vec());
        }
        let (node, text) = self.jump(from, path)?;
        self.walk(node, text)
    }

    /// Where an absolute path or symlink leads.
    fn jump(&self, from: Node, path: &[u8]) -> Result<(Node, Vec<u8>), Stop> {
        if self.how.has(libc::RESOLVE_BENEATH) {
            return Err(Stop::Errno(Errno::XDEV));
        }
        if self.how.has(libc::RESOLVE_IN_ROOT) {
            return Ok((self.base.unwrap_or(from), path.to_vec()));
        }
        if self.how.has(libc::RESOLVE_NO_XDEV) {
            return Err(Stop::Errno(Errno::XDEV));
        }
        if let Some((root, inside)) = paths::strip(self.process, path) {
            return Ok((root, inside.to_vec()));
        }
        report::about(from.member());
        Err(Stop::Refused("openat2-resolve", Errno::NOSYS))
    }

    fn walk(&self, start: Node, path: Vec<u8>) -> Result<Found<'static>, Stop> {
        let follow = self.how.flags & libc::O_NOFOLLOW == 0
            && self.how.flags & (libc::O_CREAT | libc::O_EXCL) != libc::O_CREAT | libc::O_EXCL;
        let (mut dir, mut text, mut links) = (start, path, 0);
        loop {
            if text.len() > PATH_BYTES_MAX {
                return Err(Stop::Errno(Errno::NAMETOOLONG));
            }
            let at = text.iter().take_while(|&&byte| byte == b'/').count();
            let length = text[at..].iter().take_while(|&&byte| byte != b'/').count();
            let (name, rest) = (&text[at..at + length], &text[at + length..]);
            let more = rest.iter().any(|&byte| byte != b'/');
            let found = self.step(dir, name)?;
            let attr = match found.attr {
                None if more => return Err(Stop::Errno(Errno::NOENT)),
                None => {
                    let slash = !rest.is_empty();
                    return Ok(Found { slash, ..found.into_owned() });
                }
                Some(attr) => attr,
            };
            let slash = !rest.is_empty() && !more && matches!(found.last, Last::Name(_));
            if slash && self.how.flags & libc::O_CREAT != 0 {
                return Err(Stop::Errno(Errno::ISDIR));
            }
            if attr.kind == Kind::Symlink && (more || follow || !rest.is_empty()) {
                links += 1;
                (dir, text) = self.follow(dir, &attr, rest, links)?;
                continue;
            }
            if !more {
                return Ok(Found { slash, ..found.into_owned() });
            }
            if attr.kind != Kind::Directory {
                return Err(Stop::Errno(Errno::NOTDIR));
            }
            (dir, text) = (attr.node, rest.to_vec());
        }
    }

    /// One component.
    fn step<'t>(&self, dir: Node, name: &'t [u8]) -> Result<Found<'t>, Stop> {
        let bound = self.how.rules & (libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT) != 0;
        let name: &'t [u8] = match name {
            b"" => b".",
            b".." if bound && Some(dir) == self.base => {
                if self.how.has(libc::RESOLVE_BENEATH) {
                    return Err(Stop::Errno(Errno::XDEV));
                }
                b"."
            }
            name => name,
        };
        match self.process.walk(dir).walk(dir, name, false)? {
            Place::Inside(found) => Ok(found),
            // Above the root of the volume.
            Place::Outside(_) if self.how.has(libc::RESOLVE_NO_XDEV) => {
                Err(Stop::Errno(Errno::XDEV))
            }
            Place::Outside(_) => {
                report::about(dir.member());
                Err(Stop::Refused("openat2-resolve", Errno::NOSYS))
            }
        }
    }

    /// What a symlink in `dir` puts in its place.
    fn follow(
        &self,
        dir: Node,
        link: &Attr,
        rest: &[u8],
        links: u32,
    ) -> Result<(Node, Vec<u8>), Stop> {
        if links > LINKS_MAX || self.how.has(libc::RESOLVE_NO_SYMLINKS) {
            return Err(Stop::Errno(Errno::LOOP));
        }
        let mut target = vec![0; PATH_BYTES_MAX + 1];
        let length = self.process.fs.read_link(link.node, &mut target)?;
        target.truncate(length);
        target.extend_from_slice(rest);
        if target.first() == Some(&b'/') { self.jump(dir, &target) } else { Ok((dir, target)) }
    }
}
