//! What is here: mounts, volumes, caches, domains.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use console::output::Progress;
use console::size::{self, percent};
use ddmap::{Registry, Standing};
use flac::VolumeId;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};
use serde_json::json;
use vfs::mounts::{self, Mount};
use volume::{FsckOptions, FsckReport, Info};

use super::{Finding, State, in_time};
use crate::commands::info;
use crate::domains;

/// Looks at all of them; closely at the volumes that are named.
pub fn look(named: &[PathBuf]) -> Vec<Finding> {
    let mounts = mounts::list().unwrap_or_default();
    let mut all: Vec<Finding> = mounts.iter().map(mount).collect();
    let others = others(named, &mounts);
    let volumes = named.iter().map(|path| (path, true));
    all.extend(volumes.chain(others.iter().map(|path| (path, false))).map(volume));
    if mounts.is_empty() {
        all.insert(0, Finding::works("mount", "none"));
    }
    if named.is_empty() && others.is_empty() {
        all.push(Finding::works("volume", "none found"));
    }
    all.extend(or_none("cache", caches()));
    all.extend(or_none("domain", all_domains()));
    all
}

fn or_none(subject: &'static str, found: Vec<Finding>) -> Vec<Finding> {
    if found.is_empty() { vec![Finding::works(subject, "none")] } else { found }
}

/// Names in a directory; none where it cannot be read.
pub fn names_in(directory: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// Where file systems with DAX are mounted.
pub fn dax_mounts() -> Vec<PathBuf> {
    let told = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_dax = |option: &str| matches!(option, "dax" | "dax=always" | "dax=inode");
    let at = told.lines().filter_map(|line| {
        let [_, at, _, options, ..] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        options.split(',').any(is_dax).then(|| PathBuf::from(at))
    });
    at.collect()
}

// ---- mounts -------------------------------------------------------------------------------------

fn mount(mount: &Mount) -> Finding {
    let (at, volume) = (mount.at.display(), mount.volume.display());
    let asked = mount.at.clone();
    let again = format!("solera umount {at} && solera mount {volume} {at}");
    let values = json!({ "at": mount.at, "volume": mount.volume, "read_only": mount.read_only });
    let asking = mount.clone();
    match in_time(move || (rustix::fs::stat(&asked).map(drop), asking.serves())) {
        None => Finding::broken(
            "mount",
            format!("{at} does not answer: its process stands still"),
            "let it go on (SIGCONT), or kill it and mount again",
        ),
        Some((Err(Errno::NOTCONN | Errno::CONNABORTED), _)) => {
            Finding::broken("mount", format!("{at}: its process has died"), again)
        }
        Some((Err(errno), _)) => {
            let found = format!("{at}: {}", os::describe(errno));
            Finding::less("mount", found, "another user's mount is closed: ask that user, or root")
        }
        Some((Ok(()), serves)) if mount.has_lost_its_file(serves.as_ref()) => {
            let found = format!("{at} serves a file that is no longer at {volume}");
            Finding::broken("mount", found, format!("copy out what is needed, then {again}"))
        }
        Some((Ok(()), _)) => {
            let only = if mount.read_only { ", read-only" } else { "" };
            Finding::works("mount", format!("{at} serves {volume}{only}"))
        }
    }
    .with(values)
}

// ---- volumes ------------------------------------------------------------------------------------

/// Bytes of a file that may be a volume, at least.
const VOLUME_LEAST: u64 = 4 << 20;

/// Volumes that are not named: see the command's help.
fn others(named: &[PathBuf], mounts: &[Mount]) -> Vec<PathBuf> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let mut known: Vec<_> = named.iter().filter_map(|path| identity(path)).collect();
    let mut places = vec![PathBuf::from("/dev/shm")];
    places.extend(dax_mounts());
    let in_places = places.iter().flat_map(|place| names_in(place).map(|name| place.join(name)));
    let mut candidates: Vec<PathBuf> = in_places.filter(|path| may_be_volume(path)).collect();
    candidates.sort();
    let mounted = mounts.iter().map(|mount| mount.volume.clone());
    let all = mounted.chain(configured()).chain(candidates);
    all.filter(|path| {
        let found = identity(path);
        let is_new = found.is_none_or(|found| !known.contains(&found));
        known.extend(found);
        is_new
    })
    .collect()
}

/// A file that holds a volume, or beside which there is an anchor.
fn may_be_volume(path: &Path) -> bool {
    let is_file =
        path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() >= VOLUME_LEAST);
    is_file && (anchor_of(path).is_dir() || volume::uuid_of(path).is_ok())
}

fn anchor_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".solera");
    name.into()
}

