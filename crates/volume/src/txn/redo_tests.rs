//! Overwrites by redo, from one buffer and from several (by a list), in files that are then changed
//! in every way there is: what a record tells of is stored once more as long as nothing else has
//! changed it, and never again afterwards.

use crate::Mode;
use crate::attach::{AttachOptions, attach_region};
use crate::data::map::Map;
use crate::data::mapping::Fill;
use crate::data::plan::Position;
use crate::inode::Inode;
use crate::medium::layout::{BLOCK, IDENTITY, LINE};
use crate::testing::{file, image, root, volume};
use crate::volume::Volume;
use pmem::Region;
use rustix::io::Errno;
use std::sync::Arc;
use vfs::{
    Attached, Desc, EntryName, FileSystem, IoOffset, Mapped, Node, OpenFlags, Removes, RenameFlags,
    SetAttr, UserIn, UserOut,
};

const SIZE: usize = 20_000;
/// Where the overwrite goes: through the end of a block, inside one, over a whole one, over all;
/// whether the blocks lie apart; and from how many buffers.
const CASES: [(u64, usize, bool, usize); 11] = [
    (4000, 300, false, 1),
    (9000, 16, false, 1),
    (4096, 4096, false, 1),
    (4000, 300, true, 1),
    (4100, 6000, true, 1),
    (3, 16_384, true, 1),
    (4000, 300, false, 2),
    (9000, 16, false, 3),
    (4096, 1000, false, 2),
    (4100, 6000, true, 2),
    (3, 16_000, true, 8),
];

fn read(volume: &Volume, node: Node) -> Vec<u8> {
    let mut bytes = vec![0; 2 * SIZE];
    let done = volume.read_file(node, 0, &mut [UserOut::new(&mut bytes)]).unwrap();
    bytes.truncate(done);
    bytes
}

/// The region offset of a byte of the file.
fn place(volume: &Volume, node: Node, at: u64) -> u64 {
    let (inode, identity) = volume.identity_of(node).unwrap();
    let run = Map::new(volume, inode, &identity).run(at / BLOCK, 1).unwrap();
    run.block * BLOCK + at % BLOCK
}

/// A volume with a file that an overwrite has changed, whose record fits where it lies.
fn overwritten(
    (at, length, apart, buffers): (u64, usize, bool, usize),
) -> (Arc<Volume>, Node, Desc) {
    let volume = volume(Mode::Strict, 16);
    let node = volume.create(root(&volume), b"f", &file()).unwrap();
    let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap();
    if apart {
        let other = volume.create(root(&volume), b"other", &file()).unwrap();
        for (at, bytes) in (0..).step_by(BLOCK as usize).zip(vec![1; SIZE].chunks(BLOCK as usize)) {
            volume.write(desc, &[UserIn::new(bytes)], IoOffset::offset(at)).unwrap();
            volume.write_file(other, Position::At(at), &[UserIn::new(bytes)]).unwrap();
        }
        assert_ne!(place(&volume, node, 4096) + 4096, place(&volume, node, 8192));
        assert_ne!(place(&volume, node, 0) + 4096, place(&volume, node, 4096));
    } else {
        volume.write(desc, &[UserIn::new(&vec![1; SIZE])], IoOffset::offset(0)).unwrap();
    }
    let before = place(&volume, node, at);
    let bytes = vec![2; length];
    let parts: Vec<_> = bytes.chunks(length.div_ceil(buffers)).map(UserIn::new).collect();
    assert_eq!(parts.len(), buffers);
    volume.write(desc, &parts, IoOffset::offset(at)).unwrap();
    assert_eq!(place(&volume, node, at), before, "in place");
    (volume, node, desc)
}

fn attached(region: Region) -> Arc<Volume> {
    attach_region(region, &AttachOptions::default()).unwrap()
}

#[test]
fn what_did_not_arrive_in_place_is_stored_by_recovery() {
    for (at, length, apart, buffers) in CASES {
        let (volume, node, _) = overwritten((at, length, apart, buffers));
        let whole = read(&volume, node);
        assert_eq!(whole[at as usize..at as usize + length], vec![2; length]);
        for part in 0..4 {
            let torn = image(&volume);
            let lost = place(&volume, node, at + 8 + (length as u64 - 16) * part / 3);
            let _ = torn.write(lost / 8 * 8, &[9; 8]).unwrap();
            assert_eq!(read(&attached(torn), node), whole, "{length} at {at}, {apart}");
        }
    }
}

