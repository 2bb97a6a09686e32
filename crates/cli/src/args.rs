//! The command line: every subcommand, its options, and the help that teaches them.

mod cache;
mod domain;
mod files;
mod generate;
mod log;
mod metrics;
mod numa;
mod profile;
mod top;
mod whole;

use std::ffi::OsString;
use std::path::PathBuf;

use bench::{AgeArgs, BenchArgs};
use clap::{ArgGroup, Args, Parser, Subcommand};
use console::class::ClassArg;
use console::size;

pub use cache::{AttachArg, CacheArg, CacheArgs, CacheCommand, CacheVolume};
pub use domain::{DdmapArg, DomainArgs, DomainCommand, Local, NodeArgs};
pub use files::{CatArgs, CpArgs, ExportArgs, ImportArgs, LsArgs};
pub use generate::{GenerateArgs, GenerateCommand};
pub use log::{LogArgs, LogCommand, LogFile};
pub use metrics::MetricsArgs;
pub use numa::{NumaArgs, NumaCommand};
pub use profile::ProfileArg;
pub use top::{Column, TopArgs};
pub use whole::{DetachArgs, RmArgs, SnapshotArgs, TrimArgs, UpgradeArgs};

/// Storage for byte-addressable memory: volumes that unmodified programs run on.
#[derive(Parser)]
#[command(name = "solera", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Two commands from nothing to a program on a volume:
  solera format --size 4G /dev/shm/v.pm
  solera run --volume /dev/shm/v.pm --at /pm -- sqlite3 /pm/my.db

For every program and every user:
  solera mount /dev/shm/v.pm /mnt/pm
  solera run --require /mnt/pm -- sqlite3 /mnt/pm/my.db       and faster by this

Each command has its own --help with examples. What takes longer than two seconds shows its progress
on a terminal; SOLERA_PROGRESS=SECONDS sets another time than those two.";

#[derive(Subcommand)]
pub enum Command {
    Format(FormatArgs),
    Info(InfoArgs),
    Run(Box<RunArgs>),
    Mount(MountArgs),
    Umount(UmountArgs),
    Ls(LsArgs),
    Cat(CatArgs),
    Cp(CpArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    Df(DfArgs),
    Top(TopArgs),
    Metrics(MetricsArgs),
    Fsck(FsckArgs),
    Recover(RecoverArgs),
    Snapshot(SnapshotArgs),
    Rm(RmArgs),
    Grow(GrowArgs),
    Trim(TrimArgs),
    Upgrade(UpgradeArgs),
    Cache(CacheArgs),
    Node(NodeArgs),
    Domain(DomainArgs),
    Detach(DetachArgs),
    Defrag(DefragArgs),
    Numa(NumaArgs),
    Map(MapArgs),
    Age(AgeArgs),
    Log(LogArgs),
    Bench(BenchArgs),
    #[command(hide = true)]
    Generate(GenerateArgs),
}

impl Command {
    /// The class that the command line names; `format` has its own, and `run` looks first which one
    /// is in force.
    pub fn class(&self) -> ClassArg {
        match self {
            Self::Mount(args) => args.class,
            Self::Cp(args) => args.class,
            Self::Import(args) => args.class,
            Self::Fsck(args) => args.class,
            Self::Grow(args) => args.class,
            Self::Trim(args) => args.class,
            Self::Upgrade(args) => args.class,
            Self::Detach(args) => args.class,
            Self::Defrag(args) => args.class,
            Self::Numa(args) => match &args.command {
                NumaCommand::Set { class, .. } => *class,
                NumaCommand::Get { .. } => ClassArg::default(),
            },
            _ => ClassArg::default(),
        }
    }
}

/// Make a volume in a file or on a device.
///
/// The file is created if need be. On a tmpfs (/dev/shm) it survives the end of every process but
/// not a reboot; on a DAX file system or a /dev/dax device it is durable (`solera info` says which,
/// and why).
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera format --size 4G /dev/shm/v.pm             a volume in memory
  solera format --size 4G --reserve /dev/shm/v.pm   all of that memory at once, or none
  solera format --size 64G --label db /mnt/dax/v.pm a file on a DAX mount
  solera format /dev/dax0.0                         a whole device
  solera format --size 64G --owner postgres: /mnt/dax/v.pm
                                                    by root, for the user postgres and its group
  solera format --size 4G --force /dev/shm/v.pm     again, and forget what it held
  solera format --ddmap dm/big --size 1T            on the nodes of a domain (`solera node`)")]
pub struct FormatArgs {
    /// Bytes, or with K, M, G, T. May be left out for a device, and for a file that has its size
    /// already.
    #[arg(long, value_parser = size::parse)]
    pub size: Option<u64>,
    /// How many allocation groups (default: by size and CPUs).
    #[arg(long)]
    pub groups: Option<u32>,
    /// A name for people, shown by `info`.
    #[arg(long, default_value = "")]
    pub label: String,
    /// Permissions of a new file: 600 for one user, 660 for a group. A user that may write may
    /// change all in it.
    #[arg(long, default_value = "600", value_parser = permissions)]
    pub permissions: u32,
    /// Whose the volume is to be: the file, what lies beside it while it is used, and its root
    /// directory. Names or numbers, as chown(1) takes them: only root gives away. The node of a
    /// device stays as it is.
    #[arg(long, value_name = "USER[:GROUP]")]
    pub owner: Option<String>,
    /// Take the memory for this class whatever it is: byte, cache-line, volatile or page (a plain
    /// file).
    #[arg(long)]
    pub class: Option<pmem::Class>,
    /// Overwrite what is there, even a volume.
    #[arg(long)]
    pub force: bool,
    /// Take all of the memory now, or fail: else it is taken as files need it, as long as there is
    /// any.
    #[arg(long)]
    pub reserve: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Instead of a file: a new volume of a domain, whose pages lie on its nodes. The domain must
    /// have --size free; its host is the node of this machine with the lowest number.
    #[arg(long, value_name = "DOMAIN/VOLUME", requires = "size",
          conflicts_with_all = ["path", "permissions", "owner", "class", "force", "reserve"])]
    pub ddmap: Option<String>,
    /// The file or device.
    #[arg(required_unless_present = "ddmap")]
    pub path: Option<PathBuf>,
}

