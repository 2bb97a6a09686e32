//! Where a machine's commands find a domain's nodes: a folder of this user's in the machine's
//! runtime directory, in which each node that runs has a name.
//!
//! ```text
//! DIR/domains/NAME/NODE       a symlink to the node's store
//! ```
//!
//! DIR is `$XDG_RUNTIME_DIR/solera` where that directory exists, else `/run/solera` of root, else
//! `/tmp/solera-UID`, which must be this user's alone. A node makes its name when it has started
//! and removes it when it ends; the name of one that was killed stays, and counts for nothing,
//! since nobody answers at its store's socket.

use crate::control::local_socket::{Local, LocalReply, LocalRequest};
use crate::control::status::{Status, Waits};
use crate::protocol::PAGE;
use crate::shared_memory::error::DomainError;
use crate::shared_memory::store::{Listed, Store};
use crate::shared_memory::view::REGION;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a node may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(5);
/// Characters of a name, at most.
const NAME_MAX: usize = 64;

/// A folder that is this user's alone: others could put their own stores in place.
fn check_alone(folder: &Path) -> Result<(), DomainError> {
    let asked = format!("look for nodes in {}", folder.display());
    let found = match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DomainError::io(asked, "the folder", &error)),
        Ok(found) => found,
    };
    let me = rustix::process::geteuid().as_raw();
    let wrong = if !found.is_dir() {
        "it is no directory".to_owned()
    } else if found.uid() != me {
        format!("it is of user {}, not of user {me}", found.uid())
    } else if found.mode() & 0o077 != 0 {
        format!("it has mode {:04o}, so others may change it", found.mode() & 0o7777)
    } else {
        return Ok(());
    };
    let advice = "set XDG_RUNTIME_DIR to a directory of your own, or have that one removed";
    Err(DomainError::new(asked, wrong, advice))
}

/// The names of the nodes that run on this machine.
#[derive(Clone, Debug)]
pub struct Registry {
    /// The runtime directory.
    folder: PathBuf,
    /// Whether the directory above is open to every user.
    in_public: bool,
}

/// A program that is to use a volume: it waits as long as this is there, and has been let in until
/// it executes another program or ends.
#[derive(Debug)]
pub struct Turn {
    socket: Local,
    asked: String,
    said: LocalRequest,
}

impl Turn {
    fn begin(store: &Store, name: &str, volume: &str, hold: Duration) -> Result<Self, DomainError> {
        let asked = format!("use {name}");
        let failed = |errno: Errno| {
            let found = format!("its node does not answer: {}", os::describe(errno));
            DomainError::new(&asked, found, Registry::how_to_start(store))
        };
        let socket = Local::connect(store).map_err(failed)?;
        socket.set_patience(PATIENCE).map_err(failed)?;
        let said = LocalRequest::Want { volume: volume.to_owned(), hold: hold.as_millis() as u64 };
        Ok(Self { socket, asked, said })
    }

    /// Whether its turn has come; if not, what it waits for.
    pub fn ask(&self) -> Result<Option<Waits>, DomainError> {
        let failed = |found: String| DomainError::new(&self.asked, found, "ask again");
        match self.socket.ask(&self.said, &[]) {
            Ok(LocalReply::Done) => Ok(None),
            Ok(LocalReply::Waits(Waits { ended: Some(why), .. })) => {
                Err(DomainError::new(&self.asked, why, ""))
            }
            Ok(LocalReply::Waits(waits)) => Ok(Some(waits)),
            Ok(LocalReply::Refused { text }) => Err(failed(text)),
            Ok(_) => Err(failed("its node answers something else".to_owned())),
            Err(errno) => Err(failed(format!("its node does not answer: {}", os::describe(errno)))),
        }
    }
}

/// A node's name, until it ends.
#[derive(Debug)]
pub struct Registration {
    name: PathBuf,
    store: PathBuf,
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Another node may have taken the name meanwhile. One that cannot be removed counts for
        // nothing.
        if fs::read_link(&self.name).is_ok_and(|store| store == self.store) {
            let _ = fs::remove_file(&self.name);
        }
    }
}

