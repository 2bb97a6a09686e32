//! An engine behind the contract, as a [`System`]: does what a face does, with as little code as
//! possible.

use crate::cached;
use crate::content::{PAGE, fill};
use crate::workload::{Action, Outcome, SLOTS, Stat, System, Value, components, split_path};
use pmem::Hook;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::sync::Arc;
use vfs::{
    Attr, Desc, EntryName, FileSystem, FileSystemExt, Fill, Kind, Mapped, NewNode, Node, Open,
    OpenFlags, Piece, Removes, RenameFlags, SetAttr, Synced, UserIn, UserOut, Whence,
};
use volume::Volume;

/// Stores bytes at an offset of the region, as a program does that has it mapped.
pub type Poke = dyn Fn(u64, &[u8]) + Send + Sync;

/// An engine and the open files of one "process".
pub struct Engine {
    fs: Arc<dyn vfs::Engine>,
    /// The same, for what is no part of the contract.
    volume: Arc<Volume>,
    slots: [Option<Desc>; SLOTS],
    poke: Option<Box<Poke>>,
    /// When what is there was made, at the latest.
    pub latest: vfs::Nanos,
    /// Where the cache lies, if there is one.
    _cache: Option<cached::Place>,
}

impl Engine {
    /// Nothing open yet.
    #[must_use]
    pub fn new(volume: Arc<Volume>) -> Self {
        let ((fs, cache), slots) = (cached::engine(&volume), [None; SLOTS]);
        Self { fs, volume, slots, poke: None, latest: vfs::Nanos::MAX, _cache: cache }
    }

    /// From here on stores through mappings are possible: `poke` does them.
    pub fn set_poke(&mut self, poke: Box<Poke>) {
        self.poke = Some(poke);
    }

    /// The same, by the file that holds the region: `hook` is told of each store before it is made.
    ///
    /// # Panics
    ///
    /// The store does, if the file is not as long as the region.
    #[track_caller]
    pub fn store_through(&mut self, memory: File, hook: Arc<dyn Hook>) {
        let at = Location::caller();
        self.set_poke(Box::new(move |off, bytes| {
            hook.store(off, bytes, false, at);
            memory.write_all_at(bytes, off).expect("memory that is mapped can be stored to");
        }));
    }

    /// The engine itself.
    #[must_use]
    pub fn file_system(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// Closes what is open.
    pub fn close_all(&mut self) -> vfs::Result<()> {
        for slot in &mut self.slots {
            if let Some(desc) = slot.take() {
                self.fs.close(desc)?;
            }
        }
        Ok(())
    }

    /// Finds a node by path; symbolic links are not followed.
    pub fn resolve(&self, path: &str) -> vfs::Result<Node> {
        components(path)
            .try_fold(self.fs.root(), |node, part| self.fs.lookup(node, part.as_bytes()))
    }

    fn place<'p>(&self, path: &'p str) -> vfs::Result<(Node, &'p [u8])> {
        let (dir, name) = split_path(path).ok_or(Errno::BUSY)?;
        let dir = self.resolve(dir)?;
        if self.fs.attributes(dir)?.kind == Kind::Directory {
            Ok((dir, name.as_bytes()))
        } else {
            Err(Errno::NOTDIR)
        }
    }

    fn desc(&self, slot: usize) -> vfs::Result<Desc> {
        self.slots[slot].ok_or(Errno::BADF)
    }

    fn fill_slot(&mut self, slot: usize, desc: Desc) -> Outcome {
        if let Some(old) = self.slots[slot].replace(desc) {
            self.fs.close(old)?;
        }
        Ok(Value::Done)
    }

    fn create(&self, path: &str, kind: Kind, mode: u32, target: &str) -> Outcome {
        let (dir, name) = self.place(path)?;
        let new = new_node(kind, mode, target.as_bytes());
        if kind == Kind::File && as_programs_do(path) {
            let (at, flags) = (EntryName::new(dir, name), OpenFlags(libc::O_RDWR));
            let desc = self.fs.open(Open::New(&at, &new), flags, None)?;
            return self.fs.close(desc).map(|()| Value::Done);
        }
        self.fs.create(dir, name, &new).map(|_| Value::Done)
    }

    fn temporary(&mut self, dir: &str, slot: usize, exclusive: bool) -> Outcome {
        let dir = self.resolve(dir)?;
        let flags = libc::O_TMPFILE | libc::O_RDWR | if exclusive { libc::O_EXCL } else { 0 };
        let new = new_node(Kind::File, 0o600, b"");
        let desc = self.fs.open(Open::Unnamed(dir, &new), OpenFlags(flags), None)?;
        self.fill_slot(slot, desc)
    }

