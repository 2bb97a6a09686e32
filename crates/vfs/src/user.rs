//! Checks what a user may do, between the path walk and the engine's call.
//!
//! The engine checks no permissions; [`User`] decides first whether the user may, by the kernel's
//! rules and with the kernel's errors, in the kernel's order (existence before permission before
//! kind). Between the check and the call the tree may change; the engine's own checks (`EEXIST`,
//! `ENOTDIR`, `ESTALE` ...) hold whatever happened in between.

use crate::cred::{Capability, Cred, EXECUTE, READ, WRITE};
use crate::walk::{Found, Last, Name, Place, Walk};
use crate::{
    Attr, Desc, EntryName, Errno, FileSystem, FileSystemExt, Kind, NewNode, Node, Open, OpenFlags,
    Removes, RenameFlags, Result, SetAttr,
};

/// How often a name is tried that other processes make and remove at the same time.
pub const RACES_MAX: u32 = 64;

/// The extended attribute in which a file's capabilities are.
pub const FILE_CAPABILITIES: &[u8] = b"security.capability";

/// A user that acts on a tree.
#[derive(Clone, Copy)]
pub struct User<'a> {
    /// The tree and how it is walked.
    pub walk: Walk<'a>,
    /// Permission bits that new nodes do not get.
    pub umask: u32,
}

/// What [`User::open`] led to.
pub enum Opened {
    /// An open file description.
    Here(Desc),
    /// The path went on through a symlink out of the tree: the kernel opens this absolute path.
    Outside(Vec<u8>),
}

/// Whether the name led elsewhere by the time of the open: it is looked up again.
fn is_race(errno: Errno, flags: i32) -> bool {
    let makes = flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT;
    errno == Errno::STALE || errno == Errno::EXIST && makes
}

/// The permissions that it takes to open something.
#[inline]
fn wanted(flags: OpenFlags) -> u32 {
    // Mode 3 is for device control alone, and takes both.
    let neither = flags.0 & libc::O_ACCMODE == libc::O_ACCMODE;
    let mut want = if neither { READ | WRITE } else { 0 };
    if flags.reads() {
        want |= READ;
    }
    if flags.writes() || flags.has(libc::O_TRUNC) {
        want |= WRITE;
    }
    want
}

/// A file that is written to, or that gets another owner, has its capabilities no longer.
pub fn drop_capabilities(fs: &dyn FileSystem, node: Node) -> Result<()> {
    match fs.remove_xattr(node, FILE_CAPABILITIES) {
        // Damaged attributes grant nothing.
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::IO) => Ok(()),
        Err(errno) => Err(errno),
    }
}

