//! The model: the contract carried out in memory, in the simplest way.
//!
//! It follows Linux where the contract leaves the order of checks open. Besides the present state
//! it knows, for each file, the sizes that may be the durable one: a process in mode `posix` makes
//! growth by writes durable at `fsync` only.

mod dispatch;

use crate::content::{Content, fill};
use crate::workload::{Outcome, SLOTS, Stat, Value, components, split_path};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use vfs::{Kind, OpenFlags, Whence};

/// Identifies an object of a model.
pub type ObjectId = u32;

/// The root directory.
pub const ROOT: ObjectId = 1;

type Found<T> = Result<T, Errno>;

/// A file, directory or other object.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Object {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Names (of a directory: 1, or 0 once it is removed).
    pub names: u32,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub body: Body,
    /// Made by `O_TMPFILE` and still without a name, but may get one.
    linkable: bool,
    /// A process mapped it while it was open, and not all have closed it since.
    mapped: bool,
    /// Sizes that may be the durable one if appends wait for `fsync`.
    pub durable_sizes: BTreeSet<u64>,
    /// Bytes that its blocks have at least, since a call asked for some beyond the end.
    pub reserved: u64,
    /// Bytes that stores through a mapping have replaced since the last sync, with offsets. A crash
    /// may leave any of it.
    pub unsynced: Vec<(u64, Vec<u8>)>,
    /// Bytes that a call that never ended may have left instead, for good.
    pub torn: Vec<(u64, Vec<u8>)>,
}

/// What an object holds.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Body {
    File(Content),
    Directory { entries: BTreeMap<Vec<u8>, ObjectId>, parent: ObjectId },
    Symlink(Vec<u8>),
    Other,
}

#[derive(Clone, Debug)]
struct Open {
    object: ObjectId,
    flags: OpenFlags,
    position: u64,
}

/// The state of a file system according to the contract.
#[derive(Clone, Debug)]
pub struct Model {
    objects: BTreeMap<ObjectId, Object>,
    next: ObjectId,
    slots: [Option<Open>; SLOTS],
}

impl Default for Model {
    fn default() -> Self {
        let body = Body::Directory { entries: BTreeMap::new(), parent: ROOT };
        let root = Object::new(Kind::Directory, 0o755, body);
        Self { objects: [(ROOT, root)].into(), next: ROOT + 1, slots: Default::default() }
    }
}

impl Object {
    fn new(kind: Kind, mode: u32, body: Body) -> Self {
        Self {
            kind,
            mode,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            names: 1,
            xattrs: BTreeMap::new(),
            body,
            linkable: false,
            mapped: false,
            durable_sizes: [0].into(),
            reserved: 0,
            unsynced: Vec::new(),
            torn: Vec::new(),
        }
    }

    /// The contents of a file.
    #[must_use]
    pub fn content(&self) -> Option<&Content> {
        match &self.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    fn content_mut(&mut self) -> Found<&mut Content> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Directory { .. } => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// The entries of a directory.
    pub fn entries(&self) -> Found<&BTreeMap<Vec<u8>, ObjectId>> {
        match &self.body {
            Body::Directory { entries, .. } => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// A size was committed: no other may be found after a crash.
    fn commit_size(&mut self) {
        if let Body::File(content) = &self.body {
            self.durable_sizes = [content.size()].into();
        }
    }

    /// Everything stored is durable.
    fn make_durable(&mut self) {
        self.commit_size();
        self.unsynced.clear();
    }

    /// Whether each of its bytes is certain.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.unsynced.is_empty() && self.torn.is_empty()
    }

    /// Whether `byte` may be found at `at` instead of what is there.
    #[must_use]
    pub fn may_be(&self, at: u64, byte: u8) -> bool {
        self.unsynced.iter().chain(&self.torn).any(|(offset, old)| {
            at.checked_sub(*offset).and_then(|index| old.get(index as usize)) == Some(&byte)
        })
    }

    /// A size moved that is not committed before `fsync`.
    fn defer_size(&mut self) {
        if let Body::File(content) = &self.body {
            self.durable_sizes.insert(content.size());
        }
    }
}

impl Model {
    /// An object.
    ///
    /// # Panics
    ///
    /// If there is none: identifiers come from the model itself.
    #[must_use]
    pub fn object(&self, id: ObjectId) -> &Object {
        &self.objects[&id]
    }

    fn object_mut(&mut self, id: ObjectId) -> &mut Object {
        self.objects.get_mut(&id).expect("identifiers come from the model")
    }

    /// All objects there are, the open ones without a name included.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        self.objects.iter().map(|(&id, object)| (id, object))
    }

    /// Forgets open files and what only they keep: what a crash leaves.
    pub fn close_all(&mut self) {
        for slot in 0..SLOTS {
            if self.slots[slot].is_some() {
                let _ = self.close(slot);
            }
        }
    }

    fn resolve(&self, path: &str) -> Found<ObjectId> {
        let mut id = ROOT;
        for part in components(path) {
            let entries = self.object(id).entries()?;
            if part.len() > 255 {
                return Err(Errno::NAMETOOLONG);
            }
            id = *entries.get(part.as_bytes()).ok_or(Errno::NOENT)?;
        }
        Ok(id)
    }

    /// The directory and the last name of a path.
    fn place<'p>(&self, path: &'p str) -> Found<(ObjectId, &'p str)> {
        let (dir, name) = split_path(path).ok_or(Errno::BUSY)?;
        let dir = self.resolve(dir)?;
        self.object(dir).entries()?;
        if name.len() > 255 { Err(Errno::NAMETOOLONG) } else { Ok((dir, name)) }
    }

