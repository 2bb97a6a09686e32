//! Tests of names: against a map, the rename matrix, links, positions of `read_dir`, attributes,
//! full volumes, several threads.

use crate::medium::layout::FLAG_LINKABLE;
use crate::testing::{Random, directory, file, fresh};
use crate::volume::Volume;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use vfs::{EntryName, FileSystem as _, Open, Removes};
use vfs::{Kind, NewNode, Node, OpenFlags, RenameFlags, SetAttr};

const PLAIN: RenameFlags = RenameFlags::new(0);
const NOREPLACE: RenameFlags = RenameFlags::new(libc::RENAME_NOREPLACE);
const EXCHANGE: RenameFlags = RenameFlags::new(libc::RENAME_EXCHANGE);
const WHITEOUT: RenameFlags =
    RenameFlags { bits: libc::RENAME_WHITEOUT, owner: (WHITEOUT_OWNER, WHITEOUT_OWNER + 1) };
const WHITEOUT_OWNER: u32 = 4321;

fn list(volume: &Volume, dir: Node) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::new();
    let mut last = 0;
    let told = volume.read_dir(dir, 0, &mut |entry| {
        assert!(entry.cookie > last, "ascending");
        last = entry.cookie;
        assert!(names.insert(entry.name.to_vec()), "told once");
        true
    });
    assert_eq!(told, Ok(()));
    assert!(names.remove(&b"."[..]) && names.remove(&b".."[..]));
    names
}

fn nlink(volume: &Volume, node: Node) -> u32 {
    volume.attributes(node).expect("attributes").nlink
}

#[test]
fn attributes_are_the_same_by_node_path_and_description() {
    let (volume, root) = fresh();
    let dir = volume.create(root, b"dir", &directory()).expect("a directory");
    let node = volume.create(dir, b"name", &file()).expect("a file");
    let [dir, desc] = [dir, node]
        .map(|node| volume.open(node.into(), OpenFlags(libc::O_RDONLY), None).expect("open"));
    let mtime = |time| SetAttr { mtime: Some(time), ..SetAttr::default() };
    // Often enough for the path to be remembered as a whole; and changed in between.
    for time in [1, 1, 1, 1, 1, -7, -7, i64::MAX, 5] {
        volume.set_attr(node, &mtime(time)).expect("a change");
        for _ in 0..6 {
            let told = volume.attributes(node).expect("attributes");
            assert_eq!((told.node, told.mtime), (node, time));
            let mut others = [vfs::Attr::NONE; 3];
            assert!(volume.find(root.into(), b"dir/name", &mut others[0]));
            assert!(volume.find(dir.into(), b"name", &mut others[1]));
            assert_eq!(volume.attr(desc.into(), &mut others[2]), Ok(()));
            assert_eq!(others, [told; 3]);
        }
    }
    let mut attr = vfs::Attr::NONE;
    assert!(!volume.find(root.into(), b"dir/other", &mut attr));
    assert!(!volume.find(dir.into(), b"other", &mut attr));
    assert!(!volume.find(desc.into(), b"name", &mut attr), "no directory");
    for desc in [dir, desc] {
        volume.close(desc).expect("close");
        assert_eq!(volume.attr(desc.into(), &mut attr), Err(Errno::BADF));
        assert!(!volume.find(desc.into(), b"name", &mut attr), "closed");
    }
}

#[test]
fn random_names_against_a_map() {
    let (volume, root) = fresh();
    let empty = volume.free_space().expect("space");
    let mut random = Random::new(1);
    let mut model = BTreeMap::new();
    for step in 0..30_000 {
        let number = random.below(3000);
        let mut name = format!("{number:08}").into_bytes();
        name.resize(
            if number.is_multiple_of(7) { (number * 31 % 248) as usize + 8 } else { 8 },
            b'x',
        );
        if random.below(10) < if step / 10_000 % 2 == 0 { 7 } else { 2 } {
            match (volume.create(root, &name, &file()), model.contains_key(&name)) {
                (Err(Errno::EXIST), true) => {}
                (Ok(node), false) => drop(model.insert(name, node)),
                (found, present) => panic!("{found:?} {present}"),
            }
        } else {
            let found = model.remove(&name).map(drop).ok_or(Errno::NOENT);
            assert_eq!(volume.remove(&EntryName::new(root, &name), Removes::Name), found);
        }
        if step % 500 == 0 {
            let (inode, identity) = volume.identity_of(root).expect("the root");
            let blocks = volume.directory_blocks(inode, &identity).expect("a count");
            assert_eq!(volume.attributes(root).map(|attr| attr.blocks), Ok(blocks * 8));
        }
        if step % 3000 == 0 {
            assert_eq!(list(&volume, root), model.keys().cloned().collect());
            for (name, node) in &model {
                assert_eq!(volume.lookup(root, name), Ok(*node));
            }
            assert_eq!(volume.attributes(root).map(|attr| attr.size), Ok(model.len() as u64));
        }
    }
    for name in model.keys() {
        assert_eq!(volume.remove(&EntryName::new(root, name), Removes::Name), Ok(()));
    }
    assert_eq!(volume.free_space(), Ok(empty));
}