/// Volumes that the units of systemd mount.
fn configured() -> Vec<PathBuf> {
    let folder = Path::new("/etc/solera");
    let is_file = |name: &String| Path::new(name).extension().is_some_and(|kind| kind == "conf");
    let files = names_in(folder).filter(is_file);
    let volume = |name: String| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        let value = text.lines().find_map(|line| line.trim().strip_prefix("VOLUME="))?;
        Some(PathBuf::from(value.trim_matches('"')))
    };
    let mut all: Vec<PathBuf> = files.filter_map(volume).collect();
    all.sort();
    all
}

fn volume((path, is_named): (&PathBuf, bool)) -> Finding {
    let shown = path.display();
    match access_of(path) {
        Ok(()) => {}
        Err((found, advice)) if is_named => {
            return Finding::broken("volume", format!("{shown}: {found}"), advice);
        }
        Err((found, advice)) => {
            return Finding::less("volume", format!("{shown}: {found}"), advice);
        }
    }
    let asked = path.clone();
    let told = match in_time(move || volume::info(&asked)) {
        None => {
            let found = format!("{shown} is not read in time: a process stands still in a call");
            return Finding::broken(
                "volume",
                found,
                "see which: solera top; let it go on, or kill it",
            );
        }
        Some(Err(error)) => return Finding::broken("volume", error.to_string(), ""),
        Some(Ok(told)) => told,
    };
    let is_idle = told.attached.is_empty();
    let checked = (is_named && is_idle).then(|| check(path));
    let (state, remarks, advice) = judge(path, &told, checked.as_ref());
    let used = percent(told.size_bytes - told.free_bytes, told.size_bytes);
    let mut found = format!(
        "{shown}: {}, {used:.0} % used, class {}, {}",
        size::show(told.size_bytes),
        told.class,
        match told.attached.len() {
            0 => "not in use".to_owned(),
            1 => "in use by 1 process".to_owned(),
            count => format!("in use by {count} processes"),
        },
    );
    for remark in remarks {
        found = format!("{found}; {remark}");
    }
    let mut values = info::to_json(&told);
    values["path"] = json!(path);
    // It is the user's own name for it.
    values.as_object_mut().map(|values| values.remove("label"));
    if let Some(Ok(report)) = &checked {
        values["faults"] = json!(report.faults.len() as u64 + report.faults_omitted);
    }
    Finding { advice, ..Finding::new(state, "volume", found) }.with(values)
}

/// Whether this user may use a volume's file: why not, and what to do.
fn access_of(path: &Path) -> Result<(), (String, String)> {
    let found = fs::metadata(path).map_err(|error| {
        let why = Errno::from_io_error(&error).map_or_else(|| error.to_string(), os::describe);
        (why, "check the path, or make a volume: solera format".to_owned())
    })?;
    let kind = found.file_type();
    if !kind.is_file() && !kind.is_char_device() && !kind.is_block_device() {
        return Err(("it is no file and no device".to_owned(), String::new()));
    }
    let may = |wanted| access(path, wanted).is_ok();
    let (user, mode) = (geteuid().as_raw(), found.permissions().mode() & 0o7777);
    let whose = format!("mode {mode:04o}, of user {}", found.uid());
    let advice = "run as its owner, or give the file a group and mode 0660";
    if may(Access::READ_OK) {
        Ok(())
    } else {
        Err((format!("user {user} may not read it ({whose})"), advice.to_owned()))
    }
}

/// As `solera fsck` would, of a volume that nobody uses.
fn check(path: &Path) -> Result<FsckReport, String> {
    let mut progress = Progress::new("checking");
    let options = FsckOptions::default();
    volume::fsck(path, &options, &mut |done, total| progress.update(done, total))
        .map_err(|error| error.to_string())
}

/// Of which less than so much is free it is as good as full.
const FULL: f64 = 2.0;

/// How a volume is, what to say about it, and what to do.
fn judge(
    path: &Path,
    told: &Info,
    checked: Option<&Result<FsckReport, String>>,
) -> (State, Vec<String>, String) {
    let shown = path.display();
    let mut state = State::Works;
    let (mut remarks, mut advice) = (Vec::new(), Vec::new());
    let mut remark = |worse: State, text: String, what: String| {
        if worse == State::Broken || state == State::Works {
            state = worse;
        }
        remarks.push(text);
        if !what.is_empty() {
            advice.push(what);
        }
    };
    match checked {
        Some(Err(error)) => remark(State::Broken, error.clone(), String::new()),
        Some(Ok(report)) if !report.faults.is_empty() => {
            let count = report.faults.len() as u64 + report.faults_omitted;
            let found = format!("{count} faults, so it can be read only");
            let what =
                format!("solera fsck {shown} names them, solera fsck --repair {shown} mends");
            remark(State::Broken, found, what);
        }
        Some(Ok(_)) => remark(State::Works, "no fault".to_owned(), String::new()),
        None => {}
    }
    let space = getrlimit(Resource::As).current;
    if let Some(space) = space.filter(|space| *space < told.size_bytes) {
        let found =
            format!("it is larger than the address space, {} (ulimit -v)", size::show(space));
        remark(State::Broken, found, "raise the limit".to_owned());
    }
    if access(path, Access::WRITE_OK).is_err() {
        let found = "this user may only read it".to_owned();
        remark(State::Less, found, "solera run --read-only".to_owned());
    }
    if told.class == "page" {
        let found = "on an ordinary disk: a power cut may tear what is written".to_owned();
        let what = "for looking at a copy only; writing takes --class page".to_owned();
        remark(State::Less, found, what);
    }
    if told.missing_bytes > 0 {
        let lacks = size::show(told.missing_bytes);
        let found = format!("the file system beneath lacks {lacks} of it");
        remark(State::Less, found, "make room there, or calls give ENOSPC".to_owned());
    }
    if percent(told.free_bytes, told.size_bytes) < FULL {
        let what = format!("solera grow --size SIZE {shown}, or remove files");
        remark(State::Less, "it is full".to_owned(), what);
    }
    if !told.clean && told.attached.is_empty() {
        let found = "not left in order: the next program recovers it".to_owned();
        remark(State::Works, found, String::new());
    }
    (state, remarks, advice.join("; "))
}

