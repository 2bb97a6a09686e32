//! What a program is told of pages that a domain has lost: that a call gives `EIO` does not say
//! which node had them.

use std::sync::atomic::{AtomicU64, Ordering};

use ddmap::Pagers;

use crate::entry::Inside;

/// The nodes that were told of: a bit each, by the number's last six.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// A call of the program's gives `EIO`. If a page was lost with a node, that is told on standard
/// error, once a node. Nothing may be held, and no call of ours be under way.
#[cold]
pub fn tell() {
    let Some(node) = Pagers::take_lost() else { return };
    let bit = 1 << (node % 64);
    if TOLD.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return;
    }
    let line = {
        let _inside = Inside::new();
        format!(
            "solera: EIO: what was asked for is lost with node {node}; `solera fsck --read-data` \
             says how much of which file is\n"
        )
    };
    // Nothing is done about a message that cannot be written.
    // SAFETY: a buffer of our own, written as the program would write it: the number may be a
    // volume's file.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    let _inside = Inside::new();
    drop(line);
}
