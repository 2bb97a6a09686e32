//! The check against damage of every kind: each is named, none is fatal.

use crate::Mode;
use crate::attach::offline_check::check_view;
use crate::attach::view::View;
use crate::attach::{AttachOptions, attach_region};
use crate::check::fsck::compare;
use crate::inode::Inode;
use crate::medium::layout::{
    BLOCK, COMMIT, IDENTITY, INODE, LINE, ROOT_WORD, STATE, SUPERBLOCK_A, SUPERBLOCK_B, Superblock,
    WORDS, XATTR_WORD,
};
use crate::medium::superblock;
use crate::recovery::fault::FsckFault;
use crate::recovery::mark::{Depth, Mark};
use crate::space::free_map::bits_of;
use crate::testing::{Random, copied, image, root, volume};
use crate::txn::journal::lane_offset;
use crate::volume::Volume;
use pmem::{Region, UserIn, UserOut};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use vfs::{EntryName, FileSystem, Kind, NewNode, Node, Removes};
use zerocopy::IntoBytes;

fn new(kind: Kind, target: &[u8]) -> NewNode<'_> {
    NewNode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target }
}

fn write(volume: &Volume, node: Node, offset: u64, length: usize) {
    let bytes = vec![0x5A; length];
    let parts = [UserIn::new(&bytes)];
    let at = crate::data::plan::Position::At(offset);
    assert_eq!(volume.write_file(node, at, &parts).unwrap().0, length);
}

/// The nodes of a small tree with one of everything.
struct Tree {
    sparse: Node,
    named: Node,
    crowded: Node,
    target: Node,
}

fn populate(volume: &Volume) -> Tree {
    let root = root(volume);
    let file =
        |dir, name: &str| volume.create(dir, name.as_bytes(), &new(Kind::File, b"")).unwrap();
    write(volume, file(root, "small"), 0, 100);
    write(volume, file(root, "large"), 0, 5 << 20);
    let sparse = file(root, "sparse");
    write(volume, sparse, 1 << 40, 5000);
    write(volume, sparse, 4096, 5000);
    let named = file(root, "named");
    volume.link(named, root, b"another name").unwrap();
    volume.set_xattr(named, b"user.colour", b"amber", 0).unwrap();
    let long = "long/".repeat(100);
    volume.create(root, b"short link", &new(Kind::Symlink, b"named")).unwrap();
    let target = volume.create(root, b"long link", &new(Kind::Symlink, long.as_bytes())).unwrap();
    volume.create(root, b"pipe", &new(Kind::Fifo, b"")).unwrap();
    let crowded = volume.create(root, b"crowded", &new(Kind::Directory, b"")).unwrap();
    for index in 0..300 {
        write(volume, file(crowded, &format!("file number {index} of many")), 0, index);
    }
    let inner = volume.create(crowded, b"inner", &new(Kind::Directory, b"")).unwrap();
    file(inner, &"n".repeat(255));
    Tree { sparse, named, crowded, target }
}

/// A volume with a tree in it, orderly detached.
fn detached() -> (Arc<Region>, Tree) {
    let volume = volume(Mode::Strict, 16);
    let tree = populate(&volume);
    volume.leave().unwrap();
    (Arc::new(image(&volume)), tree)
}

fn check(region: &Arc<Region>) -> Vec<FsckFault> {
    let found = superblock::read(region, Path::new("(test)"), "check").unwrap();
    let view = View::of_region(Arc::clone(region), found, false);
    check_view(&view, Depth::Thorough, &mut |_, _| {}).unwrap().faults
}

#[test]
fn a_sound_volume_has_no_faults() {
    let (region, _) = detached();
    assert_eq!(check(&region), []);
    let found = superblock::read(&region, Path::new("(test)"), "check").unwrap();
    let view = View::of_region(Arc::clone(&region), found, false);
    let counts = check_view(&view, Depth::Thorough, &mut |_, _| {}).unwrap().counts;
    assert_eq!((counts.files, counts.directories, counts.others), (305, 3, 3));
}

#[test]
fn a_volume_in_use_or_crashed_has_no_faults() {
    let volume = volume(Mode::Strict, 16);
    populate(&volume);
    assert_eq!(check(&Arc::new(image(&volume))), []);
    let found = volume.in_quiet(|roots| {
        let mut mark = Mark::new(&volume, Depth::Thorough, 2);
        mark.run(roots, &mut |_, _| {});
        compare(&volume, &mut mark)?;
        Ok(mark.found.faults)
    });
    assert_eq!(found.unwrap(), []);
}

