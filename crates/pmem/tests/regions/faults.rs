//! What happens when memory is not there: the region's fault (`EIO`) and the caller's (`EFAULT`)
//! are told apart, and nothing crashes.

use crate::directory::TestDir;
use pmem::{Fault, Locality, OpenOptions, Region, UserIn, UserOut, text_length};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::os::fd::BorrowedFd;

const SIZE: u64 = 1 << 20;

/// Every path a copy can take: sizes around each routine's limits.
const LENGTHS: [usize; 16] =
    [1, 3, 7, 8, 15, 16, 33, 63, 64, 65, 129, 255, 256, 4095, 4096, 20_000];

/// Cuts the file under a region's mapping.
fn cut(region: &Region, len: u64) {
    // SAFETY: the region owns the descriptor and outlives this borrow.
    let fd = unsafe { BorrowedFd::borrow_raw(region.fd()) };
    rustix::fs::ftruncate(fd, len).unwrap();
}

/// Drops the token: these tests are about faults only.
fn fault<T>(result: Result<T, Fault>) -> Result<(), Fault> {
    result.map(drop)
}

/// A mapping of 8 pages with this protection, never unmapped.
fn pages(prot: ProtFlags) -> *mut u8 {
    // SAFETY: a fresh mapping.
    unsafe { mmap_anonymous(std::ptr::null_mut(), 8 * 4096, prot, MapFlags::PRIVATE) }
        .unwrap()
        .cast()
}

#[test]
fn a_vanished_region_is_the_regions_fault() {
    let region = Region::anonymous(SIZE).unwrap();
    cut(&region, 0);
    let mut bytes = vec![1u8; 20_000];
    assert_eq!(region.load64(8), Err(Fault::Region));
    assert_eq!(fault(region.store64(8, 1)), Err(Fault::Region));
    assert_eq!(fault(region.stream_zero(100, 10_000)), Err(Fault::Region));
    assert_eq!(fault(region.copy(0, 8192, 4096)), Err(Fault::Region));
    for len in LENGTHS {
        let part = &mut bytes[..len];
        assert_eq!(region.read(5, part), Err(Fault::Region), "read {len}");
        assert_eq!(region.read_to(5, &UserOut::new(part), len), Err(Fault::Region), "to {len}");
        assert_eq!(fault(region.write(5, part)), Err(Fault::Region), "write {len}");
        assert_eq!(fault(region.stream(5, part)), Err(Fault::Region), "stream {len}");
        let from = UserIn::new(part);
        assert_eq!(
            fault(region.stream_from(64, &from, Locality::Near)),
            Err(Fault::Region),
            "from {len}"
        );
    }
    assert_eq!(region.shared_load(0), Err(Fault::Region));
    assert_eq!(region.shared_store(0, 1), Err(Fault::Region));
    assert_eq!(region.shared_cas(0, 1, 2), Err(Fault::Region));
    assert_eq!(region.shared_add(0, 1), Err(Fault::Region));
    assert_eq!(region.shared_swap(0, 1), Err(Fault::Region));
    assert_eq!(region.shared_or(0, 1), Err(Fault::Region));
    assert_eq!(region.shared_and(0, 1), Err(Fault::Region));
    assert_eq!(region.shared_zero(0, 9000), Err(Fault::Region));
    assert!(!region.futex_wait(0, 0, None), "there is no word to wait for");
    region.futex_wake(0, 1);
    let _ = region.flush(0, SIZE).fence();
    assert_eq!(Errno::from(Fault::Region), Errno::IO);
}

#[test]
fn a_region_cut_in_the_middle_of_a_copy_is_the_regions_fault() {
    let region = Region::anonymous(SIZE).unwrap();
    cut(&region, 4096);
    let mut bytes = [0u8; 64];
    for before in 1..64 {
        assert_eq!(region.read(4096 - before, &mut bytes), Err(Fault::Region));
        assert_eq!(fault(region.write(4096 - before, &bytes)), Err(Fault::Region));
        assert_eq!(fault(region.stream(4096 - before, &bytes)), Err(Fault::Region));
    }
    assert_eq!(region.read(4096 - 64, &mut bytes), Ok(()));
}

