//! The arguments of `solera bench` and `solera age`. Each command's stand beside what it does, in
//! its folder; the program `solera-bench` takes them, and `solera` has them in its help, its manual
//! pages and its completions, without what is measured.

// What stands here as documentation is help: what the help is silent of has none.
#![allow(missing_docs)]

mod age {
    pub mod arguments;
}
mod compaction {
    pub mod arguments;
}
mod ddmap {
    pub mod arguments;
}
mod door {
    pub mod arguments;
}
mod flac {
    pub mod arguments;
}
mod flex {
    pub mod arguments;
}
mod micro {
    pub mod arguments;
}
mod mount {
    pub mod arguments;
}
mod profile {
    pub mod arguments;
}
mod programs {
    pub mod arguments;
}
mod recovery {
    pub mod arguments;
}
mod split {
    pub mod arguments;
}
mod sqlite {
    pub mod arguments;
}
mod worker {
    pub mod arguments;
}

use clap::{Args, Subcommand};

pub use self::age::arguments::{AgeArgs, Profile, Sizes};
pub use self::compaction::arguments::CompactionBenchArgs;
pub use self::ddmap::arguments::{DdmapBenchArgs, DdmapPeer, DdmapWorkerArgs};
pub use self::door::arguments::{DoorBenchArgs, DoorStartArgs, DoorWorkerArgs, StartWay};
pub use self::flac::arguments::{FlacBenchArgs, FlacWorkerArgs};
pub use self::flex::arguments::FlexBenchArgs;
pub use self::micro::arguments::MicroArgs;
pub use self::mount::arguments::MountBenchArgs;
pub use self::profile::arguments::ProfileBenchArgs;
pub use self::programs::arguments::ProgramsBenchArgs;
pub use self::recovery::arguments::RecoveryArgs;
pub use self::split::arguments::SplitBenchArgs;
pub use self::sqlite::arguments::{SqliteBenchArgs, SqliteWorkerArgs};
pub use self::worker::arguments::WorkerArgs;

/// Measure.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Subcommand)]
pub enum BenchCommand {
    Compaction(CompactionBenchArgs),
    Ddmap(DdmapBenchArgs),
    #[command(hide = true)]
    DdmapWorker(DdmapWorkerArgs),
    Door(DoorBenchArgs),
    #[command(hide = true)]
    DoorStart(DoorStartArgs),
    #[command(hide = true)]
    DoorWorker(DoorWorkerArgs),
    Flac(FlacBenchArgs),
    #[command(hide = true)]
    FlacWorker(FlacWorkerArgs),
    Flex(FlexBenchArgs),
    Micro(MicroArgs),
    Mount(MountBenchArgs),
    Profile(ProfileBenchArgs),
    Programs(ProgramsBenchArgs),
    Recovery(RecoveryArgs),
    Split(SplitBenchArgs),
    Sqlite(SqliteBenchArgs),
    #[command(hide = true)]
    SqliteWorker(SqliteWorkerArgs),
    #[command(hide = true)]
    Worker(WorkerArgs),
}
