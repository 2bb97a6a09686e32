//! A node: what `solera node` runs.
//!
//! | thread | what it does |
//! |---|---|
//! | the caller's | listens to programs of this machine, who attaches, who goes; and to monitors |
//! | evictor | makes room when somebody wants it; lets time go on |
//! | beat | tells the first node that this one is there; buries the dead; has holders drop pages |
//! | drain | brings home what nodes keep that are to give their pages up |
//! | healer | gives pages a second holder that have lost theirs |
//! | turns, asks | have volumes move to nodes whose programs wait for them |
//! | two of the server | answer other nodes and their programs |

mod administration;
mod arrivals;
mod descriptors;
pub mod eviction;
mod handover;
pub mod healing;
pub mod held_region;
pub mod host;
mod jobs;
mod metrics;
pub mod policy;
mod rollback;
mod round_robin;
pub mod sampling;
mod scheduling;
pub mod service;

use crate::control::local_socket::{self, Local, LocalReply, LocalRequest};
use crate::control::node_messages::{Member, NODE_TIMEOUT};
use crate::control::preferences::Preferences;
use crate::control::status::Status;
use crate::membership::BEAT;
use crate::membership::entering::{Entry, enter, number_of};
use crate::membership::leadership::Leadership;
use crate::membership::members::Members;
use crate::membership::saying::{say, say_hello};
use crate::node::eviction::Peer;
use crate::node::host::Hosts;
use crate::node::jobs::{Order, Orders};
use crate::node::scheduling::be_prompt;
use crate::node::service::Answering;
use crate::protocol::messages::PAGES;
use crate::protocol::{Claimant, NodeId, PAGE};
use crate::shared_memory::capacity::Capacity;
use crate::shared_memory::error::DomainError;
use crate::shared_memory::maps::Maps;
use crate::shared_memory::store::{Listed, Lock, Store};
use crate::shared_memory::table::LAYOUT;
use crate::shared_memory::uffd::{self, Uffd};
use crate::wire::Wire;
use crate::wire::server::Server;
use exposition::{ListenError, ScrapeServer};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(100);
/// Beats from when the first tells one that it does not hear of until it tells the next one.
const TELL: u32 = 3;
/// Pages that leave in one go, at least.
const BATCH: u64 = PAGES as u64;

/// How a node is to be.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The domain's name.
    pub domain: String,
    /// Where other nodes reach it.
    pub listen: SocketAddr,
    /// Its folder.
    pub store: PathBuf,
    /// Bytes that it may have.
    pub capacity: u64,
    /// Part of it that is kept free, per cent.
    pub reserve: u32,
    /// It runs no programs.
    pub passive: bool,
    /// A node of the domain; `None`: this is the first one, or its store knows.
    pub join: Option<SocketAddr>,
    /// How nodes talk.
    pub wire: Wire,
    /// Where a monitor finds its metrics.
    pub metrics: Option<SocketAddr>,
}

/// A node that runs.
pub struct Node {
    shared: Arc<Shared>,
    listener: OwnedFd,
    scrapes: Option<ScrapeServer>,
    threads: Vec<JoinHandle<()>>,
    _server: Server,
    _lock: Lock,
}

struct Shared {
    store: Store,
    domain: String,
    about: Member,
    /// Whom to tell that this node is there.
    leadership: Arc<Leadership>,
    wire: Wire,
    room: Arc<Capacity>,
    /// Pages that are kept free.
    reserve: u64,
    hosts: Hosts,
    members: Arc<Members>,
    /// Those whose addresses the store has.
    written: Mutex<Vec<Listed>>,
    answering: Arc<Answering>,
    over: AtomicBool,
    /// Pages may be counted that are not there.
    uncounted: AtomicBool,
    orders: Orders,
}

/// Pages that are to leave where so many are missing: whole batches. A message with two pages costs
/// as much of a processor as one with 64, and the next touch does not wait.
fn whole_batches(missing: u64, batch: u64) -> u64 {
    missing.max(1).next_multiple_of(batch.max(1))
}

