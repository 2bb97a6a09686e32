//! `solera node`, `solera domain`, the options of volumes of a domain; and where a command line
//! names one instead of a file.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use console::failure::Failure;
use console::size;
use ddmap::ground::share::LEAST;
use ddmap::protocol::PAGE;

use super::{CacheCommand, Command};
use crate::commands::{fsck, run};
use crate::domain;

/// How much of a volume its host may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    Bytes(u64),
    /// Of the volume's size.
    Percent(u64),
}

impl Local {
    /// Bytes of a volume of so many.
    pub fn of(self, volume: u64) -> Result<u64, String> {
        let (bytes, text) = match self {
            Self::Bytes(bytes) => return Ok(bytes),
            Self::Percent(part) => {
                let bytes = u128::from(volume) * u128::from(part) / 100;
                (bytes as u64, format!("{part}%"))
            }
        };
        if bytes < LEAST * PAGE {
            let (found, whole) = (size::show(bytes), size::show(volume));
            return Err(too_little(&format!("{text} of {whole} is {found}, which")));
        }
        Ok(bytes)
    }
}

fn too_little(what: &str) -> String {
    let least = size::show(LEAST * PAGE);
    format!("{what} is less than {least}, which a program needs at once: give that or more")
}

/// The volume of a domain that a program is to see.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct DdmapArg {
    /// Instead of --volume: a volume of a domain, whose pages lie on several machines (`solera node
    /// --help`). The program sees it at /dm without --at.
    #[arg(long, value_name = "DOMAIN/VOLUME", conflicts_with_all = ["volume", "split"])]
    pub ddmap: Option<String>,
    /// With --ddmap: how long a touch of a page waits for a node that does not answer; after that
    /// calls say EIO, and a touch of mapped memory is SIGBUS [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "ddmap",
          conflicts_with_all = ["volume", "split"])]
    pub patience: Option<u64>,
    /// With --ddmap: how pages are brought ahead of a program. auto: by what each thread's last 32
    /// touches tell, in order, at a stride, backward, several streams in turns; seq: in order only,
    /// behind the second touch; stride: behind the third touch at equal distances; off: each when
    /// it is touched [default: auto].
    #[arg(long, value_parser = ["auto", "seq", "stride", "off"], requires = "ddmap",
          conflicts_with_all = ["volume", "split"])]
    pub prefetch: Option<String>,
    /// With --ddmap: which pages leave when room is short. lru: those that were not wanted for
    /// longest; fifo: those that came first; lfu: those that were wanted least often. Of several
    /// programs on a volume, that one's counts that was started last and asks for one [default:
    /// lru].
    #[arg(long, value_parser = ["lru", "fifo", "lfu"], requires = "ddmap",
          conflicts_with_all = ["volume", "split"])]
    pub policy: Option<String>,
    /// With --ddmap: when pages leave. background: before a touch has to wait for room; demand:
    /// when one finds none, so that a program that writes has the machine to itself [default:
    /// background].
    #[arg(long, value_parser = ["background", "demand"], requires = "ddmap",
          conflicts_with_all = ["volume", "split"])]
    pub evict: Option<String>,
    /// With --ddmap: how much of the volume is kept on its host, at most, besides what must stay
    /// there (solera domain status); 4M at least. N% is that part of the volume's size, however
    /// much of it is in use. Of several programs on a volume, that one's counts that was started
    /// last and asks for one [default: as much as the node has room for].
    #[arg(long, value_name = "SIZE|N%", value_parser = local, requires = "ddmap",
          conflicts_with_all = ["volume", "split"])]
    pub local: Option<Local>,
    /// With --ddmap: how much memory each process has for lines of pages that other nodes have:
    /// reads of up to 2 KiB ask for those lines only, and the page stays where it is. auto: up to
    /// 1/16 of the node's capacity [default: auto].
    #[arg(long, value_name = "auto|SIZE|off", value_parser = line_cache, requires = "ddmap",
          conflicts_with_all = ["volume", "split"])]
    pub line_cache: Option<String>,
}

/// Run a node of a domain: machines that pool their memory for volumes larger than each of them.
///
/// A domain's first node is started without --join, all others with its address.
/// The node runs in the foreground until SIGINT or SIGTERM. What it has stays in its store: started
/// again with it, it goes on, and --join is not needed. A volume (`solera format --ddmap`) is used
/// on the node on which it was made, its host; the others keep the pages that have no room there.
#[derive(Args)]
#[command(after_help = "\
What may talk to a node: with --key, what has the domain's key, by TLS 1.3. With --wire plain, all
that reaches its port: plain is refused on a public address; take a network of your own. There is
one copy of each page: while a node is away its pages are, too, and what a node in memory had is
gone when its machine goes.

Exit code: 0 ended by a signal, 1 failed, 2 a wrong command line.

Examples:
  solera node --demo 3                          a domain of three nodes here, to try it
  solera run --ddmap demo/v -- sqlite3 /dm/my.db            in another terminal

  solera node --domain dm --listen 10.0.0.1:7470 --store /dev/shm/n --capacity 4G
  solera node --domain dm --listen 10.0.0.2:7470 --store /dev/shm/n --capacity 4G \\
      --join 10.0.0.1:7470 --passive            on another machine: keeps pages, runs no programs
  solera format --ddmap dm/big --size 6G        on the first
  solera run --ddmap dm/big -- sqlite3 /dm/my.db")]
