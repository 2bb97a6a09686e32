//! Requests about names: lookup, creation, removal, renaming, listing.
//!
//! The kernel has checked permissions (`default_permissions`) against attributes that it asked for
//! just before. The server sets the owner: a new node belongs to the caller, or to its directory's
//! group where that has the set-group bit.

use vfs::{
    EntryName, Errno, FileSystemExt, Kind, NewNode, Node, Open, OpenFlags, RACES_MAX, Removes,
    RenameFlags, Result,
};
use zerocopy::IntoBytes;

use crate::abi::{
    CreateIn, Dirent, EntryOut, LinkIn, MkdirIn, MknodIn, OpenOut, ROOT, ReadIn, Rename2In,
    RenameIn,
};
use crate::attrs::to_kernel;
use crate::files::{self, handle_of};
use crate::nodes::PATIENCE_FOR_SPACE;
use crate::request::{Answer, Request};
use crate::session::Session;

/// Longest target of a symlink.
const TARGET_MAX: usize = 4095;

/// Directory entries are padded to words.
const fn padded(length: usize) -> usize {
    length.next_multiple_of(8)
}

impl Session {
    /// The node that a request is about.
    pub fn node(&self, request: &Request<'_>) -> Result<Node> {
        self.nodes.node(request.header.nodeid)
    }

    /// Tells the kernel of a node.
    fn entry(&self, node: Node) -> Result<EntryOut> {
        let attr = to_kernel(&self.fs.attributes(node)?);
        let nodeid = self.nodes.tell(node);
        Ok(EntryOut { nodeid, generation: node.generation.into(), attr, ..EntryOut::default() })
    }

    /// The kernel forgets.
    pub fn forget(&self, number: u64, lookups: u64) {
        if let Some(desc) = self.nodes.forget(number, lookups) {
            self.nodes.let_go(&*self.fs, desc);
        }
        if self.nodes.node(number).is_err() {
            self.page_cache.forget(number);
        }
    }

    pub fn lookup(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let dir = self.node(request)?;
        let name = request.name()?;
        if request.header.nodeid == ROOT
            && let Some(node) = self.descriptions.name(&*self.fs, &request.header, name)
        {
            return answer.put(&self.entry(node?)?);
        }
        for _ in 0..RACES_MAX {
            let node = self.fs.lookup(dir, name)?;
            let entry = match self.nodes.hold_recent(&*self.fs, node) {
                Ok(first) => {
                    if first {
                        self.wake_watcher();
                    }
                    self.entry(node)
                }
                Err(errno) => Err(errno),
            };
            match entry {
                // Another took its place, and it was the last name.
                Err(Errno::STALE) => {}
                entry => return answer.put(&entry?),
            }
        }
        Err(Errno::STALE)
    }

    pub fn read_link(&self, request: &Request<'_>, answer: &mut Answer) -> Result<()> {
        let node = self.node(request)?;
        let length = self.fs.read_link(node, answer.space(TARGET_MAX)?)?;
        answer.grow(length.min(TARGET_MAX));
        Ok(())
    }

