//! NUMA: which part of the volume is near, and which node a process calls its home (`WineFS`, section 5.5,
//! "Minimizing remote NUMA accesses").
//!
//! The allocation groups belong to the machine's memory nodes, in order, as many to each. A process's
//! *home* is the node on which it runs when it first allocates file data; its children have the same,
//! also after an exec (a word of the process slot carries it). Data goes to the home's groups as long
//! as they have room, also where that breaks a chunk; then another node becomes the home, the one with
//! the most room. A file can be pinned to a node ([`Volume::set_node`]): then that one comes first.
//! With [`Numa::Move`] a thread that is about to allocate elsewhere moves home (by its affinity to
//! CPUs), if its program has not chosen CPUs itself.
//!
//! With one node, which is nearly every machine, nothing of this happens. The nodes are those of
//! `/sys/devices/system/node`, or `SOLERA_NUMA_NODES` simulates others: the CPUs of each, as `0-3;4-7`.
//!
//! No locks; what is kept for statistics is this process's alone.

use crate::Result;
use crate::alloc::{Extents, Want};
use crate::chunk::Group;
use crate::layout::BLOCK;
use crate::op::current_cpu;
use crate::volume::Volume;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use vfs::{Kind, Node};

/// Word of a process slot: the home + 1.
pub(crate) const HOME: u64 = 48;
/// The variable that simulates nodes.
const SIMULATED: &str = "SOLERA_NUMA_NODES";
/// Bits of an inode's flags, from the ninth on, that hold the node + 1 to which it is pinned.
const PINNED_SHIFT: u32 = 8;
/// Nodes at most.
const NODES_MAX: usize = 64;

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
            other => Err(format!("\"{other}\" for NUMA: off, place or move is needed")),
        }
    }
}

/// The CPUs of each node.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
struct Topology(Vec<Vec<u32>>);