/// The file shrinks and grows under readers and writers: each call ends, in success or in a fault.
#[test]
fn a_region_may_vanish_under_many_threads() {
    let region = Region::anonymous(SIZE).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let faults = std::sync::atomic::AtomicU64::new(0);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (region, done, faults) = (&region, &done, &faults);
            scope.spawn(move || {
                let mut bytes = vec![0u8; 20_000];
                for round in 0.. {
                    let part = &mut bytes[..LENGTHS[round % LENGTHS.len()]];
                    let off = ((round * 4099 + thread * 77) % 1_000_000) as u64;
                    let result = match thread {
                        0 => region.read(off, part),
                        1 => fault(region.stream(off, part)),
                        2 => fault(region.write(off, part)),
                        _ => region.shared_add(off & !7, 1).map(drop),
                    };
                    assert_ne!(result, Err(Fault::Caller));
                    faults.fetch_add(u64::from(result.is_err()), relaxed);
                    if done.load(relaxed) {
                        break;
                    }
                }
            });
        }
        // At least so often, and until a thread has met a cut.
        for round in 0..100_000 {
            if round >= 200 && faults.load(relaxed) > 0 {
                break;
            }
            cut(&region, 0);
            std::thread::yield_now();
            cut(&region, SIZE);
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        done.store(true, relaxed);
    });
    assert!(faults.load(relaxed) > 0);
}

#[test]
fn offsets_out_of_range_are_the_regions_fault() {
    let region = Region::anonymous(4096).unwrap();
    let mut bytes = [0u8; 16];
    for off in [4088, 4089, 4096, 1 << 40, u64::MAX - 7, u64::MAX] {
        assert_eq!(region.read(off, &mut bytes), Err(Fault::Region));
        assert_eq!(fault(region.write(off, &bytes)), Err(Fault::Region));
        assert_eq!(fault(region.stream(off, &bytes)), Err(Fault::Region));
        assert_eq!(fault(region.stream_zero(off, u64::MAX)), Err(Fault::Region));
        assert_eq!(fault(region.copy(off, 0, 16)), Err(Fault::Region));
        assert_eq!(fault(region.copy(0, off, 16)), Err(Fault::Region));
        let _ = region.flush(off, u64::MAX).fence();
    }
    assert_eq!(region.load64(4), Err(Fault::Region), "not aligned");
    assert_eq!(region.load64(4096), Err(Fault::Region));
    assert_eq!(region.load64(4088), Ok(0));
    assert_eq!(region.read(4096, &mut []), Ok(()), "nothing, at the end");
}

#[test]
fn a_bad_address_is_the_callers_fault() {
    let region = Region::anonymous(SIZE).unwrap();
    let protected = pages(ProtFlags::empty()) as usize;
    // The null page, one behind it, one that is no address at all, one without permission.
    for address in [0, 8, 0xdead_0000_0000_0000, protected] {
        for len in LENGTHS {
            // SAFETY: none of these addresses can be reached.
            let (from, to) = unsafe {
                let from = UserIn::from_raw(address as *const u8, len);
                (from, UserOut::from_raw(address as *mut u8, len))
            };
            assert_eq!((from.touch(), to.touch()), (0, 0));
            assert_eq!(from.read(&mut vec![0; len]), Err(Fault::Caller));
            assert_eq!(to.write(&vec![0; len]), Err(Fault::Caller));
            assert_eq!(to.zero(len), Err(Fault::Caller));
            assert_eq!(fault(region.stream_from(3, &from, Locality::Near)), Err(Fault::Caller));
            assert_eq!(fault(region.stream_from(64, &from, Locality::Near)), Err(Fault::Caller));
            assert_eq!(region.read_to(3, &to, len), Err(Fault::Caller));
        }
    }
    assert_eq!(Errno::from(Fault::Caller), Errno::FAULT);
}

#[test]
fn read_only_memory_can_be_a_source_but_no_sink() {
    let region = Region::anonymous(SIZE).unwrap();
    let page = pages(ProtFlags::READ);
    // SAFETY: mapped for reading; writes are what is tested.
    let (from, to) = unsafe { (UserIn::from_raw(page, 9000), UserOut::from_raw(page, 9000)) };
    assert_eq!((from.touch(), to.touch()), (9000, 0));
    assert_eq!(fault(region.stream_from(7, &from, Locality::Near)), Ok(()));
    assert_eq!(region.read_to(7, &to, 9000), Err(Fault::Caller));
}

