//! A node's store: a folder in memory, with all that it has.
//!
//! ```text
//! STORE/node                  what the node is: JSON
//! STORE/lock                  held by the node that runs
//! STORE/room                  its capacity (`capacity.rs`)
//! STORE/members               the domain's nodes, a line each: number, address, store, standing
//! STORE/socket                where processes of this machine reach it (`local_socket.rs`)
//! STORE/volumes/NAME/         a volume that this node is the host of: region, table, directory
//! STORE/kept/UUID/            pages of a volume that another node is the host of: pages, table
//! ```

use crate::protocol::{NodeId, PAGE, Reign, TERM, Terms};
use crate::shared_memory::capacity::Capacity;
use crate::shared_memory::directory::Directory;
use crate::shared_memory::error::DomainError;
use crate::shared_memory::table::Table;
use crate::shared_memory::view::REGION;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Of files that only the node's user may open.
const MODE: u32 = 0o600;
/// Where a volume says which it is.
pub(super) const ABOUT: &str = "about";
/// What that is called of a volume that was removed.
pub(super) const REMOVED: &str = "removed";
/// The page file of what is kept, and the file that says for which node, in which term.
pub const KEPT_PAGES: &str = "pages";
/// That file.
pub const KEPT_HOST: &str = "host";
pub(super) const NODE: &str = "node";
const MEMBERS: &str = "members";
/// The version of the folder's structures.
pub(super) const FORMAT: u32 = 3;

/// What a node is, as its store has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct About {
    format: u32,
    /// The domain's name.
    pub domain: String,
    /// Its number in the domain.
    pub node: u16,
    /// A number of the store's own.
    pub store: u64,
    /// The node that gives out numbers, and in which term it does.
    #[serde(default = "first_node")]
    first: u16,
    #[serde(default = "first_term")]
    term: u32,
    /// The same of the latest reign to which this node has agreed.
    #[serde(default = "first_node")]
    promised_first: u16,
    #[serde(default = "first_term")]
    promised_term: u32,
    /// No greater number was given.
    #[serde(default)]
    numbers: u16,
    /// The node is first by force.
    #[serde(default)]
    is_forced: bool,
}

impl About {
    /// What the node knows of firsts.
    pub fn terms(&self) -> Terms {
        Terms {
            reign: Reign { term: self.term, first: self.first },
            promised: Reign { term: self.promised_term, first: self.promised_first },
            numbers: self.numbers,
            is_forced: self.is_forced,
        }
    }

    fn set_terms(&mut self, terms: &Terms) {
        (self.term, self.first) = (terms.reign.term, terms.reign.first);
        (self.promised_term, self.promised_first) = (terms.promised.term, terms.promised.first);
        (self.numbers, self.is_forced) = (terms.numbers, terms.is_forced);
    }
}

/// What a volume's folder says of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeAbout {
    pub(super) format: u32,
    /// Its pages' number: of the region, by which holders know it.
    pub uuid: [u8; 16],
    /// Pages of the region.
    pub pages: u64,
    /// How often it has moved to another host, plus 1: nodes hear none of an earlier term.
    #[serde(default = "first_term")]
    pub term: u32,
    /// How many nodes keep each page that is away.
    #[serde(default = "one_copy")]
    pub copies: u8,
}

fn first_node() -> u16 {
    1
}

/// The most nodes that keep a page.
pub(super) const COPIES_MAX: u8 = 2;

pub(super) fn one_copy() -> u8 {
    1
}

fn first_term() -> u32 {
    TERM
}

/// What to do with a store of another format.
fn advice_of(format: u32) -> &'static str {
    if format < FORMAT {
        "start its node by this build, which converts it"
    } else {
        "use the build that made it"
    }
}

/// How a node stands in its domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It takes part.
    #[default]
    There,
    /// It gets no more pages, and hosts fetch those that it keeps.
    Drains,
    /// It was removed: what it had is not asked for any more. Its number is nobody's.
    Gone,
}

/// A node of a domain, as a store lists it: its number, where it is reached, how it stands, and the
/// number of its store (0: it is not known).
pub type Listed = (NodeId, SocketAddr, Standing, u64);

/// A node's folder.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

