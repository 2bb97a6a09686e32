//! The arguments of `solera numa`.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use console::class::ClassArg;

/// Show on which memory node a file lies, or pin it to one.
///
/// Each allocation group of a volume belongs to one of the machine's memory nodes: the one that
/// holds most of its pages. A pinned file is given space on its node as long as there is room,
/// whichever process writes it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera numa get /dev/shm/v.pm:/db/data.mdb
  solera numa set --node 1 /dev/shm/v.pm:/db/data.mdb
  solera numa set --node 1 --move /dev/shm/v.pm:/db/data.mdb   and bring there what it has
  solera numa set --none /dev/shm/v.pm:/db/data.mdb")]
pub struct NumaArgs {
    #[command(subcommand)]
    pub command: NumaCommand,
}

#[derive(Subcommand)]
pub enum NumaCommand {
    /// Show the node that a file is pinned to, and where its bytes lie.
    Get {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// A file, as `VOLUME:/path`.
        #[arg(value_name = "VOLUME:/PATH")]
        place: OsString,
    },
    /// Pin a file to a node. What it holds already stays where it is, without --move.
    Set {
        /// The node's number.
        #[arg(long, required_unless_present = "none", conflicts_with = "none")]
        node: Option<u32>,
        /// No node any more.
        #[arg(long)]
        none: bool,
        /// Bring there what it holds. Refused while a program has it mapped.
        #[arg(long = "move", conflicts_with = "none")]
        moves: bool,
        #[command(flatten)]
        class: ClassArg,
        /// A file, as `VOLUME:/path`.
        #[arg(value_name = "VOLUME:/PATH")]
        place: OsString,
    },
}
