//! `solera node`: a node of a domain in the foreground; with `--demo` a domain of several in one
//! process, whose stores go when it ends.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;
use console::failure::{Failure, Outcome};
use console::output;
use console::size;
use ddmap::{DomainError, Key, Node, NodeOptions, Registration, Registry, Store, Tls, Wire};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Run a node of a domain: machines that pool their memory for volumes larger than each of them.
///
/// A domain's first node is started without --join, all others with the address of one of its
/// nodes, more than half of which must answer.
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
    /// Where a node of the domain is. Left out by the first one, and by one that was there before.
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

fn percent(text: &str) -> Result<u32, String> {
    let part = text.strip_suffix('%').unwrap_or(text).parse().ok();
    part.filter(|part| *part <= 50)
        .ok_or_else(|| format!("`{text}` is not a part: give a whole number from 0% to 50%"))
}

/// The domain of `--demo`.
pub const DEMO: &str = "demo";
/// Where its stores are, with the number of its process behind it.
const DEMO_STORES: &str = "/dev/shm/solera-demo-";
/// Bytes of each of its nodes.
const DEMO_CAPACITY: u64 = 256 << 20;
/// Bytes of a node, at least: a volume's chunk has 2 MiB, and as much is on its way.
const CAPACITY_MIN: u64 = 4 << 20;

/// Runs a node until a signal ends it.
pub fn run(args: &NodeArgs) -> Outcome {
    if let Some(small) = args.capacity.filter(|capacity| *capacity < CAPACITY_MIN) {
        let asked = format!("give a node {}", size::show(small));
        return Err(Failure::new(asked, "that is less than 4 MiB", "give a larger --capacity"));
    }
    let registry = Registry::find()?;
    match args.demo {
        Some(count) => demo(args, count, &registry),
        None => one(args, &registry),
    }
}

/// Becomes true at SIGINT and SIGTERM.
pub fn end() -> Result<Arc<AtomicBool>, Failure> {
    let over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&over))
            .map_err(|error| Failure::io("wait for signals", &error))?;
    }
    Ok(over)
}

/// How nodes talk.
fn wire(args: &NodeArgs, domain: &str, listen: SocketAddr) -> Result<Wire, Failure> {
    let asked = format!("run a node of {domain}");
    let failed = |error: std::io::Error| Failure::new(&asked, error, "");
    let load = |path: &Path| {
        let key = Key::load(path)?;
        key.check_domain(path, domain).map(|()| key)
    };
    let key = args.key.as_deref().map(load).transpose().map_err(failed)?;
    let wire = match (key, args.wire.as_deref()) {
        (_, Some("plain")) | (None, None) => Wire::Plain,
        (Some(key), _) => Wire::Tls(Tls::new(&key).map_err(failed)?),
        (None, Some(_)) => {
            let advice = "give the domain's --key (solera domain create), or --wire plain";
            return Err(Failure::new(asked, "TLS needs the domain's key", advice));
        }
    };
    // Before anything is made.
    wire.check_address(listen.ip()).map_err(failed)?;
    Ok(wire)
}

/// One node of any domain.
fn one(args: &NodeArgs, registry: &Registry) -> Outcome {
    let (Some(domain), Some(listen), Some(store), Some(capacity)) =
        (&args.domain, args.listen, &args.store, args.capacity)
    else {
        return Err(Failure::new("run a node", "options are missing", "see solera node --help"));
    };
    Registry::check_name("domain", domain)?;
    let is_first = args.join.is_none() && Store::at(store.clone()).is_new();
    if is_first {
        registry.check_first(domain, store)?;
    }
    let wire = wire(args, domain, listen)?;
    let over = end()?;
    let node = Node::start(NodeOptions {
        domain: domain.clone(),
        listen,
        store: store.clone(),
        capacity,
        reserve: args.reserve,
        passive: args.passive,
        join: args.join,
        wire,
        metrics: args.metrics,
    })?;
    let store = Store::at(store.clone());
    // Until the end of this function.
    let _name = registry.register(domain, node.number(), &store)?;
    let kept = store.all_kept().len();
    let text = format!(
        "node {} of {domain} at {}, {} in {}; holds pages of {kept} {}\n",
        node.number(),
        node.address(),
        size::show(capacity),
        store.path().display(),
        if kept == 1 { "volume" } else { "volumes" },
    );
    let text = text + &told_of_metrics(&node);
    output::emit(text.as_bytes())?;
    node.run(&over)?;
    Ok(0)
}

/// The line that says where a node's metrics are, if it gives any.
fn told_of_metrics(node: &Node) -> String {
    let line = |at| format!("metrics at http://{at}/metrics\n");
    node.metrics().map_or_else(String::new, line)
}

/// The stores of a demonstration, which go with it.
struct Stores {
    /// The folder that they are in, if it was made for them.
    made: Option<PathBuf>,
    all: Vec<PathBuf>,
}