impl Registry {
    /// This user's.
    pub fn find() -> Result<Self, DomainError> {
        let user = rustix::process::geteuid();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let registry = match runtime.filter(|path| path.is_absolute() && path.is_dir()) {
            Some(runtime) => Self::at(runtime.join("solera")),
            None if user.is_root() => Self::at(PathBuf::from("/run/solera")),
            None => Self {
                folder: PathBuf::from(format!("/tmp/solera-{}", user.as_raw())),
                in_public: true,
            },
        };
        registry.check()?;
        Ok(registry)
    }

    /// The one in a folder.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder, in_public: false }
    }

    fn check(&self) -> Result<(), DomainError> {
        if self.in_public { check_alone(&self.folder) } else { Ok(()) }
    }

    fn domain(&self, domain: &str) -> PathBuf {
        self.folder.join("domains").join(domain)
    }

    /// Whether a node of a domain was ever started here.
    pub fn knows(&self, domain: &str) -> bool {
        Registry::check_name("domain", domain).is_ok() && !self.nodes(domain).is_empty()
    }

    /// The domains of which a node was ever started here.
    pub fn domains(&self) -> Vec<String> {
        let names = os::names_in(&self.folder.join("domains")).unwrap_or_default();
        let names = names.into_iter().filter_map(|name| name.into_string().ok());
        let mut domains: Vec<String> = names.filter(|name| self.knows(name)).collect();
        domains.sort();
        domains
    }

    /// A domain's nodes that have a name, in the order of their numbers.
    pub fn nodes(&self, domain: &str) -> Vec<(u16, Store)> {
        let folder = self.domain(domain);
        let node = |name: std::ffi::OsString| {
            let number = name.to_str()?.parse().ok()?;
            Some((number, Store::at(fs::read_link(folder.join(name)).ok()?)))
        };
        let names = os::names_in(&folder).unwrap_or_default();
        let mut nodes: Vec<(u16, Store)> = names.into_iter().filter_map(node).collect();
        nodes.sort_by_key(|one| one.0);
        nodes
    }

    /// Those of them that answer.
    pub fn living(&self, domain: &str) -> Vec<(u16, Store)> {
        let mut nodes = self.nodes(domain);
        nodes.retain(|one| lives(&one.1));
        nodes
    }

    /// Gives a node that has started its name. The name of one that is dead is taken.
    pub fn register(
        &self,
        domain: &str,
        node: u16,
        store: &Store,
    ) -> Result<Registration, DomainError> {
        let asked = format!("register node {node} of {domain}");
        Registry::check_name("domain", domain)?;
        let folder = self.domain(domain);
        let name = folder.join(node.to_string());
        let failed = |error: io::Error| {
            let advice = "set XDG_RUNTIME_DIR to a directory of your own";
            DomainError::new(&asked, format!("{}: {error}", name.display()), advice)
        };
        let mode = if self.in_public { 0o700 } else { 0o755 };
        let base = fs::DirBuilder::new().recursive(true).mode(mode).create(&self.folder);
        base.map_err(failed)?;
        self.check()?;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(failed)?;
        let store = os::real_path(store.path()).map_err(failed)?;
        if let Some(other) = self.other(domain, node, &store) {
            return Err(another(asked, &other));
        }
        let new = folder.join(format!(".{node}-{}", std::process::id()));
        symlink(&store, &new).and_then(|()| fs::rename(&new, &name)).map_err(failed)?;
        Ok(Registration { name, store })
    }

    /// The store of another node of this number that runs on this machine.
    fn other(&self, domain: &str, node: u16, store: &Path) -> Option<PathBuf> {
        let other = fs::read_link(self.domain(domain).join(node.to_string())).ok()?;
        (other != store && lives(&Store::at(other.clone()))).then_some(other)
    }

    /// Refuses to begin a domain, with a node that joins none, whose first node runs here already.
    pub fn check_first(&self, domain: &str, store: &Path) -> Result<(), DomainError> {
        let real = os::real_path(store).unwrap_or_else(|_| store.to_owned());
        match self.other(domain, 1, &real) {
            Some(other) => Err(another(format!("begin {domain} as node 1 of {domain}"), &other)),
            None => Ok(()),
        }
    }

    /// How a domain is, as each of its nodes on this machine says; at least one does.
    pub fn status(&self, domain: &str) -> Result<Vec<Status>, DomainError> {
        Registry::check_name("domain", domain)?;
        let asked = format!("ask a node of {domain}");
        let mut silent = None;
        let mut told = Vec::new();
        for (number, store) in self.living(domain) {
            match ask(&store) {
                Ok(status) => told.push(status),
                Err(errno) => {
                    silent = Some(format!("node {number} says {}", os::describe(errno)));
                }
            }
        }
        match (told.is_empty(), silent) {
            (false, _) => Ok(told),
            (true, Some(found)) => Err(DomainError::new(asked, found, "start it again")),
            (true, None) => Err(none_runs(asked, domain)),
        }
    }

    /// Asks a node of this machine to do something.
    pub fn order(&self, domain: &str, said: &LocalRequest) -> Result<LocalReply, DomainError> {
        Registry::check_name("domain", domain)?;
        let asked = format!("ask a node of {domain}");
        let Some((number, store)) = self.living(domain).into_iter().next() else {
            return Err(none_runs(asked, domain));
        };
        Registry::ask(&store, said).map_err(|errno| {
            let found = format!("node {number} says {}", os::describe(errno));
            DomainError::new(asked, found, "start it again")
        })
    }

    /// The region of `DOMAIN/VOLUME`, on the node that is its host.
    pub fn resolve(&self, name: &str) -> Result<PathBuf, DomainError> {
        let (domain, volume) = Registry::parse(name)?;
        let asked = format!("find {name}");
        let nodes = self.nodes(domain);
        let has = |one: &&(u16, Store)| matches!(one.1.volume_about(volume), Ok(Some(_)));
        let hosts: Vec<&(u16, Store)> = nodes.iter().filter(has).collect();
        if let Some((_, store)) = hosts.iter().find(|one| lives(&one.1)) {
            return Ok(store.volume(volume).join(REGION));
        }
        if let Some((number, store)) = hosts.first() {
            let advice = Registry::how_to_start(store);
            let store = store.path().display();
            let found = format!("node {number}, which is its host, does not answer in {store}");
            return Err(DomainError::new(asked, found, advice));
        }
        let living = self.living(domain);
        if living.is_empty() {
            return Err(none_runs(asked, domain));
        }
        // A node that does not say it does not know either.
        if let Ok(Some((host, address))) = self.host(name) {
            let here = living[0].0;
            let found = format!("node {host} at {address} is its host, and not on this machine");
            let advice = format!(
                "use it there, or have it moved here, by this command there: solera domain move \
                 {name} --to {here}"
            );
            return Err(DomainError::new(asked, found, advice));
        }
        let gone = |(node, store): &(u16, Store)| {
            let moved = store.gone().into_iter().find(|moved| moved.name == volume);
            moved.map(|moved| (*node, moved))
        };
        if let Some((here, moved)) = living.iter().find_map(gone) {
            let found = format!("it has moved to node {}, which has not said so yet", moved.node);
            let advice = format!(
                "start that node, or wait a moment; if it will not come back: solera domain forget \
                 {domain} {}, then solera domain move {name} --to {here}",
                moved.node
            );
            return Err(DomainError::new(asked, found, advice));
        }
        let numbers: Vec<String> = living.iter().map(|one| one.0.to_string()).collect();
        let found = match numbers.as_slice() {
            [one] => format!("node {one}, which alone runs here, is not the host of such a volume"),
            all => format!("none of the nodes {} here is its host", all.join(", ")),
        };
        let advice = format!("make it: solera format --ddmap {name} --size SIZE");
        Err(DomainError::new(asked, found, advice))
    }

    /// The node that is the host of `DOMAIN/VOLUME`, of those that answer, and where it is reached.
    pub fn host(&self, name: &str) -> Result<Option<(u16, SocketAddr)>, DomainError> {
        let (domain, volume) = Registry::parse(name)?;
        let said = LocalRequest::Where { volume: volume.to_owned() };
        if let LocalReply::Host(host) = self.order(domain, &said)? {
            return Ok(host);
        }
        let found = "its node answers something else";
        Err(DomainError::new(format!("find {name}"), found, "use one build on all nodes"))
    }

    /// The store in which a new volume of a domain is made: of the node here with the lowest number
    /// that runs programs.
    pub fn store_for_new(&self, domain: &str) -> Result<Store, DomainError> {
        let asked = format!("make a volume of {domain}");
        let told = self.status(domain).map_err(|error| DomainError { asked, ..error })?;
        let active = |status: &&Status| {
            let own = status.nodes.iter().find(|one| one.node == status.node);
            own.is_some_and(|one| !one.passive)
        };
        let node = told.iter().filter(active).map(|status| status.node).min();
        let mut nodes = self.nodes(domain).into_iter();
        nodes.find(|one| Some(one.0) == node).map(|one| one.1).ok_or_else(|| {
            DomainError::new(
                format!("make a volume of {domain}"),
                "its nodes on this machine are passive, and run no programs",
                "start one here without --passive",
            )
        })
    }

    /// Where a program waits for `DOMAIN/VOLUME` that is to use it on this machine: at the node
    /// that is its host, else at the first here that runs programs.
    pub fn turn(&self, name: &str, hold: Duration) -> Result<Turn, DomainError> {
        let (domain, volume) = Registry::parse(name)?;
        let asked = format!("ask for {name}");
        let living = self.living(domain);
        let has = |one: &&(u16, Store)| matches!(one.1.volume_about(volume), Ok(Some(_)));
        let store = match living.iter().find(has) {
            Some((_, store)) => store.clone(),
            None => self.store_for_new(domain).map_err(|error| DomainError { asked, ..error })?,
        };
        Turn::begin(&store, name, volume, hold)
    }

    /// Whether the host of `DOMAIN/VOLUME` is on this machine, or was until its node ended.
    pub fn is_here(&self, name: &str) -> bool {
        let Ok((domain, volume)) = Registry::parse(name) else { return false };
        let has = |one: &(u16, Store)| matches!(one.1.volume_about(volume), Ok(Some(_)));
        self.nodes(domain).iter().any(has)
    }

    /// Refuses what is no name of a domain or a volume. `what` says of which.
    pub fn check_name(what: &str, name: &str) -> Result<(), DomainError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !name.is_empty()
            && name.len() <= NAME_MAX
            && name.bytes().all(fits)
            && !name.starts_with('.')
        {
            return Ok(());
        }
        Err(DomainError::new(
            format!("name a {what} `{name}`"),
            "that is no such name",
            format!(
                "give 1 to {NAME_MAX} of the characters A-Z a-z 0-9 . _ - with no dot in front"
            ),
        ))
    }

    /// The domain and the volume of `DOMAIN/VOLUME`.
    pub fn parse(name: &str) -> Result<(&str, &str), DomainError> {
        let Some((domain, volume)) = name.split_once('/') else {
            let found = "a volume of a domain is meant";
            return Err(DomainError::new(format!("find `{name}`"), found, "give DOMAIN/VOLUME"));
        };
        Self::check_name("domain", domain)?;
        Self::check_name("volume", volume)?;
        Ok((domain, volume))
    }

    /// Asks the node of a store to do something.
    pub fn ask(store: &Store, said: &LocalRequest) -> Result<LocalReply, Errno> {
        let socket = Local::connect(store)?;
        socket.set_patience(PATIENCE)?;
        socket.ask(said, &[])
    }

    /// How the node is started again that has a store: where it was, with what it had.
    pub fn how_to_start(store: &Store) -> String {
        let Ok(Some(about)) = store.about() else { return "start it: solera node".to_owned() };
        let its = |one: &Listed| one.0.number() == about.node;
        let listen = store
            .members()
            .into_iter()
            .find(its)
            .map_or_else(|| "ADDR:PORT".to_owned(), |(_, address, ..)| address.to_string());
        let bytes = store.open_room().map_or(0, |room| room.capacity() * PAGE);
        let capacity = match (bytes, bytes.is_multiple_of(1 << 20)) {
            (0, _) => "SIZE".to_owned(),
            (_, true) => format!("{}M", bytes >> 20),
            _ => bytes.to_string(),
        };
        format!(
            "start it: solera node --domain {} --store {} --listen {listen} --capacity {capacity} \
             (and --key, if the domain has one)",
            about.domain,
            store.path().display()
        )
    }
}

