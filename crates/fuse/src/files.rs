//! Requests about open files. A handle is the engine's description: its generation and its index.

use std::time::Duration;

use vfs::{
    Desc, Errno, FileSystemExt, IoOffset, LockKind, Node, OpenFlags, Result, SetAttr, Synced,
    UserIn, UserOut, Whence,
};

use crate::abi::{
    CopyFileRangeIn, FSYNC_DATA, FallocateIn, FlushIn, FsyncIn, LOCK_FLOCK, LockIn, LseekIn,
    LseekOut, OPEN_DIRECT_IO, OPEN_EXEC, OPEN_KILL_SUIDGID, OPEN_PARALLEL_WRITES, OpenIn, OpenOut,
    READ_LOCKOWNER, ReadIn, ReleaseIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, WriteOut, op,
};
use crate::descriptions::Descriptions;
use crate::locks::Wish;
use crate::request::{Answer, DATA_MAX, Request};
use crate::session::{Session, Worker, send};

/// The kernel is to serve an open file past its page cache, which may be stale.
pub const ANSWER_FILE: u32 = OPEN_DIRECT_IO | OPEN_PARALLEL_WRITES;

/// Bytes of a page of the kernel's.
const PAGE: u64 = 4096;

/// How often a refused lock is tried again, where a release may be under way.
const RELEASE_TRIES: u32 = 5;
const RELEASE_STEP: Duration = Duration::from_millis(1);

/// The flags that an engine is to know.
const KNOWN: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_TRUNC
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_NOATIME
    | libc::O_DIRECTORY;

/// The `O_*` flags of a request, as the engine takes them.
pub const fn open_flags(flags: u32) -> OpenFlags {
    OpenFlags(flags as i32 & KNOWN)
}

/// A description as a handle.
pub const fn handle_of(desc: Desc) -> u64 {
    desc.word()
}

/// And back.
const fn desc_of(handle: u64) -> Desc {
    Desc::of_word(handle)
}

fn whence(number: u32) -> Result<Whence> {
    Ok(match number as i32 {
        libc::SEEK_SET => Whence::Set,
        libc::SEEK_CUR => Whence::Current,
        libc::SEEK_END => Whence::End,
        libc::SEEK_DATA => Whence::Data,
        libc::SEEK_HOLE => Whence::Hole,
        _ => return Err(Errno::INVAL),
    })
}

impl Session {
    /// The description of a handle.
    pub fn desc(&self, handle: u64) -> Result<Desc> {
        if Descriptions::is(handle) { self.descriptions.desc(handle) } else { Ok(desc_of(handle)) }
    }

    /// The set-id bits of a file go, and its capabilities, as with any write by another than root.
    pub fn drop_privileges(&self, node: Node) -> Result<()> {
        let attr = self.fs.attributes(node)?;
        let group_runs = attr.mode & libc::S_IXGRP != 0;
        let lost = if group_runs { libc::S_ISUID | libc::S_ISGID } else { libc::S_ISUID };
        if attr.mode & lost != 0 {
            let mode = Some(attr.mode & !lost);
            self.fs.set_attr(node, &SetAttr { mode, ..SetAttr::default() })?;
        }
        vfs::drop_capabilities(&*self.fs, node)
    }

    pub fn open(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let OpenIn { flags, open_flags: asked } = request.take()?;
        let node = self.node(request)?;
        if let Some(fh) = self.descriptions.claim(&*self.fs, &request.header, node)? {
            self.twins.open(request.header.nodeid, flags);
            return answer.put(&OpenOut { fh, open_flags: ANSWER_FILE, ..OpenOut::default() });
        }
        let executes = flags & OPEN_EXEC != 0;
        let access = flags;
        let flags = open_flags(flags);
        if asked & OPEN_KILL_SUIDGID != 0 && flags.has(libc::O_TRUNC) {
            self.drop_privileges(node)?;
        }
        let desc = self.with_room(|| self.fs.open(node.into(), flags, None))?;
        let directory = request.header.opcode == op::OPENDIR;
        if executes
            && !directory
            && let Err(errno) = self.executables.begin(&*self.fs, node, handle_of(desc))
        {
            self.fs.close(desc)?;
            return Err(errno);
        }
        self.opened(request.header.nodeid, access);
        let open_flags = if directory { 0 } else { ANSWER_FILE };
        answer.put(&OpenOut { fh: handle_of(desc), open_flags, ..OpenOut::default() })
    }

