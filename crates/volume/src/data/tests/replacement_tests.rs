//! Overwrites that replace a block: which blocks, by which ones, and what becomes of those.

use crate::Mode;
use crate::attach::{AttachOptions, attach_region};
use crate::data::map::Map;
use crate::data::mapping::Fill;
use crate::data::plan::Position;
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS};
use crate::space::chunk::Kind;
use crate::testing::{Random, faults, file, image, root, stay_on_one_cpu, volume};
use crate::volume::Volume;
use rustix::io::Errno;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use vfs::{
    Attached, Desc, EntryName, FileSystem, FileSystemExt, IoOffset, Mapped, Node, OpenFlags,
    Removes, UserIn, UserOut,
};

/// Blocks of each file.
const BLOCKS: u64 = 8;

fn block_of(volume: &Volume, node: Node, logical: u64) -> u64 {
    let (inode, identity) = volume.identity_of(node).unwrap();
    Map::new(volume, inode, &identity).run(logical, 1).unwrap().block
}

fn blocks_of(volume: &Volume, node: Node) -> Vec<u64> {
    (0..BLOCKS).map(|logical| block_of(volume, node, logical)).collect()
}

fn read(volume: &Volume, node: Node) -> Vec<u8> {
    let mut bytes = vec![0; 2 * (BLOCKS * BLOCK) as usize];
    let done = volume.read_file(node, 0, &mut [UserOut::new(&mut bytes)]).unwrap();
    bytes.truncate(done);
    bytes
}

fn put(volume: &Volume, desc: Desc, logical: u64, tag: u8) {
    let bytes = vec![tag; BLOCK as usize];
    volume.write(desc, &[UserIn::new(&bytes)], IoOffset::offset(logical * BLOCK)).unwrap();
}

/// Two files that have grown side by side: no two blocks of one lie together.
fn apart_on(volume: &Volume) -> [(Node, Desc); 2] {
    stay_on_one_cpu();
    let files = ["f", "g"].map(|name| {
        let node = volume.create(root(volume), name.as_bytes(), &file()).unwrap();
        (node, volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap())
    });
    for logical in 0..BLOCKS {
        for (_, desc) in &files {
            put(volume, *desc, logical, 1);
        }
    }
    let lies = blocks_of(volume, files[0].0);
    assert!(lies.windows(2).all(|pair| pair[0] + 1 != pair[1]), "{lies:?}");
    files
}

fn apart() -> (Arc<Volume>, [(Node, Desc); 2]) {
    let volume = volume(Mode::Strict, 16);
    let files = apart_on(&volume);
    (volume, files)
}

fn crashed(volume: &Volume) -> Arc<Volume> {
    attach_region(image(volume), &AttachOptions::default()).unwrap()
}

#[test]
fn a_block_by_itself_is_replaced_by_the_one_that_is_kept() {
    let (volume, [(f, desc), (g, other)]) = apart();
    let (space, stat) = (volume.free_space().unwrap(), volume.statistics().unwrap());
    let (before, beside) = (blocks_of(&volume, f), blocks_of(&volume, g));
    put(&volume, desc, 3, 2);
    let first = block_of(&volume, f, 3);
    assert!(!before.contains(&first) && !beside.contains(&first));
    assert_eq!(volume.kept_singles().unwrap(), [before[3]]);
    // The next one, of whichever file, goes where that was.
    let bits = volume.free_blocks().unwrap();
    put(&volume, other, 5, 3);
    assert_eq!(block_of(&volume, g, 5), before[3]);
    assert_eq!(volume.kept_singles().unwrap(), [beside[5]]);
    assert_eq!(volume.free_blocks().unwrap(), bits, "nothing is allocated");
    assert_eq!(volume.free_space().unwrap(), space);
    assert_eq!(volume.statistics().unwrap().blocks_free, stat.blocks_free);
    assert_eq!(volume.attributes(f).unwrap().blocks, BLOCKS * BLOCK / 512);
    assert_eq!(faults(&volume), 0);
    let wanted = [f, g].map(|node| read(&volume, node));
    assert_eq!(wanted[0][3 * BLOCK as usize..][..BLOCK as usize], vec![2; BLOCK as usize]);
    let after = crashed(&volume);
    assert_eq!([f, g].map(|node| read(&after, node)), wanted);
    assert_eq!((after.kept_singles(), faults(&after)), (Ok(Vec::new()), 0));
}

