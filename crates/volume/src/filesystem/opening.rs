//! How something is opened: found, made, truncated.

use crate::Result;
use crate::medium::call_counters::OPENS;
use crate::medium::layout::{BLOCK, FLAG_LINKABLE};
use crate::namespace::Names;
use crate::namespace::new_inode::inherited;
use crate::open::description::truncates;
use crate::volume::Volume;
use pmem::Access;
use rustix::io::Errno;
use vfs::{Desc, Kind, NewNode, Node, Open, OpenFlags};

impl Volume {
    /// As [`FileSystem::open`], and nobody is told.
    #[expect(clippy::inline_always, reason = "what is asked for stays in registers")]
    #[inline(always)]
    pub(super) fn open_unwatched(
        &self,
        what: Open<'_>,
        flags: OpenFlags,
        place: Option<Node>,
    ) -> Result<Desc> {
        let engine = self.call()?;
        let _exclusive = engine.exclusive();
        engine.counters.one::<OPENS>();
        let desc = match what {
            Open::Node(node, Some(kind)) => self.open_and_truncate(node, kind, flags)?,
            Open::New(at, new) => engine.create_opened(at.dir, at.name, new, flags)?,
            Open::Node(node, None) => self.open_and_truncate(node, engine.kind_of(node)?, flags)?,
            Open::Unnamed(dir, new) => {
                engine.with_orphans_dropped(|| self.make_temporary(dir, new, flags))?
            }
        };
        if let Some(dir) = place
            && !matches!(what, Open::New(..))
        {
            engine.note_directory(desc, dir);
        }
        engine.keep_up();
        Ok(desc)
    }

    /// Opens a node of this kind, and truncates what is to be truncated.
    #[inline]
    fn open_and_truncate(&self, node: Node, kind: Kind, flags: OpenFlags) -> Result<Desc> {
        let engine = self.engine();
        let desc = engine.with_orphans_dropped(|| engine.open_node_as(node, kind, flags))?;
        if truncates(kind, flags) {
            self.truncate_opened(desc, node)?;
        }
        Ok(desc)
    }

    /// What cannot be truncated is not opened either.
    #[cold]
    fn truncate_opened(&self, desc: Desc, node: Node) -> Result<()> {
        let truncate = || self.with_orphans_dropped(|| self.truncate_file(node, 0));
        let first = (node, Access::Store);
        let truncated =
            self.before_change(node).and_then(|()| self.paged_idle(first, || (0, BLOCK), truncate));
        truncated.or_else(|errno| self.close_description(desc).and(Err(errno)))
    }

    fn make_temporary(&self, dir: Node, new: &NewNode<'_>, flags: OpenFlags) -> Result<Desc> {
        let parent = Names::attributes(self, dir)?;
        match parent.kind {
            Kind::Directory if parent.nlink == 0 => return Err(Errno::NOENT),
            Kind::Directory if new.kind == Kind::File => {}
            Kind::Directory => return Err(Errno::INVAL),
            _ => return Err(Errno::NOTDIR),
        }
        let mut op = self.begin()?;
        op.work()?;
        let linkable = if flags.0 & libc::O_EXCL == 0 { FLAG_LINKABLE } else { 0 };
        let passed = self.read_steadily(dir, |_, parent| Ok(inherited(new.kind, parent.flags)))?;
        let node = self.new_unnamed_inode(&mut op, new, linkable | passed)?;
        let desc = self.open_description(node, new.kind, flags, None)?;
        op.end()?;
        Ok(desc)
    }
}
