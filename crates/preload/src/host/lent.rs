//! What a child that was to share its parent's memory has written before it ended. It got a copy
//! (see [`crate::door`]); but C libraries have it say in its parent's frame why it could not
//! execute what it was to (`posix_spawn`). So a child that ends without an exec leaves that frame
//! in memory that both share, and the parent, which has waited, takes over what is not as it was.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::entry::pointers::Out;

/// Bytes from the stack pointer on that the parent's frame is looked for in.
const BYTES: usize = 2048;
type Frame = [u8; BYTES];

/// What both share.
struct Page {
    /// 1: the child has ended, and its copy is here.
    is_left: AtomicUsize,
    frame: Frame,
}

/// In a child: the shared page, and the parent's stack pointer; 0: it is none such.
static OWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// What is lent to a child.
pub struct Lent {
    page: *mut Page,
    at: usize,
    before: Frame,
}

impl Lent {
    /// The frame at this stack pointer. `None`: it cannot be read, or there is no memory.
    pub fn new(at: usize) -> Option<Self> {
        let before = Out(at as *mut Frame).value().ok()?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping.
        let page =
            unsafe { mmap_anonymous(std::ptr::null_mut(), size_of::<Page>(), access, flags).ok()? };
        Some(Self { page: page.cast(), at, before })
    }

    /// In the child.
    pub fn give(self) {
        OWN[1].store(self.at, Ordering::Relaxed);
        OWN[0].store(self.page as usize, Ordering::Relaxed);
        std::mem::forget(self);
    }

    /// In the parent, once the child has ended or executes something.
    pub fn take_back(self) {
        // SAFETY: the child that wrote it has ended, or writes nothing.
        let (is_left, frame) =
            unsafe { ((*self.page).is_left.load(Ordering::Acquire), &(*self.page).frame) };
        if is_left != 0 {
            let bytes = frame.iter().zip(&self.before).enumerate();
            for (index, (now, _)) in bytes.filter(|(_, (now, before))| now != before) {
                let _ = Out((self.at + index) as *mut u8).put(*now);
            }
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`.
        let _ = unsafe { munmap(self.page.cast(), size_of::<Page>()) };
    }
}

/// The process ends. If its parent waits for it, it is left what it has written there.
pub fn leave() {
    let [page, at] = [0, 1].map(|index: usize| OWN[index].swap(0, Ordering::Relaxed));
    if page != 0
        && let Ok(frame) = Out(at as *mut Frame).value()
    {
        let page = page as *mut Page;
        // SAFETY: the page that both share; the parent reads it when this process has ended.
        unsafe {
            (*page).frame = frame;
            (*page).is_left.store(1, Ordering::Release);
        }
    }
}
