//! `solera run --ddmap`: the volume of a domain in the place of `--volume`, and what the library is
//! told of its pages.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use console::failure::Failure;
use console::output;
use console::size;
use ddmap::{LOCAL_LEAST, PAGE, Registry};
use volume::FormatOptions;

use super::nesting;
use crate::commands::domain::seconds;
use crate::commands::node::DEMO;
use crate::commands::run::RunArgs;
use crate::domains;

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
        if bytes < LOCAL_LEAST * PAGE {
            let (found, whole) = (size::show(bytes), size::show(volume));
            return Err(too_little(&format!("{text} of {whole} is {found}, which")));
        }
        Ok(bytes)
    }
}

fn too_little(what: &str) -> String {
    let least = size::show(LOCAL_LEAST * PAGE);
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
    /// With --ddmap: how long the program waits for the volume, while another node is its host, or
    /// programs of other nodes wait for it. Then solera ends, and says which processes have it.
    /// 0: not at all [default: 60s].
    #[arg(long, value_name = "TIME", value_parser = pause, requires = "ddmap",
          conflicts_with_all = ["volume", "split"])]
    pub wait: Option<u64>,
    /// With --ddmap: on the volume's host, the program begins before programs of other nodes that
    /// have waited for less than this. 0: behind all that wait [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = pause, requires = "ddmap",
          conflicts_with_all = ["volume", "split"])]
    pub hold: Option<u64>,
}

/// A time, in seconds, or none.
fn pause(text: &str) -> Result<u64, String> {
    if ["0", "0s", "0m"].contains(&text) { Ok(0) } else { seconds(text) }
}

/// `auto`, `off`, or a size, in bytes.
fn line_cache(text: &str) -> Result<String, String> {
    match text {
        "auto" | "off" => Ok(text.to_owned()),
        bytes => size::parse(bytes).map(|bytes| bytes.to_string()),
    }
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
        bytes if bytes < LOCAL_LEAST * PAGE => Err(too_little(&format!("`{text}`"))),
        bytes => Ok(Local::Bytes(bytes)),
    }
}

/// Where a program sees the volume.
const AT: &str = "/dm";
/// Seconds that a touch waits for a holder.
const PATIENCE: u64 = 30;
/// How pages are brought ahead.
const AHEAD: &str = "auto";

/// The arguments with the region of a volume of a domain as the volume. Of the domain of
/// `node --demo` the volume is made if need be.
pub fn named(args: &RunArgs) -> Result<Cow<'_, RunArgs>, Failure> {
    let Some(name) = &args.ddmap.ddmap else { return Ok(Cow::Borrowed(args)) };
    let (domain, volume) = Registry::parse(name)?;
    if nesting::serving().is_some() {
        let found = "the program that starts it is served already, and its library would not hear \
                     of it";
        let advice = "start it outside, or name all there";
        return Err(Failure::new(format!("add {name}"), found, advice));
    }
    let registry = Registry::find()?;
    let has = || registry.living(domain).iter().any(|(_, store)| store.volume(volume).exists());
    if domain == DEMO && !registry.living(domain).is_empty() && !has() {
        let (all, _) = domains::capacity(&domains::status(&registry, domain)?);
        let bytes = all / 4 * 3;
        domains::make(&registry, name, (bytes, 1), FormatOptions::default())?;
        output::tell(format!("{name} is new: {}", size::show(bytes)));
    }
    let mut args = args.clone();
    let wait = args.ddmap.wait.map_or(domains::WAIT, Duration::from_secs);
    let hold = args.ddmap.hold.map_or(domains::HOLD, Duration::from_secs);
    domains::enter(&registry, name, (wait, hold))?;
    let region = registry.resolve(name)?;
    args.ddmap.local = args.ddmap.local.map(|local| kept(local, name, &region)).transpose()?;
    args.volume = vec![region];
    if args.at.is_empty() {
        args.at = vec![PathBuf::from(AT)];
    }
    Ok(Cow::Owned(args))
}

/// How much of a volume its host may keep, in bytes.
fn kept(local: Local, name: &str, region: &Path) -> Result<Local, Failure> {
    let asked = || format!("keep a part of {name} on its host");
    let about = std::fs::metadata(region).map_err(|error| Failure::io(asked(), &error))?;
    let bytes = local.of(about.len());
    bytes.map(Local::Bytes).map_err(|found| Failure::new(asked(), found, "see --local"))
}

/// What the library reads of the volume's pages.
pub fn variable(args: &DdmapArg) -> Option<(&'static str, String)> {
    args.ddmap.as_ref()?;
    let ahead = args.prefetch.as_deref().unwrap_or(AHEAD);
    let patience = args.patience.unwrap_or(PATIENCE);
    let mut told = vec![format!("patience={patience}"), format!("ahead={ahead}")];
    told.extend(args.policy.iter().map(|policy| format!("policy={policy}")));
    told.extend(args.evict.iter().map(|when| format!("evict={when}")));
    if let Some(Local::Bytes(bytes)) = args.local {
        told.push(format!("local={bytes}"));
    }
    told.extend(args.line_cache.iter().map(|lines| format!("lines={lines}")));
    Some(("SOLERA_DDMAP", told.join(",")))
}

#[cfg(test)]
mod tests {
    use super::{DdmapArg, Local, local, pause, variable};

    #[test]
    fn the_library_is_told_of_domains_only() {
        assert_eq!(variable(&DdmapArg::default()), None);
        let mut args = DdmapArg { ddmap: Some("dm/v".to_owned()), ..DdmapArg::default() };
        let told = |args: &DdmapArg| variable(args).map(|one| one.1).unwrap_or_default();
        assert_eq!(told(&args), "patience=30,ahead=auto");
        (args.patience, args.prefetch) = (Some(120), Some("off".to_owned()));
        assert_eq!(told(&args), "patience=120,ahead=off");
        (args.policy, args.evict) = (Some("lfu".to_owned()), Some("demand".to_owned()));
        assert_eq!(told(&args), "patience=120,ahead=off,policy=lfu,evict=demand");
        args.local = Some(Local::Bytes(4 << 20));
        assert!(told(&args).ends_with(",local=4194304"));
        args.line_cache = Some("1048576".to_owned());
        assert!(told(&args).ends_with(",lines=1048576"));
    }

    #[test]
    fn a_program_may_wait_for_no_time_at_all() {
        assert_eq!((pause("0"), pause("0s"), pause("2m")), (Ok(0), Ok(0), Ok(120)));
        assert!(pause("-1").is_err() && pause("").is_err());
    }

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
}
