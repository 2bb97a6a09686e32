//! The arguments of `solera domain`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Make a domain's key, look at a domain, move volumes in it, remove nodes from it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera domain create dm --key dm.pem     copy the file to each machine of the domain
  solera domain status dm
  solera domain status --json dm | jq .volumes
  solera domain move dm/big --to 2         another host: programs use it there
  solera domain drain dm 3                 node 3 gives its pages up
  solera domain leave dm 3                 and is removed
  solera domain forget dm 4                node 4 will not come back: what it alone had is lost
  solera domain first dm --to 2            node 2 gives out the numbers, in node 1's place")]
pub struct DomainArgs {
    #[command(subcommand)]
    pub command: DomainCommand,
}

#[derive(Subcommand)]
pub enum DomainCommand {
    /// Make the key file of a new domain: what has it may be a node of the domain.
    Create {
        /// The file, which must not exist; it becomes its owner's alone.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// The domain's name.
        name: String,
    },
    /// Have a node give its pages up: it gets no more, and hosts fetch those that it keeps. Waits
    /// until it keeps none; ended, the node goes on giving up.
    #[command(after_help = "\
A host fetches the pages that the node keeps, and sends what has no room there to other nodes. They
must have the room: what they have for volumes, and what volumes were promised, is compared first. A
node that is itself the host of volumes keeps them. While a host is away its pages stay: that is
said, and waited for.

Exit code: 0 it keeps no pages; 1 refused, with nothing done; 3 it keeps pages still, none of which
has gone for as long as --patience says: it goes on giving up.

Examples:
  solera domain drain dm 3
  solera domain drain --cancel dm 3        it takes part again")]
    Drain {
        /// It takes part again, and gets pages.
        #[arg(long)]
        cancel: bool,
        /// How long to wait while no page goes; then it is said what is waited for.
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = seconds)]
        patience: u64,
        /// The domain's name.
        name: String,
        /// The node's number.
        node: u16,
    },
    /// Remove a node that gives its pages up first, as `drain` does. It can be ended then.
    #[command(after_help = "\
The first node gives out the numbers: it stays, and is refused here, until another one is first
(solera domain first). So is a node that is the host of volumes, until they are moved (solera domain
move) or removed (solera rm). The number is given to no other node.

Exit code: 0 it is removed; 1 refused, with nothing done; 3 it keeps pages still, none of which has
gone for as long as --patience says: it goes on giving up, and is not removed.

Example:
  solera domain leave dm 3")]
    Leave {
        /// How long to wait while no page goes; then it is said what is waited for.
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = seconds)]
        patience: u64,
        /// The domain's name.
        name: String,
        /// The node's number.
        node: u16,
    },
    /// Remove a node that will not come back: the pages that it alone had are lost.
    #[command(after_help = "\
Refused while the node is there (use leave): it waits 8 s whether the node says something. From then
on a touch of a page that it alone had is SIGBUS, calls give EIO, at once; what another node has,
too, is copied to a third one (solera domain status); other nodes drop what they keep of volumes
that it was the host of. If it does come back, it is refused.

Exit code: 0 it is removed, 1 it is not.

Example:
  solera domain forget dm 3")]
    Forget {
        /// The domain's name.
        name: String,
        /// The node's number.
        node: u16,
    },
    /// Have another node be the domain's first: the one that gives out numbers, says which nodes
    /// drain or are removed, and hears that nodes are there.
    #[command(after_help = "\
To be asked for when the first is gone, or is to go; on any machine that has a node of the domain.
More than half of the nodes must answer, those that were removed apart; the old first need not. It
hears of the later one when it is back, and follows it, as do nodes that were away.

With --force nobody need answer: for a domain of which more than half is gone. No node can join then
until more than half of its nodes follow the new first, or are forgotten (solera domain forget). If
the others are there after all, and call another node first, the later one is.

A passive node is refused.

Exit code: 0 the node is first, 1 it is not, 2 a wrong command line.

Examples:
  solera domain first dm --to 2
  solera domain first --json --force dm --to 2 | jq .term")]
    First {
        /// The node's number.
        #[arg(long, value_name = "NODE")]
        to: u16,
        /// Also if half of the nodes, or more, do not answer.
        #[arg(long)]
        force: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// The domain's name.
        name: String,
    },
    /// Give a volume another host: from then on programs use it on that node's machine.
    #[command(after_help = "\
To be asked for on the machine of the present host, while no process has the volume attached. The
directory goes over, then what always stays with a host (metadata); all other pages stay where they
are until they are touched. If a node dies meanwhile, one of the two is the host: which one, solera
domain status says. A move that was decided goes on by itself when both nodes run; one that was not
can be asked for again, as can one that is over.

Exit code: 0 the node is the host, and has what stays with it; 1 it is not, or not known to be; 2 a
wrong command line.

Examples:
  solera domain move dm/big --to 2
  solera domain move --json dm/big --to 2 | jq .host")]
    Move {
        /// The new host's number.
        #[arg(long, value_name = "NODE")]
        to: u16,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// The volume: DOMAIN/VOLUME.
        volume: String,
    },
    /// Mend a volume's directory by what nodes have: on its host, while no program uses it.
    #[command(after_help = "\
The directory says where each page is. Where it is damaged, names a node that has not got the page,
or is gone, the latest version that a node has is the page. A page that nobody has is lost: it is
said to be so, with the file that has it and the node that had it, and gives EIO until the file is
removed, or all of the page is written. While a node does not answer, no page is called lost.

Exit code: 0 nothing is lost, 1 failed, 4 pages are lost, or a node does not answer.

Examples:
  solera domain repair --dry-run dm/big
  solera domain repair --json dm/big | jq .lost_pages")]
    Repair {
        /// Look, and change nothing.
        #[arg(long)]
        dry_run: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// The volume: DOMAIN/VOLUME.
        volume: String,
    },
    /// Show the nodes of a domain, and the volumes of those on this machine.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Every two seconds anew, until SIGINT.
        #[arg(long)]
        watch: bool,
        /// The domain's name.
        name: String,
    },
}

/// A time, in seconds: `30s`, `2m`.
pub fn seconds(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    seconds.filter(|seconds| (1..=86400).contains(seconds)).ok_or_else(|| {
        format!("`{text}` is not a time from 1 s to a day: give seconds (30s) or minutes (2m)")
    })
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_read_or_refused() {
        assert_eq!(seconds("30s"), Ok(30));
        assert_eq!(seconds("30"), Ok(30));
        assert_eq!(seconds("2m"), Ok(120));
        for text in ["", "s", "0", "-1", "1h", "1.5s", "86401", "999999999999999999m"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
