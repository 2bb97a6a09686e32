//! Tells beforehand whether the dynamic loader will preload a library into a program: else that is
//! refused with a reason, instead of a program that silently sees no volume.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Access, access};
use rustix::io::FdFlags;
use vfs::executable::{self, Linkage, LoaderTask};

use super::library;

/// Why a program is not run. The exit code tells the shell's three cases apart.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such program (127).
    Missing,
    /// There, but the kernel would not run it (126).
    Unrunnable(String),
    /// It would run, but without seeing the volume (126).
    Unserved(String),
}

/// Interpreters of interpreters that the kernel follows.
const SCRIPT_DEPTH_MAX: u32 = 4;

/// Finds a program as a shell does: a name with a slash is a path, any other is looked for in PATH.
pub fn find(name: &OsStr) -> Result<PathBuf, Refusal> {
    if name.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let runnable = |candidate: &PathBuf| {
        candidate.is_file() && access(candidate.as_path(), Access::EXEC_OK).is_ok()
    };
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(runnable).ok_or(Refusal::Missing)
}

/// Checks that the loader will preload a library into the program, following `#!` lines.
pub fn check(path: &Path) -> Result<(), Refusal> {
    check_deep(path, SCRIPT_DEPTH_MAX)
}

fn check_deep(path: &Path, depth: u32) -> Result<(), Refusal> {
    let cannot_read = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Refusal::Missing,
        _ => Refusal::Unrunnable(format!("it cannot be read: {error}")),
    };
    let meta = path.metadata().map_err(cannot_read)?;
    if !meta.is_file() {
        return Err(Refusal::Unrunnable("it is not a file".into()));
    }
    if access(path, Access::EXEC_OK).is_err() {
        return Err(Refusal::Unrunnable("it is not executable".into()));
    }
    if let Some(reason) = gains_privileges(path, &meta) {
        return Err(Refusal::Unserved(reason));
    }
    let mut file = File::open(path).map_err(cannot_read)?;
    let mut head = Vec::new();
    file.by_ref().take(256).read_to_end(&mut head).map_err(cannot_read)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let interpreter = script_interpreter(line)
            .ok_or_else(|| Refusal::Unrunnable("its #! line names no interpreter".into()))?;
        if depth == 0 {
            return Err(Refusal::Unrunnable(
                "its interpreter is a script, whose interpreter is a script, and so on".into(),
            ));
        }
        return check_deep(interpreter, depth - 1).map_err(|refusal| match refusal {
            Refusal::Missing => {
                Refusal::Unrunnable(format!("its interpreter {} is missing", interpreter.display()))
            }
            Refusal::Unserved(reason) => {
                Refusal::Unserved(format!("its interpreter {}: {reason}", interpreter.display()))
            }
            other @ Refusal::Unrunnable(_) => other,
        });
    }
    check_elf(&file, has_host())
}

/// What the dynamic linker looks through for a program, or for its interpreter.
#[derive(Default)]
pub struct Libraries {
    /// The directories that the program names, and libraries that it names by a path.
    pub paths: Vec<PathBuf>,
    /// It needs a sanitizer's runtime.
    pub sanitized: bool,
}

impl Libraries {
    /// Of a program that was checked.
    pub fn of(path: &Path) -> Self {
        Self::of_deep(path, SCRIPT_DEPTH_MAX).unwrap_or_default()
    }

    fn of_deep(path: &Path, depth: u32) -> Option<Self> {
        let mut file = File::open(path).ok()?;
        let mut head = Vec::new();
        file.by_ref().take(256).read_to_end(&mut head).ok()?;
        if let Some(line) = head.strip_prefix(b"#!") {
            return Self::of_deep(script_interpreter(line)?, depth.checked_sub(1)?);
        }
        let said = executable::dependencies(&|at, to: &mut [u8]| {
            rustix::io::pread(&file, to, at).unwrap_or(0) //
        })?;
        let whole = path.canonicalize().ok()?;
        let origin = whole.parent()?.as_os_str().as_bytes();
        let lists = said.rpath.iter().chain(&said.runpath);
        let named = said.needed.iter().filter(|name| name.contains(&b'/'));
        let texts = lists.flat_map(|list| list.split(|&byte| byte == b':'));
        let expanded = |text: &[u8]| executable::expanded(text, origin, b"lib64");
        let paths = texts.chain(named.map(Vec::as_slice)).filter_map(expanded);
        let paths = paths.map(|path| PathBuf::from(OsStr::from_bytes(&path)));
        let sanitized = said.needed.iter().any(|name| executable::is_sanitizer(name));
        Some(Self { paths: paths.collect(), sanitized })
    }
}

/// Whether a program, or its interpreter, is one that the preload library has a host run.
pub fn needs_host(path: &Path) -> bool {
    needs_host_deep(path, SCRIPT_DEPTH_MAX).unwrap_or(false)
}

fn needs_host_deep(path: &Path, depth: u32) -> Option<bool> {
    let mut file = File::open(path).ok()?;
    let mut head = Vec::new();
    file.by_ref().take(256).read_to_end(&mut head).ok()?;
    if let Some(line) = head.strip_prefix(b"#!") {
        return needs_host_deep(script_interpreter(line)?, depth.checked_sub(1)?);
    }
    Some(matches!(linkage(&file), Linkage::Static | Linkage::Go))
}