/// While it lives, no other node uses the store.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "it is held, and never looked at")] OwnedFd);

impl Store {
    /// The folder at a path, which is made if it is not there.
    pub fn create(path: &Path) -> Result<Self, DomainError> {
        let asked = format!("use the store {}", path.display());
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(path);
        made.map_err(|error| DomainError::io(&asked, "the folder", &error))?;
        let real = os::real_path(path);
        let real = real.map_err(|error| DomainError::io(&asked, "the folder", &error))?;
        let found = fs::metadata(&real);
        let found = found.map_err(|error| DomainError::io(&asked, "the folder", &error))?;
        let me = rustix::process::geteuid().as_raw();
        let advice = "give a --store of its user's own that nobody else may write";
        if found.uid() != me {
            let found = format!("it is user {}'s, and this node is user {me}'s", found.uid());
            return Err(DomainError::new(asked, found, advice));
        }
        if found.mode() & 0o002 != 0 {
            let found = format!("all may write it (mode {:04o})", found.mode() & 0o7777);
            return Err(DomainError::new(asked, found, advice));
        }
        Ok(Self(real))
    }

    /// The store that a volume's folder is in.
    pub fn of_volume(folder: &Path) -> Option<Self> {
        let store = folder.parent()?.parent()?;
        store.join(NODE).is_file().then(|| Self(store.to_owned()))
    }

