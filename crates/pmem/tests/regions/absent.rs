//! A region whose pages may lie elsewhere.

use pmem::trace::{Event, Trace};
use pmem::{Access, Hint, Pager, Region};
use rustix::io::Errno;
use std::sync::Arc;

const PAGE: u64 = 4096;

/// Every second page is away, and of three one holds zeros.
struct Odd;

impl Pager for Odd {
    fn mapped(&self, _: usize, _: u64) {}

    fn forked(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn fault(&self, _: u64, _: Access) -> Result<(), Errno> {
        Err(Errno::IO)
    }

    fn is_away(&self, page: u64) -> bool {
        page / PAGE % 2 == 1
    }

    fn is_void(&self, page: u64) -> bool {
        page / PAGE % 3 == 1
    }

    fn is_lost(&self, _: u64) -> bool {
        false
    }

    fn ready(&self, _: &[(u64, u64)], _: Access) {}

    fn advise(&self, _: (u64, u64), _: Hint) {}

    fn discard(&self, _: (u64, u64)) {}

    fn begin(&self) {}

    fn provide(&self, _: (u64, u64)) -> Result<(), Errno> {
        Ok(())
    }

    fn next_data(&self, from: u64) -> u64 {
        from
    }

    fn next_hole(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn barrier(&self) -> Result<(), Errno> {
        Ok(())
    }
}

/// Nothing of it is in a cache here.
#[test]
fn no_line_of_a_page_that_is_away_is_flushed() {
    let trace = Trace::new();
    let mut region = Region::in_memory(vec![0; 4 * PAGE as usize], Some(trace.clone()));
    region.set_pager(Arc::new(Odd));
    let _ = region.flush(PAGE - 64, 2 * PAGE + 128).fence();
    let lines: Vec<u64> = trace
        .take()
        .into_iter()
        .filter_map(|event| match event {
            Event::Flush { line, .. } => Some(line),
            _ => None,
        })
        .collect();
    let of_third = (2 * PAGE..3 * PAGE).step_by(64);
    assert_eq!(lines, std::iter::once(PAGE - 64).chain(of_third).collect::<Vec<_>>());
}

/// To store zeros to them would bring them.
#[test]
fn pages_that_hold_zeros_are_not_touched_to_zero_them() {
    let mut region = Region::in_memory(vec![7; 9 * PAGE as usize], None);
    region.set_pager(Arc::new(Odd));
    for (off, length) in [(100, 6 * PAGE), (PAGE, PAGE), (4 * PAGE + 8, 16), (8 * PAGE, PAGE)] {
        let _ = region.write(0, &vec![7; 9 * PAGE as usize]).unwrap().flush().fence();
        let _ = region.stream_zero(off, length).unwrap().fence();
        let mut found = vec![0; 9 * PAGE as usize];
        region.read(0, &mut found).unwrap();
        for (at, byte) in (0..).zip(&found) {
            // They are left as they are, whatever is in this memory.
            let zeroed = (off..off + length).contains(&at) && at / PAGE % 3 != 1;
            assert_eq!(*byte, if zeroed { 0 } else { 7 }, "{off}+{length}: byte {at}");
        }
    }
    assert!(region.stream_zero(8 * PAGE, 2 * PAGE).is_err(), "beyond the end");
}
