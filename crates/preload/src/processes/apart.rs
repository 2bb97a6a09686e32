//! Programs that nothing can be preloaded into, and no host runs.
//!
//! Such a program gets a mount: the one at the prefix, if there is one, else one that a keeper
//! makes in a name space for it ([`keeper`]). Descriptors of the mount come in place of ours, its
//! working directory is the mount's, and a program that lies on the volume is executed from there.
//!
//! Where there can be no mount it runs if it would inherit nothing of the volume, and is refused
//! before the exec otherwise, with a message and `EACCES`; `solera run` has it refused in any case.
//! This process's place on the volume ends with its image.
//!
//! All that can fail is done before the name space is entered, but for the exec itself: if that
//! fails, this thread comes back. It takes the structure lock, for a moment.

use std::ffi::{CString, c_int};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::DupFlags;
use vfs::{Desc, Errno};

use crate::descriptors::handover;
use crate::entry::fdtable;
use crate::entry::outside;
use crate::entry::pointers::{Bytes, Text};
use crate::entry::process::Process;
use crate::entry::report;
use crate::files::calls;
use crate::paths;
use crate::paths::mount;
use crate::processes::exec::{
    Image, List, Way, environment, execute, whole_name, without_libraries,
};
use crate::processes::keeper::{self, Mounted, Mounts};
use crate::processes::lifecycle;
use crate::processes::loadable;
use crate::processes::loader_program;

/// Executes a program that nothing is preloaded into, for this reason. Comes back only with the
/// error, as all functions here.
pub fn run(process: &Process, image: &Image, own: &[Text], given: List, reason: &str) -> Errno {
    // Programs that it starts may see the volume again: by a library, or by mounts alone.
    let variables = |mounted: bool| {
        if mounted && loadable::suffers(reason) {
            without_libraries(process, given)
        } else {
            environment(process, given, Vec::new(), &mut None)
        }
    };
    let found = match by_keeper(process, image, own, || variables(true)) {
        Ok(errno) => return errno,
        Err(found) => found,
    };
    if let Some(found) = found.as_ref().filter(|_| keeper::is_required()) {
        return refuse(image, reason, found);
    }
    if let Some(what) = inherits(process, image, own) {
        return refuse(image, reason, &with(what, found));
    }
    let mounted = process.volumes().all(|seen| seen.mounted);
    plainly(process, image, own, variables(mounted))
}

/// Executes the dynamic loader, which is to start something that it could not see without a mount.
pub fn run_loader(
    process: &Process,
    image: &Image,
    own: &[Text],
    given: List,
    (reason, what): (&str, String),
) -> Errno {
    match by_keeper(process, image, own, || environment(process, given, Vec::new(), &mut None)) {
        Ok(errno) => errno,
        Err(found) => refuse(image, reason, &with(what, found)),
    }
}

/// Executes the dynamic loader, which only tells something.
pub fn tell(process: &Process, image: &Image, own: &[Text], given: List) -> Errno {
    let variables = || without_libraries(process, given);
    let is_output = |fd| matches!(fd, 1 | 2);
    if unusable(process, is_output).is_none() {
        return plainly(process, image, own, variables());
    }
    match by_keeper(process, image, own, variables) {
        Ok(errno) => errno,
        Err(found) => match unusable(process, is_output) {
            Some(what) => refuse(image, "it is the dynamic loader", &with(what, found)),
            None => plainly(process, image, own, variables()),
        },
    }
}

/// Executes a program behind a root that does not have this library: as a mount at the prefix would
/// be, the volume is out of its sight. One that would inherit something of the volume is refused.
pub fn run_without(process: &Process, image: &Image, own: &[Text], given: List) -> Errno {
    if let Some(what) = inherits(process, image, own) {
        return refuse(image, "its root does not have the library", &what);
    }
    report::fell_back("execve", "library-not-in-root");
    plainly(process, image, own, without_libraries(process, given))
}

fn plainly(
    process: &Process,
    image: &Image,
    own: &[Text],
    variables: Result<Vec<CString>, Errno>,
) -> Errno {
    variables.map_or_else(
        |errno| errno,
        |all| execute(process, image, None, own, &all, Way::Mount(None)),
    )
}

/// What a program would inherit, and why no mount could be made for it.
fn with(mut what: String, found: Option<String>) -> String {
    if let Some(found) = found {
        what.push_str("; ");
        what.push_str(&found);
    }
    what
}

// ---- a mount that a keeper makes ----------------------------------------------------------------

