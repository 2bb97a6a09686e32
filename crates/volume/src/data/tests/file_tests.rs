//! Files against a model: random calls, every mode, contents and sizes compared after each, blocks
//! counted at the end.

use crate::Mode;
use crate::data::map::MapItem;
use crate::data::mapping::Fill;
use crate::data::plan::Position;
use crate::inode::Inode;
use crate::medium::layout::{BLOCK, CHUNK, COMMIT, Commit, IDENTITY, Identity};
use crate::testing::{Random, volume};
use crate::volume::Volume;
use std::collections::BTreeSet;
use std::ops::Range;
use vfs::{Errno, FileSystem, Node, UserIn, UserOut};
use zerocopy::IntoBytes;

/// Makes a file that no directory names.
fn new_file(volume: &Volume) -> Node {
    let mut op = volume.begin().unwrap();
    op.work().unwrap();
    let inode = volume.allocate_inode(&mut op).unwrap();
    let zero = volume.region.stream_zero(inode.offset(), 256).unwrap();
    op.pend(zero);
    let identity =
        Identity { generation: 7, mode: libc::S_IFREG | 0o644, nlink: 1, ..Identity::default() };
    let identity = identity.sealed(inode);
    let commit = Commit { sequence: 1, ..Commit::default() }.sealed(inode, 7);
    for (at, bytes) in [(IDENTITY, identity.as_bytes()), (COMMIT, commit.as_bytes())] {
        let stored = volume.region.write(inode.at(at), bytes).unwrap().flush();
        op.pend(stored);
    }
    let number = op.record.sequence(volume).unwrap();
    let slots = zerocopy::transmute!([commit, Commit::default()]);
    let told = (commit.size, commit.mtime.cast_unsigned(), identity.mode);
    volume.store_new_live(inode, number, told, &slots).unwrap();
    op.end().unwrap();
    Node { ino: inode.0, generation: 7 }
}

fn write(volume: &Volume, node: Node, offset: u64, data: &[u8]) -> Result<usize, Errno> {
    let (left, right) = data.split_at(data.len() / 3);
    let parts = [UserIn::new(left), UserIn::new(right)];
    volume.write_file(node, Position::At(offset), &parts).map(|done| done.0)
}

fn read(volume: &Volume, node: Node, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; length];
    let done = volume.read_file(node, offset, &mut [UserOut::new(&mut bytes)]).unwrap();
    bytes.truncate(done);
    bytes
}