/// Show what a volume is and how its space is used.
#[derive(Args)]
#[command(after_help = "\
size = data + holes + free aligned + metadata, to the byte. \"holes\" are free 4 KiB blocks in 2 MiB
chunks that are partly used; \"free aligned\" are whole free 2 MiB chunks, good for huge pages.

Examples:
  solera info /dev/shm/v.pm
  solera info --json /dev/shm/v.pm | jq .free_bytes
  solera info --picture v.svg /dev/shm/v.pm      every chunk as a square: free, holes, huge pages")]
pub struct InfoArgs {
    /// Draw what each 2 MiB chunk is used for, into this SVG file. Reads the maps of all files.
    #[arg(long, value_name = "FILE.svg")]
    pub picture: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
}

/// Put what killed programs had staged below a directory into its files.
///
/// Programs under `solera run --split DIR` stage what they append; if one is killed, the next one
/// that is started there does this by itself. It may be run at any time and again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera recover /srv/data

Exit code: 0 if nothing is left to be recovered, 1 if something is refused; what, and why, is
said, and it stays as it was.")]
pub struct RecoverArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The directory that was given to `solera run --split`.
    pub directory: PathBuf,
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
#[command(after_help = "\
Modes (what holds after a power cut; after the end of a process everything holds, always):
  posix   overwrites are durable at once, appends at fsync
  sync    every call is durable when it returns
  strict  and all of it or nothing: each call is atomic
With --split, posix is what the kernel gives: durable at fsync.

Exit code: the program's own; 125 if solera itself failed, 126 if the program could not be run or
would not see the volume (statically linked, Go, set-user-id; not mounted), 127 if it was not
found.

