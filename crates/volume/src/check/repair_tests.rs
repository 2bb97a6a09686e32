//! Repair: one structure is damaged at random; all that does not depend on the damaged bytes is
//! there afterwards, byte for byte, under its name or in `/lost+found`.

use crate::attach::format::FormatOptions;
use crate::attach::format::format;
use crate::attach::offline_check::fsck;
use crate::attach::offline_check::repair;
use crate::attach::{AttachOptions, attach};
use crate::check::fsck::FsckOptions;
use crate::check::repair::RepairOptions;
use crate::data::map::MapItem;
use crate::inode::Inode;
use crate::medium::layout::{
    BLOCK, COMMIT, EXTENT_INODES, IDENTITY, INODE, LINE, ROOT_WORD, WORDS,
};
use crate::namespace::bucket::Dir;
use crate::recovery::fault::Remedy;
use crate::testing::{Random, root};
use crate::volume::Volume;
use pmem::{UserIn, UserOut};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use vfs::{Kind, NewNode, Node};

const SIZE: u64 = 16 << 20;

/// A volume's file in memory, gone with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let base = std::env::var_os("SOLERA_TEST_DIR").map_or("/dev/shm".into(), PathBuf::from);
        let path = base.join(format!("solera-repair-{}-{name}", std::process::id()));
        let options = FormatOptions { size: Some(SIZE), seed: Some(7), ..FormatOptions::default() };
        format(&path, &options).expect("a new volume");
        Self(path)
    }

    fn attach(&self) -> std::sync::Arc<Volume> {
        attach(&self.0, &AttachOptions::default()).expect("attached")
    }

    fn file(&self) -> File {
        File::options().read(true).write(true).open(&self.0).expect("opened")
    }

    /// All that is not zero, by page.
    fn image(&self) -> Vec<(u64, Vec<u8>)> {
        let file = self.file();
        let mut pages = Vec::new();
        for offset in (0..SIZE).step_by(BLOCK as usize) {
            let mut page = vec![0; BLOCK as usize];
            file.read_exact_at(&mut page, offset).expect("read");
            if page.iter().any(|byte| *byte != 0) {
                pages.push((offset, page));
            }
        }
        pages
    }

    fn restore(&self, image: &[(u64, Vec<u8>)]) {
        let file = self.file();
        file.set_len(0).expect("emptied");
        file.set_len(SIZE).expect("extended");
        for (offset, page) in image {
            file.write_all_at(page, *offset).expect("written");
        }
    }

    fn repair(&self, salvage: bool) -> crate::RepairReport {
        let options = RepairOptions { salvage, check: FsckOptions::default() };
        repair(&self.0, &options, &mut |_, _| {}).expect("repaired or not, it is told")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that is not there need not be removed.
        let _ = std::fs::remove_file(&self.0);
        let mut anchor = self.0.clone().into_os_string();
        anchor.push(".solera");
        let _ = std::fs::remove_dir_all(anchor);
    }
}

fn new(kind: Kind, target: &[u8]) -> NewNode<'_> {
    NewNode { kind, mode: 0o640, uid: 11, gid: 12, rdev: 0, target }
}

fn write(volume: &Volume, node: Node, offset: u64, bytes: &[u8]) {
    let at = crate::data::plan::Position::At(offset);
    assert_eq!(volume.write_file(node, at, &[UserIn::new(bytes)]).expect("written").0, bytes.len());
}