/// All blocks that the file holds, each once.
fn blocks(volume: &Volume, node: Node) -> BTreeSet<u64> {
    let (inode, identity) = volume.identity_of(node).unwrap();
    let mut all = BTreeSet::new();
    let mut data = 0;
    let mut add =
        |block, count| (block..block + count).for_each(|block| assert!(all.insert(block)));
    volume
        .walk_map(inode, &identity, &mut |item| {
            match item {
                MapItem::Node { block } | MapItem::Xattr { block } => add(block, 1),
                MapItem::Data { block, blocks, .. } => {
                    add(block, blocks);
                    data += blocks;
                }
                MapItem::Damaged { at, logical } => panic!("damage at {at}, block {logical}"),
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(volume.count_blocks(inode, &identity).unwrap(), data);
    all
}

/// Nothing leaks: what is not free is what the files hold, and the one extent of inodes.
fn check_space(volume: &Volume, files: &[Node], free_before: u64) {
    let held: usize = files.iter().map(|&node| blocks(volume, node).len()).sum();
    assert_eq!(volume.free_blocks().unwrap() + held as u64, free_before);
}

/// A file and what it should hold.
struct Model {
    node: Node,
    bytes: Vec<u8>,
}

impl Model {
    fn write(&mut self, offset: usize, data: &[u8]) {
        if self.bytes.len() < offset + data.len() {
            self.bytes.resize(offset + data.len(), 0);
        }
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
    }

    fn check(&self, volume: &Volume) {
        let found = read(volume, self.node, 0, self.bytes.len() + 100);
        assert_eq!(found.len(), self.bytes.len());
        if let Some(at) = (0..found.len()).find(|&at| found[at] != self.bytes[at]) {
            panic!("byte {at} is {} instead of {}", found[at], self.bytes[at]);
        }
    }
}

fn pick_offset(random: &mut Random, limit: u64) -> u64 {
    match random.below(4) {
        0 => random.below(limit),
        1 => random.below(limit / BLOCK) * BLOCK,
        2 => random.below(limit.min(64 << 10)),
        _ => limit.saturating_sub(random.below(3 * BLOCK)),
    }
}

fn pick_length(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => random.below(64) + 1,
        1 | 2 => random.below(2000) + 1,
        3 => BLOCK * (1 + random.below(3)),
        4 => random.below(300 << 10) + 1,
        5 => random.below(3 << 20) + 1,
        _ => random.below(5 * BLOCK) + 1,
    }
}

fn random_bytes(random: &mut Random, length: u64) -> Vec<u8> {
    let seed = random.next() as u8;
    (0..length).map(|at| seed.wrapping_add((at % 251) as u8) | 1).collect()
}

fn random_step(volume: &Volume, model: &mut Model, random: &mut Random) {
    let limit = 9 << 20;
    let size = model.bytes.len() as u64;
    match random.below(21) {
        0..=9 => {
            let offset = pick_offset(random, size.max(BLOCK));
            let length = pick_length(random).min(limit - offset.min(limit - 1));
            let data = random_bytes(random, length);
            assert_eq!(write(volume, model.node, offset, &data), Ok(data.len()));
            model.write(offset as usize, &data);
        }
        10..=13 => {
            let length = pick_length(random).min((limit + 1).saturating_sub(size).max(1));
            let data = random_bytes(random, length);
            let parts = [UserIn::new(&data)];
            let done = volume.write_file(model.node, Position::End, &parts).unwrap();
            assert_eq!(done, (data.len(), size + length));
            model.write(size as usize, &data);
        }
        14 => {
            let offset = size + random.below(2 << 20);
            let data = random_bytes(random, 100);
            assert_eq!(write(volume, model.node, offset, &data), Ok(100));
            model.write(offset as usize, &data);
        }
        15 | 16 => {
            let new = match random.below(3) {
                0 => size + random.below(3 << 20),
                1 => size.saturating_sub(random.below(2 * BLOCK)),
                _ => random.below(size + 1),
            };
            volume.truncate_file(model.node, new).unwrap();
            model.bytes.resize(new as usize, 0);
        }
        17 => random_allocate(volume, model, random),
        18 => volume.sync_file(model.node).unwrap(),
        _ => volume.last_close(model.node).unwrap(),
    }
}

fn random_allocate(volume: &Volume, model: &mut Model, random: &mut Random) {
    let size = model.bytes.len() as u64;
    let modes = [
        0,
        libc::FALLOC_FL_KEEP_SIZE,
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        libc::FALLOC_FL_ZERO_RANGE,
        libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
        libc::FALLOC_FL_COLLAPSE_RANGE,
        libc::FALLOC_FL_INSERT_RANGE,
    ];
    let mode = modes[random.below(7) as usize];
    let mut offset = pick_offset(random, size.max(BLOCK));
    let mut length = pick_length(random).min((12 << 20) - offset.min(11 << 20));
    if mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0 {
        offset = offset / BLOCK * BLOCK;
        length = length.next_multiple_of(BLOCK).min(1 << 20);
    }
    let end = offset + length;
    let result = volume.allocate_file(model.node, mode as u32, offset, length);
    let (from, to) = (offset as usize, end as usize);
    let inside = from.min(model.bytes.len())..to.min(model.bytes.len());
    match mode {
        libc::FALLOC_FL_COLLAPSE_RANGE if end >= size => {
            assert_eq!(result, Err(Errno::INVAL));
            return;
        }
        libc::FALLOC_FL_COLLAPSE_RANGE => drop(model.bytes.drain(from..to)),
        libc::FALLOC_FL_INSERT_RANGE if offset >= size => {
            assert_eq!(result, Err(Errno::INVAL));
            return;
        }
        libc::FALLOC_FL_INSERT_RANGE => {
            drop(model.bytes.splice(from..from, std::iter::repeat_n(0, length as usize)));
        }
        libc::FALLOC_FL_ZERO_RANGE => {
            model.bytes[inside].fill(0);
            model.bytes.resize(size.max(end) as usize, 0);
        }
        0 => model.bytes.resize(size.max(end) as usize, 0),
        libc::FALLOC_FL_KEEP_SIZE => {}
        _ => model.bytes[inside].fill(0),
    }
    assert_eq!(result, Ok(length), "mode {mode} at {offset} for {length}");
}

/// Moves or copies a range between two files.
fn random_relink(volume: &Volume, files: &mut [Model], random: &mut Random) {
    let (one, two) = (random.below(2) as usize, random.below(2) as usize);
    let size = files[one].bytes.len() as u64;
    let copies = random.below(3) == 0;
    let mut from = pick_offset(random, size.max(BLOCK));
    let mut to = pick_offset(random, files[two].bytes.len().max(4096) as u64);
    let mut length = pick_length(random).min(1 << 20);
    if !copies {
        from = from / BLOCK * BLOCK;
        to = to / BLOCK * BLOCK;
        length = length.next_multiple_of(BLOCK);
        if random.below(3) == 0 && size > from {
            length = size - from;
        }
    }
    let overlap = one == two && from < to + length && to < from + length;
    let range = from as usize..(from + length) as usize;
    let mut bytes = files[one].bytes.clone();
    bytes.truncate(range.end);
    if copies {
        let done = volume.copy_file(files[one].node, from, files[two].node, to, length);
        if overlap {
            assert_eq!(done, Err(Errno::INVAL));
            return;
        }
        let bytes = &bytes[range.start.min(bytes.len())..];
        assert_eq!(done, Ok(bytes.len() as u64));
        if !bytes.is_empty() {
            files[two].write(to as usize, bytes);
        }
        return;
    }
    let done = volume.relink_file(files[one].node, from, files[two].node, to, length);
    if overlap {
        assert_eq!(done, Err(Errno::INVAL));
        return;
    }
    assert_eq!(done, Ok(()), "{from} to {to}, {length} bytes");
    bytes.resize(range.end, 0);
    let inside = range.start.min(size as usize)..range.end.min(size as usize);
    files[one].bytes[inside].fill(0);
    files[two].write(to as usize, &bytes[range.start..]);
}

fn random_run(mode: Mode, seed: u64, steps: u32) {
    let mut random = Random::new(seed);
    let volume = volume(mode, 64);
    let mut files: Vec<Model> =
        (0..2).map(|_| Model { node: new_file(&volume), bytes: Vec::new() }).collect();
    let free = volume.free_blocks().unwrap();
    for step in 0..steps {
        let which = random.below(2) as usize;
        if random.below(12) == 0 {
            random_relink(&volume, &mut files, &mut random);
            for file in &files {
                file.check(&volume);
            }
        } else {
            random_step(&volume, &mut files[which], &mut random);
            files[which].check(&volume);
        }
        if step % 16 == 0 {
            let nodes: Vec<Node> = files.iter().map(|file| file.node).collect();
            check_space(&volume, &nodes, free);
        }
    }
    for file in &files {
        volume.last_close(file.node).unwrap();
        file.check(&volume);
        let size = volume.commit_line(Inode(file.node.ino), 7).unwrap().0.size;
        assert_eq!(size, file.bytes.len() as u64, "an orderly close commits the size");
        volume.truncate_file(file.node, 0).unwrap();
        assert!(blocks(&volume, file.node).is_empty());
    }
    assert_eq!(volume.free_blocks().unwrap(), free);
}

/// One of the seeds at each commit; all with `SOLERA_TEST_LONG`.
fn random_runs(mode: Mode, seeds: Range<u64>) {
    let turn = rotation::turn(&format!("random calls/{mode}"), (seeds.end - seeds.start) as u32);
    let is_in = |&seed: &u64| rotation::all() || seed == seeds.start + u64::from(turn);
    seeds.clone().filter(is_in).for_each(|seed| random_run(mode, seed, 150));
}

#[test]
fn random_calls_in_strict_mode() {
    random_runs(Mode::Strict, 1..5);
}

#[test]
fn random_calls_in_sync_mode() {
    random_runs(Mode::Sync, 11..14);
}

#[test]
fn random_calls_in_posix_mode() {
    random_runs(Mode::Posix, 21..24);
}

#[test]
fn sparse_files_reach_the_largest_size() {
    let volume = volume(Mode::Strict, 16);
    let node = new_file(&volume);
    let free = volume.free_blocks().unwrap();
    let last = i64::MAX as u64 - 3;
    assert_eq!(write(&volume, node, last, b"abcdef"), Ok(3), "cut at the largest size");
    assert_eq!(write(&volume, node, i64::MAX as u64, b"x"), Err(Errno::FBIG));
    assert_eq!(read(&volume, node, last - 2, 100), b"\0\0abc");
    assert_eq!(volume.seek_data(node, 5), Ok(last / BLOCK * BLOCK));
    assert_eq!(volume.seek_hole(node, last), Ok(i64::MAX as u64));
    assert_eq!(volume.seek_data(node, i64::MAX as u64), Err(Errno::NXIO));
    assert_eq!(write(&volume, node, 5, b"y"), Ok(1));
    assert_eq!(volume.seek_hole(node, 0), Ok(BLOCK));
    check_space(&volume, &[node], free);
    assert_eq!(volume.truncate_file(node, i64::MAX as u64 + 1), Err(Errno::INVAL));
    volume.truncate_file(node, 0).unwrap();
    assert_eq!(volume.free_blocks().unwrap(), free);
}

#[test]
fn a_full_volume_refuses_and_changes_nothing() {
    for mode in [Mode::Strict, Mode::Sync, Mode::Posix] {
        let volume = volume(mode, 8);
        let node = new_file(&volume);
        let free = volume.free_blocks().unwrap();
        let data = vec![7; CHUNK as usize];
        let mut size = 0;
        let error = loop {
            match write(&volume, node, size, &data) {
                Ok(done) => size += done as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(error, Errno::NOSPC);
        check_space(&volume, &[node], free);
        assert_eq!(read(&volume, node, size - 5, 100), [7; 5]);
        // Overwrites and truncation still work.
        assert_eq!(write(&volume, node, 5000, &[8; 5000]), Ok(5000));
        assert_eq!(read(&volume, node, 4999, 5002)[..2], [7, 8]);
        volume.truncate_file(node, 4097).unwrap();
        volume.truncate_file(node, 0).unwrap();
        assert_eq!(volume.free_blocks().unwrap(), free);
    }
}

#[test]
fn a_write_ends_before_the_first_bad_byte() {
    let volume = volume(Mode::Strict, 8);
    let node = new_file(&volume);
    let data = vec![5; 100_000];
    assert_eq!(write(&volume, node, 0, &data), Ok(100_000));
    let free = volume.free_blocks().unwrap();
    // SAFETY: the address is never mapped; the copy is guarded.
    let bad = unsafe { UserIn::from_raw(std::ptr::without_provenance(64), 9000) };
    for offset in [10, 50_000, 99_999, 200_000] {
        let result = volume.write_file(node, Position::At(offset), &[bad, UserIn::new(&data)]);
        assert_eq!(result, Err(Errno::FAULT));
        let parts = [UserIn::new(&data[..70]), bad];
        let result = volume.write_file(node, Position::At(offset.min(90_000)), &parts);
        assert_eq!(result, Ok((70, offset.min(90_000) + 70)));
    }
    assert_eq!(read(&volume, node, 0, 200_000), data);
    assert_eq!(volume.free_blocks().unwrap(), free);
}

#[test]
fn big_files_get_whole_chunks() {
    let volume = volume(Mode::Strict, 32);
    let node = new_file(&volume);
    for _ in 0..(5 << 20) / 10_000 {
        let data = [9; 10_000];
        volume.write_file(node, Position::End, &[UserIn::new(&data)]).unwrap();
    }
    let (inode, identity) = volume.identity_of(node).unwrap();
    let map = crate::data::map::Map::new(&volume, inode, &identity);
    let run = map.run(600, 1).unwrap();
    assert!(run.huge, "appends past 2 MiB go to whole chunks");
    volume.last_close(node).unwrap();
    let size = 5_240_000_u64;
    let data = blocks(&volume, node).len() as u64;
    assert!(data < size.div_ceil(BLOCK) + 8, "what was attached ahead is cut off");
}

#[test]
fn a_mapped_file_keeps_its_blocks() {
    for mode in [Mode::Strict, Mode::Sync, Mode::Posix] {
        let volume = volume(mode, 32);
        let mut file = Model { node: new_file(&volume), bytes: Vec::new() };
        let free = volume.free_blocks().unwrap();
        let mut random = Random::new(3);
        for offset in [0, 40_000, 3_u64 << 20] {
            let data = random_bytes(&mut random, 10_000);
            write(&volume, file.node, offset, &data).unwrap();
            file.write(offset as usize, &data);
        }
        let size = file.bytes.len() as u64;
        let length = size.next_multiple_of(BLOCK) + 2 * BLOCK;
        let pieces =
            volume.map_pieces(file.node, (0, length), vfs::Mapped::Write, Fill::All).unwrap();
        let total: u64 = pieces.iter().map(|piece| piece.length).sum();
        assert_eq!(total, length);
        assert_eq!(pieces.last().unwrap().region_offset, None, "beyond the end");
        file.check(&volume);
        for step in 0..40 {
            let offset = random.below(size);
            let length = pick_length(&mut random).min(size - offset).max(1);
            let data = random_bytes(&mut random, length);
            match step % 4 {
                0 => {
                    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                    volume.allocate_file(file.node, mode as u32, offset, length).unwrap();
                    file.bytes[offset as usize..(offset + length) as usize].fill(0);
                }
                1 => {
                    volume.truncate_file(file.node, offset).unwrap();
                    volume.truncate_file(file.node, size).unwrap();
                    file.bytes[offset as usize..].fill(0);
                }
                _ => {
                    write(&volume, file.node, offset, &data).unwrap();
                    file.write(offset as usize, &data);
                }
            }
            file.check(&volume);
            let now =
                volume.map_pieces(file.node, (0, total), vfs::Mapped::Private, Fill::None).unwrap();
            assert_eq!(now, pieces, "step {step} moved a block");
        }
        let collapse = libc::FALLOC_FL_COLLAPSE_RANGE as u32;
        assert_eq!(volume.allocate_file(file.node, collapse, 0, BLOCK), Err(Errno::BUSY));
        volume.truncate_file(file.node, 5).unwrap();
        assert!(blocks(&volume, file.node).len() > 700);
        volume.last_close(file.node).unwrap();
        assert_eq!(blocks(&volume, file.node).len(), 1);
        check_space(&volume, &[file.node], free);
    }
}

#[test]
fn scattered_blocks_change_at_once() {
    let volume = volume(Mode::Strict, 48);
    let mut files: Vec<Model> =
        (0..3).map(|_| Model { node: new_file(&volume), bytes: Vec::new() }).collect();
    let free = volume.free_blocks().unwrap();
    for step in 0..1100 {
        let file = &mut files[step % 2];
        let data = vec![step as u8 | 1; BLOCK as usize + step / 2 % 2];
        let end = file.bytes.len();
        write(&volume, file.node, end as u64, &data).unwrap();
        file.write(end, &data);
        if step % 64 == 0 {
            volume.last_close(file.node).unwrap();
        }
    }
    let modes =
        [libc::FALLOC_FL_ZERO_RANGE, libc::FALLOC_FL_INSERT_RANGE, libc::FALLOC_FL_COLLAPSE_RANGE];
    for mode in modes {
        let (offset, length) = (8 * BLOCK, 530 * BLOCK);
        volume.allocate_file(files[0].node, mode as u32, offset, length).unwrap();
        let (from, to) = (offset as usize, (offset + length) as usize);
        let bytes = &mut files[0].bytes;
        match mode {
            libc::FALLOC_FL_ZERO_RANGE => bytes[from..to].fill(0),
            libc::FALLOC_FL_INSERT_RANGE => {
                drop(bytes.splice(from..from, std::iter::repeat_n(0, length as usize)));
            }
            _ => drop(bytes.drain(from..to)),
        }
        files[0].check(&volume);
    }
    write(&volume, files[1].node, 1000, &vec![3; 540 * BLOCK as usize]).unwrap();
    files[1].write(1000, &vec![3; 540 * BLOCK as usize]);
    files[1].check(&volume);
    for (from, to, at, target, blocks) in
        [(0, 2, 1, 0, 520), (1, 0, 3, 7, 530), (2, 2, 5, 600, 500), (0, 1, 500, 100, 20)]
    {
        let (at, target, length) = (at * BLOCK, target * BLOCK, blocks * BLOCK);
        let (source, sink) = (files[from].node, files[to].node);
        volume.relink_file(source, at, sink, target, length).unwrap();
        let range = at as usize..(at + length) as usize;
        let moved = files[from].bytes[range.clone()].to_vec();
        files[from].bytes[range].fill(0);
        files[to].write(target as usize, &moved);
        for file in &files {
            file.check(&volume);
        }
    }
    let nodes: Vec<Node> = files.iter().map(|file| file.node).collect();
    check_space(&volume, &nodes, free);
}

#[test]
fn readers_see_whole_writes() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let volume = volume(Mode::Strict, 32);
    let node = new_file(&volume);
    let size = 3_u64 << 20;
    write(&volume, node, 0, &vec![1; size as usize]).unwrap();
    let free = volume.free_blocks().unwrap();
    let done = AtomicBool::new(false);
    let places = [100, 5 * BLOCK, 50_000, CHUNK - 3000, CHUNK + 20_777];
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut random = Random::new(5);
                while !done.load(Ordering::Relaxed) {
                    let place = places[random.below(5) as usize];
                    let bytes = read(&volume, node, place, 9000);
                    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "torn at {place}");
                }
            });
        }
        let writers: Vec<_> = (1..3)
            .map(|seed| {
                let volume = &volume;
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for step in 0..400 {
                        let place = places[random.below(5) as usize];
                        write(volume, node, place, &[step as u8; 9000]).unwrap();
                    }
                })
            })
            .collect();
        let results: Vec<_> =
            writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        for result in results {
            result.unwrap();
        }
    });
    assert_eq!(volume.free_blocks().unwrap(), free);
}