#[test]
fn names_that_are_none() {
    let (volume, root) = fresh();
    let long = [b'n'; 256];
    let names: [(&[u8], Errno); 5] = [
        (b"", Errno::NOENT),
        (&long, Errno::NAMETOOLONG),
        (b".", Errno::INVAL),
        (b"a/b", Errno::INVAL),
        (b"a\0", Errno::INVAL),
    ];
    for (name, error) in names {
        assert_eq!(volume.create(root, name, &file()), Err(error));
        assert_eq!(volume.remove(&EntryName::new(root, name), Removes::Name), Err(error));
        assert_eq!(
            volume.rename(&EntryName::new(root, name), &EntryName::new(root, b"x"), PLAIN),
            Err(error)
        );
    }
    assert!(volume.create(root, &long[..255], &file()).is_ok());
    assert!(volume.lookup(root, &long[..255]).is_ok());
}

#[test]
fn directories_nest_and_count() {
    let (volume, root) = fresh();
    let empty = volume.free_space().expect("space");
    let a = volume.create(root, b"a", &directory()).expect("a");
    let b = volume.create(a, b"b", &directory()).expect("b");
    assert_eq!((nlink(&volume, root), nlink(&volume, a), nlink(&volume, b)), (3, 3, 2));
    assert_eq!(volume.lookup(b, b".."), Ok(a));
    assert_eq!(volume.lookup(root, b".."), Ok(root));
    assert_eq!(
        volume.remove(&EntryName::new(root, b"a"), Removes::Directory),
        Err(Errno::NOTEMPTY)
    );
    assert_eq!(volume.remove(&EntryName::new(root, b"a"), Removes::Name), Err(Errno::ISDIR));
    volume.create(root, b"f", &file()).expect("f");
    assert_eq!(volume.remove(&EntryName::new(root, b"f"), Removes::Directory), Err(Errno::NOTDIR));
    assert_eq!(volume.remove(&EntryName::new(a, b"b"), Removes::Directory), Ok(()));
    assert_eq!(volume.create(b, b"x", &file()), Err(Errno::NOENT), "b is gone");
    assert_eq!(volume.remove(&EntryName::new(root, b"a"), Removes::Directory), Ok(()));
    assert_eq!(volume.remove(&EntryName::new(root, b"f"), Removes::Name), Ok(()));
    assert_eq!(nlink(&volume, root), 2);
    assert_eq!(volume.free_space(), Ok(empty));
}

#[test]
fn a_removed_directory_that_is_open_takes_no_names() {
    let (volume, root) = fresh();
    let dir = volume.create(root, b"d", &directory()).expect("d");
    let desc = volume.open(dir.into(), OpenFlags(0), None).expect("open");
    assert_eq!(volume.remove(&EntryName::new(root, b"d"), Removes::Directory), Ok(()));
    assert_eq!(nlink(&volume, dir), 0);
    assert_eq!(volume.create(dir, b"x", &file()), Err(Errno::NOENT));
    assert_eq!(volume.read_dir(dir, 0, &mut |_| true), Err(Errno::NOENT));
    assert_eq!(volume.close_description(desc), Ok(()));
    assert_eq!(volume.attributes(dir), Err(Errno::STALE));
}

