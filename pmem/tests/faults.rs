//! What happens when memory is not there: the region's fault and the caller's are told apart.

use pmem::{Fault, Region, UserIn, UserOut};
use std::os::fd::BorrowedFd;

/// A region whose file has been cut to nothing under its mapping.
fn vanished(len: u64) -> Region {
    let region = Region::anonymous(len).unwrap();
    // SAFETY: the region owns the descriptor and outlives this borrow.
    let fd = unsafe { BorrowedFd::borrow_raw(region.fd()) };
    rustix::fs::ftruncate(fd, 0).unwrap();
    region
}

#[test]
fn a_vanished_region_is_a_region_fault() {
    let region = vanished(1 << 20);
    let mut big = vec![1u8; 8192];
    assert_eq!(region.load64(8), Err(Fault::Region));
    assert_eq!(region.store64(8, 1).map(|_| ()), Err(Fault::Region));
    for len in [1, 3, 7, 8, 15, 16, 33, 64, 65, 129, 256, 4096, 8192] {
        assert_eq!(region.read(5, &mut big[..len]), Err(Fault::Region), "read {len}");
        assert_eq!(region.write(5, &big[..len]).map(|_| ()), Err(Fault::Region), "write {len}");
        assert_eq!(region.stream(64, &big[..len]).map(|_| ()), Err(Fault::Region), "stream {len}");
    }
    let _ = region.flush(0, 1 << 20).fence();
}

#[test]
fn a_bad_address_is_a_caller_fault() {
    let region = Region::anonymous(1 << 20).unwrap();
    for address in [0usize, 0xdead_0000_0000_0000, 8] {
        // SAFETY: these addresses are never mapped.
        let (from, to) = unsafe {
            (
                UserIn::from_raw(address as *const u8, 5000),
                UserOut::from_raw(address as *mut u8, 5000),
            )
        };
        assert_eq!(from.touch(), Err(Fault::Caller));
        assert_eq!(to.touch(), Err(Fault::Caller));
        assert_eq!(to.zero(10), Err(Fault::Caller));
        assert_eq!(region.stream_from(3, &from).map(|_| ()), Err(Fault::Caller));
        assert_eq!(region.read_to(3, &to, 5000), Err(Fault::Caller));
        assert_eq!(region.read_to(3, &to, 64), Err(Fault::Caller));
    }
}