/// Neither a wait for the lock nor the number of buffers changes how a block is overwritten.
#[test]
fn a_block_is_replaced_also_after_a_wait_and_from_several_buffers() {
    let (volume, [(f, _), _]) = apart();
    let bytes = vec![2; BLOCK as usize];
    let halves = bytes.split_at(BLOCK as usize / 2);
    for buffers in [&[UserIn::new(&bytes)][..], &[UserIn::new(halves.0), UserIn::new(halves.1)]] {
        let before = block_of(&volume, f, 3);
        // It takes the lock as a call does that must wait for it.
        let end = (bytes.len(), 4 * BLOCK);
        assert_eq!(volume.write_file(f, Position::At(3 * BLOCK), buffers), Ok(end));
        assert_ne!(block_of(&volume, f, 3), before);
        assert_eq!(volume.kept_singles().unwrap(), [before]);
    }
    assert_eq!(read(&volume, f)[3 * BLOCK as usize..][..BLOCK as usize], bytes);
    let after = crashed(&volume);
    assert_eq!((read(&after, f), faults(&after)), (read(&volume, f), 0));
}

#[test]
fn other_overwrites_stay_where_they_are() {
    let (volume, [(f, desc), _]) = apart();
    let before = blocks_of(&volume, f);
    let bytes = vec![2; BLOCK as usize + 1];
    for (at, length) in [(1, 4096), (4096, 4095), (4097, 4095), (8192, 4097), (0, 1)] {
        volume.write(desc, &[UserIn::new(&bytes[..length])], IoOffset::offset(at)).unwrap();
        assert_eq!(blocks_of(&volume, f), before, "{length} at {at}");
    }
    // Blocks that lie together stay together.
    let whole = volume.create(root(&volume), b"whole", &file()).unwrap();
    let bytes = vec![1; (BLOCKS * BLOCK) as usize];
    volume.write_file(whole, Position::At(0), &[UserIn::new(&bytes)]).unwrap();
    let (together, desc) = (
        blocks_of(&volume, whole),
        volume.open(whole.into(), OpenFlags(libc::O_RDWR), None).unwrap(),
    );
    (0..BLOCKS).for_each(|logical| put(&volume, desc, logical, 3));
    assert_eq!(blocks_of(&volume, whole), together);
    // So do those of a file that somebody has mapped.
    volume.map_pieces(f, (0, BLOCK), Mapped::Read, Fill::All).unwrap();
    let desc = volume.open(f.into(), OpenFlags(libc::O_RDWR), None).unwrap();
    put(&volume, desc, 3, 4);
    assert_eq!(blocks_of(&volume, f), before);
}

#[test]
fn what_a_lane_or_a_sum_tells_of_the_old_block_counts_no_more() {
    let (volume, [(f, desc), (g, other)]) = apart();
    // A record of bytes of block 3, which is then another file's.
    volume.write(desc, &[UserIn::new(&[7; 500])], IoOffset::offset(3 * BLOCK + 5)).unwrap();
    put(&volume, desc, 3, 2);
    put(&volume, other, 4, 3);
    // A short append, whose sum is of bytes in block 8, which is then whole and replaced.
    for length in [100, BLOCK as usize - 100, 1] {
        let end = volume.attributes(f).unwrap().size;
        volume.write(desc, &[UserIn::new(&vec![8; length])], IoOffset::offset(end)).unwrap();
    }
    volume.write(desc, &[UserIn::new(&[8; 90])], IoOffset::offset(BLOCKS * BLOCK + BLOCK)).unwrap();
    put(&volume, desc, BLOCKS, 9);
    let wanted = [f, g].map(|node| read(&volume, node));
    let after = crashed(&volume);
    assert_eq!([f, g].map(|node| read(&after, node)), wanted);
    let after = crashed(&after);
    assert_eq!([f, g].map(|node| read(&after, node)), wanted);
}

#[test]
fn a_record_of_bytes_does_not_outlive_their_block() {
    let (volume, [(f, desc), _]) = apart();
    let old = block_of(&volume, f, 3);
    volume.write(desc, &[UserIn::new(&[7; 500])], IoOffset::offset(3 * BLOCK + 5)).unwrap();
    put(&volume, desc, 3, 2);
    assert_eq!(volume.kept_singles().unwrap(), [old]);
    assert!(volume.return_kept().unwrap());
    let new = volume.create(root(&volume), b"new", &file()).unwrap();
    let bytes = vec![5; BLOCK as usize];
    volume.write_file(new, Position::At(0), &[UserIn::new(&bytes)]).unwrap();
    assert_eq!(block_of(&volume, new, 0), old, "the shortest hole");
    assert_eq!(read(&crashed(&volume), new), bytes);
}