    /// One that is there.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn asked(&self) -> String {
        format!("use the store {}", self.0.display())
    }

    /// Takes the store for this node alone.
    pub fn lock(&self) -> Result<Lock, DomainError> {
        let asked = self.asked();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let failed = |errno: rustix::io::Errno| DomainError::io(&asked, "its lock", &errno.into());
        let fd = rustix::fs::open(self.0.join("lock"), flags, Mode::from_raw_mode(MODE))
            .map_err(failed)?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock(fd)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(DomainError::new(
                asked,
                "another node uses it",
                "end that one, or give this one a --store of its own",
            )),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Whether no node has had it yet.
    pub fn is_new(&self) -> bool {
        !self.0.join(NODE).exists()
    }

    /// What the node is. `None`: the store is new.
    pub fn about(&self) -> Result<Option<About>, DomainError> {
        let Some(about) = self.read::<About>(&self.0.join(NODE))? else { return Ok(None) };
        if about.format != FORMAT {
            let found = format!("it has format {}, and this build has {FORMAT}", about.format);
            return Err(DomainError::new(self.asked(), found, advice_of(about.format)));
        }
        Ok(Some(about))
    }

    /// Says what the node is. What it knows of firsts stays.
    pub fn set_about(&self, domain: &str, node: NodeId, store: u64) -> Result<(), DomainError> {
        let known = self.about()?.map_or_else(Terms::default, |about| about.terms());
        let (domain, node) = (domain.to_owned(), node.number());
        let (first, term, numbers) = (first_node(), first_term(), 0);
        let (promised_first, promised_term) = (first, term);
        let mut about = About {
            format: FORMAT,
            domain,
            node,
            store,
            first,
            term,
            promised_first,
            promised_term,
            numbers,
            is_forced: false,
        };
        about.set_terms(&known);
        self.write(NODE, &serde_json::to_vec_pretty(&about).unwrap_or_default())
    }

    /// Says what the node knows of firsts. A store that is of no node yet says nothing.
    pub fn set_terms(&self, terms: &Terms) -> Result<(), DomainError> {
        let Some(mut about) = self.about()? else { return Ok(()) };
        about.set_terms(terms);
        self.write(NODE, &serde_json::to_vec_pretty(&about).unwrap_or_default())
    }

    /// The store is new again, if it is a first node's that has nothing yet.
    pub fn forget_first(&self) {
        let is_first = self.about().is_ok_and(|about| about.is_some_and(|about| about.node == 1));
        if is_first && self.volumes().is_empty() && self.all_kept().is_empty() {
            // What stays is said by the next start.
            let _ = fs::remove_file(self.0.join(NODE));
        }
    }

    pub(super) fn read<T: for<'a> Deserialize<'a>>(
        &self,
        path: &Path,
    ) -> Result<Option<T>, DomainError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(DomainError::io(self.asked(), path.display(), &error));
            }
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            let found = format!("{} cannot be read: {error}", path.display());
            DomainError::new(self.asked(), found, "give a store of a solera node, or a new one")
        })
    }

    /// Puts a file in place whole.
    pub(super) fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> Result<(), DomainError> {
        let path = self.0.join(name);
        let new = path.with_added_extension("new");
        fs::write(&new, bytes)
            .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(MODE)))
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|error| DomainError::io(self.asked(), path.display(), &error))
    }

    /// The file of the node's capacity.
    pub fn room(&self) -> PathBuf {
        self.0.join(Capacity::NAME)
    }

    /// Where the node is reached.
    pub fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// Says who the domain's nodes are, for processes of this machine.
    pub fn set_members(&self, members: &[Listed]) -> Result<(), DomainError> {
        let line = |(node, address, standing, store): &Listed| {
            let standing = match standing {
                Standing::There => "",
                Standing::Drains => " drains",
                Standing::Gone => " gone",
            };
            format!("{} {address} {store:016x}{standing}\n", node.number())
        };
        self.write(MEMBERS, members.iter().map(line).collect::<String>().as_bytes())
    }

    /// The domain's nodes, as the node has said last.
    pub fn members(&self) -> Vec<Listed> {
        let text = fs::read_to_string(self.0.join(MEMBERS)).unwrap_or_default();
        let member = |line: &str| {
            let mut words = line.split(' ');
            let (number, address) = (words.next()?, words.next()?);
            let mut words = words.peekable();
            // Release 0.2 says no store.
            let store = words.next_if(|word| word.len() == 16);
            let store = store.map_or(Ok(0), |store| u64::from_str_radix(store, 16)).ok()?;
            let standing = match words.next() {
                Some("gone") => Standing::Gone,
                Some("drains") => Standing::Drains,
                _ => Standing::There,
            };
            Some((NodeId::new(number.parse().ok()?)?, address.parse().ok()?, standing, store))
        };
        text.lines().filter_map(member).collect()
    }

    /// The folder of a volume.
    pub fn volume(&self, name: &str) -> PathBuf {
        self.0.join("volumes").join(name)
    }

    /// The volumes that this node is the host of.
    pub fn volumes(&self) -> Vec<String> {
        let folder = self.0.join("volumes");
        let mut names: Vec<String> = os::names_in(&folder)
            .unwrap_or_default()
            .into_iter()
            .filter(|name| folder.join(name).join(ABOUT).is_file())
            .filter_map(|name| name.into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// What a volume's folder says.
    pub fn volume_about(&self, name: &str) -> Result<Option<VolumeAbout>, DomainError> {
        let about = self.read::<VolumeAbout>(&self.volume(name).join(ABOUT))?;
        match about {
            Some(about) if about.format != FORMAT => {
                let found =
                    format!("{name} has format {}, and this build has {FORMAT}", about.format);
                Err(DomainError::new(self.asked(), found, advice_of(about.format)))
            }
            Some(about) if !(1..=COPIES_MAX).contains(&about.copies) => {
                let found = format!("{name} has {} copies of each page", about.copies);
                Err(DomainError::new(self.asked(), found, "use a later build"))
            }
            about => Ok(about),
        }
    }

    /// Makes a volume's folder, with a region of so many bytes that nobody has touched. So many
    /// nodes are to keep each page that is away: 1 or 2.
    pub fn create_volume(&self, name: &str, size: u64, copies: u8) -> Result<PathBuf, DomainError> {
        let folder = self.volume(name);
        let asked = format!("make the volume {name} in {}", self.0.display());
        if folder.join(REMOVED).exists() {
            let found = "one of that name was removed, and not all nodes have dropped its pages";
            return Err(DomainError::new(asked, found, "start them, or choose another name"));
        }
        if folder.join(ABOUT).exists() {
            return Err(DomainError::new(asked, "it exists already", "choose another name"));
        }
        if let Some((node, what)) = self.on_its_way(name) {
            let found = format!("one of that name is {what} node {node}");
            return Err(DomainError::new(asked, found, "choose another name"));
        }
        let made = || {
            let mut uuid = [0; 16];
            rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty())
                .map_err(os::describe)?;
            let pages = size.div_ceil(PAGE);
            Self::fill_volume(&folder, pages)?;
            let term = TERM;
            let about = VolumeAbout { format: FORMAT, uuid, pages, term, copies };
            let text = serde_json::to_vec_pretty(&about).unwrap_or_default();
            fs::write(folder.join(ABOUT), text).map_err(|error| error.to_string())
        };
        made().map_err(|error: String| {
            // The folder is this call's own, and useless; what is left of it is said by the error.
            let _ = os::remove_all(&folder);
            DomainError::new(&asked, error, "see that the store has room")
        })?;
        Ok(folder)
    }

    /// Makes the files of a volume of so many pages, of which nobody has touched any.
    pub(super) fn fill_volume(folder: &Path, pages: u64) -> Result<(), String> {
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(folder);
        made.map_err(|error| error.to_string())?;
        drop(
            pmem::Region::create(&folder.join(REGION), pages * PAGE, MODE, true)
                .map_err(|error| error.to_string())?,
        );
        Table::create(folder, pages).map_err(|error| error.to_string())?;
        drop(
            Directory::create(&folder.join(Directory::NAME), pages)
                .map_err(|error| error.to_string())?,
        );
        Ok(())
    }

    /// Makes the files of a volume longer, which nobody has attached: it has so many pages then.
    /// CRASH: files that are longer than `about` says do no harm; it is done again.
    pub fn grow_volume(&self, name: &str, pages: u64) -> Result<(), DomainError> {
        let folder = self.volume(name);
        let asked = format!("grow the volume {name}");
        let failed = |error: std::io::Error| DomainError::io(&asked, folder.display(), &error);
        let Some(about) = self.volume_about(name)? else {
            return Err(DomainError::new(asked, "this node has no such volume", ""));
        };
        if pages <= about.pages {
            return Ok(());
        }
        for (file, length) in [(REGION, pages * PAGE), (Directory::NAME, pages * 8)] {
            let file = fs::File::options().write(true).open(folder.join(file));
            file.and_then(|file| file.set_len(length)).map_err(failed)?;
        }
        Table::grow(&folder, pages).map_err(|error| DomainError::new(&asked, error, ""))?;
        let text = serde_json::to_vec_pretty(&VolumeAbout { pages, ..about }).unwrap_or_default();
        self.write(folder.join(ABOUT), &text)
    }

    /// A volume is no volume any more; its folder stays until holders have dropped what they keep
    /// of it. CRASH: one rename; behind it the node goes on with what is left to do.
    pub fn discard_volume(&self, name: &str) -> Result<(), DomainError> {
        let folder = self.volume(name);
        fs::rename(folder.join(ABOUT), folder.join(REMOVED)).map_err(|error| {
            DomainError::io(format!("remove the volume {name}"), folder.display(), &error)
        })
    }

    /// The volumes that were removed, and whose pages holders may have still: their folders, and
    /// what these say.
    pub fn discarded(&self) -> Vec<(PathBuf, VolumeAbout)> {
        let folder = self.0.join("volumes");
        let removed = |name| {
            let path = folder.join(name);
            let about = self.read::<VolumeAbout>(&path.join(REMOVED)).ok()??;
            Some((path, about))
        };
        os::names_in(&folder).unwrap_or_default().into_iter().filter_map(removed).collect()
    }

    /// The folder of what is kept of another host's volume.
    pub fn kept(&self, uuid: &[u8; 16]) -> PathBuf {
        self.0.join("kept").join(format!("{:032x}", u128::from_be_bytes(*uuid)))
    }

    /// All of whose volumes pages are kept.
    pub fn all_kept(&self) -> Vec<[u8; 16]> {
        let names = os::names_in(&self.0.join("kept")).unwrap_or_default();
        names.iter().filter_map(|name| parse_uuid(name.to_str()?)).collect()
    }

    /// The node's capacity, to be used by this process.
    pub fn open_room(&self) -> Result<Capacity, DomainError> {
        Capacity::open(&self.room()).map_err(|error| {
            let advice = "start the node that has the store: `solera node`";
            DomainError::new(self.asked(), error, advice)
        })
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let whole = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| whole)?;
    Some(number.to_be_bytes())
}
