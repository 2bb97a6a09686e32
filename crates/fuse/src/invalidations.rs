//! What the kernel is told to drop from its page cache, and the answers that wait for that.
//!
//! The kernel drops the pages that a `write` call changes before it asks for the write: it takes
//! them out of the page tables of the processes that map them, and flushes the processors'
//! translations. While another drop goes on this is not enough (Linux 6.18): that one has taken
//! pages out of the page tables already, and gathers the flushes of many; the write finds its page
//! mapped nowhere and flushes nothing. The call would return, and its program still load the old
//! bytes through its mapping. LMDB reads what it has written in this way, and lost keys.
//!
//! So the answer to a write that was served during a drop of its file's pages is held until the
//! drop is over. A thread never waits for it: the kernel may need the thread, to write back what
//! was stored in the pages. For the same reason an answer to a write-back is never held, nor any
//! other one: while it waits for that of a `SETATTR`, the kernel sends no write-backs.
//!
//! Locks: `held`, under no call.

use std::mem::take;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::nodes::lock;
use crate::session::send;

/// An answer, and where its request came from.
struct Held {
    device: Arc<OwnedFd>,
    message: Vec<u8>,
}

/// The drop that goes on, if any: one at a time.
#[derive(Default)]
pub struct Invalidations {
    /// The file whose pages are dropped, as the kernel numbers it. 0: none.
    number: AtomicU64,
    held: Mutex<Vec<Held>>,
}

impl Invalidations {
    /// The kernel drops pages of a file while `act` runs, on the watching thread.
    pub fn during(&self, number: u64, act: impl FnOnce()) {
        self.number.store(number, Ordering::SeqCst);
        act();
        let held = {
            let mut held = lock(&self.held);
            self.number.store(0, Ordering::SeqCst);
            take(&mut *held)
        };
        for Held { device, message } in held {
            send(&device, &message);
        }
    }

    /// Answers a `write` call on a file, when its pages are not being dropped.
    ///
    /// A drop that begins behind the look is none of this call's: the kernel dropped the call's
    /// pages before it asked.
    pub fn answer(&self, number: u64, device: &Arc<OwnedFd>, message: &[u8]) {
        if self.number.load(Ordering::SeqCst) == number {
            let mut held = lock(&self.held);
            if self.number.load(Ordering::SeqCst) == number {
                held.push(Held { device: Arc::clone(device), message: message.to_vec() });
                return;
            }
        }
        send(device, message);
    }
}