#[test]
fn a_damaged_map_gives_eio_and_frees_nothing() {
    let volume = volume(Mode::Strict, 16);
    let node = new_file(&volume);
    let data = vec![4; 40 * BLOCK as usize];
    write(&volume, node, 0, &data).unwrap();
    let (inode, identity) = volume.identity_of(node).unwrap();
    let map = crate::data::map::Map::new(&volume, inode, &identity);
    let root = volume.region.load64(map.root_at()).unwrap();
    let leaf = (root & ((1 << 40) - 1)) * BLOCK + 20 * 8;
    let free = volume.free_blocks().unwrap();
    for (at, logical) in [(map.direct_at(3), 3), (map.root_at(), 15), (leaf, 20)] {
        let good = volume.region.load64(at).unwrap();
        for bit in [0, 13, 39, 41, 44, 46, 60] {
            let _ = volume.region.store64(at, good ^ 1 << bit).unwrap();
            let mut bytes = [0; 10];
            let offset = logical * BLOCK + 7;
            let sink = &mut [UserOut::new(&mut bytes)];
            assert_eq!(volume.read_file(node, offset, sink), Err(Errno::IO), "bit {bit}");
            assert_eq!(write(&volume, node, offset, b"x"), Err(Errno::IO));
            assert_eq!(volume.truncate_file(node, 0), Err(Errno::IO));
            let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let punched = volume.allocate_file(node, punch as u32, 0, 40 * BLOCK);
            assert_eq!(punched, Err(Errno::IO));
            assert_eq!(volume.free_blocks().unwrap(), free);
            let mut damaged = 0;
            let mut visit = |item| {
                damaged += u32::from(matches!(item, MapItem::Damaged { .. }));
                Ok(())
            };
            volume.walk_map(inode, &identity, &mut visit).unwrap();
            assert_eq!(damaged, 1);
            let _ = volume.region.store64(at, good).unwrap();
        }
        assert_eq!(read(&volume, node, 0, data.len() + 1), data);
    }
}