/// `0-3,8` as numbers; nothing if it cannot be read.
fn cpus_of(list: &str) -> Vec<u32> {
    let range = |part: &str| -> Option<Range<u32>> {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse().ok()?..to.trim().parse::<u32>().ok()?.checked_add(1)?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// What the kernel says of a node. By system calls of our own: a preload library interposes the others.
fn kernel_list(node: usize) -> Option<String> {
    let path = format!("/sys/devices/system/node/node{node}/cpulist");
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = [0; 4096];
    let length = rustix::io::read(file, &mut bytes).ok()?;
    String::from_utf8(bytes[..length].to_vec()).ok()
}

impl Topology {
    fn parse(text: &str) -> Self {
        Self(text.split(';').map(cpus_of).take(NODES_MAX).collect())
    }

    fn detect() -> Self {
        if let Ok(text) = std::env::var(SIMULATED) {
            return Self::parse(&text);
        }
        Self((0..NODES_MAX).map_while(kernel_list).map(|text| cpus_of(text.trim())).collect())
    }

    /// The node of a CPU; the first, if none has it.
    fn node_of(&self, cpu: u32) -> u32 {
        let found = self.0.iter().position(|cpus| cpus.contains(&cpu));
        found.map_or(0, |node| node as u32)
    }
}

/// What a process knows of it; a forked child has a copy.
#[derive(Default)]
pub(crate) struct NumaState {
    topology: OnceLock<Topology>,
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

/// Allocation groups in the order in which they are tried; those of the first list give all they have
/// before the second is asked.
pub(crate) type Scopes = SmallVec<[SmallVec<[u64; 8]>; 2]>;

impl Volume {
    fn topology(&self) -> &Topology {
        self.local.numa.topology.get_or_init(Topology::detect)
    }

    /// How many nodes the machine has.
    pub fn nodes(&self) -> u32 {
        self.topology().0.len().max(1) as u32
    }

    /// Sets what this process does about nodes, and looks at the machine's.
    pub fn set_numa(&self, numa: Numa) {
        self.topology();
        self.local.numa.off.store(numa == Numa::Off, Ordering::Relaxed);
        self.local.numa.moves.store(numa == Numa::Move, Ordering::Relaxed);
    }

    /// Whether nodes matter here.
    #[inline]
    fn numa_on(&self) -> bool {
        self.topology().0.len() > 1 && !self.local.numa.off.load(Ordering::Relaxed)
    }

    /// Where this process has allocated.
    pub fn numa_use(&self) -> NumaUse {
        let numa = &self.local.numa;
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
        let home = &self.local.numa.home;
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

    fn set_home(&self, node: u32) -> Result<()> {
        self.local.numa.home.store(node + 1, Ordering::Relaxed);
        self.note_home()
    }

    /// Leaves the home in this process's slot, for what it executes next. A new slot is told too.
    pub(crate) fn note_home(&self) -> Result<()> {
        let home = self.local.numa.home.load(Ordering::Relaxed);
        let word = u64::from(self.epoch) << 32 | u64::from(home);
        Ok(self.rt.store(self.rt.process(self.slot()) + HOME, word)?)
    }

    /// The groups of a node.
    fn groups_of(&self, node: u32) -> Range<u64> {
        let (groups, nodes) = (self.groups(), u64::from(self.nodes()));
        if groups < nodes {
            let group = u64::from(node) * groups / nodes;
            return group..group + 1;
        }
        u64::from(node) * groups / nodes..(u64::from(node) + 1) * groups / nodes
    }

    /// The node in whose memory a byte of the region lies, as far as the volume's layout says.
    pub fn node_of(&self, region_offset: u64) -> u32 {
        let nodes = self.nodes();
        let block = region_offset / BLOCK;
        if !self.in_pool(block, 1) {
            return 0;
        }
        let group = self.group_of(self.chunk_of(block).0);
        (0..nodes).find(|&node| self.groups_of(node).contains(&group)).unwrap_or(0)
    }

    /// The group that this thread allocates from first.
    pub(crate) fn local_group(&self) -> u64 {
        let cpu = u64::from(current_cpu());
        if !self.numa_on() {
            return cpu % self.groups();
        }
        let near = self.groups_of(self.home().unwrap_or(0));
        near.start + cpu % (near.end - near.start).max(1)
    }

    /// The groups for a request, by preference.
    pub(crate) fn scopes(&self, want: Want) -> Result<Scopes> {
        let groups = self.groups_by_preference()?;
        let mut scopes = Scopes::new();
        if !self.numa_on() {
            scopes.push(groups);
            return Ok(scopes);
        }
        let home = match want.node {
            Some(node) if node < self.nodes() => node,
            _ => self.home()?,
        };
        if self.local.numa.moves.load(Ordering::Relaxed) && want.node.is_none() {
            self.go_home(home);
        }
        let near = self.groups_of(home);
        let (first, rest) = groups.into_iter().partition(|group| near.contains(group));
        scopes.push(first);
        scopes.push(rest);
        Ok(scopes)
    }

    /// Moves this thread to the CPUs of a node, unless somebody has chosen its CPUs.
    #[cold]
    fn move_thread(&self, node: u32) {
        let mut near = CpuSet::new();
        let mut all = 0;
        for (at, cpus) in (0..).zip(&self.topology().0) {
            for &cpu in cpus.iter().filter(|&&cpu| (cpu as usize) < CpuSet::MAX_CPU) {
                all += 1;
                if at == node {
                    near.set(cpu as usize);
                }
            }
        }
        // As many as there are: nobody has chosen. What cannot be moved works where it is.
        if sched_getaffinity(None).is_ok_and(|now| now.count() >= all) {
            let _ = sched_setaffinity(None, &near);
        }
    }

    fn go_home(&self, home: u32) {
        if self.topology().node_of(current_cpu()) != home {
            self.move_thread(home);
        }
    }

    /// Data was allocated: counts it, and looks for another home if this one had no room.
    pub(crate) fn allocated_on(&self, taken: &Extents, want: Want) -> Result<()> {
        if !self.numa_on() {
            return Ok(());
        }
        let here = self.topology().node_of(current_cpu());
        let home = self.home()?;
        let mut away = false;
        for &(block, count) in taken {
            let node = self.node_of(block * BLOCK);
            let numa = &self.local.numa;
            let blocks = if node == here { &numa.local_blocks } else { &numa.remote_blocks };
            blocks.fetch_add(count, Ordering::Relaxed);
            away |= node != home;
        }
        if away && want.node.is_none() && want.fuller_than.is_none() {
            let mut best = (0, home);
            for node in 0..self.nodes() {
                let mut free = 0u64;
                for group in self.groups_of(node) {
                    free = free.wrapping_add(self.group_load(group, Group::Blocks)?);
                }
                best = best.max((free, node));
            }
            self.set_home(best.1)?;
        }
        Ok(())
    }

    /// The node to which a regular file is pinned.
    pub fn node(&self, node: Node) -> Result<Option<u32>> {
        self.read_steadily(node, |_, identity| match identity.kind() {
            Some(Kind::File) => Ok(pinned(identity.flags)),
            _ => Err(Errno::INVAL),
        })
    }

    /// Pins a regular file to a node: what it is given from now on lies there as long as there is room.
    /// What it has stays where it is. `EINVAL`: no regular file, or no such node.
    pub fn set_node(&self, node: Node, to: Option<u32>) -> Result<()> {
        if to.is_some_and(|to| to >= self.nodes()) {
            return Err(Errno::INVAL);
        }
        let mut op = self.begin()?;
        op.lock(&[self.inode_of(node)?])?;
        let mut held = self.held(node)?;
        if held.identity.kind() != Some(Kind::File) {
            return Err(Errno::INVAL);
        }
        op.work()?;
        held.touch();
        let kept = held.identity.flags & ((1 << PINNED_SHIFT) - 1);
        let word = to.map_or(0, |to| (to as u16 + 1) << PINNED_SHIFT);
        held.identity.flags = kept | word;
        op.commit_held(&[&held], &[], &[])?;
        op.end()
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
    use crate::file_write::Position;
    use crate::testing::{file, region, root};
    use crate::{AttachOptions, attach_region};
    use std::sync::Arc;
    use vfs::UserIn;

    /// A volume of four groups on a machine of two nodes, this thread on a CPU of the first or second.
    fn volume(numa: Numa, on: u32) -> Arc<Volume> {
        let volume = attach_region(region(64, 4), &AttachOptions::default()).unwrap();
        let mut pinned = CpuSet::new();
        pinned.set(current_cpu() as usize);
        let _ = sched_setaffinity(None, &pinned);
        let here = current_cpu();
        let text = if on == 0 { format!("{here};1000") } else { format!("1000;{here}") };
        volume.local.numa.topology.set(Topology::parse(&text)).unwrap();
        volume.set_numa(numa);
        volume
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
        let parsed = Topology::parse("0-2,8;3");
        assert_eq!(parsed, Topology(vec![vec![0, 1, 2, 8], vec![3]]));
        assert_eq!((parsed.node_of(8), parsed.node_of(3), parsed.node_of(77)), (0, 1, 0));
        assert_eq!(Topology::parse("x;"), Topology(vec![vec![], vec![]]));
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
            // Appends in turns, small and of whole chunks: 40 of the home's 64 MiB.
            for round in 0..40 {
                for &node in &files {
                    append(&volume, node, if round % 10 == 9 { 200 } else { 30 });
                }
            }
            for &node in &files {
                assert_eq!(nodes_of(&volume, node), [home]);
            }
            let used = volume.numa_use();
            assert_eq!((used.nodes, used.home, used.remote_bytes), (2, Some(home), 0));
            assert!(used.local_bytes >= 8 * 40 * 30 * BLOCK);
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
        volume.set_xattr(node, crate::align::NAME, b"2M", 0).unwrap();
        assert_eq!(volume.node(node), Ok(Some(1)), "other flags are beside it");
        volume.set_node(node, None).unwrap();
        let other = volume.create(root(&volume), b"g", &file()).unwrap();
        append(&volume, other, 3);
        assert_eq!(nodes_of(&volume, other), [0]);
        assert_eq!(volume.set_node(root(&volume), None), Err(Errno::INVAL));
        volume.set_numa(Numa::Off);
        let remote = volume.numa_use().remote_bytes;
        append(&volume, other, 3);
        assert_eq!(volume.numa_use().remote_bytes, remote, "nothing is counted");
        let report = volume.check(&crate::FsckOptions::default()).unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.faults);
    }

    #[test]
    fn a_thread_moves_home_unless_its_cpus_were_chosen() {
        let volume = volume(Numa::Move, 0);
        let node = volume.create(root(&volume), b"f", &file()).unwrap();
        append(&volume, node, 3);
        let before = sched_getaffinity(None).unwrap();
        // The home is said to be elsewhere: this thread has one CPU of two, so it was chosen, and stays.
        volume.set_home(1).unwrap();
        append(&volume, node, 600);
        assert!(sched_getaffinity(None).unwrap() == before);
        assert!(volume.numa_use().remote_bytes > 0);
    }
}
