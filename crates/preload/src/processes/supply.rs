//! What a program gets at its start in place of libraries that the dynamic linker cannot open: the
//! image before it makes copies in memory of those that the search has found (`closure`), and this
//! one takes them over.
//!
//! The linker finds a copy by the library's own name, in the order of its own search: in a
//! *stand-in* for the directory where it would have found it. The stand-ins are directories of
//! symlinks to the copies, in the anchor directory; in `LD_LIBRARY_PATH` they take the places of
//! what they stand for, as `/proc/self/fd/N/NUMBER`; in front of all is the one for what an
//! object's own list of directories led to. An exclusive `flock` on their directory lasts until the
//! new image has removed them; a process that makes new ones removes those that are not locked.
//!
//! A table, a file in memory, tells the new image what was made. Before any code of the program's
//! asks, that one gives `LD_LIBRARY_PATH` and `LD_PRELOAD` the texts that the program would have
//! had, and the libraries the names that the linker would have given them. What the linker looks
//! for in a stand-in later on (`dlopen`), it finds on the volume itself (`paths::standins`).
//!
//! Descriptors of all this stand at high numbers; in the new image they are hidden and close at an
//! exec. They stay open, so that no other file gets the name by which the linker knows a library.

use std::ffi::{CStr, CString, c_int};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use os::InternalFd;
use rustix::fs::{AtFlags, FlockOperation, MemfdFlags, Mode, OFlags, RawDir};
use rustix::io::FdFlags;
use vfs::{Attr, Errno, Kind, Node};

use crate::entry::fdtable;
use crate::entry::process::Process;
use crate::entry::report;
use crate::files::rw::copy_to_memory;
use crate::paths::standins::{self, StandIns};
use crate::paths::{self, Target};
use crate::processes::closure::{Closure, Edit, Library, Place, Way};
use crate::runtime::{environment, objects};

/// Environment variable: the number of the table.
pub const VARIABLE: &str = "SOLERA_START";
/// How the directory of the stand-ins is called.
const PREFIX: &str = "start-";
/// What an object's own list of directories leads to is in this stand-in.
const OF_OBJECTS: usize = 0;
/// No number of ours is lower: what a variable says is not believed.
const FIRST: c_int = 3;
/// Largest table that is read.
const TABLE_BYTES_MAX: usize = 1 << 22;
/// How often a directory is made anew that another process has removed before it was locked.
const ATTEMPTS: u32 = 4;

/// What is ready for the new image. Goes if there is none.
pub struct Supply {
    /// The value of `LD_LIBRARY_PATH`, if it is another one.
    pub library_path: Option<Vec<u8>>,
    /// What stands in front of all in `LD_PRELOAD`.
    pub first: Vec<Vec<u8>>,
    /// What stands in place of elements of `LD_PRELOAD`, by number.
    pub preload: Vec<(usize, Vec<u8>)>,
    /// What is executed in place of a kernel's program.
    pub program: Option<OwnedFd>,
    standins: Option<Directory>,
    copies: Vec<(Node, InternalFd)>,
    table: Vec<u8>,
}

/// A directory of stand-ins.
struct Directory {
    anchor: Arc<InternalFd>,
    name: String,
    open: InternalFd,
}