/// A tree with something of every kind; each file's contents are its own.
fn populate(volume: &Volume) {
    let mut directories = vec![root(volume)];
    for index in 0..6 {
        let parent = directories[index / 2];
        let name = format!("directory {index}");
        let made = volume.create(parent, name.as_bytes(), &new(Kind::Directory, b""));
        directories.push(made.expect("made"));
    }
    for index in 0..150_usize {
        let parent = directories[index % directories.len()];
        let name = format!("file {index} {}", "n".repeat(index % 7 * 20));
        let node = volume.create(parent, name.as_bytes(), &new(Kind::File, b"")).expect("made");
        let bytes: Vec<u8> = format!("<{index}>").into_bytes().repeat(1 + index % 40 * 50);
        write(volume, node, 0, &bytes);
        if index % 10 == 3 {
            write(volume, node, 60 << 12, &bytes);
        }
        if index % 10 == 5 {
            let second = format!("second name of {index}");
            volume.link(node, directories[index % 3], second.as_bytes()).expect("linked");
        }
        if index % 10 == 7 {
            volume.set_xattr(node, b"user.number", name.as_bytes(), 0).expect("set");
        }
    }
    let long = "long/".repeat(60);
    volume.create(directories[1], b"link", &new(Kind::Symlink, b"short")).expect("made");
    volume.create(directories[2], b"long", &new(Kind::Symlink, long.as_bytes())).expect("made");
    volume.create(directories[3], b"pipe", &new(Kind::Fifo, b"")).expect("made");
    for index in 0..400 {
        let name = format!("crowd {index}");
        let node = volume.create(directories[5], name.as_bytes(), &new(Kind::File, b""));
        write(volume, node.expect("made"), 0, format!("one of a crowd: {index}").as_bytes());
    }
}

/// An object's kind and contents; empty if it cannot be read.
fn contents(volume: &Volume, node: Node, kind: Kind) -> Vec<u8> {
    let mut bytes = format!("{kind:?}:").into_bytes();
    match kind {
        Kind::File => {
            let Ok(attr) = volume.attributes(node) else { return Vec::new() };
            let mut read = vec![0; attr.size as usize];
            match volume.read_file(node, 0, &mut [UserOut::new(&mut read)]) {
                Ok(count) if count == read.len() => bytes.extend(read),
                _ => return Vec::new(),
            }
        }
        Kind::Symlink => {
            let mut target = [0; 4096];
            let Ok(length) = volume.read_link(node, &mut target) else { return Vec::new() };
            bytes.extend(&target[..length]);
        }
        _ => {}
    }
    bytes
}

/// Every path, its inode, and what is there.
fn tree(volume: &Volume) -> BTreeMap<String, (u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(root(volume), String::new())];
    while let Some((directory, path)) = waiting.pop() {
        let mut entries = Vec::new();
        volume
            .read_dir(directory, 0, &mut |entry| {
                entries.push((entry.name.to_vec(), entry.kind));
                true
            })
            .expect("listed");
        for (name, kind) in entries {
            if name == b"." || name == b".." {
                continue;
            }
            let node = volume.lookup(directory, &name).expect("a name that was listed");
            let path = format!("{path}/{}", String::from_utf8_lossy(&name));
            if kind == Kind::Directory {
                waiting.push((node, path.clone()));
            }
            found.insert(path, (node.ino, contents(volume, node, kind)));
        }
    }
    found
}

/// The owner of every line of metadata: the inode that is lost with it, for files; none for
/// directories, whose names may be lost but not what they lead to.
fn owners(volume: &Volume) -> BTreeMap<u64, Option<u64>> {
    volume.return_kept().expect("nobody works");
    let mut owners = BTreeMap::new();
    let mut own = |at: u64, length: u64, owner| {
        for line in (at..at + length).step_by(LINE as usize) {
            owners.insert(line, owner);
        }
    };
    for chunk in 0..volume.chunks() {
        let extents = volume.mask(chunk, crate::space::chunk::Mask::Extents).expect("a mask");
        for index in crate::space::free_map::bits_of(extents) {
            let first = (volume.chunk_start(chunk) + index * 8) / 8 * EXTENT_INODES;
            let slots = volume.extent_slots(chunk, index).expect("slots");
            for inode in crate::space::free_map::bits_of(slots & !1).map(|slot| Inode(first + slot))
            {
                let identity = volume.identity(inode).expect("sound");
                own(inode.at(IDENTITY), INODE / 2, Some(inode.0));
                let walked = volume.walk_map(inode, &identity, &mut |item| {
                    match item {
                        MapItem::Node { block } | MapItem::Xattr { block } => {
                            own(block * BLOCK, BLOCK, Some(inode.0));
                        }
                        MapItem::Data { .. } | MapItem::Damaged { .. } => {}
                    }
                    Ok(())
                });
                walked.expect("sound");
                if identity.kind() == Some(Kind::Directory) {
                    let dir = Dir { inode, generation: identity.generation };
                    let walked = volume.walk_words(dir, &mut |word| {
                        own(word.unwrap_or_else(|_| panic!("sound")).block * BLOCK, BLOCK, None);
                        Ok(())
                    });
                    walked.expect("sound");
                }
            }
        }
    }
    owners
}

