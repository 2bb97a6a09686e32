//! The allocator's speed does not depend on how full the volume is: the instructions of mixed
//! operations (creates, appends, overwrites, truncates, unlinks) at 90 % are at most 1.3 times
//! those at 10 %. Counted by the CPU, in this thread's own code; where the kernel does not let it
//! count, nothing is tested. With `SOLERA_TEST_LONG`: over a million operations.

// Means for people lie far below 2^52.
#![allow(clippy::cast_precision_loss)]

use crate::common::{Place, new_file};
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use vfs::{
    Attached, EntryName, FileSystem, FileSystemExt, IoOffset, Kind, NewNode, Node, OpenFlags,
    Removes, UserIn,
};
use volume::{BLOCK, Volume};

/// Bytes of the volume: sparse, for next to nothing is written to the files.
const SIZE: u64 = 4 << 30;
/// Directories that the files are spread over.
const DIRECTORIES: u64 = 512;

fn operations() -> u64 {
    if std::env::var_os("SOLERA_TEST_LONG").is_some() { 1_000_000 } else { 40_000 }
}

/// The instructions that this thread executes in its own code.
struct Instructions(File);

impl Instructions {
    fn new() -> Option<Self> {
        // `struct perf_event_attr`, its first version: type (hardware), size, which (instructions),
        // and as the sixth word the flags: exclude_kernel, exclude_hv.
        let wanted: [u64; 8] = [64 << 32, 1, 0, 0, 0, 1 << 5 | 1 << 6, 0, 0];
        // SAFETY: reads the structure, which says its length; gives a new descriptor or fails.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, wanted.as_ptr(), 0, -1, -1, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: nobody else has the new descriptor.
        let mut counter = Self(unsafe { File::from_raw_fd(fd) });
        (counter.read() > 0).then_some(counter)
    }

    fn read(&mut self) -> u64 {
        let mut count = [0; 8];
        self.0.read_exact(&mut count).expect("a count");
        u64::from_ne_bytes(count)
    }
}

/// Files that come and go.
struct Life<'v> {
    volume: &'v Volume,
    directories: Vec<Node>,
    /// Directory, name and blocks of each file.
    files: Vec<(Node, u64, u64)>,
    blocks: u64,
    names: u64,
    state: u64,
}

impl<'v> Life<'v> {
    fn new(volume: &'v Volume) -> Self {
        let make = |number: u64| {
            let mode = 0o755;
            let new = NewNode { kind: Kind::Directory, mode, uid: 0, gid: 0, rdev: 0, target: &[] };
            volume.create(volume.root(), format!("d{number}").as_bytes(), &new).expect("made")
        };
        let directories = (0..DIRECTORIES).map(make).collect();
        Self { volume, directories, files: Vec::new(), blocks: 0, names: 0, state: 99 }
    }

    /// xorshift64*.
    fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % limit
    }

    /// Mostly small, some of a few chunks: 1 to 1024 blocks, each doubling half as likely.
    fn draw(&mut self) -> u64 {
        let scale = self.below(1 << 11).max(1).ilog2();
        1 + self.below(1 << (10 - scale))
    }

    fn allocate(&self, node: Node, from: u64, blocks: u64) {
        let desc = self.volume.open(node.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
        self.volume.allocate(desc, 0, from * BLOCK, blocks * BLOCK).expect("allocated");
        self.volume.close(desc).expect("closed");
    }

    fn create(&mut self) {
        let (blocks, dir) = (self.draw(), self.below(DIRECTORIES));
        let dir = self.directories[dir as usize];
        let name = self.names;
        self.names += 1;
        let node = self.volume.create(dir, name.to_string().as_bytes(), &new_file()).expect("made");
        self.allocate(node, 0, blocks);
        self.files.push((dir, name, blocks));
        self.blocks += blocks;
    }

    fn remove(&mut self) {
        let at = self.below(self.files.len() as u64) as usize;
        let (dir, name, blocks) = self.files.swap_remove(at);
        self.volume
            .remove(&EntryName::new(dir, name.to_string().as_bytes()), Removes::Name)
            .expect("removed");
        self.blocks -= blocks;
    }

    /// Appends some blocks to a file, or cuts some off.
    fn resize(&mut self) {
        let at = self.below(self.files.len() as u64) as usize;
        let (dir, name, blocks) = self.files[at];
        let node = self.volume.lookup(dir, name.to_string().as_bytes()).expect("found");
        let more = 1 + self.below(16);
        let next = if self.below(2) == 0 {
            self.allocate(node, blocks, more);
            blocks + more
        } else {
            let less = blocks.saturating_sub(more).max(1);
            self.volume.truncate(node, less * BLOCK).expect("cut");
            less
        };
        self.files[at].2 = next;
        self.blocks = self.blocks + next - blocks;
    }

    /// A block anew, which goes to a fresh one.
    fn overwrite(&mut self) {
        let at = self.below(self.files.len() as u64) as usize;
        let (dir, name, blocks) = self.files[at];
        let node = self.volume.lookup(dir, name.to_string().as_bytes()).expect("found");
        let block = self.below(blocks);
        let desc = self.volume.open(node.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
        let data = [UserIn::new(&[1; BLOCK as usize])];
        self.volume.write(desc, &data, IoOffset::offset(block * BLOCK)).expect("written");
        self.volume.close(desc).expect("closed");
    }

    /// Fills the volume up to `goal` blocks, and lets so many operations pass there.
    fn pass(&mut self, goal: u64, operations: u64) {
        while self.blocks < goal {
            self.create();
        }
        for _ in 0..operations {
            match self.below(6) {
                0 => self.resize(),
                1 => self.overwrite(),
                _ if self.blocks < goal => self.create(),
                _ => self.remove(),
            }
        }
    }
}

#[test]
fn a_full_volume_costs_no_more_instructions_than_an_empty_one() {
    let Some(mut instructions) = Instructions::new() else {
        eprintln!("the kernel does not count instructions here: nothing tested");
        return;
    };
    let mut means = Vec::new();
    for percent in [10, 90] {
        let place = Place::of_size(&format!("speed-{percent}"), SIZE);
        let volume = place.attach();
        let mut life = Life::new(&volume);
        let goal = SIZE / BLOCK / 100 * percent;
        life.pass(goal, operations() / 2);
        let before = instructions.read();
        life.pass(goal, operations());
        means.push((instructions.read() - before) as f64 / operations() as f64);
        drop(life);
        volume.detach().expect("detached");
    }
    let [empty, full] = means[..] else { unreachable!("two fillings") };
    let ratio = full / empty;
    println!(
        "instructions of an operation: {empty:.0} at 10 %, {full:.0} at 90 %: {ratio:.2} times"
    );
    assert!(ratio <= 1.3, "{empty:.0} at 10 %, {full:.0} at 90 %");
}
