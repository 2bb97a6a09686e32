//! `exec` in all its forms. The new image gets this library, the volume's variables, the
//! descriptors in hand-over form and the working directory, whatever environment the program
//! passes. Record locks cross the exec with the process's slot.
//!
//! A file on a volume that is not mounted cannot be executed by the kernel: a script is run by its
//! interpreter, a binary through a copy in memory.
//!
//! A program that cannot be preloaded is executed otherwise (`apart.rs`), and so is any program
//! behind a root that does not have this library (`chroot`, another name space of mounts).
//!
//! The region and the anchor cross it as open descriptors, so they stay within reach whatever user
//! the process becomes (`setuid`). No locks are held across the system call.

use std::ffi::{CString, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{Access, Mode, OFlags};
use vfs::cred::EXECUTE;
use vfs::executable;
use vfs::{Attr, Errno, FileSystemExt, Kind, Node};

use crate::descriptors::handover;
use crate::entry::attachment::ATTACHING;
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::hooks;
use crate::entry::pointers::{Out, Text};
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::syscall;
use crate::entry::thread::here;
use crate::entry::{Served, Stop};
use crate::files::rw::{copy_to_memory, read_at};
use crate::paths::links;
use crate::paths::mount;
use crate::paths::{self, Target};
use crate::processes::apart::{self, Entrance};
use crate::processes::closure::{self, Asked};
use crate::processes::host_program::{self, Handing};
use crate::processes::init;
use crate::processes::loadable::{self, Looked, Needs, Obstacle};
use crate::processes::loader_program::{self, LoaderAction};
use crate::processes::supply::{self, Supply};
use crate::signals::{sigaction, signal};

/// A NULL-terminated list of strings of the program's.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct List(pub *const *const c_char);

impl List {
    /// Its texts; none for NULL. `EFAULT`.
    pub fn texts(self) -> Result<Vec<Text>, Errno> {
        let mut texts = Vec::new();
        if self.0.is_null() {
            return Ok(texts);
        }
        loop {
            let text = Text(Out(self.0.wrapping_add(texts.len()).cast_mut()).value()?);
            if text.0.is_null() {
                return Ok(texts);
            }
            texts.push(text);
        }
    }
}

/// What to give to the kernel.
pub struct Image {
    /// What a relative path starts from.
    pub at: c_int,
    pub path: CString,
    /// Of `execveat`.
    pub flags: c_int,
    /// A copy of a binary of the volume, to be executed instead of the path.
    memory: Option<OwnedFd>,
    /// That binary.
    pub program: Option<Node>,
    /// For a script: what stands in place of the first argument: interpreter, its argument, script.
    pub leading: Vec<CString>,
    /// Why the program cannot be preloaded.
    obstacle: Option<Obstacle>,
    /// What it needs, if it is.
    needs: Option<Needs>,
}

impl Image {
    fn plain(path: CString) -> Self {
        Self::relative(libc::AT_FDCWD, path, 0)
    }

    /// A program that was looked at already.
    pub fn known(path: CString, leading: Vec<CString>) -> Self {
        let (at, flags) = (libc::AT_FDCWD, 0);
        let (memory, program, obstacle, needs) = (None, None, None, None);
        Self { at, path, flags, memory, program, leading, obstacle, needs }
    }

    fn relative(at: c_int, path: CString, flags: c_int) -> Self {
        let Looked { obstacle, needs } = if path.is_empty() {
            loadable::look_at_open(fdtable::borrow(at))
        } else {
            loadable::look_at(fdtable::borrow_directory(at), &path)
        };
        Self { at, path, flags, memory: None, program: None, leading: Vec::new(), obstacle, needs }
    }
}

/// How often an interpreter may itself be a script, as in the kernel.
const INTERPRETERS_MAX: u32 = 4;

/// Longest first line of a script that is looked at, as the kernel's.
const SCRIPT_LINE_MAX: usize = 256;

/// Longest argument or variable, as the kernel's (`MAX_ARG_STRLEN`, its NUL left out).
pub const ARGUMENT_MAX: usize = (128 << 10) - 1;

/// Interpreter and argument of a script's first line; `None` if it is not a script.
pub fn interpreter(first: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = first[..first.len().min(SCRIPT_LINE_MAX)].strip_prefix(b"#!")?;
    let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
    let line = line[..end].trim_ascii();
    let cut = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    Some((&line[..cut], line[cut..].trim_ascii()))
}

/// A script at `path` whose interpreter has been found to be `image`, named `name`.
fn script(image: Image, (name, argument): (&[u8], &[u8]), path: &[u8]) -> Result<Image, Errno> {
    let mut leading = image.leading;
    if leading.is_empty() {
        leading.push(paths::c_text(name)?);
    }
    if !argument.is_empty() {
        leading.push(paths::c_text(argument)?);
    }
    leading.push(paths::c_text(path)?);
    Ok(Image { leading, ..image })
}

/// Prepares a file of the volume for execution.
fn load(process: &Process, attr: &Attr, path: &[u8], depth: u32) -> Result<Image, Errno> {
    if attr.kind != Kind::File {
        return Err(Errno::ACCESS);
    }
    process.cred().check(attr, EXECUTE)?;
    if process.fs.is_written(attr.node)? {
        return Err(Errno::TXTBSY);
    }
    let mut first = [0; SCRIPT_LINE_MAX];
    let length = read_at(process, attr, 0, &mut first)?;
    if let Some((name, argument)) = interpreter(&first[..length]) {
        if name.is_empty() {
            return Err(Errno::NOEXEC);
        }
        if depth >= INTERPRETERS_MAX {
            return Err(Errno::LOOP);
        }
        return script(find(process, name, depth + 1)?, (name, argument), path);
    }
    if !first[..length].starts_with(b"\x7fELF") {
        return Err(Errno::NOEXEC);
    }
    if mount::leads_to(process, path, attr.node) {
        return Ok(Image::plain(paths::c_text(path)?));
    }
    report::about(attr.node.member());
    report::fell_back("execve", "binary-copied-to-memory");
    let memory = copy_to_memory(process, attr, path)?;
    let read = |at, to: &mut [u8]| rustix::io::pread(&memory, to, at).unwrap_or(0);
    let obstacle = loadable::obstacle_in(&read);
    let needs = executable::dependencies(&read).map(|said| {
        let origin = loadable::directory_of(&whole_name(process, path)).to_vec();
        Needs { said, origin }
    });
    Ok(Image {
        at: libc::AT_FDCWD,
        path: paths::c_text(path)?,
        flags: 0,
        memory: Some(memory),
        program: Some(attr.node),
        leading: Vec::new(),
        obstacle,
        needs,
    })
}

/// What a path means as a program.
fn find(process: &Process, path: &[u8], depth: u32) -> Result<Image, Errno> {
    match paths::resolve(process, libc::AT_FDCWD, path, true)? {
        Target::Kernel => paths::c_text(path).map(Image::plain),
        Target::Elsewhere(path) => Ok(Image::plain(path)),
        target => match paths::existing(process, &target) {
            Ok(attr) => load(process, &attr, path, depth),
            Err(Stop::Errno(errno) | Stop::Refused(_, errno)) => Err(errno),
            Err(Stop::Kernel) => Err(Errno::NOENT),
        },
    }
}

/// What the kernel's symlinks lead to, if that is on the volume.
fn behind_links(process: &Process, path: &[u8]) -> Option<Image> {
    let image = links::walked(|| find(process, path, 0)).ok()?;
    (image.program.is_some() || !image.leading.is_empty()).then_some(image)
}

/// A script outside whose interpreter is on the volume: the kernel does not find that one.
fn outside_script(process: &Process, path: &CString) -> Option<Image> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let mut first = [0; SCRIPT_LINE_MAX];
    let length = rustix::io::read(&file, &mut first).ok()?;
    let (name, argument) = interpreter(&first[..length])?;
    let target = paths::resolve(process, libc::AT_FDCWD, name, true).ok()?;
    if matches!(target, Target::Kernel) {
        return None;
    }
    let image = find(process, name, 1).ok()?;
    script(image, (name, argument), path.as_bytes()).ok()
}