Variables: solera reads SOLERA_PRELOAD, the path of its library if it is not beside the command. The
library in each process reads what `solera run` sets, and SOLERA_KERNEL_AIO:
  SOLERA_VOLUME, SOLERA_AT, SOLERA_MODE  as --volume, --at and --mode (of several volumes:
                         SOLERA_VOLUME_2, SOLERA_AT_2 and so on)
  SOLERA_CLASS           as --class (of every command that attaches a volume)
  SOLERA_READ_ONLY       set: as --read-only
  SOLERA_SPLIT, SOLERA_EMULATE           as --split and --emulate
  SOLERA_SPLIT_MODE      as --mode, below --split's directory, where there are volumes besides
  SOLERA_SPLIT_WINDOW    bytes of a mapped window [2097152, to 536870912]
  SOLERA_SPLIT_STAGING, SOLERA_SPLIT_STAGING_FILES  largest size of a staging file [167772160], and
                         how many are kept ready [10]
  SOLERA_SPLIT_LOG       bytes of the operation log, in strict mode [134217728]
  SOLERA_SPLIT_WINDOWS   mapped windows at once; beyond, the coldest are unmapped [16384]
  SOLERA_SPLIT_TECHNIQUE  to measure what each is worth: split (nothing is staged), staging (relinks
                         copy), relink [relink]
  SOLERA_SPLIT_RELINK    as --relink
  SOLERA_SPLIT_PATIENCE  calls on a descriptor before it is served, in posix mode [2]
  SOLERA_REPORT          file that each process appends `count reason function outcome` to
  SOLERA_STRICT_SUPPORT  set: as --strict-support
  SOLERA_GUARD           off: as --no-guard
  SOLERA_NUMA            as --numa; SOLERA_NUMA_NODES simulates nodes by their CPUs: 0-3;4-7
  SOLERA_CACHE, SOLERA_CACHE_DIR         as --cache, in bytes, and --cache-dir, absolute
  SOLERA_CACHE_ATTACH    as --attach, with --attach-min in bytes
  SOLERA_CACHE_MISS      as --miss
  SOLERA_ALIGN           as --align: the path of libsolera_align.so, which is in LD_PRELOAD, too
  SOLERA_PROFILE, SOLERA_PROFILE_LIBRARY  with --profile or --trace: the file in which processes
                         count, and the path of libsolera_profile.so, which is in LD_PRELOAD, too
  SOLERA_DDMAP           --patience, --prefetch, --policy, --evict, --local, --line-cache:
                         patience=SECONDS,ahead=auto,policy=lru,evict=background,local=BYTES,
                         lines=BYTES
  SOLERA_MEMORY          to measure: reads and writes of volumes take as long as in dram [dram],
                         optane, optane6, cxl, cxl-ssd, or NS/GBs,NS/GBs (reads, writes: latency,
                         bandwidth); what a program has mapped does not
  SOLERA_BYPASS          names of programs, with colons between them, as --bypass
  SOLERA_KERNEL_AIO      allow: io_uring and libaio are the kernel's, for a program that uses them
                         for sockets or for files outside only; on a volume's files they fail or
                         hang (not set: they say ENOSYS, and programs use threads instead)
  SOLERA_MOUNTED, SOLERA_RESUME, SOLERA_HELD, SOLERA_CWD  what an exec hands over; not for people
A value that is none of these is refused, by the command or by the library (125).
LD_PRELOAD gets the library first, with --profile or --trace libsolera_profile.so from beside it
before, with --align libsolera_align.so next, and keeps what else is in it.

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
                                                     the debugger alone sees no volume")]
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
    /// With --split: sync and strict also where the file system does not map with `MAP_SYNC`. What
    /// they promise then holds when processes die, not when the machine does.
    #[arg(long, requires = "split")]
    pub emulate: bool,
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

/// Mount a volume at a directory, for every program and every user.
///
/// What root mounts is open to every user; what another user mounts only to that user, unless it is
/// opened by an option, where that is permitted.
///
/// A process serves the mount in the background; it ends when the directory is unmounted, and
/// unmounts it on SIGTERM. Programs under `solera run` find the mount by its path and use the
/// volume directly below it; all others reach the same files through the kernel.
#[derive(Args)]
#[command(after_help = "\
Options for -o, with commas between them:
  ro             nothing can be changed
  allow_other    other users than the one who mounts may use it: what root mounts is so anyway;
                 others may say it where /etc/fuse.conf has the line user_allow_other
  noallow_other  only who mounts may use it, also if that is root
  mode=MODE      as --mode
  class=CLASS    as --class
  suid, dev      set-user-id programs and device nodes work (root only)
  noexec, noatime, and those of mount(8) that say nothing new