    pub fn read(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let ReadIn { fh, offset, size, read_flags, .. } = request.take()?;
        let fills_cache = read_flags & READ_LOCKOWNER == 0;
        if fills_cache {
            let attr = self.fs.attributes(self.node(request)?)?;
            if self.page_cache.watch(request.header.nodeid, &attr) {
                self.wake_watcher();
            }
        }
        let size = (size as usize).min(DATA_MAX);
        let out = &mut [UserOut::new(answer.space(size)?)];
        let length = if Descriptions::is(fh) && !fills_cache {
            let desc = self.descriptions.seek(&*self.fs, fh, offset)?;
            let length = self.fs.read(desc, out, IoOffset::POSITION)?;
            self.descriptions.moved(fh, offset + length as u64);
            length
        } else {
            self.fs.read(self.desc(fh)?, out, IoOffset::offset(offset))?
        };
        if fills_cache {
            let data = &answer.space(size)?[..length];
            self.twins.give(request.header.nodeid, offset, data, size);
        }
        answer.grow(length);
        Ok(())
    }

    pub fn write(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let asked: WriteIn = request.take()?;
        let data = request.data(asked.size as usize)?;
        if asked.write_flags & WRITE_KILL_SUIDGID != 0 {
            self.drop_privileges(self.node(request)?)?;
        }
        let written = if asked.write_flags & WRITE_CACHE == 0 {
            let file = self.twins.of(request.header.nodeid);
            let _changing = file.as_ref().map(|file| file.change());
            answer.written = Some(request.header.nodeid);
            self.write_call(&asked, data)?
        } else {
            self.write_back(request, &asked, data)?
        };
        answer.put(&WriteOut { size: written as u32, padding: 0 })
    }

    fn write_call(&self, asked: &WriteIn, data: &[u8]) -> Result<usize> {
        let data = &[UserIn::new(data)];
        if Descriptions::is(asked.fh) {
            let desc = self.descriptions.seek(&*self.fs, asked.fh, asked.offset)?;
            let written = self.with_room(|| self.fs.write(desc, data, IoOffset::POSITION))?;
            self.descriptions.moved(asked.fh, asked.offset + written as u64);
            return Ok(written);
        }
        let desc = desc_of(asked.fh);
        // `fcntl` changes this flag without telling the server; the kernel's end of file may be
        // old.
        let (_, flags) = self.fs.describe(desc)?;
        if (flags.0 ^ asked.flags as i32) & libc::O_APPEND != 0 {
            self.fs.set_flags(desc, open_flags(asked.flags))?;
        }
        self.with_room(|| self.fs.write(desc, data, IoOffset::offset(asked.offset)))
    }

    /// Writes back what was stored through a mapping: never beyond the file's end, and always to
    /// its place, also if the handle that the kernel chose appends.
    fn write_back(&self, request: &Request<'_>, asked: &WriteIn, data: &[u8]) -> Result<usize> {
        let node = self.node(request)?;
        let room = self.fs.attributes(node)?.size.saturating_sub(asked.offset);
        let inside = &data[..data.len().min(room as usize)];
        if !inside.is_empty() {
            let file = self.twins.of(request.header.nodeid).unwrap_or_default();
            let desc = self.fs.open(node.into(), OpenFlags(libc::O_RDWR), None)?;
            let result = file.write_back(&*self.fs, desc, asked.offset, inside);
            self.fs.close(desc)?;
            result?;
        }
        Ok(data.len())
    }

