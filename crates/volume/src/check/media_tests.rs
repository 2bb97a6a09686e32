//! Memory that cannot be read: calls that depend on it get `EIO`, everything else goes on.
//!
//! A page is taken away under the mapping, as a poisoned one is on real memory: accesses fault.

use crate::Mode;
use crate::check::fsck::FsckOptions;
use crate::inode::Inode;
use crate::medium::layout::{BLOCK, ROOT_WORD, WORDS};
use crate::testing::{file, root, volume};
use crate::volume::Volume;
use pmem::{UserIn, UserOut};
use rustix::io::Errno;
use rustix::mm::MprotectFlags;
use std::sync::Arc;
use vfs::Node;

/// A volume with some files, of one of which a page will vanish.
struct Scene {
    volume: Arc<Volume>,
    victim: Node,
    others: Vec<(String, Node)>,
}

fn write(volume: &Volume, node: Node, offset: u64, bytes: &[u8]) -> crate::Result<usize> {
    let at = crate::data::plan::Position::At(offset);
    volume.write_file(node, at, &[UserIn::new(bytes)]).map(|written| written.0)
}

fn read(volume: &Volume, node: Node, offset: u64, length: usize) -> crate::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let count = volume.read_file(node, offset, &mut [UserOut::new(&mut bytes)])?;
    bytes.truncate(count);
    Ok(bytes)
}

impl Scene {
    fn new() -> Self {
        let volume = volume(Mode::Strict, 32);
        let make = |name: &str| volume.create(root(&volume), name.as_bytes(), &file()).unwrap();
        let mut others = Vec::new();
        for index in 0..100 {
            let name = format!("other {index}");
            let node = make(&name);
            write(&volume, node, 0, name.repeat(50).as_bytes()).unwrap();
            others.push((name, node));
        }
        let victim = make("victim");
        for block in 0..40 {
            write(&volume, victim, block * BLOCK, &[7; BLOCK as usize]).unwrap();
        }
        Self { volume, victim, others }
    }

    /// Takes the page at this offset away.
    fn poison(&self, offset: u64) {
        let at = self.volume.region.base().wrapping_add((offset / BLOCK * BLOCK) as usize);
        // SAFETY: a page of the region's own mapping, which only guarded copies touch.
        unsafe { rustix::mm::mprotect(at.cast(), BLOCK as usize, MprotectFlags::empty()) }.unwrap();
    }

    fn word(&self, at: u64) -> u64 {
        self.volume.region.load64(at).unwrap() & ((1 << 40) - 1)
    }

    /// Everything but the victim is as before, and can be changed; new files can be made.
    fn rest_is_usable(&self, but: &[Node]) {
        let volume = &self.volume;
        let sound = self.others.iter().filter(|(_, node)| !but.contains(node));
        for (name, node) in sound {
            let wanted = name.repeat(50).into_bytes();
            assert_eq!(read(volume, *node, 0, 4096).unwrap(), wanted, "{name}");
            assert_eq!(volume.lookup(root(volume), name.as_bytes()), Ok(*node));
            write(volume, *node, 0, &wanted).unwrap();
            write(volume, *node, 9000, &wanted).unwrap();
        }
        let mut refused = 0;
        for index in 0..200 {
            let name = format!("new {index}");
            match volume.create(root(volume), name.as_bytes(), &file()) {
                Ok(node) => assert!(write(volume, node, 0, &[1; 9000]).is_ok()),
                Err(errno) => {
                    assert_eq!(errno, Errno::IO);
                    refused += 1;
                }
            }
        }
        assert!(refused <= 8, "what was in the way once is in the way no more: {refused}");
    }

    fn faults(&self, read_data: bool) -> Vec<crate::FsckFault> {
        let options = FsckOptions { read_data, ..FsckOptions::default() };
        self.volume.check(&options).unwrap().faults
    }
}

#[test]
fn a_lost_data_page_is_an_error_of_that_page() {
    let scene = Scene::new();
    scene.poison(scene.word(Inode(scene.victim.ino).at(WORDS + 3 * 8)) * BLOCK);
    let volume = &scene.volume;
    assert_eq!(read(volume, scene.victim, 3 * BLOCK + 10, 10), Err(Errno::IO));
    assert_eq!(read(volume, scene.victim, 2 * BLOCK, 4096).unwrap(), [7; 4096]);
    assert_eq!(read(volume, scene.victim, 4 * BLOCK, 4096).unwrap(), [7; 4096]);
    scene.rest_is_usable(&[]);
    let faults = scene.faults(true);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!((faults[0].code, faults[0].place.as_str()), ("media", "/victim"));
    // Whole blocks written over it get other memory; the lost page is not given to another file.
    assert_eq!(write(volume, scene.victim, 3 * BLOCK, &[8; 4096]), Ok(4096));
    assert_eq!(read(volume, scene.victim, 3 * BLOCK, 4096).unwrap(), [8; 4096]);
}

#[test]
fn a_lost_map_node_is_an_error_of_that_file() {
    let scene = Scene::new();
    scene.poison(scene.word(Inode(scene.victim.ino).at(ROOT_WORD)) * BLOCK);
    let volume = &scene.volume;
    assert_eq!(read(volume, scene.victim, 20 * BLOCK, 10), Err(Errno::IO));
    assert_eq!(read(volume, scene.victim, 2 * BLOCK, 4096).unwrap(), [7; 4096]);
    scene.rest_is_usable(&[]);
    let faults = scene.faults(false);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!((faults[0].code, faults[0].place.as_str()), ("map-word", "/victim"));
}

#[test]
fn a_lost_page_of_inodes_is_an_error_of_those_files() {
    let scene = Scene::new();
    let volume = &scene.volume;
    let page = Inode(scene.victim.ino).offset() / BLOCK;
    let others = scene.others.iter().map(|(_, node)| *node);
    let lost: Vec<Node> = others.filter(|node| Inode(node.ino).offset() / BLOCK == page).collect();
    scene.poison(page * BLOCK);
    assert_eq!(read(volume, scene.victim, 0, 10), Err(Errno::IO));
    assert!(lost.iter().all(|node| volume.attributes(*node) == Err(Errno::IO)));
    scene.rest_is_usable(&lost);
    let mut named: Vec<_> = scene.faults(false).into_iter().map(|fault| fault.place).collect();
    named.sort();
    named.dedup();
    let lost = scene.others.iter().filter(|(_, node)| lost.contains(node));
    let mut wanted: Vec<_> = lost.map(|(name, _)| format!("/{name}")).collect();
    wanted.push("/victim".into());
    wanted.sort();
    assert_eq!(named, wanted);
}