Permissions are checked by the kernel, as on any file system, by the owners and modes of the files.
Users who may not mount need fusermount3 (Debian: fuse3), and a directory of their own. With the
command linked to /sbin/mount.fuse.solera, as `make install` does,
mount(8) knows the type `fuse.solera`, and a line in /etc/fstab mounts at boot:
  /mnt/dax/v.pm  /srv/data  fuse.solera  nofail  0 0

Examples:
  solera mount /dev/shm/v.pm /mnt/pm
  solera mount -o mode=sync,noatime /dev/shm/v.pm /mnt/pm
  solera mount /dev/shm/v.pm /mnt/pm && solera run -- bash -c 'cd /mnt/pm && ls'
  solera umount /mnt/pm")]
pub struct MountArgs {
    /// Serve in the foreground: the command ends when the directory is unmounted.
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Options, as in /etc/fstab. May be given again.
    #[arg(short = 'o', value_name = "LIST")]
    pub options: Vec<String>,
    /// Change nothing.
    #[arg(short = 'r', long)]
    pub read_only: bool,
    /// What a write through the mount promises: posix, sync or strict [default: strict].
    #[arg(long, value_parser = ["posix", "sync", "strict"])]
    pub mode: Option<String>,
    #[command(flatten)]
    pub class: ClassArg,
    #[command(flatten)]
    pub cache: CacheArg,
    /// Take options that are not known.
    #[arg(short = 's', long, hide = true)]
    pub sloppy: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
    /// The directory.
    pub directory: PathBuf,
}

/// Unmount volumes, and wait until they are in order.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0 if all were unmounted (a message says if a volume is not in order yet; --lazy does not
wait), 1 if not.

Examples:
  solera umount /mnt/pm
  solera umount --lazy /mnt/pm      also while programs use it")]
pub struct UmountArgs {
    /// Take the mount out of the tree at once, also while programs use it; it ends when the last of
    /// them has closed its files.
    #[arg(short = 'l', long)]
    pub lazy: bool,
    /// Directories where volumes are mounted, or the volumes.
    #[arg(required = true, value_name = "DIRECTORY")]
    pub places: Vec<PathBuf>,
}