/// The libraries that are preloaded, in their order, from our own variables. With --profile: the
/// one that times calls, in front. With --align: the one that aligns what the allocator gives,
/// before that.
fn libraries<'t>(process: &'t Process, own: &'t [Vec<u8>]) -> [Option<&'t [u8]>; 3] {
    let of = |name: &[u8]| own.iter().find_map(|variable| variable.strip_prefix(name));
    [of(b"SOLERA_PROFILE_LIBRARY="), Some(&*process.library), of(b"SOLERA_ALIGN=")]
}

/// Those of the program's `LD_PRELOAD` that are not ours.
fn others<'t>(value: &'t [u8], ours: &[Option<&[u8]>]) -> impl Iterator<Item = &'t [u8]> {
    let libraries = value.split(|&byte| byte == b':' || byte == b' ');
    libraries.filter(|library| !library.is_empty() && !ours.contains(&Some(library)))
}

/// The value of `LD_PRELOAD` without our libraries, by their names.
pub fn without_ours(value: &[u8]) -> Vec<u8> {
    const OURS: [&[u8]; 3] =
        [b"libsolera_preload.so", b"libsolera_profile.so", b"libsolera_align.so"];
    let is_ours = |library: &&[u8]| {
        OURS.contains(&library.rsplit(|&byte| byte == b'/').next().unwrap_or_default())
    };
    others(value, &[]).filter(|library| !is_ours(library)).collect::<Vec<_>>().join(&b':')
}

