//! Volumes of domains: how a command finds the region behind `DOMAIN/VOLUME`, and how a new one is
//! made.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use console::failure::Failure;
use console::output::{self, Progress};
use console::size;
use ddmap::{
    JobProgress, LocalReply, LocalRequest, Member, PAGE, REGION, Registry, Room, Standing, Status,
    Store, Turn,
};
use serde_json::{Value, json};
use volume::FormatOptions;

/// Bytes of a volume, at least: as `volume::format` says, which would say it only when the node has
/// the volume already.
const VOLUME_MIN: u64 = 16 << 20;

/// How often it is looked how far an order is.
const LOOK: Duration = Duration::from_millis(50);

/// The region that a path means as `DOMAIN/VOLUME`: where nothing is at the path, and a node of
/// such a domain was started here.
pub fn region(path: &Path) -> Result<Option<PathBuf>, Failure> {
    let Some(name) = path.to_str() else { return Ok(None) };
    let Ok((domain, _)) = Registry::parse(name) else { return Ok(None) };
    if path.symlink_metadata().is_ok() {
        return Ok(None);
    }
    // Who has no runtime directory has no domains.
    let Ok(registry) = Registry::find() else { return Ok(None) };
    if !registry.knows(domain) {
        return Ok(None);
    }
    Ok(Some(registry.resolve(name)?))
}

/// The same for a command that is to use the volume: it waits for its turn.
pub fn to_use(path: &Path) -> Result<Option<PathBuf>, Failure> {
    let region = region(path)?;
    if let Some(name) = path.to_str().filter(|_| region.is_some()) {
        enter(&Registry::find()?, name, (WAIT, HOLD))?;
    }
    Ok(region)
}

/// How long a program waits for a volume, and a command.
pub const WAIT: Duration = Duration::from_mins(1);
/// It goes ahead, on the volume's host, of programs of other nodes that have waited for less.
pub const HOLD: Duration = Duration::from_secs(10);
/// How often a program asks whether its turn has come; after what time it says which processes have
/// the volume.
const ASK: Duration = Duration::from_millis(20);
const SAID: Duration = Duration::from_secs(1);
/// A host has said by then which processes have the volume.
const HEARD: Duration = Duration::from_secs(2);

/// Whether a process that has a volume has started this one, which then asks nobody.
fn is_of_user(region: &Path) -> bool {
    let number = |name: &OsStr| {
        let rest = name.as_bytes().strip_prefix(b"SOLERA_VOLUME");
        rest.is_some_and(|rest| rest.iter().all(|byte| *byte == b'_' || byte.is_ascii_digit()))
    };
    std::env::vars_os().any(|(name, value)| number(&name) && Path::new(&value) == region)
}

/// Waits until it is this process's turn to use a volume on this machine: until the volume is here,
/// and none waits that goes ahead. The volume stays from then on until the process has ended, or
/// has executed one that attaches it.
pub fn enter(
    registry: &Registry,
    name: &str,
    (wait, hold): (Duration, Duration),
) -> Result<(), Failure> {
    // As long as this process runs.
    static TURNS: Mutex<Vec<(String, Turn)>> = Mutex::new(Vec::new());
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_here = registry.is_here(name);
    if is_here {
        let region = registry.resolve(name)?;
        if turns.iter().any(|one| one.0 == name) || is_of_user(&region) {
            return Ok(());
        }
    } else if wait.is_zero() {
        // It says where the volume is.
        return registry.resolve(name).map(drop).map_err(Failure::from);
    }
    let turn = registry.turn(name, hold)?;
    let (begun, mut is_said) = (Instant::now(), false);
    while let Some(waits) = turn.ask()? {
        let waited = begun.elapsed();
        let is_known = waits.users.is_some() || waited > wait + HEARD;
        if waited >= wait && is_known {
            let found = format!("{waits}; waited {} s", waited.as_secs());
            let advice = "end those, or give a longer --wait";
            return Err(Failure::new(format!("use {name}"), found, advice));
        }
        if waited > SAID && is_known && !is_said {
            output::tell(format!("{name}: {waits}; waiting"));
            is_said = true;
        }
        std::thread::sleep(ASK);
    }
    turns.push((name.to_owned(), turn));
    Ok(())
}

/// The store of the volume of a domain whose region has this path, and its name. `None`: it is of
/// none.
pub fn of_region(region: &Path) -> Option<(Store, String)> {
    let real = region.canonicalize().ok()?;
    let folder = real.parent().filter(|_| real.file_name() == Some(REGION.as_ref()))?;
    let (store, name) = (Store::of_volume(folder)?, folder.file_name()?.to_string_lossy());
    let about = store.volume_about(&name).ok()?;
    about.map(|_| (store, name.into_owned()))
}

