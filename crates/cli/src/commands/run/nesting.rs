//! `solera run` inside a program that is served already.
//!
//! What a program is served by goes on to all that it starts: beside a volume the library puts its
//! own variables back at each exec, whatever environment it is given. The command line may name
//! volumes besides, which the library is told of, and a directory to be served, if there is none:
//! the program has them, too. All else that it asks for beyond what is there is refused, since it
//! would be lost in silence.

use std::ffi::{OsStr, OsString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use console::failure::{Failure, Outcome};
use console::output;
use console::preload::program::{self, Refusal};

use super::binding::Binding;
use super::split::Split;
use super::{binding, by_program, by_shell, bypassed, not_started, refused};
use crate::commands::run::RunArgs;

/// What serves this process: volumes, the engine over a kernel file system, or both.
pub struct Service {
    volumes: Vec<Binding>,
    /// The engine's directory.
    split: Option<PathBuf>,
}

/// What serves this process, by the library that is preloaded into it, if there is one. A program
/// that is bypassed is served by nothing.
pub fn serving() -> Option<Service> {
    type Serves = extern "C" fn() -> c_int;
    // SAFETY: a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"solera_serves".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the library's function of this name has this signature.
    let serves = unsafe { std::mem::transmute::<*mut libc::c_void, Serves>(found) };
    // The variables are those by which the library began.
    let path = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_default());
    let one = |number: &str| {
        let mounted = std::env::var_os(format!("SOLERA_MOUNTED{number}")).is_some();
        let [volume, at] = ["VOLUME", "AT"].map(|name| path(&format!("SOLERA_{name}{number}")));
        Binding { mounted, ..Binding::alone(volume, at) }
    };
    let serves = serves();
    if !(1..=3).contains(&serves) {
        return None;
    }
    let numbers = std::iter::once(String::new()).chain((2..).map(|number| format!("_{number}")));
    let there = |number: &String| std::env::var_os(format!("SOLERA_VOLUME{number}")).is_some();
    let volumes = numbers.take_while(|number| serves & 1 != 0 && there(number));
    let volumes = volumes.map(|number| one(&number)).collect();
    Some(Service { volumes, split: (serves & 2 != 0).then(|| path("SOLERA_SPLIT")) })
}

/// Becomes the program, which is served as this process is, and by the volumes that the command
/// line names besides; refuses what it asks for beyond that.
pub fn start(
    args: &RunArgs,
    served: &Service,
    asked: &str,
    (name, arguments): (&OsString, &[OsString]),
) -> Outcome {
    let new = new_places(args, served)?;
    let split = new_split(args, served, asked, &new)?;
    let all_new = !new.is_empty() && new.len() == args.volume.len().max(args.at.len());
    check_options(args, served, (all_new, split.is_some()))?;
    check_class(args, served, &new)?;
    let directory = split.as_ref().map(|split| &*split.directory);
    let new_prefixes = new.iter().map(|place| &*place.at).chain(directory);
    let prefixes: Vec<&Path> = served.places().into_iter().chain(new_prefixes).collect();
    binding::require(&args.require, &prefixes)?;
    let mut kept = false;
    let unseen = new.iter().any(|place| place.alone_has(Path::new(name)));
    match program::find(name) {
        _ if unseen => {}
        // The library checks programs that lie on the volume.
        Ok(path) if served.has_alone(&binding::resolved(&path)) => {}
        Ok(path) => match program::check(&path) {
            Err(Refusal::Unserved(_)) if served.is_mounted() && new.is_empty() => {}
            Err(Refusal::Unserved(_)) if served.may_keep() => kept = true,
            checked => checked.map_err(|refusal| refused(asked, refusal))?,
        },
        // Not along PATH outside of the volume: the library looks there as well.
        Err(_) => {}
    }
    if args.volume.is_empty() && args.split.is_none() {
        output::tell(format!("{} goes on with {served}", name.to_string_lossy()));
    }
    let mut command = match (unseen, kept) {
        (true, _) => by_shell(name),
        (_, true) => by_program(name),
        _ => Command::new(name),
    };
    let number_of_first = served.volumes.len() + 1;
    let mut also: Vec<(String, OsString)> = (number_of_first..)
        .zip(&new)
        .flat_map(|(number, place)| super::variables(place, number, args.read_only))
        .collect();
    if let Some(split) = &split {
        split.tell_of_memory();
        also.extend(split.variables(true));
    }
    if kept {
        also.push((vfs::keeper::REQUIRED.to_owned(), "1".into()));
    }
    if served.volumes.is_empty() {
        // Nothing puts variables back.
        if !new.is_empty() {
            let mode = std::env::var_os("SOLERA_MODE").unwrap_or_else(|| "posix".into());
            command.env("SOLERA_SPLIT_MODE", mode);
            command.env("SOLERA_MODE", args.mode.as_deref().unwrap_or("strict"));
        }
        command.envs(also);
    } else {
        show_also(&also)?;
    }
    Err(not_started(asked, &command.args(arguments).exec()))
}