/// All that does not depend on `lost` is there: with its contents under its own name, or under
/// another.
fn compare(
    before: &BTreeMap<String, (u64, Vec<u8>)>,
    after: &BTreeMap<String, (u64, Vec<u8>)>,
    lost: Option<u64>,
    what: &str,
) {
    let anywhere: BTreeSet<_> = after.values().collect();
    for (path, found) in before {
        if Some(found.0) != lost && after.get(path) != Some(found) {
            assert!(anywhere.contains(found), "{what}: {path} is lost");
        }
    }
    for (path, found) in after {
        let known = before.values().any(|other| other == found) || Some(found.0) == lost;
        assert!(known || path == "/lost+found", "{what}: {path} is made up");
    }
}

#[test]
fn what_does_not_depend_on_damaged_bytes_survives_a_repair() {
    let scratch = Scratch::new("property");
    let volume = scratch.attach();
    populate(&volume);
    let before = tree(&volume);
    let owners = owners(&volume);
    drop(volume);
    let image = scratch.image();
    let in_use: BTreeSet<u64> = image.iter().map(|(offset, _)| *offset).collect();
    let lines: Vec<_> = owners
        .iter()
        .filter(|(line, _)| in_use.contains(&(*line / BLOCK * BLOCK)))
        .map(|(line, owner)| (*line, *owner))
        .collect();
    let all = rotation::all();
    let drawn = |trial: &u64| rotation::chosen(&format!("repair/{trial}"), 4);
    let (mut repaired, mut salvaged, mut harmless) = (0, 0, 0);
    for trial in (0..if all { 5000 } else { 250 }).filter(drawn) {
        let mut random = Random::new(20 + trial);
        scratch.restore(&image);
        // Every other time a directory: there are more files.
        let (line, owner) = loop {
            let drawn = lines[random.below(lines.len() as u64) as usize];
            if trial % 2 == 0 || drawn.1.is_none() {
                break drawn;
            }
        };
        let file = scratch.file();
        let mut bytes = [0; LINE as usize];
        file.read_exact_at(&mut bytes, line).expect("read");
        let what = if random.below(2) == 0 {
            let bit = random.below(512);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            format!("trial {trial}: bit {bit} of the line at {line:#x}")
        } else {
            for byte in &mut bytes {
                *byte = random.next() as u8;
            }
            format!("trial {trial}: noise in the line at {line:#x}")
        };
        file.write_all_at(&bytes, line).expect("damaged");
        drop(file);
        let mut report = scratch.repair(false);
        let left = |report: &crate::RepairReport| !report.after.faults.is_empty();
        if left(&report) {
            let faults = &report.after.faults;
            assert!(faults.iter().all(|f| f.remedy != Remedy::Repair), "{what}: {faults:?}");
            report = scratch.repair(true);
            salvaged += 1;
        } else if report.mended.is_empty() {
            harmless += 1;
        } else {
            repaired += 1;
        }
        assert!(!left(&report), "{what}: {:?}", report.after.faults);
        let volume = scratch.attach();
        let found = tree(&volume);
        compare(&before, &found, owner, &what);
        let made = volume.create(root(&volume), b"afterwards", &new(Kind::File, b""));
        write(&volume, made.expect("it can be written again"), 0, b"new");
        drop(volume);
        let again = fsck(&scratch.0, &FsckOptions::default(), &mut |_, _| {}).expect("checked");
        assert_eq!(again.faults, [], "{what}: afterwards");
    }
    eprintln!("{repaired} repaired, {salvaged} salvaged, {harmless} harmless");
    let (least, few) = if all { (30, 5) } else { (7, 1) };
    assert!(repaired > least && salvaged > few && harmless > 0, "the test tests little");
}