/// The program's environment, in which nothing of ours is loaded.
pub fn without_libraries(process: &Process, given: List) -> Result<Vec<CString>, Errno> {
    let own = process.environment();
    let ours = libraries(process, &own);
    let mut variables = Vec::new();
    for text in given.texts()? {
        let variable = text.within(ARGUMENT_MAX, Errno::TOOBIG)?;
        let Some(value) = variable.strip_prefix(b"LD_PRELOAD=") else {
            variables.push(paths::c_text(variable)?);
            continue;
        };
        let rest: Vec<_> = others(value, &ours).collect();
        if !rest.is_empty() {
            variables.push(paths::c_text(&[b"LD_PRELOAD=", &*rest.join(&b':')].concat())?);
        }
    }
    Ok(variables)
}

/// The environment of the new image: the program's, with our variables put back, and those that say
/// what it is handed.
pub fn environment(
    process: &Process,
    given: List,
    handed: Vec<Vec<u8>>,
    supply: &mut Option<Supply>,
) -> Result<Vec<CString>, Errno> {
    environment_with(process, &process.environment(), given, handed, supply)
}

/// As [`environment`], with these variables of ours.
fn environment_with(
    process: &Process,
    own: &[Vec<u8>],
    given: List,
    handed: Vec<Vec<u8>>,
    supply: &mut Option<Supply>,
) -> Result<Vec<CString>, Errno> {
    const LIBRARY_PATH: &[u8] = b"LD_LIBRARY_PATH=";
    let mut variables = Vec::new();
    let ours = libraries(process, own);
    let library_path = supply.as_ref().and_then(|supply| supply.library_path.clone());
    let mut theirs = Vec::new();
    for text in given.texts()? {
        let variable = text.within(ARGUMENT_MAX, Errno::TOOBIG)?;
        if let Some(value) = variable.strip_prefix(b"LD_PRELOAD=") {
            theirs.extend(others(value, &ours));
        } else {
            let replaced = library_path.is_some() && variable.starts_with(LIBRARY_PATH);
            if !replaced && !variable.starts_with(b"SOLERA_") {
                variables.push(paths::c_text(variable)?);
            }
        }
    }
    if let Some(path) = library_path {
        variables.push(paths::c_text(&[LIBRARY_PATH, &path].concat())?);
    }
    // What a library in front of the one that serves does to a call is what it does without a
    // volume: the C library's calls arrive all the same. One that aligns stands before allocators.
    let [profiling, serving, aligning] = ours.each_ref().map(Option::as_slice);
    let ordered = |theirs: &[&[u8]]| [profiling, aligning, theirs, serving].concat().join(&b':');
    let mut preload = ordered(&theirs);
    if let Some(supply) = supply {
        supply.plain_preload(&preload);
        for (number, name) in &supply.preload {
            theirs[*number] = name;
        }
        let mut whole = supply.first.clone();
        whole.push(ordered(&theirs));
        preload = whole.join(&b':');
    }
    variables.push(paths::c_text(&[b"LD_PRELOAD=", preload.as_slice()].concat())?);
    for variable in own {
        variables.push(paths::c_text(variable)?);
    }
    for variable in handed {
        variables.push(paths::c_text(&variable)?);
    }
    Ok(variables)
}

