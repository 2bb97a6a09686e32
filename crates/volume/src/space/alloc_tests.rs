//! The allocator under random requests, on full volumes, with many threads.

use crate::medium::layout::{BLOCK, CHUNK_BLOCKS};
use crate::space::alloc::{Extents, Usage, Want};
use crate::space::chunk::{Group, Kind, count_free};
use crate::testing::{Random, volume};
use crate::volume::Volume;
use crate::{Mode, Result};
use rustix::io::Errno;

fn take(volume: &Volume, blocks: u64, want: Want) -> Result<Extents> {
    let mut op = volume.begin()?;
    op.work()?;
    let extents = volume.allocate_data(&mut op, blocks, want)?;
    op.end()?;
    Ok(extents)
}

fn check_sums(volume: &Volume) -> Usage {
    let space = volume.free_space().unwrap();
    // What operation records keep counts as free, and so it is when it is given back.
    volume.return_kept().unwrap();
    assert_eq!(volume.free_space().unwrap(), space);
    assert_eq!(space.free_blocks(), volume.free_blocks().unwrap());
    let all = space.data_blocks + space.metadata_blocks + space.free_blocks();
    assert_eq!(all, volume.chunks() * CHUNK_BLOCKS);
    assert_eq!(space.free_chunks, volume.group_sum(Group::Chunks).unwrap());
    for chunk in 0..volume.chunks() {
        let free = count_free(&volume.bitmap(chunk).unwrap());
        assert_eq!(free, volume.chunk_free(chunk).unwrap());
        let kind = volume.chunk_kind(chunk).unwrap();
        assert_eq!(kind == Kind::Free, free == CHUNK_BLOCKS, "chunk {chunk} {kind:?} {free}");
    }
    space
}

#[test]
fn the_space_sum_holds_under_random_requests() {
    let volume = volume(Mode::Strict, 40);
    let before = check_sums(&volume);
    let mut random = Random::new(7);
    let mut held: Vec<(u64, u64)> = Vec::new();
    let mut inodes: Vec<u64> = Vec::new();
    for step in 0..20_000 {
        let mut op = volume.begin().unwrap();
        op.work().unwrap();
        match random.below(6) {
            0 | 1 => {
                let most = if random.below(10) == 0 { 1500 } else { 20 };
                let blocks = 1 + random.below(most);
                let near = held.last().map(|(first, count)| first + count - 1);
                let want = Want { aligned: blocks > 512, near, ..Want::default() };
                if let Ok(extents) = volume.allocate_data(&mut op, blocks, want) {
                    assert_eq!(extents.iter().map(|extent| extent.1).sum::<u64>(), blocks);
                    held.extend(extents);
                }
            }
            2 => held.extend(volume.allocate_metadata(&mut op, 1 + random.below(3)).unwrap()),
            3 => inodes.extend(volume.allocate_inode(&mut op).map(|inode| inode.0)),
            4 if !held.is_empty() => {
                let at = random.below(held.len() as u64) as usize;
                let (block, count) = held.swap_remove(at);
                op.free_later(block, count);
            }
            _ if !inodes.is_empty() => {
                let at = random.below(inodes.len() as u64) as usize;
                op.free_inode_later(inodes.swap_remove(at));
            }
            _ => {}
        }
        op.end().unwrap();
        if step % 500 == 0 {
            assert_eq!(check_sums(&volume).inodes, 1 + inodes.len() as u64, "the root is one");
        }
    }
    let mut blocks: Vec<u64> = held.iter().flat_map(|(first, n)| *first..first + n).collect();
    let total = blocks.len();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(blocks.len(), total, "a block was given twice");
    inodes.sort_unstable();
    assert!(inodes.windows(2).all(|pair| pair[0] != pair[1]));
    for (block, count) in held {
        volume.release_blocks(block, count).unwrap();
    }
    for ino in inodes {
        assert!(volume.inode_in_use(ino).unwrap());
        volume.release_inode(ino).unwrap();
        assert_eq!(volume.release_inode(ino), Err(Errno::IO));
    }
    assert_eq!(check_sums(&volume), before);
}

#[test]
fn small_files_and_metadata_leave_whole_chunks_whole() {
    let volume = volume(Mode::Strict, 64);
    let mut random = Random::new(3);
    let mut held = std::collections::VecDeque::new();
    for _ in 0..4000 {
        held.extend(take(&volume, 1 + random.below(8), Want::default()).unwrap());
        while held.len() > 300 {
            let at = random.below(held.len() as u64) as usize;
            let (block, count) = held.swap_remove_back(at).unwrap();
            volume.release_blocks(block, count).unwrap();
        }
    }
    // At most 300 * 8 blocks are in use: 5 chunks. The rest must be whole, but for one a group.
    let space = check_sums(&volume);
    assert!(space.free_chunks >= 64 - 5 - 4, "{space:?}");
    let aligned = Want { aligned: true, ..Want::default() };
    let extents = take(&volume, 3 * CHUNK_BLOCKS + 5, aligned).unwrap();
    let pool = volume.pool() / BLOCK;
    let whole = |extent: &&(u64, u64)| extent.1 == CHUNK_BLOCKS;
    assert_eq!(extents.iter().filter(whole).count(), 3);
    assert!(
        extents.iter().filter(whole).all(|(block, _)| (block - pool).is_multiple_of(CHUNK_BLOCKS))
    );
    assert_eq!(check_sums(&volume).free_chunks, space.free_chunks - 3, "the tail fills a hole");
}

