//! Tests of the directory structure itself: hashes that collide on purpose, splits and merges,
//! damage.

use crate::cache::Target;
use crate::medium::layout::{BLOCK, ROOT_WORD};
use crate::medium::now;
use crate::namespace::bucket::{Dir, slots_of};
use crate::namespace::change::Step;
use crate::testing::{Random, directory, fresh};
use crate::txn::locked_inodes::Store;
use crate::txn::op::Op;
use crate::volume::Volume;
use rustix::io::Errno;
use std::collections::BTreeMap;
use vfs::{Kind, Node};

/// A hash of which the test says how bad it is.
type Hash = fn(&[u8]) -> u64;

/// Few of the bits differ: every split goes down to the bottom, where 16 names share each hash.
fn nearly_equal(name: &[u8]) -> u64 {
    0x5_5555_5555_5500 + u64::from(name[0] % 16)
}

/// All bits differ, but not evenly: the upper ones stand still for a while.
fn clustered(name: &[u8]) -> u64 {
    let sum = name.iter().fold(7_u64, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte));
    (sum % 5) << 40 | (sum % 977) << 12 | (sum % 4 + 1)
}

/// A directory under a hash of the test's choosing.
struct Tree<'v> {
    volume: &'v Volume,
    node: Node,
    dir: Dir,
    hash: Hash,
}

impl<'v> Tree<'v> {
    fn new(volume: &'v Volume, root: Node, hash: Hash) -> Self {
        let node = volume.create(root, b"tree", &directory()).expect("a directory");
        let inode = volume.inode_of(node).expect("an inode");
        Self { volume, node, dir: Dir { inode, generation: node.generation }, hash }
    }

    fn find(&self, name: &[u8]) -> Option<u64> {
        let search = self.volume.search(self.dir, (self.hash)(name), name).expect("a search");
        search.hit.map(|hit| hit.target.node.ino)
    }

    fn insert(&self, name: &[u8], ino: u64) -> Result<(), Errno> {
        let mut op = self.volume.begin()?;
        op.lock(&[self.dir.inode])?;
        let search = self.volume.search(self.dir, (self.hash)(name), name)?;
        if search.hit.is_some() {
            return Err(Errno::EXIST);
        }
        let key = search.vacant.ok_or(Errno::NOSPC)?;
        op.work()?;
        let bucket =
            self.volume.make_room(&mut op, self.dir, key, slots_of(name.len()), search.bucket)?;
        let target = Target { node: Node { ino, generation: 1 }, kind: Kind::File };
        let store = self.volume.insertion(&mut op, self.dir, key, bucket, name, target)?;
        publish(self.volume, &mut op, self.node, store)?;
        op.end()
    }

    fn remove(&self, name: &[u8]) -> Result<(), Errno> {
        let mut op = self.volume.begin()?;
        op.lock(&[self.dir.inode])?;
        let search = self.volume.search(self.dir, (self.hash)(name), name)?;
        let hit = search.hit.ok_or(Errno::NOENT)?;
        op.work()?;
        let store = self.volume.removal(&mut op, self.dir, &hit, None)?;
        publish(self.volume, &mut op, self.node, store)?;
        self.volume.prune_after(&mut op, self.dir, &hit, store.value)?;
        op.end()
    }

    fn all(&self) -> BTreeMap<Vec<u8>, u64> {
        let mut found = BTreeMap::new();
        let mut key = 0;
        loop {
            let (cell, entries) = self.volume.entries_from(self.dir, key).expect("entries");
            for (at, name, target) in entries.iter() {
                assert!(at >= key && cell.holds(at), "in order, in place");
                let before = found.insert(name.to_vec(), target.node.ino);
                assert_eq!(before, None, "told once");
            }
            match cell.next() {
                Some(next) => key = next,
                None => return found,
            }
        }
    }
}

fn name_of(number: u64) -> Vec<u8> {
    let mut name = vec![b'a' + (number % 26) as u8];
    name.extend_from_slice(format!("{number}").as_bytes());
    if number.is_multiple_of(5) {
        name.resize((number * 37 % 250) as usize + 5, b'.');
    }
    name
}

/// Grows and shrinks a tree at random, down to nothing, beside a map.
fn against_a_map(hash: Hash, names: u64, steps: u64) {
    let (volume, root) = fresh();
    let tree = Tree::new(&volume, root, hash);
    let empty = volume.free_space().expect("space");
    let mut random = Random::new(names);
    let mut model = BTreeMap::new();
    for step in 0..steps {
        let name = name_of(random.below(names));
        let grow = random.below(10) < if step % 4000 < 2000 { 8 } else { 2 };
        match (grow, model.contains_key(&name)) {
            (true, true) => assert_eq!(tree.insert(&name, 1), Err(Errno::EXIST)),
            (true, false) => match tree.insert(&name, step + 1) {
                Ok(()) => drop(model.insert(name, step + 1)),
                Err(error) => {
                    assert_eq!(error, Errno::NOSPC);
                    let same = model.keys().filter(|other| hash(other) == hash(&name)).count();
                    assert_eq!(same, 16, "only a seventeenth name of one hash is refused");
                }
            },
            (false, present) => {
                let removed = tree.remove(&name);
                assert_eq!(removed, if present { Ok(()) } else { Err(Errno::NOENT) });
                model.remove(&name);
            }
        }
        if step % 500 == 0 {
            assert_eq!(tree.all(), model);
            for (name, ino) in &model {
                assert_eq!(tree.find(name), Some(*ino));
            }
            assert_eq!(volume.is_empty_directory(tree.dir), Ok(model.is_empty()));
        }
    }
    for name in model.keys() {
        tree.remove(name).expect("removed");
    }
    assert_eq!(volume.is_empty_directory(tree.dir), Ok(true));
    assert_eq!(volume.region.load64(tree.dir.inode.at(ROOT_WORD)), Ok(0), "nothing is left");
    assert_eq!(volume.free_space(), Ok(empty), "every bucket and node is given back");
}

