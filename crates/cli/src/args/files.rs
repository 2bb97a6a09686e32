//! The commands that reach files of a volume from outside.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use console::class::ClassArg;

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

/// Write a volume, or a directory of one, as a stream: for another machine, or another version.
///
/// The stream is a tar archive (POSIX.1-2001), which any tar lists and unpacks. It has everything:
/// owners by number, permissions, times to the nanosecond, extended attributes, holes, hard links,
/// symlinks, device nodes, fifos, sockets; and at its end how many objects there are, and the
/// SHA-256 of all before. What changes meanwhile is told as it was when it was come to: of one
/// moment is the stream of a `solera snapshot`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera export v.pm | ssh other solera import /mnt/dax/v.pm
  solera export v.pm | zstd > v.tar.zst
  solera export -o db.tar v.pm:/db           a directory
  tar -tvf db.tar")]
pub struct ExportArgs {
    /// A new file for the stream [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print as JSON what was written; with --output.
    #[arg(long, requires = "output")]
    pub json: bool,
    /// `VOLUME`, or a directory as `VOLUME:/path`.
    #[arg(value_name = "VOLUME[:/PATH]")]
    pub place: OsString,
}

/// Read a stream of `solera export` into a volume, or into a directory of one.
///
/// All of it or nothing: it is put into the directory .solera-import there, and from there to its
/// place when its end has come and its sum is right. A stream that is torn or changed is refused,
/// and so is one with a name that is there already. Owners are those of the stream, by number. An
/// empty directory also gets the attributes of the one that was exported.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera format --size 64G /mnt/dax/v.pm && solera import -i v.tar /mnt/dax/v.pm
  zstd -dc v.tar.zst | solera import v.pm:/restored")]
pub struct ImportArgs {
    /// The stream's file [default: standard input].
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Print as JSON what was read.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub class: ClassArg,
    /// `VOLUME`, or a directory that is there, as `VOLUME:/path`.
    #[arg(value_name = "VOLUME[:/PATH]")]
    pub place: OsString,
}