/// Ends with NULL, as C wants it.
fn pointers(texts: impl IntoIterator<Item = *const c_char>) -> Vec<*const c_char> {
    texts.into_iter().chain([std::ptr::null()]).collect()
}

/// Executes; comes back only with the error.
pub fn run(process: &Process, image: &Image, arguments: List, given: List) -> Errno {
    let mut own = match arguments.texts() {
        Ok(own) => own,
        Err(errno) => return errno,
    };
    let way = match image.obstacle {
        None | Some(Obstacle::Loader) if !is_library_in_reach(process) => {
            return apart::run_without(process, image, &own, given);
        }
        None => LoaderAction::Enters(None),
        Some(Obstacle::Never(reason)) => LoaderAction::Apart(reason),
        Some(Obstacle::Host(reason)) => match host_program::path(process) {
            Some(host) => LoaderAction::Hosted(host),
            None => LoaderAction::Apart(reason),
        },
        Some(Obstacle::Loader) if image.leading.is_empty() => {
            loader_program::way(process, &own, given)
        }
        Some(Obstacle::Loader) => LoaderAction::Apart("its interpreter is the dynamic loader"),
    };
    if let LoaderAction::Enters(Some(renamed)) | LoaderAction::Tells(Some(renamed)) = &way {
        own[renamed.at] = Text(renamed.name.as_ptr());
    }
    let result = match way {
        LoaderAction::Hosted(host) => hosted(process, image, host)
            .and_then(|(image, told)| enter(process, &image, &own, given, Some(&told))),
        LoaderAction::Enters(_) => enter(process, image, &own, given, None),
        LoaderAction::Apart(reason) => return apart::run(process, image, &own, given, reason),
        LoaderAction::Refused(reason, what) => {
            return apart::run_loader(process, image, &own, given, (reason, what));
        }
        LoaderAction::Tells(_) => return apart::tell(process, image, &own, given),
    };
    result.unwrap_or_else(|errno| errno)
}

/// Whether the dynamic linker will find this library: after `chroot`, or where other mounts are
/// seen, there may be none by its name.
fn is_library_in_reach(process: &Process) -> bool {
    let name = CString::new(&*process.library);
    name.is_ok_and(|name| rustix::fs::access(&name, Access::READ_OK).is_ok())
}

