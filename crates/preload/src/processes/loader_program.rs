//! The dynamic loader, run as a program (`ld-linux-x86-64.so.2`). It starts the program that it is
//! told to, and preloads this library into it as into any other; or it tells something (`--list`,
//! `--verify`, of which `ldd` is made, `--version`) and ends: then no code of ours runs.
//!
//! It opens what it is told of itself, past this library. So a name that leads elsewhere is
//! replaced by one that the kernel knows, and what it is only to tell of, on a volume without a
//! mount, by a copy in memory. A program to be *started* there is refused.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::FdFlags;
use vfs::cred::READ;
use vfs::executable::{LoaderTask, loader_task};
use vfs::{Attr, Kind};

use crate::entry::pointers::Text;
use crate::entry::process::Process;
use crate::entry::report;
use crate::files::rw::copy_to_memory;
use crate::paths::{self, Target, mount};
use crate::processes::exec::{ARGUMENT_MAX, List};
use crate::processes::loadable;

const UNKNOWN: &str = "it is the dynamic loader, with an option that is not known here";
const OPENS: &str = "it is the dynamic loader, which opens files before the volume is there";
/// With this variable the loader only tells what it would load.
const TRACE: &[u8] = b"LD_TRACE_LOADED_OBJECTS=";

/// How a program is executed.
pub enum LoaderAction {
    /// This library is loaded into it.
    Enters(Option<Renamed>),
    /// This host runs it.
    Hosted(CString),
    /// It only tells something, and leaves alone what it inherits but its output.
    Tells(Option<Renamed>),
    /// This library is not loaded into it, for this reason.
    Apart(&'static str),
    /// It would need what it cannot see: the reason, and what that is.
    Refused(&'static str, String),
}

/// An argument under a name by which the kernel finds it.
pub struct Renamed {
    pub at: usize,
    pub name: CString,
    /// What it names, if that is a copy. The program inherits it.
    _memory: Option<OwnedFd>,
}

/// What the kernel has behind a name.
enum KernelName {
    /// What this library sees there, or nothing.
    Same,
    /// That, by another name.
    Other(CString),
    /// Nothing: it is on a volume without a mount.
    Unseen(Attr),
}

/// What is to be done with the loader, given these arguments and this environment.
pub fn way(process: &Process, arguments: &[Text], environment: List) -> LoaderAction {
    let bytes = |text: &Text| text.within(ARGUMENT_MAX, vfs::Errno::TOOBIG).unwrap_or_default();
    let texts: Vec<&[u8]> = arguments.iter().map(bytes).collect();
    let variables = environment.texts().unwrap_or_default();
    let is_traced = variables.iter().any(|variable| bytes(variable).starts_with(TRACE));
    match loader_task(&texts) {
        LoaderTask::Unknown => LoaderAction::Apart(UNKNOWN),
        LoaderTask::Tell(at) => tells(process, &texts, at),
        LoaderTask::Start(at) if is_traced => tells(process, &texts, Some(at)),
        LoaderTask::Start(at) => starts(process, &texts, at),
    }
}

fn tells(process: &Process, texts: &[&[u8]], at: Option<usize>) -> LoaderAction {
    let renamed = |at: usize| match behind(process, texts[at]) {
        KernelName::Same => None,
        KernelName::Other(name) => Some(Renamed { at, name, _memory: None }),
        KernelName::Unseen(attr) => copied(process, &attr, texts[at], at),
    };
    LoaderAction::Tells(at.and_then(renamed))
}

fn starts(process: &Process, texts: &[&[u8]], at: usize) -> LoaderAction {
    let refused = |name: &[u8]| {
        LoaderAction::Refused(
            OPENS,
            format!("its argument {} is there", String::from_utf8_lossy(name)),
        )
    };
    let mut lists = texts[1..at].iter().flat_map(|text| text.split(|&byte| byte == b':'));
    if let Some(name) = lists.find(|name| is_unseen(process, name)) {
        return refused(name);
    }
    let renamed = match behind(process, texts[at]) {
        KernelName::Same => None,
        KernelName::Other(name) => Some(Renamed { at, name, _memory: None }),
        KernelName::Unseen(_) => return refused(texts[at]),
    };
    let name = renamed.as_ref().map_or(texts[at], |renamed| renamed.name.as_bytes());
    match paths::c_text(name).ok().and_then(|name| loadable::obstacle_of_contents(&name)) {
        Some(reason) => LoaderAction::Apart(reason),
        None => LoaderAction::Enters(renamed),
    }
}

/// Whether this names something on a volume that has no mount.
pub fn is_unseen(process: &Process, text: &[u8]) -> bool {
    process.volumes().filter(|seen| !seen.mounted).any(|seen| {
        let rest = text.strip_prefix(seen.prefix.as_slice());
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
    })
}

fn behind(process: &Process, name: &[u8]) -> KernelName {
    // The loader looks for a name without a slash in places of its own.
    if !name.contains(&b'/') {
        return KernelName::Same;
    }
    let target = match paths::resolve(process, libc::AT_FDCWD, name, true) {
        Ok(Target::Elsewhere(path)) => return KernelName::Other(path),
        Ok(Target::Kernel) | Err(_) => return KernelName::Same,
        Ok(target) => target,
    };
    match paths::existing(process, &target) {
        Ok(attr) if attr.kind == Kind::File => {
            match mount::executable_path(process, name, attr.node) {
                Some(path) if path.as_bytes() == name => KernelName::Same,
                Some(path) => KernelName::Other(path),
                None => KernelName::Unseen(attr),
            }
        }
        _ => KernelName::Same,
    }
}

/// A copy in memory of what the loader is to tell of; `None`: it may not be read, or there is no
/// memory, and the loader says that it finds nothing.
fn copied(process: &Process, attr: &Attr, name: &[u8], at: usize) -> Option<Renamed> {
    process.cred().check(attr, READ).ok()?;
    let memory = copy_to_memory(process, attr, name).ok()?;
    rustix::io::fcntl_setfd(&memory, FdFlags::empty()).ok()?;
    report::about(attr.node.member());
    report::fell_back("execve", "binary-copied-to-memory");
    let name = CString::new(format!("/proc/self/fd/{}", memory.as_raw_fd())).ok()?;
    Some(Renamed { at, name, _memory: Some(memory) })
}