#[test]
fn hard_links_and_open_files_without_a_name() {
    let (volume, root) = fresh();
    let empty = volume.free_space().expect("space");
    let dir = volume.create(root, b"d", &directory()).expect("d");
    let node = volume.create(root, b"f", &file()).expect("f");
    assert_eq!(volume.link(node, dir, b"g"), Ok(()));
    assert_eq!(volume.link(node, dir, b"g"), Err(Errno::EXIST));
    assert_eq!(volume.link(dir, root, b"h"), Err(Errno::PERM));
    assert_eq!((nlink(&volume, node), volume.lookup(dir, b"g")), (2, Ok(node)));
    assert_eq!(
        volume.rename(&EntryName::new(root, b"f"), &EntryName::new(dir, b"g"), PLAIN),
        Ok(()),
        "two names of one file: nothing"
    );
    assert_eq!(volume.remove(&EntryName::new(root, b"f"), Removes::Name), Ok(()));
    let desc = volume.open(node.into(), OpenFlags(0), None).expect("open");
    assert_eq!(volume.remove(&EntryName::new(dir, b"g"), Removes::Name), Ok(()));
    assert_eq!(nlink(&volume, node), 0);
    assert_eq!(volume.link(node, dir, b"again"), Err(Errno::NOENT));
    assert_eq!(volume.drop_if_unlinked(node), Ok(()));
    assert_eq!(nlink(&volume, node), 0, "still open");
    assert_eq!(volume.close_description(desc), Ok(()));
    assert_eq!(volume.attributes(node), Err(Errno::STALE));
    assert_eq!(volume.remove(&EntryName::new(root, b"d"), Removes::Directory), Ok(()));
    assert_eq!(volume.free_space(), Ok(empty));
}

#[test]
fn a_file_made_without_a_name_gets_one() {
    let (volume, root) = fresh();
    let unnamed = |linkable| {
        let mut op = volume.begin().expect("an operation");
        op.work().expect("work");
        let node = volume
            .new_unnamed_inode(&mut op, &file(), if linkable { FLAG_LINKABLE } else { 0 })
            .expect("an inode");
        volume.open_description(node, Kind::File, OpenFlags(libc::O_RDWR), None).expect("open");
        op.end().expect("the end");
        node
    };
    let node = unnamed(true);
    assert_eq!(nlink(&volume, node), 0);
    assert_eq!(volume.link(node, root, b"named"), Ok(()));
    assert_eq!((volume.lookup(root, b"named"), nlink(&volume, node)), (Ok(node), 1));
    assert_eq!(volume.remove(&EntryName::new(root, b"named"), Removes::Name), Ok(()));
    assert_eq!(volume.link(node, root, b"again"), Err(Errno::NOENT));
    assert_eq!(volume.link(unnamed(false), root, b"never"), Err(Errno::NOENT));
}

/// Every kind of source on every kind of target, in one directory and across two, with each flag.
#[test]
fn the_rename_matrix() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Thing {
        Nothing,
        File,
        Empty,
        Full,
    }
    use Thing::{Empty, File, Full, Nothing};
    let put = |volume: &Volume, dir, name: &[u8], thing| match thing {
        Nothing => None,
        File => Some(volume.create(dir, name, &file()).expect("a file")),
        Empty | Full => {
            let made = volume.create(dir, name, &directory()).expect("a directory");
            if thing == Full {
                volume.create(made, b"inside", &file()).expect("a file");
            }
            Some(made)
        }
    };
    for flags in [PLAIN, NOREPLACE, EXCHANGE, WHITEOUT] {
        for source in [Nothing, File, Empty, Full] {
            for target in [Nothing, File, Empty, Full] {
                for across in [false, true] {
                    let (volume, root) = fresh();
                    let a = volume.create(root, b"a", &directory()).expect("a");
                    let b = volume.create(root, b"b", &directory()).expect("b");
                    let to = if across { b } else { a };
                    let old = put(&volume, a, b"s", source);
                    let over = put(&volume, to, b"t", target);
                    let is_dir = |thing| thing == Empty || thing == Full;
                    let expected = match (source, target) {
                        (Nothing, _) => Err(Errno::NOENT),
                        (_, Nothing) if flags == EXCHANGE => Err(Errno::NOENT),
                        (_, Nothing) => Ok(()),
                        _ if flags == NOREPLACE => Err(Errno::EXIST),
                        _ if flags == EXCHANGE => Ok(()),
                        (File, target) if is_dir(target) => Err(Errno::ISDIR),
                        (source, File) if is_dir(source) => Err(Errno::NOTDIR),
                        (_, Full) => Err(Errno::NOTEMPTY),
                        _ => Ok(()),
                    };
                    let what = format!("{source:?} -> {target:?} {flags:?} across: {across}");
                    assert_eq!(
                        volume.rename(&EntryName::new(a, b"s"), &EntryName::new(to, b"t"), flags),
                        expected,
                        "{what}"
                    );
                    let (mut s, mut t) = (old, over);
                    if expected == Ok(()) {
                        (s, t) = (if flags == EXCHANGE { over } else { None }, old);
                    }
                    if flags == WHITEOUT && expected == Ok(()) {
                        s = Some(check_whiteout(&volume, a, b"s", &what));
                    }
                    assert_eq!(volume.lookup(a, b"s").ok(), s, "{what}");
                    assert_eq!(volume.lookup(to, b"t").ok(), t, "{what}");
                    check_counts(&volume, a, &what);
                    check_counts(&volume, b, &what);
                }
            }
        }
    }
}