/// What is executed in place of a program that a host runs, and what the host is told. The kernel
/// would find the interpreter of a script of its own itself.
fn hosted(process: &Process, image: &Image, host: CString) -> Result<(Image, Handing), Errno> {
    let (mut leading, mut found) = (image.leading.clone(), None);
    let called = image.leading.last().unwrap_or(&image.path);
    for _ in 0..=INTERPRETERS_MAX {
        let image = found.as_ref().unwrap_or(image);
        let opened = match &image.memory {
            Some(memory) => memory.try_clone().map_err(|_| Errno::MFILE)?,
            None if image.path.is_empty() => rustix::io::dup(fdtable::borrow(image.at))?,
            None => host_program::open(fdtable::borrow_directory(image.at), &image.path)?,
        };
        let mut first = [0; SCRIPT_LINE_MAX];
        let length = rustix::io::pread(&opened, &mut first, 0)?;
        let Some(line) = interpreter(&first[..length]) else {
            let name = image.program.map(|_| whole_name(process, image.path.as_bytes()));
            let told = host_program::hand_over(opened.as_fd(), name.as_deref(), called)?;
            let host = Image {
                at: libc::AT_FDCWD,
                path: host,
                flags: 0,
                memory: None,
                program: image.program,
                leading,
                obstacle: None,
                needs: None,
            };
            return Ok((host, told));
        };
        let next = script(find(process, line.0, 1)?, line, image.path.as_bytes())?;
        leading.clone_from(&next.leading);
        found = Some(next);
    }
    Err(Errno::LOOP)
}

/// The whole path of a program on a volume.
pub fn whole_name(process: &Process, path: &[u8]) -> Vec<u8> {
    let whole = paths::resolve(process, libc::AT_FDCWD, path, true).ok().and_then(|target| {
        let Target::Volume(found) = target else { return None };
        paths::name_of(process, &found).ok()
    });
    whole.unwrap_or_else(|| path.to_vec())
}

/// Executes a program that this library goes on in. `told`: what it is told if it is a host.
fn enter(
    process: &Process,
    image: &Image,
    own: &[Text],
    given: List,
    told: Option<&Handing>,
) -> Result<Errno, Errno> {
    let supply = supplied(process, &process.environment(), image, given)?;
    let begins_late = supply.is_none() && image.program.is_none() && !process.fs.is_attached();
    if begins_late && init::can_begin_late(process) {
        let handed = handover::late_variables(process, handover::home(process));
        let mut variables = environment(process, given, handed, &mut None)?;
        variables.extend(told.iter().flat_map(|told| told.variables.clone()));
        return Ok(execute(process, image, None, own, &variables, Way::Late));
    }
    let token = process.fs.exec_prepare()?;
    if image.program.is_some() {
        // From the system call on no process may write to it.
        process.fs.execute(None, image.program)?;
    }
    let prepared =
        still_unwritten(process, image).and_then(|()| handover::prepare(process)).and_then(|()| {
            let mut supply = supply;
            let path = image.program.filter(|_| image.at == libc::AT_FDCWD);
            let path = path.map_or_else(Vec::new, |_| whole_name(process, image.path.as_bytes()));
            let handed = handover::variables(process, &token, (image.program, &path));
            let mut variables = environment(process, given, handed, &mut supply)?;
            let table = supply.as_ref().map(Supply::hand_over).transpose()?;
            if let Some((variable, _)) = &table {
                variables.push(paths::c_text(variable)?);
            }
            variables.extend(told.iter().flat_map(|told| told.variables.clone()));
            Ok((variables, supply, table))
        });
    let errno = prepared.map(|(variables, supply, _table)| {
        let changed = supply.as_ref().and_then(|supply| supply.program.as_ref());
        execute(process, image, changed, own, &variables, Way::Served)
    });
    process.fs.exec_failed();
    if image.program.is_some() {
        process.fs.execute(image.program, process.program.get().copied())?;
    }
    errno
}

