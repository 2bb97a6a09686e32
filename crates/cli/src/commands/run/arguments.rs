//! The arguments of `solera run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use console::class::ClassArg;
use console::failure::Failure;
use pmem::Class;
use vfs::variables::{Setter, VARIABLES};

use super::ddmap::DdmapArg;
use super::profile::ProfileArg;
use crate::commands::cache::{AttachArg, CacheArg};

/// What the help says of modes and exit codes, before the variables.
const BEFORE: &str = "\
Modes (what holds after a power cut; after the end of a process everything holds, always):
  posix   overwrites are durable at once, appends at fsync
  sync    every call is durable when it returns
  strict  and all of it or nothing: each call is atomic
With --split, posix is what the kernel gives: durable at fsync.

Exit code: the program's own; 125 if solera itself failed, 126 if the program could not be run or
would not see the volume (set-user-id, 32-bit; no mount, and none can be made), 127 if it was not
found.

";

/// And of their values, with examples, behind them.
const BEHIND: &str = "\
A value that is none of these is refused, by the command or by the library (125).
LD_PRELOAD gets the library behind what else is in it, and before all libsolera_profile.so (with
--profile or --trace) and libsolera_align.so (with --align).

Examples:
  solera mount v.pm /mnt/pm && solera run --require /mnt/pm -- sqlite3 /mnt/pm/my.db
  solera run --require /srv/db -- postgres -D /srv/db
                                                     not if the volume is not mounted there
  solera run --volume v.pm --at /pm -- sqlite3 /pm/my.db
  solera run --volume v.pm --at /pm -- bash          a shell; everything it starts sees /pm
  solera run --volume a.pm --at /a --volume b.pm --at /b -- rsync -a /a/ /b/
                                                     two volumes at once
  solera run --volume v.pm --at /pm --report -- tar xf a.tar -C /pm
                                                     what was not served, and why
  solera run --volume v.pm --at /pm --report=5 --json --report-file r.json -- make
                                                     the five most frequent, for programs
  solera run --volume v.pm --at /pm --profile -- sqlite3 /pm/my.db '.read a.sql'
                                                     where its time in file calls goes
  solera run --profile --no-volume -- rsync -a a/ b/   of a program on kernel file systems
  solera run --volume v.pm --at /pm --profile-file p.json --json --trace t.json -- make -C /pm/src
                                                     for programs; each call, for ui.perfetto.dev
  solera run --volume v.pm --at /pm --strict-support -- ./test
                                                     end it at the first call that is not served
  solera run --read-only --volume /backup/v.pm --at /pm -- tar cf v.tar /pm
                                                     a copy on an ordinary disk
  solera run --split /srv/data --report -- postgres -D /srv/data
                                                     over XFS, ext4 or tmpfs, without a volume
  solera run --volume v.pm --at /pm --split /srv/data -- rsync -a /srv/data/ /pm/
                                                     both at once
  solera run --cache 2G --volume v.pm --at /pm -- grep -r word /pm
                                                     on slow memory: what is read stays in DRAM
  solera run --cache 8G --attach --report --volume v.pm --at /pm -- ./load /pm/model
                                                     large reads without a copy, or why not
  solera run --ddmap dm/big -- sqlite3 /dm/my.db     a volume larger than this machine's memory
  solera run --ddmap dm/big --prefetch seq --policy fifo -- grep -c x /dm/log    read once, in order
  solera run --volume v.pm --at /pm --bypass gdb -- gdb ./test
                                                     the debugger alone sees no volume";

/// What stands behind the options in the help.
fn more() -> String {
    let mut text = BEFORE.to_owned();
    text.push_str("Variables: solera reads");
    list(&mut text, Setter::Command);
    text.push_str("The libraries in each process read what `solera run` sets, or a user:");
    list(&mut text, Setter::Process);
    text.push_str("To measure, or to try what the machine does not have:");
    list(&mut text, Setter::Trial);
    text.push_str("What an exec hands over, not for people:");
    list(&mut text, Setter::Exec);
    text.push_str(BEHIND);
    text
}

/// Appends the variables that one sets: name and meaning, in two columns.
fn list(text: &mut String, setter: Setter) {
    const NAMES: usize = 25;
    const COLUMNS: usize = 100;
    for variable in VARIABLES.iter().filter(|variable| variable.setter == setter) {
        let mut line = format!("\n  {:<width$}", variable.name, width = NAMES - 2);
        let mut length = line.len() - 1;
        for word in variable.meaning.split(' ') {
            if length + 1 + word.len() > COLUMNS {
                line.push('\n');
                line.extend(std::iter::repeat_n(' ', NAMES));
                length = NAMES;
            }
            line.push(' ');
            line.push_str(word);
            length += 1 + word.len();
        }
        text.push_str(&line);
    }
    text.push('\n');
}

/// What `--emulate` stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Emulated {
    /// Mappings with `MAP_SYNC`, for the modes of `--split`.
    Modes,
    /// Persistent memory, for volumes in DRAM.
    Pm,
}

/// Run a program that sees the volume under a path.
///
/// The program is not changed in any way: the volume appears to it, and to every program it starts,
/// as the directory given by --at, which need not exist. A volume that is mounted (`solera mount`)
/// appears where it is mounted: of several the one that --require names, that the working directory
/// lies in, or that the program's arguments speak of; without --volume it is said which one. What
/// cannot be preloaded then uses the mount. What a program sees, all that it starts sees; `solera
/// run` inside of it goes on with that, and may add volumes.
#[derive(Args)]
#[command(after_help = more())]
#[command(group(ArgGroup::new("reported")
    .args(["report", "report_file", "profile", "profile_file"]).multiple(true)))]