/// What `statfs` says of a tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// Refuses a store that is not on a tmpfs, and a capacity that it cannot hold.
fn check_capacity(store: &Store, capacity: u64) -> Result<(), DomainError> {
    let asked = format!("give a node {capacity} bytes in {}", store.path().display());
    let failed = |errno: Errno| DomainError::io(&asked, "the store", &errno.into());
    let system = rustix::fs::statfs(store.path()).map_err(failed)?;
    if system.f_type as u64 != TMPFS {
        let found = format!("its file system is no tmpfs (type {:#x})", system.f_type);
        let advice = "give a --store in /dev/shm, or on another tmpfs";
        return Err(DomainError::new(asked, found, advice));
    }
    let bytes = |blocks: u64| blocks.saturating_mul(system.f_bsize as u64);
    let (all, free) = (bytes(system.f_blocks), bytes(system.f_bavail));
    let is_new = store.about()?.is_none();
    // Without a limit it says 0 of both. One that was there before has its pages, and begins.
    if system.f_blocks > 0 && (all < capacity || is_new && free < capacity) {
        let found = format!("its file system has {all} bytes, of which {free} are free");
        return Err(DomainError::new(asked, found, "give a smaller --capacity, or enlarge it"));
    }
    if capacity < 1 << 20 {
        return Err(DomainError::new(asked, "that is less than 1 MiB", "give more"));
    }
    Ok(())
}

/// Refuses a kernel whose pages are not those that nodes give each other.
fn check_page_size(asked: &str, bytes: u64) -> Result<(), DomainError> {
    if bytes == PAGE {
        return Ok(());
    }
    let found = format!("this kernel's pages have {bytes} bytes, and a domain's have {PAGE}");
    Err(DomainError::new(asked, found, "use a kernel with pages of 4 KiB"))
}

impl Node {
    /// Starts a node: it answers others when this returns. A store that was made for one that is
    /// refused goes again, if it is of no domain's node, or of one that begins a domain, of which
    /// nobody knows.
    pub fn start(options: NodeOptions) -> Result<Self, DomainError> {
        let store = Store::at(options.store.clone());
        let is_new = !store.path().exists();
        let is_first = store.about().is_ok_and(|about| about.is_none());
        Self::start_in(options).inspect_err(|_| {
            if is_first {
                store.forget_first();
            }
            if is_new && store.about().is_ok_and(|about| about.is_none()) {
                // What cannot be removed is empty, and does no harm.
                let _ = os::remove_all(store.path());
            }
        })
    }

    fn start_in(options: NodeOptions) -> Result<Self, DomainError> {
        let asked = format!("run a node of {}", options.domain);
        Uffd::open().map_err(|errno| uffd::missing(&asked, errno))?;
        check_page_size(&asked, rustix::param::page_size() as u64)?;
        let store = Store::create(&options.store)?;
        let lock = store.lock()?;
        store.convert()?;
        check_capacity(&store, options.capacity)?;
        options
            .wire
            .check_address(options.listen.ip())
            .map_err(|error| DomainError::new(&asked, error, ""))?;
        if options.listen.ip().is_unspecified() {
            let found = format!("{} is no address at which others reach it", options.listen.ip());
            return Err(DomainError::new(&asked, found, "give --listen one of this machine's"));
        }
        let listener = TcpListener::bind(options.listen).map_err(|error| {
            let found = format!("{}: {error}", options.listen);
            DomainError::new(&asked, found, "give --listen an address of this machine")
        })?;
        let scrapes = options.metrics.map(listen).transpose()?;
        let io = |error: std::io::Error| DomainError::new(&asked, error, "");
        let address = listener.local_addr().map_err(io)?;
        let capacity = options.capacity / PAGE;
        let members = Arc::new(Members::default());
        let passive = options.passive;
        let reserve = (capacity * u64::from(options.reserve) / 100).max(64).min(capacity / 2);
        let room = Capacity::create(&store.room())
            .map_err(|error| DomainError::new(&asked, error, "give another --store"))?;
        let starts = room.starts() + 1;
        let mut about = Member { passive, capacity, reserve, starts, ..Member::new(0, address) };
        let entry = Entry { domain: &options.domain, join: options.join, wire: &options.wire };
        let terms = enter(&entry, &store, &members, &mut about)?;
        let here = number_of(&about)?;
        let room = Arc::new(room);
        let of = || (options.domain.clone(), options.wire.clone());
        let me = (store.clone(), about.clone());
        let leadership = Leadership::new(of(), me, Arc::clone(&members), terms);
        let leadership = Arc::new(leadership);
        let (me, all) = ((here, about.clone()), (Arc::clone(&members), Arc::clone(&leadership)));
        let answering = Answering::new(of(), store.clone(), me, Arc::clone(&room), all);
        let answering = Arc::new(answering);
        // What is left of moves of volumes; those that are decided go on.
        store.finish_arrivals();
        store.volumes().iter().for_each(|name| store.stays(name));
        for wrong in answering.open_all() {
            eprintln!("solera: node: what is kept cannot be opened: {wrong}");
        }
        let hosts = Hosts::new(store.clone(), here, options.wire.clone());
        let reserve = (capacity * u64::from(options.reserve) / 100).max(64).min(capacity / 2);
        let shared = Arc::new(Shared {
            domain: options.domain,
            about,
            leadership,
            wire: options.wire.clone(),
            room,
            reserve,
            hosts,
            members,
            written: Mutex::default(),
            answering: Arc::clone(&answering),
            over: AtomicBool::new(false),
            uncounted: AtomicBool::new(false),
            orders: Orders::default(),
            store,
        });
        shared.room.set_up(capacity, shared.pages(), reserve);
        for name in shared.store.volumes() {
            if let Err(error) = shared.hosts.find(&name) {
                eprintln!("solera: node: {error}");
            }
        }
        let server = Server::start(listener, options.wire, 2, answering).map_err(io)?;
        let listener = local_socket::listen(&shared.store)?;
        shared.room.start();
        let threads = shared.begin().map_err(io)?;
        Ok(Self { shared, listener, scrapes, threads, _server: server, _lock: lock })
    }