pub struct NodeArgs {
    /// The domain's name: 1 to 64 of the characters A-Z a-z 0-9 . _ -
    #[arg(long, value_name = "NAME", required_unless_present = "demo")]
    pub domain: Option<String>,
    /// The domain's key file (`solera domain create`), copied to each node. Programs of the node's
    /// user get it from the node.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Where other nodes reach this one: an address of this machine, and a port (0: any).
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "demo")]
    pub listen: Option<SocketAddr>,
    /// The node's folder, on a tmpfs; it is made [default of --demo: a new one in /dev/shm].
    #[arg(long, value_name = "DIR", required_unless_present = "demo")]
    pub store: Option<PathBuf>,
    /// Bytes that the node may have of all volumes [default of --demo: 256M each].
    #[arg(long, value_name = "SIZE", value_parser = size::parse,
          required_unless_present = "demo")]
    pub capacity: Option<u64>,
    /// Where the domain's first node is. Left out by that one, and by one that was there before.
    #[arg(long, value_name = "ADDR:PORT")]
    pub join: Option<SocketAddr>,
    /// Keep pages, and run no programs: no volume is made here.
    #[arg(long)]
    pub passive: bool,
    /// The part of the capacity that is kept free, so that a touch need not wait for room.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    pub reserve: u32,
    /// How nodes talk: tls (with the domain's key), or plain, on private addresses only [default:
    /// tls with --key, else plain].
    #[arg(long, value_parser = ["tls", "plain"])]
    pub wire: Option<String>,
    /// Give metrics at http://ADDR:PORT/metrics, as Prometheus reads them: an address of this
    /// machine. Who reaches it may read them. Of a demo: those of its first node.
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
    /// A domain `demo` of so many nodes on this machine, in one process. All that it holds goes
    /// when it ends.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64),
          conflicts_with_all = ["domain", "key", "listen", "join", "passive", "wire"])]
    pub demo: Option<u16>,
}

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
  solera domain forget dm 4                node 4 will not come back: its pages are lost")]
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
Node 1 gives out the numbers and must be up when others start: it stays, and is refused here. So is
a node that is the host of volumes, until they are moved (solera domain move) or removed (solera
rm). The number is given to no other node.

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
    /// Remove a node that will not come back: the pages that it had are lost.
    #[command(after_help = "\
Refused while the node is there (use leave): it waits 8 s whether the node says something. From then
on a touch of a page that it had is SIGBUS, calls give EIO, at once; other nodes drop what they keep
of volumes that it was the host of. If it does come back, it is refused.

Exit code: 0 it is removed, 1 it is not.

Example:
  solera domain forget dm 3")]
    Forget {
        /// The domain's name.
        name: String,
        /// The node's number.
        node: u16,
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

/// `auto`, `off`, or a size, in bytes.
fn line_cache(text: &str) -> Result<String, String> {
    match text {
        "auto" | "off" => Ok(text.to_owned()),
        bytes => size::parse(bytes).map(|bytes| bytes.to_string()),
    }
}

fn seconds(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    seconds.filter(|seconds| (1..=86400).contains(seconds)).ok_or_else(|| {
        format!("`{text}` is not a time from 1 s to a day: give seconds (30s) or minutes (2m)")
    })
}

/// Bytes of a volume that its host may keep.
fn local(text: &str) -> Result<Local, String> {
    if let Some(part) = text.strip_suffix('%') {
        let part = part.parse().ok().filter(|part| (1..=100).contains(part));
        return part.map(Local::Percent).ok_or_else(|| {
            format!("`{text}` is no part of a volume: give a whole number from 1% to 100%")
        });
    }
    match size::parse(text)? {
        bytes if bytes < LEAST * PAGE => Err(too_little(&format!("`{text}`"))),
        bytes => Ok(Local::Bytes(bytes)),
    }
}

fn percent(text: &str) -> Result<u32, String> {
    let part = text.strip_suffix('%').unwrap_or(text).parse().ok();
    part.filter(|part| *part <= 50)
        .ok_or_else(|| format!("`{text}` is not a part: give a whole number from 0% to 50%"))
}

impl Command {
    /// Where the command line names a volume as `DOMAIN/VOLUME`, puts the path of its region. What
    /// is named with a path on it, `place::Place` finds.
    pub fn find_volumes(&mut self) -> Result<(), Failure> {
        let (volumes, code): (Vec<&mut PathBuf>, u8) = match self {
            Self::Info(args) => (vec![&mut args.volume], 1),
            Self::Df(args) => (args.volumes.iter_mut().collect(), 1),
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
            if let Some(region) = domain::region(volume).map_err(|failure| failure.code(code))? {
                *volume = region;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Local, local, percent, seconds};

    #[test]
    fn a_part_of_a_volume_is_4_megabytes_at_least() {
        assert_eq!(local("4M"), Ok(Local::Bytes(4 << 20)));
        assert_eq!(local("2GiB"), Ok(Local::Bytes(2 << 30)));
        assert_eq!(local("10%"), Ok(Local::Percent(10)));
        for text in ["0", "4096", "4095K", "0%", "101%", "%", "-1", ""] {
            assert!(local(text).is_err(), "{text}");
        }
        assert_eq!(Local::Percent(10).of(40 << 20), Ok(4 << 20));
        assert_eq!(Local::Percent(100).of(u64::MAX), Ok(u64::MAX));
        let little = Local::Percent(9).of(40 << 20).unwrap_err();
        assert!(little.contains("9% of 40.00 MiB is 3.60 MiB"), "{little}");
        assert_eq!(Local::Bytes(5 << 20).of(1), Ok(5 << 20), "whatever the volume has");
    }

    #[test]
    fn times_and_parts_are_read_or_refused() {
        assert_eq!(seconds("30s"), Ok(30));
        assert_eq!(seconds("30"), Ok(30));
        assert_eq!(seconds("2m"), Ok(120));
        for text in ["", "s", "0", "-1", "1h", "1.5s", "86401", "999999999999999999m"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!((percent("5%"), percent("0")), (Ok(5), Ok(0)));
        for text in ["", "%", "51%", "-1", "5%%"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
