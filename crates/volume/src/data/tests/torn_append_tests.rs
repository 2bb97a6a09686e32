//! Short appends with one fence, in files whose tail is then changed in every way there is: what
//! stands is never taken for torn, what is torn never stands.

use crate::Mode;
use crate::attach::{AttachOptions, attach_region};
use crate::data::map::Map;
use crate::data::mapping::Fill;
use crate::data::plan::Position;
use crate::inode::Inode;
use crate::medium::layout::{BLOCK, COMMIT_CHECKSUMMED};
use crate::testing::{file, image, root, volume};
use crate::volume::Volume;
use std::sync::Arc;
use vfs::{Attached, FileSystem, Mapped, Node, UserIn, UserOut};

const FIRST: [u8; 3000] = [1; 3000];
const TAIL: [u8; 500] = [2; 500];
const SIZE: u64 = (FIRST.len() + TAIL.len()) as u64;

fn write(volume: &Volume, node: Node, at: u64, data: &[u8]) {
    volume.write_file(node, Position::At(at), &[UserIn::new(data)]).unwrap();
}

fn contents(volume: &Volume, node: Node) -> Vec<u8> {
    let mut bytes = vec![0; 3 * BLOCK as usize];
    let done = volume.read_file(node, 0, &mut [UserOut::new(&mut bytes)]).unwrap();
    bytes.truncate(done);
    bytes
}

fn is_checksummed(volume: &Volume, node: Node) -> bool {
    let (commit, _) = volume.commit_line(Inode(node.ino), node.generation).unwrap();
    commit.flags & COMMIT_CHECKSUMMED != 0
}

/// A volume with a file that ends in a checksummed append.
fn appended(mode: Mode) -> (Arc<Volume>, Node) {
    let volume = volume(mode, 16);
    let node = volume.create(root(&volume), b"f", &file()).unwrap();
    write(&volume, node, 0, &FIRST);
    write(&volume, node, FIRST.len() as u64, &TAIL);
    assert!(is_checksummed(&volume, node));
    (volume, node)
}

/// What is found after a crash in which everything stored so far has reached the medium.
fn after_crash(volume: &Volume, node: Node) -> Vec<u8> {
    let after = attach_region(image(volume), &AttachOptions::default()).unwrap();
    contents(&after, node)
}

/// Offset in the region of a byte of the file.
fn place(volume: &Volume, node: Node, at: u64) -> u64 {
    let (inode, identity) = volume.identity_of(node).unwrap();
    let run = Map::new(volume, inode, &identity).run(at / BLOCK, 1).unwrap();
    run.block * BLOCK + at % BLOCK
}

#[test]
fn whatever_changes_a_checksummed_tail_a_crash_leaves_the_change() {
    type Change = (&'static str, fn(&Volume, Node));
    let changes: [Change; 9] = [
        ("a short overwrite", |volume, node| write(volume, node, SIZE - 9, b"change")),
        ("an overwrite of the block", |volume, node| write(volume, node, 0, &[3; 3500])),
        ("an overwrite past the end", |volume, node| write(volume, node, SIZE - 9, &[3; 5000])),
        ("a punched hole", |volume, node| {
            let mode = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32;
            volume.allocate_file(node, mode, 3100, 50).unwrap();
        }),
        ("a zeroed range", |volume, node| {
            volume.allocate_file(node, libc::FALLOC_FL_ZERO_RANGE as u32, 3100, 50).unwrap();
        }),
        ("a shorter file, then a longer one", |volume, node| {
            volume.truncate_file(node, 3100).unwrap();
            volume.truncate_file(node, 3300).unwrap();
        }),
        ("another's blocks", |volume, node| {
            let other = volume.create(root(volume), b"other", &file()).unwrap();
            write(volume, other, 0, &[4; BLOCK as usize]);
            volume.relink_file(other, 0, node, 0, BLOCK).unwrap();
        }),
        ("a store to a mapping", |volume, node| {
            volume.map_pieces(node, (0, BLOCK), Mapped::Write, Fill::All).unwrap();
            let stored = volume.region.write(place(volume, node, SIZE - 9), b"mapped").unwrap();
            let _ = stored.flush().fence();
        }),
        ("a later append, then an overwrite", |volume, node| {
            write(volume, node, SIZE, &[5; 20]);
            write(volume, node, SIZE + 3, b"change");
        }),
    ];
    for mode in [Mode::Strict, Mode::Sync] {
        for (name, change) in changes {
            let (volume, node) = appended(mode);
            change(&volume, node);
            assert!(after_crash(&volume, node) == contents(&volume, node), "{mode}: {name}");
        }
    }
}

#[test]
fn a_process_in_mode_posix_clears_the_sum_of_another() {
    let (volume, node) = appended(Mode::Strict);
    let posix = AttachOptions { mode: Mode::Posix, ..AttachOptions::default() };
    let volume = attach_region(image(&volume), &posix).unwrap();
    assert!(is_checksummed(&volume, node));
    write(&volume, node, SIZE - 9, b"change");
    assert!(after_crash(&volume, node) == contents(&volume, node));
}

#[test]
fn an_overwrite_that_has_cleared_a_sum_makes_the_next_one_simple() {
    for mode in [Mode::Sync, Mode::Posix] {
        let (volume, node) = appended(Mode::Strict);
        let options = AttachOptions { mode, ..AttachOptions::default() };
        let volume = attach_region(image(&volume), &options).unwrap();
        let simply = || crate::testing::simply(&volume, node, Position::At(SIZE - 9), b"change");
        // The first finds lines that were not used in this epoch.
        write(&volume, node, SIZE - 9, b"before");
        assert!(simply(), "{mode}");
        assert!(after_crash(&volume, node) == contents(&volume, node), "{mode}");
    }
}

#[test]
fn a_slot_without_its_bytes_never_happened() {
    for mode in [Mode::Strict, Mode::Sync] {
        for torn in [FIRST.len() as u64, SIZE - 1] {
            let (volume, node) = appended(mode);
            let _ = volume.region.write(place(&volume, node, torn), &[0]).unwrap();
            assert!(after_crash(&volume, node) == FIRST, "{mode}: byte {torn} is not there");
            // The next append starts where the old end is.
            let after = attach_region(image(&volume), &AttachOptions::default()).unwrap();
            write(&after, node, FIRST.len() as u64, &TAIL);
            assert!(after_crash(&after, node) == contents(&after, node));
            assert_eq!(contents(&after, node).len() as u64, SIZE);
        }
    }
}

#[test]
fn an_orderly_end_asks_for_no_sum() {
    let (volume, node) = appended(Mode::Strict);
    volume.detach().unwrap();
    let _ = volume.region.write(place(&volume, node, SIZE - 1), &[0]).unwrap();
    assert_eq!(after_crash(&volume, node).len() as u64, SIZE, "a flipped bit takes no bytes away");
}
