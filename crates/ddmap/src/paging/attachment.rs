//! How a process gets the pager of a volume: it finds the volume's folder, takes a slot of its node
//! table, and hands over to the node what the node needs.

use crate::control::connections::Links;
use crate::control::local_socket::{Local, LocalReply, LocalRequest};
use crate::control::preferences::Preferences;
use crate::control::registry::Registry;
use crate::paging::pager::{PagerOptions, RegionPager};
use crate::paging::pagers;
use crate::protocol::NodeId;
use crate::shared_memory::error::DomainError;
use crate::shared_memory::fork_lock::ForkLock;
use crate::shared_memory::maps::Maps;
use crate::shared_memory::store::Store;
use crate::shared_memory::table::LAYOUT;
use crate::shared_memory::uffd::{self, Uffd};
use crate::shared_memory::view::{REGION, SharedRegion};
use crate::wire::{Hello, Wire};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// So long an attach waits for the node, at most; and looks so often.
const AWAITED: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// A process's connection to its node. The node may end, and another one begin: then the process
/// hands over anew what the node needs, when it does something next.
///
/// Locks: `socket`, while the node is reached.
pub struct Attachment {
    store: Store,
    volume: String,
    /// Which start of the node it is connected to.
    start: AtomicU64,
    wish: Preferences,
    socket: ForkLock<Option<Local>>,
}

impl Attachment {
    /// Whether the node was started since.
    pub fn is_outdated(&self, starts: u64) -> bool {
        self.start.load(Ordering::Relaxed) != starts
    }

    /// In a forked child: the connection is its parent's.
    pub fn forked(&self) {
        self.socket.renew(None);
    }

    /// Tells the node that this process has the volume attached, and hands over the descriptors.
    pub fn meet(
        &self,
        ground: &SharedRegion,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), DomainError> {
        let mut kept = self.socket.lock();
        let asked = format!("attach the volume {}", self.volume);
        let starts = ground.room.starts();
        let unreached = |errno: Errno| {
            let found = format!("its node does not answer: {}", os::describe(errno));
            DomainError::new(&asked, found, Registry::how_to_start(&self.store))
        };
        let socket = Local::connect(&self.store).map_err(unreached)?;
        let me = ground.table.me();
        let volume = self.volume.clone();
        let (slot, life, wish, layout) = (me.slot, me.life, self.wish, LAYOUT);
        let said = LocalRequest::Attached { volume, slot, life, wish, layout };
        match socket.ask(&said, descriptors).map_err(unreached)? {
            LocalReply::Done => {
                *kept = Some(socket);
                self.start.store(starts, Ordering::Relaxed);
                Ok(())
            }
            LocalReply::Refused { text } => Err(DomainError::new(&asked, text, "")),
            _ => Err(DomainError::new(&asked, "it answers something else", "")),
        }
    }
}

/// A folder's path without symbolic links. Not by the C library, which would allocate by the
/// program's `malloc`: that may be about to begin.
fn real_path(folder: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // An empty one is where the process is.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let opened = rustix::fs::open(folder, flags, Mode::empty()).ok()?;
    let link = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).ok()?;
    Some(PathBuf::from(OsString::from_vec(path.into_bytes()))).filter(|path| path.is_absolute())
}

/// Waits for a node that is just being started anew, say: a program that runs others goes on so.
fn await_node(store: &Store, patience: Duration) {
    let begun = Instant::now();
    while Local::connect(store).is_err() && begun.elapsed() < patience.min(AWAITED) {
        std::thread::sleep(LOOK);
    }
}

/// How the nodes of a domain talk.
pub(super) fn wire(store: &Store, asked: &str) -> Result<Wire, DomainError> {
    let failed = |found: String| DomainError::new(asked, found, Registry::how_to_start(store));
    let ask = || Local::connect(store)?.ask(&LocalRequest::Wire, &[]);
    match ask() {
        Ok(LocalReply::Wire { key }) => {
            Wire::of_key(key.as_deref()).map_err(|error| failed(error.to_string()))
        }
        Ok(_) => Err(failed("its node answers something else".to_owned())),
        Err(errno) => Err(failed(format!("its node does not answer: {}", os::describe(errno)))),
    }
}

/// The pager of the region at a path. `None`: it is no region of a domain's.
pub fn pager_of(
    path: &Path,
    wishes: PagerOptions,
) -> Result<Option<Arc<RegionPager>>, DomainError> {
    let Some(folder) = path.parent().filter(|_| path.file_name() == Some(REGION.as_ref())) else {
        return Ok(None);
    };
    let Some(folder) = real_path(folder) else { return Ok(None) };
    let (Some(store), Some(name)) = (Store::of_volume(&folder), folder.file_name()) else {
        return Ok(None);
    };
    let volume = name.to_string_lossy().into_owned();
    let asked = format!("attach the volume {volume}");
    if !pagers::has_place() {
        let found = format!("this process has {} volumes of domains already", pagers::PAGERS);
        return Err(DomainError::new(asked, found, "detach one, or use another process"));
    }
    let (Some(about), Some(node)) = (store.volume_about(&volume)?, store.about()?) else {
        return Ok(None);
    };
    let here = NodeId::new(node.node)
        .ok_or_else(|| DomainError::new(&asked, "the store has a bad number", ""))?;
    let uffd = Uffd::open().map_err(|errno| uffd::missing(&asked, errno))?;
    let maps = Maps::new().map_err(|error| DomainError::new(&asked, error, ""))?;
    let ground = SharedRegion::attach(&folder, store.open_room()?, here)
        .map_err(|error| DomainError::new(&asked, error, ""))?;
    let hello = Hello {
        node: here,
        process: u64::from(ground.table.me().slot),
        session: ground.table.life(),
        volume: about.uuid,
        term: about.term,
        store: 0,
    };
    await_node(&store, wishes.patience);
    let wire = wire(&store, &asked)?;
    let links = Links::new(store.clone(), hello, about.pages, wire);
    let (start, socket) = (AtomicU64::new(0), ForkLock::new(None));
    let attachment = Attachment { store, volume, start, wish: wishes.wish, socket };
    let pager = RegionPager::new(ground, uffd, maps, Box::new(links), wishes, Some(attachment));
    pager.meet_node()?;
    Ok(Some(Arc::new(pager)))
}