/// The host, told to run the program; `None`: the program is a script, or no host can run it. The
/// host inherits the program's open file.
pub fn by_host(path: &Path) -> Option<Command> {
    let host = library::find_host()?;
    let program = File::open(path).ok()?;
    if !matches!(linkage(&program), Linkage::Static | Linkage::Go) {
        return None;
    }
    let link = format!("/proc/self/fd/{}", program.as_raw_fd());
    let file = std::fs::read_link(link).ok()?;
    rustix::io::fcntl_setfd(&program, FdFlags::empty()).ok()?;
    let mut told = OsString::from(format!("{}:", program.into_raw_fd()));
    told.push(file);
    let mut command = Command::new(host);
    command.env(executable::GUEST, told).env(executable::GUEST_CALLED, path);
    Some(command)
}

/// What the dynamic loader, if that is the program at `path`, is told of, and whether it is to
/// start that.
pub fn given_to_loader(path: &Path, arguments: &[OsString]) -> Option<(PathBuf, bool)> {
    if linkage(&File::open(path).ok()?) != Linkage::Loader {
        return None;
    }
    let words = arguments.iter().map(|word| word.as_bytes());
    let words: Vec<&[u8]> = std::iter::once(path.as_os_str().as_bytes()).chain(words).collect();
    let (at, starts) = match executable::loader_task(&words) {
        LoaderTask::Start(at) => (at, true),
        LoaderTask::Tell(at) => (at?, false),
        LoaderTask::Unknown => return None,
    };
    Some((PathBuf::from(OsStr::from_bytes(words[at])), starts))
}

/// Checks that the loader, told to start this program, preloads a library into it. What it cannot
/// start at all it says itself.
pub fn check_loaded(path: &Path) -> Result<(), Refusal> {
    let Ok(file) = File::open(path) else { return Ok(()) };
    match check_elf(&file, false) {
        Err(Refusal::Unserved(reason)) => {
            Err(Refusal::Unserved(format!("it would load {}: {reason}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Set-id programs and those with file capabilities ignore `LD_PRELOAD` when they gain something.
fn gains_privileges(path: &Path, meta: &std::fs::Metadata) -> Option<String> {
    let mode = meta.permissions().mode();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    if mode & 0o4000 != 0 && meta.uid() != uid {
        return Some(
            "it is set-user-id, and the loader preloads nothing into such programs".into(),
        );
    }
    if mode & 0o2010 == 0o2010 && meta.gid() != gid {
        return Some(
            "it is set-group-id, and the loader preloads nothing into such programs".into(),
        );
    }
    let mut value = [0_u8; 64];
    let capabilities = rustix::fs::getxattr(path, "security.capability", &mut value[..]);
    (uid != 0 && capabilities.is_ok()).then(|| {
        "it has file capabilities, and the loader preloads nothing into such programs".into()
    })
}

/// The path after `#!`, as the kernel cuts it.
fn script_interpreter(line: &[u8]) -> Option<&Path> {
    let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let path = line.split(|&byte| byte == b' ' || byte == b'\t').next()?;
    (!path.is_empty()).then(|| Path::new(OsStr::from_bytes(path)))
}

fn linkage(file: &File) -> Linkage {
    executable::linkage(&|at, to: &mut [u8]| rustix::io::pread(file, to, at).unwrap_or(0))
}

/// Whether there is a host, beside the preload library, and the kernel lets it serve.
fn has_host() -> bool {
    os::can_host() && library::find_host().is_some()
}

/// A program must be started by the dynamic loader, or a host runs it (`has_host`).
fn check_elf(file: &File, has_host: bool) -> Result<(), Refusal> {
    let unrunnable = |found: &str| Err(Refusal::Unrunnable(found.into()));
    let unserved = |found: &str| Err(Refusal::Unserved(found.into()));
    match linkage(file) {
        Linkage::Dynamic | Linkage::Loader => Ok(()),
        Linkage::OtherFormat => unrunnable("it is neither a program nor a script with #!"),
        Linkage::Damaged => unrunnable("its ELF header is damaged"),
        Linkage::Foreign => unserved("it is not a 64-bit x86 program"),
        Linkage::Static | Linkage::Go if has_host => Ok(()),
        Linkage::Valgrind => {
            unserved("it is a tool of Valgrind's, which gives all addresses away itself")
        }
        Linkage::Static => unserved("it is statically linked, so that nothing can be preloaded"),
        Linkage::GoBesideC if os::has_call_dispatch() => Ok(()),
        Linkage::GoBesideC => unserved(
            "it is a Go program, which makes its system calls without the C library, and the \
             kernel does not tell a process of those (Syscall User Dispatch, Linux 5.11)",
        ),
        Linkage::Go => unserved(
            "it is a Go program without the C library: those make their system calls past \
             everything that is preloaded, and would not see the volume",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusal, check, find, script_interpreter};
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn finds_in_path_and_by_path() {
        assert!(find(OsStr::new("sh")).is_ok_and(|path| path.ends_with("sh")));
        assert_eq!(find(OsStr::new("no-such-program-anywhere")), Err(Refusal::Missing));
        assert_eq!(find(OsStr::new("./x")).as_deref(), Ok(Path::new("./x")));
    }

    #[test]
    fn tells_programs_from_the_rest() {
        assert_eq!(check(Path::new("/bin/sh")), Ok(()));
        assert_eq!(check(Path::new("/no/such")), Err(Refusal::Missing));
        assert!(matches!(check(Path::new("/etc/passwd")), Err(Refusal::Unrunnable(_))));
        assert!(matches!(check(Path::new("/etc")), Err(Refusal::Unrunnable(_))));
    }

    #[test]
    fn cuts_interpreter_lines() {
        let cut = |line: &'static str| script_interpreter(line.as_bytes());
        assert_eq!(cut(" /usr/bin/env python3\nx"), Some(Path::new("/usr/bin/env")));
        assert_eq!(cut("/bin/sh\t-e"), Some(Path::new("/bin/sh")));
        assert_eq!(cut("  \n"), None);
    }
}
