//! Files that are pinned to a memory node, and how what they have is brought there (`space/numa.rs`
//! has the nodes).
//!
//! Locks: the inode's.

use crate::Result;
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS};
use crate::space::numa::{PINNED_SHIFT, pinned};
use crate::upkeep::Upkeep;
use rustix::io::Errno;
use vfs::{Kind, Node};

impl Upkeep {
    /// The node to which a regular file is pinned.
    pub fn node(&self, node: Node) -> Result<Option<u32>> {
        self.read_steadily(node, |_, identity| match identity.kind() {
            Some(Kind::File) => Ok(pinned(identity.flags)),
            _ => Err(Errno::INVAL),
        })
    }

    /// Pins a regular file to a node: what it is given from now on lies there as long as there is
    /// room. What it has stays where it is. `EINVAL`: no regular file, or no such node.
    pub fn set_node(&self, node: Node, to: Option<u32>) -> Result<()> {
        if to.is_some_and(|to| to >= self.nodes()) {
            return Err(Errno::INVAL);
        }
        let mut op = self.begin()?;
        op.lock(&[self.inode_of(node)?])?;
        let mut held = self.held(node)?;
        if held.identity.kind() != Some(Kind::File) {
            return Err(Errno::INVAL);
        }
        op.work()?;
        held.touch();
        let kept = held.identity.flags & ((1 << PINNED_SHIFT) - 1);
        let word = to.map_or(0, |to| (to as u16 + 1) << PINNED_SHIFT);
        held.identity.flags = kept | word;
        self.commit_held(&mut op, &[&held], &[], &[])?;
        op.end()
    }

    /// Brings what a pinned file has to its node. `each` is told how many bytes of the file are
    /// done, of how many, and stops it by `false`. Gives the bytes moved. `EBUSY`: some process has
    /// mapped it; `ENOSPC`: there is no room on the node, what was moved stays there. As
    /// [`Upkeep::rewrite`] otherwise.
    pub fn bring_home(&self, node: Node, each: &mut dyn FnMut(u64, u64) -> bool) -> Result<u64> {
        let Some(to) = self.node(node)? else { return Ok(0) };
        let size = self.read_steadily(node, |inode, _| Ok(self.current(inode)?.size))?;
        let (mut at, mut moved) = (0, 0);
        while at * BLOCK < size && each(at * BLOCK, size) {
            moved += self.move_part(node, at, to)? * BLOCK;
            at += CHUNK_BLOCKS;
        }
        each(size, size);
        Ok(moved)
    }
}
