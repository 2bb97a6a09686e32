//! Upkeep: keeps a volume's chunks whole and gives memory back, at the end of a call or when asked.

pub(crate) mod compact;
mod grow;
mod pinning;
mod promotion;
mod rewrite;
mod trim;

use crate::inode::Inode;
use crate::medium::layout::FLAG_ALIGNED;
use crate::open::Opens;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64};
use vfs::{Kind, Node};

/// What is open, and upkeep.
pub struct Upkeep {
    opens: Opens,
    /// Data blocks that this process has moved to empty chunks.
    pub(crate) moved_blocks: AtomicU64,
    /// How many of a million freed blocks may be moved, + 1; 0: as `compact.rs` has it.
    may_move: AtomicU64,
    /// Blocks that it has moved to make files whole (`rewrite.rs`).
    pub(crate) rewritten_blocks: AtomicU64,
    /// A thread of it is moving blocks.
    moving: AtomicBool,
}

impl Deref for Upkeep {
    type Target = Opens;

    #[inline]
    fn deref(&self) -> &Opens {
        &self.opens
    }
}

impl Upkeep {
    pub(crate) fn new(opens: Opens) -> Self {
        Self {
            opens,
            moved_blocks: AtomicU64::default(),
            may_move: AtomicU64::default(),
            rewritten_blocks: AtomicU64::default(),
            moving: AtomicBool::default(),
        }
    }

    /// What every call ends with that may have made upkeep due.
    #[inline]
    pub(crate) fn keep_up(&self) {
        if self.due.is_any() {
            self.do_what_is_due();
        }
    }

    /// Does what calls have noted as due. None of it is about the call that does it: on any error
    /// things stay as they are.
    #[cold]
    fn do_what_is_due(&self) {
        if let Some((ino, chunk)) = self.due.take_filled()
            && let Ok(node) = self.node_in(Inode(ino))
        {
            self.gather_chunk(node, chunk);
        }
        if let Some(ino) = self.due.take_closed()
            && let Ok(node) = self.node_in(Inode(ino))
        {
            self.rewrite_by_the_way(node);
        }
        if let Some(chunk) = self.due.take_sparse() {
            self.empty_sparse_chunk(chunk);
        }
    }

    /// Rewrites a regular file that wishes to be aligned. Where there is no chunk for it now, or a
    /// process has mapped the file, its last close is the next chance.
    pub(crate) fn rewrite_aligned(&self, node: Node) {
        let wishes = self.read_steadily(node, |_, identity| {
            Ok(identity.kind() == Some(Kind::File) && identity.flags & FLAG_ALIGNED != 0)
        });
        if matches!(wishes, Ok(true)) {
            let _ = self.rewrite(node, &mut |_, _| true);
        }
    }
}