    fn unlink(&self, path: &str) -> Outcome {
        let (dir, name) = self.place(path)?;
        let found = self.fs.lookup(dir, name).and_then(|node| self.fs.attributes(node));
        let found = found.ok().filter(|_| as_programs_do(path)).map(|attr| (attr.node, attr.kind));
        self.fs.remove(&EntryName { dir, name, found }, Removes::Name).map(|()| Value::Done)
    }

    fn link(&self, node: Node, to: &str) -> Outcome {
        let (dir, name) = self.place(to)?;
        self.fs.link(node, dir, name).map(|()| Value::Done)
    }

    fn rename(&self, from: &str, to: &str, flags: u32) -> Outcome {
        let ((from_dir, from), (to_dir, to)) = (self.place(from)?, self.place(to)?);
        let (from, to) = (EntryName::new(from_dir, from), EntryName::new(to_dir, to));
        self.fs.rename(&from, &to, RenameFlags::new(flags)).map(|()| Value::Done)
    }

    fn set_attr(&self, path: &str, change: &SetAttr) -> Outcome {
        self.resolve(path).and_then(|node| self.fs.set_attr(node, change)).map(|()| Value::Done)
    }

    fn get_xattr(&self, path: &str, name: &str, room: usize) -> Outcome {
        let node = self.resolve(path)?;
        let mut value = vec![0; room];
        let length = self.fs.get_xattr(node, name.as_bytes(), &mut value)?;
        if room == 0 {
            return Ok(Value::Count(length as u64));
        }
        value.truncate(length);
        Ok(Value::Bytes(value))
    }

    fn list_xattr(&self, path: &str) -> Outcome {
        let node = self.resolve(path)?;
        let mut list = vec![0; self.fs.list_xattr(node, &mut [])?];
        let length = self.fs.list_xattr(node, &mut list)?;
        Ok(Value::Names(split_names(&list[..length])))
    }

    /// A directory's entries, sorted by name, without `.` and `..`.
    pub fn entries(&self, dir: Node) -> vfs::Result<Vec<(Vec<u8>, u8)>> {
        let mut entries = self.entries_as_told(dir)?;
        entries.sort();
        Ok(entries)
    }

    /// As [`Engine::entries`], in the directory's own order, which must be that of ascending
    /// cookies.
    pub fn entries_as_told(&self, dir: Node) -> vfs::Result<Vec<(Vec<u8>, u8)>> {
        let mut entries = Vec::new();
        let mut last = 0;
        let mut ascending = true;
        self.fs.read_dir(dir, 0, &mut |entry| {
            ascending &= entry.cookie > last;
            last = entry.cookie;
            if entry.name != b"." && entry.name != b".." {
                entries.push((entry.name.to_vec(), entry.kind.d_type()));
            }
            true
        })?;
        assert!(ascending, "read_dir tells entries in ascending order of cookies");
        Ok(entries)
    }

    fn stat(&self, node: Node) -> Outcome {
        self.fs.attributes(node).map(|attr| Value::Stat(reduce(&attr)))
    }

    fn open(&mut self, path: &str, slot: usize, flags: i32) -> Outcome {
        let node = self.resolve(path)?;
        let desc = self.fs.open(node.into(), OpenFlags(flags), None)?;
        self.fill_slot(slot, desc)
    }

    fn read(&self, slot: usize, at: Option<u64>, length: u64) -> Outcome {
        let mut bytes = vec![0; length as usize];
        let desc = self.desc(slot)?;
        let out = &mut [UserOut::new(&mut bytes)];
        let done = self.fs.read(desc, out, at.into())?;
        bytes.truncate(done);
        Ok(Value::Bytes(bytes))
    }

    fn write(
        &self,
        slot: usize,
        at: Option<u64>,
        tag: u32,
        (length, parts): (u64, usize),
    ) -> Outcome {
        let bytes = fill(tag, length);
        let desc = self.desc(slot)?;
        let begin = |part: usize| part * bytes.len() / parts;
        let part = |part| UserIn::new(&bytes[begin(part)..begin(part + 1)]);
        let data: Vec<_> = (0..parts).map(part).collect();
        let done = self.fs.write(desc, &data, at.into())?;
        Ok(Value::Count(done as u64))
    }

    fn seek(&self, slot: usize, offset: i64, whence: Whence) -> Outcome {
        let desc = self.desc(slot)?;
        if !matches!(whence, Whence::Data | Whence::Hole) {
            return self.fs.seek(desc, offset, whence).map(Value::Count);
        }
        // Where data lies is the engine's own choice: only whether the offset is inside is
        // compared.
        let (node, _) = self.fs.describe(desc)?;
        let size = self.fs.attributes(node)?.size;
        match self.fs.seek(desc, offset, whence) {
            Err(Errno::NXIO) if offset < 0 || offset as u64 >= size => return Err(Errno::NXIO),
            Ok(_) | Err(Errno::NXIO) => self.fs.seek(desc, offset, Whence::Set)?,
            Err(errno) => return Err(errno),
        };
        Ok(Value::Count(0))
    }

