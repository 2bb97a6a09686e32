//! The arguments of `solera bench ddmap`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use console::size;

/// What volumes of a domain are compared with, besides a plain connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DdmapPeer {
    /// Swap on a block device of the network: measured in a guest only (`tests/vm/run swap`).
    Swap,
    /// A thread that serves userfaultfd over the same connection, in a small program.
    Thread,
    /// A file mapped over sshfs: over ssh, and without (nothing is encrypted).
    Sshfs,
    /// A file mapped over `GlusterFS`.
    Gluster,
    /// A volume on a plain file in memory.
    Local,
}

/// Volumes larger than their node: what a touch of a page costs that another node has, and what
/// costs nothing.
///
/// A domain of several nodes on loopback is made for the run, in a directory of its own, and goes
/// with it. Each row stands beside what the same machine does without it in the same run: a plain
/// round trip, a plain stream, a thread that serves page faults, a volume on a plain file. A target
/// that is missed is said to be missed.
#[derive(Args)]
#[command(after_help = "\
Each round sends a file away, by a store of twice the node's capacity, and touches it then: pages at
random, one after the other (both sides poll) and after a rest (the holder blocks), and in order,
with pages brought ahead and without. Peers take turns, round by round; the first round touches the
memory and does not count. Of rates more is better, of times less; a ratio is the row's over the
peer's.

Over loopback both sides use the same processors: they take a machine with nothing else to do. What
must be installed for a peer and is not is said below the table.

A network file system is mounted on loopback, its files in the same memory: sshfs over ssh and
without (nothing is encrypted), GlusterFS as root. Touches of it are of pages that are not cached,
and nothing is read ahead. Pages that are here are touched while all processors are busy (a thread
of least priority spins on each) and while they sleep.

A program polls for 50 us before it blocks, always. So where the holder blocks two round trips stand
beside it: the one of which neither side polls is the aim's. The thread does less than a program: no
directory, no checksum, nobody who sends pages away. New pages that are appended are first touches
on the domain's volume; the plain file's memory was touched before.

At the end, domains of one to four nodes, each with a file that is as many times --size, of which
one --size may be on the host: read in order, and loaded at random. With four nodes it is to be as
fast as with two (0.8 of that at least).

Exit code: 0 measured, whatever was met; 1 failed, 2 a wrong command line, 130 interrupted.

Examples:
  solera bench ddmap
  solera bench ddmap --peers thread --rounds 15 --json
  solera bench ddmap --json | jq '.rows[] | select(.peers[].met == false) | .row'
  make ddmap                                         docs/figures/ddmap.md again")]
pub struct DdmapBenchArgs {
    /// What it is compared with; several with commas [default: all].
    #[arg(long, value_delimiter = ',')]
    pub peers: Vec<DdmapPeer>,
    /// Nodes of the domain: a host, and holders.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=16))]
    pub nodes: u16,
    /// Bytes of the host's node, a multiple of 1 MiB, at least 8 MiB. The file that is sent away
    /// has half of them.
    #[arg(long, default_value = "32M", value_parser = size::parse)]
    pub size: u64,
    /// How many times each row is measured; the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..1000))]
    pub rounds: u32,
    /// A directory of a tmpfs, where all is made for the run.
    #[arg(long, default_value = "/dev/shm")]
    pub place: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A process of the benchmark.
#[derive(Args)]
pub struct DdmapWorkerArgs {
    /// What it is: the program that touches pages, the other side of plain connections, or one
    /// that mounts a directory over a network file system.
    #[arg(value_parser = ["program", "remote", "share"])]
    pub part: String,
    /// Of a share: sftp, ssh or gluster, and a directory that it makes.
    pub rest: Vec<String>,
}