impl Drop for Directory {
    fn drop(&mut self) {
        clear(self.open.as_fd());
        // If somebody has put something there it stays.
        let _ = rustix::fs::unlinkat(&self.anchor, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Makes it ready; `None`: the new image needs nothing. `asked`: what the program would have had as
/// `LD_LIBRARY_PATH`.
pub fn prepare(process: &Process, closure: &Closure, asked: Option<&[u8]>) -> Option<Supply> {
    let has_standin = closure.library_path.iter().any(|&(_, ours)| ours);
    if closure.libraries.is_empty() && closure.runtimes.is_empty() && !has_standin {
        return None;
    }
    let mut supply = Supply {
        library_path: None,
        first: closure.runtimes.clone(),
        preload: Vec::new(),
        program: None,
        standins: None,
        copies: Vec::new(),
        table: Vec::new(),
    };
    let is_placed = |library: &Library| !matches!(library.way, Way::Preload(_));
    if has_standin || closure.libraries.iter().any(is_placed) {
        // Without them the linker says that it does not find what is there.
        if let Ok(standins) = Directory::new(process).and_then(|made| made.fill(closure)) {
            supply.stand_in(closure, &standins, asked);
            supply.standins = Some(standins);
        }
    }
    for library in &closure.libraries {
        // The linker says itself that it does not find what cannot be copied.
        let _ = supply.add(process, library);
    }
    Some(supply)
}

/// A kernel's program that needs a library of a volume by its path: a copy in which it is cut.
pub fn changed_copy(program: &OwnedFd, edits: &[Edit]) -> Result<OwnedFd, Errno> {
    let copy = rustix::fs::memfd_create("program", MemfdFlags::CLOEXEC)?;
    let mut from = 0;
    while rustix::fs::sendfile(&copy, program, Some(&mut from), 1 << 30)? > 0 {}
    change(&copy, edits)?;
    Ok(copy)
}

/// Changes a copy.
pub fn change(copy: &OwnedFd, edits: &[Edit]) -> Result<(), Errno> {
    for edit in edits {
        rustix::io::pwrite(copy, &edit.value.to_le_bytes(), edit.place)?;
    }
    Ok(())
}

impl Supply {
    /// The directories that stand for others.
    fn stand_in(&mut self, closure: &Closure, standins: &Directory, asked: Option<&[u8]>) {
        let mut list = Vec::new();
        if closure.has_of_objects() {
            list.push(standins.path(OF_OBJECTS));
        }
        for (number, (path, ours)) in closure.library_path.iter().enumerate() {
            if *ours {
                self.say(b'D', &[(number + 1).to_string().as_bytes(), path]);
            }
            list.push(if *ours { standins.path(number + 1) } else { path.clone() });
        }
        self.library_path = Some(list.join(&b':'));
        self.say(b'S', &[standins.open.as_raw_fd().to_string().as_bytes()]);
        match asked {
            Some(asked) => self.say(b'L', &[&[b"LD_LIBRARY_PATH=", asked].concat()]),
            None => self.say(b'l', &[b""]),
        }
    }

    /// One library more.
    fn add(&mut self, process: &Process, library: &Library) -> Result<(), Errno> {
        let target = match &library.place {
            Place::Elsewhere(path) => path.as_bytes().to_vec(),
            Place::Volume(attr) => {
                let number = self.copy(process, attr, library)?;
                format!("/proc/self/fd/{number}").into_bytes()
            }
        };
        let standin = match library.way {
            Way::Preload(number) => {
                self.say(b'N', &[&target, &library.path]);
                self.preload.push((number, target));
                return Ok(());
            }
            Way::Object => OF_OBJECTS,
            Way::LibraryPath(number) => number + 1,
        };
        let Some(standins) = &self.standins else { return Ok(()) };
        let file = [standin.to_string().as_bytes(), b"/", &library.name].concat();
        rustix::fs::symlinkat(&*target, &standins.open, &*file)?;
        let name = [&*standins.path(standin), b"/", &library.name].concat();
        self.say(b'N', &[&name, &library.path]);
        Ok(())
    }

    /// The number of the copy of a file.
    fn copy(&mut self, process: &Process, attr: &Attr, library: &Library) -> Result<c_int, Errno> {
        if let Some((_, copy)) = self.copies.iter().find(|(node, _)| *node == attr.node) {
            return Ok(copy.as_raw_fd());
        }
        let copy = copy_to_memory(process, attr, &library.path)?;
        change(&copy, &library.edits)?;
        let copy = InternalFd::new(copy);
        let number = copy.as_raw_fd();
        report::about(attr.node.member());
        report::fell_back("execve", "library-copied-to-memory");
        self.copies.push((attr.node, copy));
        let node = format!("{}/{}", attr.node.ino, attr.node.generation);
        self.say(b'C', &[number.to_string().as_bytes(), node.as_bytes()]);
        Ok(number)
    }

    /// A line of the table: a kind, and texts.
    fn say(&mut self, kind: u8, texts: &[&[u8]]) {
        self.table.push(kind);
        for text in texts {
            self.table.extend_from_slice(text);
            self.table.push(0);
        }
    }

    /// What the program would have had as `LD_PRELOAD`.
    pub fn plain_preload(&mut self, value: &[u8]) {
        if !self.first.is_empty() || !self.preload.is_empty() {
            self.say(b'P', &[&[b"LD_PRELOAD=", value].concat()]);
        }
    }

    /// Lets the new image inherit all of it, and gives the variable that tells it so, and what is
    /// to be kept until then.
    pub fn hand_over(&self) -> Result<(Vec<u8>, InternalFd), Errno> {
        let table = rustix::fs::memfd_create("start", MemfdFlags::CLOEXEC)?;
        let mut rest = &self.table[..];
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&table, rest)?..];
        }
        let table = InternalFd::new(table);
        let standins = self.standins.iter().map(|standins| &standins.open);
        let copies = self.copies.iter().map(|(_, copy)| copy);
        for fd in standins.chain(copies).chain([&table]) {
            rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
        }
        Ok((format!("{VARIABLE}={}", table.as_raw_fd()).into_bytes(), table))
    }
}

