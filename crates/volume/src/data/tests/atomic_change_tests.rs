//! Lists: whatever they hold, recovery makes all of it happen, and none of it if something of them
//! is not there.

use crate::attach::{AttachOptions, attach_region};
use crate::data::atomic_change::{AtOnce, InPlace};
use crate::data::edit::Words;
use crate::data::file::Source;
use crate::data::mapping::Fill;
use crate::data::plan::Position;
use crate::medium::layout::{BLOCK, LANE, LANE_REDO, LANES};
use crate::testing::{file, fresh, image};

use crate::volume::Volume;
use pmem::Region;
use std::sync::Arc;
use vfs::{Desc, FileSystem, IoOffset, Mapped, Node, OpenFlags, UserIn, UserOut};

const BLOCKS: u64 = 900;

fn start(size: usize) -> (Arc<Volume>, Node, Desc) {
    let (volume, root) = fresh();
    let node = volume.create(root, b"f", &file()).unwrap();
    let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap();
    volume.write(desc, &[UserIn::new(&vec![1; size])], IoOffset::offset(0)).unwrap();
    (volume, node, desc)
}

fn read(volume: &Volume, node: Node) -> Vec<u8> {
    let mut bytes = vec![0; 4 << 20];
    let done = volume.read_file(node, 0, &mut [UserOut::new(&mut bytes)]).unwrap();
    bytes.truncate(done);
    bytes
}

fn attached(region: Region) -> Arc<Volume> {
    attach_region(region, &AttachOptions::default()).unwrap()
}

/// 100 bytes of each of many blocks, by one record: its list is longer than a data area.
#[test]
fn a_list_in_parts_is_found_whole() {
    let (volume, node, _) = start((BLOCKS * BLOCK) as usize);
    let bytes = vec![2; BLOCKS as usize * 100];
    let buffers = [UserIn::new(&bytes[..7000]), UserIn::new(&bytes[7000..])];
    let mut op = volume.begin().unwrap();
    let file = volume.work_on(&mut op, node).unwrap();
    let place = |logical: u64| file.map.run(logical, 1).unwrap().block * BLOCK + 50;
    let parts: Vec<_> = (0..BLOCKS)
        .map(|logical| InPlace {
            at: place(logical),
            length: 100,
            source: Source::Caller(&buffers),
            from: logical * 100,
        })
        .collect();
    let change = AtOnce { bytes: &parts, words: &Words::default(), size: None, publishes: false };
    volume.change_at_once(&mut op, &file, change).unwrap();
    op.end().unwrap();
    let whole = read(&volume, node);
    let changed = |block: &[u8]| block[50..150] == [2; 100] && block[150..] == [1; 3946];
    assert!(whole.chunks(BLOCK as usize).all(changed));
    for logical in [0, 1, 170, 500, BLOCKS - 1] {
        let torn = image(&volume);
        let _ = torn.write((place(logical) + 40) / 8 * 8, &[9; 8]).unwrap();
        assert!(read(&attached(torn), node) == whole, "block {logical}");
    }
}

/// Of a mapped file no record stands when the call has returned.
#[test]
fn a_mapped_file_has_no_record_afterwards() {
    let (volume, node, desc) = start(20_000);
    volume.map_pieces(node, (0, 5 * BLOCK), Mapped::Write, Fill::All).unwrap();
    for (at, length) in [(100, 50), (4000, 9000), (19_990, 30), (30_000, 10)] {
        let bytes = vec![3; length];
        volume.write(desc, &[UserIn::new(&bytes)], IoOffset::offset(at)).unwrap();
        let wanted = read(&volume, node);
        let changed = image(&volume);
        let (inode, identity) = volume.identity_of(node).unwrap();
        let run = crate::data::map::Map::new(&volume, inode, &identity).run(at / BLOCK, 1).unwrap();
        let place = run.block * BLOCK + at % BLOCK;
        let _ = changed.write(place / 8 * 8, &[8; 8]).unwrap();
        let found = read(&attached(changed), node);
        assert_eq!(found.len(), wanted.len());
        assert_eq!(found[at as usize], 8, "a store to the mapping stays, at {at}");
    }
}

/// Bytes below the end, holes below it, and what comes behind it, by one call.
#[test]
fn bytes_words_and_size_happen_at_once() {
    let (volume, node, desc) = start(5000);
    volume.truncate_file(node, 12_000).unwrap();
    volume.write(desc, &[UserIn::new(&[1; 1000])], IoOffset::offset(11_000)).unwrap();
    let before = read(&volume, node);
    let bytes = vec![4; 9000];
    let both = [UserIn::new(&bytes[..3]), UserIn::new(&bytes[3..])];
    assert_eq!(volume.write(desc, &both, IoOffset::offset(4990)), Ok(9000));
    let mut wanted = before;
    wanted.truncate(4990);
    wanted.resize(13_990, 4);
    assert_eq!(read(&volume, node), wanted);
    assert_eq!(read(&attached(image(&volume)), node), wanted);
    assert_eq!(volume.write_file(node, Position::End, &[UserIn::new(&[5; 10])]), Ok((10, 14_000)));
    wanted.resize(14_000, 5);
    assert_eq!(read(&attached(image(&volume)), node), wanted);
}

/// Whatever byte of a lane's records is damaged: nothing worse than before comes of it.
#[test]
fn damaged_records_and_lists_are_no_panic() {
    let (volume, node, desc) = start(9000);
    let both = [UserIn::new(&[2; 600]), UserIn::new(&[2; 600])];
    volume.write(desc, &both, IoOffset::offset(3800)).unwrap();
    let whole = read(&volume, node);
    for lane in 0..u64::from(volume.superblock.lanes) {
        for byte in (0..LANE - LANE_REDO).step_by(24) {
            let at = LANES + lane * LANE + LANE_REDO + byte;
            let word = volume.region.load64(at).unwrap();
            if word != 0 {
                let torn = image(&volume);
                let _ = torn.store64(at, word ^ 1 << 17).unwrap();
                assert_eq!(read(&attached(torn), node), whole, "lane {lane}, byte {byte}");
            }
        }
        for at in (0..volume.data_area_bytes).step_by(840) {
            let at = (volume.data_area(lane) + at) / 8 * 8;
            if volume.region.load64(at).unwrap() != 0 {
                let torn = image(&volume);
                let _ = torn.store64(at, u64::MAX).unwrap();
                assert_eq!(read(&attached(torn), node), whole);
            }
        }
    }
}