/// Has a volume's host do what takes a while, and waits until it is done.
pub fn order(
    store: &Store,
    volume: &str,
    asked: &str,
    doing: &str,
    said: &LocalRequest,
) -> Result<(), Failure> {
    let unreached = |errno| {
        let found = format!("its node does not answer: {}", os::describe(errno));
        let advice = "start it, then ask again: what was begun is done, or as before";
        Failure::new(asked, found, advice)
    };
    let odd = || Failure::new(asked, "its node answers something else", "");
    match Registry::ask(store, said).map_err(unreached)? {
        LocalReply::Done => {}
        LocalReply::Refused { text } => return Err(Failure::new(asked, text, "")),
        _ => return Err(odd()),
    }
    let mut progress = Progress::new(doing);
    loop {
        let ask = LocalRequest::Ordered { volume: volume.to_owned() };
        match Registry::ask(store, &ask).map_err(unreached)? {
            LocalReply::Ordered(Some(JobProgress { over: true, failed, .. })) => {
                return failed.map_or(Ok(()), |error| Err(error.into()));
            }
            LocalReply::Ordered(Some(now)) => progress.update(now.done, now.total.max(1)),
            // The node was started anew meanwhile.
            LocalReply::Ordered(None) => {
                let found = "its node was started anew meanwhile";
                return Err(Failure::new(asked, found, "ask again"));
            }
            _ => return Err(odd()),
        }
        std::thread::sleep(LOOK);
    }
}

/// Makes the files of a volume of a domain long enough for a volume of so many bytes, as far as the
/// domain has them.
pub fn grow(region: &Path, (before, wanted): (u64, u64)) -> Result<(), Failure> {
    let Some((store, volume)) = of_region(region) else { return Ok(()) };
    let asked = format!("grow {volume} to {}", size::show(wanted));
    let about = store.about()?.ok_or_else(|| Failure::new(&asked, "its node is gone", ""))?;
    let told = status(&Registry::find()?, &about.domain)?;
    let (all, free) = capacity(&told);
    let promised = store.volume_about(&volume)?.map_or(before, |about| about.pages * PAGE);
    if wanted.saturating_sub(promised) > free {
        let found = format!(
            "no space left: the nodes that answer have {} for volumes, of which {} are promised \
             to none yet, and it has {}{}",
            size::show(all),
            size::show(free),
            size::show(promised),
            told_of_draining(&told)
        );
        let advice = "give a smaller --size, or start another node: solera node --join";
        return Err(Failure::new(asked, found, advice));
    }
    let copies = store.volume_about(&volume)?.map_or(1, |about| about.copies);
    if copies > 1 {
        let more = wanted.saturating_sub(promised).div_ceil(PAGE);
        check_pairs(&asked, &told, about.node, more)?;
    }
    let pages = wanted.div_ceil(PAGE);
    order(&store, &volume, &asked, "growing", &LocalRequest::Grow { volume: volume.clone(), pages })
}

/// Removes a volume of a domain, whose region has this path: what is said of it. `None`: it is of
/// none.
pub fn remove(region: &Path) -> Result<Option<Value>, Failure> {
    let Some((store, volume)) = of_region(region) else { return Ok(None) };
    let asked = format!("remove {volume}");
    let answer = Registry::ask(&store, &LocalRequest::Remove { volume: volume.clone() });
    match answer {
        Ok(LocalReply::Removed { waits_for }) => {
            for node in &waits_for {
                eprintln!(
                    "solera: {volume} is gone; node {node} does not answer, and drops its pages \
                     when it is back"
                );
            }
            Ok(Some(json!({ "removed": region.to_string_lossy(), "waits_for": waits_for })))
        }
        Ok(LocalReply::Refused { text }) => Err(Failure::new(asked, text, "")),
        Ok(_) => Err(Failure::new(asked, "its node answers something else", "")),
        Err(errno) => {
            let found = format!("its node does not answer: {}", os::describe(errno));
            Err(Failure::new(asked, found, &Registry::how_to_start(&store)))
        }
    }
}

/// The path of a volume that was named: of its file, or as `DOMAIN/VOLUME`.
pub fn volume(path: PathBuf) -> Result<PathBuf, Failure> {
    Ok(to_use(&path)?.unwrap_or(path))
}

/// Those of a domain's nodes that were heard of lately.
pub fn living(status: &Status) -> impl Iterator<Item = &Member> {
    status.nodes.iter().filter(|node| node.is_there())
}

/// Refuses what is to have two copies where a host and the other nodes have no room for so many
/// pages more.
pub fn check_pairs(asked: &str, status: &Status, host: u16, pages: u64) -> Result<(), Failure> {
    let room = Room::of(&status.nodes, host);
    if room.holders >= 2 && pages <= room.twice() {
        return Ok(());
    }
    let advice =
        "give a smaller --size, or start another node: solera node --join; or have one copy";
    Err(Failure::new(asked, room.text(pages), advice))
}