impl Stores {
    fn create(args: &NodeArgs, count: u16) -> Result<Self, Failure> {
        let folder = args
            .store
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("{DEMO_STORES}{}", std::process::id())));
        let asked = format!("make {count} stores in {}", folder.display());
        let mut builder = fs::DirBuilder::new();
        let made = match builder.mode(0o700).create(&folder) {
            Ok(()) => Some(folder.clone()),
            Err(error) if args.store.is_some() && error.kind() == io::ErrorKind::AlreadyExists => {
                None
            }
            Err(error) => return Err(Failure::io(asked, &error)),
        };
        let mut stores = Self { made, all: Vec::new() };
        for number in 1..=count {
            let store = folder.join(number.to_string());
            builder.create(&store).map_err(|error| {
                Failure::new(
                    &asked,
                    format!("{}: {error}", store.display()),
                    "give another --store",
                )
            })?;
            stores.all.push(store);
        }
        Ok(stores)
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        for store in &self.all {
            if let Err(error) = fs::remove_dir_all(store) {
                output::tell(format!("{} is left: {error}", store.display()));
            }
        }
        if let Some(folder) = &self.made
            && let Err(error) = fs::remove_dir(folder)
        {
            output::tell(format!("{} is left: {error}", folder.display()));
        }
    }
}

/// Removes the stores of demos of this user's that were killed: nobody would find what they have.
fn remove_left() {
    let (dir, prefix) = DEMO_STORES.rsplit_once('/').unwrap_or_default();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for folder in entries.map(|entry| entry.path()) {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_demo = name.strip_prefix(prefix).is_some_and(|pid| pid.parse::<u32>().is_ok());
        if is_demo && is_left(&folder) {
            let shown = folder.display();
            output::tell(match fs::remove_dir_all(&folder) {
                Ok(()) => format!("{shown}: removed; its demo was killed"),
                Err(error) => format!("{shown} is left: {error}"),
            });
        }
    }
}

/// Whether a demo's folder is this user's, and no node uses a store in it.
fn is_left(folder: &Path) -> bool {
    let Ok(meta) = fs::symlink_metadata(folder) else { return false };
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        return false;
    }
    // One that is just being made has no nodes yet.
    let pid = folder.to_str().and_then(|name| name.strip_prefix(DEMO_STORES)?.parse().ok());
    let runs = pid.is_none_or(|pid: u32| Path::new(&format!("/proc/{pid}")).exists());
    let stores = fs::read_dir(folder).into_iter().flatten().flatten();
    !runs && stores.into_iter().all(|store| Store::at(store.path()).lock().is_ok())
}

/// Refuses more than the file system has free.
fn check_room(folder: &Path, bytes: u64) -> Result<(), Failure> {
    let asked = format!("give the nodes {} in {}", size::show(bytes), folder.display());
    let system = rustix::fs::statvfs(folder).map_err(|errno| Failure::outside(&asked, errno))?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if free < bytes {
        let found = format!("{} are free there", size::show(free));
        return Err(Failure::new(asked, found, "give a smaller --capacity, or fewer nodes"));
    }
    Ok(())
}

/// Starts the nodes, each but the first with the first one's address.
fn start(
    stores: &Stores,
    capacity: u64,
    args: &NodeArgs,
    registry: &Registry,
) -> Result<Vec<(Node, Registration)>, DomainError> {
    let mut nodes: Vec<(Node, Registration)> = Vec::new();
    for store in &stores.all {
        let node = Node::start(NodeOptions {
            domain: DEMO.to_owned(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            store: store.clone(),
            capacity,
            reserve: args.reserve,
            passive: false,
            join: nodes.first().map(|first| first.0.address()),
            wire: Wire::Plain,
            metrics: args.metrics.filter(|_| nodes.is_empty()),
        })?;
        let name = registry.register(DEMO, node.number(), &Store::at(store.clone()))?;
        nodes.push((node, name));
    }
    Ok(nodes)
}

/// A domain of several nodes, to try it.
fn demo(args: &NodeArgs, count: u16, registry: &Registry) -> Outcome {
    if !registry.living(DEMO).is_empty() {
        let advice = "use it, or end it first";
        return Err(Failure::new("run a demo", "one runs already", advice));
    }
    let over = end()?;
    let capacity = args.capacity.unwrap_or(DEMO_CAPACITY);
    remove_left();
    let stores = Stores::create(args, count)?;
    let folder = stores.all[0].parent().unwrap_or(&stores.all[0]);
    check_room(folder, capacity.saturating_mul(count.into()))?;
    let nodes = start(&stores, capacity, args, registry)?;
    let text = format!(
        "demo: {count} {} of {} in {}; all that is in them goes when this ends (Ctrl-C)\n\
         Next, elsewhere: solera run --ddmap {DEMO}/v -- sqlite3 /dm/my.db\n",
        if count == 1 { "node" } else { "nodes" },
        size::show(capacity),
        folder.display(),
    );
    let text = text + &nodes.first().map_or_else(String::new, |first| told_of_metrics(&first.0));
    output::emit(text.as_bytes())?;
    thread::scope(|scope| {
        let (mut running, mut result) = (Vec::new(), Ok(0));
        for (node, name) in nodes {
            let over = &over;
            running.push(scope.spawn(move || {
                let ended = node.run(over);
                drop(name);
                // If one fails all end.
                over.store(true, Ordering::Relaxed);
                ended
            }));
        }
        for node in running {
            match node.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => result = Err(error.into()),
                Err(_) => result = Err(Failure::new("run a demo", "a node has panicked", "")),
            }
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn parts_are_read_or_refused() {
        assert_eq!((percent("5%"), percent("0")), (Ok(5), Ok(0)));
        for text in ["", "%", "51%", "-1", "5%%"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }
}