#[test]
fn even_hashes_grow_and_shrink() {
    fn even(name: &[u8]) -> u64 {
        let sum = name.iter().fold(0x1234_5678_9ABC_u64, |sum, &byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
        });
        (sum >> 12).max(1)
    }
    against_a_map(even, 4000, 16_000);
}

#[test]
fn clustered_hashes_grow_and_shrink() {
    against_a_map(clustered, 3000, 12_000);
}

#[test]
fn nearly_equal_hashes_go_to_the_bottom() {
    against_a_map(nearly_equal, 300, 12_000);
}

/// A crash between a split and the clearing of what moved leaves dead entries. They must not come
/// back when the bucket's neighbour goes and its cell grows again.
#[test]
fn dead_leftovers_of_a_split_stay_dead() {
    let (volume, root) = fresh();
    let spread: Hash = |name| u64::from(name[0]) << 44 | 1 << 40 | u64::from(name[1]);
    let tree = Tree::new(&volume, root, spread);
    let names: Vec<[u8; 2]> = (0..57).map(|n| [n * 4, n]).collect();
    for name in &names[..56] {
        tree.insert(name, 7).expect("room");
    }
    let old = volume.locate(tree.dir, 16).expect("a bucket").bucket;
    let occupancy = volume.region.load64(old * BLOCK).expect("a word");
    tree.insert(&names[56], 7).expect("a split");
    // As if the power had failed before the moved entries were cleared from the old bucket.
    let _ = volume.region.store64(old * BLOCK, occupancy).expect("a store").flush();
    assert_eq!(tree.all().len(), 57);
    for name in names.iter().filter(|name| name[0] >= 128) {
        tree.remove(name).expect("there");
        assert_eq!(tree.find(name), None);
    }
    let left: Vec<_> = tree.all().into_keys().collect();
    assert!(left.iter().all(|name| name[0] < 128) && left.len() == 32, "{left:?}");
    tree.insert(&[200, 1], 9).expect("room");
    assert_eq!(tree.all().len(), 33);
}

/// Every single flipped bit of a bucket or node is found, or lies where nothing is: a lookup never
/// says "no such name" and never finds another file.
#[test]
fn flipped_bits_are_errors_not_missing_names() {
    let (volume, root) = fresh();
    let tree = Tree::new(&volume, root, |name| u64::from(name[0]) << 44 | (u64::from(name[1]) + 1));
    let names: Vec<[u8; 2]> = (0..60).map(|n| [n * 4, n]).collect();
    for name in &names {
        tree.insert(name, u64::from(name[1]) + 100).expect("room");
    }
    let node = volume.region.load64(tree.dir.inode.at(ROOT_WORD)).expect("a word") & 0xFF_FFFF_FFFF;
    let bucket = volume.locate(tree.dir, 16).expect("a bucket").bucket;
    let flip = |at: u64, bit: u32| {
        let word = volume.region.load64(at).expect("a word");
        let _ = volume.region.store64(at, word ^ 1 << bit).expect("a store");
    };
    for at in (0..BLOCK).step_by(8).map(|at| bucket * BLOCK + at).chain([node * BLOCK]) {
        for bit in 0..64 {
            flip(at, bit);
            for name in &names[..8] {
                let found = volume.search(tree.dir, (tree.hash)(name), name);
                if let Ok(search) = found {
                    let ino = search.hit.map(|hit| hit.target.node.ino);
                    assert_eq!(ino, Some(u64::from(name[1]) + 100), "{name:?} {at:x} bit {bit}");
                }
            }
            flip(at, bit);
        }
    }
}

/// One store is never two changes: the combined store of an insertion and a removal in one bucket.
#[test]
fn an_insertion_and_a_removal_share_their_word() {
    let (volume, root) = fresh();
    let tree = Tree::new(&volume, root, |name| u64::from(name[0]) << 40 | 1);
    tree.insert(b"old", 5).expect("room");
    let mut op = volume.begin().expect("an operation");
    op.lock(&[tree.dir.inode]).expect("the lock");
    let hit =
        volume.search(tree.dir, (tree.hash)(b"old"), b"old").expect("found").hit.expect("hit");
    op.work().expect("work");
    let target = hit.target;
    let key = (tree.hash)(b"new") << 4;
    let bucket = Some(hit.bucket);
    let store: Store =
        volume.insertion(&mut op, tree.dir, key, bucket, b"new", target).expect("aside");
    let both = volume.removal(&mut op, tree.dir, &hit, Some(store)).expect("combined");
    assert_eq!(both.at, store.at);
    publish(tree.volume, &mut op, tree.node, both).expect("durable");
    op.end().expect("the end");
    assert_eq!(tree.all().into_iter().collect::<Vec<_>>(), [(b"new".to_vec(), 5)]);
}

/// Publishes the word of a change, whose number of names nothing here asks for.
fn publish<'v>(volume: &'v Volume, op: &mut Op<'v>, dir: Node, word: Store) -> Result<(), Errno> {
    let after = op.prepared();
    let named = volume.named(op, [volume.inode_of(dir)?])?;
    let step = Step { dir, asked: None, time: now() };
    let next = named.next(&step, (0, 0))?;
    named.publish(&step, word, &next, after.as_ref())?;
    volume.published(op)
}