    fn store_mapped(&self, slot: usize, tag: u32, offset: u64, length: u64) -> Outcome {
        let poke = self.poke.as_ref().ok_or(Errno::NOSYS)?;
        let desc = self.desc(slot)?;
        let (node, flags) = self.fs.describe(desc)?;
        let attr = self.fs.attributes(node)?;
        if attr.kind != Kind::File {
            return Err(Errno::NODEV);
        }
        if !flags.reads() || !flags.writes() {
            return Err(Errno::ACCESS);
        }
        if offset + length > attr.size {
            return Err(Errno::FAULT);
        }
        let bytes = fill(tag, length);
        let within = (0, attr.size.next_multiple_of(PAGE));
        self.fs.map(desc, (0, within.1), Mapped::Write, Fill::None)?;
        let mut from = offset;
        while from < offset + length {
            // As a page fault of a program in its mapping.
            let fill = Fill::Faulted { at: from / PAGE * PAGE, least: 0 };
            let pieces = self.fs.map(desc, within, Mapped::Write, fill)?;
            let holds = |piece: &&Piece| from < piece.file_offset + piece.length;
            let piece = pieces.iter().find(holds).ok_or(Errno::FAULT)?;
            let to = (piece.file_offset + piece.length).min(offset + length);
            let at = piece.region_offset.ok_or(Errno::FAULT)?;
            let stored = &bytes[(from - offset) as usize..(to - offset) as usize];
            poke(at + (from - piece.file_offset), stored);
            from = to;
        }
        Ok(Value::Done)
    }

    /// The engine decides whether there is anything to do, and a place for it.
    fn rewrite(&self, path: &str) -> Outcome {
        match self.volume.rewrite(self.resolve(path)?, &mut |_, _| true) {
            Ok(_) | Err(Errno::BUSY | Errno::NOSPC) => Ok(Value::Done),
            Err(errno) => Err(errno),
        }
    }

    fn truncate_open(&self, slot: usize, size: u64) -> Outcome {
        let (node, flags) = self.fs.describe(self.desc(slot)?)?;
        if !flags.writes() {
            return Err(Errno::INVAL);
        }
        self.fs.truncate(node, size).map(|()| Value::Done)
    }
}

/// Whether a name comes and goes by the calls of the preload library, which take the fast path
/// where they can, or by the plain ones: half of the paths each, the same ones in every run.
fn as_programs_do(path: &str) -> bool {
    path.bytes().fold(false, |odd, byte| odd ^ (byte & 1 != 0))
}

/// A node to be made for this process.
fn new_node(kind: Kind, mode: u32, target: &[u8]) -> NewNode<'_> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    NewNode { kind, mode, uid, gid, rdev: 0, target }
}

/// The names of a `listxattr` answer that programs set, sorted.
pub(crate) fn split_names(list: &[u8]) -> Vec<Vec<u8>> {
    let names = list.split(|&byte| byte == 0).filter(|name| name.starts_with(b"user."));
    let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
    names.sort();
    names
}

/// What is compared of a node's attributes.
#[must_use]
pub fn reduce(attr: &Attr) -> Stat {
    let sized = matches!(attr.kind, Kind::File | Kind::Symlink);
    Stat {
        kind: attr.kind.d_type(),
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        size: if sized { attr.size } else { 0 },
    }
}

impl System for Engine {
    fn change_name(&mut self, action: &Action) -> Option<Outcome> {
        Some(match action {
            Action::Create { path, kind, mode } => self.create(path, *kind, *mode, ""),
            Action::Symlink { path, target } => self.create(path, Kind::Symlink, 0o777, target),
            Action::Temporary { dir, slot, exclusive } => self.temporary(dir, *slot, *exclusive),
            Action::Link { from, to } => self.resolve(from).and_then(|node| self.link(node, to)),
            Action::LinkOpen { slot, to } => self
                .desc(*slot)
                .and_then(|desc| self.fs.describe(desc))
                .and_then(|(node, _)| self.link(node, to)),
            Action::Unlink { path } => self.unlink(path),
            Action::RemoveDir { path } => self
                .place(path)
                .and_then(|(dir, name)| {
                    self.fs.remove(&EntryName::new(dir, name), Removes::Directory)
                })
                .map(|()| Value::Done),
            Action::Rename { from, to, flags } => self.rename(from, to, *flags),
            _ => return None,
        })
    }

