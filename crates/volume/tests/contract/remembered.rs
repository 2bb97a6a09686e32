//! What a process remembers of names, attributes and ways is what is there, whoever changes it.
//!
//! Two attachments change one tree in turns, by runs of calls of one of them and of both, and each
//! is asked for everything after every call. What is there is read from the directories themselves.

use crate::common::{Place, new_file};
use rustix::io::Errno;
use std::collections::BTreeMap;
use vfs::{
    Attached, Attr, EntryName, FileSystem, FileSystemExt, Kind, LastName, NewNode, Node, Removes,
    RenameFlags, SetAttr, WalkOutput,
};
use volume::Volume;

const NAMES: [&[u8]; 4] = [b"a", b"bb", b"ccc", b"dddd"];

/// A small generator (xorshift): the same seed gives the same run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}

fn entries(volume: &Volume, dir: Node) -> BTreeMap<Vec<u8>, (u64, Kind)> {
    let mut found = BTreeMap::new();
    let told = volume.read_dir(dir, 0, &mut |entry| {
        found.insert(entry.name.to_vec(), (entry.ino, entry.kind));
        true
    });
    assert!(matches!(told, Ok(()) | Err(Errno::STALE | Errno::NOENT)), "{told:?}");
    found
}

/// Every directory that is reached now, the root first.
fn directories(volume: &Volume) -> Vec<(Vec<u8>, Node)> {
    let mut all = vec![(Vec::new(), volume.root())];
    let mut at = 0;
    while at < all.len() {
        let (path, dir) = all[at].clone();
        for (name, (ino, kind)) in entries(volume, dir) {
            if kind == Kind::Directory && !matches!(name.as_slice(), b"." | b"..") {
                let node = volume.lookup(dir, &name).expect("a directory");
                assert_eq!(node.ino, ino);
                let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                all.push(([path.as_slice(), slash, &name].concat(), node));
            }
        }
        at += 1;
    }
    all
}

fn told(attr: Attr) -> Attr {
    Attr { atime: 0, ..attr }
}

/// Both see what is there.
fn check(volumes: [&Volume; 2], ways: &[Vec<u8>]) {
    let all = directories(volumes[0]);
    for (_, dir) in &all {
        let there = entries(volumes[1], *dir);
        for name in NAMES {
            let expected = there.get(name).map(|found| found.0).ok_or(Errno::NOENT);
            let found = volumes.map(|volume| volume.lookup(*dir, name));
            assert_eq!(found[0].map(|node| node.ino), expected);
            assert_eq!(found[0], found[1]);
            if let Ok(node) = found[0] {
                let attrs = volumes.map(|volume| volume.attributes(node).map(told));
                assert_eq!(attrs[0], attrs[1]);
                assert_eq!(attrs[0].map(|attr| attr.node), Ok(node));
            }
        }
        let attrs = volumes.map(|volume| volume.attributes(*dir).map(told));
        assert_eq!(attrs[0], attrs[1]);
        // The names, and the length that the directory tells.
        assert_eq!(attrs[0].map(|attr| attr.size), Ok(there.len() as u64 - 2));
    }
    for way in ways {
        let there = all.iter().find(|(path, _)| path == way).map(|(_, node)| *node);
        for volume in volumes {
            let mut found = volume.root();
            let walked = volume.walk(found, way, WalkOutput::Directory(&mut found));
            assert_eq!((walked != Ok(0)).then_some(found), there, "{way:?}");
        }
        // At the fifth time it is known as a whole.
        for volume in [volumes[0]; 5].into_iter().chain([volumes[1]; 5]) {
            check_path(volume, &all, way);
        }
    }
}

/// A path leads to what its directory says.
fn check_path(volume: &Volume, all: &[(Vec<u8>, Node)], way: &[u8]) {
    let cut = way.iter().rposition(|&byte| byte == b'/');
    let (parent, name) = cut.map_or((&[][..], way), |cut| (&way[..cut], &way[cut + 1..]));
    let dir = all.iter().find(|(path, _)| path == parent).map(|(_, node)| *node);
    let expected = dir.map(|dir| {
        let node = volume.lookup(dir, name).ok();
        (dir, node.map(|node| told(volume.attributes(node).expect("attributes"))))
    });
    let mut found = LastName { dir: volume.root(), attr: None };
    let walked = volume.walk(volume.root(), way, WalkOutput::Change(&mut found)).expect("walked");
    let found = (walked > 0).then_some((found.dir, found.attr.map(told)));
    assert_eq!(found, expected, "{way:?}");
    let mut attr = Attr::NONE;
    let there = volume.find(volume.root().into(), way, &mut attr);
    assert_eq!(there.then(|| told(attr)), expected.and_then(|(_, attr)| attr), "{way:?}");
}

fn change(volume: &Volume, dirs: &[(Vec<u8>, Node)], random: &mut Random) {
    let dir = dirs[random.below(dirs.len())].1;
    let to = dirs[random.below(dirs.len())].1;
    let (name, other) = (NAMES[random.below(4)], NAMES[random.below(4)]);
    let new = |kind| NewNode { kind, mode: 0o755, uid: 1, gid: 2, rdev: 0, target: b"" };
    let _ = match random.below(12) {
        0..2 => volume.create(dir, name, &new(Kind::File)).map(drop),
        2..4 => volume.create(dir, name, &new(Kind::Directory)).map(drop),
        4 => volume.remove(&EntryName::new(dir, name), Removes::Name),
        5 => volume.remove(&EntryName::new(dir, name), Removes::Directory),
        6..9 => volume.rename(
            &EntryName::new(dir, name),
            &EntryName::new(to, other),
            RenameFlags::new(0),
        ),
        9 => volume.rename(
            &EntryName::new(dir, name),
            &EntryName::new(to, other),
            RenameFlags::new(libc::RENAME_EXCHANGE),
        ),
        10 => volume.lookup(dir, name).and_then(|node| volume.link(node, to, other)),
        _ => volume.set_attr(dir, &SetAttr { mode: Some(0o700), ..SetAttr::default() }),
    };
}

