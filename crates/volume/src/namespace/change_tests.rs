//! Names that change at once, and those that are left to an operation.

use crate::Result;
use crate::cache::{Caches, Target};
use crate::medium::layout::{BLOCK, INODE, SLOT_NAME};
use crate::medium::now;
use crate::namespace::change::{LINES, Step};
use crate::testing::{Random, directory, faults, file, fresh, stay_on_one_cpu};
use crate::txn::release::Freed;
use crate::volume::Volume;
use rustix::io::Errno;
use rustix::mm::MprotectFlags;
use std::collections::BTreeMap;
use vfs::{
    EntryName, FileSystem as _, IoOffset, Kind, NewNode, Node, OpenFlags, Removes, RenameFlags,
};

const WRITES: OpenFlags = OpenFlags(libc::O_RDWR);

fn target(volume: &Volume, dir: Node, name: &[u8]) -> Target {
    volume.lookup_target(dir, name).expect("a name")
}

/// Makes it without waiting, if that is possible.
fn at_once(volume: &Volume, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Option<Node>> {
    Ok(volume.create_at_once(dir, name, new, &|_| (), &mut 0)?.map(|made| made.0))
}

#[test]
fn the_usual_names_come_and_go_at_once() {
    stay_on_one_cpu();
    let (volume, root) = fresh();
    volume.create(root, b"first", &file()).unwrap();
    let before = volume.attributes(root).unwrap();
    let space = volume.free_space().unwrap();
    let open = |node: Node| volume.open(node.into(), WRITES, None).unwrap();
    let made = volume.create_at_once(root, b"a", &file(), &open, &mut 0).unwrap();
    let (node, desc) = made.expect("at once");
    let found = target(&volume, root, b"a");
    assert_eq!((volume.describe(desc).unwrap().0, node), (found.node, found.node));
    let told = volume.attributes(found.node).unwrap();
    Caches::forget_attributes(found.node);
    assert_eq!(volume.attributes(found.node), Ok(told), "remembered as it is");
    let parent = volume.attributes(root).unwrap();
    Caches::forget_attributes(root);
    assert_eq!(volume.attributes(root), Ok(parent), "remembered as it is");
    assert_eq!((parent.size, parent.nlink), (before.size + 1, before.nlink));

    assert_eq!(volume.unlink_at_once(root, b"a", found, &mut 0), Ok(false), "it is open");
    volume.write(desc, &[vfs::UserIn::new(&[7; 9000])], IoOffset::POSITION).unwrap();
    volume.close(desc).unwrap();
    assert_eq!(volume.unlink_at_once(root, b"a", found, &mut 0), Ok(true));
    assert_eq!(volume.lookup(root, b"a"), Err(Errno::NOENT));
    assert_eq!(volume.attributes(found.node), Err(Errno::STALE));
    assert_eq!(volume.attributes(root).unwrap().size, before.size);
    assert_eq!((faults(&volume), volume.free_space()), (0, Ok(space)));
}

#[test]
fn what_is_not_usual_is_left_to_an_operation() {
    stay_on_one_cpu();
    let (volume, root) = fresh();
    let at_once = |name: &[u8]| at_once(&volume, root, name, &file());
    assert_eq!(at_once(b"first"), Ok(None), "no block is kept for a bucket");
    volume.create(root, b"first", &file()).unwrap();
    assert_eq!(at_once(b"first"), Ok(None), "it is there");
    assert_eq!(at_once(&[b'x'; 60]), Ok(None), "two slots");
    assert_eq!(at_once(b"a/b"), Err(Errno::INVAL));
    let first = target(&volume, root, b"first");
    let second = volume.create(root, b"second", &file()).unwrap();
    volume.link(second, root, b"third").unwrap();
    let linked = target(&volume, root, b"second");
    assert_eq!(volume.unlink_at_once(root, b"second", linked, &mut 0), Ok(false), "two names");
    volume.create(root, b"dir", &directory()).unwrap();
    let dir = target(&volume, root, b"dir");
    assert_eq!(volume.unlink_at_once(root, b"dir", dir, &mut 0), Ok(false), "a directory");
    assert_eq!(volume.unlink_at_once(root, b"second", first, &mut 0), Ok(false), "another file");
    // Another operation holds the directory.
    let mut op = volume.begin().unwrap();
    op.lock(&[volume.inode_of(root).unwrap()]).unwrap();
    assert_eq!(at_once(b"new"), Ok(None), "locked");
    assert_eq!(volume.unlink_at_once(root, b"first", first, &mut 0), Ok(false), "locked");
    drop(op);
    assert!(at_once(b"new").unwrap().is_some());
    assert_eq!(faults(&volume), 0);
}

#[test]
fn random_names_against_a_map() {
    let (volume, root) = fresh();
    volume.create(root, b"first", &file()).unwrap();
    let space = volume.free_space().unwrap();
    let (mut random, mut model) = (Random::new(7), BTreeMap::new());
    let (mut created, mut unlinked) = (0, 0);
    for step in 0..20_000 {
        let name = format!("name {}", random.below(600)).into_bytes();
        if random.below(10) < if step / 5_000 % 2 == 0 { 7 } else { 2 } {
            let made = at_once(&volume, root, &name, &file());
            created += u32::from(matches!(made, Ok(Some(_))));
            let made = match made.transpose() {
                Some(made) => made,
                None => volume.create(root, &name, &file()),
            };
            match (made, model.get(&name)) {
                (Err(Errno::EXIST), Some(_)) => {}
                (Ok(node), None) => drop(model.insert(name, node)),
                (found, known) => panic!("{found:?} {known:?}"),
            }
        } else {
            let found = volume.lookup_target(root, &name);
            assert_eq!(found.map(|found| found.node).ok(), model.remove(&name));
            if let Ok(found) = found {
                assert_eq!(found.kind, Kind::File);
                if volume.unlink_at_once(root, &name, found, &mut 0).unwrap() {
                    unlinked += 1;
                } else {
                    volume.unlink_known(root, &name, Some(found)).unwrap();
                }
            }
        }
        assert_eq!(volume.attributes(root).unwrap().size, model.len() as u64 + 1);
    }
    assert!(created > 0 && unlinked > 0, "{created} and {unlinked} at once");
    for (name, node) in &model {
        assert_eq!(volume.lookup(root, name), Ok(*node));
        volume.unlink_known(root, name, Some(target(&volume, root, name))).unwrap();
    }
    assert_eq!((faults(&volume), volume.free_space()), (0, Ok(space)));
}

/// The first name of a directory brings its bucket, the last one takes it along.
#[test]
fn the_only_name_comes_and_goes_at_once() {
    stay_on_one_cpu();
    let (volume, root) = fresh();
    let dir = volume.create(root, b"dir", &directory()).unwrap();
    volume.create(dir, b"first", &file()).unwrap();
    let first = target(&volume, dir, b"first");
    assert_eq!(volume.unlink_at_once(dir, b"first", first, &mut 0), Ok(true));
    let empty = (volume.attributes(dir).unwrap().blocks, volume.free_space().unwrap());
    for round in 0..5 {
        let node = at_once(&volume, dir, b"only", &file()).unwrap().expect("at once");
        let full = volume.attributes(dir).unwrap();
        Caches::forget_attributes(dir);
        assert_eq!((full.size, full.blocks), (1, empty.0 + BLOCK / 512), "round {round}");
        assert_eq!(volume.attributes(dir), Ok(full));
        assert_eq!(volume.lookup(dir, b"only"), Ok(node));
        let second = at_once(&volume, dir, b"second", &file()).unwrap().expect("at once");
        assert_eq!((volume.lookup(dir, b"second"), faults(&volume)), (Ok(second), 0));
        for name in [&b"second"[..], b"only"] {
            let found = target(&volume, dir, name);
            assert_eq!(volume.unlink_at_once(dir, name, found, &mut 0), Ok(true));
        }
        assert!(volume.is_empty_directory(volume.held_directory(dir).unwrap().1).unwrap());
        assert_eq!(volume.attributes(dir).unwrap().blocks, empty.0);
        assert_eq!((faults(&volume), volume.free_space()), (0, Ok(empty.1)));
    }
    volume.remove(&EntryName::new(root, b"dir"), Removes::Directory).unwrap();
    assert_eq!(faults(&volume), 0);
}

/// What is made at once is what an operation makes: each kind, with all that it may have.
#[test]
fn each_kind_is_the_same_made_at_once() {
    stay_on_one_cpu();
    let (volume, root) = fresh();
    volume.create(root, b"first", &file()).unwrap();
    let link = |target| NewNode { kind: Kind::Symlink, target, ..file() };
    let device = NewNode { kind: Kind::CharDevice, rdev: libc::makedev(7, 9), ..file() };
    let set_id = NewNode { mode: 0o6755, uid: 3, gid: 4, ..file() };
    let long = [b'x'; 97];
    let news = [
        (true, file()),
        (true, set_id),
        (true, NewNode { kind: Kind::Fifo, ..file() }),
        (true, NewNode { kind: Kind::Socket, ..file() }),
        (true, device),
        (true, link(b"short")),
        (true, link(&long[..96])),
        (false, link(&long)),
        (false, directory()),
    ];
    let space = volume.free_space().unwrap();
    for (number, (wanted, new)) in news.iter().enumerate() {
        let waited = volume.create_waiting(root, b"waited", new, &|_| ()).unwrap().0;
        let made = at_once(&volume, root, b"at once", new).unwrap();
        assert_eq!(made.is_some(), *wanted, "{number}");
        let made = made.unwrap_or_else(|| volume.create(root, b"at once", new).unwrap());
        for forgotten in [false, true] {
            let told = [waited, made].map(|node| {
                if forgotten {
                    Caches::forget_attributes(node);
                }
                let mut attr = volume.attributes(node).unwrap();
                (attr.node, attr.btime) = (root, 0);
                (attr.atime, attr.mtime, attr.ctime) = (0, 0, 0);
                let mut text = [0; 100];
                (attr, volume.read_link(node, &mut text), text)
            });
            assert_eq!(told[0], told[1], "{number}, {forgotten}");
        }
        for name in [&b"waited"[..], b"at once"] {
            let found = target(&volume, root, name);
            if new.kind == Kind::Directory {
                volume.remove(&EntryName::new(root, name), Removes::Directory).unwrap();
            } else if !volume.unlink_at_once(root, name, found, &mut 0).unwrap() {
                assert!(!wanted, "{number}");
                volume.remove(&EntryName::new(root, name), Removes::Name).unwrap();
            }
        }
        assert_eq!((faults(&volume), volume.free_space()), (0, Ok(space)), "{number}");
    }
    let none = at_once(&volume, root, b"none", &link(b""));
    assert_eq!(none, Err(Errno::NOENT));
}

/// An operation that fails leaves other numbers than one that ends: what was entered is void.
#[test]
fn nothing_of_an_operation_that_fails_is_remembered() {
    let (volume, root) = fresh();
    volume.create(root, b"first", &file()).unwrap();
    let first = target(&volume, root, b"first");
    let before = volume.sequence_of(root);
    let asked = volume.ask_for(root, b"absent").unwrap();
    let mut op = volume.begin().unwrap();
    op.lock(&[volume.inode_of(root).unwrap()]).unwrap();
    op.work().unwrap();
    let named = volume.named(&op, [volume.inode_of(root).unwrap()]).unwrap();
    assert!(named.enter(Some(&asked), Some(first), None));
    drop(op);
    assert_eq!(volume.sequence_of(root), before + 4);
    assert_eq!(volume.remembered(&asked), None);
    assert_eq!(volume.lookup(root, b"absent"), Err(Errno::NOENT));
}

/// What a dying operation has entered is never believed; what one that ends has is.
#[test]
fn nothing_of_an_operation_that_dies_is_remembered() {
    let (volume, root) = fresh();
    volume.create(root, b"first", &file()).unwrap();
    let asked = volume.ask_for(root, b"absent").unwrap();
    for dies in [true, false] {
        let looked = volume.see_directory(root, &mut 0).unwrap().0;
        let step = Step { dir: root, asked: Some(&asked), time: now() };
        let index = volume.record_here().unwrap();
        let named = volume.try_names(index, [looked.seen], looked.flags).unwrap().unwrap();
        let known = named.enter(step.asked, None, None);
        named.carry(&step, known, (false, false), &named.next(&step, (0, 0)).unwrap());
        if dies {
            volume.after_owner_died(looked.seen.inode).unwrap();
            named.locked.release().unwrap();
            named.locked.record.give_back(LINES).unwrap();
            assert_eq!(volume.remembered(&asked), None);
        } else {
            named.locked.end(LINES, Freed::default()).unwrap();
            assert_eq!(volume.remembered(&asked), Some(Err(Errno::NOENT)));
        }
    }
}

/// The second inode's page fails between the look and its lock: the first one's lock goes back
/// too.
#[test]
fn a_lock_that_cannot_be_read_leaves_nothing_taken() {
    let (volume, root) = fresh();
    for number in 0..64 {
        volume.create(root, format!("n{number}").as_bytes(), &file()).unwrap();
    }
    let page = |node: Node| node.ino * INODE / BLOCK;
    let far = (0..64).map(|number| target(&volume, root, format!("n{number}").as_bytes()));
    let far = far.map(|far| far.node).find(|&node| page(node) != page(root)).unwrap();
    let seen =
        [volume.see_directory(root, &mut 0).unwrap().0.seen, volume.see(far).unwrap().0.seen];
    let at = volume.region.base().wrapping_add((page(far) * BLOCK) as usize);
    // SAFETY: a page of the region's own mapping, which only guarded copies touch.
    unsafe { rustix::mm::mprotect(at.cast(), BLOCK as usize, MprotectFlags::empty()) }.unwrap();
    let index = volume.record_here().unwrap();
    assert!(matches!(volume.try_names(index, seen, 0), Err(Errno::IO)));
    assert_eq!(volume.operation_owner(index.0), Ok(None));
    assert_eq!(volume.operation_works(index.0), Ok(false));
    let now = seen[0].live.0.eight(0).unwrap();
    assert_eq!(now[..2], [u64::from(volume.epoch) << 32, seen[0].sequence], "free, and even");
    volume.create(root, b"new", &file()).unwrap();
}

/// What must be the same whichever way a file was renamed.
fn told(volume: &Volume, dir: Node, node: Node) -> [(u64, u32, bool, bool); 2] {
    let now = now();
    [dir, node].map(|node| {
        Caches::forget_attributes(node);
        let attr = volume.attributes(node).expect("attributes");
        let second = 1_000_000_000;
        (attr.size, attr.nlink, now - attr.mtime < second, now - attr.ctime < second)
    })
}

#[test]
fn a_rename_at_once_does_what_one_that_waits_does() {
    let (volume, root) = fresh();
    for (dir, kind) in [(b"p", file()), (b"q", directory())] {
        let dir = volume.create(root, dir, &directory()).expect("a directory");
        let node = volume.create(dir, b"a", &kind).expect("made");
        let source = target(&volume, dir, b"a");
        let before = (volume.sequence_of(dir), volume.sequence_of(node));
        assert_eq!(volume.rename_at_once(dir, b"a", b"b", source, &mut 0), Ok(true));
        let once = told(&volume, dir, node);
        let after = (volume.sequence_of(dir), volume.sequence_of(node));
        assert_eq!(after, (before.0 + 2, before.1 + 2));
        for (name, meant) in [(b"a", Err(Errno::NOENT)), (b"b", Ok(source))] {
            let asked = volume.ask_for(dir, name).expect("a short name");
            assert_eq!(volume.remembered(&asked), Some(meant), "entered on the way");
        }
        let found = Some((source, None));
        volume
            .rename_waiting((dir, b"b"), (dir, b"a"), RenameFlags::new(0), found)
            .expect("the long way");
        assert_eq!(told(&volume, dir, node), once);
        assert_eq!(volume.lookup(dir, b"a"), Ok(node));
        assert_eq!(volume.lookup(dir, b"b"), Err(Errno::NOENT));
    }
}

#[test]
fn an_unusual_rename_is_left_to_an_operation() {
    let (volume, root) = fresh();
    let node = volume.create(root, b"a", &file()).expect("made");
    volume.create(root, b"there", &file()).expect("made");
    let source = target(&volume, root, b"a");
    let other = target(&volume, root, b"there");
    let number = volume.sequence_of(root);
    let long = [b'x'; SLOT_NAME + 1];
    for (from, to, source) in [
        (&b"a"[..], &b"there"[..], source),
        (b"a", b"a", source),
        (b"a", &long, source),
        (&long, b"b", source),
        (b"gone", b"b", source),
        (b"a", b"b", other),
    ] {
        assert_eq!(volume.rename_at_once(root, from, to, source, &mut 0), Ok(false), "{to:?}");
    }
    assert_eq!(volume.rename_at_once(root, b"a", b"..", source, &mut 0), Err(Errno::INVAL));
    assert_eq!(volume.rename_at_once(root, b"a", b"b/c", source, &mut 0), Err(Errno::INVAL));
    assert_eq!(volume.sequence_of(root), number, "nothing has been done");

    // Somebody holds a lock.
    for held in [root, node] {
        let mut op = volume.begin().expect("an operation");
        op.lock(&[volume.inode_of(held).expect("an inode")]).expect("locked");
        assert_eq!(volume.rename_at_once(root, b"a", b"b", source, &mut 0), Ok(false));
        op.end().expect("released");
    }
    // Of the names of many buckets few are in one; a rename succeeds either way.
    for number in 0..300 {
        volume.create(root, format!("n{number}").as_bytes(), &file()).expect("made");
    }
    let mut quick = 0;
    for number in 0..300 {
        let (from, to) = (format!("n{number}"), format!("m{number}"));
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let source = target(&volume, root, from);
        if volume.rename_at_once(root, from, to, source, &mut 0).expect("no error") {
            quick += 1;
        } else {
            volume
                .rename(&EntryName::new(root, from), &EntryName::new(root, to), RenameFlags::new(0))
                .expect("the long way");
        }
        assert_eq!(volume.lookup(root, to), Ok(source.node));
        assert_eq!(volume.lookup(root, from), Err(Errno::NOENT));
    }
    assert!((1..300).contains(&quick), "{quick}");
    assert_eq!(volume.attributes(root).map(|attr| attr.size), Ok(302));
}