/// A name leads to the character device 0:0, its owner's whose it should be.
fn check_whiteout(volume: &Volume, dir: Node, name: &[u8], what: &str) -> Node {
    let node = volume.lookup(dir, name).expect("a whiteout");
    let attr = volume.attributes(node).expect("its attributes");
    assert_eq!((attr.kind, attr.mode, attr.rdev), (Kind::CharDevice, 0, 0), "{what}");
    assert_eq!((attr.uid, attr.gid), (WHITEOUT_OWNER, WHITEOUT_OWNER + 1), "{what}");
    assert_eq!(attr.nlink, 1, "{what}");
    node
}

/// A directory's size, its links and its children's `..` say what its entries say.
fn check_counts(volume: &Volume, dir: Node, what: &str) {
    let mut names = Vec::new();
    let told = volume.read_dir(dir, 2, &mut |entry| {
        names.push((entry.name.to_vec(), entry.kind));
        true
    });
    assert_eq!(told, Ok(()));
    let directories = names.iter().filter(|(_, kind)| *kind == Kind::Directory);
    for (name, _) in directories.clone() {
        let child = volume.lookup(dir, name).expect("a child");
        assert_eq!(volume.lookup(child, b".."), Ok(dir), "{what}");
    }
    let attr = volume.attributes(dir).expect("attributes");
    assert_eq!(attr.size, names.len() as u64, "{what}");
    assert_eq!(attr.nlink as usize, 2 + directories.count(), "{what}");
}

#[test]
fn no_directory_lands_inside_itself() {
    let (volume, root) = fresh();
    let a = volume.create(root, b"a", &directory()).expect("a");
    let b = volume.create(a, b"b", &directory()).expect("b");
    let c = volume.create(b, b"c", &directory()).expect("c");
    for dir in [a, b, c] {
        assert_eq!(
            volume.rename(&EntryName::new(root, b"a"), &EntryName::new(dir, b"x"), PLAIN),
            Err(Errno::INVAL)
        );
    }
    assert_eq!(
        volume.rename(&EntryName::new(root, b"a"), &EntryName::new(b, b"c"), EXCHANGE),
        Err(Errno::INVAL)
    );
    assert_eq!(
        volume.rename(&EntryName::new(b, b"c"), &EntryName::new(root, b"a"), EXCHANGE),
        Err(Errno::INVAL)
    );
    assert_eq!(
        volume.rename(&EntryName::new(b, b"c"), &EntryName::new(root, b"a"), PLAIN),
        Err(Errno::NOTEMPTY)
    );
    assert_eq!(volume.rename(&EntryName::new(b, b"c"), &EntryName::new(root, b"c"), PLAIN), Ok(()));
    assert_eq!(volume.lookup(c, b".."), Ok(root));
    assert_eq!(volume.rename(&EntryName::new(root, b"a"), &EntryName::new(c, b"a"), PLAIN), Ok(()));
    assert_eq!((volume.lookup(a, b".."), nlink(&volume, root)), (Ok(c), 3));
    assert_eq!(
        volume.rename(&EntryName::new(root, b"c"), &EntryName::new(root, b"c"), PLAIN),
        Ok(())
    );
    assert_eq!(
        volume.rename(&EntryName::new(root, b"c"), &EntryName::new(root, b"c"), NOREPLACE),
        Err(Errno::EXIST)
    );
    assert_eq!(
        volume.rename(
            &EntryName::new(root, b"c"),
            &EntryName::new(root, b"d"),
            RenameFlags::new(64)
        ),
        Err(Errno::INVAL)
    );
}

