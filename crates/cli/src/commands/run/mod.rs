//! `solera run`: starts a program with the preload library, which attaches the volume inside it.
//!
//! The command itself attaches nothing. Without `--report`, `--profile` and `--trace` it *becomes*
//! the program (exec), so that signals, exit codes and job control are the program's own; with
//! them, it waits, passes signals on and prints afterwards what was refused or served by a detour,
//! or where the program's time went.

mod arguments;
mod binding;
mod ddmap;
mod nesting;
mod profile;
mod report;
mod split;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitStatus};

use console::failure::{Failure, Outcome};
use console::file;
use console::output;
use console::preload::Libraries;
use console::preload::program::{self, Refusal};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;
use vfs::variable;

use self::binding::Binding;
use self::profile::Profile;
use self::report::Report;
use self::split::Split;
use crate::commands::cache;
pub use arguments::RunArgs;

/// `solera run` itself failed, as with `env` and `nohup`.
pub const CODE_OWN_FAILURE: u8 = 125;
const CODE_NOT_RUNNABLE: u8 = 126;
const CODE_NOT_FOUND: u8 = 127;

/// Runs the program; returns only if that failed or a report was asked for.
pub fn run(args: &RunArgs) -> Outcome {
    ddmap::named(args).and_then(|args| start(&args)).map_err(|failure| match failure.exit_code() {
        1 => failure.code(CODE_OWN_FAILURE),
        _ => failure,
    })
}

fn start(args: &RunArgs) -> Outcome {
    check_variables()?;
    let Some(name) = args.program.first() else { return Ok(CODE_OWN_FAILURE) };
    let asked = format!("run {}", name.to_string_lossy());
    if name.as_bytes().starts_with(b"-") {
        let found =
            "this is no option of `solera run`, and a program whose name begins so needs a path";
        return Err(Failure::new(asked, found, "see `solera run --help`; or say ./-NAME"));
    }
    let class = args.class()?;
    if let Some(served) = nesting::serving() {
        return nesting::start(args, &served, &asked, (name, &args.program[1..]));
    }
    // No thread has been started yet.
    class.force();
    let split = Split::find(args, &asked)?;
    let places = binding::find(args, split.as_ref())?;
    for place in &places {
        check_medium(args, place)?;
    }
    let libraries = Libraries::find(args.attach.align, args.profile.is_asked())?;
    let by_mount = |place: &Binding| place.by_mount_only && !args.read_only;
    let is_served = split.is_some() || !places.iter().all(by_mount);
    let (mut command, obstacle) =
        command(args, &places, is_served).map_err(|refusal| refused(&asked, refusal))?;
    command.envs(keeper());
    for place in places.iter().filter(|place| by_mount(place)) {
        let (volume, at) = (place.volume.display(), place.at.display());
        output::tell(format!(
            "{volume} cannot be changed directly: the program uses the mount at {at}"
        ));
    }
    let places: Vec<Binding> = places.into_iter().filter(|place| !by_mount(place)).collect();
    if places.is_empty() && split.is_none() {
        return execute(&asked, command, args, &Libraries { serving: None, ..libraries });
    }
    if args.volume.is_empty() {
        for place in &places {
            output::tell(way(name, place, obstacle.as_deref()));
        }
    }
    let mode = args.mode.as_deref().unwrap_or("strict");
    libraries.preload(&mut command);
    command.env("SOLERA_MODE", mode);
    for (number, place) in (1..).zip(&places) {
        command.envs(variables(place, number, args.read_only));
    }
    if let Some(split) = &split {
        split.tell_of_memory();
        command.envs(split.variables(!places.is_empty()));
    }
    if args.no_guard {
        command.env("SOLERA_GUARD", "off");
    }
    if let Some(numa) = args.numa.as_deref().filter(|numa| *numa != "place") {
        command.env("SOLERA_NUMA", numa);
    }
    command.envs(ddmap::variable(&args.ddmap));
    let volumes: Vec<&Path> = places.iter().map(|place| &*place.volume).collect();
    command.envs(cache::variables(&args.cache, &args.attach, &volumes)?);
    execute(&asked, command, args, &libraries)
}

/// What the library reads of the command that mounts the volume for programs which nothing can be
/// preloaded into; none where they may not have it.
fn keeper() -> Option<(&'static str, OsString)> {
    let is_told = std::env::var_os(vfs::keeper::COMMAND).is_some();
    let own = || std::env::current_exe().ok().map(PathBuf::into_os_string);
    let own = if is_told || !vfs::keeper::is_permitted() { None } else { own() };
    own.map(|own| (vfs::keeper::COMMAND, own))
}

/// Whether a keeper may mount a volume for a program.
fn may_keep() -> bool {
    let told = std::env::var_os(vfs::keeper::COMMAND);
    vfs::keeper::is_permitted() && told.is_none_or(|told| !told.is_empty())
}