/// Executes the program in a keeper's name space. An error says why that cannot be, if there might
/// be one.
fn by_keeper(
    process: &Process,
    image: &Image,
    own: &[Text],
    variables: impl FnOnce() -> Result<Vec<CString>, Errno>,
) -> Result<Errno, Option<String>> {
    let mounts = match keeper::ask(process) {
        None => return Err(None),
        Some(asked) => asked.map_err(|found| Some(format!("no mount can be made: {found}")))?,
    };
    let failed = |errno: Errno| Some(format!("the mount that was made for it fails: {errno}"));
    let entrance = Entrance::prepare(process, mounts, image).map_err(failed)?;
    let given = Given::all(process, &entrance).map_err(failed)?;
    report::fell_back("execve", "mounted-for-a-program");
    let variables = variables().map(|variables| entrance.told(process, variables));
    let errno = match variables {
        Ok(all) => {
            let seen = entrance.program.as_ref().unwrap_or(image);
            execute(process, seen, None, own, &all, Way::Mount(Some(&entrance)))
        }
        Err(errno) => errno,
    };
    given.take_back(process);
    Ok(errno)
}

/// How a program comes into a keeper's name space.
pub struct Entrance {
    mounts: Mounts,
    /// The mount of each volume that has no other, by the volumes' order.
    mounted: Vec<Option<Mounted>>,
    directory: OwnedFd,
    /// What is executed in place of the program: the same, by a path that leads to it there.
    program: Option<Image>,
}

impl Entrance {
    fn prepare(process: &Process, mounts: Mounts, image: &Image) -> Result<Self, Errno> {
        let mounted = process
            .volumes()
            .map(|seen| if seen.mounted { Ok(None) } else { mounts.of(seen).map(Some) });
        let mounted = mounted.collect::<Result<Vec<_>, Errno>>()?;
        let (directory, is_there) = match process.cwd().node {
            Some(node) if !process.volume_of(node).mounted => {
                let path = paths::directory_path(process, node)?;
                (mounts.open(&path, OFlags::PATH | OFlags::DIRECTORY)?, true)
            }
            _ => {
                if let Some(there) = mounts.working_directory() {
                    (there, true)
                } else {
                    let flags = OFlags::PATH | OFlags::CLOEXEC;
                    (rustix::fs::open(".", flags, Mode::empty())?, false)
                }
            }
        };
        let program = program_there(process, &mounts, image, is_there);
        Ok(Self { mounts, mounted, directory, program })
    }

    /// The variables of a program there: for what it starts the volumes are mounted.
    fn told(&self, process: &Process, mut variables: Vec<CString>) -> Vec<CString> {
        for (number, (mounted, _)) in self.mounted.iter().zip(process.volumes()).enumerate() {
            let Some(mounted) = mounted else { continue };
            let name = match number {
                0 => mount::VARIABLE.to_owned(),
                number => format!("{}_{}", mount::VARIABLE, number + 1),
            };
            let name = [name.as_bytes(), b"="].concat();
            variables.retain(|variable| !variable.as_bytes().starts_with(&name));
            variables.extend(CString::new([&*name, &mounted.serves].concat()));
        }
        variables
    }

    /// Enters: see [`keeper::enter`].
    pub fn enter(&self) -> Result<keeper::Outside, Errno> {
        keeper::enter(&self.mounts, self.directory.as_fd())
    }

    /// The mount of what is open.
    fn mount_of(&self, process: &Process, desc: Desc) -> Option<&Mounted> {
        let seen = process.volume_of(desc);
        let number = process.volumes().position(|one| std::ptr::eq(one, seen))?;
        self.mounted[number].as_ref()
    }
}

/// The program by a path in the name space, if it would not be found, or not be given the rights
/// that it has, by what it is named by here. `is_there`: paths begin in the same directory.
fn program_there(
    process: &Process,
    mounts: &Mounts,
    image: &Image,
    is_there: bool,
) -> Option<Image> {
    let same = |path: &[u8], stat: &rustix::fs::Stat| {
        let found = mounts.open(path, OFlags::PATH).and_then(rustix::fs::fstat);
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino))
    };
    let leading = || image.leading.clone();
    if let Some(node) = image.program {
        let path = whole_name(process, image.path.as_bytes());
        let found = mounts.open(&path, OFlags::PATH).and_then(rustix::fs::fstat).ok()?;
        let is_it = found.st_ino == node.number();
        let path = paths::c_text(&path).ok().filter(|_| is_it)?;
        return Some(Image::known(path, leading()));
    }
    let is_named = image.at == libc::AT_FDCWD && image.flags == 0;
    if is_named && (is_there || image.path.as_bytes().starts_with(b"/")) {
        return None;
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = if image.path.is_empty() {
        rustix::io::fcntl_dupfd_cloexec(fdtable::borrow(image.at), 0)
    } else {
        rustix::fs::openat(fdtable::borrow_directory(image.at), &image.path, flags, Mode::empty())
    };
    let opened = opened.ok()?;
    let link = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).ok()?;
    let stat = rustix::fs::fstat(&opened).ok()?;
    same(path.as_bytes(), &stat).then(|| Image::known(path, leading()))
}