#[test]
fn an_orderly_end_leaves_no_record() {
    for case in [CASES[1], CASES[7]] {
        let (volume, node, desc) = overwritten(case);
        volume.close(desc).unwrap();
        volume.detach().unwrap();
        let again = attached(image(&volume));
        let changed = image(&again);
        let _ = changed.write(place(&again, node, case.0 + 4) / 8 * 8, &[9; 8]).unwrap();
        let after = attached(changed);
        assert_eq!(read(&after, node)[case.0 as usize + 4], 9, "nothing tells of what was there");
    }
}

/// Each commit draws a third of them; `SOLERA_TEST_LONG` tries all.
#[test]
fn whatever_changes_the_bytes_a_crash_leaves_the_change() {
    type Change = (&'static str, fn(&Volume, Node, Desc, u64));
    let changes: [Change; 12] = [
        ("the same again", |volume, _, desc, at| {
            volume.write(desc, &[UserIn::new(&[3; 10])], IoOffset::offset(at)).unwrap();
        }),
        ("an overwrite that waits for the lock", |volume, node, _, at| {
            volume.write_file(node, Position::At(at), &[UserIn::new(&[3; 6000])]).unwrap();
        }),
        ("an append, then an overwrite", |volume, _, desc, at| {
            volume.write(desc, &[UserIn::new(&[3; 10])], IoOffset::offset(SIZE as u64)).unwrap();
            volume.write(desc, &[UserIn::new(&[4; 10])], IoOffset::offset(at)).unwrap();
        }),
        ("a shorter and a longer size", |volume, node, _, at| {
            volume.truncate_file(node, at).unwrap();
            volume.truncate_file(node, SIZE as u64).unwrap();
        }),
        ("an overwrite of two buffers by the same lane", |volume, _, desc, at| {
            let both = [UserIn::new(&[3; 9]), UserIn::new(&[4; 9])];
            volume.write(desc, &both, IoOffset::offset(at)).unwrap();
        }),
        ("one that crosses the end", |volume, _, desc, at| {
            let both = [UserIn::new(&[3; 9]), UserIn::new(&[4; 9])];
            volume.write(desc, &both, IoOffset::offset(SIZE as u64 - 5)).unwrap();
            volume.write(desc, &[UserIn::new(&[5; 3])], IoOffset::offset(at)).unwrap();
        }),
        ("a zeroed range", |volume, node, _, at| {
            let mode = libc::FALLOC_FL_ZERO_RANGE as u32;
            volume.allocate_file(node, mode, at, 12).unwrap();
        }),
        ("a punched hole", |volume, node, _, _| {
            let mode = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32;
            volume.allocate_file(node, mode, 0, 16_384).unwrap();
        }),
        ("a collapsed range", |volume, node, _, _| {
            let mode = libc::FALLOC_FL_COLLAPSE_RANGE as u32;
            volume.allocate_file(node, mode, 0, 4096).unwrap();
        }),
        ("a store through a mapping", |volume, node, _, at| {
            volume.map_pieces(node, (0, 4 * BLOCK), Mapped::Write, Fill::All).unwrap();
            let _ = volume.region.write(place(volume, node, at) / 8 * 8, &[3; 8]).unwrap();
        }),
        ("a name", |volume, _, _, _| {
            let (from, to) =
                (EntryName::new(root(volume), b"f"), EntryName::new(root(volume), b"g"));
            volume.rename(&from, &to, RenameFlags::new(0)).unwrap();
        }),
        ("other data in its blocks", |volume, node, desc, _| {
            volume.close(desc).unwrap();
            volume.remove(&EntryName::new(root(volume), b"f"), Removes::Name).unwrap();
            let new = volume.create(root(volume), b"g", &file()).unwrap();
            assert_ne!(new, node);
            let bytes = vec![5; SIZE];
            volume.write_file(new, Position::At(0), &[UserIn::new(&bytes)]).unwrap();
        }),
    ];
    for (at, length, apart, buffers) in CASES {
        let id = |name| format!("redo/{at}/{length}/{apart}/{buffers}/{name}");
        for (name, change) in changes.iter().filter(|(name, _)| rotation::chosen(&id(name), 3)) {
            let (volume, node, desc) = overwritten((at, length, apart, buffers));
            change(&volume, node, desc, at);
            let found = volume.lookup(root(&volume), b"f").or(volume.lookup(root(&volume), b"g"));
            let node = found.unwrap();
            let wanted = read(&volume, node);
            let after = attached(image(&volume));
            assert_eq!(read(&after, node), wanted, "{name} after {length} at {at}");
            // And once more, from what recovery left.
            let after = attached(image(&after));
            assert_eq!(read(&after, node), wanted, "{name}, twice, after {length} at {at}");
        }
    }
}

#[test]
fn a_sweep_leaves_no_record() {
    for (at, length, apart, buffers) in CASES {
        let (volume, node, _) = overwritten((at, length, apart, buffers));
        volume.demand_sweep().unwrap();
        volume.in_quiet(|_| Ok(())).unwrap();
        let changed = image(&volume);
        let _ = changed.write(place(&volume, node, at + 4) / 8 * 8, &[9; 8]).unwrap();
        let after = attached(changed);
        assert_eq!(read(&after, node)[at as usize + 4], 9, "{length} at {at}");
    }
}

/// A volume with a file whose mode a record tells of, and the file's identity line before.
fn changed_mode() -> (Arc<Volume>, Node, [u8; LINE as usize]) {
    let volume = volume(Mode::Strict, 16);
    volume.create(root(&volume), b"beside", &file()).unwrap();
    let node = volume.create(root(&volume), b"f", &file()).unwrap();
    let mut before = [0; LINE as usize];
    volume.region.read(Inode(node.ino).at(IDENTITY), &mut before).unwrap();
    change_mode(&volume, node, 0o4711);
    (volume, node, before)
}

fn change_mode(volume: &Volume, node: Node, mode: u32) {
    let change = SetAttr { mode: Some(mode), uid: Some(7), ..SetAttr::default() };
    FileSystem::set_attr(volume, node, &change).unwrap();
}

#[test]
fn an_identity_line_that_a_power_cut_tore_is_made_whole() {
    let (volume, node, before) = changed_mode();
    let wanted = volume.identity(Inode(node.ino)).unwrap();
    let words = before.as_chunks::<8>().0;
    // Any of the words may have come, and any not.
    for kept in 0..1_u32 << words.len() {
        let torn = image(&volume);
        for (at, word) in (0..).step_by(8).zip(words).filter(|(at, _)| kept >> (at / 8) & 1 == 0) {
            let _ = torn.write(Inode(node.ino).at(IDENTITY) + at, word).unwrap();
        }
        let after = attached(torn);
        assert_eq!(after.identity(Inode(node.ino)), Ok(wanted), "{kept:x}");
        assert_eq!(after.attributes(node).unwrap().mode & 0o7777, 0o4711, "{kept:x}");
    }
}

#[test]
fn an_identity_line_without_a_record_that_tells_of_it_stays_damaged() {
    let (volume, node, _) = changed_mode();
    // By a slot, beside which the record counts no more.
    volume.truncate(node, 5).unwrap();
    let damaged = image(&volume);
    let at = Inode(node.ino).at(IDENTITY) + 8;
    let word = damaged.load64(at).unwrap();
    let _ = damaged.store64(at, word ^ 1 << 32).unwrap();
    let after = attached(damaged);
    assert_eq!(after.attributes(node).map(|_| ()), Err(Errno::IO));
}

#[test]
fn what_changes_an_inode_after_its_mode_stands() {
    type Change = (&'static str, fn(&Volume, Node));
    let changes: [Change; 9] = [
        ("another mode", |volume, node| change_mode(volume, node, 0o600)),
        ("another mode by another lane", |volume, node| {
            let lane = volume.begin().unwrap();
            change_mode(volume, node, 0o600);
            lane.end().unwrap();
        }),
        ("access time", |volume, node| {
            let change = SetAttr { atime: Some(5), ..SetAttr::default() };
            FileSystem::set_attr(volume, node, &change).unwrap();
        }),
        ("link", |volume, node| {
            FileSystem::link(volume, node, root(volume), b"g").unwrap();
        }),
        ("name", |volume, _| {
            let (from, to) =
                (EntryName::new(root(volume), b"f"), EntryName::new(root(volume), b"other"));
            volume.rename(&from, &to, RenameFlags::new(0)).unwrap();
        }),
        ("bytes", |volume, node| {
            volume.write_file(node, Position::At(0), &[UserIn::new(&[3; 9000])]).unwrap();
        }),
        ("size", |volume, node| volume.truncate(node, 77).unwrap()),
        ("attribute", |volume, node| {
            FileSystem::set_xattr(volume, node, b"user.x", b"y", 0).unwrap();
        }),
        ("no name", |volume, _| {
            volume.remove(&EntryName::new(root(volume), b"f"), Removes::Name).unwrap();
            volume.create(root(volume), b"new", &file()).unwrap();
        }),
    ];
    for (name, change) in changes {
        let (volume, node, _) = changed_mode();
        change(&volume, node);
        let wanted = volume.attributes(node);
        let after = attached(image(&volume));
        assert_eq!(after.attributes(node), wanted, "{name}");
        assert_eq!(attached(image(&after)).attributes(node), wanted, "{name}, twice");
        assert!(after.check(&crate::FsckOptions::default()).unwrap().faults.is_empty(), "{name}");
    }
}
