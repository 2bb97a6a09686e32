//! Readers beside a writer that changes blocks in place: those of other blocks go on, and nobody
//! sees half a write, or an older one than that which had returned.

use crate::inode::in_place::Blocks;
use crate::inode::{Inode, LIVE_STORED};
use crate::medium::layout::BLOCK;
use crate::testing::{Random, file, fresh, volume};
use crate::volume::Volume;
use crate::{Mode, testing};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use vfs::{Desc, FileSystem, IoOffset, Node, OpenFlags, UserIn, UserOut};

const WORDS: usize = (BLOCK / 4) as usize;

/// A file of so many blocks, in one piece, and what has it open.
fn start(volume: &Arc<Volume>, blocks: u64) -> (Node, Desc) {
    let root = testing::root(volume);
    let node = volume.create(root, b"a", &file()).unwrap();
    let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap();
    write(volume, desc, 0, blocks, 0);
    (node, desc)
}

/// Fills blocks with a number.
fn write(volume: &Volume, desc: Desc, first: u64, blocks: u64, number: u32) {
    let bytes = number.to_le_bytes().repeat(WORDS * blocks as usize);
    let done = volume.write(desc, &[UserIn::new(&bytes)], IoOffset::offset(first * BLOCK)).unwrap();
    assert_eq!(done, bytes.len());
}

/// The number that some blocks hold.
fn read(volume: &Volume, desc: Desc, first: u64, blocks: u64) -> u32 {
    let mut bytes = vec![0; (blocks * BLOCK) as usize];
    let out = &mut [UserOut::new(&mut bytes)];
    assert_eq!(
        volume.read(desc, out, IoOffset::offset(first * BLOCK)).unwrap() as u64,
        blocks * BLOCK
    );
    let (words, _) = bytes.as_chunks::<4>();
    assert!(words.iter().all(|word| *word == words[0]), "torn at block {first}");
    u32::from_le_bytes(words[0])
}

/// While a writer is at work, and has told of the blocks that it changes, others are read: also
/// where the map is remembered. Who reads one of them waits for its end.
#[test]
fn who_reads_other_blocks_does_not_wait() {
    let (volume, _) = fresh();
    let (node, desc) = start(&volume, 16);
    let live = volume.live_lines(Inode(node.ino)).unwrap();
    for remembered in [false, true] {
        if remembered {
            // The first one moves the number, the second one looks at the map.
            write(&volume, desc, 1, 1, 0);
            for block in 0..16 {
                assert_eq!(read(&volume, desc, block, 1), 0);
            }
        }
        let even = live.sequence().unwrap();
        let mut op = volume.begin().unwrap();
        op.lock(&[Inode(node.ino)]).unwrap();
        op.work().unwrap();
        live.tell_in_place(even, Blocks::of(5 * BLOCK, 2 * BLOCK)).unwrap();
        std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            for block in [4, 7, 15, 5, 6] {
                let (volume, tell) = (&volume, tell.clone());
                scope.spawn(move || {
                    assert_eq!(read(volume, desc, block, 1), 0);
                    tell.send(block).unwrap();
                });
            }
            let mut through: Vec<u64> =
                (0..3).map(|_| told.recv_timeout(Duration::from_mins(1)).unwrap()).collect();
            through.sort_unstable();
            assert_eq!(through, [4, 7, 15]);
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "a reader did not wait");
            op.end().unwrap();
            assert!((0..2).all(|_| told.recv_timeout(Duration::from_mins(1)).is_ok()));
        });
    }
}

/// What is told is not believed once it is taken back, or another change has begun.
#[test]
fn other_changes_are_waited_for() {
    let (volume, _) = fresh();
    let (node, desc) = start(&volume, 16);
    let live = volume.live_lines(Inode(node.ino)).unwrap();
    for taken_back in [false, true] {
        write(&volume, desc, 1, 1, 0);
        let even = live.sequence().unwrap();
        let mut op = volume.begin().unwrap();
        op.lock(&[Inode(node.ino)]).unwrap();
        op.work().unwrap();
        if taken_back {
            live.tell_in_place(even, Blocks::of(0, BLOCK)).unwrap();
            live.tell_nothing().unwrap();
        }
        std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let volume = &volume;
            scope.spawn(move || {
                assert_eq!(read(volume, desc, 9, 1), 0);
                tell.send(()).unwrap();
            });
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err(), "it did not wait");
            op.end().unwrap();
            told.recv_timeout(Duration::from_mins(1)).unwrap();
        });
    }
}

/// The access time moves with the first read behind a change, whichever way that goes.
#[test]
fn a_read_behind_a_change_in_place_moves_the_access_time() {
    let (volume, _) = fresh();
    let (node, desc) = start(&volume, 4);
    let inode = Inode(node.ino);
    for number in 1..20 {
        write(&volume, desc, 1, 1, number);
        assert_eq!(read(&volume, desc, 1, 1), number);
        let (read_at, now) = (volume.access_time(inode).unwrap(), volume.current(inode).unwrap());
        assert!(read_at >= now.mtime, "{number}");
        assert_eq!(now.flags & LIVE_STORED, 0);
    }
}

/// One writer, whose calls change one block, two, or so many that they move, and others that append
/// and cut; readers of what is remembered and of what is not.
fn mixed(mode: Mode) {
    const BLOCKS: u64 = 64;
    let volume = volume(mode, 32);
    let (node, desc) = start(&volume, BLOCKS);
    let newest: [AtomicU32; BLOCKS as usize] = [const { AtomicU32::new(0) }; BLOCKS as usize];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 1..3 {
            let (volume, newest, done) = (&volume, &newest, &done);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !done.load(Ordering::Relaxed) {
                    let block = random.below(BLOCKS);
                    let least = newest[block as usize].load(Ordering::Acquire);
                    let found = read(volume, desc, block, 1);
                    assert!(found >= least, "block {block}: {found}, {least} was there before");
                }
            });
        }
        let pairs = (&volume, &done);
        scope.spawn(move || {
            // The last two are only changed together.
            let (volume, done) = pairs;
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let found = read(volume, desc, BLOCKS - 2, 2);
                assert!(found >= last, "{found} behind {last}");
                last = found;
            }
        });
        let mut random = Random::new(7);
        for number in 1..6000 {
            let (first, blocks) = match random.below(40) {
                0 => (random.below(BLOCKS - 34), 32),
                1..4 => (BLOCKS - 2, 2),
                4..10 => (random.below(BLOCKS - 3), 2),
                10 => {
                    write(&volume, desc, BLOCKS, 1, number);
                    volume.truncate(node, BLOCKS * BLOCK).unwrap();
                    continue;
                }
                _ => (random.below(BLOCKS - 2), 1),
            };
            // The pair is for those calls that change both.
            let blocks = if first < BLOCKS - 2 { blocks.min(BLOCKS - 2 - first) } else { blocks };
            write(&volume, desc, first, blocks, number);
            for block in first..first + blocks {
                newest[block as usize].store(number, Ordering::Release);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(testing::faults(&volume), 0);
}

#[test]
fn nobody_sees_half_a_write_or_an_old_one_in_strict_mode() {
    mixed(Mode::Strict);
}

/// Where a write of several blocks may be seen in part, each is changed by a call of its own.
#[test]
fn nobody_sees_an_old_write_in_sync_mode() {
    mixed(Mode::Sync);
}