/// Show the free space of volumes.
#[derive(Args)]
#[command(after_help = "\
Example:
  solera df /dev/shm/*.pm")]
pub struct DfArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volumes' files or devices.
    #[arg(required = true)]
    pub volumes: Vec<PathBuf>,
}

/// Check every structure of a volume, and repair it if asked to.
///
/// A volume that is in use can be checked: all changes by all programs wait meanwhile, about half a
/// second for a million files; reading goes on. A repair needs the volume for itself.
#[derive(Args)]
#[command(after_help = "\
Each fault is named: a word for its kind, the place (a path where there is one), what it means, and
what it takes to mend it:
  repair    nothing that can be read is lost. Counters, leaked space, a superblock from its copy,
            the free map; damaged parts of directories, whose files get their names back or new
            ones in /lost+found; an inode's owner and permissions that are lost become the
            directory owner's, and only that user may use it
  salvage   something that cannot be read any more is given up: a name that leads nowhere is
            removed, the damaged part of a file becomes a hole
  none      nothing here can mend it: copy out what can be read, restore the rest from a backup
A volume on which damage was found can only be read until it is repaired.

Exit code (as of fsck and e2fsck): 0 clean, 1 faults were found and all are mended, 4 faults are
left, 8 it could not be checked, 16 a wrong command line.

Examples:
  solera fsck /dev/shm/v.pm
  solera fsck --repair /dev/shm/v.pm
  solera fsck --json /dev/shm/v.pm | jq '.faults[].place'")]
// Each is an option of its own.
#[allow(clippy::struct_excessive_bools)]
pub struct FsckArgs {
    /// Mend what can be mended without losing anything that can be read.
    #[arg(short = 'p', long, visible_short_alias = 'a')]
    pub repair: bool,
    /// Repair, and give up what cannot be read any more.
    #[arg(short = 'y', long)]
    pub salvage: bool,
    /// Change nothing: the default, for scripts that say it.
    #[arg(short = 'n', long, conflicts_with_all = ["repair", "salvage"])]
    pub no_changes: bool,
    /// Also read all contents of all files, to find memory that cannot be read.
    #[arg(short = 'c', long)]
    pub read_data: bool,
    /// Accepted as fsck does: a check is always a full one.
    #[arg(short = 'f', long, hide = true)]
    pub force: bool,
    #[command(flatten)]
    pub class: ClassArg,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
}

/// Make a volume larger, while programs go on using it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera grow --size 8G /dev/shm/v.pm     to 8 GiB
  solera grow --size +2G /dev/shm/v.pm    by 2 GiB")]
pub struct GrowArgs {
    /// The new size, or with a + before it how much more.
    #[arg(long, value_parser = new_size)]
    pub size: NewSize,
    #[command(flatten)]
    pub class: ClassArg,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The volume's file or device.
    pub volume: PathBuf,
}

/// Rewrite scattered files into whole chunks of 2 MiB, so that mappings of them get huge pages.
///
/// Programs go on with the files meanwhile: bytes move a chunk at a time, each step survives a
/// crash, and nothing about a file changes but where it lies. Files that a program has mapped stay
/// as they are (up to 256 MiB of each is rewritten when the last program has closed it), and so do
/// chunks with holes.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0 done, 1 if a file stays scattered: mapped, or no free chunk is left; 130 if it was
interrupted (what is done stays so).

Examples:
  solera defrag /dev/shm/v.pm:/db            all files below
  solera defrag --dry-run /dev/shm/v.pm      how much there would be to do
  solera defrag /mnt/pm/db/data.mdb          by a mount of the volume")]
pub struct DefragArgs {
    /// Move nothing: only say how whole the files are.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub class: ClassArg,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Files or directories, as `VOLUME:/path` or by a mount; a volume means all that is on it.
    #[arg(required = true, value_name = "VOLUME[:/PATH]")]
    pub places: Vec<OsString>,
}

/// Show where the bytes of files lie, and which of them come as huge pages when mapped.
///
/// Of a file on a volume of a domain it shows on which node each page is now: here, on another
/// node, nowhere (zeros, of which no node has bytes), lost with a node that is gone, or unknown
/// (the directory's word is damaged). No page moves for it. A line for each node says how many
/// bytes it has; together these are the bytes of the file's blocks.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera map /dev/shm/v.pm:/db/data.mdb
  solera map dm/big:/db/data.mdb            on which node of its domain each page is
  solera map --json /dev/shm/v.pm:/db/data.mdb | jq .huge_bytes")]
pub struct MapArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// A file: `VOLUME:/path`, or one of a kernel file system that tells where bytes lie (ext4,
    /// XFS).
    #[arg(value_name = "VOLUME:/PATH")]
    pub place: OsString,
}

/// The size that `grow` is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewSize {
    /// Bytes in all.
    To(u64),
    /// Bytes more.
    By(u64),
}

fn new_size(text: &str) -> Result<NewSize, String> {
    match text.strip_prefix('+') {
        Some(more) => size::parse(more).map(NewSize::By),
        None => size::parse(text).map(NewSize::To),
    }
}

fn permissions(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("`{text}` is not a set of permissions: give an octal number such as 660")),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;
    use console::command_line;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn not_every_command_has_every_option() {
        let takes = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            command_line::takes(&super::Cli::command(), &words, "--class")
        };
        for line in [&["cp", "a", "v:/"][..], &["numa", "set", "v:/a"], &["format", "v"]] {
            assert!(takes(line), "{line:?}");
        }
        for line in [&["bench", "compaction"][..], &["ls", "v"], &["info", "cp"], &[]] {
            assert!(!takes(line), "{line:?}");
        }
    }
}
