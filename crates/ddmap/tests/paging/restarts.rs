//! Calls of the engine that want more pages than may be here: they go in steps; what is no step
//! begins anew with room for more each time, and gives up if that never ends.

use crate::paging::pager::PagerOptions;
use crate::paging::prefetch::PrefetchMode;
use crate::shared_memory::view::REGION;
use crate::tests::support::pair::{PAGE, World};
use crate::tests::support::running::{store, touch};
use pmem::{Access, Hint, Pager, Region};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use vfs::{
    Desc, EntryName, FileSystem, Fill, IoOffset, Kind, Mapped, Maps, NewNode, Node, OpenFlags,
    Removes, UserIn, UserOut,
};
use volume::{AttachOptions, FormatOptions, Mode, Volume, attach, format_region};

const MIB: usize = 1 << 20;
const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32 | libc::FALLOC_FL_KEEP_SIZE as u32;

/// A volume of 128 MiB on a node that has room for 10 MiB, and for what always stays.
fn world() -> World {
    let world = World::new(128 * MIB as u64 / PAGE, 10 * MIB as u64 / PAGE);
    format_region(&world.region(), &FormatOptions::default()).unwrap();
    world
}

fn attached(world: &World, mode: Mode) -> Arc<Volume> {
    let pager = Some(Arc::clone(&world.pager) as Arc<dyn Pager>);
    let options = AttachOptions { pager, mode, ..AttachOptions::default() };
    attach(&world.folder.at(REGION), &options).unwrap()
}

fn new_file(volume: &Volume, name: &str) -> (Node, Desc) {
    let new = NewNode { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: &[] };
    let node = volume.create(volume.root(), name.as_bytes(), &new).unwrap();
    (node, volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap())
}

/// Bytes, no two pages of which are the same.
fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at / 7) ^ (at >> 12) ^ seed) as u8).collect()
}

fn check(volume: &Volume, desc: Desc, model: &[u8], what: &str) {
    let mut found = vec![0; model.len() + 1];
    let read = volume.read(desc, &mut [UserOut::new(&mut found)], IoOffset::offset(0));
    assert_eq!(read, Ok(model.len()), "{what}");
    let wrong = model.iter().zip(&found).position(|(model, found)| model != found);
    assert_eq!(wrong, None, "{what}");
}

/// Each call is of twice what may be here, and does all of it: in the mode that is the commit's
/// turn (`rotation`), with `SOLERA_TEST_LONG` in each.
#[test]
fn a_call_that_wants_more_than_may_be_here_does_all_of_it() {
    let turn = rotation::turn("restarts", 3);
    for (at, mode) in (0..).zip([Mode::Strict, Mode::Sync, Mode::Posix]) {
        if at != turn && !rotation::all() {
            continue;
        }
        let world = world();
        world.evict_beside(|| {
            let volume = attached(&world, mode);
            let free = || volume.stat_fs(volume.root().into()).unwrap().blocks_free;
            let before = free();
            let (node, desc) = new_file(&volume, "big");
            let mut model = bytes(1, 24 * MIB);
            let at = IoOffset::offset;
            assert_eq!(volume.write(desc, &[UserIn::new(&model)], at(0)), Ok(model.len()));
            check(&volume, desc, &model, "new");
            // At the position, by two buffers; over what is there.
            let new = bytes(2, 20 * MIB + 77);
            let (one, two) = new.split_at(5 * MIB + 3);
            let parts = [UserIn::new(one), UserIn::new(two)];
            assert_eq!(volume.write(desc, &parts, IoOffset::POSITION), Ok(new.len()));
            model[..new.len()].copy_from_slice(&new);
            check(&volume, desc, &model, "overwritten at the position");
            let flags = OpenFlags(libc::O_RDWR | libc::O_APPEND);
            let end = volume.open(node.into(), flags, None).unwrap();
            let new = bytes(3, 20 * MIB);
            assert_eq!(volume.write(end, &[UserIn::new(&new)], at(0)), Ok(new.len()));
            model.extend(new);
            check(&volume, desc, &model, "appended");
            // Blocks that nobody has stored to.
            let (from, length) = (model.len(), 20 * MIB);
            volume.allocate(desc, 0, from as u64, length as u64).unwrap();
            let new = bytes(4, length - 5000);
            let wrote = volume.write(desc, &[UserIn::new(&new)], at(from as u64 + 2500));
            assert_eq!(wrote, Ok(new.len()));
            model.resize(from + length, 0);
            model[from + 2500..from + length - 2500].copy_from_slice(&new);
            check(&volume, desc, &model, "unwritten");
            // From here on it changes in place.
            let whole = (0, model.len() as u64);
            volume.map(desc, whole, Mapped::Write, Fill::None).unwrap();
            let new = bytes(5, 21 * MIB);
            let wrote = volume.write(desc, &[UserIn::new(&new)], at(MIB as u64 + 5));
            assert_eq!(wrote, Ok(new.len()));
            model[MIB + 5..22 * MIB + 5].copy_from_slice(&new);
            check(&volume, desc, &model, "mapped, overwritten");
            for (how, from) in [(PUNCH, 100), (ZERO, 22 * MIB)] {
                volume.allocate(desc, how, from as u64, 20 * MIB as u64).unwrap();
                model[from..from + 20 * MIB].fill(0);
                check(&volume, desc, &model, "mapped, zeroed");
            }
            volume.truncate(node, 3 * MIB as u64).unwrap();
            model.truncate(3 * MIB);
            volume.truncate(node, 40 * MIB as u64).unwrap();
            model.resize(40 * MIB, 0);
            check(&volume, desc, &model, "cut, and long again");
            // Nothing that was begun anew has left blocks in use.
            volume.close(desc).unwrap();
            volume.close(end).unwrap();
            volume.remove(&EntryName::new(volume.root(), b"big"), Removes::Name).unwrap();
            assert_eq!(free(), before, "{mode:?}: blocks are free as before");
        });
        assert!(world.kept.pages_in_file() > 0, "pages have left");
    }
}