impl Directory {
    /// A new directory, locked; removes what others have left.
    fn new(process: &Process) -> Result<Self, Errno> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let anchor = Arc::clone(&process.first().anchor);
        sweep(anchor.as_fd());
        let pid = rustix::process::getpid().as_raw_nonzero();
        for _ in 0..ATTEMPTS {
            let name = format!("{PREFIX}{pid}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
            match make(anchor.as_fd(), &name) {
                // Of a process that had this number, in another name space perhaps; or removed by
                // another one before it was locked, as below.
                Err(Errno::EXIST | Errno::NOENT) => continue,
                made => made?,
            }
            let open = match open(anchor.as_fd(), &name) {
                Err(Errno::NOENT) => continue,
                opened => InternalFd::new(opened?),
            };
            let locked = rustix::fs::flock(&open, FlockOperation::NonBlockingLockExclusive);
            if locked.is_ok() && rustix::fs::fstat(&open)?.st_nlink > 0 {
                return Ok(Self { anchor, name, open });
            }
        }
        Err(Errno::AGAIN)
    }

    /// Makes the directories in it.
    fn fill(self, closure: &Closure) -> Result<Self, Errno> {
        let ours = (1..).zip(&closure.library_path).filter(|(_, (_, ours))| *ours);
        let of_objects = closure.has_of_objects().then_some(OF_OBJECTS);
        for number in of_objects.into_iter().chain(ours.map(|(number, _)| number)) {
            make(self.open.as_fd(), &number.to_string())?;
        }
        Ok(self)
    }

    fn path(&self, number: usize) -> Vec<u8> {
        path(self.open.as_raw_fd(), number)
    }
}

fn path(directory: c_int, number: usize) -> Vec<u8> {
    format!("/proc/self/fd/{directory}/{number}").into_bytes()
}

/// Makes a directory, whatever the umask.
fn make(at: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    rustix::fs::mkdirat(at, name, Mode::RWXU)?;
    rustix::fs::chmodat(at, name, Mode::RWXU, AtFlags::empty())
}