#[test]
fn touching_finds_the_one_bad_page() {
    let good = pages(ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the last page of the mapping made above.
    unsafe { rustix::mm::munmap(good.add(7 * 4096).cast(), 4096) }.unwrap();
    let gap = 7 * 4096;
    for (start, len, reach) in [(0, gap, gap), (0, gap + 1, gap), (4095, 2, 2), (9, gap, gap - 9)] {
        // SAFETY: mapped but for the page that was unmapped.
        let (from, to) = unsafe {
            (UserIn::from_raw(good.add(start), len), UserOut::from_raw(good.add(start), len))
        };
        assert_eq!((from.touch(), to.touch()), (reach, reach));
    }
    // SAFETY: no byte of it is touched.
    let nothing = unsafe { UserIn::from_raw(std::ptr::null(), 0) };
    assert_eq!(nothing.touch(), 0);
}

/// A text of each length at each place in a block, up to the very end of what can be read.
#[test]
fn texts_are_measured_up_to_the_edge_of_memory() {
    let page = pages(ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: the pages made above, whose second one is taken away.
    let bytes = unsafe {
        rustix::mm::munmap(page.add(4096).cast(), 4096).unwrap();
        std::slice::from_raw_parts_mut(page, 4096)
    };
    let length = |start: usize, max: usize| {
        // SAFETY: mapped or not.
        unsafe { text_length(page.wrapping_add(start), max) }
    };
    for start in (0..40).chain(4040..4096) {
        for len in 0..(4096 - start).min(70) {
            bytes.fill(b'x');
            bytes[start + len] = 0;
            assert_eq!(length(start, 4096), Ok(Some(len)), "{start} {len}");
            assert_eq!(length(start, len + 1), Ok(Some(len)), "{start} {len}");
            assert_eq!(length(start, len), Ok(None), "{start} {len}");
        }
        bytes.fill(b'x');
        bytes[..start].fill(0);
        assert_eq!(length(start, 4096 - start), Ok(None), "{start}");
        assert_eq!(length(start, 4097 - start), Err(Fault::Caller), "{start}");
    }
    for address in [0_usize, 1, 0xdead_0000_0000_0000, usize::MAX] {
        // SAFETY: none of these addresses can be reached.
        assert_eq!(unsafe { text_length(address as *const u8, 4096) }, Err(Fault::Caller));
    }
    // SAFETY: no byte of it is read.
    assert_eq!(unsafe { text_length(std::ptr::null(), 0) }, Ok(None));
}

#[test]
fn touching_for_writing_changes_nothing() {
    let mut bytes = vec![0xa5u8; 3 * 4096];
    assert_eq!(UserOut::new(&mut bytes).touch(), 3 * 4096);
    assert!(bytes.iter().all(|byte| *byte == 0xa5));
}

#[test]
fn slices_are_cut_to_what_there_is() {
    let mut bytes = *b"0123456789";
    let from = UserIn::new(&bytes);
    let lens = [(0, 4), (8, 4), (10, 1), (11, 1), (usize::MAX, usize::MAX)];
    assert_eq!(lens.map(|(start, len)| from.slice(start, len).len()), [4, 2, 0, 0, 0]);
    let mut two = [0; 4];
    from.slice(8, 4).read(&mut two).unwrap();
    assert_eq!(&two, b"89\0\0");
    let to = UserOut::new(&mut bytes);
    assert!(to.slice(10, 1).is_empty());
    to.slice(8, 9).write(b"xyz").unwrap();
    to.slice(1, 5).zero(2).unwrap();
    assert_eq!(&bytes, b"0\x00\x0034567xy");
}

#[test]
fn a_sink_that_is_too_short_is_the_callers_fault() {
    let region = Region::anonymous(4096).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(region.read_to(0, &UserOut::new(&mut bytes), 9), Err(Fault::Caller));
}

/// A program may map a file of the volume and hand the mapping to `read` and `write`.
#[test]
fn the_callers_buffer_may_lie_in_the_region_itself() {
    let region = Region::anonymous(SIZE).unwrap();
    let _ = region.write(0, b"persistent").unwrap().flush().fence();
    // SAFETY: the region's own mapping, which outlives both.
    let (from, to) = unsafe {
        (UserIn::from_raw(region.base(), 8192), UserOut::from_raw(region.base().add(100), 8192))
    };
    let _ = region.stream_from(16_384, &from, Locality::Near).unwrap().fence();
    let _ = region.stream_from(3, &from, Locality::Near).unwrap().fence();
    region.read_to(16_384, &to, 8192).unwrap();
    let mut bytes = [0; 10];
    region.read(100, &mut bytes).unwrap();
    assert_eq!(&bytes, b"persistent");
}

#[test]
fn a_region_opened_for_reading_refuses_stores() {
    let directory = TestDir::in_memory("read-only");
    let path = directory.file("region");
    let region = Region::create(&path, SIZE, 0o600, true).unwrap();
    let reader = Region::open(&path, &OpenOptions::default()).unwrap();
    let _ = region.store64(8, 7).unwrap().flush().fence();
    assert_eq!(reader.load64(8), Ok(7));
    assert!(!reader.writable());
    assert_eq!(fault(reader.store64(8, 8)), Err(Fault::Region));
    assert_eq!(fault(reader.stream(0, &[1; 200])), Err(Fault::Region));
    assert_eq!(reader.shared_add(8, 1), Err(Fault::Region));
}