/// Places in which every bit counts: {what, offset, length}.
fn places(region: &Arc<Region>, tree: &Tree) -> Vec<(&'static str, u64, u64)> {
    let found = superblock::read(region, Path::new("(test)"), "check").unwrap();
    let view = View::of_region(Arc::clone(region), found, false);
    let volume = &view.volume;
    let at = |node: Node, field| Inode(node.ino).at(field);
    let word = |at: u64| (region.load64(at).unwrap() & ((1 << 40) - 1)) * BLOCK;
    let newest = |node: Node| {
        let (_, slot) = volume.commit_line(Inode(node.ino), node.generation).unwrap();
        at(node, COMMIT) + slot as u64 * 32
    };
    let (_, state) = superblock::read_state(region).unwrap();
    let mut places = vec![
        ("identity of a file", at(tree.sparse, IDENTITY), LINE),
        ("identity of a directory", at(tree.crowded, IDENTITY), LINE),
        ("commit line of a file", newest(tree.sparse), 32),
        ("commit line of a directory", newest(tree.crowded), 32),
        ("direct word", at(tree.sparse, WORDS + 8), 8),
        ("root word of a file", at(tree.sparse, ROOT_WORD), 8),
        ("root word of a directory", at(tree.crowded, ROOT_WORD), 8),
        ("word of attributes", at(tree.named, XATTR_WORD), 8),
        ("attributes", word(at(tree.named, XATTR_WORD)), 24 + 8),
        ("word of a long target", at(tree.target, WORDS), 8),
        ("long target", word(at(tree.target, WORDS)), 500),
        ("superblock A", SUPERBLOCK_A, size_of::<Superblock>() as u64),
        ("superblock B", SUPERBLOCK_B, size_of::<Superblock>() as u64),
        ("state", STATE + state * 32, 32),
        ("lane header", lane_offset(3), 8),
    ];
    let node = word(at(tree.sparse, ROOT_WORD));
    let used = (0..512).find(|index| region.load64(node + index * 8).unwrap() != 0);
    places.push(("word of a map node", node + used.unwrap() * 8, 8));
    let node = word(at(tree.crowded, ROOT_WORD));
    places.push(("word of a directory node", node, 8));
    let bucket = word(node);
    places.push(("head of a bucket", bucket, 36));
    let occupied = region.load64(bucket).unwrap();
    for slot in bits_of(occupied & ((1 << 56) - 1)).take(2) {
        places.push(("hash word", bucket + LINE + slot * 8, 8));
        places.push(("slot", bucket + LINE + 56 * 8 + slot * 64, 64));
    }
    let record = volume.superblock.runtime + volume.rt.chunk(0);
    places.push(("saved free map", record, LINE));
    places.push(("saved slots", volume.extent_slots_offset(0, 0), 8));
    places
}

#[test]
fn a_flipped_bit_in_any_structure_is_named() {
    let (region, tree) = detached();
    for (what, offset, length) in places(&region, &tree) {
        // Of long checksummed pieces every 13th bit will do.
        let step = if length > LINE { 13 } else { 1 };
        for bit in (0..length * 8).step_by(step) {
            let at = (offset + bit / 8) / 8 * 8;
            let flip = 1 << ((offset + bit / 8) % 8 * 8 + bit % 8);
            let before = region.load64(at).unwrap();
            let _ = region.store64(at, before ^ flip).unwrap();
            let faults = check(&region);
            assert!(!faults.is_empty(), "{what}: bit {bit} was not noticed");
            let _ = region.store64(at, before).unwrap();
        }
    }
    assert_eq!(check(&region), []);
}

#[test]
fn damage_after_a_crash_makes_the_volume_read_only() {
    let volume = volume(Mode::Strict, 16);
    let tree = populate(&volume);
    let region = image(&volume);
    let at = Inode(tree.sparse.ino).at(IDENTITY) + 8;
    let before = region.load64(at).unwrap();
    let _ = region.store64(at, before ^ 1 << 20).unwrap().flush();
    let again = attach_region(region, &AttachOptions::default()).unwrap();
    assert_eq!(again.attributes(tree.sparse), Err(Errno::IO));
    assert_eq!(again.attributes(tree.named).unwrap().nlink, 2);
    let file = new(Kind::File, b"");
    assert_eq!(again.create(root(&again), b"new", &file), Err(Errno::ROFS));
}

#[test]
fn a_damaged_lane_is_repaired_after_an_orderly_end() {
    let (region, _) = detached();
    let at = lane_offset(5);
    let _ = region.store64(at, region.load64(at).unwrap() ^ 4).unwrap();
    assert_eq!(check(&region)[0].code, "lane-header");
    let region = Arc::into_inner(region).unwrap();
    let volume = attach_region(region, &AttachOptions::default()).unwrap();
    volume.leave().unwrap();
    assert_eq!(check(&Arc::new(image(&volume))), []);
}

