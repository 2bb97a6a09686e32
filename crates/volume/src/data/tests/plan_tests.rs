//! Plans that do not stand any more when the lock is there.

use crate::data::map::Map;
use crate::data::plan::{Plan, Position};
use crate::inode::Inode;
use crate::inode::Run;
use crate::inode::references::Opened;
use crate::medium::layout::BLOCK;
use crate::testing::{file, fresh, root};
use crate::txn::acquire::Anchor;
use crate::volume::Volume;
use robust::owner::Owner;
use rustix::io::Errno;
use std::sync::Arc;
use vfs::{Desc, IoOffset, Node};
use vfs::{FileSystem, OpenFlags, UserIn, UserOut};

const NEW: &[u8] = b"new";

/// A volume with a file of one block that its writers know where it lies, and what has it open.
fn start() -> (Arc<Volume>, Node, Desc, Opened) {
    let (volume, root) = fresh();
    let node = volume.create(root, b"a", &file()).unwrap();
    let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap();
    for length in [4000, 48, 48] {
        volume
            .write(
                desc,
                &[UserIn::new(&[1; 48].repeat(length / 48 + 1)[..length])],
                IoOffset::POSITION,
            )
            .unwrap();
    }
    let opened = volume.opened(desc).unwrap();
    (volume, node, desc, opened)
}

fn planned(volume: &Volume, node: Node) -> Plan {
    let mut plan = Plan::default();
    volume.plan(node, Position::At(0), &UserIn::new(NEW), &mut plan).unwrap();
    assert!(plan.is_simple && plan.place.is_some());
    plan
}

fn block(volume: &Volume, node: Node) -> u64 {
    let (inode, identity) = volume.identity_of(node).unwrap();
    Map::new(volume, inode, &identity).run(0, 1).unwrap().block
}

/// The operation record is free, and so is the lock: gives the sequence number.
fn at_rest(volume: &Volume, node: Node, plan: &Plan) -> u64 {
    assert_eq!(volume.operation_owner(plan.record), Ok(None));
    let inode = Inode(node.ino);
    let lock = volume.volatile_map().shared_load(inode.lock_offset()).unwrap();
    assert_eq!(Owner::of_word(lock, volume.epoch), None);
    volume.live_lines(inode).unwrap().sequence().unwrap()
}

#[test]
fn a_plan_whose_block_is_anothers_by_now_is_refused() {
    let (volume, a, desc, opened) = start();
    let plan = planned(&volume, a);
    volume.truncate_file(a, 0).unwrap();
    let taken = (0..4096).find_map(|number| {
        let name = format!("b{number}");
        let b = volume.create(root(&volume), name.as_bytes(), &file()).unwrap();
        volume.write_file(b, Position::At(0), &[UserIn::new(&[2; 4096])]).unwrap();
        (Some(block(&volume, b) * BLOCK) == plan.place).then_some(b)
    });
    let b = taken.expect("a file that takes the block");
    let (at, from) = (Position::At(0), UserIn::new(NEW));
    assert_eq!(
        volume.write_planned(a, Anchor::Open(desc, opened.state), at, &from, &plan),
        Ok(None)
    );
    at_rest(&volume, a, &plan);
    let mut bytes = [0; 4096];
    assert_eq!(volume.read_file(b, 0, &mut [UserOut::new(&mut bytes)]), Ok(4096));
    assert_eq!(bytes, [2; 4096]);
    assert_eq!(volume.attributes(a).unwrap().size, 0);
}

#[test]
fn a_plan_for_a_description_that_is_closed_is_refused() {
    let (volume, a, desc, opened) = start();
    let b = volume.create(root(&volume), b"b", &file()).unwrap();
    let plan = planned(&volume, a);
    volume.close_description(desc).unwrap();
    let other = volume.open(b.into(), OpenFlags(libc::O_RDWR), None).unwrap();
    assert_eq!(other.index(), desc.index());
    let before = at_rest(&volume, a, &plan);
    let (at, from) = (Position::At(0), UserIn::new(NEW));
    assert_eq!(
        volume.write_planned(a, Anchor::Open(desc, opened.state), at, &from, &plan),
        Ok(None)
    );
    assert_eq!(at_rest(&volume, a, &plan), before);
}

#[test]
fn a_plan_from_before_damage_was_found_is_refused() {
    let (volume, a, desc, opened) = start();
    let plan = planned(&volume, a);
    let before = at_rest(&volume, a, &plan);
    volume.mark_damaged().unwrap();
    let (at, from) = (Position::At(0), UserIn::new(NEW));
    assert_eq!(
        volume.write_planned(a, Anchor::Open(desc, opened.state), at, &from, &plan),
        Ok(None)
    );
    assert_eq!(at_rest(&volume, a, &plan), before);
    assert_eq!(volume.write(desc, &[from], IoOffset::POSITION), Err(Errno::ROFS));
}

#[test]
fn a_noted_run_that_is_nonsense_is_no_place() {
    for [logical, first, blocks] in [[0, u64::MAX, 1], [0, 1, u64::MAX >> 1], [u64::MAX, 0, 9]] {
        let (volume, a, ..) = start();
        let live = volume.live_lines(Inode(a.ino)).unwrap();
        let sequence = live.sequence().unwrap();
        let run = Run { block: first, blocks, unwritten: false, huge: false };
        live.set_run(logical, run).unwrap();
        live.keep_run(sequence + 2, sequence).unwrap();
        assert_eq!(live.run().unwrap().0, sequence);
        let mut plan = Plan::default();
        volume.plan(a, Position::At(0), &UserIn::new(NEW), &mut plan).unwrap();
        assert_eq!(plan.place, Some(block(&volume, a) * BLOCK), "by the map");
    }
}
