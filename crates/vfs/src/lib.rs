//! The contract between the faces (preload, mount, command line) and the engines.
//!
//! A face resolves paths and keeps the process's descriptor table; an engine keeps files. They meet
//! in four traits: [`FileSystem`] (names, attributes, data), [`Maps`], [`Locks`] and [`Attached`],
//! which together are an [`Engine`]. Nothing here depends on where bytes live: no trait speaks of
//! persistent memory, of one machine or of one tier.
//!
//! Each call stands there once. What it is about, and what the caller knows already, are values
//! ([`FileRef`], [`EntryName`], [`Open`]); where a program waits for the call, what it gives is
//! written where the caller says. [`FileSystemExt`] has the same calls for a caller in no hurry.
//!
//! Errors are the kernel's `errno` values: a face hands them to the program as they are.
//!
//! The engine does *not* check permissions (it does keep owner, group and mode): the face does, in
//! its path walk, because the face knows on whose behalf it acts (the process, or a FUSE request).

pub mod composite;
pub mod cred;
pub mod executable;
pub mod keeper;
pub mod lock_waits;
pub mod mounts;
pub mod preloaded;
mod types;
mod user;
pub mod variable;
pub mod variables;
pub mod versions;
pub mod walk;

pub use pmem::{UserIn, UserOut, text_length};
pub use rustix::io::Errno;
pub use types::*;
pub use user::{FILE_CAPABILITIES, Opened, RACES_MAX, User, drop_capabilities};

/// A wait was ended because the face keeps a signal back. Never shown to a program: the face makes
/// the call again after the handler, or gives `EINTR`. (As the kernel's own `ERESTARTSYS`.)
pub const INTERRUPTED: Errno = Errno::from_raw_os_error(512);

/// The call is to be made again, whatever the handler says: nothing of it has happened.
pub const BEGIN_ANEW: Errno = Errno::from_raw_os_error(513);

/// What a contract call returns: a value or the `errno` that Linux would give.
pub type Result<T> = core::result::Result<T, Errno>;

/// One mounted/attached file system, seen from one process. All methods may be called from any
/// thread at any time; none keeps a lock after it has returned.
///
/// Names are single path components, 1 to 255 bytes, without `/` and NUL; never `.` or `..` in
/// calls that change a directory. `ENAMETOOLONG` beyond 255.
pub trait FileSystem: Send + Sync {
    // ---- names -------------------------------------------------------------------------------

    /// The root directory.
    fn root(&self) -> Node;

    /// The device number that the file system of this reports in `st_dev`, and its statistics.
    fn stat_fs(&self, of: FileRef) -> Result<FsStat>;

    /// Writes to `attr` the attributes of what a path of plain names, separated by single slashes,
    /// leads to from a directory. `false` says nothing, and `attr` is anything then. Permissions
    /// are not asked, symlinks not followed.
    fn find(&self, from: FileRef, names: &[u8], attr: &mut Attr) -> bool {
        let _ = (from, names, attr);
        false
    }