/// Overwrites a random piece of one of the ranges {offset, length} with noise.
fn spoil(region: &Region, ranges: &[(u64, u64)], random: &mut Random) {
    let length = 8 << random.below(10);
    let range = ranges[random.below(ranges.len() as u64) as usize];
    let offset = range.0 + random.below(range.1 - length) / 8 * 8;
    for at in (offset..offset + length).step_by(8) {
        let _ = region.store64(at, random.next() << 32 ^ random.next()).unwrap();
    }
}

#[test]
fn noise_anywhere_is_survived() {
    let volume = volume(Mode::Strict, 16);
    let tree = populate(&volume);
    let crashed = image(&volume);
    volume.leave().unwrap();
    let clean = image(&volume);
    // State, lanes and runtime; and what is in use of the metadata chunks.
    let mut ranges = vec![(STATE, volume.pool() - STATE)];
    for chunk in 0..volume.chunks() {
        if volume.chunk_kind(chunk).unwrap() == crate::space::chunk::Kind::Metadata {
            let start = volume.chunk_start(chunk) * BLOCK;
            let used =
                crate::space::chunk::free_runs(&volume.bitmap(chunk).unwrap()).next().unwrap();
            ranges.push((start, used.0 * BLOCK));
            ranges.push((start + (used.0 + used.1) * BLOCK, (512 - used.0 - used.1) * BLOCK));
        }
    }
    ranges.retain(|range| range.1 > 8 << 10);
    let mut random = Random::new(17);
    let mut named = 0;
    for round in 0..80 {
        let start = if round % 2 == 0 { &crashed } else { &clean };
        let region = Arc::new(copied(start));
        for _ in 0..=random.below(8) {
            spoil(&region, &ranges, &mut random);
        }
        named += u32::from(!check(&region).is_empty());
        let region = Arc::into_inner(region).unwrap();
        let volume = attach_region(region, &AttachOptions::default()).unwrap();
        use_it(&volume, &tree);
        if volume.damaged().unwrap() {
            continue;
        }
        let mut mark = Mark::new(&volume, Depth::Thorough, 2);
        mark.run(&[], &mut |_, _| {});
        compare(&volume, &mut mark).unwrap();
        let worse = ["block-claimed-twice", "block-not-allocated", "inode-not-allocated"];
        let mut faults = mark.found.faults.iter();
        assert_eq!(faults.find(|fault| worse.contains(&fault.code)), None, "round {round}");
    }
    assert!(named > 50, "most noise hits something: {named}");
}

/// Calls that may all fail, but not panic, hang or leave the allocator in disorder.
fn use_it(volume: &Volume, tree: &Tree) {
    let root = root(volume);
    let mut names = Vec::new();
    for directory in [root, tree.crowded] {
        let _ = volume.read_dir(directory, 0, &mut |entry| {
            names.push((directory, entry.name.to_vec()));
            true
        });
    }
    for (directory, name) in &names {
        if let Ok(node) = volume.lookup(*directory, name) {
            let _ = volume.attributes(node);
            let mut bytes = [0; 4096];
            let _ = volume.read_file(node, 0, &mut [UserOut::new(&mut bytes)]);
            let at = crate::data::plan::Position::End;
            let _ = volume.write_file(node, at, &[UserIn::new(&bytes[..200])]);
        }
        let _ = volume.remove(&EntryName::new(*directory, name), Removes::Name);
    }
    for index in 0..20 {
        let name = format!("after {index}");
        if let Ok(node) = volume.create(root, name.as_bytes(), &new(Kind::File, b"")) {
            let at = crate::data::plan::Position::At(0);
            let _ = volume.write_file(node, at, &[UserIn::new(&[1; 9_000])]);
        }
    }
    if !volume.damaged().unwrap() {
        // Extents that are only kept count as free, and their blocks are not.
        volume.return_kept().unwrap();
    }
    let space = volume.free_space().unwrap();
    assert_eq!(space.free_blocks(), volume.free_blocks().unwrap());
}

#[test]
fn counts_and_links_are_compared() {
    let (region, tree) = detached();
    let inode = Inode(tree.named.ino);
    let found = superblock::read(&region, Path::new("(test)"), "check").unwrap();
    let view = View::of_region(Arc::clone(&region), found, false);
    let mut identity = view.volume.identity(inode).unwrap();
    identity.nlink = 3;
    let bytes = identity.sealed(inode);
    let _ = region.write(inode.at(IDENTITY), bytes.as_bytes()).unwrap();
    let faults = check(&region);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0].code, "link-count");
    assert_eq!(inode.offset() % INODE, 0);
}