/// The program with its arguments, and why it cannot be preloaded, if mounts serve it. `is_served`:
/// the library is to be preloaded.
fn command(
    args: &RunArgs,
    places: &[Binding],
    is_served: bool,
) -> Result<(Command, Option<String>), Refusal> {
    let [name, arguments @ ..] = args.program.as_slice() else { return Err(Refusal::Missing) };
    let all_mounted = !places.is_empty() && places.iter().all(|place| place.mounted);
    let alone = |path: &Path| places.iter().any(|place| place.alone_has(path));
    let mut obstacle = None;
    let mut kept = false;
    let path = if alone(Path::new(name)) { None } else { Some(program::find(name)?) };
    let loaded = path.as_ref().and_then(|path| program::given_to_loader(path, arguments));
    let mut command = match path {
        Some(path) if !loaded.as_ref().is_some_and(|(loaded, _)| alone(loaded)) => {
            let starts = loaded.filter(|&(_, starts)| starts);
            let checked = program::check(&path)
                .and_then(|()| starts.map_or(Ok(()), |(path, _)| program::check_loaded(&path)));
            match checked {
                // Programs that it starts find the volume again.
                Err(Refusal::Unserved(reason)) if all_mounted && !args.read_only => {
                    obstacle = Some(reason);
                }
                // A program that is served executes it, where there is a mount then.
                Err(Refusal::Unserved(_)) if !places.is_empty() && may_keep() => kept = true,
                checked => checked?,
            }
            let is_able = obstacle.is_none();
            let by_other = is_able && (kept || needs_volume(&path, alone));
            let is_hosted = is_able && !by_other && program::needs_host(&path);
            let host = if is_hosted && is_served { program::by_host(&path) } else { None };
            // The library finds the host of a script's interpreter.
            if by_other || is_hosted && host.is_none() {
                by_program(name)
            } else {
                let mut command = host.unwrap_or_else(|| Command::new(path));
                command.arg0(name);
                command
            }
        }
        _ => by_shell(name),
    };
    if kept {
        command.env(vfs::keeper::REQUIRED, "1");
    }
    command.args(arguments);
    Ok((command, obstacle))
}

/// Whether the dynamic linker needs something of a volume for a program before the preload library
/// can serve it, or a sanitizer's runtime in front of that: then a program that sees the volume has
/// to start it (`processes::closure` there). `alone`: a path that the kernel does not know.
fn needs_volume(path: &Path, alone: impl Fn(&Path) -> bool) -> bool {
    let is_named = |variable: &str, separators: &[u8]| {
        let value = std::env::var_os(variable).unwrap_or_default();
        let mut paths = value.as_bytes().split(|byte| separators.contains(byte));
        paths.any(|path| alone(Path::new(OsStr::from_bytes(path))))
    };
    let libraries = program::Libraries::of(path);
    // A path may wind: `..` is left out of it here, for no directory of the kernel's is below it.
    libraries.sanitized
        || libraries.paths.iter().any(|path| alone(&plain(path)))
        || is_named("LD_LIBRARY_PATH", b":;")
        || is_named("LD_PRELOAD", b": ")
}

/// A path without `.` and `..`, by its text.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// A program that changes nothing starts the program.
fn by_program(name: &OsStr) -> Command {
    const ENV: &str = "/usr/bin/env";
    // It takes the one for a variable, the other for an option.
    if name.as_bytes().contains(&b'=')
        || name.as_bytes().starts_with(b"-")
        || !Path::new(ENV).exists()
    {
        return by_shell(name);
    }
    let mut command = Command::new(ENV);
    command.arg(name);
    command
}

/// The kernel knows no such path: a shell that sees the volume starts the program.
fn by_shell(name: &OsStr) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args([OsStr::new("-c"), OsStr::new("exec \"$0\" \"$@\""), name]);
    command
}

/// Refuses a volume on an ordinary disk, which can only be read.
fn check_medium(args: &RunArgs, place: &Binding) -> Result<(), Failure> {
    if !args.read_only && !place.by_mount_only && pmem::needs_class(&place.volume) {
        return Err(Failure::ordinary_disk(format!("run on {}", place.volume.display())));
    }
    Ok(())
}

/// What the preload library reads of a volume: the first one's variables have no number.
fn variables(place: &Binding, number: usize, read_only: bool) -> Vec<(String, OsString)> {
    let name = |name: &str| match number {
        1 => name.to_owned(),
        number => format!("{name}_{number}"),
    };
    let mut all = vec![
        (name("SOLERA_VOLUME"), place.volume.clone().into_os_string()),
        (name("SOLERA_AT"), place.at.clone().into_os_string()),
    ];
    if read_only {
        all.push((name("SOLERA_READ_ONLY"), "1".into()));
    }
    if place.mounted {
        let serves = place.serves.as_ref().map_or_else(|| "1".to_owned(), ToString::to_string);
        all.push((name("SOLERA_MOUNTED"), serves.into()));
    }
    all
}