impl Service {
    /// Below which paths.
    fn places(&self) -> Vec<&Path> {
        let directory = self.split.as_deref();
        self.volumes.iter().map(|one| &*one.at).chain(directory).collect()
    }

    /// Whether all of it is mounted.
    fn is_mounted(&self) -> bool {
        !self.volumes.is_empty() && self.volumes.iter().all(|one| one.mounted)
    }

    /// Whether a keeper may mount its volumes for a program.
    fn may_keep(&self) -> bool {
        let told = std::env::var_os(vfs::keeper::COMMAND).is_some();
        !self.volumes.is_empty() && told && super::may_keep()
    }

    /// Whether a path lies on a volume that the kernel does not know.
    fn has_alone(&self, path: &Path) -> bool {
        self.volumes.iter().any(|one| one.alone_has(path))
    }
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut and = "";
        for Binding { volume, at, .. } in &self.volumes {
            write!(f, "{and}the volume {} at {}", volume.display(), at.display())?;
            and = " and ";
        }
        match &self.split {
            Some(directory) => write!(f, "{and}--split {}", directory.display()),
            None => Ok(()),
        }
    }
}

/// The directory that the command line names, if none is served yet; another than the one that is
/// is refused.
fn new_split(
    args: &RunArgs,
    served: &Service,
    asked: &str,
    new: &[Binding],
) -> Result<Option<Split>, Failure> {
    let split = match (&served.split, &args.split) {
        (_, None) => return Ok(None),
        (Some(directory), Some(asked)) if binding::resolved(asked) == *directory => {
            return Ok(None);
        }
        (Some(_), Some(asked)) => {
            let found = format!("this program runs with {served} already");
            let advice = "start it from a shell outside of `solera run`";
            return Err(Failure::new(format!("serve {}", asked.display()), found, advice));
        }
        (None, Some(_)) => Split::find(args, asked)?,
    };
    if let Some(split) = &split {
        super::split::check_apart(&split.directory, &served.volumes)?;
        super::split::check_apart(&split.directory, new)?;
    }
    Ok(split)
}

/// The volumes that the command line names and that are not there yet.
fn new_places(args: &RunArgs, served: &Service) -> Result<Vec<Binding>, Failure> {
    let directory = served.split.as_deref();
    let served = &served.volumes;
    let names = |volume: Option<&PathBuf>, at: Option<&PathBuf>| {
        served.iter().any(|one| {
            volume.is_none_or(|volume| binding::is_same(volume, &one.volume))
                && at.is_none_or(|at| binding::resolved(at) == one.at)
        })
    };
    // The paths of those that are there already cannot be looked at as the kernel's.
    let (mut volumes, mut prefixes) = (Vec::new(), Vec::new());
    for number in 0..args.volume.len().max(args.at.len()) {
        let (volume, at) = (args.volume.get(number), args.at.get(number));
        if !names(volume, at) {
            volumes.extend(volume.cloned());
            prefixes.extend(at.cloned());
        }
    }
    if volumes.is_empty() && prefixes.is_empty() {
        return Ok(Vec::new());
    }
    let mut new = binding::named(&volumes, &prefixes, args)?;
    binding::apart(&served.iter().chain(&new).cloned().collect::<Vec<_>>())?;
    if let Some(directory) = directory {
        super::split::check_apart(directory, &new)?;
    }
    for place in &new {
        super::check_medium(args, place)?;
    }
    new.retain(|place| args.read_only || !place.by_mount_only);
    Ok(new)
}