    fn entry(&self, dir: ObjectId, name: &str) -> Found<ObjectId> {
        self.object(dir).entries()?.get(name.as_bytes()).copied().ok_or(Errno::NOENT)
    }

    fn entries_mut(&mut self, dir: ObjectId) -> &mut BTreeMap<Vec<u8>, ObjectId> {
        match &mut self.object_mut(dir).body {
            Body::Directory { entries, .. } => entries,
            _ => unreachable!("checked by the caller that found the directory"),
        }
    }

    fn add(&mut self, object: Object) -> ObjectId {
        self.next += 1;
        self.objects.insert(self.next, object);
        self.next
    }

    fn create(&mut self, path: &str, object: Object) -> Found<ObjectId> {
        let (dir, name) = self.place(path)?;
        if self.entry(dir, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let id = self.add(object);
        if let Body::Directory { parent, .. } = &mut self.object_mut(id).body {
            *parent = dir;
        }
        self.entries_mut(dir).insert(name.into(), id);
        Ok(id)
    }

    fn link_object(&mut self, id: ObjectId, to: &str) -> Outcome {
        let (dir, name) = self.place(to)?;
        if self.entry(dir, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let object = self.object_mut(id);
        if object.kind == Kind::Directory {
            return Err(Errno::PERM);
        }
        if object.names == 0 && !object.linkable {
            return Err(Errno::NOENT);
        }
        object.names += 1;
        object.linkable = false;
        self.entries_mut(dir).insert(name.into(), id);
        Ok(Value::Done)
    }

    /// Drops an object that has neither a name nor an open file.
    fn drop_unused(&mut self, id: ObjectId) {
        let open = self.slots.iter().flatten().any(|open| open.object == id);
        self.object_mut(id).mapped &= open;
        if self.object(id).names == 0 && !open {
            self.objects.remove(&id);
        }
    }

    fn remove_name(&mut self, dir: ObjectId, name: &str, id: ObjectId) {
        self.entries_mut(dir).remove(name.as_bytes());
        self.object_mut(id).names -= 1;
        self.drop_unused(id);
    }

    fn unlink(&mut self, path: &str) -> Outcome {
        let (dir, name) = self.place(path)?;
        let id = self.entry(dir, name)?;
        if self.object(id).kind == Kind::Directory {
            return Err(Errno::ISDIR);
        }
        self.remove_name(dir, name, id);
        Ok(Value::Done)
    }

    fn remove_dir(&mut self, path: &str) -> Outcome {
        let (dir, name) = self.place(path)?;
        let id = self.entry(dir, name)?;
        if !self.object(id).entries()?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.remove_name(dir, name, id);
        Ok(Value::Done)
    }

    /// Whether `ancestor` is `id` or above it.
    fn is_above(&self, ancestor: ObjectId, mut id: ObjectId) -> bool {
        loop {
            if id == ancestor {
                return true;
            }
            match &self.object(id).body {
                Body::Directory { parent, .. } if id != ROOT => id = *parent,
                _ => return false,
            }
        }
    }

    fn check_rename(&self, from: &str, to: &str, flags: u32) -> Found<bool> {
        let (no_replace, exchange) = (libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE);
        let known = no_replace | exchange | libc::RENAME_WHITEOUT;
        if flags & !known != 0 || flags & exchange != 0 && flags != exchange {
            return Err(Errno::INVAL);
        }
        let (from_dir, from_name) = self.place(from)?;
        let (to_dir, to_name) = self.place(to)?;
        let source = self.entry(from_dir, from_name)?;
        let target = self.entry(to_dir, to_name);
        let exchange = flags == exchange;
        match target {
            Ok(_) if flags & no_replace != 0 => return Err(Errno::EXIST),
            Err(errno) if exchange => return Err(errno),
            _ => {}
        }
        let is_dir = |id: ObjectId| self.object(id).kind == Kind::Directory;
        if is_dir(source) && self.is_above(source, to_dir) {
            return Err(Errno::INVAL);
        }
        let Ok(target) = target else { return Ok(true) };
        if is_dir(target) && self.is_above(target, from_dir) {
            return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        if source == target {
            return Ok(false);
        }
        if !exchange {
            match (is_dir(source), is_dir(target)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !self.object(target).entries()?.is_empty() => {
                    return Err(Errno::NOTEMPTY);
                }
                _ => {}
            }
        }
        Ok(true)
    }

    fn rename(&mut self, from: &str, to: &str, flags: u32) -> Outcome {
        if !self.check_rename(from, to, flags)? {
            return Ok(Value::Done);
        }
        let (from_dir, from_name) = self.place(from)?;
        let (to_dir, to_name) = self.place(to)?;
        let source = self.entry(from_dir, from_name)?;
        let target = self.entry(to_dir, to_name).ok();
        if flags == libc::RENAME_EXCHANGE {
            let target = target.expect("checked");
            self.entries_mut(from_dir).insert(from_name.into(), target);
            self.entries_mut(to_dir).insert(to_name.into(), source);
            self.set_parent(target, from_dir);
        } else {
            if let Some(target) = target {
                self.remove_name(to_dir, to_name, target);
            }
            self.entries_mut(from_dir).remove(from_name.as_bytes());
            self.entries_mut(to_dir).insert(to_name.into(), source);
        }
        if flags & libc::RENAME_WHITEOUT != 0 {
            let left = self.add(Object::new(Kind::CharDevice, 0, Body::Other));
            self.entries_mut(from_dir).insert(from_name.into(), left);
        }
        self.set_parent(source, to_dir);
        Ok(Value::Done)
    }

    fn set_parent(&mut self, id: ObjectId, dir: ObjectId) {
        if let Body::Directory { parent, .. } = &mut self.object_mut(id).body {
            *parent = dir;
        }
    }

    /// Links as `stat` counts them.
    #[must_use]
    pub fn link_count(&self, id: ObjectId) -> u32 {
        let object = self.object(id);
        match &object.body {
            Body::Directory { entries, .. } if object.names > 0 => {
                let is_dir = |&&child: &&ObjectId| self.object(child).kind == Kind::Directory;
                2 + entries.values().filter(is_dir).count() as u32
            }
            _ => object.names,
        }
    }

    /// What `stat` tells.
    #[must_use]
    pub fn stat(&self, id: ObjectId) -> Stat {
        let object = self.object(id);
        Stat {
            kind: object.kind.d_type(),
            mode: object.mode,
            uid: object.uid,
            gid: object.gid,
            nlink: self.link_count(id),
            size: match &object.body {
                Body::File(content) => content.size(),
                Body::Symlink(target) => target.len() as u64,
                _ => 0,
            },
        }
    }

    // ---- extended attributes
    // ---------------------------------------------------------------------

    fn takes_xattrs(&self, id: ObjectId) -> bool {
        matches!(self.object(id).kind, Kind::File | Kind::Directory)
    }

    fn set_xattr(&mut self, path: &str, name: &str, value: Vec<u8>, flags: u32) -> Outcome {
        let id = self.resolve(path)?;
        if !self.takes_xattrs(id) {
            return Err(Errno::PERM);
        }
        let xattrs = &mut self.object_mut(id).xattrs;
        let there = xattrs.contains_key(name.as_bytes());
        if there && flags & libc::XATTR_CREATE as u32 != 0 {
            return Err(Errno::EXIST);
        }
        if !there && flags & libc::XATTR_REPLACE as u32 != 0 {
            return Err(Errno::NODATA);
        }
        xattrs.insert(name.into(), value);
        Ok(Value::Done)
    }

    fn get_xattr(&self, path: &str, name: &str, room: usize) -> Outcome {
        let id = self.resolve(path)?;
        let value = self.object(id).xattrs.get(name.as_bytes()).ok_or(Errno::NODATA)?;
        match room {
            0 => Ok(Value::Count(value.len() as u64)),
            room if room < value.len() => Err(Errno::RANGE),
            _ => Ok(Value::Bytes(value.clone())),
        }
    }

    fn remove_xattr(&mut self, path: &str, name: &str) -> Outcome {
        let id = self.resolve(path)?;
        if !self.takes_xattrs(id) {
            return Err(Errno::PERM);
        }
        let removed = self.object_mut(id).xattrs.remove(name.as_bytes());
        removed.map(|_| Value::Done).ok_or(Errno::NODATA)
    }

    // ---- open files
    // --------------------------------------------------------------------------------

    fn slot(&self, slot: usize) -> Found<&Open> {
        self.slots[slot].as_ref().ok_or(Errno::BADF)
    }

    fn open(&mut self, path: &str, slot: usize, flags: OpenFlags) -> Outcome {
        let object = self.resolve(path)?;
        match self.object(object).kind {
            Kind::Directory if flags.writes() || flags.has(libc::O_TRUNC) => {
                return Err(Errno::ISDIR);
            }
            Kind::Symlink if !flags.path_only() => return Err(Errno::LOOP),
            Kind::File | Kind::Directory | Kind::Symlink => {}
            // A device, what a rename has left as a whiteout too.
            _ if !flags.path_only() => return Err(Errno::NXIO),
            _ => {}
        }
        if flags.has(libc::O_TRUNC) {
            self.resize(object, 0)?;
        }
        self.fill_slot(slot, object, flags);
        Ok(Value::Done)
    }

    /// The new file is open before the slot's old one is closed.
    fn fill_slot(&mut self, slot: usize, object: ObjectId, flags: OpenFlags) {
        if let Some(old) = self.slots[slot].replace(Open { object, flags, position: 0 }) {
            self.drop_unused(old.object);
        }
    }

    fn close(&mut self, slot: usize) -> Outcome {
        let open = self.slots[slot].take().ok_or(Errno::BADF)?;
        self.drop_unused(open.object);
        Ok(Value::Done)
    }

    fn temporary(&mut self, dir: &str, slot: usize, exclusive: bool) -> Outcome {
        let dir = self.resolve(dir)?;
        self.object(dir).entries()?;
        let mut object = Object::new(Kind::File, 0o600, Body::File(Content::default()));
        object.names = 0;
        object.linkable = !exclusive;
        let object = self.add(object);
        self.fill_slot(slot, object, OpenFlags(libc::O_RDWR | libc::O_TMPFILE));
        Ok(Value::Done)
    }

    fn writable(&self, slot: usize) -> Found<ObjectId> {
        let open = self.slot(slot)?;
        if open.flags.writes() { Ok(open.object) } else { Err(Errno::BADF) }
    }

    fn readable(&self, slot: usize) -> Found<&Content> {
        let open = self.slot(slot)?;
        if !open.flags.reads() {
            return Err(Errno::BADF);
        }
        match &self.object(open.object).body {
            Body::File(content) => Ok(content),
            Body::Directory { .. } => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    fn write(&mut self, slot: usize, at: Option<u64>, tag: u32, length: u64) -> Outcome {
        let id = self.writable(slot)?;
        let open = self.slot(slot)?.clone();
        let object = self.object_mut(id);
        let content = object.content_mut()?;
        let offset =
            if open.flags.appends() { content.size() } else { at.unwrap_or(open.position) };
        if length > 0 {
            content.write(offset, &fill(tag, length));
            object.defer_size();
            if at.is_none()
                && let Some(open) = &mut self.slots[slot]
            {
                open.position = offset + length;
            }
        }
        Ok(Value::Count(length))
    }

    fn read(&mut self, slot: usize, at: Option<u64>, length: u64) -> Outcome {
        let content = self.readable(slot)?;
        let position = self.slot(slot)?.position;
        let bytes = content.read(at.unwrap_or(position), length);
        if at.is_none()
            && let Some(open) = &mut self.slots[slot]
        {
            open.position += bytes.len() as u64;
        }
        Ok(Value::Bytes(bytes))
    }

    fn seek(&mut self, slot: usize, offset: i64, whence: Whence) -> Outcome {
        let open = self.slot(slot)?;
        let size = self.object(open.object).content().map_or(0, Content::size) as i64;
        let (target, told) = match whence {
            Whence::Set => (offset, None),
            Whence::Current => (open.position as i64 + offset, None),
            Whence::End => (size + offset, None),
            Whence::Data | Whence::Hole if offset < 0 || offset >= size => return Err(Errno::NXIO),
            Whence::Data | Whence::Hole => (offset, Some(0)),
        };
        if target < 0 {
            return Err(Errno::INVAL);
        }
        if let Some(open) = &mut self.slots[slot] {
            open.position = target as u64;
        }
        Ok(Value::Count(told.unwrap_or(target as u64)))
    }

    fn resize(&mut self, id: ObjectId, size: u64) -> Outcome {
        if size > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        let object = self.object_mut(id);
        object.content_mut()?.truncate(size);
        object.reserved = 0;
        object.commit_size();
        Ok(Value::Done)
    }

    fn allocate(&mut self, slot: usize, mode: u32, offset: u64, length: u64) -> Outcome {
        const KEEP: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
        const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
        const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
        const COLLAPSE: u32 = libc::FALLOC_FL_COLLAPSE_RANGE as u32;
        const INSERT: u32 = libc::FALLOC_FL_INSERT_RANGE as u32;
        let modes = [0, KEEP, PUNCH | KEEP, ZERO, ZERO | KEEP, COLLAPSE, INSERT];
        self.slot(slot)?;
        if length == 0 {
            return Err(Errno::INVAL);
        }
        if !modes.contains(&mode) {
            return Err(Errno::OPNOTSUPP);
        }
        let id = self.writable(slot)?;
        let end = offset.checked_add(length).filter(|&end| i64::try_from(end).is_ok());
        let end = end.ok_or(Errno::FBIG)?;
        let object = self.object_mut(id);
        let mapped = object.mapped;
        let content = object.content_mut()?;
        let aligned = offset.is_multiple_of(4096) && length.is_multiple_of(4096);
        match mode {
            0 => content.grow(end),
            KEEP => {}
            ZERO => {
                content.zero(offset, length);
                content.grow(end);
            }
            COLLAPSE if !aligned || end >= content.size() => return Err(Errno::INVAL),
            INSERT if !aligned || offset >= content.size() => return Err(Errno::INVAL),
            COLLAPSE | INSERT if mapped => return Err(Errno::BUSY),
            COLLAPSE => content.collapse(offset, length),
            INSERT => content.insert(offset, length),
            _ => content.zero(offset, length),
        }
        let beyond = end > content.size();
        object.reserved = 0;
        if beyond && (mode == KEEP || mode == ZERO | KEEP) {
            object.reserved = end.next_multiple_of(4096) - offset / 4096 * 4096;
        }
        if matches!(mode, COLLAPSE | INSERT) {
            object.commit_size();
        } else {
            object.defer_size();
        }
        Ok(Value::Done)
    }

    /// The overlap rule of both range calls.
    fn check_overlap(&self, slots: (usize, usize), offsets: (u64, u64), length: u64) -> Found<()> {
        let same = self.slot(slots.0)?.object == self.slot(slots.1)?.object;
        let overlap = offsets.1 + length > offsets.0 && offsets.1 < offsets.0 + length;
        if same && overlap { Err(Errno::INVAL) } else { Ok(()) }
    }

    fn copy_range(&mut self, slots: (usize, usize), offsets: (u64, u64), length: u64) -> Outcome {
        let kinds = [self.slot(slots.0)?.object, self.slot(slots.1)?.object];
        if kinds.iter().any(|&id| self.object(id).kind == Kind::Directory) {
            return Err(Errno::ISDIR);
        }
        let source = self.readable(slots.0)?.clone();
        let to = self.writable(slots.1)?;
        if self.slot(slots.1)?.flags.appends() {
            return Err(Errno::BADF);
        }
        let length = length.min(source.size().saturating_sub(offsets.0));
        self.check_overlap(slots, offsets, length)?;
        let object = self.object_mut(to);
        object.content_mut()?.write(offsets.1, &source.read(offsets.0, length));
        object.defer_size();
        Ok(Value::Count(length))
    }

    fn relink(&mut self, slots: (usize, usize), offsets: (u64, u64), length: u64) -> Outcome {
        let from = self.writable(slots.0)?;
        let to = self.writable(slots.1)?;
        let source = self.object(from).content().ok_or(Errno::INVAL)?.clone();
        let whole = |amount: u64| amount.is_multiple_of(4096);
        let ends = offsets.0 + length == source.size();
        if !whole(offsets.0) || !whole(offsets.1) || !whole(length) && !ends {
            return Err(Errno::INVAL);
        }
        self.check_overlap(slots, offsets, length)?;
        if self.object(from).mapped || self.object(to).mapped {
            return Err(Errno::BUSY);
        }
        let moved = source.bytes(offsets.0, length);
        self.object_mut(from).content_mut()?.zero(offsets.0, length);
        (self.object_mut(from).reserved, self.object_mut(to).reserved) = (0, 0);
        let target = self.object_mut(to);
        let content = target.content_mut()?;
        let grows = offsets.1 + length > content.size();
        content.write(offsets.1, &moved);
        // Appends that wait for a sync go on waiting unless the relink itself reaches beyond them.
        if grows {
            target.commit_size();
        }
        Ok(Value::Done)
    }

    fn map(&mut self, slot: usize) -> Outcome {
        let id = self.slot(slot)?.object;
        if self.object(id).kind != Kind::File {
            return Err(Errno::NODEV);
        }
        self.object_mut(id).mapped = true;
        Ok(Value::Done)
    }

    fn store_mapped(&mut self, slot: usize, tag: u32, offset: u64, length: u64) -> Outcome {
        let open = self.slot(slot)?.clone();
        if self.object(open.object).kind != Kind::File {
            return Err(Errno::NODEV);
        }
        if !open.flags.reads() || !open.flags.writes() {
            return Err(Errno::ACCESS);
        }
        let object = self.object_mut(open.object);
        let content = object.content_mut()?;
        if offset + length > content.size() {
            return Err(Errno::FAULT);
        }
        let old = content.bytes(offset, length);
        content.write(offset, &fill(tag, length));
        object.mapped = true;
        object.unsynced.push((offset, old));
        Ok(Value::Done)
    }

    /// Whether the file of a slot has stores through a mapping that no sync has made durable.
    #[must_use]
    pub fn is_unsynced(&self, slot: usize) -> bool {
        self.slot(slot).is_ok_and(|open| !self.object(open.object).is_certain())
    }

    /// A call that never ended leads from this model to `other`, or the other way round: where the
    /// contents of files differ, either may be found.
    pub fn tear(&mut self, other: &Model) {
        for (id, object) in &mut self.objects {
            let other = other.objects.get(id).and_then(Object::content);
            let (Some(mine), Some(other)) = (object.content(), other) else { continue };
            let pages: BTreeSet<u64> = mine.page_numbers().chain(other.page_numbers()).collect();
            let bytes = pages.into_iter().map(|page| {
                let at = page * crate::content::PAGE;
                [mine, other].map(|content| (at, content.bytes(at, crate::content::PAGE)))
            });
            let torn: Vec<_> = bytes.filter(|[one, two]| one != two).map(|[_, two]| two).collect();
            object.torn.extend(torn);
        }
    }

    /// The size of a slot's file.
    #[must_use]
    pub fn size_of_open(&self, slot: usize) -> Option<u64> {
        let open = self.slot(slot).ok()?;
        self.object(open.object).content().map(Content::size)
    }

    fn sync(&mut self, slot: usize) -> Outcome {
        let id = self.slot(slot)?.object;
        self.object_mut(id).make_durable();
        Ok(Value::Done)
    }
}