/// One byte in 2 MiB of blocks that nobody has stored to: the others are zeros as they are.
#[test]
fn zeros_that_nobody_has_touched_take_no_room() {
    let world = world();
    world.evict_beside(|| {
        let volume = attached(&world, Mode::Strict);
        let (_, desc) = new_file(&volume, "sparse");
        volume.allocate(desc, 0, 0, 32 * MIB as u64).unwrap();
        let here = || world.pager.ground().pages_in_file();
        let before = here();
        let mut model = vec![0; 32 * MIB];
        for at in (MIB..32 * MIB).step_by(2 * MIB) {
            assert_eq!(
                volume.write(desc, &[UserIn::new(&[9])], IoOffset::offset(at as u64)),
                Ok(1)
            );
            model[at] = 9;
        }
        let come = here() - before;
        assert!((16..100).contains(&come), "{come} pages came for 16 that were stored to");
        check(&volume, desc, &model, "a byte in each 2 MiB");
    });
}

/// What a call does that stores to all of these pages, or begins anew; it has changed nothing then.
/// How often it has. `fresh`: nobody has stored to them, and they are given back each time.
fn call(region: &Region, pages: std::ops::Range<u64>, fresh: bool) -> Result<u32, Errno> {
    let (mut times, pager) = (0, region.pager().unwrap());
    'anew: loop {
        for page in pages.clone() {
            if region.shared_store(page * PAGE, page + 1).is_err() {
                let absent = region.absent_page().expect("an absent page");
                if fresh {
                    pager.discard((pages.start * PAGE, (pages.end - pages.start) * PAGE));
                }
                pager.begins_anew(times)?;
                times += 1;
                pager.fault(absent, Access::Store)?;
                continue 'anew;
            }
        }
        return Ok(times);
    }
}

#[test]
fn a_call_that_lacks_room_has_more_made_each_time_or_gives_up() {
    let local = 1200;
    let patience = Duration::from_secs(3);
    let wishes = PagerOptions { ahead: PrefetchMode::Off, patience, ..PagerOptions::default() };
    let world = World::wishing(10 * local, local, wishes);
    let region = world.region();
    world.pager.advise((0, 100 * PAGE), Hint::Stays);
    world.evict_beside(|| {
        // The room is full of what others have.
        let others = 1000..1000 + 2 * local;
        others.clone().for_each(|page| store(&region, page, page + 1));
        let rounds = call(&region, 5000..5000 + local / 2, true).expect("what fits is had");
        assert!(rounds < 40, "it began anew {rounds} times");
        // Each page is brought, and has left when the call comes to it: all are never here at once.
        assert_eq!(call(&region, others.clone(), false), Err(Errno::NOMEM));
        // A step of a call is far less than that.
        let step = world.pager.at_once() / PAGE;
        assert!((64..=local / 4).contains(&step), "{step} pages");
        let some = others.start..others.start + step;
        let rounds = call(&region, some, false).expect("it has all of them at once");
        assert!(u64::from(rounds) <= step, "it began anew {rounds} times");
        for page in others {
            touch(&region, page);
            assert_eq!(region.load64(page * PAGE), Ok(page + 1));
        }
    });
}