    /// Where other nodes reach it.
    pub fn address(&self) -> SocketAddr {
        self.shared.about.address
    }

    /// Where a monitor finds its metrics.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.scrapes.as_ref().and_then(ScrapeServer::address)
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.shared.about.node
    }

    /// Serves the programs of this machine, until `over`.
    pub fn run(mut self, over: &AtomicBool) -> Result<(), DomainError> {
        let mut programs: Vec<Program> = Vec::new();
        while !over.load(Ordering::Relaxed) {
            self.shared.members.look();
            let mut waited: Vec<_> = std::iter::once(PollFd::new(&self.listener, PollFlags::IN))
                .chain(programs.iter().map(|one| PollFd::new(&one.socket, PollFlags::IN)))
                .chain(self.scrapes.iter().flat_map(ScrapeServer::waited))
                .collect();
            let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            match rustix::event::poll(&mut waited, Some(&time)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(DomainError::io("serve programs", "waiting", &errno.into()));
                }
            }
            let ready: Vec<bool> = waited.iter().map(|one| !one.revents().is_empty()).collect();
            drop(waited);
            if let Some(scrapes) = &mut self.scrapes {
                scrapes.step(|| self.shared.metrics());
            }
            let mut at = 0;
            programs.retain_mut(|program| {
                at += 1;
                !ready[at] || self.shared.hear(program)
            });
            if ready[0]
                && let Ok(socket) = local_socket::accept(&self.listener)
            {
                programs.push(Program::new(socket));
            }
        }
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // One that has panicked has said so.
            let _ = thread.join();
        }
        Ok(())
    }
}

/// Where monitors connect.
fn listen(address: SocketAddr) -> Result<ScrapeServer, DomainError> {
    ScrapeServer::listen(address, "--metrics").map_err(|ListenError { found, advice }| {
        DomainError::new(format!("give metrics at {address}"), found, advice)
    })
}

/// A process of this machine that has connected.
struct Program {
    socket: Local,
    attached: Option<(String, Claimant)>,
    /// The volume that it waits for, or was let in to, and its ticket's number.
    wanted: Option<(String, u64)>,
    pid: i32,
}

impl Program {
    fn new(socket: Local) -> Self {
        let pid = socket.pid();
        Self { socket, attached: None, wanted: None, pid }
    }
}

impl Shared {
    fn here(&self) -> NodeId {
        NodeId::new(self.about.node).expect("it was given one")
    }

    /// Pages that this node has.
    fn pages(&self) -> u64 {
        self.hosts.pages() + self.kept()
    }

    /// Of them, those that it keeps for others, spares too.
    fn kept(&self) -> u64 {
        self.answering.status().iter().map(|kept| kept.pages).sum()
    }

    /// This node, as others hear of it: spares count as free room.
    fn told_of(&self) -> Member {
        let spares = self.answering.spares();
        let used = self.room.used().saturating_sub(spares);
        let kept = self.kept().saturating_sub(spares);
        let (promised, promised_twice) = self.hosts.promised();
        Member { used, kept, promised, promised_twice, ..self.about.clone() }
    }