#[test]
fn a_full_volume_has_its_kept_blocks_back() {
    let volume = volume(Mode::Strict, 8);
    let [(f, desc), _] = apart_on(&volume);
    put(&volume, desc, 3, 2);
    let kept = volume.kept_singles().unwrap();
    assert_eq!(kept.len(), 1);
    let large = volume.create(root(&volume), b"large", &file()).unwrap();
    let bytes = vec![5; BLOCK as usize];
    let mut end = 0;
    let full = loop {
        match volume.write_file(large, Position::At(end), &[UserIn::new(&bytes)]) {
            Ok((_, next)) => end = next,
            Err(errno) => break errno,
        }
    };
    assert_eq!(full, Errno::NOSPC);
    let free = volume.free_blocks().unwrap();
    assert!(volume.kept_singles().unwrap().is_empty() && free <= volume.reserve(), "{free}");
    // No block to spare: in place, and never an error.
    let before = blocks_of(&volume, f);
    put(&volume, desc, 3, 6);
    assert_eq!((blocks_of(&volume, f), volume.free_blocks()), (before, Ok(free)));
    assert_eq!(read(&volume, f)[3 * BLOCK as usize], 6);
    assert_eq!(faults(&volume), 0);
}

#[test]
fn what_is_kept_keeps_no_chunk_broken() {
    let volume = volume(Mode::Strict, 16);
    let empty = volume.free_space().unwrap();
    let files = apart_on(&volume);
    put(&volume, files[0].1, 3, 2);
    assert_eq!(volume.kept_singles().unwrap().len(), 1);
    for ((_, desc), name) in files.iter().zip(["f", "g"]) {
        volume.close(*desc).unwrap();
        volume.remove(&EntryName::new(root(&volume), name.as_bytes()), Removes::Name).unwrap();
    }
    assert!(volume.kept_singles().unwrap().is_empty(), "the last of its chunk");
    assert_eq!(volume.free_space().unwrap(), empty);

    // Nor does it keep a chunk from being emptied.
    let large = volume.create(root(&volume), b"large", &file()).unwrap();
    let bytes = vec![3; ((CHUNK_BLOCKS - 12) * BLOCK) as usize];
    volume.write_file(large, Position::At(0), &[UserIn::new(&bytes)]).unwrap();
    let [(f, desc), _] = apart_on(&volume);
    let rest = volume.create(root(&volume), b"rest", &file()).unwrap();
    volume.write_file(rest, Position::At(0), &[UserIn::new(&bytes[..90 << 12])]).unwrap();
    let chunk = volume.chunk_of(block_of(&volume, f, 0)).0;
    put(&volume, desc, 3, 2);
    let kept = volume.kept_singles().unwrap();
    assert_eq!(volume.chunk_of(kept[0]).0, chunk);
    volume.remove(&EntryName::new(root(&volume), b"large"), Removes::Name).unwrap();
    assert_ne!(volume.chunk_of(block_of(&volume, f, 0)).0, chunk);
    assert!(volume.kept_singles().unwrap().is_empty());
    assert_eq!(volume.chunk_kind(chunk).unwrap(), Kind::Free);
    assert_eq!(faults(&volume), 0);
}

#[test]
fn an_orderly_end_and_a_sweep_leave_nothing_kept() {
    let (volume, [(_, desc), _]) = apart();
    let space = volume.free_space().unwrap();
    put(&volume, desc, 3, 2);
    volume.demand_sweep().unwrap();
    volume.in_quiet(|_| Ok(())).unwrap();
    assert!(volume.kept_singles().unwrap().is_empty());
    put(&volume, desc, 4, 2);
    assert_eq!(volume.kept_singles().unwrap().len(), 1);
    volume.detach().unwrap();
    let again = crashed(&volume);
    assert_eq!((again.free_space(), faults(&again)), (Ok(space), 0));
    assert_eq!(again.free_blocks().unwrap(), space.free_blocks());
}

/// Whoever reads sees a block whole, old or new, while it is replaced and its memory is used again.
#[test]
fn readers_see_whole_blocks() {
    let (volume, files) = apart();
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|number| {
            let (volume, desc) = (&volume, files[number].1);
            scope.spawn(move || {
                let mut random = Random::new(number as u64 + 3);
                for round in 0..4000_u64 {
                    // A file's tags are odd, or even.
                    let tag = (round % 100 * 2 + number as u64) as u8;
                    put(volume, desc, random.below(BLOCKS), tag);
                }
            })
        });
        let mut seen = 0_u64;
        while seen < 100 || !writers.iter().all(ScopedJoinHandle::is_finished) {
            for (number, (node, _)) in files.iter().enumerate() {
                for block in read(&volume, *node).chunks(BLOCK as usize) {
                    assert!(block.iter().all(|byte| *byte == block[0]), "torn");
                    let own = block[0] == 1 || u64::from(block[0]) % 2 == number as u64;
                    assert!(own, "{} in file {number}", block[0]);
                }
            }
            seen += 1;
        }
    });
    assert_eq!(faults(&volume), 0);
    let wanted = files.map(|(node, _)| read(&volume, node));
    let after = crashed(&volume);
    assert_eq!(files.map(|(node, _)| read(&after, node)), wanted);
}
