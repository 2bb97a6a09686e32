//! The command line: every subcommand, one file or folder each, with its arguments, the help that
//! teaches them, and a `run` that gives the exit code.

pub mod bench;
pub mod cache;
pub mod cat;
pub mod cp;
pub mod defrag;
pub mod detach;
pub mod df;
pub mod doctor;
pub mod domain;
pub mod door;
pub mod export;
pub mod format;
pub mod fsck;
pub mod generate;
pub mod grow;
pub mod import;
pub mod info;
pub mod keeper;
pub mod log;
pub mod ls;
pub mod map;
pub mod metrics;
pub mod mount;
pub mod node;
pub mod numa;
pub mod recover;
pub mod rm;
pub mod run;
pub mod snapshot;
pub mod top;
pub mod trim;
pub mod umount;
pub mod upgrade;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use console::class::ClassArg;
use console::failure::{Failure, Outcome};

use self::cache::{CacheArgs, CacheCommand};
use self::cat::CatArgs;
use self::cp::CpArgs;
use self::defrag::DefragArgs;
use self::detach::DetachArgs;
use self::df::DfArgs;
use self::doctor::DoctorArgs;
use self::domain::DomainArgs;
use self::door::DoorArgs;
use self::export::ExportArgs;
use self::format::FormatArgs;
use self::fsck::FsckArgs;
use self::generate::GenerateArgs;
use self::grow::GrowArgs;
use self::import::ImportArgs;
use self::info::InfoArgs;
use self::keeper::KeeperArgs;
use self::log::LogArgs;
use self::ls::LsArgs;
use self::map::MapArgs;
use self::metrics::MetricsArgs;
use self::mount::MountArgs;
use self::node::NodeArgs;
use self::numa::{NumaArgs, NumaCommand};
use self::recover::RecoverArgs;
use self::rm::RmArgs;
use self::run::RunArgs;
use self::snapshot::SnapshotArgs;
use self::top::TopArgs;
use self::trim::TrimArgs;
use self::umount::UmountArgs;
use self::upgrade::UpgradeArgs;
use crate::domains;
use ::bench::{AgeArgs, BenchArgs};

/// Storage for byte-addressable memory: volumes that unmodified programs run on.
#[derive(Parser)]
#[command(name = "solera", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// What a command line says, or why it says nothing.
    pub fn of(line: Vec<OsString>) -> Result<Self, clap::Error> {
        // It starts a program each time: nothing of other commands is described for it.
        if line.get(1).is_some_and(|name| name == "run") {
            let OnlyRun { command: Alone::Run(args) } = OnlyRun::try_parse_from(line)?;
            return Ok(Self { command: Command::Run(args) });
        }
        Self::try_parse_from(line)
    }
}

#[derive(Parser)]
#[command(name = "solera", version)]
struct OnlyRun {
    #[command(subcommand)]
    command: Alone,
}

#[derive(Subcommand)]
enum Alone {
    Run(Box<RunArgs>),
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
    Doctor(DoctorArgs),
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
    Door(DoorArgs),
    Log(LogArgs),
    Bench(BenchArgs),
    #[command(hide = true)]
    Generate(GenerateArgs),
    #[command(hide = true)]
    Keeper(KeeperArgs),
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

    /// Where the command line names a volume as `DOMAIN/VOLUME`, puts the path of its region. What
    /// is named with a path on it, `location::Location` finds.
    pub fn find_volumes(&mut self) -> Result<(), Failure> {
        // What only looks, and what ends a use, waits for nobody.
        let waits = !matches!(
            self,
            Self::Info(_)
                | Self::Df(_)
                | Self::Doctor(_)
                | Self::Top(_)
                | Self::Metrics(_)
                | Self::Umount(_)
        );
        let find = if waits { domains::to_use } else { domains::region };
        let (volumes, code): (Vec<&mut PathBuf>, u8) = match self {
            Self::Info(args) => (vec![&mut args.volume], 1),
            Self::Df(args) => (args.volumes.iter_mut().collect(), 1),
            Self::Doctor(args) => (args.volumes.iter_mut().collect(), 1),
            Self::Top(args) => (vec![&mut args.volume], 1),
            Self::Metrics(args) => (args.volumes.iter_mut().collect(), 1),
            Self::Fsck(args) => (vec![&mut args.volume], fsck::CODE_NOT_CHECKED),
            Self::Trim(args) => (vec![&mut args.volume], 1),
            Self::Upgrade(args) => (vec![&mut args.volume], 1),
            Self::Detach(args) => (vec![&mut args.volume], 1),
            Self::Mount(args) => (vec![&mut args.volume], 1),
            Self::Umount(args) => (args.places.iter_mut().collect(), 1),
            Self::Run(args) => (args.volume.iter_mut().collect(), run::CODE_OWN_FAILURE),
            Self::Grow(args) => (vec![&mut args.volume], 1),
            Self::Snapshot(args) => (vec![&mut args.volume], 1),
            Self::Rm(args) => (args.volumes.iter_mut().collect(), 1),
            Self::Cache(args) => match &mut args.command {
                CacheCommand::Create { volume } => (vec![volume], 1),
                CacheCommand::Status { of, .. }
                | CacheCommand::Drop { of, .. }
                | CacheCommand::Destroy(of) => (of.volume.iter_mut().collect(), 1),
                CacheCommand::List { .. } => return Ok(()),
            },
            _ => return Ok(()),
        };
        for volume in volumes {
            if let Some(region) = find(volume).map_err(|failure| failure.code(code))? {
                *volume = region;
            }
        }
        Ok(())
    }

    /// Does what is asked for.
    pub fn run(&self) -> Outcome {
        match self {
            Self::Format(args) => format::run(args),
            Self::Info(args) => info::run(args),
            Self::Door(args) => door::run(args),
            Self::Log(args) => log::run(args),
            Self::Run(args) => run::run(args),
            Self::Mount(args) => mount::run(args),
            Self::Umount(args) => umount::run(args),
            Self::Ls(args) => ls::run(args),
            Self::Cat(args) => cat::run(args),
            Self::Cp(args) => cp::run(args),
            Self::Export(args) => export::run(args),
            Self::Import(args) => import::run(args),
            Self::Df(args) => df::run(args),
            Self::Doctor(args) => doctor::run(args),
            Self::Top(args) => top::run(args),
            Self::Metrics(args) => metrics::run(args),
            Self::Fsck(args) => fsck::run(args),
            Self::Recover(args) => recover::run(args),
            Self::Snapshot(args) => snapshot::run(args),
            Self::Rm(args) => rm::run(args),
            Self::Grow(args) => grow::run(args),
            Self::Trim(args) => trim::run(args),
            Self::Upgrade(args) => upgrade::run(args),
            Self::Cache(args) => cache::run(args),
            Self::Node(args) => node::run(args),
            Self::Domain(args) => domain::run(args),
            Self::Detach(args) => detach::run(args),
            Self::Defrag(args) => defrag::run(args),
            Self::Numa(args) => numa::run(args),
            Self::Map(args) => map::run(args),
            Self::Generate(args) => generate::run(args),
            Self::Keeper(args) => keeper::run(args),
            Self::Age(_) | Self::Bench(_) => bench::run(),
        }
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