/// What the linker is to find in place of libraries on a volume.
fn supplied(
    process: &Process,
    own: &[Vec<u8>],
    image: &Image,
    given: List,
) -> Result<Option<Supply>, Errno> {
    let Some(needs) = &image.needs else { return Ok(None) };
    let ours = libraries(process, own);
    let (mut library_path, mut preload) = (None, Vec::new());
    for text in given.texts()? {
        let variable = text.within(ARGUMENT_MAX, Errno::TOOBIG)?;
        if let Some(value) = variable.strip_prefix(b"LD_PRELOAD=") {
            preload.extend(others(value, &ours));
        } else if let Some(value) = variable.strip_prefix(b"LD_LIBRARY_PATH=") {
            library_path = Some(value);
        }
    }
    let asked =
        Asked { program: &needs.said, origin: &needs.origin, library_path, preload: &preload };
    let closure = closure::find(process, &asked);
    let mut supply = supply::prepare(process, &closure, library_path);
    match (&image.memory, &mut supply) {
        (Some(memory), _) => supply::change(memory, &closure.program)?,
        (None, Some(supply)) if !closure.program.is_empty() => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let file = if image.path.is_empty() {
                let link = format!("/proc/self/fd/{}", image.at);
                rustix::fs::open(link, flags, Mode::empty())?
            } else {
                let at = fdtable::borrow_directory(image.at);
                rustix::fs::openat(at, &image.path, flags, Mode::empty())?
            };
            supply.program = Some(supply::changed_copy(&file, &closure.program)?);
        }
        _ => {}
    }
    Ok(supply)
}

/// Whether no process had opened the program for writing before it counted as executed: `ETXTBSY`.
fn still_unwritten(process: &Process, image: &Image) -> Result<(), Errno> {
    fence(Ordering::SeqCst);
    match image.program {
        Some(node) if process.fs.is_written(node)? => Err(Errno::TXTBSY),
        _ => Ok(()),
    }
}

/// How a new image comes to the volume.
#[derive(Clone, Copy)]
pub enum Way<'w> {
    /// This library serves it, and hands over what this image has.
    Served,
    /// The same, and there is nothing to hand over.
    Late,
    /// By a mount.
    Mount(Option<&'w Entrance>),
}