/// Many renames inside one directory, beside a map: splits happen between the old and the new name.
#[test]
fn renames_against_a_map() {
    let (volume, root) = fresh();
    let empty = volume.free_space().expect("space");
    let dirs = [b"p", b"q"].map(|name| volume.create(root, name, &directory()).expect("made"));
    let mut random = Random::new(5);
    let mut model: BTreeMap<(usize, Vec<u8>), Node> = BTreeMap::new();
    for step in 0..20_000 {
        let mut pick = || {
            let number = random.below(400);
            let length = if number.is_multiple_of(9) { 200 } else { 6 };
            ((number % 2) as usize, format!("{number:0length$}").into_bytes())
        };
        let (from, to) = (pick(), pick());
        if step % 3 == 0 {
            let made = volume.create(dirs[from.0], &from.1, &file());
            assert_eq!(made.is_err(), model.contains_key(&from));
            model.extend(made.ok().map(|node| (from, node)));
            continue;
        }
        let flags = if step % 5 == 0 { EXCHANGE } else { PLAIN };
        let done = volume.rename(
            &EntryName::new(dirs[from.0], &from.1),
            &EntryName::new(dirs[to.0], &to.1),
            flags,
        );
        let (source, target) = (model.get(&from).copied(), model.get(&to).copied());
        let expected = match (source, target) {
            (Some(_), None) if flags == EXCHANGE => Err(Errno::NOENT),
            (None, _) => Err(Errno::NOENT),
            _ => Ok(()),
        };
        assert_eq!(done, expected, "{from:?} {to:?}");
        if let (Ok(()), Some(source)) = (done, source)
            && from != to
        {
            model.insert(to, source);
            match target.filter(|_| flags == EXCHANGE) {
                Some(target) => model.insert(from, target),
                None => model.remove(&from),
            };
        }
    }
    for (at, dir) in dirs.iter().enumerate() {
        let of_dir = model.iter().filter(|((of, _), _)| *of == at);
        let names = of_dir.clone().map(|((_, name), _)| name.clone()).collect();
        assert_eq!(list(&volume, *dir), names);
        check_counts(&volume, *dir, "after renames");
        for ((_, name), node) in of_dir {
            assert_eq!(volume.lookup(*dir, name), Ok(*node));
            assert_eq!(volume.remove(&EntryName::new(*dir, name), Removes::Name), Ok(()));
        }
    }
    assert_eq!(
        volume
            .remove(&EntryName::new(root, b"p"), Removes::Directory)
            .and(volume.remove(&EntryName::new(root, b"q"), Removes::Directory)),
        Ok(())
    );
    assert_eq!(volume.free_space(), Ok(empty));
}

/// What exists throughout is told exactly once, whatever comes and goes between two calls.
#[test]
fn positions_of_read_dir_are_stable() {
    let (volume, root) = fresh();
    let lasting: BTreeSet<Vec<u8>> = (0..300).map(|n| format!("keep{n}").into_bytes()).collect();
    for name in &lasting {
        volume.create(root, name, &file()).expect("made");
    }
    let mut random = Random::new(9);
    for _ in 0..10 {
        let mut told = BTreeSet::new();
        let mut cookie = 0;
        loop {
            let mut few = Vec::new();
            let many = random.below(40) as usize + 1;
            let done = volume.read_dir(root, cookie, &mut |entry| {
                few.push((entry.name.to_vec(), entry.cookie));
                few.len() < many
            });
            assert_eq!(done, Ok(()));
            let Some(last) = few.last() else { break };
            cookie = last.1;
            for (name, _) in few {
                if lasting.contains(&name) {
                    assert!(told.insert(name), "told twice");
                }
            }
            for _ in 0..60 {
                let name = format!("come-and-go{}", random.below(2000));
                if volume.create(root, name.as_bytes(), &file()).is_err() {
                    volume
                        .remove(&EntryName::new(root, name.as_bytes()), Removes::Name)
                        .expect("there");
                }
            }
        }
        assert_eq!(told, lasting);
    }
}

/// `rm -rf`: remove what was told, go on at the position. Nothing is left.
#[test]
fn removing_while_reading_leaves_nothing() {
    let (volume, root) = fresh();
    for number in 0..2000 {
        volume.create(root, format!("f{number}").as_bytes(), &file()).expect("made");
    }
    let mut cookie = 2;
    loop {
        let mut names = Vec::new();
        let done = volume.read_dir(root, cookie, &mut |entry| {
            names.push(entry.name.to_vec());
            cookie = entry.cookie;
            names.len() < 50
        });
        assert_eq!(done, Ok(()));
        if names.is_empty() {
            break;
        }
        for name in names {
            assert_eq!(volume.remove(&EntryName::new(root, &name), Removes::Name), Ok(()));
        }
    }
    assert!(list(&volume, root).is_empty());
}