    pub fn flush(&self, request: &mut Request<'_>) -> Result<()> {
        let FlushIn { fh, lock_owner, .. } = request.take()?;
        self.locks.flush(&*self.fs, (self.node(request)?.ino, self.desc(fh)?), lock_owner);
        Ok(())
    }

    /// A handle is open now, with these `O_*` flags.
    pub fn opened(&self, number: u64, flags: u32) {
        self.nodes.opened(number);
        self.twins.open(number, flags);
    }

    pub fn release(&self, request: &mut Request<'_>) -> Result<()> {
        let ReleaseIn { fh, flags, .. } = request.take()?;
        let number = request.header.nodeid;
        self.locks.release(&*self.fs, self.desc(fh)?, fh);
        self.twins.release(number, flags);
        self.executables.release(&*self.fs, fh)?;
        if Descriptions::is(fh) {
            return self.descriptions.close(&*self.fs, fh);
        }
        let desc = desc_of(fh);
        if self.nodes.released(number) {
            return self.hold_nameless(self.nodes.node(number)?, desc);
        }
        self.fs.close(desc)
    }

    /// Closes the last handle of a node that has lost its name, and keeps the node until the kernel
    /// forgets it.
    fn hold_nameless(&self, node: Node, desc: Desc) -> Result<()> {
        if let Ok(hold) = self.fs.open(node.into(), OpenFlags(libc::O_PATH), None) {
            if let Some(hold) = self.nodes.hold(node, hold) {
                self.fs.close(hold)?;
            }
            return self.fs.close(desc);
        }
        // No room for another one: the handle's own stays, without its lock.
        let unlocked = self.fs.flock(desc, LockKind::Unlock, false);
        match self.nodes.hold(node, desc) {
            Some(desc) => self.fs.close(desc),
            None => unlocked,
        }
    }

    pub fn sync(&self, request: &mut Request<'_>) -> Result<()> {
        let FsyncIn { fh, fsync_flags, .. } = request.take()?;
        self.fs.sync(Synced::file(self.desc(fh)?, fsync_flags & FSYNC_DATA != 0))
    }

    pub fn allocate(&self, request: &mut Request<'_>) -> Result<()> {
        let FallocateIn { fh, offset, length, mode, .. } = request.take()?;
        let desc = self.desc(fh)?;
        self.with_room(|| self.fs.allocate(desc, mode, offset, length))
    }

    pub fn seek(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let LseekIn { fh, offset, whence: how, .. } = request.take()?;
        let desc = self.desc(fh)?;
        let how = whence(how)?;
        if !Descriptions::is(fh) {
            let offset = self.fs.seek(desc, offset as i64, how)?;
            return answer.put(&LseekOut { offset });
        }
        // The position of such a description is another program's as well.
        let node = self.fs.describe(desc)?.0;
        let own = self.fs.open(node.into(), OpenFlags(libc::O_RDONLY), None)?;
        let found = self.fs.seek(own, offset as i64, how);
        self.fs.close(own)?;
        answer.put(&LseekOut { offset: found? })
    }

    /// A handle's description, and the offset in it that the kernel means by one of its own.
    fn place(&self, handle: u64, offset: u64) -> Result<(Desc, u64)> {
        if !Descriptions::is(handle) {
            return Ok((desc_of(handle), offset));
        }
        let desc = self.descriptions.seek(&*self.fs, handle, offset)?;
        Ok((desc, self.fs.seek(desc, 0, Whence::Current)?))
    }

    /// Moves the position behind what was done, if it is shared.
    fn gone_on(&self, handle: u64, (desc, at, offset): (Desc, u64, u64), size: u32) -> Result<()> {
        if Descriptions::is(handle) {
            self.fs.seek(desc, (at + u64::from(size)) as i64, Whence::Set)?;
            self.descriptions.moved(handle, offset + u64::from(size));
        }
        Ok(())
    }

