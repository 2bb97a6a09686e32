//! A file system in plain maps: what the walk and the checks are tested against. Durability, locks
//! and mappings are not modelled (`ENOSYS`).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vfs::{
    Attached, Attr, Changing, Desc, DirEntry, EntryName, Errno, FileRef, FileSystem, Fill,
    ForkTicket, FsStat, IoOffset, Kind, LockKind, LockOwner, Locks, Mapped, Maps, NewNode, Node,
    NodeOrDesc, Open, OpenFlags, Piece, RecordLock, Removes, RenameFlags, Result, SetAttr, Synced,
    UserIn, UserOut, WalkOutput, Whence,
};

const ROOT: u64 = 1;

struct Inode {
    attr: Attr,
    bytes: Vec<u8>,
    entries: BTreeMap<Vec<u8>, u64>,
    parent: u64,
}

struct Description {
    ino: u64,
    flags: OpenFlags,
    position: u64,
}

#[derive(Default)]
struct State {
    inodes: HashMap<u64, Inode>,
    opens: Vec<Option<Description>>,
    last: u64,
}

/// The model.
pub struct Model(Mutex<State>);

const fn node(ino: u64) -> Node {
    Node { ino, generation: 1 }
}

impl State {
    fn inode(&mut self, ino: u64) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Errno::STALE)
    }

    fn dir(&mut self, ino: u64) -> Result<&mut Inode> {
        let inode = self.inode(ino)?;
        if inode.attr.kind == Kind::Directory { Ok(inode) } else { Err(Errno::NOTDIR) }
    }

    fn open(&mut self, desc: Desc) -> Result<&mut Description> {
        self.opens.get_mut(desc.index() as usize).and_then(Option::as_mut).ok_or(Errno::BADF)
    }

    fn add(&mut self, parent: u64, new: &NewNode<'_>) -> u64 {
        self.last += 1;
        let ino = self.last;
        let directory = new.kind == Kind::Directory;
        let attr = Attr {
            node: node(ino),
            kind: new.kind,
            mode: new.mode,
            nlink: if directory { 2 } else { 1 },
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            size: new.target.len() as u64,
            blocks: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            btime: 0,
        };
        let inode = Inode { attr, bytes: new.target.to_vec(), entries: BTreeMap::new(), parent };
        self.inodes.insert(ino, inode);
        ino
    }

    fn describe(&mut self, ino: u64, flags: OpenFlags) -> Desc {
        self.opens.push(Some(Description { ino, flags, position: 0 }));
        Desc::new(self.opens.len() as u32 - 1, 7)
    }

    fn write(&mut self, ino: u64, at: u64, data: &[UserIn<'_>]) -> Result<usize> {
        let mut whole = Vec::new();
        for piece in data {
            let start = whole.len();
            whole.resize(start + piece.len(), 0);
            piece.read(&mut whole[start..])?;
        }
        let inode = self.inode(ino)?;
        let (at, end) = (at as usize, at as usize + whole.len());
        if inode.bytes.len() < end {
            inode.bytes.resize(end, 0);
        }
        inode.bytes[at..end].copy_from_slice(&whole);
        inode.attr.size = inode.bytes.len() as u64;
        Ok(whole.len())
    }

    fn read(&mut self, ino: u64, at: u64, out: &mut [UserOut<'_>]) -> Result<usize> {
        let inode = self.inode(ino)?;
        if inode.attr.kind == Kind::Directory {
            return Err(Errno::ISDIR);
        }
        let mut at = at as usize;
        let start = at;
        for piece in out {
            let left = inode.bytes.get(at..).unwrap_or_default();
            let len = left.len().min(piece.len());
            piece.write(&left[..len])?;
            at += len;
        }
        Ok(at - start)
    }
}

impl Model {
    /// An empty tree that belongs to root.
    pub fn new() -> Self {
        let mut state = State::default();
        let new =
            NewNode { kind: Kind::Directory, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: b"" };
        state.add(ROOT, &new);
        Self(Mutex::new(state))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileSystem for Model {
    fn root(&self) -> Node {
        node(ROOT)
    }
    fn stat_fs(&self, _: FileRef) -> Result<FsStat> {
        Ok(FsStat {
            device: 99,
            block_size: 4096,
            blocks: 0,
            blocks_free: 0,
            blocks_available: 0,
            inodes: 0,
            inodes_free: 0,
            fsid: 0,
            read_only: false,
        })
    }
    fn walk(&self, dir: Node, name: &[u8], want: WalkOutput<'_>) -> Result<usize> {
        let WalkOutput::Name(found) = want else { return Ok(0) };
        let mut state = self.lock();
        let inode = state.dir(dir.ino)?;
        *found = match name {
            b"." => dir,
            b".." => node(inode.parent),
            _ => inode.entries.get(name).map(|&ino| node(ino)).ok_or(Errno::NOENT)?,
        };
        Ok(name.len())
    }
    fn attr(&self, of: FileRef, attr: &mut Attr) -> Result<()> {
        let mut state = self.lock();
        let ino = match of.which() {
            NodeOrDesc::Node(node) => node.ino,
            NodeOrDesc::Desc(desc) => state.open(desc)?.ino,
        };
        *attr = state.inode(ino)?.attr;
        Ok(())
    }
    fn set_attr(&self, node: Node, change: &SetAttr) -> Result<()> {
        let mut state = self.lock();
        let attr = &mut state.inode(node.ino)?.attr;
        attr.mode = change.mode.unwrap_or(attr.mode);
        attr.uid = change.uid.unwrap_or(attr.uid);
        attr.gid = change.gid.unwrap_or(attr.gid);
        attr.atime = change.atime.unwrap_or(attr.atime);
        attr.mtime = change.mtime.unwrap_or(attr.mtime);
        Ok(())
    }
    fn read_link(&self, node: Node, out: &mut [u8]) -> Result<usize> {
        let mut state = self.lock();
        let inode = state.inode(node.ino)?;
        if inode.attr.kind != Kind::Symlink {
            return Err(Errno::INVAL);
        }
        let len = inode.bytes.len().min(out.len());
        out[..len].copy_from_slice(&inode.bytes[..len]);
        Ok(inode.bytes.len())
    }
    fn create(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Node> {
        let mut state = self.lock();
        if state.dir(dir.ino)?.entries.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let ino = state.add(dir.ino, new);
        state.dir(dir.ino)?.entries.insert(name.to_vec(), ino);
        Ok(node(ino))
    }
    fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        let mut state = self.lock();
        if state.dir(dir.ino)?.entries.contains_key(name) {
            return Err(Errno::EXIST);
        }
        state.inode(node.ino)?.attr.nlink += 1;
        state.dir(dir.ino)?.entries.insert(name.to_vec(), node.ino);
        Ok(())
    }
    fn remove(&self, at: &EntryName<'_>, what: Removes) -> Result<()> {
        let mut state = self.lock();
        let ino = *state.dir(at.dir.ino)?.entries.get(at.name).ok_or(Errno::NOENT)?;
        match what {
            Removes::Name => state.inode(ino)?.attr.nlink -= 1,
            Removes::Directory if !state.dir(ino)?.entries.is_empty() => {
                return Err(Errno::NOTEMPTY);
            }
            Removes::Directory => drop(state.inodes.remove(&ino)),
        }
        state.dir(at.dir.ino)?.entries.remove(at.name);
        Ok(())
    }
    fn rename(&self, from: &EntryName<'_>, to: &EntryName<'_>, _: RenameFlags) -> Result<()> {
        let mut state = self.lock();
        let ino = state.dir(from.dir.ino)?.entries.remove(from.name).ok_or(Errno::NOENT)?;
        state.dir(to.dir.ino)?.entries.insert(to.name.to_vec(), ino);
        state.inode(ino)?.parent = to.dir.ino;
        Ok(())
    }
    fn read_dir(
        &self,
        dir: Node,
        cookie: i64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let mut state = self.lock();
        let parent = state.dir(dir.ino)?.parent;
        let mut all = vec![(b".".to_vec(), dir.ino), (b"..".to_vec(), parent)];
        all.extend(state.dir(dir.ino)?.entries.iter().map(|(name, ino)| (name.clone(), *ino)));
        for (index, (name, ino)) in all.iter().enumerate().skip(cookie as usize) {
            let kind = state.inode(*ino)?.attr.kind;
            if !each(&DirEntry { name, ino: *ino, kind, cookie: index as i64 + 1 }) {
                break;
            }
        }
        Ok(())
    }
    fn get_xattr(&self, _: Node, _: &[u8], _: &mut [u8]) -> Result<usize> {
        Err(Errno::NODATA)
    }
    fn set_xattr(&self, _: Node, _: &[u8], _: &[u8], _: u32) -> Result<()> {
        Err(Errno::NOSYS)
    }
    fn list_xattr(&self, _: Node, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }
    fn remove_xattr(&self, _: Node, _: &[u8]) -> Result<()> {
        Err(Errno::NODATA)
    }
    fn open(&self, what: Open<'_>, flags: OpenFlags, _: Option<Node>) -> Result<Desc> {
        let node = match what {
            Open::Node(node, _) => node,
            Open::New(at, new) => self.create(at.dir, at.name, new)?,
            Open::Unnamed(dir, new) => node(self.lock().add(dir.ino, new)),
        };
        let mut state = self.lock();
        let inode = state.inode(node.ino)?;
        if flags.has(libc::O_TRUNC) {
            inode.bytes.clear();
            inode.attr.size = 0;
        }
        Ok(state.describe(node.ino, flags))
    }
    fn place(&self, _desc: Desc) -> Result<Node> {
        Err(Errno::NOENT)
    }
    fn close(&self, desc: Desc) -> Result<()> {
        let mut state = self.lock();
        state.open(desc)?;
        state.opens[desc.index() as usize] = None;
        Ok(())
    }
    fn describe(&self, desc: Desc) -> Result<(Node, OpenFlags)> {
        self.lock().open(desc).map(|open| (node(open.ino), open.flags))
    }
    fn set_flags(&self, desc: Desc, flags: OpenFlags) -> Result<()> {
        self.lock().open(desc)?.flags = flags;
        Ok(())
    }
    fn read(&self, desc: Desc, out: &mut [UserOut<'_>], at: IoOffset) -> Result<usize> {
        let mut state = self.lock();
        let open = state.open(desc)?;
        let (ino, position) = (open.ino, open.position);
        if let Some(offset) = at.given() {
            return state.read(ino, offset, out);
        }
        let count = state.read(ino, position, out)?;
        state.open(desc)?.position += count as u64;
        Ok(count)
    }
    fn write(&self, desc: Desc, data: &[UserIn<'_>], at: IoOffset) -> Result<usize> {
        let mut state = self.lock();
        let open = state.open(desc)?;
        let (ino, flags, mut position) = (open.ino, open.flags, open.position);
        if let Some(offset) = at.given() {
            return state.write(ino, offset, data);
        }
        if !flags.writes() {
            return Err(Errno::BADF);
        }
        if flags.appends() {
            position = state.inode(ino)?.attr.size;
        }
        let count = state.write(ino, position, data)?;
        state.open(desc)?.position = position + count as u64;
        Ok(count)
    }
    fn seek(&self, desc: Desc, offset: i64, whence: Whence) -> Result<u64> {
        let mut state = self.lock();
        let ino = state.open(desc)?.ino;
        let size = state.inode(ino)?.attr.size;
        let open = state.open(desc)?;
        let base = match whence {
            Whence::Set => 0,
            Whence::Current => open.position,
            Whence::End => size,
            Whence::Data | Whence::Hole => return Err(Errno::NOSYS),
        };
        open.position = base.checked_add_signed(offset).ok_or(Errno::INVAL)?;
        Ok(open.position)
    }
    fn sync(&self, _: Synced) -> Result<()> {
        Ok(())
    }
    fn truncate(&self, node: Node, size: u64) -> Result<()> {
        let mut state = self.lock();
        let inode = state.inode(node.ino)?;
        inode.bytes.resize(size as usize, 0);
        inode.attr.size = size;
        Ok(())
    }
    fn allocate(&self, _: Desc, _: u32, _: u64, _: u64) -> Result<()> {
        Err(Errno::NOSYS)
    }
    fn copy_range(&self, _: Desc, _: u64, _: Desc, _: u64, _: u64) -> Result<u64> {
        Err(Errno::NOSYS)
    }
    fn relink(&self, _: Desc, _: u64, _: Desc, _: u64, _: u64) -> Result<()> {
        Err(Errno::NOSYS)
    }
    fn is_written(&self, _: Node) -> Result<bool> {
        Ok(false)
    }
    fn is_executed(&self, _: Node) -> Result<bool> {
        Ok(false)
    }
}

impl Maps for Model {
    fn map(&self, _: Desc, _: (u64, u64), _: Mapped, _: Fill) -> Result<Vec<Piece>> {
        Err(Errno::NOSYS)
    }
    fn vacate(&self, _number: i32, _replace: &mut dyn FnMut() -> Result<()>) -> Result<i32> {
        Err(Errno::BADF)
    }
    fn region_address(&self, _: FileRef) -> usize {
        0
    }

    fn region_descriptor(&self, _: FileRef) -> (i32, Changing) {
        (-1, Changing::Nowhere)
    }
    fn can_map(&self, _: FileRef) -> (usize, bool) {
        (0, false)
    }
}

impl Locks for Model {
    fn record_lock(&self, _: Desc, _: LockOwner, _: &RecordLock, _: bool) -> Result<()> {
        Ok(())
    }
    fn test_lock(&self, _: Desc, _: LockOwner, _: &RecordLock) -> Result<Option<RecordLock>> {
        Ok(None)
    }
    fn release_locks(&self, _: FileRef) -> Result<()> {
        Ok(())
    }
    fn flock(&self, _: Desc, _: LockKind, _: bool) -> Result<()> {
        Ok(())
    }
}

impl Attached for Model {
    fn hand_over(&self, desc: Desc) -> Result<(u64, vfs::Kind)> {
        self.lock().open(desc)?;
        Ok(((u64::from(desc.index()) + 1) << 32 | u64::from(desc.generation()), vfs::Kind::File))
    }
    fn adopt(&self, name: u64) -> Result<Desc> {
        let desc = Desc::new(((name >> 32) - 1) as u32, name as u32);
        self.lock().open(desc).map(|_| desc)
    }
    fn execute(&self, _: Option<Node>, _: Option<Node>) -> Result<()> {
        Ok(())
    }
    fn host_execution(&self, _: Node, _: bool) -> Result<()> {
        Ok(())
    }
    fn fork_prepare(&self, _: &[Desc]) -> Result<ForkTicket> {
        Ok(ForkTicket::new(0))
    }
    fn fork_parent(&self, _: ForkTicket, _: Option<u32>) {}
    fn fork_unprepared(&self, _: &mut Vec<Desc>) -> Result<()> {
        Ok(())
    }
    fn fork_child(&self, _: ForkTicket) -> Result<()> {
        Ok(())
    }
    fn exec_prepare(&self) -> Result<String> {
        Ok(String::new())
    }
    fn exec_failed(&self) {}
    fn detach(&self) -> Result<()> {
        Ok(())
    }
}