fn none_runs(asked: String, domain: &str) -> DomainError {
    let advice = format!(
        "start one: solera node --domain {domain} --listen ADDR:PORT --store DIR --capacity SIZE"
    );
    DomainError::new(asked, format!("no node of {domain} runs on this machine"), advice)
}

fn lives(store: &Store) -> bool {
    Local::connect(store).is_ok()
}

fn ask(store: &Store) -> Result<Status, Errno> {
    match Registry::ask(store, &LocalRequest::Status)? {
        LocalReply::Status(status) => Ok(status),
        _ => Err(Errno::BADMSG),
    }
}

fn another(asked: String, other: &Path) -> DomainError {
    let found = format!("another one, in {}, runs on this machine", other.display());
    let advice = "give --join its address to be a node of its domain, or choose another domain";
    DomainError::new(asked, found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::local_socket;
    use crate::protocol::NodeId;
    use std::os::unix::fs::PermissionsExt;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = format!("/dev/shm/solera-{name}-{}", std::process::id());
            fs::create_dir(&path).unwrap();
            Self(PathBuf::from(path))
        }

        fn store(&self, name: &str) -> Store {
            let store = Store::create(&self.0.join(name)).unwrap();
            store.set_about("dm", NodeId::new(1).unwrap(), 7).unwrap();
            store
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        for name in ["a", "A.b-c_9", &"x".repeat(64)] {
            Registry::check_name("domain", name).unwrap();
        }
        for name in ["", ".", "..", ".a", "a b", "a/b", "ä", "a\n", &"x".repeat(65)] {
            assert!(Registry::check_name("domain", name).is_err(), "{name}");
        }
        assert_eq!(Registry::parse("dm/big"), Ok(("dm", "big")));
        for name in ["dm", "dm/", "/big", "dm/../x", "dm/a/b"] {
            assert!(Registry::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_name_goes_to_the_node_that_answers() {
        let folder = Folder::new("registry");
        let registry = Registry::at(folder.0.join("run"));
        let (first, second) = (folder.store("a"), folder.store("b"));
        assert!(!registry.knows("dm"));
        let living = local_socket::listen(&first).unwrap();
        let one = registry.register("dm", 1, &first).unwrap();
        assert_eq!(registry.living("dm").len(), 1);
        let error = registry.register("dm", 1, &second).unwrap_err();
        assert!(error.found.contains(first.path().to_str().unwrap()), "{error}");
        // As if it had been killed.
        drop(living);
        assert!(registry.knows("dm") && registry.living("dm").is_empty());
        let error = registry.resolve("dm/v").unwrap_err().to_string();
        assert!(error.contains("no node of dm runs"), "{error}");
        let _other = local_socket::listen(&second).unwrap();
        let two = registry.register("dm", 1, &second).unwrap();
        drop(one);
        let path = |nodes: Vec<(u16, Store)>| nodes[0].1.path().to_owned();
        assert_eq!(path(registry.living("dm")), second.path(), "the name is not the first one's");
        let error = registry.resolve("dm/v").unwrap_err().to_string();
        assert!(error.contains("node 1") && error.contains("format --ddmap dm/v"), "{error}");
        second.create_volume("v", 1 << 20, 1).unwrap();
        assert_eq!(registry.resolve("dm/v"), Ok(second.volume("v").join(REGION)));
        drop(two);
        assert!(!registry.knows("dm"));
    }

    #[test]
    fn a_folder_that_others_may_change_is_refused() {
        let folder = Folder::new("registry-open");
        let open = folder.0.join("open");
        assert!(check_alone(&open).is_ok(), "it is to be made");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o700)).unwrap();
        check_alone(&open).unwrap();
        symlink(&open, folder.0.join("link")).unwrap();
        assert!(check_alone(&folder.0.join("link")).is_err());
        fs::set_permissions(&open, fs::Permissions::from_mode(0o720)).unwrap();
        assert!(check_alone(&open).unwrap_err().found.contains("0720"));
    }
}