#[test]
fn what_is_remembered_is_what_is_there() {
    let place = Place::formatted("remembered");
    let (first, second) = (place.attach(), place.attach());
    let mut random = Random(0x5EED_0123);
    let mut ways: Vec<Vec<u8>> = NAMES.map(<[u8]>::to_vec).to_vec();
    for name in NAMES {
        for other in NAMES {
            ways.push([name, b"/", other].concat());
        }
    }
    for run in 0..150 {
        for _ in 0..=random.below(8) {
            let volume = if run % 3 == 0 || random.below(4) > 0 { &first } else { &second };
            change(volume, &directories(volume), &mut random);
            check([&first, &second], &ways);
        }
    }
    first.detach().expect("detached");
    second.detach().expect("detached");
}

/// Who remembers where names belong makes and takes them there, also when buckets were split and
/// merged since, by this one or another.
#[test]
fn names_come_and_go_where_they_belong() {
    let place = Place::formatted("remembered-places");
    let first = place.attach();
    let other = place.attach();
    let volumes = [&*first, &*other];
    let (root, new) = (first.root(), new_file());
    let mut random = Random(0x9E37_79B9);
    let mut there: BTreeMap<Vec<u8>, Node> = BTreeMap::new();
    let name_of = |at: usize| format!("name {at}").into_bytes();
    // First there are more and more of them, then fewer and fewer.
    for step in 0..4000 {
        let volume = volumes[usize::from(random.below(9) == 0)];
        let name = name_of(random.below(300));
        let grows = random.below(10) < if step < 2000 { 8 } else { 2 };
        assert_eq!(volume.lookup(root, &name).ok(), there.get(&name).copied());
        match there.get(&name).copied() {
            None if grows => {
                there.insert(name.clone(), volume.create(root, &name, &new).unwrap());
            }
            Some(node) if !grows => {
                let at = EntryName { dir: root, name: &name, found: Some((node, Kind::File)) };
                volume.remove(&at, Removes::Name).unwrap();
                there.remove(&name);
            }
            Some(node) => {
                let to = name_of(random.below(300));
                if volume.lookup(root, &to).is_ok() {
                    continue;
                }
                let from = EntryName { dir: root, name: &name, found: Some((node, Kind::File)) };
                volume.rename(&from, &EntryName::new(root, &to), RenameFlags::new(0)).unwrap();
                there.remove(&name);
                there.insert(to, node);
            }
            None => {}
        }
        if step % 50 == 0 {
            for volume in volumes {
                let told = entries(volume, root);
                assert_eq!(told.len(), there.len() + 2, "step {step}");
                assert!(there.iter().all(|(name, node)| told[name].0 == node.ino));
            }
        }
    }
    first.detach().expect("detached");
    other.detach().expect("detached");
}

/// Directories of a few names that come and go, so that they are empty again and again: no entry of
/// before comes back with the first one that is made after that.
#[test]
fn directories_are_emptied_and_filled() {
    let place = Place::formatted("remembered-emptied");
    let volume = place.attach();
    let (root, new) = (volume.root(), new_file());
    let directory = NewNode { kind: Kind::Directory, mode: 0o755, ..new_file() };
    let dirs = [&b"one"[..], b"two"].map(|name| volume.create(root, name, &directory).unwrap());
    let mut random = Random(0x51_513);
    let mut there: [BTreeMap<Vec<u8>, Node>; 2] = Default::default();
    for step in 0..3000 {
        let (at, to) = (random.below(2), random.below(2));
        let [name, other] = [(); 2].map(|()| format!("name {}", random.below(3)).into_bytes());
        let found = there[at].get(&name).copied();
        if random.below(2) == 0 {
            assert_eq!(volume.lookup(dirs[at], &name).ok(), found, "step {step}");
        }
        let named =
            EntryName { dir: dirs[at], name: &name, found: found.map(|node| (node, Kind::File)) };
        match found {
            None => {
                there[at].insert(name.clone(), volume.create(dirs[at], &name, &new).unwrap());
            }
            Some(_) if random.below(2) == 0 => {
                volume.remove(&named, Removes::Name).unwrap();
                there[at].remove(&name);
            }
            Some(node) if (at, &name) != (to, &other) => {
                let target = EntryName::new(dirs[to], &other);
                volume.rename(&named, &target, RenameFlags::new(0)).unwrap();
                there[at].remove(&name);
                there[to].insert(other, node);
            }
            Some(_) => {}
        }
        for (dir, there) in dirs.iter().zip(&there) {
            let told = entries(&volume, *dir);
            assert_eq!(told.len(), there.len() + 2, "step {step}: {told:?}");
            assert!(there.iter().all(|(name, node)| told[name].0 == node.ino), "step {step}");
        }
    }
    volume.detach().expect("detached");
}