/// Refuses unknown values of variables that options override: the user that set them meant
/// something.
fn check_variables() -> Result<(), Failure> {
    let wrong = |wrong: String| Failure::told(&wrong);
    variable::parsed::<volume::Mode>("SOLERA_MODE").map_err(wrong)?;
    variable::parsed::<volume::Numa>("SOLERA_NUMA").map_err(wrong)?;
    variable::parsed::<emulation::Model>("SOLERA_MEMORY").map_err(wrong)?;
    variable::is("SOLERA_GUARD", "off", &["on"]).map_err(wrong)?;
    Ok(())
}

/// By which way a program reaches a volume that it was not told by name.
fn way(name: &OsStr, place: &Binding, obstacle: Option<&str>) -> String {
    let (name, at, volume) = (name.to_string_lossy(), place.at.display(), place.volume.display());
    let way = match obstacle {
        None => format!("{name} goes past the kernel below {at} (the volume {volume})"),
        Some(found) => format!("{name} uses the mount at {at} (the volume {volume}): {found}"),
    };
    place.guessed.map_or_else(|| way.clone(), |why| format!("{way}: {why}"))
}

/// Becomes the program, or starts it and reports.
fn execute(asked: &str, mut command: Command, args: &RunArgs, libraries: &Libraries) -> Outcome {
    let has_report = args.report.is_some() || args.report_file.is_some();
    if libraries.serving.is_none() && libraries.profiling.is_none() {
        return Err(not_started(asked, &command.exec()));
    }
    if libraries.serving.is_none() {
        // First: it takes away what an outer one was told.
        libraries.preload(&mut command);
    }
    if args.strict_support {
        command.env("SOLERA_STRICT_SUPPORT", "1");
    }
    super::door::prepare_for_programs();
    if !args.bypass.is_empty() {
        command.env("SOLERA_BYPASS", bypassed(&args.bypass)?);
    }
    let profile = Profile::begin(args)?;
    if let (Some(profile), Some(library)) = (&profile, &libraries.profiling) {
        command.envs(profile.variables(library));
    }
    if !has_report && profile.is_none() {
        return Err(not_started(asked, &command.exec()));
    }
    run_and_report(asked, &mut command, args, profile)
}

fn refused(asked: &str, refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Missing => {
            Failure::new(asked, "there is no such program", "give its path, or check PATH")
                .code(CODE_NOT_FOUND)
        }
        Refusal::Unrunnable(found) => Failure::new(asked, found, "").code(CODE_NOT_RUNNABLE),
        Refusal::Unserved(found) => {
            Failure::new(asked, found, "`solera mount` the volume: then every program sees it")
                .code(CODE_NOT_RUNNABLE)
        }
    }
}

fn not_started(asked: &str, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => CODE_NOT_FOUND,
        _ => CODE_NOT_RUNNABLE,
    };
    Failure::new(asked, error, "").code(code)
}

/// The list of names as the library reads it.
fn bypassed(names: &[OsString]) -> Result<OsString, Failure> {
    let wrong = names.iter().find(|name| name.is_empty() || name.as_bytes().contains(&b':'));
    match wrong {
        None => Ok(names.join(OsStr::new(":"))),
        Some(name) => Err(Failure::new(
            format!("bypass {}", name.to_string_lossy()),
            "a program's name has no colon and is not empty",
            "give the name of a program, or its path: --bypass gdb",
        )),
    }
}

fn run_and_report(
    asked: &str,
    command: &mut Command,
    args: &RunArgs,
    mut profile: Option<Profile>,
) -> Outcome {
    let failed = |error: io::Error| Failure::new("keep a report", error, "");
    if let Some(file) = &args.report_file {
        file::check(asked_report(file), file)?;
    }
    let volumes = named_volumes(command);
    let emulated = variable::parsed("SOLERA_MEMORY").is_ok_and(|model| model.is_some_and(is_slow));
    let record = temporary_file()?;
    command.env("SOLERA_REPORT", &record);
    if let Some(profile) = &mut profile {
        profile.start();
    }
    let ended = wait_for(command);
    let report = fs::read(&record).map(|mut lines| {
        if ended.as_ref().is_ok_and(|&status| has_lost_core(status)) {
            lines.extend_from_slice(b"1 relative-core-pattern (core) ENOENT\n");
        }
        Report::from_lines(&lines).on(volumes, emulated)
    });
    let removed = remove_temporary(&record);
    let status = ended.map_err(|error| not_started(asked, &error))?;
    let report = report.and_then(|report| removed.map(|()| report)).map_err(failed)?;
    if let Some(profile) = &profile {
        profile.end(args, &report)?;
    }
    if args.report.is_some() || args.report_file.is_some() {
        tell(&report, args)?;
    }
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(u8::try_from(code.unwrap_or(CODE_OWN_FAILURE.into())).unwrap_or(CODE_OWN_FAILURE))
}