#[test]
fn symlinks_short_and_long() {
    let (volume, root) = fresh();
    let empty = volume.free_space().expect("space");
    let long: Vec<u8> = (0..4095).map(|n| b'a' + (n % 26) as u8).collect();
    for length in [1, 96, 97, 4095] {
        let target = &long[..length];
        let new = NewNode { kind: Kind::Symlink, target, ..file() };
        let node = volume.create(root, b"l", &new).expect("made");
        let mut out = vec![0; 5000];
        assert_eq!(volume.read_link(node, &mut out), Ok(length));
        assert_eq!(&out[..length], target);
        assert_eq!(volume.attributes(node).map(|attr| attr.size), Ok(length as u64));
        assert_eq!(volume.set_xattr(node, b"user.x", b"1", 0), Err(Errno::PERM));
        assert_eq!(volume.remove(&EntryName::new(root, b"l"), Removes::Name), Ok(()));
    }
    let none = NewNode { kind: Kind::Symlink, ..file() };
    assert_eq!(volume.create(root, b"l", &none), Err(Errno::NOENT));
    let made = volume.create(root, b"f", &file()).expect("made");
    assert_eq!(volume.read_link(made, &mut []), Err(Errno::INVAL));
    assert_eq!(volume.remove(&EntryName::new(root, b"f"), Removes::Name), Ok(()));
    assert_eq!(volume.free_space(), Ok(empty));
}

#[test]
fn attributes_change_together() {
    let (volume, root) = fresh();
    let node = volume.create(root, b"f", &file()).expect("made");
    let before = volume.attributes(node).expect("attributes");
    let change = SetAttr {
        mode: Some(0o4711),
        uid: Some(7),
        gid: Some(8),
        atime: Some(-5),
        mtime: Some(123_456_789_012),
        ..SetAttr::default()
    };
    assert_eq!(volume.set_attr(node, &change), Ok(()));
    let after = volume.attributes(node).expect("attributes");
    assert_eq!((after.mode, after.uid, after.gid), (0o4711, 7, 8));
    assert_eq!((after.atime, after.mtime), (-5, 123_456_789_012));
    assert!(after.ctime >= before.ctime && after.kind == Kind::File);
    assert_eq!(volume.set_attr(node, &SetAttr { uid: Some(9), ..SetAttr::default() }), Ok(()));
    let last = volume.attributes(node).expect("attributes");
    assert_eq!((last.uid, last.gid, last.mtime), (9, 8, 123_456_789_012));
}

#[test]
fn extended_attributes() {
    let (volume, root) = fresh();
    let node = volume.create(root, b"f", &file()).expect("made");
    let empty = volume.free_space().expect("space");
    let mut out = [0; 64];
    assert_eq!(volume.get_xattr(node, b"user.a", &mut out), Err(Errno::NODATA));
    assert_eq!(volume.set_xattr(node, b"user.a", b"one", 0), Ok(()));
    assert_eq!(
        volume.set_xattr(node, b"user.a", b"1", libc::XATTR_CREATE as u32),
        Err(Errno::EXIST)
    );
    let replace = libc::XATTR_REPLACE as u32;
    assert_eq!(volume.set_xattr(node, b"user.b", b"2", replace), Err(Errno::NODATA));
    assert_eq!(volume.set_xattr(node, b"trusted.b", b"two", 0), Ok(()));
    assert_eq!(volume.set_xattr(node, b"system.x", b"2", 0), Err(Errno::OPNOTSUPP));
    assert_eq!(volume.get_xattr(node, b"user.a", &mut out), Ok(3));
    assert_eq!(&out[..3], b"one");
    assert_eq!(volume.get_xattr(node, b"user.a", &mut []), Ok(3));
    assert_eq!(volume.get_xattr(node, b"user.a", &mut out[..2]), Err(Errno::RANGE));
    assert_eq!(volume.list_xattr(node, &mut out), Ok(17));
    assert_eq!(&out[..17], b"user.a\0trusted.b\0");
    assert_eq!(volume.set_xattr(node, b"user.c", &[1; 4000], 0), Ok(()));
    assert_eq!(volume.set_xattr(node, b"user.d", &[1; 100], 0), Err(Errno::NOSPC));
    for name in [&b"user.a"[..], b"trusted.b", b"user.c"] {
        assert_eq!(volume.remove_xattr(node, name), Ok(()));
        assert_eq!(volume.remove_xattr(node, name), Err(Errno::NODATA));
    }
    assert_eq!(volume.list_xattr(node, &mut []), Ok(0));
    assert_eq!(volume.free_space(), Ok(empty));
}