fn open(at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// The names in a directory, but for itself and its parent.
fn names(directory: BorrowedFd<'_>) -> Vec<CString> {
    let mut names = Vec::new();
    let Ok(list) =
        rustix::fs::openat(directory, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    else {
        return names;
    };
    let mut buffer = Vec::with_capacity(4096);
    let mut entries = RawDir::new(&list, buffer.spare_capacity_mut());
    while let Some(Ok(entry)) = entries.next() {
        if ![c".", c".."].contains(&entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    names
}

/// Removes stand-ins from their directory.
fn clear(directory: BorrowedFd<'_>) {
    for name in names(directory) {
        if let Ok(standin) =
            name.to_str().map_err(|_| Errno::INVAL).and_then(|name| open(directory, name))
        {
            for link in names(standin.as_fd()) {
                let _ = rustix::fs::unlinkat(&standin, &link, AtFlags::empty());
            }
        }
        let _ = rustix::fs::unlinkat(directory, &name, AtFlags::REMOVEDIR);
    }
}

/// Removes what images have left that died before they took it over.
fn sweep(anchor: BorrowedFd<'_>) {
    for name in names(anchor) {
        let Some(name) = name.to_str().ok().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        let Ok(directory) = open(anchor, name) else { continue };
        if rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
            clear(directory.as_fd());
            let _ = rustix::fs::unlinkat(anchor, name, AtFlags::REMOVEDIR);
        }
    }
}

/// In the new image, before the program's own code: takes it over. `process`: none if this image
/// leaves the volume alone.
pub fn take_over(process: Option<&Process>) {
    let Some(said) = environment::value(VARIABLE.as_bytes()) else { return };
    environment::remove(VARIABLE.as_bytes());
    let Some(table) = number_of(said).and_then(inherited) else { return };
    let size =
        rustix::fs::fstat(&table).map_or(0, |stat| usize::try_from(stat.st_size).unwrap_or(0));
    let mut bytes = vec![0; size.min(TABLE_BYTES_MAX)];
    let got = rustix::io::pread(&table, &mut bytes[..], 0).unwrap_or(0);
    let mut texts = bytes[..got].split_inclusive(|&byte| byte == 0);
    let mut directory = None;
    let (mut standing, mut copies) = (Vec::new(), Vec::new());
    while let Some(line) = texts.next() {
        let (Some((kind, _)), Some(text)) = (line.split_first(), text_of(&line[1..])) else {
            break;
        };
        match kind {
            b'C' => {
                let node = texts.next().and_then(text_of).and_then(|node| {
                    let (ino, generation) = node.to_str().ok()?.split_once('/')?;
                    Some(Node { ino: ino.parse().ok()?, generation: generation.parse().ok()? })
                });
                copies.extend(number_of(text).and_then(inherited).map(keep).zip(node));
            }
            b'S' => directory = number_of(text).and_then(inherited).map(keep),
            b'D' => {
                let path = texts.next().and_then(text_of);
                let node = path.and_then(|path| node_at(process?, path));
                standing.extend(number_of::<usize>(text).zip(node));
            }
            b'N' => {
                let Some(name) = texts.next().and_then(text_of) else { break };
                rename(text, name);
            }
            b'L' => environment::replace(b"LD_LIBRARY_PATH", kept(text)),
            b'l' => environment::remove(b"LD_LIBRARY_PATH"),
            b'P' => environment::replace(b"LD_PRELOAD", kept(text)),
            _ => break,
        }
    }
    if let Some(directory) = directory {
        dismiss(directory);
    }
    standins::set(StandIns { directory, standing, copies });
}

fn text_of(line: &[u8]) -> Option<&CStr> {
    CStr::from_bytes_with_nul(line).ok()
}

fn number_of<T: FromStr>(text: &CStr) -> Option<T> {
    text.to_str().ok()?.parse().ok()
}

/// A descriptor that the image before this one has left; closes at the next exec.
fn inherited(number: c_int) -> Option<OwnedFd> {
    if number < FIRST {
        return None;
    }
    rustix::io::fcntl_setfd(fdtable::borrow(number), FdFlags::CLOEXEC).ok()?;
    // SAFETY: open, and this library's own by what the table or its variable says.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Keeps a descriptor as long as the process lives, out of the program's sight.
fn keep(fd: OwnedFd) -> c_int {
    let number = fd.as_raw_fd();
    std::mem::forget(InternalFd::in_place(fd));
    fdtable::hide(number);
    number
}

fn kept(text: &CStr) -> &'static CStr {
    Box::leak(text.into())
}

fn node_at(process: &Process, path: &CStr) -> Option<Node> {
    let target = paths::resolve(process, libc::AT_FDCWD, path.to_bytes(), true).ok()?;
    if matches!(target, Target::Kernel | Target::Elsewhere(_)) {
        return None;
    }
    let attr = paths::existing(process, &target).ok()?;
    (attr.kind == Kind::Directory).then_some(attr.node)
}

/// Gives an object the name that the linker would have given it.
fn rename(file: &CStr, name: &CStr) {
    if let Some(object) = objects::loaded().find(|object| object.file() == file.to_bytes()) {
        // SAFETY: what is loaded with the program stays; it has one thread yet.
        unsafe { object.rename(kept(name)) };
    }
}

/// Removes the stand-ins: the linker is through with them.
fn dismiss(directory: c_int) {
    clear(fdtable::borrow(directory));
    if let Ok(path) = rustix::fs::readlink(format!("/proc/self/fd/{directory}"), Vec::new()) {
        // Where this process may not, the next one that makes some does.
        let _ = rustix::fs::rmdir(&path);
    }
    let _ = rustix::fs::flock(fdtable::borrow(directory), FlockOperation::Unlock);
}