    /// Whether the kernel would lose stores. Behind a copy it drops the pages of the target, and
    /// does not write back what was stored meanwhile in the rest of the first and last one.
    fn copy_loses_stores(&self, number: u64, to: (Desc, u64), length: u64) -> Result<bool> {
        if self.twins.of(number).is_none() {
            return Ok(false);
        }
        let (desc, start) = to;
        let end = start.saturating_add(length);
        let size = self.fs.attributes(self.fs.describe(desc)?.0)?.size;
        Ok(start % PAGE != 0 || end % PAGE != 0 && end < size)
    }

    pub fn copy_range(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let CopyFileRangeIn { fh_in, off_in, nodeid_out, fh_out, off_out, len, .. } =
            request.take()?;
        let ((from, from_at), (to, to_at)) =
            (self.place(fh_in, off_in)?, self.place(fh_out, off_out)?);
        // The answer has 32 bits for it.
        let length = len.min(1 << 30);
        if self.copy_loses_stores(nodeid_out, (to, to_at), length)? {
            // The kernel then reads and writes.
            return Err(Errno::OPNOTSUPP);
        }
        let file = self.twins.of(nodeid_out);
        let _changing = file.as_ref().map(|file| file.change());
        let copy = || self.fs.copy_range(from, from_at, to, to_at, length);
        let size = self.with_room(copy)? as u32;
        self.gone_on(fh_in, (from, from_at, off_in), size)?;
        self.gone_on(fh_out, (to, to_at, off_out), size)?;
        answer.put(&WriteOut { size, padding: 0 })
    }

    pub fn test_lock(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let asked: LockIn = request.take()?;
        let found = self.locks.test(&*self.fs, &self.wish(request, &asked)?)?;
        answer.put(&found)
    }

    fn wish(&self, request: &Request<'_>, asked: &LockIn) -> Result<Wish> {
        let node = self.node(request)?;
        let (handle, owner, lock) = (asked.fh, asked.owner, asked.lock);
        let desc = self.desc(handle)?;
        Ok(Wish { node, desc, handle, owner, thread: request.header.pid, lock })
    }

    /// Tries a refused lock again: another thread may just be releasing the handle whose lock
    /// refuses it. (With one thread requests are served in order.)
    fn once_more(&self, first: Result<()>, call: impl Fn() -> Result<()>) -> Result<()> {
        let mut result = first;
        for _ in 0..RELEASE_TRIES {
            if result != Err(Errno::AGAIN) || !self.pool.is_many() {
                break;
            }
            std::thread::sleep(RELEASE_STEP);
            result = call();
        }
        result
    }

    /// Sets a lock of either sort.
    fn lock(&self, asked: &LockIn, wish: &Wish, wait: bool) -> Result<()> {
        if asked.lock_flags & LOCK_FLOCK == 0 {
            return self.locks.set(&*self.fs, wish, wait);
        }
        self.fs.flock(self.desc(asked.fh)?, wish.kind()?, wait)
    }
}

impl Worker {
    /// Sets a lock. One that is waited for is answered by another thread, unless it is there.
    pub fn set_lock(&self, request: &mut Request<'_>, wait: bool) -> Result<()> {
        let session = &self.session;
        let asked: LockIn = request.take()?;
        let wish = session.wish(request, &asked)?;
        let at_once = session.lock(&asked, &wish, false);
        let unique = request.header.unique;
        if !wait {
            return session.once_more(at_once, || session.lock(&asked, &wish, false));
        }
        if at_once != Err(Errno::AGAIN) {
            send(&self.device, Answer::small().message(unique, at_once));
            return Ok(());
        }
        let (session, device) = (self.session.clone(), self.device.clone());
        session.locks.count_thread(true);
        std::thread::spawn(move || {
            let result = session.locks.waiting(unique, || session.lock(&asked, &wish, true));
            send(&device, Answer::small().message(unique, result));
            session.locks.count_thread(false);
        });
        Ok(())
    }
}
