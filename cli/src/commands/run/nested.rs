//! `solera run` inside a program that is served already.
//!
//! A program is served by one volume (or over one directory), and so is all that it starts: the
//! library puts its own variables back at each exec, whatever environment it is given. So the
//! command line must ask for nothing else than what is there; then the program just goes on with
//! it. All that it asks for beyond is refused, since it would be lost in silence.

use std::ffi::{OsStr, OsString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{bypassed, not_started, place, refused};
use crate::args::RunArgs;
use crate::commands::program::{self, Refusal};
use crate::failure::{Failure, Outcome};
use crate::output;

/// What serves this process.
pub enum Served {
    /// A volume.
    Volume {
        /// Its file or device.
        volume: PathBuf,
        /// Where it is seen.
        at: PathBuf,
        /// It is mounted there.
        mounted: bool,
    },
    /// The engine over a kernel file system.
    Split {
        /// The directory.
        directory: PathBuf,
    },
}

/// What serves this process, by the library that is preloaded into it, if there is one. A program
/// that is bypassed is served by nothing.
pub fn serving() -> Option<Served> {
    type Serves = extern "C" fn() -> c_int;
    // SAFETY: a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"solera_serves".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the library's function of this name has this signature.
    let serves = unsafe { std::mem::transmute::<*mut libc::c_void, Serves>(found) };
    // The variables are those by which the library began.
    let path = |name| PathBuf::from(std::env::var_os(name).unwrap_or_default());
    match serves() {
        1 => Some(Served::Volume {
            volume: path("SOLERA_VOLUME"),
            at: path("SOLERA_AT"),
            mounted: std::env::var_os("SOLERA_MOUNTED").is_some(),
        }),
        2 => Some(Served::Split { directory: path("SOLERA_SPLIT") }),
        _ => None,
    }
}

/// Becomes the program, which is served as this process is; refuses what the command line asks for
/// beyond that.
pub fn start(
    args: &RunArgs,
    served: &Served,
    asked: &str,
    (name, arguments): (&OsString, &[OsString]),
) -> Outcome {
    check_place(args, served)?;
    check_options(args)?;
    check_class(args, served)?;
    place::require(&args.require, Some(served.place()))?;
    let alone = matches!(served, Served::Volume { mounted: false, .. });
    match program::find(name) {
        // The library checks programs that lie on the volume.
        Ok(path) if alone && place::resolved(&path).starts_with(served.place()) => {}
        Ok(path) => match program::check(&path) {
            Err(Refusal::Unserved(_)) if matches!(served, Served::Volume { mounted: true, .. }) => {
            }
            checked => checked.map_err(|refusal| refused(asked, refusal))?,
        },
        // Not along PATH outside of the volume: the library looks there as well.
        Err(_) => {}
    }
    if args.volume.is_none() && args.split.is_none() {
        output::tell(format!("{} goes on with {served}", name.to_string_lossy()));
    }
    Err(not_started(asked, &Command::new(name).args(arguments).exec()))
}

impl Served {
    /// Below which path.
    fn place(&self) -> &Path {
        match self {
            Self::Volume { at, .. } => at,
            Self::Split { directory } => directory,
        }
    }
}

impl std::fmt::Display for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Volume { volume, at, .. } => {
                write!(f, "the volume {} at {}", volume.display(), at.display())
            }
            Self::Split { directory } => write!(f, "--split {}", directory.display()),
        }
    }
}

/// The volume and its path, or the directory, must be those that are served.
fn check_place(args: &RunArgs, served: &Served) -> Result<(), Failure> {
    let asked = match (&args.volume, &args.at, &args.split) {
        (None, None, None) => return Ok(()),
        (Some(volume), None, _) => format!("show {}", volume.display()),
        (Some(volume), Some(at), _) => format!("show {} at {}", volume.display(), at.display()),
        (None, Some(at), _) => format!("show a volume at {}", at.display()),
        (None, None, Some(directory)) => format!("serve {}", directory.display()),
    };
    let is_there = |asked: &PathBuf| place::resolved(asked) == served.place();
    let as_asked = match served {
        Served::Volume { volume, .. } => {
            args.split.is_none()
                && args.volume.as_ref().is_none_or(|asked| is_same(asked, volume))
                && args.at.as_ref().is_none_or(is_there)
        }
        Served::Split { .. } => args.split.as_ref().is_some_and(is_there),
    };
    if as_asked {
        return Ok(());
    }
    let found = format!(
        "this program runs with {served} already, and a program and all that it starts have one \
         volume"
    );
    let advice = "start it from a shell outside of `solera run`; or `solera mount` the other \
                  volume: every program reaches files below a mount";
    Err(Failure::new(asked, found, advice))
}

/// Whether two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    one == other || place(one).is_some_and(|found| place(other) == Some(found))
}

/// Options that only the outermost `solera run` can give.
fn check_options(args: &RunArgs) -> Result<(), Failure> {
    let told = |name: &str| std::env::var_os(name).unwrap_or_default();
    let differs = |given: &Option<String>, name: &str, default: &str| {
        let now = told(name);
        let now = if now.is_empty() { OsStr::new(default) } else { &now };
        given.as_ref().filter(|given| OsStr::new(given) != now).cloned()
    };
    let wanted = bypassed(&args.bypass)?;
    let now = told("SOLERA_BYPASS");
    let is_bypassed = |name: &[u8]| now.as_bytes().split(|&byte| byte == b':').any(|n| n == name);
    let refused = if let Some(mode) = differs(&args.mode, "SOLERA_MODE", "strict") {
        format!("--mode {mode}")
    } else if let Some(numa) = differs(&args.numa, "SOLERA_NUMA", "place") {
        format!("--numa {numa}")
    } else if let Some(way) = differs(&args.relink, "SOLERA_SPLIT_RELINK", "") {
        format!("--relink {way}")
    } else if args.emulate && told("SOLERA_EMULATE").is_empty() {
        "--emulate".to_owned()
    } else if args.no_guard && told("SOLERA_GUARD") != "off" {
        "--no-guard".to_owned()
    } else if args.strict_support && told("SOLERA_STRICT_SUPPORT").is_empty() {
        "--strict-support".to_owned()
    } else if args.read_only && told("SOLERA_READ_ONLY").is_empty() {
        "--read-only".to_owned()
    } else if args.report.is_some() || args.report_file.is_some() {
        "--report".to_owned()
    } else if !wanted.is_empty() && !wanted.as_bytes().split(|&byte| byte == b':').all(is_bypassed)
    {
        format!("--bypass {}", wanted.to_string_lossy())
    } else {
        return Ok(());
    };
    Err(given_outside(&refused))
}

/// The class is that for which the volume was attached.
fn check_class(args: &RunArgs, served: &Served) -> Result<(), Failure> {
    let Some(class) = args.class.class else { return Ok(()) };
    let in_use = match served {
        // By the same variable, or by what it lies on.
        Served::Volume { volume, .. } => pmem::class_of(volume).ok(),
        Served::Split { .. } => None,
    };
    if in_use == Some(class) { Ok(()) } else { Err(given_outside(&format!("--class {class}"))) }
}

fn given_outside(option: &str) -> Failure {
    let found =
        "this program is under `solera run` already, and what it starts has the options of that";
    Failure::new(format!("take {option}"), found, "give the option there")
}