    /// Walks from a directory by such a path, and writes where `want` says what it has found. Gives
    /// the bytes that were walked: all, or none, which says nothing.
    ///
    /// One name alone ([`WalkOutput::Name`]) is always walked. `.` gives `dir`, `..` the parent
    /// (the root's is itself). `ENOENT`, `ENOTDIR`, `ESTALE` (dir was removed and reused), `EIO`.
    fn walk(&self, dir: Node, names: &[u8], want: WalkOutput<'_>) -> Result<usize>;

    /// Writes to `attr` the attributes of a node, or of what a description is open for. Size and
    /// times are the current ones, not the last durable ones.
    fn attr(&self, of: FileRef, attr: &mut Attr) -> Result<()>;

    /// Changes mode, owner, group and times in one atomic step (`ctime` moves with them).
    fn set_attr(&self, node: Node, change: &SetAttr) -> Result<()>;

    /// Copies a symlink's target to `out`, up to its length; gives the target's whole length.
    /// `EINVAL` if the node is not a symlink.
    fn read_link(&self, node: Node, out: &mut [u8]) -> Result<usize>;

    /// Makes a new node of any kind (file, directory, symlink, fifo, socket, device node) under
    /// `name`. `EEXIST`, `ENOSPC`, `ENOTDIR`, `ENOENT` (dir itself was removed), `EROFS`.
    fn create(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Node>;

    /// Gives `node` another name. `EEXIST`, `EPERM` (a directory), `EMLINK`, `ENOENT` (its last
    /// name is gone and it was not made by `O_TMPFILE`).
    fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<()>;

    /// Takes a name away. An open file lives on until its last description is closed. `EISDIR`,
    /// `ENOTDIR`: it leads to something else than `what` says. `ENOTEMPTY`, `EBUSY` (the root).
    fn remove(&self, at: &EntryName<'_>, what: Removes) -> Result<()>;

    /// `renameat2`: `RENAME_EXCHANGE`, or `RENAME_NOREPLACE` and `RENAME_WHITEOUT` or neither
    /// (`EINVAL` otherwise). A whiteout, the character device 0:0 of mode 0, takes the old name in
    /// the same step. What was found at the target counts only where it was told of the source.
    fn rename(&self, from: &EntryName<'_>, to: &EntryName<'_>, flags: RenameFlags) -> Result<()>;

    /// Calls `each` for the entries after position `cookie` (0 = from the start), `.` and `..`
    /// first, in ascending order of their `cookie`s, until it gives `false` or all are told. Entry
    /// cookies are stable: an entry that exists throughout is told exactly once whatever else
    /// changes.
    fn read_dir(
        &self,
        dir: Node,
        cookie: i64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()>;

    /// Reads an extended attribute into `out`; gives its whole length. `ERANGE` when `out` is not
    /// empty and too small, `ENODATA`.
    fn get_xattr(&self, node: Node, name: &[u8], out: &mut [u8]) -> Result<usize>;

    /// Sets an extended attribute. `flags`: 0, `XATTR_CREATE` (`EEXIST`), `XATTR_REPLACE`
    /// (`ENODATA`). `ENOSPC`/`E2BIG` where all attributes of a node together exceed one block.
    fn set_xattr(&self, node: Node, name: &[u8], value: &[u8], flags: u32) -> Result<()>;

    /// The NUL-terminated names, one after another, as `listxattr`; gives the whole length.
    fn list_xattr(&self, node: Node, out: &mut [u8]) -> Result<usize>;

    /// Removes an extended attribute. `ENODATA`.
    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()>;

    // ---- open file descriptions ----------------------------------------------------------------

    /// Opens a node, or makes a regular file and opens it: a new open file description, shared by
    /// the processes that inherit it. `O_TRUNC` truncates. Directories too (`EISDIR` if writing is
    /// asked for); `ELOOP` for a symlink unless `O_PATH`. The face has checked permissions.
    /// `place`: in which directory it was found by name, for [`FileSystem::place`]; a new file's is
    /// its own.
    fn open(&self, what: Open<'_>, flags: OpenFlags, place: Option<Node>) -> Result<Desc>;

    /// Drops this process's hold on a description. The face counts the descriptors (dup) inside the
    /// process and calls this once, for the last of them. Record locks are dropped by the face
    /// through [`Locks::release_locks`], as POSIX binds them to any close.
    fn close(&self, desc: Desc) -> Result<()>;

    /// The directory that an open description was found in: a hint, for the file may have been
    /// moved since. `ENOENT` if there is none any more.
    fn place(&self, desc: Desc) -> Result<Node>;

    /// The node and the current status flags of a description.
    fn describe(&self, desc: Desc) -> Result<(Node, OpenFlags)>;

    /// `F_SETFL`: changes `O_APPEND`, `O_NONBLOCK`, `O_NOATIME`, `O_DIRECT`, the rest is kept.
    fn set_flags(&self, desc: Desc, flags: OpenFlags) -> Result<()>;

    /// Reads; the buffers are filled in order. On a directory `EISDIR`; `EBADF` if not open for
    /// reading.
    fn read(&self, desc: Desc, out: &mut [UserOut<'_>], at: IoOffset) -> Result<usize>;

    /// Writes; all buffers are one atomic write. With `O_APPEND` it appends, whatever the offset,
    /// as Linux does.
    fn write(&self, desc: Desc, data: &[UserIn<'_>], at: IoOffset) -> Result<usize>;

    /// Moves the position: `SEEK_SET/CUR/END/DATA/HOLE`. `EINVAL`, `ENXIO`, `EOVERFLOW`. On a
    /// directory the position is a `read_dir` cookie.
    fn seek(&self, desc: Desc, offset: i64, whence: Whence) -> Result<u64>;

    /// Says what is to be done before a call of this process changes the contents of a file that
    /// has set-id bits or capabilities: the face knows the user that writes. Once; nothing is done
    /// without.
    fn on_privileged_change(&self, act: fn(&dyn FileSystem, Node) -> Result<()>) {
        let _ = act;
    }

    /// Makes durable what was written.
    fn sync(&self, what: Synced) -> Result<()>;

    /// Sets the size (`ftruncate`, `truncate`): `EINVAL` beyond `i64::MAX`, `EISDIR`, `EFBIG`,
    /// `ENOSPC`.
    fn truncate(&self, node: Node, size: u64) -> Result<()>;

    /// `fallocate`: the modes 0, `KEEP_SIZE`, `PUNCH_HOLE|KEEP_SIZE`, `ZERO_RANGE[|KEEP_SIZE]`,
    /// `COLLAPSE_RANGE`, `INSERT_RANGE`; others `EOPNOTSUPP`.
    fn allocate(&self, desc: Desc, mode: u32, offset: u64, length: u64) -> Result<()>;

    /// Copies within the file system (`copy_file_range`); gives the bytes copied (short at the end
    /// of the source). Ranges of the same file must not overlap (`EINVAL`).
    fn copy_range(
        &self,
        from: Desc,
        from_offset: u64,
        to: Desc,
        to_offset: u64,
        length: u64,
    ) -> Result<u64>;

    /// Moves whole blocks between two files atomically without copying: afterwards `to` holds at
    /// `to_offset` what `from` held at `from_offset`, and `from` has a hole there. Holes move as
    /// holes; the size of `to` becomes as after a write of that range, that of `from` stays.
    /// `EINVAL` where an offset or the length is not a multiple of 4096 (unless it ends at the end
    /// of `from`), or where the ranges of one file overlap.
    fn relink(
        &self,
        from: Desc,
        from_offset: u64,
        to: Desc,
        to_offset: u64,
        length: u64,
    ) -> Result<()>;

    /// Begins a watch of a node for a process that is to be told of these events (`IN_*`): gives
    /// the path of what the kernel is to watch, from the anchor directory's part that every
    /// attached process has open. Whoever changes the node, or what is in it, repeats the change
    /// there, until the process has ended. `EOPNOTSUPP`; `ENOSPC`: as much is watched as can be.
    fn watch(&self, node: Node, mask: u32) -> Result<Vec<u8>> {
        let _ = (node, mask);
        Err(Errno::OPNOTSUPP)
    }

    /// Whether some process has a file open for writing.
    fn is_written(&self, node: Node) -> Result<bool>;

    /// Whether some process executes a file.
    fn is_executed(&self, node: Node) -> Result<bool>;
}

/// Files in the memory of processes: what `mmap` needs of an engine whose files lie in one region.
pub trait Maps: Send + Sync {
    /// The pieces of the region that hold `length` bytes of the file from `offset` on, for `mmap`;
    /// `range` is (offset, length). What `fill` leaves as a hole is a piece without a place, and
    /// what is allocated but unwritten counts as a hole. The description must be held until every
    /// mapping is gone (a face keeps a hold for it). `ENOSPC`; `EINVAL` unless offset and length
    /// are multiples of 4096.
    fn map(&self, desc: Desc, range: (u64, u64), mapped: Mapped, fill: Fill) -> Result<Vec<Piece>>;

    /// The open file whose pages are mapped with [`Maps::map`], as a descriptor of this
    /// process (of the region), and whether this process or another one may change its bytes.
    fn region_descriptor(&self, of: FileRef) -> (i32, Changing);

    /// Where the engine itself has that region in this process's memory: a face may move page-table
    /// entries away from there, which come back when the engine touches them. 0: nowhere.
    fn region_address(&self, of: FileRef) -> usize;

    /// The pages by which pieces of that region can be mapped shared (4 KiB, or 2 MiB: then pieces
    /// that do not lie on whole ones cannot; 0: none can), and whether pages of it can be mapped
    /// privately.
    fn can_map(&self, of: FileRef) -> (usize, bool);

    /// The program wants `number`, a descriptor of the engine's own: moves the engine's away, lets
    /// `replace` put the program's in its place, and gives the engine's new number. `EBADF` if it
    /// is not the engine's.
    fn vacate(&self, number: i32, replace: &mut dyn FnMut() -> Result<()>) -> Result<i32>;
}

/// Locks that programs take on files.
pub trait Locks: Send + Sync {
    /// Sets, clears or tests a record lock. `wait`: block until granted (`EDEADLK`); otherwise
    /// `EAGAIN`.
    fn record_lock(
        &self,
        desc: Desc,
        owner: LockOwner,
        lock: &RecordLock,
        wait: bool,
    ) -> Result<()>;

    /// `F_GETLK`: the first lock that would refuse `lock` (to unlock: the first of the owner's own
    /// in the range), or `None`.
    fn test_lock(
        &self,
        desc: Desc,
        owner: LockOwner,
        lock: &RecordLock,
    ) -> Result<Option<RecordLock>>;

    /// Drops all record locks that this process (as [`LockOwner::Process`]) holds on the node, or
    /// on what a description is open for unless it is a mere path: POSIX semantics of any `close`.
    fn release_locks(&self, of: FileRef) -> Result<()>;

    /// `flock`: bound to the description. `EWOULDBLOCK` without `wait`.
    fn flock(&self, desc: Desc, kind: LockKind, wait: bool) -> Result<()>;

    /// Which processes wait now for record locks of which others, as far as both are visible from
    /// this process's namespace.
    fn waits(&self) -> Result<Vec<Wait>> {
        Ok(Vec::new())
    }

    /// From now on a process that waits here for a record lock asks this, too.
    fn look_beyond(&self, _beyond: Beyond) {}
}

/// A process waits for another one: their numbers.
pub type Wait = (u32, u32);

/// Given the waits of a file system: whether the asking process waits for itself, by them and by
/// those of others that it has attached.
pub type Beyond = std::sync::Arc<dyn Fn(&[Wait]) -> bool + Send + Sync>;

/// What a process holds: descriptions that leave it, programs that it executes, children, its end.
pub trait Attached: Send + Sync {
    /// Before a description leaves this process by a descriptor that the kernel carries (exec,
    /// `SCM_RIGHTS`): gives its name, by which that descriptor's inode is called, and the kind of
    /// what it is of. From then on the description lives as long as any process holds it *or* some
    /// descriptor of that inode has a shared OFD lock. (The process that took that lock asks
    /// [`FileSystem::describe`] whether it was in time.) A name has at most 56 bits. It waits for
    /// no lock: the process may be executing a program while another thread is inside a call.
    fn hand_over(&self, desc: Desc) -> Result<(u64, Kind)>;

    /// Takes hold of a description that was handed over; `EBADF` if it no longer exists.
    fn adopt(&self, name: u64) -> Result<Desc>;

    /// This process executes `now` from here on, and `before` no longer. As long as some process
    /// does, opening the file for writing gives `ETXTBSY`.
    fn execute(&self, before: Option<Node>, now: Option<Node>) -> Result<()>;
    /// Some program that this process serves executes a file, or (`begins` is false) none of them
    /// does any more: as [`Attached::execute`], but this process itself may still open it for
    /// writing. `ETXTBSY` if another process has it open for writing.
    fn host_execution(&self, node: Node, begins: bool) -> Result<()>;

    /// Before `fork`: prepares a place for the child, which will hold every description in `held`.
    fn fork_prepare(&self, held: &[Desc]) -> Result<ForkTicket>;
    /// In the parent after `fork`; `child` is `None` if it failed.
    fn fork_parent(&self, ticket: ForkTicket, child: Option<u32>);
    /// In the child, first thing (async-signal-safe: no allocation).
    fn fork_child(&self, ticket: ForkTicket) -> Result<()>;
    /// Whether a child that holds nothing may be forked without a place.
    fn may_fork_apart(&self) -> bool {
        false
    }
    /// In such a child, first thing (async-signal-safe: no allocation): lets go of what it shares
    /// with its parent. It makes no call but [`Attached::fork_unprepared`], if it ever needs a
    /// place.
    fn fork_apart(&self) {}
    /// In a child that was forked without [`Attached::fork_prepare`]: takes a place, and hold of
    /// those descriptions of its parent's that are still there; the others leave `held`. `ESTALE`
    /// if no process has the file system attached any more.
    fn fork_unprepared(&self, held: &mut Vec<Desc>) -> Result<()>;

    /// The memory node that this process allocates from, if it has chosen one: a child that
    /// attaches late is at home there, too.
    fn home(&self) -> Option<u32> {
        None
    }

    /// Before `exec`: makes this process's attachment survive it. Gives a token (an environment
    /// value) for the engine's adopt function in the new image.
    fn exec_prepare(&self) -> Result<String>;
    /// `exec` failed: takes it back.
    fn exec_failed(&self);
    /// Detaches, orderly: every hold of this process is dropped. Further calls give `EBADF`.
    fn detach(&self) -> Result<()>;
}

/// A whole engine, which the faces are given: all four traits, whichever engine has them.
pub trait Engine: FileSystem + Maps + Locks + Attached {}

impl<E: FileSystem + Maps + Locks + Attached> Engine for E {}

/// The same calls for a caller that has them give back what they find.
pub trait FileSystemExt: FileSystem {
    /// As [`FileSystem::attr`], of a node.
    fn attributes(&self, node: Node) -> Result<Attr> {
        let mut attr = Attr::NONE;
        self.attr(node.into(), &mut attr).map(|()| attr)
    }

    /// As [`FileSystem::stat_fs`], of the root.
    fn statistics(&self) -> Result<FsStat> {
        self.stat_fs(self.root().into())
    }

    /// As [`FileSystem::walk`], by one name.
    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Node> {
        let mut node = dir;
        self.walk(dir, name, WalkOutput::Name(&mut node)).map(|_| node)
    }
}

impl<F: FileSystem + ?Sized> FileSystemExt for F {}