impl<'a> User<'a> {
    const fn fs(&self) -> &'a dyn FileSystem {
        self.walk.fs
    }

    const fn cred(&self) -> &'a Cred {
        self.walk.cred
    }

    /// Opens what was found with `O_*` flags; creates it with `mode` if `O_CREAT` asks for it. A
    /// name that another process makes or removes meanwhile is looked up again.
    pub fn open(&self, found: &Found<'_>, flags: i32, mode: u32) -> Result<Opened> {
        match self.open_once(found, flags, mode) {
            Err(errno) if is_race(errno, flags) => self.open_again(found.clone(), flags, mode),
            opened => opened.map(Opened::Here),
        }
    }

    /// Looks the name up again, as often as it changes meanwhile.
    #[cold]
    fn open_again(&self, found: Found<'_>, flags: i32, mode: u32) -> Result<Opened> {
        let mut place = found.into_owned();
        for _ in 0..RACES_MAX {
            let Last::Name(name) = place.last else {
                return Err(Errno::NOENT);
            };
            let follow = flags & libc::O_NOFOLLOW == 0;
            match self.walk.walk(place.at.dir, name.as_bytes(), follow)? {
                Place::Inside(found) => {
                    place = Found { slash: place.slash, ..found.into_owned() };
                }
                Place::Outside(path) => return Ok(Opened::Outside(path)),
            }
            match self.open_once(&place, flags, mode) {
                Err(errno) if is_race(errno, flags) => {}
                opened => return opened.map(Opened::Here),
            }
        }
        Err(Errno::NOENT)
    }

    fn open_once(&self, found: &Found<'_>, flags: i32, mode: u32) -> Result<Desc> {
        let open_flags = OpenFlags(flags);
        if open_flags.has(libc::O_TMPFILE) {
            return self.open_temporary(found, flags, mode);
        }
        if found.slash && open_flags.has(libc::O_CREAT) {
            return Err(Errno::ISDIR);
        }
        let Some(attr) = &found.attr else {
            if !open_flags.has(libc::O_CREAT) {
                return Err(Errno::NOENT);
            }
            return self.open_new(found, flags, mode);
        };
        if open_flags.has(libc::O_CREAT) && found.slash {
            return Err(Errno::ISDIR);
        }
        if open_flags.has(libc::O_CREAT | libc::O_EXCL) {
            return Err(Errno::EXIST);
        }
        if found.slash && attr.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        self.open_node(attr, flags, Some(found.dir))
    }

    /// Opens a node that exists, found in the directory `place`: the checks of kind and permission,
    /// then the engine.
    pub fn open_node(&self, attr: &Attr, flags: i32, place: Option<Node>) -> Result<Desc> {
        let open_flags = OpenFlags(flags);
        if open_flags.has(libc::O_DIRECTORY) && attr.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        if open_flags.path_only() {
            return self.fs().open(Open::Node(attr.node, Some(attr.kind)), open_flags, place);
        }
        match attr.kind {
            Kind::Symlink => return Err(Errno::LOOP),
            Kind::Socket | Kind::CharDevice | Kind::BlockDevice => return Err(Errno::NXIO),
            Kind::Directory if open_flags.has(libc::O_CREAT) || wanted(open_flags) & WRITE != 0 => {
                return Err(Errno::ISDIR);
            }
            Kind::Directory if open_flags.has(libc::O_DIRECT) => return Err(Errno::INVAL),
            _ => {}
        }
        self.may_open(attr, open_flags)?;
        self.fs().open(Open::Node(attr.node, Some(attr.kind)), open_flags, place)
    }

    /// Whether the user may open a node that exists.
    #[inline]
    pub fn may_open(&self, attr: &Attr, flags: OpenFlags) -> Result<()> {
        self.check(attr, wanted(flags))?;
        if flags.has(libc::O_NOATIME) && !self.cred().owns(attr) {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// Creates and opens a regular file.
    fn open_new(&self, found: &Found<'_>, flags: i32, mode: u32) -> Result<Desc> {
        let name = self.new_name(found)?;
        let new = self.new_node(found.dir, Kind::File, mode)?;
        // A new file may be written by its maker whatever its mode says.
        let flags = OpenFlags(flags & !libc::O_TRUNC);
        let at = EntryName::new(found.dir, name.as_bytes());
        self.fs().open(Open::New(&at, &new), flags, Some(found.dir))
    }

    fn open_temporary(&self, found: &Found<'_>, flags: i32, mode: u32) -> Result<Desc> {
        let dir = found.existing()?;
        if dir.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        if !OpenFlags(flags).writes() {
            return Err(Errno::INVAL);
        }
        self.check(&dir, WRITE | EXECUTE)?;
        let new = self.new_node(dir.node, Kind::File, mode)?;
        self.fs().open(Open::Unnamed(dir.node, &new), OpenFlags(flags), Some(found.dir))
    }

    /// Makes a directory, fifo, socket, device node or empty file.
    pub fn make(&self, found: &Found<'_>, kind: Kind, mode: u32, rdev: u64) -> Result<Node> {
        if found.attr.is_some() {
            return Err(Errno::EXIST);
        }
        if found.slash && kind != Kind::Directory {
            return Err(Errno::NOENT);
        }
        let name = self.new_name(found)?;
        // A character device 0:0 is a whiteout, which leads nowhere.
        let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let leads = device && (kind == Kind::BlockDevice || rdev != 0);
        if leads && !self.cred().can(Capability::MakeNode) {
            return Err(self.denied(Errno::PERM));
        }
        let new = NewNode { rdev, ..self.new_node(found.dir, kind, mode)? };
        self.fs().create(found.dir, name.as_bytes(), &new)
    }

    /// Makes a symlink to `target`.
    pub fn symlink(&self, found: &Found<'_>, target: &[u8]) -> Result<Node> {
        if target.is_empty() {
            return Err(Errno::NOENT);
        }
        if found.attr.is_some() {
            return Err(Errno::EXIST);
        }
        if found.slash {
            return Err(Errno::NOENT);
        }
        let name = self.new_name(found)?;
        let owner = self.new_node(found.dir, Kind::Symlink, 0o777)?;
        let new = NewNode { mode: 0o777, target, ..owner };
        self.fs().create(found.dir, name.as_bytes(), &new)
    }

    /// Gives `node` the name that was found free.
    pub fn link(&self, node: Node, found: &Found<'_>) -> Result<()> {
        if found.attr.is_some() {
            return Err(Errno::EXIST);
        }
        if self.fs().attributes(node)?.kind == Kind::Directory {
            return Err(Errno::PERM);
        }
        if found.slash {
            return Err(Errno::NOENT);
        }
        let name = self.new_name(found)?;
        self.fs().link(node, found.dir, name.as_bytes())
    }

    /// `unlink`.
    pub fn unlink(&self, found: &Found<'_>) -> Result<()> {
        let Last::Name(name) = &found.last else {
            return Err(Errno::ISDIR);
        };
        let attr = found.there().map_err(|errno| self.denied(errno))?;
        self.may_delete(found.dir, attr)?;
        if attr.kind == Kind::Directory {
            return Err(self.denied(Errno::ISDIR));
        }
        let victim = Some((attr.node, attr.kind));
        let at = EntryName { dir: found.dir, name: name.as_bytes(), found: victim };
        self.fs().remove(&at, Removes::Name)
    }

    /// `rmdir`.
    pub fn remove_dir(&self, found: &Found<'_>) -> Result<()> {
        let name = match &found.last {
            Last::Name(name) => name,
            Last::Directory { parent: true } => return Err(Errno::NOTEMPTY),
            Last::Directory { parent: false } => {
                let root = found.dir == self.walk.tree.root;
                return Err(if root { Errno::BUSY } else { Errno::INVAL });
            }
        };
        let attr = found.attr.as_ref().ok_or_else(|| self.denied(Errno::NOENT))?;
        self.may_delete(found.dir, attr)?;
        if attr.kind != Kind::Directory {
            return Err(self.denied(Errno::NOTDIR));
        }
        self.fs().remove(&EntryName::new(found.dir, name.as_bytes()), Removes::Directory)
    }

    /// `renameat2`.
    pub fn rename(&self, from: &Found<'_>, to: &Found<'_>, flags: u32) -> Result<()> {
        let (Last::Name(from_name), Last::Name(to_name)) = (&from.last, &to.last) else {
            let is_there = matches!(from.last, Last::Name(_)) && flags == libc::RENAME_NOREPLACE;
            return Err(if is_there { Errno::EXIST } else { Errno::BUSY });
        };
        let moved = from.there().map_err(|errno| self.denied(errno))?;
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        if flags & libc::RENAME_NOREPLACE != 0 && to.attr.is_some() {
            return Err(if exchange { Errno::INVAL } else { Errno::EXIST });
        }
        // Where names are exchanged, what each of them names now counts.
        let there = if exchange { to.attr.as_ref() } else { Some(moved) };
        if to.slash && there.is_some_and(|attr| attr.kind != Kind::Directory) {
            return Err(Errno::NOTDIR);
        }
        self.may_delete(from.dir, moved)?;
        match &to.attr {
            Some(replaced) => self.may_delete(to.dir, replaced)?,
            None if exchange => return Err(Errno::NOENT),
            None => self.may_add(to.dir)?,
        }
        // A directory that changes its parent gets its `..` rewritten.
        if moved.kind == Kind::Directory && from.dir != to.dir {
            self.check(moved, WRITE)?;
        }
        let is = |attr: &Attr| (attr.node, attr.kind);
        let from = EntryName { dir: from.dir, name: from_name.as_bytes(), found: Some(is(moved)) };
        let found = to.attr.as_ref().map(is);
        let to = EntryName { dir: to.dir, name: to_name.as_bytes(), found };
        let mut flags = RenameFlags::new(flags);
        if flags.bits & libc::RENAME_WHITEOUT != 0 {
            let whiteout = self.new_node(from.dir, Kind::CharDevice, 0)?;
            flags.owner = (whiteout.uid, whiteout.gid);
        }
        self.fs().rename(&from, &to, flags)
    }

    /// `chmod`: only the owner; the set-group bit goes unless the owner is in the group.
    pub fn change_mode(&self, node: Node, mode: u32) -> Result<()> {
        let attr = self.fs().attributes(node)?;
        if !self.cred().owns(&attr) {
            return Err(self.denied(Errno::PERM));
        }
        let mut mode = mode & 0o7777;
        if self.cred().loses_group_bit(attr.gid) {
            mode &= !libc::S_ISGID;
        }
        self.fs().set_attr(node, &SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    /// `chown`; `None` keeps. Only a user that has that capability gives files away; an owner may
    /// choose among own groups. The set-id bits of a file go, which is a change of the mode, and
    /// its capabilities. Where nothing is to change, any user may, and the change time moves.
    pub fn change_owner(&self, node: Node, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (attr, cred) = (self.fs().attributes(node)?, self.cred());
        let (own, gives) = (cred.uid() == attr.uid, cred.can(Capability::ChangeOwner));
        let keeps = own && uid.is_none_or(|uid| uid == attr.uid);
        let group = own && gid.is_none_or(|gid| gid == attr.gid || cred.in_group(gid));
        if !gives && (uid.is_some() && !keeps || gid.is_some() && !group) {
            return Err(self.denied(Errno::PERM));
        }
        let mut change = SetAttr { uid, gid, touch: true, ..SetAttr::default() };
        let directory = attr.kind == Kind::Directory;
        let lost = if directory { 0 } else { cred.set_id_bits(&attr) };
        if lost != 0 {
            if !cred.owns(&attr) {
                return Err(self.denied(Errno::PERM));
            }
            let outside = cred.loses_group_bit(gid.unwrap_or(attr.gid));
            let lost = if outside { lost | libc::S_ISGID } else { lost };
            change.mode = Some(attr.mode & !lost);
        }
        self.fs().set_attr(node, &change)?;
        if directory { Ok(()) } else { drop_capabilities(self.fs(), node) }
    }

    /// Before the user changes the contents of a file: the set-id bits go, unless it may keep them,
    /// and the file's capabilities.
    pub fn before_write(&self, node: Node) -> Result<()> {
        let attr = self.fs().attributes(node)?;
        let keeps = self.cred().can(Capability::FileSetId);
        let lost = if keeps { 0 } else { self.cred().set_id_bits(&attr) };
        if lost != 0 {
            let mode = Some(attr.mode & !lost);
            self.fs().set_attr(node, &SetAttr { mode, ..SetAttr::default() })?;
        }
        drop_capabilities(self.fs(), node)
    }

    /// `utimensat`: `now` says that both times become the present, which every user that may write
    /// may do.
    pub fn change_times(&self, node: Node, change: &SetAttr, now: bool) -> Result<()> {
        let attr = self.fs().attributes(node)?;
        if !self.cred().owns(&attr) {
            if !now {
                return Err(self.denied(Errno::PERM));
            }
            self.check(&attr, WRITE)?;
        }
        self.fs().set_attr(node, change)
    }

    /// `truncate` by path.
    pub fn truncate(&self, attr: &Attr, size: u64) -> Result<()> {
        match attr.kind {
            Kind::Directory => return Err(Errno::ISDIR),
            Kind::File => {}
            _ => return Err(Errno::INVAL),
        }
        self.check(attr, WRITE)?;
        if self.fs().is_executed(attr.node)? {
            return Err(Errno::TXTBSY);
        }
        self.fs().truncate(attr.node, size)
    }

    /// The name to be made in a directory that the user may write to.
    fn new_name<'f, 't>(&self, found: &'f Found<'t>) -> Result<&'f Name<'t>> {
        let Last::Name(name) = &found.last else {
            return Err(Errno::EXIST);
        };
        self.may_add(found.dir)?;
        Ok(name)
    }

    /// As [`Cred::check`]; a change where nothing can be changed is `EROFS`.
    #[inline]
    fn check(&self, attr: &Attr, want: u32) -> Result<()> {
        let denied = |errno| if want & WRITE == 0 { errno } else { self.denied(errno) };
        self.cred().check(attr, want).map_err(denied)
    }

    /// The error of a change that is refused: the kernel looks first whether anything can be
    /// changed at all.
    #[cold]
    pub fn denied(&self, errno: Errno) -> Errno {
        let read_only =
            self.fs().stat_fs(self.walk.tree.root.into()).is_ok_and(|stat| stat.read_only);
        if read_only { Errno::ROFS } else { errno }
    }

    /// Whether names may be made in a directory. A user that permission bits do not bind need not
    /// read them: the walk has found that it is a directory.
    fn may_add(&self, dir: Node) -> Result<()> {
        if self.cred().privileged() {
            return Ok(());
        }
        self.check(&self.fs().attributes(dir)?, WRITE | EXECUTE)
    }

    /// Whether a name of `victim` may be taken from a directory; as above.
    fn may_delete(&self, dir: Node, victim: &Attr) -> Result<()> {
        if self.cred().privileged() {
            return Ok(());
        }
        let denied = |errno| self.denied(errno);
        self.cred().check_delete(&self.fs().attributes(dir)?, victim).map_err(denied)
    }

    /// Owner, group and mode of a new node: a set-group directory passes its group on, and a new
    /// directory in it the bit as well.
    fn new_node(&self, dir: Node, kind: Kind, asked: u32) -> Result<NewNode<'static>> {
        let (parent, cred) = (self.fs().attributes(dir)?, self.cred());
        let (mut mode, mut gid) = (asked & 0o7777 & !self.umask, cred.gid());
        if parent.mode & libc::S_ISGID != 0 {
            const RUNS: u32 = libc::S_ISGID | libc::S_IXGRP;
            gid = parent.gid;
            if kind == Kind::Directory {
                mode |= libc::S_ISGID;
            } else if asked & RUNS == RUNS && cred.loses_group_bit(gid) {
                mode &= !libc::S_ISGID;
            }
        }
        Ok(NewNode { kind, mode, uid: cred.uid(), gid, rdev: 0, target: b"" })
    }
}