    fn begin(self: &Arc<Self>) -> std::io::Result<Vec<JoinHandle<()>>> {
        let [evictor, beat, drain, healer, turns, asks] = [(); 6].map(|()| Arc::clone(self));
        Ok(vec![
            thread::Builder::new().name("evictor".to_owned()).spawn(move || evictor.evict())?,
            thread::Builder::new().name("beat".to_owned()).spawn(move || beat.beat())?,
            thread::Builder::new().name("drain".to_owned()).spawn(move || drain.drain())?,
            thread::Builder::new().name("healer".to_owned()).spawn(move || healer.heal())?,
            thread::Builder::new().name("turns".to_owned()).spawn(move || turns.give_turns())?,
            thread::Builder::new().name("asks".to_owned()).spawn(move || asks.ask_hosts())?,
        ])
    }

    fn evict(&self) {
        // A kernel that cannot has it wait for as long as any thread.
        let _ = be_prompt();
        while !self.over.load(Ordering::Relaxed) {
            self.room.set_reserve(if self.hosts.are_on_demand() { 0 } else { self.reserve });
            let mut missing = self.room.missing();
            let mut over = self.hosts.missing();
            if missing + over == 0 && self.room.wait_for_demand(TICK) {
                (missing, over) = (self.room.missing_now(), self.hosts.missing());
            }
            // What nobody needs to have here goes first.
            let dropped = if missing > 0 { self.answering.drop_spares(missing) } else { 0 };
            if dropped > 0 {
                self.room.tell(dropped);
                missing = missing.saturating_sub(dropped);
            }
            if missing + over > 0 {
                let holders = self.members.holders(self.here());
                let holders: Vec<NodeId> = holders.iter().map(|one| one.0).collect();
                // One that has just come has no address otherwise: it would be taken for one that
                // does not answer, and left alone.
                self.write_members();
                let batch = BATCH.min(self.room.capacity() / 16);
                let wanted = whole_batches(missing, batch);
                let mut gone = if over > 0 { self.hosts.trim(&holders) } else { 0 };
                if missing > gone {
                    gone += self.hosts.make_room(wanted - gone, &holders);
                }
                if gone == 0 {
                    // Nobody takes any, or nothing may leave: that changes, but not at once.
                    self.room.wait_for_demand(TICK / 10);
                }
            }
        }
    }

