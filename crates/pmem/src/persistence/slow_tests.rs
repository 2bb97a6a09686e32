//! A slowed region does what any other does, and what reaches its medium takes its time.

use crate::persistence::locality::Locality;
use crate::region::Region;
use crate::region::source::Class;
use emulation::{Model, SlowMemory};
use memory::faults::user_memory::{Fault, UserIn, UserOut};
use std::time::{Duration, Instant};

/// The busy words of these tests.
const BUSY: u64 = 64;
const SIZE: u64 = 2 << 20;

fn model(text: &str) -> Model {
    text.parse().unwrap()
}

fn slowed(text: &str) -> Region {
    let mut region = Region::anonymous(SIZE).unwrap();
    region.set_class(Class::CacheLine);
    region.slow_down(model(text), Some(BUSY)).unwrap();
    region
}

fn busy(region: &Region) -> [u64; 2] {
    [BUSY, BUSY + 8].map(|off| region.load64(off).unwrap())
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + (at >> 8) * 7 + 1) as u8).collect()
}

#[test]
fn every_copy_moves_what_it_should() {
    let (slow, quick) = (slowed("0/1000,0/1000"), Region::anonymous(SIZE).unwrap());
    for (off, len) in [
        (4096, 0),
        (4096, 1),
        (4099, 61),
        (4096, 64),
        (4104, 640),
        (4100, 4096),
        (4096, 600_000),
        (262_143, 262_200),
        (262_136, 524_304),
    ] {
        let (at, from) = (off + 1, bytes(len as usize));
        for region in [&slow, &quick] {
            let read = |off| {
                let mut found = vec![0; from.len()];
                region.read(off, &mut found).unwrap();
                found
            };
            let _ = region.stream(off, &from).unwrap().fence();
            assert!(read(off) == from, "stream {len} at {off}");
            let _ = region.stream_zero(off, len).unwrap().fence();
            assert!(read(off).iter().all(|byte| *byte == 0), "zero {len} at {off}");
            let _ = region.stream_from(off, &UserIn::new(&from), Locality::Near).unwrap().fence();
            let mut found = vec![0; from.len()];
            region.read_to(off, &UserOut::new(&mut found), from.len()).unwrap();
            assert!(found == from, "stream from, and read to {len} at {off}");
            found.fill(0);
            region.read_near(off, &UserOut::new(&mut found), from.len()).unwrap();
            assert!(found == from, "read near {len} at {off}");
            for off in [off, at] {
                let _ = region.stream_zero(off, len).unwrap().fence();
                let (_, crc) =
                    region.stream_checksummed(off, &UserIn::new(&from), Locality::Near).unwrap();
                assert_eq!(crc, crc32c::crc32c(&from), "summed {len} at {off}");
                assert!(read(off) == from, "summed {len} at {off}");
            }
            let _ = region.copy(at, at + SIZE / 2, len).unwrap().fence();
            assert!(read(at + SIZE / 2) == from, "copied {len} at {at}");
            let _ = region.write(off, &from).unwrap().flush().fence();
            assert!(read(off) == from, "written {len} at {off}");
        }
    }
    let line = [7; 64];
    let _ = slow.write_line(4096, &line).unwrap().fence();
    let mut found = [0; 64];
    slow.read(4096, &mut found).unwrap();
    assert_eq!(found, line);
}

#[test]
fn a_range_outside_is_refused_as_ever() {
    let slow = slowed("cxl");
    let mut to = [0; 128];
    assert_eq!(slow.read(SIZE - 100, &mut to), Err(Fault::Region));
    assert_eq!(slow.read_to(SIZE - 100, &UserOut::new(&mut to), 128), Err(Fault::Region));
    assert_eq!(slow.read_to(0, &UserOut::new(&mut to), 129), Err(Fault::Caller));
    assert_eq!(slow.stream(u64::MAX, &to).unwrap_err(), Fault::Region);
    assert_eq!(slow.stream_zero(SIZE, 1).unwrap_err(), Fault::Region);
    assert_eq!(slow.copy(SIZE - 8, 0, 16).unwrap_err(), Fault::Region);
    assert_eq!(slow.write_line(8, &[0; 64]).unwrap_err(), Fault::Region);
    let _ = slow.flush(SIZE, 64).fence();
    let _ = slow.flush(SIZE - 64, u64::MAX).fence();
    // SAFETY: an address that is not mapped.
    let nowhere = unsafe { UserIn::from_raw(std::ptr::without_provenance(64), 4096) };
    assert_eq!(slow.stream_from(0, &nowhere, Locality::Near).unwrap_err(), Fault::Caller);
}