/// Numbers of ours that are descriptors of a mount for now.
struct Given(Vec<(c_int, Desc)>);

impl Given {
    fn all(process: &Process, entrance: &Entrance) -> Result<Self, Errno> {
        let mut given = Self(Vec::new());
        let inherited = fdtable::all().filter(|&(fd, _)| is_inherited(fd));
        for (fd, desc) in inherited.collect::<Vec<_>>() {
            let there = match entrance.mount_of(process, desc) {
                Some(mounted) => {
                    mount::give_of(process, (fd, desc), mounted.directory.as_fd(), mounted.device)
                }
                None => mount::give(process, fd, desc),
            };
            if let Err(errno) = there {
                given.take_back(process);
                return Err(errno);
            }
            given.0.push((fd, desc));
        }
        Ok(given)
    }

    /// After an exec that has failed: a number that kept a file of the mount would keep the mount.
    fn take_back(self, process: &Process) {
        let Some(placeholder) = fdtable::placeholder() else { return };
        let _lock = process.lock();
        for (fd, desc) in self.0 {
            if fdtable::get(fd) != Some(desc) {
                continue;
            }
            if fdtable::is_handed(fd) {
                // What an earlier exec that failed has put there.
                let Ok(form) = handover::form(process, desc) else { continue };
                replace(fd, form.as_fd());
            } else {
                replace(fd, placeholder.as_fd());
            }
        }
    }
}

fn replace(fd: c_int, by: std::os::fd::BorrowedFd<'_>) {
    // Without it the number stays the mount's, which serves as well.
    let _ = os::put_at(by, fd, DupFlags::empty());
}

fn is_inherited(fd: c_int) -> bool {
    rustix::io::fcntl_getfd(fdtable::borrow(fd))
        .is_ok_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
}

// ---- without a mount ----------------------------------------------------------------------------

/// A descriptor, among those asked for, that a program which cannot be preloaded would inherit of
/// the volume, and cannot use.
fn unusable(process: &Process, asked: impl Fn(c_int) -> bool) -> Option<String> {
    let found = |fd, desc: Desc| {
        let in_mount = process.volume_of(desc).mounted;
        asked(fd) && is_inherited(fd) && !(in_mount && mount::give(process, fd, desc).is_ok())
    };
    let (fd, _) = fdtable::all().find(|&(fd, desc)| found(fd, desc))?;
    Some(format!("descriptor {fd}, which it would inherit, is a file there"))
}

/// What a program that cannot be preloaded would inherit of the volume, and cannot use.
fn inherits(process: &Process, image: &Image, arguments: &[Text]) -> Option<String> {
    if let Some(what) = unusable(process, |_| true) {
        return Some(what);
    }
    if let Some(node) = process.cwd().node
        && !mount::leads_to(process, b".", node)
    {
        if !is_indifferent(image, arguments) {
            return Some("its working directory is there".to_owned());
        }
        report::about(node.member());
        report::fell_back("execve", "working-directory-not-seen");
    }
    let given = arguments.iter().skip(1).filter_map(|text| text.bytes().ok());
    let mut texts = image.leading.iter().skip(1).map(CString::as_bytes).chain(given);
    let text = texts.find(|text| loader_program::is_unseen(process, text))?;
    Some(format!("its argument {} is there", String::from_utf8_lossy(text)))
}

/// Options of `ldconfig` that name no file.
const PATHLESS: [&[u8]; 13] = [
    b"-p",
    b"--print-cache",
    b"-v",
    b"--verbose",
    b"-N",
    b"-X",
    b"-V",
    b"--version",
    b"-i",
    b"--ignore-aux-cache",
    b"-?",
    b"--help",
    b"--usage",
];

/// Whether it is `ldconfig`, a static program, and is given no file's name: then it does not look
/// at its working directory.
fn is_indifferent(image: &Image, arguments: &[Text]) -> bool {
    let name = image.path.as_bytes().rsplit(|&byte| byte == b'/').next();
    let pathless = |text: &Text| text.bytes().is_ok_and(|text| PATHLESS.contains(&text));
    matches!(name, Some(b"ldconfig" | b"ldconfig.real")) && arguments.iter().skip(1).all(pathless)
}

/// Says why a program is not run.
fn refuse(image: &Image, reason: &str, what: &str) -> Errno {
    lifecycle::refused("execve", "program-cannot-be-preloaded", Errno::ACCESS);
    let path = image.path.to_string_lossy();
    let line = format!("solera: {path}: {reason}, so it cannot use the volume, and {what}\n");
    // As the program would write it.
    outside(|| calls::write(2, Bytes(line.as_ptr().cast_mut().cast()), line.len()));
    Errno::ACCESS
}
