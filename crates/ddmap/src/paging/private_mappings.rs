//! A process's private mappings of a region: a list in memory of its own, so that a forked child
//! has it as it was at the fork, as it has the mappings, whatever its parent does meanwhile.
//!
//! A child inherits private mappings, with the pages that are their own, but no registration: where
//! it touched one that is not registered, the kernel would fill the hole in the page file by zeros.
//! So a child registers those that are listed, and nothing else: where its parent's mapping has no
//! pages of the region yet (holes of a file), it has none, either, whatever the file has by now.
//!
//! So it is with mappings that are moved (`mremap`), which lose their registration, too.
//!
//! Locks: the list's, for a moment. In a child nobody else has it.

use crate::paging::pager::RegionPager;
use crate::protocol::PAGE;
use crate::shared_memory::fork_lock::ForkLock;
use crate::shared_memory::maps::PagedMapping;
use os::interrupt::system_call;
use rustix::io::Errno;
use std::ops::Range;

/// The list.
pub(super) struct Private(ForkLock<Vec<PagedMapping>>);

impl Default for Private {
    fn default() -> Self {
        Self(ForkLock::new(Vec::new()))
    }
}

fn addresses(map: &PagedMapping) -> Range<usize> {
    map.start..map.start + (map.pages * PAGE) as usize
}

/// The part of a mapping that lies in a range of addresses.
pub(super) fn part(map: &PagedMapping, range: &Range<usize>) -> Option<PagedMapping> {
    let all = addresses(map);
    let (start, end) = (all.start.max(range.start), all.end.min(range.end));
    let page = map.page_at(start)?;
    let pages = end.saturating_sub(start) as u64 / PAGE;
    (pages > 0).then_some(PagedMapping { start, page, pages, ..*map })
}

impl Private {
    /// A mapping was made.
    pub(super) fn mapped(&self, map: PagedMapping) {
        self.unmapped(addresses(&map));
        if !map.shared {
            self.0.lock().push(map);
        }
    }

    /// What lay in a range of addresses is there no more.
    pub(super) fn unmapped(&self, range: Range<usize>) {
        let mut list = self.0.lock();
        if list.iter().all(|map| part(map, &range).is_none()) {
            return;
        }
        let left = |map: &PagedMapping| {
            let around = [0..range.start, range.end..usize::MAX];
            around.map(|side| part(map, &side)).into_iter().flatten().collect::<Vec<_>>()
        };
        *list = list.iter().flat_map(left).collect();
    }

    /// What lies in a range of addresses.
    fn within(&self, range: &Range<usize>) -> Vec<PagedMapping> {
        self.0.lock().iter().filter_map(|map| part(map, range)).collect()
    }

    /// In a forked child, as soon as it may allocate: what it has inherited.
    fn forked(&self) -> Vec<PagedMapping> {
        let list = self.0.get().try_lock().map(|list| list.clone()).unwrap_or_default();
        self.0.renew(Vec::new());
        list
    }
}

impl RegionPager {
    /// In a forked child: registers what it has inherited.
    pub(super) fn inherit(&self) -> Result<(), Errno> {
        for map in self.private.forked() {
            match self.map(map) {
                // The program has said that children do not inherit it.
                Err(Errno::INVAL) if !is_mapped(map.start) => {}
                registered => registered?,
            }
        }
        Ok(())
    }

    /// What lay in a range of addresses lies at another place now, with its pages, and is not
    /// registered there. Nobody may touch it meanwhile.
    pub(super) fn moved(&self, range: &Range<usize>, to: usize) -> Result<(), Errno> {
        let parts = self.private.within(range);
        self.forget(range.start, range.len());
        self.forget(to, range.len());
        for part in parts {
            self.map(PagedMapping { start: to + (part.start - range.start), ..part })?;
        }
        Ok(())
    }
}

fn is_mapped(page: usize) -> bool {
    let mut there = 0_u8;
    let arguments = [page, PAGE as usize, (&raw mut there) as usize, 0, 0, 0];
    // SAFETY: one byte of our own for one page.
    unsafe { system_call(libc::SYS_mincore, arguments) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_out_leaves_both_ends_and_shared_mappings_are_not_listed() {
        let list = Private::default();
        let at = |page: usize| 0x10_0000 + page * 4096;
        let whole = PagedMapping {
            start: at(0),
            page: 7,
            pages: 16,
            shared: false,
            stays: false,
            writes: false,
        };
        list.mapped(whole);
        list.mapped(PagedMapping {
            start: at(2),
            page: 90,
            pages: 3,
            shared: true,
            stays: true,
            writes: false,
        });
        let ends = [
            PagedMapping { pages: 2, ..whole },
            PagedMapping { start: at(5), page: 12, pages: 11, ..whole },
        ];
        assert_eq!(list.within(&(0..usize::MAX)), ends);
        let cut = PagedMapping { start: at(4), page: 40, pages: 2, ..whole };
        list.mapped(cut);
        assert_eq!(
            list.within(&(at(1)..at(6))),
            [PagedMapping { start: at(1), page: 8, pages: 1, ..whole }, cut]
        );
        list.unmapped(0..usize::MAX);
        assert_eq!(list.forked(), []);
    }
}
