//! The commands that reach files of a volume from outside.

use std::ffi::OsString;

use clap::Args;

use super::ClassArg;

/// List a directory of a volume.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera ls /dev/shm/v.pm              the root
  solera ls -l /dev/shm/v.pm:/logs")]
pub struct LsArgs {
    /// Kind, permissions, links, owner, size and time of each.
    #[arg(short = 'l')]
    pub long: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// `VOLUME` or `VOLUME:/path`.
    #[arg(value_name = "VOLUME[:/PATH]")]
    pub place: OsString,
}

/// Write files of a volume to standard output.
#[derive(Args)]
#[command(after_help = "\
Example:
  solera cat /dev/shm/v.pm:/logs/today | grep error")]
pub struct CatArgs {
    /// Files, each as `VOLUME:/path`.
    #[arg(required = true, value_name = "VOLUME:/PATH")]
    pub places: Vec<OsString>,
}

/// Copy files into, out of and between volumes.
///
/// Permissions, times and holes are kept; the copy belongs to the user that makes it.
#[derive(Args)]
#[command(after_help = "\
A place on a volume is VOLUME:/path. A local file whose name looks like one is taken as local if it
exists.

A local target that is a volume is refused (was `:/` forgotten?), and so is VOLUME:name without the
slash; a local file of such a name is written ./VOLUME:name. A fifo is written to as by cp: that
waits until a program reads it.

Examples:
  solera cp notes.txt /dev/shm/v.pm:/              in
  solera cp /dev/shm/v.pm:/notes.txt .             out
  solera cp -r src /dev/shm/v.pm:/backup           a directory with all that is in it")]
pub struct CpArgs {
    /// Copy directories with all that is in them.
    #[arg(short = 'r', long)]
    pub recursive: bool,
    /// Write also over a local file that is a volume, and is one no more then, and over a block
    /// device. Never over a volume in use.
    #[arg(long)]
    pub overwrite_volume: bool,
    #[command(flatten)]
    pub class: ClassArg,
    /// What to copy, then where to: an existing directory, or a new name.
    #[arg(required = true, num_args = 2.., value_name = "PLACE")]
    pub places: Vec<OsString>,
}