#[command(group(ArgGroup::new("profiled")
    .args(["profile", "profile_file", "trace"]).multiple(true)))]
#[allow(clippy::struct_excessive_bools)] // Switches.
#[derive(Clone)]
pub struct RunArgs {
    /// The volume's file or device [default: the one that is mounted where the program works]. May
    /// be given again, with an --at for each: the program sees them all.
    #[arg(long)]
    pub volume: Vec<PathBuf>,
    /// The path under which the program sees the volume: absolute; nothing, or an empty directory,
    /// or where it is mounted [default: there]. Of several, the first is the first volume's.
    #[arg(long, value_name = "PREFIX")]
    pub at: Vec<PathBuf>,
    /// Start the program only if DIR lies on a volume: on one that is mounted, or where the program
    /// is to see its own (with --split: or below that directory). May be given again.
    #[arg(long, value_name = "DIR")]
    pub require: Vec<PathBuf>,
    /// Instead of a volume, or beside those that --volume and --at name: serve the files below DIR,
    /// which stay the kernel's (XFS, ext4, tmpfs; with DAX or without), from mappings of them.
    #[arg(long, value_name = "DIR")]
    pub split: Option<PathBuf>,
    /// What a write promises: posix, sync or strict, on volumes and below --split's directory
    /// [default: strict on volumes; posix there].
    #[arg(long, value_parser = ["posix", "sync", "strict"])]
    pub mode: Option<String>,
    #[command(flatten)]
    pub class: ClassArg,
    /// Change nothing: every change gives `EROFS`. A volume on an ordinary disk is read so, also
    /// one that was copied while it was in use: what a crash left open is undone in memory.
    #[arg(short = 'r', long, conflicts_with_all = ["split", "class"])]
    pub read_only: bool,
    /// Seem to have what this machine lacks. With --split (or `modes`): sync and strict also where
    /// the file system does not map with `MAP_SYNC`; what they promise then holds when processes
    /// die, not when the machine does. `pm`: flush and fence in DRAM, too, as persistent memory
    /// wants it, to measure what it would cost (as --class cache-line).
    #[arg(long, value_name = "WHAT", value_enum, num_args = 0..=1, default_missing_value = "modes")]
    pub emulate: Option<Emulated>,
    /// With --split: how appended bytes are moved into their file: exchange (XFS made with
    /// exchange=1), clone (XFS with reflink, without DAX), or copy; what the file system cannot do
    /// is copied [default: the fastest: by exchange on DAX, elsewhere, where moving blocks would
    /// wait for the medium, by copy; sync and strict move blocks wherever they can].
    #[arg(long, requires = "split", value_parser = ["exchange", "clone", "copy"])]
    pub relink: Option<String>,
    /// On a machine with several memory nodes: place (files are written at home, the node where the
    /// program runs when it first writes; what it starts has the same), move (and its threads move
    /// there), or off [default: place].
    #[arg(long, value_parser = ["off", "place", "move"])]
    pub numa: Option<String>,
    #[command(flatten)]
    pub cache: CacheArg,
    #[command(flatten)]
    pub attach: AttachArg,
    #[command(flatten)]
    pub ddmap: DdmapArg,
    /// When the program has ended, say on standard error which calls of it and of all that it
    /// started were refused or served by a detour, why and how often: all kinds, or the N most
    /// frequent.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
          default_missing_value = "0")]
    pub report: Option<usize>,
    /// Write that report to FILE instead.
    #[arg(long, value_name = "FILE")]
    pub report_file: Option<PathBuf>,
    #[command(flatten)]
    pub profile: ProfileArg,
    /// Make report and profile JSON.
    #[arg(long, requires = "reported")]
    pub json: bool,
    /// End the program (SIGABRT, with a message) at the first call that is not served (except where
    /// `io_uring` or libaio would begin: programs then use threads, with the same result).
    #[arg(long)]
    pub strict_support: bool,
    /// Do not close the volume's memory to the program's own code by a protection key: a stray
    /// pointer may then read or change anything on the volume. Without it the program gets SIGSEGV,
    /// and a message says why; it costs some tens of nanoseconds a call (`solera bench micro`).
    #[arg(long)]
    pub no_guard: bool,
    /// Leave programs of this name alone: they run without the library and do not see the volume,
    /// unlike what they start. May be given again. With a slash: the path of the executable.
    #[arg(long, value_name = "NAME")]
    pub bypass: Vec<OsString>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<OsString>,
}

impl RunArgs {
    /// Whether modes are to be kept as far as they can be.
    pub fn emulates_modes(&self) -> bool {
        self.emulate == Some(Emulated::Modes)
    }

    /// The class that volumes are taken for; an option that has no effect is an error.
    pub fn class(&self) -> Result<ClassArg, Failure> {
        let wrong = |found, advice| Err(Failure::new("emulate", found, advice).code(125));
        match (self.emulate, self.class.class) {
            (Some(Emulated::Modes), _) if self.split.is_none() => wrong(
                "--emulate is about the modes of --split, which is not given",
                "leave it out; or say --emulate pm: flush and fence as persistent memory wants it",
            ),
            (Some(Emulated::Pm), Some(Class::CacheLine) | None) => {
                Ok(ClassArg { class: Some(Class::CacheLine) })
            }
            (Some(Emulated::Pm), Some(_)) => wrong(
                "--emulate pm is --class cache-line, and another class is given",
                "leave one out",
            ),
            (_, _) => Ok(self.class),
        }
    }
}