/// At a byte in a nanosecond. That it takes no longer than that is no test's to say.
#[test]
fn what_reaches_the_medium_takes_its_time() {
    let slow = slowed("0/1,0/1");
    let from = bytes(300_000);
    let mut to = bytes(300_000);
    let took = |what: &str, ns: u64, act: &mut dyn FnMut()| {
        let start = Instant::now();
        act();
        // The counter's rate was measured.
        let least = Duration::from_nanos(ns - ns / 100);
        assert!(start.elapsed() >= least, "{what}: {:?}, not {least:?}", start.elapsed());
    };
    took("read", 300_000, &mut || slow.read(4096, &mut to).unwrap());
    took("read to", 300_000, &mut || {
        slow.read_to(4096, &UserOut::new(&mut to), 300_000).unwrap();
    });
    took("read near", 300_000, &mut || {
        slow.read_near(4096, &UserOut::new(&mut to), 300_000).unwrap();
    });
    took("stream", 300_000, &mut || drop(slow.stream(4096, &from).unwrap()));
    took("zero", 300_000, &mut || drop(slow.stream_zero(4096, 300_000).unwrap()));
    took("copy", 300_000, &mut || drop(slow.copy(4096, SIZE / 2, 300_000).unwrap()));
    for off in [4096, 4097] {
        took("stream from", 300_000, &mut || {
            drop(slow.stream_from(off, &UserIn::new(&from), Locality::Near).unwrap());
        });
        took("sum", 300_000, &mut || {
            drop(slow.stream_checksummed(off, &UserIn::new(&from), Locality::Near).unwrap());
        });
    }
    let mut dirty = Some(slow.write(4096, &from).unwrap());
    took("flush", 300_000, &mut || {
        let _ = dirty.take().unwrap().flush();
    });
    took("a line", 256, &mut || drop(slow.write_line(4096, &[0; 64]).unwrap()));
}

#[test]
fn a_long_read_takes_what_the_model_says() {
    let region = Region::anonymous(64 << 20).unwrap();
    region.slow_down(model("cxl-ssd"), Some(BUSY)).unwrap();
    let (mut to, start) = (vec![0; 64 << 20], Instant::now());
    region.read_to(0, &UserOut::new(&mut to), 64 << 20).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(16), "64 MiB by 4 GB/s: 16.8 ms");
}

#[test]
fn what_lies_in_a_cache_is_not_slowed() {
    let slow = slowed("cxl-ssd");
    let mut line = [0; 64];
    let _ = slow.store64(4096, 1).unwrap();
    let _ = slow.write(4096, &bytes(4096)).unwrap();
    slow.load64(4096).unwrap();
    slow.read(4096, &mut line).unwrap();
    slow.shared_read(4096, &mut bytes(4096)).unwrap();
    slow.shared_write(4096, &line).unwrap();
    slow.shared_zero(4096, 4096).unwrap();
    slow.shared_add(4096, 1).unwrap();
    slow.span::<8>(4096).unwrap().words().unwrap();
    slow.prefetch_all(4096, 4096);
    assert_eq!(busy(&slow), [0, 0]);
    slow.read(4096, &mut [0; 65]).unwrap();
    let [reads, writes] = busy(&slow);
    assert!(reads > 0 && writes == 0);
    let _ = slow.flush(4096, 1);
    assert_eq!(busy(&slow)[0], reads);
    assert!(busy(&slow)[1] > 0);
}

#[test]
fn caches_that_are_durable_take_no_flush() {
    let mut region = Region::anonymous(SIZE).unwrap();
    region.set_class(Class::Byte);
    region.slow_down(model("cxl"), Some(BUSY)).unwrap();
    let _ = region.write(4096, &[1; 4096]).unwrap().flush().fence();
    assert_eq!(busy(&region), [0, 0]);
}

#[test]
fn words_for_the_bandwidth_must_be_words() {
    let region = Region::anonymous(SIZE).unwrap();
    for off in [4, SIZE - 8, SIZE, u64::MAX - 7] {
        assert_eq!(region.slow_down(model("cxl"), Some(off)), Err(Fault::Region), "{off}");
    }
    region.slow_down(Model::DRAM, Some(4)).unwrap();
    assert!(region.slow_memory().is_none(), "nothing is slowed");
    region.slow_down(model("cxl"), Some(SIZE - 16)).unwrap();
    region.slow_down(model("cxl-ssd"), None).unwrap();
    assert_eq!(region.slow_memory().map(SlowMemory::model), Some(model("cxl")), "the first one");
}

#[test]
fn a_private_region_uses_words_of_its_own() {
    let region = Region::in_memory(vec![0xff; SIZE as usize], None);
    region.slow_down(model("cxl"), Some(BUSY)).unwrap();
    let mut to = vec![0; 4096];
    region.read_to(8192, &UserOut::new(&mut to), 4096).unwrap();
    assert!(to.iter().all(|byte| *byte == 0xff));
    assert_eq!(busy(&region), [u64::MAX, u64::MAX]);
}

#[test]
fn a_region_that_grows_stays_slow() {
    let path = std::env::temp_dir().join(format!("solera-slowed-{}", std::process::id()));
    let options = crate::OpenOptions {
        write: true,
        reserve: SIZE,
        force_class: Some(Class::Volatile),
        ..crate::OpenOptions::default()
    };
    let region = Region::create_with(&path, SIZE, 0o600, true, &options).unwrap();
    region.slow_down(model("cxl"), Some(BUSY)).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(2 * SIZE).unwrap();
    assert_eq!(region.extend().unwrap(), 2 * SIZE);
    std::fs::remove_file(&path).unwrap();
    region.read(SIZE, &mut [0; 4096]).unwrap();
    assert!(busy(&region)[0] > 0);
}
