//! What a process does to its mappings for a touch: in the engine's own, and in the one that was
//! touched.

use crate::paging::pager::RegionPager;
use crate::paging::pagers;
use crate::protocol::{Fault, Host, Installed, Next, PAGE, Shown, ToInstall};
use crate::shared_memory::counters::Touch;
use crate::shared_memory::maps::PagedMapping;
use crate::shared_memory::view::{Mapper, View};
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::Ordering;

thread_local! {
    /// A page was to be shown where no mapping is that is served.
    static NOT_OURS: Cell<bool> = const { Cell::new(false) };
    /// How this thread's touch is served, as far as that is known.
    static KIND: Cell<Option<Touch>> = const { Cell::new(None) };
}

/// A touch is served in this way; `None`: another one begins.
pub(super) fn serves_as(kind: Option<Touch>) {
    KIND.set(kind);
}

/// How this thread's touch is served, if more was to be done than to map its page.
pub(super) fn served_as() -> Option<Touch> {
    KIND.get()
}

/// How a touch was served.
pub(super) fn kind() -> Touch {
    KIND.get().unwrap_or(Touch::Minor)
}

/// A touch is served in this way, if it takes no message.
fn is_of(kind: Touch) {
    KIND.set(KIND.get().or(Some(kind)));
}

/// A touch is to be served.
pub(super) fn begin() {
    NOT_OURS.set(false);
}

/// Whether it has turned out since that the touch is of no mapping that is served.
pub(super) fn was_not_ours() -> bool {
    NOT_OURS.replace(false)
}

/// The hands of the process, at the mapping that was touched.
pub(super) struct ProcessMapper<'p> {
    pager: &'p RegionPager,
    /// The page that was touched, and the mapping, if it is not the engine's own.
    touched: (u64, Option<PagedMapping>),
    /// Pages that were put into the file together: the first one, and how many.
    laid: Cell<(u64, u64)>,
}

impl<'p> ProcessMapper<'p> {
    pub(super) fn new(pager: &'p RegionPager, page: u64, map: Option<PagedMapping>) -> Self {
        Self { pager, touched: (page, map), laid: Cell::new((0, 0)) }
    }

    fn own(&self, page: u64) -> usize {
        self.pager.main.0.load(Ordering::Relaxed) + (page * PAGE) as usize
    }

    /// Puts the pages of so many faults, whose pages and bytes follow each other, into the file by
    /// one call. What does not get there so, each fault finds to be done by itself, with its
    /// reason.
    ///
    /// CRASH: all are claimed. What is in the file came whole, as if by itself.
    pub(super) fn lay(&self, first: &Fault<usize>, count: usize, buffer: &[u8]) {
        let found = first.to_install().filter(|_| count > 1);
        let Some(ToInstall { bytes, is_clean }) = found else { return };
        let (page, length) = (first.page(), count * PAGE as usize);
        let (uffd, own) = (&self.pager.uffd, self.own(page));
        let (done, _) = if let Some(at) = bytes {
            uffd.install_run(own, &buffer[*at..*at + length], is_clean)
        } else {
            is_of(Touch::Local);
            uffd.install_zeros(own, length as u64)
        };
        self.laid.set((page, done / PAGE));
    }

    /// Maps a page that has come, if it is the one that was touched. Others are mapped when nobody
    /// changes a mapping (`fault_around.rs`).
    fn show_touched(&self, page: u64, is_clean: bool) {
        let (touched, map) = self.touched;
        let map = map.filter(|_| page == touched);
        if let Some((map, at)) = map.and_then(|map| Some((map, map.address_of(page)?))) {
            // If the program has unmapped it meanwhile, that is its answer.
            let _ = self.pager.uffd.show(at, PAGE, is_clean && map.shared);
        }
        pagers::mapped_one();
    }
}

impl Mapper for ProcessMapper<'_> {
    fn install(&self, page: u64, bytes: Option<&[u8]>, is_clean: bool) -> Installed {
        let (first, count) = self.laid.get();
        if (first..first + count).contains(&page) {
            self.show_touched(page, is_clean);
            return Installed::Whole;
        }
        let (uffd, own) = (&self.pager.uffd, self.own(page));
        let installed = if let Some(bytes) = bytes {
            uffd.install(own, bytes, is_clean)
        } else {
            is_of(Touch::Local);
            uffd.install_zeros(own, PAGE).1
        };
        match installed {
            Ok(()) => {
                self.show_touched(page, is_clean);
                Installed::Whole
            }
            Err(Errno::EXIST) => Installed::Exists,
            Err(_) => Installed::NoRoom,
        }
    }

    /// In a private mapping a store copies the page, and nothing is stored to it: there it is never
    /// protected for being clean.
    fn show(&self, page: u64, is_clean: bool, stores: bool) -> Shown {
        let at = self.touched.1.map_or(Some(self.own(page)), |map| map.address_of(page));
        let Some(at) = at else { return Shown::Mapped };
        let is_private = self.touched.1.is_some_and(|map| !map.shared);
        match self.pager.uffd.show(at, PAGE, is_clean && !is_private) {
            // What lies there may be another page by now, of which the file has a hole.
            Err(Errno::FAULT) if !self.pager.ground.is_in_file(page) => Shown::Hole,
            Err(Errno::NOENT) => {
                NOT_OURS.set(true);
                Shown::Mapped
            }
            // Another thread has mapped it for its own load: if this opened it, stores would get
            // through to a page that is clean.
            Err(Errno::EXIST) if !stores && !is_private => Shown::Mapped,
            Err(Errno::EXIST) => {
                is_of(Touch::Protect);
                // Gone: the program has unmapped it, and will hear that from the kernel.
                let _ = self.pager.uffd.protect(at, PAGE, true);
                Shown::Mapped
            }
            Ok(()) => {
                pagers::mapped_one();
                Shown::Mapped
            }
            Err(_) => Shown::Mapped,
        }
    }

    fn protect(&self, _: u64, _: u64) {
        unreachable!("a program evicts nothing");
    }
}

/// Whether two faults' pages can be put into the file by one call.
pub(super) fn in_a_row(one: &Fault<usize>, next: &Fault<usize>) -> bool {
    next.page() == one.page() + 1
        && match (one.to_install(), next.to_install()) {
            (Some(one), Some(next)) if one.is_clean == next.is_clean => {
                match (one.bytes, next.bytes) {
                    (None, None) => true,
                    (Some(one), Some(next)) => *next == *one + PAGE as usize,
                    _ => false,
                }
            }
            _ => false,
        }
}

/// Takes steps until a fresh page is to be installed; `false`: it will not be. A claimed page is
/// named no more.
pub(super) fn prepare_fresh(fault: &mut Fault<usize>, view: &View<'_, ProcessMapper<'_>>) -> bool {
    while fault.to_install().is_none() {
        match fault.step(view) {
            Next::Step => {}
            // It is fresh no more.
            Next::Ask(..) => fault.unanswered(),
            _ => return false,
        }
    }
    view.unname();
    true
}

/// Takes the last steps of a fresh page.
pub(super) fn end_fresh(fault: &mut Fault<usize>, view: &View<'_, ProcessMapper<'_>>) {
    while fault.step(view) == Next::Step {}
}
