//! Changes of attributes: one transaction over the identity line, the commit line and the access
//! time.

use crate::Result;
use crate::directory::Store;
use crate::layout::ATIME;
use crate::volume::Volume;
use smallvec::SmallVec;
use vfs::{Node, SetAttr};

/// The bits of a mode that can be changed.
const PERMISSIONS: u32 = 0o7777;

impl Volume {
    /// Changes mode, owner, group and times in one atomic step; the change time moves with them.
    pub(crate) fn set_attr(&self, node: Node, change: &SetAttr) -> Result<()> {
        if *change == SetAttr::default() {
            return self.read_steadily(node, |_, _| Ok(()));
        }
        let mut op = self.begin()?;
        op.lock(&[self.inode_of(node)?])?;
        let mut held = self.held(node)?;
        op.work()?;
        held.touch();
        let identity = &mut held.identity;
        if let Some(mode) = change.mode {
            identity.mode = identity.mode & !PERMISSIONS | mode & PERMISSIONS;
        }
        identity.uid = change.uid.unwrap_or(identity.uid);
        identity.gid = change.gid.unwrap_or(identity.gid);
        if let Some(time) = change.mtime {
            held.commit.mtime = time;
            held.current.mtime = time;
        }
        let mut words: SmallVec<[Store; 1]> = SmallVec::new();
        if let Some(time) = change.atime {
            words.push(Store { at: held.inode.at(ATIME), value: time as u64 });
        }
        op.commit_held(&[&held], &words, &[])?;
        op.end()
    }
}
