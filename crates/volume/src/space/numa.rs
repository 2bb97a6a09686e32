//! NUMA: which part of the volume is near, and which node a process calls its home (`WineFS`,
//! section 5.5, "Minimizing remote NUMA accesses").
//!
//! Each allocation group belongs to one of the machine's memory nodes: the one where most of its
//! pages lie, of a few that the kernel is asked for; else that of the device; where nothing lies
//! yet, the groups are dealt out in order, and pages come to lie where they are first touched,
//! which is there.
//!
//! A process's *home* is the node on which it runs when it first allocates file data; its children
//! have the same, also after an exec (a word of the process slot carries it). Data goes to the
//! home's groups as long as they have room, also where that breaks a chunk; then another node
//! becomes the home, the one with the most room. A file can be pinned to a node
//! (`upkeep/pinning.rs`): then that one comes first, and what it has can be brought there
//! (`bring_home`). With [`Numa::Move`] a thread that is about to allocate elsewhere moves
//! home (by its affinity to CPUs), if its program has not chosen CPUs itself.
//!
//! With one node, which is nearly every machine, nothing of this happens. The nodes are those of
//! `/sys/devices/system/node`, or `SOLERA_NUMA_NODES` simulates others: the CPUs of each, as
//! `0-3;4-7`, with the groups dealt out in order.
//!
//! No locks but the inode's of who pins or moves; what is kept for statistics is this process's
//! alone.

use crate::Result;
use crate::medium::current_cpu;
use crate::medium::layout::BLOCK;
use crate::process::HOME;
use crate::space::Space;
use crate::space::alloc::{Extents, Want};
use crate::space::chunk::Group;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ops::Range;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The variable that simulates nodes.
const SIMULATED: &str = "SOLERA_NUMA_NODES";
/// Bits of an inode's flags, from the ninth on, that hold the node + 1 to which it is pinned.
pub(crate) const PINNED_SHIFT: u32 = 8;
/// Nodes at most.
const NODES_MAX: usize = 64;
/// Pages of a group that the kernel is asked for.
const SAMPLES: u64 = 16;

/// What a process does about nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Numa {
    /// Nothing: the CPU's own group comes first.
    Off,
    /// Allocates at home.
    #[default]
    Place,
    /// And moves its threads there.
    Move,
}

impl std::str::FromStr for Numa {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "place" => Ok(Self::Place),
            "move" => Ok(Self::Move),
            other => Err(format!("{other} is not one of off, place, move")),
        }
    }
}

/// The CPUs of each node.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
struct Topology {
    cpus: Vec<Vec<u32>>,
    /// It is not this machine's.
    simulated: bool,
}

/// Refuses simulated nodes that are no lists of CPUs: nothing would be read of them.
pub fn check_simulated() -> std::result::Result<(), String> {
    let Some(text) = std::env::var_os(SIMULATED) else { return Ok(()) };
    let text = text.to_string_lossy();
    let is_number = |text: &str| text.trim().parse::<u32>().is_ok();
    let is_range = |part: &str| {
        part.split_once('-').map_or(is_number(part), |(from, to)| is_number(from) && is_number(to))
    };
    if text.split(';').all(|node| node.split(',').all(is_range)) {
        return Ok(());
    }
    Err(format!("{SIMULATED}={text}: the CPUs of each node are needed, as 0-3;4-7"))
}