#[test]
fn fences_are_few() {
    let counts = pmem::costs::CostCounter::new();
    let mut region = crate::testing::region(16, 2);
    region.set_hook(counts.clone());
    let volume = crate::attach_region(region, &crate::AttachOptions::default()).unwrap();
    let node = new_file(&volume);
    let fences = |offset: u64, length: usize| {
        let before = counts.fences.load(std::sync::atomic::Ordering::Relaxed);
        write(&volume, node, offset, &vec![6; length]).unwrap();
        counts.fences.load(std::sync::atomic::Ordering::Relaxed) - before
    };
    assert_eq!(fences(0, 4096), 2, "the first append");
    assert_eq!(fences(4096, 100), 2, "an append to a fresh block");
    assert_eq!(fences(4196, 100), 1, "an append to the last block");
    assert_eq!(fences(4296, 3800), 1, "the longest into what is there");
    assert_eq!(fences(0, 4096), 2, "an overwrite of a block");
    assert_eq!(fences(100, 24), 2, "a short overwrite");
    assert_eq!(fences(100, 5000), 2, "an overwrite of two blocks");
}

#[test]
fn what_returned_survives_the_death_of_every_process() {
    let volume = volume(Mode::Posix, 16);
    let root = crate::testing::root(&volume);
    let new =
        vfs::NewNode { kind: vfs::Kind::File, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" };
    let node = vfs::FileSystem::create(&*volume, root, b"log", &new).unwrap();
    let mut bytes = Vec::new();
    for step in 0..40 {
        let line = vec![step + 1; 777];
        volume.write_file(node, Position::End, &[UserIn::new(&line)]).unwrap();
        bytes.extend(line);
        match step {
            10 => volume.sync_file(node).unwrap(),
            20 => {
                let mode = vfs::SetAttr { mode: Some(0o644), ..vfs::SetAttr::default() };
                vfs::FileSystem::set_attr(&*volume, node, &mode).unwrap();
            }
            30 => {
                volume.truncate_file(node, 5000).unwrap();
                bytes.truncate(5000);
            }
            _ => {}
        }
        // As it would be found if all processes were killed now.
        let image = crate::testing::image(&volume);
        let after = crate::attach_region(image, &crate::AttachOptions::default()).unwrap();
        assert_eq!(read(&after, node, 0, 100_000), bytes, "step {step}");
    }
}

#[test]
fn a_lazy_size_survives_who_clears_a_sum() {
    type Clear = fn(&Volume, Node);
    let ways: [Clear; 3] = [
        |volume, node| assert_eq!(write(volume, node, 0, &[5; 10]), Ok(10)),
        // It says nothing of what is current.
        |volume, node| {
            let collapse = libc::FALLOC_FL_COLLAPSE_RANGE as u32;
            assert_eq!(volume.allocate_file(node, collapse, 0, BLOCK), Err(Errno::INVAL));
        },
        |volume, node| {
            volume.map_pieces(node, (0, BLOCK), vfs::Mapped::Read, Fill::All).unwrap();
        },
    ];
    for (way, simple) in (0..ways.len()).flat_map(|way| [(way, false), (way, true)]) {
        let volume = volume(Mode::Posix, 16);
        let root = crate::testing::root(&volume);
        let node = FileSystem::create(&*volume, root, b"log", &crate::testing::file()).unwrap();
        let append = || {
            if !simple || !crate::testing::simply(&volume, node, Position::End, &[5; 100]) {
                volume.write_file(node, Position::End, &[UserIn::new(&[5; 100])]).unwrap();
            }
        };
        append();
        volume.sync_file(node).unwrap();
        let steps: [&dyn Fn(); 6] =
            [&append, &append, &|| ways[way](&volume, node), &append, &append, &|| {
                ways[way](&volume, node);
            }];
        for (step, size) in steps.into_iter().zip([200, 300, 300, 400, 500, 500]) {
            step();
            // As it would be found if all processes were killed now.
            let image = crate::testing::image(&volume);
            let after = crate::attach_region(image, &crate::AttachOptions::default()).unwrap();
            let kept = read(&after, node, 0, 1000);
            assert!(kept == vec![5; size], "{way}, {simple}: {}, not {size}", kept.len());
        }
    }
}