/// On a full volume nothing half-made is left, names can be replaced and removed, and all space is
/// back.
#[test]
fn a_full_volume_loses_nothing() {
    let (volume, root) = fresh();
    let empty = volume.free_space().expect("space");
    let mut names = Vec::new();
    let long = NewNode { kind: Kind::Symlink, target: &[b't'; 200], ..file() };
    let error = loop {
        let name = format!("{:0100}", names.len()).into_bytes();
        match volume.create(root, &name, &long) {
            Ok(_) => names.push(name),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Errno::NOSPC);
    assert_eq!(list(&volume, root).len(), names.len());
    assert_eq!(
        volume.rename(&EntryName::new(root, &names[0]), &EntryName::new(root, &names[1]), PLAIN),
        Ok(())
    );
    let full = volume.free_space().expect("space");
    for _ in 0..100 {
        let refused = volume.create(root, &[b'n'; 255], &long);
        assert!(matches!(refused, Ok(_) | Err(Errno::NOSPC)));
        if refused.is_ok() {
            assert_eq!(volume.remove(&EntryName::new(root, &[b'n'; 255]), Removes::Name), Ok(()));
        }
    }
    assert_eq!(volume.free_space().map(|space| space.inodes), Ok(full.inodes));
    for name in &names[1..] {
        assert_eq!(volume.remove(&EntryName::new(root, name), Removes::Name), Ok(()));
    }
    assert_eq!(volume.free_space(), Ok(empty));
}

/// Threads that make, rename, look up and remove the same names meet no error but the expected
/// ones.
#[test]
fn threads_in_the_same_directories() {
    let (volume, root) = fresh();
    let empty = volume.free_space().expect("space");
    let dirs = [b"p", b"q"].map(|name| volume.create(root, name, &directory()).expect("made"));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..4000 {
                    let mut pick = || {
                        let dir = dirs[random.below(2) as usize];
                        (dir, format!("n{}", random.below(150)).into_bytes())
                    };
                    let ((from_dir, from), (to_dir, to)) = (pick(), pick());
                    let done = match random.below(6) {
                        0 => volume.create(from_dir, &from, &file()).map(drop),
                        1 => volume.create(from_dir, &from, &directory()).map(drop),
                        2 => volume.remove(&EntryName::new(from_dir, &from), Removes::Name),
                        3 => volume.remove(&EntryName::new(from_dir, &from), Removes::Directory),
                        4 => volume.rename(
                            &EntryName::new(from_dir, &from),
                            &EntryName::new(to_dir, &to),
                            PLAIN,
                        ),
                        _ => volume.lookup(from_dir, &from).map(drop),
                    };
                    let expected = [Errno::EXIST, Errno::NOENT, Errno::ISDIR, Errno::NOTDIR];
                    assert!(done.is_ok() || expected.contains(&done.unwrap_err()), "{done:?}");
                }
            });
        }
    });
    let used = volume.free_space().expect("space");
    volume.rebuild(&[]).expect("nothing is damaged");
    assert_eq!(volume.free_space(), Ok(used), "what is reachable is what is allocated");
    for dir in dirs {
        check_counts(&volume, dir, "after threads");
        for name in list(&volume, dir) {
            assert_eq!(
                volume
                    .remove(&EntryName::new(dir, &name), Removes::Name)
                    .or_else(|_| volume.remove(&EntryName::new(dir, &name), Removes::Directory)),
                Ok(())
            );
        }
    }
    assert_eq!(
        volume
            .remove(&EntryName::new(root, b"p"), Removes::Directory)
            .and(volume.remove(&EntryName::new(root, b"q"), Removes::Directory)),
        Ok(())
    );
    assert_eq!(volume.free_space(), Ok(empty));
}