#[test]
fn files_of_a_lost_directory_are_found_again() {
    let scratch = Scratch::new("orphans");
    let volume = scratch.attach();
    populate(&volume);
    let before = tree(&volume);
    let lost = before["/directory 0/directory 2"].0;
    drop(volume);
    // The word that names all of its names.
    scratch.file().write_all_at(&[0x77; 8], Inode(lost).at(ROOT_WORD)).expect("damaged");
    let report = scratch.repair(false);
    assert_eq!(report.after.faults, []);
    assert!(!report.orphans.is_empty());
    let after = tree(&scratch.attach());
    compare(&before, &after, None, "a lost directory");
    let inside = before.keys().filter(|path| path.starts_with("/directory 0/directory 2/"));
    assert!(inside.count() > 15 && report.orphans.len() > 15);
    assert_eq!(scratch.repair(false).mended, []);
}

#[test]
fn an_interrupted_repair_is_demanded_and_taken_up() {
    let scratch = Scratch::new("interrupted");
    let volume = scratch.attach();
    populate(&volume);
    let before = tree(&volume);
    let lost = before["/directory 0/directory 2"].0;
    // As after a crash between the mending of a directory and the naming of the orphans.
    let state = crate::medium::layout::STATE_REPAIR;
    crate::medium::superblock::write_state(&volume.region, volume.epoch, state, 0)
        .expect("written");
    let _ = volume.region.store64(Inode(lost).at(ROOT_WORD), 0).expect("emptied");
    volume.mark_damaged().expect("stays so at detach");
    drop(volume);
    let volume = scratch.attach();
    let refused = volume.create(root(&volume), b"new", &new(Kind::File, b""));
    assert_eq!(refused, Err(rustix::io::Errno::ROFS));
    drop(volume);
    let faults = fsck(&scratch.0, &FsckOptions::default(), &mut |_, _| {}).expect("checked").faults;
    assert!(faults.iter().any(|fault| fault.code == "repair-unfinished"), "{faults:?}");
    let report = scratch.repair(false);
    assert_eq!(report.after.faults, []);
    compare(&before, &tree(&scratch.attach()), None, "an interrupted repair");
}

#[test]
fn what_needs_a_decision_is_refused_without_one() {
    let scratch = Scratch::new("refused");
    let volume = scratch.attach();
    populate(&volume);
    let before = tree(&volume);
    let file = before.keys().find(|path| path.contains("file 1 ")).expect("a file").clone();
    let inode = Inode(before[&file].0);
    drop(volume);
    // A direct word: 4 KiB of the file are behind it.
    scratch.file().write_all_at(&[0x77; 8], inode.at(WORDS)).expect("damaged");
    let report = scratch.repair(false);
    assert_eq!(report.after.faults.len(), 1, "{:?}", report.after.faults);
    assert_eq!(report.after.faults[0].remedy, Remedy::Salvage);
    assert_eq!(report.after.faults[0].place, file);
    let volume = scratch.attach();
    let refused = volume.create(root(&volume), b"new", &new(Kind::File, b""));
    assert_eq!(refused, Err(rustix::io::Errno::ROFS));
    let error = repair(&scratch.0, &RepairOptions::default(), &mut |_, _| {}).err();
    assert_eq!(error.expect("others have it attached").kind(), crate::ErrorKind::InUse);
    drop(volume);
    assert_eq!(scratch.repair(true).after.faults, []);
    compare(&before, &tree(&scratch.attach()), Some(inode.0), "a hole");
}

#[test]
fn both_slots_of_a_commit_line_may_go() {
    let scratch = Scratch::new("commit");
    let volume = scratch.attach();
    populate(&volume);
    let before = tree(&volume);
    let directory = Inode(before["/directory 1"].0);
    drop(volume);
    scratch.file().write_all_at(&[0x55; 64], directory.at(COMMIT)).expect("damaged");
    assert_eq!(scratch.repair(false).after.faults, []);
    compare(&before, &tree(&scratch.attach()), None, "a directory's counts");
}