    /// Has the store say where all nodes are.
    fn write_members(&self) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.members.addresses();
        // A store that is full keeps the list that it has.
        if *written != all && self.store.set_members(&all).is_ok() {
            *written = all;
        }
    }

    fn beat(&self) {
        let mut heard = self.members.lives();
        let (mut said, mut removed): (Option<DomainError>, _) = (None, Vec::new());
        let (mut tried, mut tick) = (Instant::now(), 0_u32);
        while !self.over.load(Ordering::Relaxed) {
            let member = self.told_of();
            let told = if self.leadership.is_here() {
                if tick.is_multiple_of(TELL) {
                    self.leadership.tell_silent();
                }
                let asked = || format!("be node {}", self.about.node);
                self.members.join(member).map_err(|found| DomainError::new(asked(), found, ""))
            } else {
                self.leadership.beat(&member)
            };
            tick += 1;
            if let Some(error) = told.as_ref().err().filter(|error| said.as_ref() != Some(error)) {
                eprintln!("solera: node: {error}");
            }
            said = told.err();
            self.write_members();
            self.room.set_silent(&self.members.silent());
            let died = self.hosts.bury();
            let lives = self.members.lives();
            for (node, _) in lives.iter().filter(|one| !heard.contains(one)) {
                self.hosts.heard_of(*node);
            }
            let gone = self.members.gone();
            if tried.elapsed() > NODE_TIMEOUT || gone != removed {
                self.answering.drop_for(&gone, |uuid| self.may_be_hosted(uuid));
                removed = gone;
            }
            if tried.elapsed() > NODE_TIMEOUT {
                self.finish_removals();
                self.answering.drop_arrivals(|moved| self.knows_attempt(moved));
                tried = Instant::now();
            }
            heard = lives;
            self.hosts.reconcile(&self.members.others(self.here()), died);
            if self.uncounted.swap(false, Ordering::Relaxed) || died {
                let right = self.room.recount(|| self.pages(), TICK) & self.hosts.recount(TICK);
                self.uncounted.fetch_or(!right, Ordering::Relaxed);
            }
            thread::sleep(BEAT);
        }
    }

    /// Hears what a process says. `false`: it has gone.
    fn hear(&self, program: &mut Program) -> bool {
        let Ok(Some((said, descriptors))) = program.socket.receive::<LocalRequest>() else {
            if let Some((volume, claimant)) = &program.attached
                && let Ok(hosted) = self.hosts.find(volume)
            {
                hosted.evictor.remove(*claimant);
                self.answering.handovers.executes(volume, program.pid);
            }
            if let Some((volume, number)) = &program.wanted {
                let ticket = (self.about.node, *number);
                self.answering.handovers.ends(volume, ticket, program.pid);
            }
            return false;
        };
        let answer = match said {
            LocalRequest::Wire => LocalReply::Wire { key: self.wire.key().map(str::to_owned) },
            LocalRequest::Mark { node, standing } => self.mark(node, standing),
            LocalRequest::First { to, force } => self.make_first(to, force),
            LocalRequest::Want { volume, hold } => {
                let begins = || (volume.clone(), self.answering.handovers.number());
                let (name, number) = program.wanted.get_or_insert_with(begins);
                if *name == volume {
                    self.want(*number, &volume, hold)
                } else {
                    let text = "a connection is for one volume".to_owned();
                    LocalReply::Refused { text }
                }
            }
            LocalRequest::Remove { volume } => self.remove(&volume),
            LocalRequest::Move { volume, to } => self.order(volume, Order::Move(to)),
            LocalRequest::Grow { volume, pages } => self.order(volume, Order::Grow(pages)),
            LocalRequest::Ordered { volume } => self.ordered(&volume),
            LocalRequest::Where { volume } => self.host_of(&volume),
            LocalRequest::Status => LocalReply::Status(self.status()),
            LocalRequest::Attached { layout, .. } if layout != LAYOUT => LocalReply::Refused {
                text: "it is of another release than its node; start it by the node's".to_owned(),
            },
            LocalRequest::Attached { volume, slot, life, wish, .. } => {
                let claimant = Claimant { slot, life };
                match self.attached(&volume, (claimant, wish), descriptors) {
                    Ok(()) => {
                        program.attached = Some((volume, claimant));
                        LocalReply::Done
                    }
                    Err(error) => LocalReply::Refused { text: error.to_string() },
                }
            }
        };
        program.socket.send(&answer, &[]).is_ok()
    }

    fn attached(
        &self,
        volume: &str,
        (claimant, wish): (Claimant, Preferences),
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), DomainError> {
        let asked = format!("attach {volume}");
        let hosted = self.hosts.find(volume)?;
        if hosted.is_closed() {
            let found = "it is about to move to another host, or to grow";
            return Err(DomainError::new(asked, found, "try again in a moment"));
        }
        let Ok([uffd, maps]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(DomainError::new(asked, "the descriptors are missing", ""));
        };
        let maps = Maps::of_other(maps).map_err(|error| DomainError::new(&asked, error, ""))?;
        hosted.evictor.add(Peer::new(claimant, Uffd::of_other(uffd), maps, wish));
        Ok(())
    }

    fn status(&self) -> Status {
        let mut nodes = self.members.list();
        // The others hear of it a second later.
        if let Some(own) = nodes.iter_mut().find(|one| one.node == self.about.node) {
            let told = self.told_of();
            (own.used, own.promised, own.kept) = (told.used, told.promised, told.kept);
            own.promised_twice = told.promised_twice;
        }
        let reign = self.leadership.terms().reign;
        let mut volumes = self.hosts.status(&self.members.gone());
        for volume in &mut volumes {
            volume.waiting = self.answering.handovers.waiting(&volume.name);
        }
        Status {
            domain: self.domain.clone(),
            node: self.about.node,
            first: reign.first,
            term: reign.term,
            nodes,
            volumes,
            kept: self.answering.status(),
            asks: self.answering.handovers.asking(self.about.node),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn pages_of_another_size_are_refused() {
        assert_eq!(super::check_page_size("", 4096), Ok(()));
        let refused = super::check_page_size("run a node", 65536).unwrap_err();
        assert!(refused.to_string().contains("65536 bytes"), "{refused}");
    }
}
