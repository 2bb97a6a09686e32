//! Explicit buffers: memory of which the program says that it is for reading files into, and that
//! nothing pins its pages. A read may map segments into them instead of copying (`pages.rs`).

use crate::pages::{self, Page};
use pmem::UserOut;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use crate::pages::{ATTACHED_MAX, PAGE, attached};

/// Pages of buffers.
static PAGES: AtomicUsize = AtomicUsize::new(0);

fn is_whole(start: usize, length: usize) -> bool {
    start.is_multiple_of(PAGE) && length.is_multiple_of(PAGE) && start.checked_add(length).is_some()
}

/// The pages of buffers that lie in a range, whole.
fn pages(start: usize, length: usize) -> impl Iterator<Item = Page> {
    pages::within(start, length).filter(Page::is_buffer)
}

/// A buffer is there: `length` bytes from `start` on, both multiples of [`PAGE`]. `false`: it
/// cannot be noted, and stays memory like any other.
///
/// # Safety
///
/// They are private anonymous memory of the caller's, to read and write; until [`remove`] nobody
/// maps anything else there, nor changes how it is mapped.
pub unsafe fn add(start: usize, length: usize) -> bool {
    if start == 0 || !is_whole(start, length) {
        return false;
    }
    for page in (start..start + length).step_by(PAGE) {
        let Some(page) = pages::make(page) else {
            remove(start, page - start);
            return false;
        };
        if !page.is_buffer() {
            PAGES.fetch_add(1, Ordering::AcqRel);
        }
        page.be_buffer();
    }
    true
}

/// A buffer goes: its owner unmaps it behind this.
pub fn remove(start: usize, length: usize) {
    for page in pages(start, length) {
        page.be_nobodys();
        PAGES.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Gives a buffer memory of its own where it is attached: what it held there is lost. `false`: the
/// kernel refuses it some.
pub fn detach(start: usize, length: usize) -> bool {
    pages::own(start, length)
}

/// Gives a buffer memory of its own where it is attached, with the bytes that it has. No other
/// thread may store to it meanwhile. `false`: the kernel refuses it some.
pub fn keep(start: usize, length: usize) -> bool {
    pages(start, length).filter(Page::is_attached).all(Page::keep)
}

/// Whether there are buffers at all.
#[inline]
pub(crate) fn any() -> bool {
    PAGES.load(Ordering::Relaxed) != 0
}

/// The page of a buffer that a sink is, whole.
pub(crate) fn page(sink: &UserOut<'_>) -> Option<Page> {
    let start = sink.start() as usize;
    if sink.len() != PAGE || !start.is_multiple_of(PAGE) || !any() {
        return None;
    }
    pages::at(start).filter(Page::is_buffer)
}