// ---- caches and domains -------------------------------------------------------------------------

fn caches() -> Vec<Finding> {
    let look = |one: flac::CacheListing| {
        let place = one.place.display();
        let values = json!({ "uuid": one.uuid, "place": one.place, "used_bytes": one.used });
        let owner = fs::symlink_metadata(&one.place).map_or(0, |found| found.uid());
        let whose = VolumeId { uuid: one.uuid.clone(), owner };
        match (one.used, flac::status(&whose, None)) {
            (None, _) => Finding::less(
                "cache",
                format!("{place} is another user's, or others may write it: it is not used"),
                "remove it, or name another place: --cache-dir",
            ),
            (Some(_), Err(found)) => {
                let advice = format!("solera cache destroy --uuid {}", one.uuid);
                Finding::broken("cache", format!("{place}: {found}"), advice)
            }
            (Some(_), Ok(told)) if told.budget == 0 => {
                let found = format!("{place} holds nothing: the next program makes it anew");
                Finding::works("cache", found)
            }
            (Some(used), Ok(told)) => {
                let (used, budget) = (size::show(used), size::show(told.budget));
                Finding::works("cache", format!("{place}: {used} of {budget}"))
            }
        }
        .with(values)
    };
    flac::list(None).into_iter().map(look).collect()
}

fn all_domains() -> Vec<Finding> {
    let registry = match Registry::find() {
        Ok(registry) => registry,
        Err(error) => return vec![Finding::less("domain", error.found, error.advice)],
    };
    registry.domains().iter().flat_map(|domain| nodes(&registry, domain)).collect()
}

/// The nodes of a domain that were started here, and what they say of the others.
fn nodes(registry: &Registry, domain: &str) -> Vec<Finding> {
    let living = registry.living(domain);
    let is_dead = |number: &u16| !living.iter().any(|(other, _)| other == number);
    let mut all = Vec::new();
    for (number, store) in registry.nodes(domain) {
        if is_dead(&number) {
            let found = format!("{domain}: node {number} was started here, and does not run");
            let store = store.path().display();
            // With the address that it had, which a report does not tell.
            let again =
                format!("start it as before: solera node --domain {domain} --store {store}");
            let finding = Finding::broken("domain", found, again);
            all.push(finding.with(json!({ "domain": domain, "node": number })));
        }
    }
    if living.is_empty() {
        return all;
    }
    let told = match domains::told(registry, domain) {
        Ok(told) => told,
        Err(failure) => {
            all.push(Finding::broken("domain", failure.to_string(), ""));
            return all;
        }
    };
    let Some(first) = told.first() else { return all };
    let members = first.nodes.iter().filter(|node| node.standing != Standing::Gone);
    let silent: Vec<String> = members
        .clone()
        .filter(|node| !node.is_there())
        .map(|node| format!("node {} for {} s", node.node, node.silent))
        .collect();
    let (capacity, free) = domains::capacity(first);
    let values = json!({
        "domain": domain,
        "asked": told.iter().map(|status| status.node).collect::<Vec<_>>(),
        "nodes": members.clone().count(),
        "silent": silent,
        "capacity_bytes": capacity,
        "free_bytes": free,
        "volumes": told.iter().map(|status| status.volumes.len()).sum::<usize>(),
    });
    let found = format!(
        "{domain}: {} nodes, {} for volumes, {} of it promised to none",
        members.count(),
        size::show(capacity),
        size::show(free)
    );
    let finding = if silent.is_empty() {
        Finding::works("domain", found)
    } else {
        let found = format!("{found}; silent: {}", silent.join(", "));
        let advice = "start them again; what they keep waits, or is lost with their stores";
        Finding::broken("domain", found, advice)
    };
    all.push(finding.with(values));
    all
}