/// The system call. `changed`: what is executed in place of the program.
pub fn execute(
    process: &Process,
    image: &Image,
    changed: Option<&OwnedFd>,
    own: &[Text],
    environment: &[CString],
    way: Way<'_>,
) -> Errno {
    let environment = pointers(environment.iter().map(|text| text.as_ptr()));
    let replaced = usize::from(!image.leading.is_empty());
    let rest = own.iter().skip(replaced).map(|text| text.0);
    let leading = image.leading.iter().map(|text| text.as_ptr());
    let arguments = pointers(leading.chain(rest));
    (hooks::get().hand_over_all)();
    // This image's counts would end with it.
    process.write_report();
    let memory = changed.or(image.memory.as_ref()).map(AsRawFd::as_raw_fd);
    let (at, path, flags) = match memory {
        Some(memory) => (memory, c"", libc::AT_EMPTY_PATH),
        None => (image.at, image.path.as_c_str(), image.flags),
    };
    let (path, arguments, environment) = (path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
    let lists = [path as usize, arguments as usize, environment as usize];
    let (number, arguments) = if at == libc::AT_FDCWD && flags == 0 {
        (libc::SYS_execve, [lists[0], lists[1], lists[2], 0, 0, 0])
    } else {
        let all = [at as usize, lists[0], lists[1], lists[2], flags as usize, 0];
        (libc::SYS_execveat, all)
    };
    let _until_it_ends = cached_fd::Closes::new();
    // No other thread attaches from here on: its place would stay behind.
    let _unattached = matches!(way, Way::Late).then(|| ATTACHING.lock());
    if matches!(way, Way::Late) && process.fs.is_attached() {
        return vfs::BEGIN_ANEW;
    }
    let through = if let Way::Mount(through) = way { through } else { None };
    sigaction::before_exec();
    if here().guest.is_traced.swap(false, Ordering::Relaxed) {
        // What a system call of the program's own, or a guest, has asked for before.
        syscall::kernel(libc::SYS_ptrace, [libc::PTRACE_TRACEME as usize, 0, 0, 0, 0, 0]);
    }
    let outside = match through.map(Entrance::enter).transpose() {
        Ok(outside) => outside,
        Err(errno) => {
            sigaction::after_exec();
            return errno;
        }
    };
    // SAFETY: NULL-terminated lists of texts that live until the call. A signal that is kept back
    // ends it: the new image must inherit neither the signal nor the mask that keeps it.
    let failed = unsafe { os::interrupt::wait_call(number, arguments) };
    if let Some(outside) = outside {
        outside.come_back();
    }
    sigaction::after_exec();
    match failed {
        Err(Errno::INTR) => vfs::BEGIN_ANEW,
        Err(errno) => errno,
        Ok(_) => Errno::NOSYS,
    }
}

/// The same in a child that shares its parent's memory, of a path outside. `own`: the variables
/// that the new image needs; `home`: see [`handover::home`]. `None`: not without memory of its own.
pub fn lent(
    process: &Process,
    (own, home): (&[Vec<u8>], u32),
    path: &[u8],
    (arguments, given): (List, List),
) -> Option<Errno> {
    let image = Image::plain(paths::c_text(path).ok()?);
    if image.obstacle.is_some() || !is_library_in_reach(process) {
        return None;
    }
    if supplied(process, own, &image, given).ok()?.is_some() {
        return None;
    }
    let handed = handover::late_variables(process, home);
    let environment = environment_with(process, own, given, handed, &mut None).ok()?;
    let environment = pointers(environment.iter().map(|text| text.as_ptr()));
    let arguments = pointers(arguments.texts().ok()?.iter().map(|text| text.0));
    let lists = [arguments.as_ptr(), environment.as_ptr()].map(|list| list as usize);
    signal::block_own(true);
    let given = [image.path.as_ptr() as usize, lists[0], lists[1], 0, 0, 0];
    // SAFETY: as in `execute`.
    let failed = unsafe { os::interrupt::wait_call(libc::SYS_execve, given) };
    signal::block_own(false);
    Some(failed.err().unwrap_or(Errno::NOSYS))
}

/// `execve`; comes back only with the error.
pub fn exec(process: &Process, path: &[u8], arguments: List, environment: List) -> Errno {
    let image = match find(process, path, 0) {
        Ok(image) => image,
        Err(errno) => return errno,
    };
    let errno = run(process, &image, arguments, environment);
    if errno == Errno::NOENT
        && let Some(image) =
            outside_script(process, &image.path).or_else(|| behind_links(process, path))
    {
        return run(process, &image, arguments, environment);
    }
    errno
}

/// An open file as a program.
pub fn open_image(process: &Process, fd: c_int) -> Result<Image, Errno> {
    if let Some(desc) = fdtable::get(fd) {
        let attr = process.fs.attributes(process.fs.describe(desc)?.0)?;
        return load(process, &attr, format!("/dev/fd/{fd}").as_bytes(), 0);
    }
    fdtable::borrow_checked(fd)?;
    Ok(Image::relative(fd, CString::default(), libc::AT_EMPTY_PATH))
}

/// What a path from a directory means as a program.
pub fn image_at(
    process: &Process,
    dirfd: c_int,
    path: &[u8],
    flags: c_int,
) -> Result<Image, Errno> {
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let target = paths::resolve(process, dirfd, path, follow)?;
    let attr = match &target {
        Target::Kernel => return Ok(Image::relative(dirfd, paths::c_text(path)?, flags)),
        Target::Elsewhere(path) => {
            return Ok(Image::relative(libc::AT_FDCWD, path.clone(), flags));
        }
        Target::Descriptor(fd) => return open_image(process, *fd),
        Target::Volume(found) => found.existing()?,
    };
    if attr.kind == Kind::Symlink {
        return Err(Errno::LOOP);
    }
    let Target::Volume(found) = &target else { return Err(Errno::NOENT) };
    load(process, &attr, &paths::name_of(process, found)?, 0)
}

pub fn failed(errno: Errno) -> Served<c_int> {
    Err(Stop::Errno(errno))
}