fn is_slow(model: emulation::Model) -> bool {
    model != emulation::Model::DRAM
}

/// The volumes that the program is told of: `SOLERA_VOLUME`, `SOLERA_VOLUME_2` and so on.
fn named_volumes(command: &Command) -> Vec<PathBuf> {
    let is_one = |name: &OsStr| {
        let rest = name.as_bytes().strip_prefix(b"SOLERA_VOLUME");
        rest.is_some_and(|rest| rest.iter().all(|&byte| byte == b'_' || byte.is_ascii_digit()))
    };
    let given = command.get_envs().filter(|(name, _)| is_one(name));
    given.filter_map(|(_, value)| value.map(PathBuf::from)).collect()
}

fn tell(report: &Report, args: &RunArgs) -> Result<(), Failure> {
    let top = args.report.filter(|&top| top > 0).unwrap_or(usize::MAX);
    let text = if args.json { format!("{:#}\n", report.json(top)) } else { report.text(top) };
    match &args.report_file {
        // If standard error is full or closed the report is lost.
        None => drop(io::stderr().write_all(text.as_bytes())),
        Some(file) => file::write(asked_report(file), file, &text)?,
    }
    Ok(())
}

fn asked_report(file: &Path) -> String {
    format!("write the report {}", file.display())
}

/// A new empty file for the processes to append to, by the kernel: where `TMPDIR` names a directory
/// of the volume, which the kernel does not have, it is in a usual place.
fn temporary_file() -> Result<PathBuf, Failure> {
    let wished = std::env::temp_dir();
    let usual = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
    let mut first = None;
    for directory in std::iter::once(wished).chain(usual) {
        match new_file_in(&directory) {
            Ok(file) => return Ok(file),
            Err(errno) => first.get_or_insert((directory, errno)),
        };
    }
    let (directory, errno) = first.unwrap_or((PathBuf::new(), Errno::NOENT));
    let asked = format!("keep the report's record in {}", directory.display());
    Err(Failure::new(asked, io::Error::from(errno), "let TMPDIR name a directory to write to"))
}

/// In a directory of its own: when both are removed, a program that has outlived the command cannot
/// make the file again.
fn new_file_in(directory: &Path) -> Result<PathBuf, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    for attempt in 0.. {
        let own = directory.join(format!("solera-report.{}-{attempt}", std::process::id()));
        match rustix::fs::mkdir(&own, Mode::RWXU) {
            // Another one's, of a process that had this number.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
            Ok(()) => {
                let file = own.join("record");
                let made = rustix::fs::open(&file, flags, Mode::RUSR | Mode::WUSR);
                if made.is_err() {
                    let _ = fs::remove_dir(&own);
                }
                return made.map(|_| file);
            }
        }
    }
    Err(Errno::EXIST)
}

/// Removes what [`temporary_file`] has made.
fn remove_temporary(file: &Path) -> io::Result<()> {
    fs::remove_file(file)?;
    file.parent().map_or(Ok(()), fs::remove_dir)
}

/// Whether the kernel was to leave a core file of a program that died, and has not: a relative
/// `kernel.core_pattern` finds no directory if the working directory is on a volume that is not
/// mounted.
fn has_lost_core(status: ExitStatus) -> bool {
    let dumps = [SIGQUIT, libc::SIGILL, libc::SIGABRT, libc::SIGFPE, libc::SIGSEGV, libc::SIGBUS];
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    status.signal().is_some_and(|signal| dumps.contains(&signal))
        && !status.core_dumped()
        && rustix::process::getrlimit(Resource::Core).current != Some(0)
        && !pattern.trim().is_empty()
        && !pattern.starts_with(['/', '|'])
}

/// Starts the program and waits for it, passing signals on. What the terminal sends to the whole
/// foreground group (SIGINT, SIGQUIT) is only survived here: the program has got it already.
fn wait_for(command: &mut Command) -> io::Result<ExitStatus> {
    let passed_on = [SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
    let survived = [SIGINT, SIGQUIT, SIGWINCH];
    let mut signals = Signals::new(passed_on.into_iter().chain(survived))?;
    let handle = signals.handle();
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for signal in signals.forever().filter(|signal| passed_on.contains(signal)) {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    // A program that ended just now needs no signal any more.
                    let _ = kill_process(pid, signal);
                }
            }
        });
        let status = child.wait();
        handle.close();
        status
    })
}