/// Tells the library what serves that which is executed next besides.
fn show_also(also: &[(String, OsString)]) -> Result<(), Failure> {
    type Shows = extern "C" fn(*const libc::c_char);
    if also.is_empty() {
        return Ok(());
    }
    // SAFETY: a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"solera_shows".as_ptr()) };
    if found.is_null() {
        let found = "the library of the outer `solera run` is of an earlier version";
        return Err(Failure::new("show another volume", found, "start the program outside of it"));
    }
    // SAFETY: the library's function of this name has this signature.
    let shows = unsafe { std::mem::transmute::<*mut libc::c_void, Shows>(found) };
    for (name, value) in also {
        let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
        let wrong = |_| Failure::new("show another volume", "its path has a NUL", "");
        let text = std::ffi::CString::new(text).map_err(wrong)?;
        shows(text.as_ptr());
    }
    Ok(())
}

/// Options that only the outermost `solera run` can give. Where `all_new` volumes are named, these
/// may be read only; a new directory has a mode and ways of its own, and so have volumes where
/// there were none.
fn check_options(
    args: &RunArgs,
    served: &Service,
    (all_new, new_split): (bool, bool),
) -> Result<(), Failure> {
    let has_own_mode = new_split || all_new && served.volumes.is_empty();
    let told = |name: &str| std::env::var_os(name).unwrap_or_default();
    let differs = |given: &Option<String>, name: &str, default: &str| {
        let now = told(name);
        let now = if now.is_empty() { OsStr::new(default) } else { &now };
        given.as_ref().filter(|given| OsStr::new(given) != now).cloned()
    };
    let is_cache = |cache: u64| told("SOLERA_CACHE") == OsStr::new(&cache.to_string());
    let wanted = bypassed(&args.bypass)?;
    let now = told("SOLERA_BYPASS");
    let is_bypassed = |name: &[u8]| now.as_bytes().split(|&byte| byte == b':').any(|n| n == name);
    let default = if served.volumes.is_empty() { "posix" } else { "strict" };
    let other_mode = differs(&args.mode, "SOLERA_MODE", default);
    let other_way = differs(&args.relink, "SOLERA_SPLIT_RELINK", "");
    let refused = if let Some(mode) = other_mode.filter(|_| !has_own_mode) {
        format!("--mode {mode}")
    } else if let Some(numa) = differs(&args.numa, "SOLERA_NUMA", "place") {
        format!("--numa {numa}")
    } else if let Some(cache) = args.cache.cache.filter(|cache| !is_cache(*cache)) {
        format!("--cache {cache}")
    } else if args.attach.align && told("SOLERA_ALIGN").is_empty() {
        "--align".to_owned()
    } else if let Some(way) = other_way.filter(|_| !new_split) {
        format!("--relink {way}")
    } else if args.emulates_modes() && !new_split && told("SOLERA_EMULATE").is_empty() {
        "--emulate".to_owned()
    } else if args.no_guard && told("SOLERA_GUARD") != "off" {
        "--no-guard".to_owned()
    } else if args.strict_support && told("SOLERA_STRICT_SUPPORT").is_empty() {
        "--strict-support".to_owned()
    } else if args.read_only && !all_new && told("SOLERA_READ_ONLY").is_empty() {
        "--read-only".to_owned()
    } else if args.report.is_some() || args.report_file.is_some() {
        "--report".to_owned()
    } else if args.profile.is_asked() {
        (if args.profile.is_told() { "--profile" } else { "--trace" }).to_owned()
    } else if !wanted.is_empty() && !wanted.as_bytes().split(|&byte| byte == b':').all(is_bypassed)
    {
        format!("--bypass {}", wanted.to_string_lossy())
    } else {
        return Ok(());
    };
    Err(given_outside(&refused))
}

/// The class is that for which the first volume was attached, and by which the new ones will be.
fn check_class(args: &RunArgs, served: &Service, new: &[Binding]) -> Result<(), Failure> {
    let Some(class) = args.class()?.class else { return Ok(()) };
    let mut volumes = served.volumes.get(..1).into_iter().flatten().chain(new);
    if served.volumes.is_empty() && new.is_empty() {
        return Err(given_outside(&format!("--class {class}")));
    }
    // By the same variable, or by what it lies on.
    let has_class =
        |place: &Binding| pmem::class_of(&place.volume).is_ok_and(|found| found == class);
    if volumes.all(has_class) { Ok(()) } else { Err(given_outside(&format!("--class {class}"))) }
}

fn given_outside(option: &str) -> Failure {
    let found =
        "this program is under `solera run` already, and what it starts has the options of that";
    Failure::new(format!("take {option}"), found, "give the option there")
}
