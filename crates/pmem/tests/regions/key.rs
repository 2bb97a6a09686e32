//! Guarded regions: reached between `open` and `close` only. One test, in a process of its own,
//! since a process has one key.

use crate::directory::TestDir;
use crate::process::{alone, run_alone};
use pmem::key::{self, Unguarded};
use pmem::{Fault, Locality, Region, UserIn, UserOut, text_length};
use std::sync::mpsc;

const SIZE: u64 = 4 << 20;

fn reads(region: &Region, off: u64) -> bool {
    region.load64(off).is_ok()
}

#[test]
fn a_guarded_region_is_reached_while_it_is_open() {
    if let Err(why) = key::available() {
        eprintln!("not tested: {why}");
        return;
    }
    if !alone() {
        let output = run_alone("key::a_guarded_region_is_reached_while_it_is_open", &[]);
        assert!(output.status.success(), "{output:?}");
        return;
    }
    assert_eq!(key::open(), 0, "nothing is guarded");
    let directory = TestDir::in_memory("key");
    let path = directory.file("region");
    let options = pmem::OpenOptions { write: true, reserve: SIZE, ..Default::default() };
    let region = Region::create_with(&path, SIZE, 0o600, true, &options).unwrap();
    std::thread::scope(|scope| {
        let (go, wait) = mpsc::channel::<()>();
        let older = scope.spawn({
            let region = &region;
            move || {
                wait.recv().unwrap();
                let closed = (reads(region, 0), region.store64(0, 1).is_ok());
                let rights = key::open();
                let open = (reads(region, 0), region.store64(0, 1).is_ok());
                key::close(rights);
                (closed, open, reads(region, 0))
            }
        });
        region.guard().unwrap();
        assert!(!reads(&region, 0), "the guarding thread has it closed as well");
        go.send(()).unwrap();
        assert_eq!(older.join().unwrap(), ((false, false), (true, true), false));
    });

    let rights = key::open();
    // What it grows by is guarded too.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(2 * SIZE).unwrap();
    assert_eq!(region.extend().unwrap(), 2 * SIZE);
    assert!(reads(&region, SIZE));

    // While it is open: what points into it is no buffer of the caller's.
    let inside = region.base().wrapping_add(64);
    // SAFETY: such addresses may be anything.
    let (from, to) = unsafe { (UserIn::from_raw(inside, 8), UserOut::from_raw(inside, 8)) };
    assert_eq!((from.touch(), to.touch()), (0, 0));
    assert_eq!(from.read(&mut [0; 8]), Err(Fault::Caller));
    assert_eq!(to.write(&[0; 8]), Err(Fault::Caller));
    assert_eq!(to.zero(8), Err(Fault::Caller));
    assert_eq!(to.put(&0_u64), Err(Fault::Caller));
    assert_eq!(region.read_to(0, &to, 8), Err(Fault::Caller));
    assert_eq!(region.stream_from(0, &from, Locality::Near).err(), Some(Fault::Caller));
    // SAFETY: as above; any bytes make a number.
    unsafe {
        assert_eq!(from.value::<u64>(), Err(Fault::Caller));
        assert_eq!(text_length(inside, 100), Err(Fault::Caller));
    }
    // A buffer that runs into it ends there.
    // SAFETY: as above.
    let over = unsafe { UserOut::from_raw(region.base().wrapping_sub(4096), 8192) };
    assert_eq!(over.slice(4095, 2).write(&[0; 2]), Err(Fault::Caller));
    key::close(rights);
    assert!(!reads(&region, SIZE));
    others_by_the_same_key(region);
}

/// Between them is the caller's memory.
fn others_by_the_same_key(region: Region) {
    let mut all = vec![region];
    for _ in 1..16 {
        let other = Region::anonymous(SIZE).unwrap();
        assert!(reads(&other, 0), "another region is as it was");
        other.guard().unwrap();
        assert!(!reads(&other, 0) && !reads(&all[0], 0));
        all.push(other);
    }
    let last = Region::anonymous(SIZE).unwrap();
    assert_eq!(last.guard(), Err(Unguarded::Many));
    let between = Region::anonymous(SIZE).unwrap();
    let rights = key::open();
    for one in &all {
        assert!(reads(one, 8) && one.store64(8, 1).is_ok());
        // SAFETY: as above.
        let inside = unsafe { UserIn::from_raw(one.base().wrapping_add(9), 8) };
        assert_eq!(inside.read(&mut [0; 8]), Err(Fault::Caller));
    }
    for own in [&last, &between] {
        // SAFETY: memory of this test's.
        let outside = unsafe { UserIn::from_raw(own.base(), 8) };
        assert_eq!(outside.read(&mut [0; 8]), Ok(()));
    }
    key::close(rights);
}
