//! On which of the machine's memory nodes a region's pages lie, as the kernel tells.

use crate::region::Region;
use std::ffi::{c_int, c_void};

/// A page, as the kernel counts them here.
const PAGE: u64 = 4096;

impl Region {
    /// The memory node of the page that holds this byte; `None` if the page has no memory yet, or
    /// the kernel does not tell (it does for memory, not for every device).
    pub fn memory_node(&self, off: u64) -> Option<u32> {
        let page: *const c_void = self.range(off / PAGE * PAGE, 1).ok()?.cast_const().cast();
        let mut status: c_int = -1;
        let none: *const c_int = std::ptr::null();
        // SAFETY: one page of this region's mapping and one status, both alive; without nodes to
        // move to nothing moves, and the page is not accessed.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                1_usize,
                &raw const page,
                none,
                &raw mut status,
                0,
            )
        };
        u32::try_from(status).ok().filter(|_| asked == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_in_use_has_a_node_and_one_that_was_never_touched_has_none() {
        let region = Region::anonymous(64 << 20).unwrap();
        let _ = region.store64(5 << 20, 1).unwrap();
        // Kernels without NUMA do not know the call.
        let known = region.memory_node(5 << 20);
        assert!(known.is_none_or(|node| node < 64), "{known:?}");
        assert_eq!(region.memory_node(40 << 20), None);
        assert_eq!(region.memory_node(64 << 20), None, "outside");
    }
}