#[test]
fn a_file_written_block_by_block_is_contiguous() {
    let volume = volume(Mode::Strict, 16);
    let mut near = None;
    let mut first = None;
    for index in 0..100 {
        let extents = take(&volume, 1, Want { near, ..Want::default() }).unwrap();
        let start = *first.get_or_insert(extents[0].0);
        assert_eq!(extents[0], (start + index, 1));
        near = Some(extents[0].0);
    }
}

#[test]
fn a_full_volume_keeps_its_reserve_and_gives_all_back() {
    let volume = volume(Mode::Strict, 16);
    let before = check_sums(&volume);
    let mut held = Vec::new();
    while let Ok(extents) = take(&volume, 3, Want::default()) {
        held.extend(extents);
    }
    let full = check_sums(&volume);
    assert!(full.free_blocks() >= volume.reserve());
    assert!(full.free_blocks() < volume.reserve() + 3);
    assert_eq!(take(&volume, 600, Want::default()), Err(Errno::NOSPC));
    assert_eq!(check_sums(&volume), full);
    let all = Want { reserve: true, ..Want::default() };
    assert_eq!(take(&volume, full.free_blocks() + 1, all), Err(Errno::NOSPC));
    assert_eq!(check_sums(&volume), full);
    held.extend(take(&volume, full.free_blocks(), all).unwrap());
    assert_eq!(check_sums(&volume).free_blocks(), 0);
    for (block, count) in held {
        volume.release_blocks(block, count).unwrap();
    }
    assert_eq!(check_sums(&volume), before);
}

#[test]
fn an_aborted_operation_gives_everything_back() {
    let volume = volume(Mode::Strict, 16);
    let before = check_sums(&volume);
    let mut op = volume.begin().unwrap();
    op.work().unwrap();
    volume.allocate_data(&mut op, 700, Want { aligned: true, ..Want::default() }).unwrap();
    volume.allocate_metadata(&mut op, 3).unwrap();
    volume.allocate_inode(&mut op).unwrap();
    drop(op);
    assert_eq!(check_sums(&volume), before);
}

#[test]
fn threads_never_get_the_same_block() {
    let volume = volume(Mode::Strict, 24);
    let before = check_sums(&volume);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                let mut random = Random::new(seed + 1);
                let mut held: Vec<(u64, u64)> = Vec::new();
                let mut inodes = Vec::new();
                for _ in 0..3000 {
                    let mut op = volume.begin().unwrap();
                    op.work().unwrap();
                    let blocks = 1 + random.below(200);
                    if let Ok(extents) = volume.allocate_data(&mut op, blocks, Want::default()) {
                        held.extend(extents);
                    }
                    inodes.extend(volume.allocate_inode(&mut op));
                    while held.len() > 8 {
                        let at = random.below(held.len() as u64) as usize;
                        let (block, count) = held.swap_remove(at);
                        op.free_later(block, count);
                    }
                    while inodes.len() > 70 {
                        let at = random.below(inodes.len() as u64) as usize;
                        op.free_inode_later(inodes.swap_remove(at).0);
                    }
                    op.end().unwrap();
                }
                for (block, count) in held {
                    volume.release_blocks(block, count).unwrap();
                }
                for inode in inodes {
                    volume.release_inode(inode.0).unwrap();
                }
            });
        }
    });
    assert_eq!(check_sums(&volume), before);
}

#[test]
fn the_saved_free_map_is_trusted_only_if_it_fits() {
    let volume = volume(Mode::Strict, 16);
    let mut op = volume.begin().unwrap();
    op.work().unwrap();
    let block = volume.allocate_data(&mut op, 77, Want::default()).unwrap()[0].0;
    volume.allocate_inode(&mut op).unwrap();
    op.end().unwrap();
    let before = check_sums(&volume);
    let crc = volume.save_free_map().unwrap();
    for group in 0..volume.groups() {
        volume.write_group(group, 1, 2, 3).unwrap();
    }
    assert!(volume.load_free_map(crc).unwrap());
    assert_eq!(check_sums(&volume), before);
    volume.release_blocks(block, 1).unwrap();
    assert!(!volume.load_free_map(crc).unwrap());
}