/// Which nodes give their pages up, for a message about room: empty, if none does.
pub fn told_of_draining(status: &Status) -> String {
    let draining = living(status).filter(|node| node.standing == Standing::Drains);
    let numbers: Vec<String> = draining.map(|node| node.node.to_string()).collect();
    match numbers.as_slice() {
        [] => String::new(),
        [one] => format!("; node {one} gives its pages up"),
        all => format!("; nodes {} give their pages up", all.join(", ")),
    }
}

/// Bytes that a domain has for volumes: what its nodes have for them; and those of them that no
/// volume was promised.
pub fn capacity(status: &Status) -> (u64, u64) {
    let all: u64 = status.nodes.iter().map(Member::for_volumes).sum();
    // A host that is away has its volumes still; what is away may be so twice.
    let promised: u64 = status.nodes.iter().map(|node| node.promised + node.second()).sum();
    (all * PAGE, all.saturating_sub(promised) * PAGE)
}

/// What the nodes of this machine say, at least one. What each says of itself, the first says too:
/// it hears of the others a second later.
pub fn told(registry: &Registry, domain: &str) -> Result<Vec<Status>, Failure> {
    let mut told = registry.status(domain)?;
    let own = |status: &Status| status.nodes.iter().find(|one| one.node == status.node).cloned();
    let own: Vec<Member> = told.iter().filter_map(own).collect();
    for node in told.first_mut().into_iter().flat_map(|first| &mut first.nodes) {
        if let Some(own) = own.iter().find(|own| own.node == node.node) {
            // Its standing is the first node's to say.
            *node = Member { standing: node.standing.max(own.standing), ..own.clone() };
        }
    }
    Ok(told)
}

/// The first of them.
pub fn status(registry: &Registry, domain: &str) -> Result<Status, Failure> {
    Ok(told(registry, domain)?.swap_remove(0))
}

/// Bytes of a host that are for pages that come and go, at least.
const FOR_PAGES: u64 = 2 << 20;

/// Refuses a volume of which so many bytes always stay with its host, which has not got them.
fn check_host(asked: &str, registry: &Registry, store: &Store, stays: u64) -> Result<(), Failure> {
    let Some(about) = store.about()? else { return Ok(()) };
    let told = told(registry, &about.domain)?;
    let Some(host) = told.iter().find(|status| status.node == about.node) else { return Ok(()) };
    let capacity =
        host.nodes.iter().find(|one| one.node == about.node).map_or(0, |one| one.capacity);
    let taken: u64 = host.volumes.iter().map(|volume| volume.stays).sum();
    let free = capacity.saturating_sub(taken) * PAGE;
    if stays + FOR_PAGES <= free {
        return Ok(());
    }
    let found = format!(
        "{} of it always stay on its host, and {} more are needed for pages that come and go; node \
         {} has {} for both",
        size::show(stays),
        size::show(FOR_PAGES),
        about.node,
        size::show(free),
    );
    Err(Failure::new(
        asked,
        found,
        "give that node a larger --capacity, or the volume a smaller --size",
    ))
}

/// Makes a volume of a domain on a node of this machine: gives its region.
pub fn make(
    registry: &Registry,
    name: &str,
    (size, copies): (u64, u8),
    options: FormatOptions,
) -> Result<PathBuf, Failure> {
    let (domain, volume) = Registry::parse(name)?;
    let asked = format!("make {name} of {}", size::show(size));
    let store = registry.store_for_new(domain)?;
    if registry.living(domain).iter().any(|(_, other)| other.volumes().iter().any(|v| v == volume))
    {
        let advice = "choose another name, or use that one: solera run --ddmap";
        return Err(Failure::new(asked, "the domain has a volume of that name", advice));
    }
    if let Some((host, address)) = registry.host(name)? {
        let found = format!("node {host} at {address} is the host of a volume of that name");
        return Err(Failure::new(asked, found, "choose another name"));
    }
    if size < VOLUME_MIN {
        let found = format!("a volume needs {}", size::show(VOLUME_MIN));
        return Err(Failure::new(asked, found, "give a larger --size"));
    }
    let told = status(registry, domain)?;
    if let Some(about) = store.about()?.filter(|_| copies > 1) {
        check_pairs(&asked, &told, about.node, size.div_ceil(PAGE))?;
    }
    let (all, free) = capacity(&told);
    if size > free {
        let found = format!(
            "its {} nodes that answer have {} for volumes, of which {} are promised to none yet{}",
            living(&told).count(),
            size::show(all),
            size::show(free),
            told_of_draining(&told)
        );
        let advice = "give a smaller --size, or start another node: solera node --join";
        return Err(Failure::new(asked, found, advice));
    }
    check_host(&asked, registry, &store, volume::own_bytes(size, &options)?)?;
    let folder = store.create_volume(volume, size, copies)?;
    let region = folder.join(REGION);
    let options = FormatOptions { size: None, force: true, ..options };
    match output::busy("formatting", || volume::format(&region, &options)) {
        Ok(()) => Ok(region),
        Err(error) => {
            // What is left of it is of no use, and named by the error.
            let _ = std::fs::remove_dir_all(&folder);
            Err(error.into())
        }
    }
}