/// `0-3,8` as numbers; nothing if it cannot be read.
fn cpus_of(list: &str) -> Vec<u32> {
    let range = |part: &str| -> Option<Range<u32>> {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse().ok()?..to.trim().parse::<u32>().ok()?.checked_add(1)?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// What the kernel says of a node.
fn kernel_list(node: usize) -> Option<String> {
    read_sys(&format!("/sys/devices/system/node/node{node}/cpulist"))
}

/// The node to which a persistent-memory device belongs: that of a DAX device itself, or that of
/// the block device under a file.
fn device_node(fd: RawFd) -> Option<u32> {
    if fd < 0 {
        return None;
    }
    // SAFETY: the region's descriptor, which is open as long as the region; the loan ends here.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    let (class, number) = if is_device { ("char", stat.st_rdev) } else { ("block", stat.st_dev) };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    // A partition's device is the disk's.
    let mut places = ["device", "../device"].iter();
    let node =
        places.find_map(|at| read_sys(&format!("/sys/dev/{class}/{major}:{minor}/{at}/numa_node")));
    node?.trim().parse().ok()
}

/// A small file. By system calls of our own: a preload library interposes the others.
fn read_sys(path: &str) -> Option<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = [0; 4096];
    let length = rustix::io::read(file, &mut bytes).ok()?;
    String::from_utf8(bytes[..length].to_vec()).ok()
}

impl Topology {
    fn simulated(text: &str) -> Self {
        Self { cpus: text.split(';').map(cpus_of).take(NODES_MAX).collect(), simulated: true }
    }

    fn detect() -> Self {
        if let Ok(text) = std::env::var(SIMULATED) {
            return Self::simulated(&text);
        }
        // Nearly every machine has one.
        if read_sys("/sys/devices/system/node/online").is_none_or(|text| text.trim() == "0") {
            return Self::default();
        }
        let lists = (0..NODES_MAX).map_while(kernel_list);
        Self { cpus: lists.map(|text| cpus_of(text.trim())).collect(), simulated: false }
    }

    /// The node of a CPU; the first, if none has it.
    fn node_of(&self, cpu: u32) -> u32 {
        let found = self.cpus.iter().position(|cpus| cpus.contains(&cpu));
        found.map_or(0, |node| node as u32)
    }

    /// The CPUs of a node, for the kernel.
    fn set_of(&self, node: usize) -> CpuSet {
        let mut set = CpuSet::new();
        let cpus = self.cpus.get(node).into_iter().flatten().map(|&cpu| cpu as usize);
        cpus.filter(|&cpu| cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
        set
    }

    /// Whether somebody but us has chosen the CPUs of a thread that may run on these.
    fn is_chosen(&self, now: &CpuSet) -> bool {
        let all: usize = self.cpus.iter().map(Vec::len).sum();
        let nodes = 0..self.cpus.len();
        (now.count() as usize) < all && !nodes.into_iter().any(|node| self.set_of(node) == *now)
    }
}

/// What a process knows of it; a forked child has a copy.
#[derive(Default)]
pub(crate) struct NumaState {
    topology: OnceLock<Topology>,
    /// The node of each allocation group.
    groups: OnceLock<Vec<u32>>,
    /// The policy, and whether it was set.
    off: AtomicBool,
    moves: AtomicBool,
    /// The home + 1.
    home: AtomicU32,
    /// Blocks of file data allocated on the node of the CPU that did it, and elsewhere.
    local_blocks: AtomicU64,
    remote_blocks: AtomicU64,
}

/// Where this process has allocated file data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NumaUse {
    /// The machine's nodes.
    pub nodes: u32,
    /// This process's home, once it has allocated.
    pub home: Option<u32>,
    /// Bytes on the node of the CPU that allocated them.
    pub local_bytes: u64,
    /// Bytes elsewhere.
    pub remote_bytes: u64,
}

impl Space {
    #[inline]
    fn topology(&self) -> &Topology {
        match self.numa.topology.get() {
            Some(topology) => topology,
            None => self.detect_topology(),
        }
    }

    #[cold]
    fn detect_topology(&self) -> &Topology {
        let topology = &self.numa.topology;
        if topology.get().is_none() {
            // Looked at before it is set: a child forked meanwhile does not wait for who looked.
            let _ = topology.set(Topology::detect());
        }
        topology.get_or_init(Topology::default)
    }

    /// How many nodes the machine has.
    pub fn nodes(&self) -> u32 {
        self.topology().cpus.len().max(1) as u32
    }

    /// Sets what this process does about nodes. (The machine's are looked at when data is
    /// allocated.)
    pub fn set_numa(&self, numa: Numa) {
        self.numa.off.store(numa == Numa::Off, Ordering::Relaxed);
        self.numa.moves.store(numa == Numa::Move, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn has_nodes(&self) -> bool {
        self.topology().cpus.len() > 1
    }

    /// Whether nodes matter to this process.
    #[inline]
    pub(crate) fn numa_on(&self) -> bool {
        self.has_nodes() && !self.numa.off.load(Ordering::Relaxed)
    }

    /// Where this process has allocated.
    pub fn numa_use(&self) -> NumaUse {
        let numa = &self.numa;
        let bytes = |blocks: &AtomicU64| blocks.load(Ordering::Relaxed) * BLOCK;
        NumaUse {
            nodes: self.nodes(),
            home: numa.home.load(Ordering::Relaxed).checked_sub(1),
            local_bytes: bytes(&numa.local_blocks),
            remote_bytes: bytes(&numa.remote_blocks),
        }
    }

    /// This process's home; chosen now, if it has none and its slot knows of none.
    fn home(&self) -> Result<u32> {
        let home = &self.numa.home;
        if let Some(known) = home.load(Ordering::Relaxed).checked_sub(1) {
            return Ok(known);
        }
        // An image before this one may have left it.
        let at = self.rt.process(self.slot()) + HOME;
        let left = self.rt.load(at)?;
        let node = match (left >> 32 == u64::from(self.epoch), (left as u32).checked_sub(1)) {
            (true, Some(node)) if node < self.nodes() => node,
            _ => self.topology().node_of(current_cpu()),
        };
        self.set_home(node)?;
        Ok(node)
    }

    /// This process's home is that of the one that has executed it, which said so.
    pub fn inherit_home(&self, node: u32) {
        if self.numa_on() && node < self.nodes() {
            // The slot keeps it for the next image alone.
            let _ = self.set_home(node);
        }
    }

    fn set_home(&self, node: u32) -> Result<()> {
        self.numa.home.store(node + 1, Ordering::Relaxed);
        self.note_home()
    }

    /// Leaves the home in this process's slot, for what it executes next. A new slot is told too.
    pub(crate) fn note_home(&self) -> Result<()> {
        let home = self.numa.home.load(Ordering::Relaxed);
        let word = u64::from(self.epoch) << 32 | u64::from(home);
        Ok(self.rt.store(self.rt.process(self.slot()) + HOME, word)?)
    }

    /// The node of an allocation group.
    pub(crate) fn group_node(&self, group: u64) -> u32 {
        let groups = &self.numa.groups;
        if groups.get().is_none() {
            let found = (0..self.groups()).map(|group| self.find_group_node(group)).collect();
            let _ = groups.set(found);
        }
        groups.get().and_then(|nodes| nodes.get(group as usize)).copied().unwrap_or(0)
    }

    fn find_group_node(&self, group: u64) -> u32 {
        let nodes = self.nodes();
        let dealt = (group * u64::from(nodes) / self.groups()) as u32;
        if nodes == 1 || self.topology().simulated {
            return dealt;
        }
        let chunks = self.group_chunks(group);
        let step = ((chunks.end - chunks.start) / SAMPLES).max(1) as usize;
        let mut votes = [0_u32; NODES_MAX];
        for chunk in chunks.step_by(step) {
            let node = self.region.memory_node(self.chunk_start(chunk) * BLOCK);
            if let Some(vote) = node.and_then(|node| votes.get_mut(node as usize)) {
                *vote += 1;
            }
        }
        let most = (0..nodes).max_by_key(|&node| votes[node as usize]).unwrap_or(dealt);
        if votes[most as usize] > 0 {
            return most;
        }
        let device = device_node(self.region.fd());
        device.filter(|&node| node < nodes).unwrap_or(dealt)
    }

    /// The groups of a node.
    fn groups_of(&self, node: u32) -> impl Iterator<Item = u64> {
        (0..self.groups()).filter(move |&group| self.group_node(group) == node)
    }

    /// The node in whose memory a byte of the region lies: its group's.
    pub fn node_of(&self, region_offset: u64) -> u32 {
        let block = region_offset / BLOCK;
        if !self.in_pool(block, 1) {
            return 0;
        }
        self.group_node(self.group_of(self.chunk_of(block).0))
    }

    /// The group that this thread allocates from first.
    pub(crate) fn local_group(&self) -> u64 {
        let cpu = u64::from(current_cpu());
        if !self.numa_on() {
            return cpu % self.groups();
        }
        let home = self.home().unwrap_or(0);
        let count = self.groups_of(home).count();
        let near = self.groups_of(home).nth(cpu as usize % count.max(1));
        near.unwrap_or(cpu % self.groups())
    }

    /// The node whose groups a request is to be served from first.
    pub(crate) fn near(&self, want: Want) -> Result<u32> {
        if let Some(node) = want.node.filter(|&node| node < self.nodes()) {
            return Ok(node);
        }
        let home = self.home()?;
        let topology = self.topology();
        if self.numa.moves.load(Ordering::Relaxed) && topology.node_of(current_cpu()) != home {
            self.move_thread(home);
        }
        Ok(home)
    }

    /// Moves this thread to the CPUs of a node, unless its program has chosen its CPUs. What cannot
    /// be moved works where it is.
    #[cold]
    fn move_thread(&self, node: u32) {
        let topology = self.topology();
        if sched_getaffinity(None).is_ok_and(|now| !topology.is_chosen(&now)) {
            let _ = sched_setaffinity(None, &topology.set_of(node as usize));
        }
    }

    /// Data was allocated: counts it, and looks for another home if this one had no room.
    pub(crate) fn allocated_on(&self, taken: &Extents, want: Want) -> Result<()> {
        let here = self.topology().node_of(current_cpu());
        let home = if self.numa_on() { Some(self.home()?) } else { None };
        let mut away = false;
        for &(block, count) in taken {
            let node = self.node_of(block * BLOCK);
            let numa = &self.numa;
            let blocks = if node == here { &numa.local_blocks } else { &numa.remote_blocks };
            blocks.fetch_add(count, Ordering::Relaxed);
            away |= home.is_some_and(|home| node != home);
        }
        if let Some(home) = home.filter(|_| away && want.node.is_none()) {
            let mut best = (0, home);
            for node in 0..self.nodes() {
                let mut free = 0_i64;
                for group in self.groups_of(node) {
                    // A counter may be below zero for a moment.
                    free += (self.group_load(group, Group::Blocks)? as i64).max(0);
                }
                best = best.max((free, node));
            }
            self.set_home(best.1)?;
        }
        Ok(())
    }

    /// Whether all of these blocks lie on a node.
    pub(crate) fn lies_on(&self, node: u32, mut runs: impl Iterator<Item = (u64, u64)>) -> bool {
        runs.all(|(block, _)| self.node_of(block * BLOCK) == node)
    }
}

/// The node that an inode's flags pin it to.
#[inline]
pub(crate) fn pinned(flags: u16) -> Option<u32> {
    u32::from(flags >> PINNED_SHIFT).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::plan::Position;
    use crate::testing::{file, region, root};
    use crate::volume::Volume;
    use crate::{AttachOptions, attach_region};
    use rustix::io::Errno;
    use std::sync::Arc;
    use vfs::Node;
    use vfs::{FileSystem, UserIn};

    /// A volume of four groups on a machine of two nodes, this thread on a CPU of the first or
    /// second.
    fn volume(numa: Numa, on: u32) -> Arc<Volume> {
        let volume = attach_region(region(64, 4), &AttachOptions::default()).unwrap();
        let mut pinned = CpuSet::new();
        pinned.set(current_cpu() as usize);
        let _ = sched_setaffinity(None, &pinned);
        let here = current_cpu();
        let text = if on == 0 { format!("{here};1000") } else { format!("1000;{here}") };
        volume.numa.topology.set(Topology::simulated(&text)).unwrap();
        volume.set_numa(numa);
        volume
    }

    fn cpu_set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        for &cpu in cpus {
            set.set(cpu);
        }
        set
    }

    fn append(volume: &Volume, node: Node, blocks: u64) {
        let bytes = vec![1; (blocks * BLOCK) as usize];
        volume.write_file(node, Position::End, &[UserIn::new(&bytes)]).unwrap();
    }

    fn nodes_of(volume: &Volume, node: Node) -> Vec<u32> {
        let extents = volume.extents(node).unwrap();
        let mut nodes: Vec<u32> =
            extents.iter().map(|extent| volume.node_of(extent.region_offset)).collect();
        nodes.dedup();
        nodes
    }

    #[test]
    fn nodes_are_read_from_lists_of_cpus() {
        let parsed = Topology::simulated("0-2,8;3");
        assert_eq!(parsed.cpus, [vec![0, 1, 2, 8], vec![3]]);
        assert_eq!((parsed.node_of(8), parsed.node_of(3), parsed.node_of(77)), (0, 1, 0));
        assert_eq!(Topology::simulated("x;").cpus, [vec![0; 0], vec![]]);
        let (all, second) = (cpu_set(&[0, 1, 2, 3, 8]), cpu_set(&[3]));
        assert!(!parsed.is_chosen(&all) && !parsed.is_chosen(&second), "nobody's, and ours");
        assert!(parsed.is_chosen(&cpu_set(&[1])) && parsed.is_chosen(&cpu_set(&[2, 3])));
        assert_eq!("move".parse(), Ok(Numa::Move));
        assert!("away".parse::<Numa>().is_err());
    }

    #[test]
    fn every_write_is_local_while_the_home_has_room() {
        for home in [0, 1] {
            let volume = volume(Numa::Place, home);
            let mut files = Vec::new();
            for number in 0..8 {
                let name = format!("f{number}");
                files.push(volume.create(root(&volume), name.as_bytes(), &file()).unwrap());
            }
            // Appends in turns, of many blocks and of few: 34 of the home's 60 MiB.
            for round in 0..24 {
                for &node in &files {
                    append(&volume, node, if round % 10 == 9 { 200 } else { 30 });
                }
            }
            for &node in &files {
                assert_eq!(nodes_of(&volume, node), [home]);
            }
            let used = volume.numa_use();
            assert_eq!((used.nodes, used.home, used.remote_bytes), (2, Some(home), 0));
            assert!(used.local_bytes >= 8 * 24 * 30 * BLOCK);
            // Until it is full: then the other node is home.
            let last = volume.create(root(&volume), b"last", &file()).unwrap();
            append(&volume, last, 40 << 8);
            assert_eq!(nodes_of(&volume, last).len(), 2);
            assert_eq!(volume.numa_use().home, Some(1 - home));
        }
    }

    #[test]
    fn a_file_is_pinned_and_without_numa_the_nodes_do_not_matter() {
        let volume = volume(Numa::Place, 0);
        let node = volume.create(root(&volume), b"f", &file()).unwrap();
        assert_eq!(volume.node(node), Ok(None));
        assert_eq!(volume.set_node(node, Some(2)), Err(Errno::INVAL));
        volume.set_node(node, Some(1)).unwrap();
        append(&volume, node, 600);
        assert_eq!((volume.node(node), nodes_of(&volume, node)), (Ok(Some(1)), vec![1]));
        volume.set_xattr(node, crate::namespace::alignment::NAME, b"2M", 0).unwrap();
        assert_eq!(volume.node(node), Ok(Some(1)), "other flags are beside it");
        volume.set_node(node, None).unwrap();
        let other = volume.create(root(&volume), b"g", &file()).unwrap();
        append(&volume, other, 3);
        assert_eq!(nodes_of(&volume, other), [0]);
        assert_eq!(volume.set_node(root(&volume), None), Err(Errno::INVAL));
        volume.set_numa(Numa::Off);
        let before = volume.numa_use();
        append(&volume, other, 3);
        let after = volume.numa_use();
        let all = |used: NumaUse| used.local_bytes + used.remote_bytes;
        assert_eq!(all(after), all(before) + 3 * BLOCK, "it is counted all the same");
        let report = volume.check(&crate::FsckOptions::default()).unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.faults);
    }

    /// Table 5.2 of the dissertation, small: 32 threads append to files of their own, on two nodes.
    /// `cargo test --release -p solera-volume --lib table -- --nocapture` prints the figures.
    #[test]
    fn table_of_remote_writes() {
        let allowed = sched_getaffinity(None).unwrap();
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let first = cpus.next().unwrap();
        let second = cpus.next().unwrap_or(1000);
        for (numa, name) in [(Numa::Off, "off"), (Numa::Place, "place"), (Numa::Move, "move")] {
            let volume = attach_region(region(160, 4), &AttachOptions::default()).unwrap();
            let nodes = Topology::simulated(&format!("{first};{second}"));
            // All CPUs that there are: so none was chosen.
            volume.numa.topology.set(nodes).unwrap();
            volume.set_numa(numa);
            std::thread::scope(|scope| {
                for number in 0..32 {
                    let volume = &volume;
                    scope.spawn(move || {
                        let _ = sched_setaffinity(None, &cpu_set(&[first, second]));
                        let name = format!("f{number}");
                        let new = volume.create(root(volume), name.as_bytes(), &file()).unwrap();
                        for _ in 0..256 {
                            append(volume, new, 1);
                        }
                    });
                }
            });
            let used = volume.numa_use();
            let all = (used.local_bytes + used.remote_bytes).max(1);
            println!("--numa {name}: {} % remote writes", used.remote_bytes * 100 / all);
            assert!(all >= 32 << 20, "each append is counted");
            if numa == Numa::Move {
                // A thread may be on its way home.
                assert!(used.remote_bytes * 20 <= all, "all of it fits at home: {used:?}");
            }
        }
    }

    #[test]
    fn what_a_pinned_file_has_is_brought_to_its_node() {
        let volume = volume(Numa::Place, 0);
        let node = volume.create(root(&volume), b"f", &file()).unwrap();
        append(&volume, node, 700);
        volume.truncate(node, 1200 * BLOCK).unwrap();
        append(&volume, node, 30);
        assert_eq!(nodes_of(&volume, node), [0]);
        assert_eq!(volume.bring_home(node, &mut |_, _| true), Ok(0), "it is not pinned");
        let before = (volume.attributes(node).unwrap(), volume.free_space().unwrap());
        volume.set_node(node, Some(1)).unwrap();
        assert_eq!(volume.bring_home(node, &mut |_, _| false), Ok(0));
        assert_eq!(volume.bring_home(node, &mut |_, _| true), Ok(730 * BLOCK));
        assert_eq!(nodes_of(&volume, node), [1]);
        let after = (volume.attributes(node).unwrap(), volume.free_space().unwrap());
        assert_eq!((after.0.size, after.0.blocks), (before.0.size, before.0.blocks));
        assert_eq!(after.1.data_blocks, before.1.data_blocks);
        let mut bytes = vec![7; 1230 * BLOCK as usize];
        volume.read_file(node, 0, &mut [vfs::UserOut::new(&mut bytes)]).unwrap();
        let in_hole = |at: usize| (700..1200).contains(&(at / BLOCK as usize));
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == u8::from(!in_hole(at))));
        assert_eq!(volume.bring_home(node, &mut |_, _| true), Ok(0), "it is there");
        // A node without room for it: nothing moves.
        let other = volume.create(root(&volume), b"other", &file()).unwrap();
        append(&volume, other, 40 << 8);
        volume.set_node(other, Some(1)).unwrap();
        let places = volume.extents(other).unwrap();
        let moved = volume.bring_home(other, &mut |_, _| true);
        assert!(moved == Err(Errno::NOSPC) || volume.extents(other).unwrap() != places);
        let report = volume.check(&crate::FsckOptions::default()).unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.faults);
    }

    #[test]
    fn groups_belong_to_the_nodes_where_their_pages_lie() {
        let volume = attach_region(region(64, 4), &AttachOptions::default()).unwrap();
        // This machine may have one node; another is made up, and its pages lie nowhere.
        let two = Topology { cpus: vec![vec![0], vec![1]], simulated: false };
        volume.numa.topology.set(two).unwrap();
        let known = volume.region.memory_node(0).is_some();
        let nodes: Vec<u32> = (0..4).map(|group| volume.group_node(group)).collect();
        let touched = (0..4).map(|group| {
            let first = volume.group_chunks(group).start;
            volume.region.memory_node(volume.chunk_start(first) * BLOCK)
        });
        for ((node, touched), dealt) in nodes.iter().zip(touched).zip([0, 0, 1, 1]) {
            let expected = if known { touched.unwrap_or(dealt) } else { dealt };
            assert!(*node == expected || touched.is_none(), "{nodes:?}");
        }
    }

    #[test]
    fn a_thread_moves_home_unless_its_cpus_were_chosen() {
        let volume = volume(Numa::Move, 0);
        let node = volume.create(root(&volume), b"f", &file()).unwrap();
        append(&volume, node, 3);
        let before = sched_getaffinity(None).unwrap();
        // The home is said to be elsewhere: this thread has one CPU of two, so it was chosen, and
        // stays.
        volume.set_home(1).unwrap();
        append(&volume, node, 600);
        assert!(sched_getaffinity(None).unwrap() == before);
        assert!(volume.numa_use().remote_bytes > 0);
    }
}