/// An entry whose inode is not in use is damage: an error, not an endless search.
#[test]
fn an_entry_that_leads_nowhere_is_damage() {
    let (volume, root) = fresh();
    let node = volume.create(root, b"f", &file()).expect("made");
    assert_eq!(volume.release_inode(node.ino), Ok(()));
    assert_eq!(volume.remove(&EntryName::new(root, b"f"), Removes::Name), Err(Errno::IO));
    assert_eq!(
        volume.rename(&EntryName::new(root, b"f"), &EntryName::new(root, b"g"), PLAIN),
        Err(Errno::IO)
    );
    assert_eq!(volume.lookup(root, b"f"), Ok(node));
}

/// What a lookup found a moment ago may have changed: what counts is what the names lead to by now.
#[test]
fn what_was_found_before_may_be_stale() {
    let (volume, root) = fresh();
    let make = |name: &[u8]| volume.create(root, name, &file()).expect("a file");
    let (first, second) = (make(b"a"), make(b"b"));
    let at = |name: &'static [u8], found: Option<Node>| EntryName {
        dir: root,
        name,
        found: found.map(|node| (node, Kind::File)),
    };
    let (a, b) = (at(b"a", Some(first)), at(b"b", None));
    volume.rename(&b, &at(b"a", None), PLAIN).expect("another file is a now");
    assert_eq!(volume.remove(&a, Removes::Name), Ok(()));
    assert_eq!(volume.lookup(root, b"a"), Err(Errno::NOENT));
    assert!(volume.attributes(second).is_err(), "what it was by then has gone");

    let third = make(b"c");
    let source = at(b"c", Some(third));
    let fourth = make(b"d");
    volume.rename(&source, &at(b"d", None), PLAIN).expect("a target that has appeared");
    assert_eq!(volume.lookup(root, b"d"), Ok(third));
    assert!(volume.attributes(fourth).is_err(), "it is replaced");
    let to_d = at(b"d", None);
    assert_eq!(volume.rename(&source, &to_d, PLAIN), Err(Errno::NOENT), "the source has gone");
    // As if the same rename had been made by another between the two questions.
    let to_itself = at(b"d", Some(third));
    assert_eq!(volume.rename(&source, &to_itself, PLAIN), Err(Errno::NOENT), "done by another");
    volume.link(third, root, b"c").expect("two names of one file");
    assert_eq!(volume.rename(&source, &to_itself, PLAIN), Ok(()), "nothing to do");
    assert_eq!(list(&volume, root), BTreeSet::from([b"c".to_vec(), b"d".to_vec()]));
}

/// Without a free description nothing is made.
#[test]
fn no_description_no_file() {
    let (volume, root) = fresh();
    let node = volume.create(root, b"many", &file()).expect("a file");
    let flags = OpenFlags(libc::O_RDWR);
    let mut open = Vec::new();
    let full = loop {
        match volume.open(Open::Node(node, Some(Kind::File)), flags, None) {
            Ok(desc) => open.push(desc),
            Err(errno) => break errno,
        }
    };
    assert_eq!(full, Errno::NFILE);
    let before = volume.free_space().expect("space");
    assert_eq!(
        volume.open(Open::New(&EntryName::new(root, b"new"), &file()), flags, None),
        Err(Errno::NFILE)
    );
    assert_eq!(volume.lookup(root, b"new"), Err(Errno::NOENT));
    assert_eq!(volume.free_space(), Ok(before), "and nothing was taken");
    volume.close(open.pop().expect("one")).expect("closed");
    assert_eq!(
        volume.open(Open::New(&EntryName::new(root, b"many"), &file()), flags, None),
        Err(Errno::EXIST)
    );
    let made = volume
        .open(Open::New(&EntryName::new(root, b"new"), &file()), flags, None)
        .expect("room for one");
    open.push(made);
    for desc in open {
        volume.close(desc).expect("closed");
    }
}

#[test]
fn a_name_is_checked_by_its_words_as_by_its_bytes() {
    let (volume, root) = fresh();
    let legal = |name: &[u8]| {
        let asked = volume.ask_for(root, name).expect("a short name");
        assert_eq!(
            crate::namespace::check_asked(&asked),
            crate::namespace::check_name(name),
            "{name:?}"
        );
    };
    for length in 0..=80 {
        let mut name = vec![b'.'; length];
        legal(&name);
        for at in 0..length {
            for byte in [0, b'/', b'x', 0x80, 0xFF, 1] {
                name[at] = byte;
                legal(&name);
            }
            name[at] = b'.';
        }
    }
}