    /// Owner, group and mode of what is to be made in a directory.
    fn new_node(&self, request: &Request<'_>, kind: Kind, mode: u32) -> Result<NewNode<'static>> {
        let parent = self.fs.attributes(self.node(request)?)?;
        let (uid, mut gid, mut mode) = (request.header.uid, request.header.gid, mode & 0o7777);
        if parent.mode & libc::S_ISGID != 0 {
            gid = parent.gid;
            if kind == Kind::Directory {
                mode |= libc::S_ISGID;
            }
        }
        Ok(NewNode { kind, mode, uid, gid, rdev: 0, target: b"" })
    }

    fn make(
        &self,
        request: &Request<'_>,
        name: &[u8],
        new: &NewNode<'_>,
        answer: &mut Answer,
    ) -> Result<()> {
        let dir = self.node(request)?;
        let node = self.with_room(|| self.fs.create(dir, name, new))?;
        answer.put(&self.entry(node)?)
    }

    /// Runs `call` again if it lacked space that is about to be given back.
    pub fn with_room<T>(&self, call: impl Fn() -> Result<T>) -> Result<T> {
        match call() {
            Err(Errno::NOSPC | Errno::NFILE) => {
                self.nodes.end_holds(&*self.fs, PATIENCE_FOR_SPACE);
                call()
            }
            result => result,
        }
    }

    pub fn symlink(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let (name, target) = (request.name()?, request.name()?);
        if target.len() > TARGET_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let new = NewNode { target, ..self.new_node(request, Kind::Symlink, 0o777)? };
        self.make(request, name, &new, answer)
    }

    pub fn make_node(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let MknodIn { mode, rdev, .. } = request.take()?;
        let name = request.name()?;
        let kind = Kind::from_mode(mode).ok_or(Errno::INVAL)?;
        let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let rdev = if device { rdev.into() } else { 0 };
        let new = NewNode { rdev, ..self.new_node(request, kind, mode)? };
        self.make(request, name, &new, answer)
    }

    pub fn make_dir(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let MkdirIn { mode, .. } = request.take()?;
        let name = request.name()?;
        let new = self.new_node(request, Kind::Directory, mode)?;
        self.make(request, name, &new, answer)
    }

    pub fn create(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let CreateIn { flags, mode, .. } = request.take()?;
        let name = request.name()?;
        let new = self.new_node(request, Kind::File, mode)?;
        let dir = self.node(request)?;
        let node = match self.with_room(|| self.fs.create(dir, name, &new)) {
            // Another process made it since the kernel looked: the kernel looks again, and checks
            // permissions.
            Err(Errno::EXIST) if flags as i32 & libc::O_EXCL == 0 => return Err(Errno::STALE),
            made => made?,
        };
        let access = flags;
        let flags = files::open_flags(flags & !(libc::O_TRUNC as u32));
        let desc = self.with_room(|| self.fs.open(node.into(), flags, Some(dir)))?;
        answer.put(&self.entry(node)?)?;
        self.opened(self.nodes.number(node), access);
        answer.put(&OpenOut {
            fh: handle_of(desc),
            open_flags: files::ANSWER_FILE,
            ..OpenOut::default()
        })
    }

    pub fn create_temporary(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let CreateIn { flags, mode, .. } = request.take()?;
        let dir = self.node(request)?;
        let new = self.new_node(request, Kind::File, mode)?;
        let access = flags;
        let excl = OpenFlags(flags as i32 & libc::O_EXCL);
        let flags = OpenFlags(files::open_flags(flags).0 | excl.0);
        let desc = self.with_room(|| self.fs.open(Open::Unnamed(dir, &new), flags, None))?;
        let (node, _) = self.fs.describe(desc)?;
        answer.put(&self.entry(node)?)?;
        self.opened(self.nodes.number(node), access);
        answer.put(&OpenOut {
            fh: handle_of(desc),
            open_flags: files::ANSWER_FILE,
            ..OpenOut::default()
        })
    }

    pub fn link(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let LinkIn { oldnodeid } = request.take()?;
        let node = self.nodes.node(oldnodeid)?;
        self.fs.link(node, self.node(request)?, request.name()?)?;
        answer.put(&self.entry(node)?)
    }

    /// Keeps what a name leads to usable for the kernel while `remove` takes the name.
    fn removing(&self, dir: Node, name: &[u8], remove: impl FnOnce() -> Result<()>) -> Result<()> {
        let path_only = OpenFlags(libc::O_PATH);
        let victim = self.fs.lookup(dir, name).ok();
        let opened = victim.and_then(|node| self.fs.open(node.into(), path_only, None).ok());
        let result = remove();
        let Some(node) = victim else { return result };
        let gone = result.is_ok() && self.fs.attributes(node).is_ok_and(|attr| attr.nlink == 0);
        let kept = gone && self.nodes.keeps_handle(node);
        if let Some(desc) = opened {
            let left = if gone && !kept { self.nodes.hold(node, desc) } else { Some(desc) };
            if let Some(desc) = left {
                // What cannot be closed is dropped when this process ends.
                let _ = self.fs.close(desc);
            }
        }
        result
    }

    pub fn unlink(&self, request: &mut Request<'_>) -> Result<()> {
        let (dir, name) = (self.node(request)?, request.name()?);
        self.removing(dir, name, || self.fs.remove(&EntryName::new(dir, name), Removes::Name))
    }

    pub fn remove_dir(&self, request: &mut Request<'_>) -> Result<()> {
        let (dir, name) = (self.node(request)?, request.name()?);
        self.removing(dir, name, || self.fs.remove(&EntryName::new(dir, name), Removes::Directory))
    }

    pub fn rename(&self, request: &mut Request<'_>, with_flags: bool) -> Result<()> {
        let (to_dir, flags) = if with_flags {
            let Rename2In { newdir, flags, .. } = request.take()?;
            (newdir, flags)
        } else {
            let RenameIn { newdir } = request.take()?;
            (newdir, 0)
        };
        let (from_dir, to_dir) = (self.node(request)?, self.nodes.node(to_dir)?);
        let (from, to) = (request.name()?, request.name()?);
        let mut how = RenameFlags::new(flags);
        let whiteout = flags & libc::RENAME_WHITEOUT != 0;
        if whiteout {
            let left = self.new_node(request, Kind::CharDevice, 0)?;
            how.owner = (left.uid, left.gid);
        }
        let (from, to) = (EntryName::new(from_dir, from), EntryName::new(to_dir, to));
        let rename = || self.fs.rename(&from, &to, how);
        let rename = || if whiteout { self.with_room(rename) } else { rename() };
        if flags & (libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) == 0 {
            self.removing(to_dir, to.name, rename)
        } else {
            rename()
        }
    }

    // ---- listing --------------------------------------------------------------------------------

    /// `plus`: with room for attributes, as the kernel asks for a directory's beginning. It gets
    /// none: they would be as old as the listing, and it asks for each when it needs them.
    pub fn read_dir(
        &self,
        request: &mut Request<'_>,
        answer: &mut Answer,
        plus: bool,
    ) -> Result<()> {
        let ReadIn { offset, size, .. } = request.take()?;
        let head = if plus { size_of::<EntryOut>() } else { 0 };
        let mut failed = Ok(());
        self.fs.read_dir(self.node(request)?, offset as i64, &mut |entry| {
            let length = head + padded(size_of::<Dirent>() + entry.name.len());
            if answer.length() + length > size as usize {
                return false;
            }
            let kind = entry.kind.d_type().into();
            let place = (entry.ino, entry.cookie, kind);
            if plus {
                failed = answer.put(&EntryOut::default());
            }
            failed = failed.and_then(|()| put_entry(answer, place, entry.name));
            failed.is_ok()
        })?;
        failed
    }
}

fn put_entry(answer: &mut Answer, (ino, cookie, kind): (u64, i64, u32), name: &[u8]) -> Result<()> {
    let head = Dirent { ino, off: cookie as u64, namelen: name.len() as u32, kind };
    answer.put_bytes(head.as_bytes())?;
    answer.put_bytes(name)?;
    let whole = head.as_bytes().len() + name.len();
    answer.put_bytes(&[0; 8][..padded(whole) - whole])
}