    fn change_attributes(&mut self, action: &Action) -> Option<Outcome> {
        let none = SetAttr::default();
        Some(match action {
            Action::SetMode { path, mode } => {
                self.set_attr(path, &SetAttr { mode: Some(*mode), ..none })
            }
            Action::SetOwner { path, uid, gid } => {
                self.set_attr(path, &SetAttr { uid: Some(*uid), gid: Some(*gid), ..none })
            }
            Action::SetTimes { path, atime, mtime } => {
                self.set_attr(path, &SetAttr { atime: Some(*atime), mtime: Some(*mtime), ..none })
            }
            Action::SetXattr { path, name, tag, length, flags } => self
                .resolve(path)
                .and_then(|node| {
                    self.fs.set_xattr(node, name.as_bytes(), &fill(*tag, *length), *flags)
                })
                .map(|()| Value::Done),
            Action::RemoveXattr { path, name } => self
                .resolve(path)
                .and_then(|node| self.fs.remove_xattr(node, name.as_bytes()))
                .map(|()| Value::Done),
            Action::GetXattr { path, name, room } => self.get_xattr(path, name, *room),
            Action::ListXattr { path } => self.list_xattr(path),
            _ => return None,
        })
    }

    fn look(&mut self, action: &Action) -> Option<Outcome> {
        Some(match action {
            Action::Stat { path } => self.resolve(path).and_then(|node| self.stat(node)),
            Action::StatOpen { slot } => self
                .desc(*slot)
                .and_then(|desc| self.fs.describe(desc))
                .and_then(|(node, _)| self.stat(node)),
            Action::ReadLink { path } => self.resolve(path).and_then(|node| {
                let mut target = vec![0; 4096];
                let length = self.fs.read_link(node, &mut target)?;
                target.truncate(length);
                Ok(Value::Bytes(target))
            }),
            Action::ReadDir { path } => {
                self.resolve(path).and_then(|node| self.entries(node)).map(Value::Entries)
            }
            _ => return None,
        })
    }

    fn change_content(&mut self, action: &Action) -> Outcome {
        match *action {
            Action::Open { ref path, slot, flags } => self.open(path, slot, flags),
            Action::Close { slot } => {
                let desc = self.slots[slot].take().ok_or(Errno::BADF)?;
                self.fs.close(desc).map(|()| Value::Done)
            }
            Action::Write { slot, tag, length } => self.write(slot, None, tag, (length, 1)),
            Action::WriteAt { slot, tag, offset, length } => {
                self.write(slot, Some(offset), tag, (length, 1))
            }
            Action::WriteParts { slot, tag, offset, length, parts } => {
                self.write(slot, Some(offset), tag, (length, parts))
            }
            Action::Read { slot, length } => self.read(slot, None, length),
            Action::ReadAt { slot, offset, length } => self.read(slot, Some(offset), length),
            Action::Seek { slot, offset, whence } => self.seek(slot, offset, whence),
            Action::Truncate { ref path, size } => self
                .resolve(path)
                .and_then(|node| self.fs.truncate(node, size))
                .map(|()| Value::Done),
            Action::TruncateOpen { slot, size } => self.truncate_open(slot, size),
            Action::Allocate { slot, mode, offset, length } => {
                let desc = self.desc(slot)?;
                self.fs.allocate(desc, mode, offset, length).map(|()| Value::Done)
            }
            Action::CopyRange { from, from_offset, to, to_offset, length } => {
                let (from, to) = (self.desc(from)?, self.desc(to)?);
                let done = self.fs.copy_range(from, from_offset, to, to_offset, length)?;
                Ok(Value::Count(done))
            }
            Action::Relink { from, from_offset, to, to_offset, length } => {
                let (from, to) = (self.desc(from)?, self.desc(to)?);
                self.fs.relink(from, from_offset, to, to_offset, length).map(|()| Value::Done)
            }
            Action::Map { slot, offset, length } => self
                .fs
                .map(self.desc(slot)?, (offset, length), Mapped::Read, Fill::All)
                .map(|_| Value::Done),
            Action::StoreMapped { slot, tag, offset, length } => {
                self.store_mapped(slot, tag, offset, length)
            }
            Action::Sync { slot, data_only } => {
                self.fs.sync(Synced::file(self.desc(slot)?, data_only)).map(|()| Value::Done)
            }
            Action::SyncAll => self.fs.sync(Synced::All).map(|()| Value::Done),
            Action::Compact => self.volume.compact().map(|_| Value::Done),
            Action::Rewrite { ref path } => self.rewrite(path),
            _ => Err(Errno::NOSYS),
        }
    }
}
