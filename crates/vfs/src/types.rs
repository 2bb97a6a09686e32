//! The values that pass through the contract.

use crate::composite::MEMBERS_MAX;

/// A file, directory or other object, named for as long as it exists. `generation` tells a reused
/// inode from the one that was meant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Node {
    /// Inode number, of at most [`Node::BITS`] bits; above them stands [`Node::member`].
    pub ino: u64,
    /// Changes whenever the inode is used for another object.
    pub generation: u32,
}

impl Node {
    /// Bits of an inode number.
    pub const BITS: u32 = 56;

    /// Of which of [several](crate::composite) file systems it is.
    #[inline]
    #[must_use]
    pub const fn member(self) -> usize {
        (self.ino >> Self::BITS) as usize
    }

    /// The same node of another member.
    #[inline]
    #[must_use]
    pub const fn of_member(self, number: usize) -> Self {
        Self { ino: self.number() | (number as u64) << Self::BITS, ..self }
    }

    /// The inode number alone, as in `st_ino`.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u64 {
        self.ino & ((1 << Self::BITS) - 1)
    }
}

/// A shared open file description: an index in its engine's table, and the entry's generation. One
/// word, so that it is stored and loaded as a whole wherever it goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Desc(u64);

impl Desc {
    /// Bits of its word: a face may keep others of its own above them.
    pub const BITS: u32 = 56;
    /// The bits of its word from here on say of which member it is.
    pub const MEMBER: u32 = 52;

    /// A stale description, of another generation than the entry, is refused with `EBADF`. An
    /// engine's generations have at most 20 bits.
    #[inline]
    #[must_use]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | index as u64)
    }

    /// The description as a word, of [`Desc::BITS`].
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The description in such a word, whatever stands above its bits.
    #[inline]
    #[must_use]
    pub const fn of_word(word: u64) -> Self {
        Self(word & ((1 << Self::BITS) - 1))
    }

    /// Index in the engine's table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// How often the entry was used; of another member than the first, with its number above.
    #[inline]
    #[must_use]
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Of which of [several](crate::composite) file systems it is.
    #[inline]
    #[must_use]
    pub const fn member(self) -> usize {
        (self.0 >> Self::MEMBER) as usize
    }

    /// The same description of another member.
    #[inline]
    #[must_use]
    pub const fn of_member(self, number: usize) -> Self {
        Self(self.0 & ((1 << Self::MEMBER) - 1) | (number as u64) << Self::MEMBER)
    }
}

/// What a call is about: a node, or what a description is open for. Two words, so that it costs no
/// call anything; [`FileRef::which`] tells them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRef {
    number: u64,
    generation: u64,
}

/// The two that [`FileRef`] can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum NodeOrDesc {
    Node(Node),
    Desc(Desc),
}

impl FileRef {
    /// In place of a generation, which has 32 bits.
    const DESC: u64 = u64::MAX;

    /// Of which of [several](crate::composite) file systems it is.
    #[inline]
    #[must_use]
    pub const fn member(self) -> usize {
        match self.which() {
            NodeOrDesc::Node(node) => node.member(),
            NodeOrDesc::Desc(desc) => desc.member(),
        }
    }

    /// Which of the two it is.
    #[inline]
    pub const fn which(self) -> NodeOrDesc {
        if self.generation == Self::DESC {
            return NodeOrDesc::Desc(Desc(self.number));
        }
        NodeOrDesc::Node(Node { ino: self.number, generation: self.generation as u32 })
    }
}

impl From<Node> for FileRef {
    #[inline]
    fn from(node: Node) -> Self {
        Self { number: node.ino, generation: node.generation.into() }
    }
}

impl From<Desc> for FileRef {
    #[inline]
    fn from(desc: Desc) -> Self {
        Self { number: desc.0, generation: Self::DESC }
    }
}

/// What an inode is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

impl Kind {
    /// The `S_IFMT` bits.
    #[inline]
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::File => libc::S_IFREG,
            Self::Directory => libc::S_IFDIR,
            Self::Symlink => libc::S_IFLNK,
            Self::Fifo => libc::S_IFIFO,
            Self::Socket => libc::S_IFSOCK,
            Self::CharDevice => libc::S_IFCHR,
            Self::BlockDevice => libc::S_IFBLK,
        }
    }

    /// From the `S_IFMT` bits of a mode; `None` for none of the seven.
    #[inline]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        // By one load: nearly every call asks several times.
        const KINDS: [Option<Kind>; 16] = {
            let mut kinds = [None; 16];
            let mut at = 0;
            while at < Kind::ALL.len() {
                let kind = Kind::ALL[at];
                kinds[kind.d_type() as usize] = Some(kind);
                at += 1;
            }
            kinds
        };
        KINDS[(mode >> 12 & 0xF) as usize]
    }

    const ALL: [Self; 7] = [
        Self::File,
        Self::Directory,
        Self::Symlink,
        Self::Fifo,
        Self::Socket,
        Self::CharDevice,
        Self::BlockDevice,
    ];

    /// The `d_type` of a directory entry.
    #[inline]
    pub const fn d_type(self) -> u8 {
        (self.mode_bits() >> 12) as u8
    }
}

/// A point in time: nanoseconds since 1970-01-01 UTC (negative before; until the year 2262).
pub type Nanos = i64;

/// What `stat` tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Attr {
    pub node: Node,
    pub kind: Kind,
    /// The lower 12 bits: permissions, set-id, sticky.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    pub atime: Nanos,
    pub mtime: Nanos,
    pub ctime: Nanos,
    pub btime: Nanos,
}

impl Attr {
    /// A placeholder, to be overwritten.
    pub const NONE: Self = Self {
        node: Node { ino: 0, generation: 0 },
        kind: Kind::File,
        mode: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: 0,
        mtime: 0,
        ctime: 0,
        btime: 0,
    };
}

/// A change of attributes; `None` leaves a field as it is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct SetAttr {
    /// The lower 12 bits.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<Nanos>,
    pub mtime: Option<Nanos>,
    /// The change time moves, also if nothing else does.
    pub touch: bool,
}

/// A node to be made.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct NewNode<'a> {
    pub kind: Kind,
    /// The lower 12 bits, umask already applied.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number of device nodes, else 0.
    pub rdev: u64,
    /// Target of a symlink (1 to 4095 bytes), else empty.
    pub target: &'a [u8],
}

/// The `O_*` flags of an open file description, as Linux numbers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenFlags(pub i32);

impl OpenFlags {
    /// Whether the description may read.
    #[inline]
    pub const fn reads(self) -> bool {
        !self.path_only() && matches!(self.0 & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR)
    }
    /// Whether the description may write.
    #[inline]
    pub const fn writes(self) -> bool {
        !self.path_only() && matches!(self.0 & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR)
    }
    /// Whether every write goes to the end.
    #[inline]
    pub const fn appends(self) -> bool {
        self.0 & libc::O_APPEND != 0
    }
    /// `O_PATH`: a place in the tree, not a file to read or write.
    #[inline]
    pub const fn path_only(self) -> bool {
        self.0 & libc::O_PATH != 0
    }
    /// Whether all bits of `mask` are set.
    #[inline]
    pub const fn has(self, mask: i32) -> bool {
        self.0 & mask == mask
    }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct EntryName<'a> {
    /// The directory.
    pub dir: Node,
    /// One component of a path.
    pub name: &'a [u8],
    /// What the caller has just found there; `None`: it has not looked, or there is nothing. The
    /// engine makes sure itself: this only spares it a search.
    pub found: Option<(Node, Kind)>,
}

impl<'a> EntryName<'a> {
    /// A name that nobody has looked up.
    #[inline]
    pub const fn new(dir: Node, name: &'a [u8]) -> Self {
        Self { dir, name, found: None }
    }
}

/// What a removal takes a name from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removes {
    /// Anything but a directory (`unlink`).
    Name,
    /// An empty directory (`rmdir`).
    Directory,
}

/// What is wanted of a walk, and where it is written.
#[derive(Debug)]
pub enum WalkOutput<'f> {
    /// What the one name leads to.
    Name(&'f mut Node),
    /// What the path leads to, if all on the way are directories, and that as well.
    Directory(&'f mut Node),
    /// What is about to be changed, which is not worth remembering.
    Change(&'f mut LastName),
}

/// Where the last name of a path is.
#[derive(Clone, Copy, Debug)]
pub struct LastName {
    /// The directory that has it, or would have it.
    pub dir: Node,
    /// The attributes of what it leads to; `None`: there is nothing.
    pub attr: Option<Attr>,
}

/// What is opened.
#[derive(Clone, Copy, Debug)]
pub enum Open<'a> {
    /// A node, and its kind if the caller knows it.
    Node(Node, Option<Kind>),
    /// A regular file that is made under this name, as the one step that it is for the caller:
    /// `EEXIST` and the rest as [`FileSystem::create`](crate::FileSystem::create).
    New(&'a EntryName<'a>, &'a NewNode<'a>),
    /// A regular file without a name, in this directory (`O_TMPFILE`). It may be linked later
    /// unless it is opened with `O_EXCL`.
    Unnamed(Node, &'a NewNode<'a>),
}

impl From<Node> for Open<'_> {
    #[inline]
    fn from(node: Node) -> Self {
        Self::Node(node, None)
    }
}

/// The flags of `renameat2`, and whose the whiteout is that may be left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameFlags {
    /// `RENAME_*`.
    pub bits: u32,
    /// User and group of the whiteout of `RENAME_WHITEOUT`.
    pub owner: (u32, u32),
}

impl RenameFlags {
    /// Flags of a rename that leaves no whiteout, or root's.
    #[must_use]
    pub const fn new(bits: u32) -> Self {
        Self { bits, owner: (0, 0) }
    }
}

/// One directory entry as told by `read_dir`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct DirEntry<'a> {
    pub name: &'a [u8],
    pub ino: u64,
    pub kind: Kind,
    /// `read_dir` from here goes on after this entry (`d_off`); positive.
    pub cookie: i64,
}

/// Where a read or a write begins: at an offset, or at the description's position, which moves
/// then. One word, so that it costs no call anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoOffset(u64);

impl IoOffset {
    /// The description's position.
    pub const POSITION: Self = Self(u64::MAX);

    /// An offset, 0 to `i64::MAX` (else `EINVAL`); the position stays.
    #[inline]
    #[must_use]
    pub const fn offset(offset: u64) -> Self {
        Self(if offset == u64::MAX { u64::MAX - 1 } else { offset })
    }

    /// The offset; `None`: the position.
    #[inline]
    pub const fn given(self) -> Option<u64> {
        if self.0 == u64::MAX { None } else { Some(self.0) }
    }
}

impl From<Option<u64>> for IoOffset {
    /// At the position unless there is an offset.
    #[inline]
    fn from(offset: Option<u64>) -> Self {
        offset.map_or(Self::POSITION, Self::offset)
    }
}

/// Where `seek` starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Whence {
    Set,
    Current,
    End,
    Data,
    Hole,
}

/// What is made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Synced {
    /// An open file (`fsync`).
    File(Desc),
    /// The same, as far as it takes to read its data (`fdatasync`).
    Data(Desc),
    /// As `File`, but of the stores through mappings only those to this range (`msync`).
    Range { desc: Desc, offset: u64, length: u64 },
    /// Everything in the file system (`sync`, `syncfs`).
    All,
}

impl Synced {
    /// An open file, or its data alone.
    #[inline]
    pub const fn file(desc: Desc, data_only: bool) -> Self {
        if data_only { Self::Data(desc) } else { Self::File(desc) }
    }
}

/// What a mapping is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapped {
    /// Copy on write: no store through it reaches the file.
    Private,
    /// Shared, and only read.
    Read,
    /// Shared, and stored to: stores are durable after a sync.
    Write,
}

/// What a process that maps the region must expect of the files in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changing {
    /// This process may change them, as others may: pages may be mapped writable.
    Here,
    /// Others may, this process not.
    Elsewhere,
    /// Nobody does.
    Nowhere,
}

/// Which holes are filled before pieces of a file are mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Fill {
    /// All in the range, unless the mapping is private.
    All,
    /// None, whatever the mapping is for.
    None,
    /// At a page fault at file offset `at`, where the mapping has no page: as many around it as the
    /// engine thinks fit, inside of the range, `least` bytes if it can. The pieces are those to be
    /// mapped now; none: the page lies beyond the end.
    Faulted { at: u64, least: u64 },
}

/// A piece of the region that holds a piece of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// Offset in the region, bytes; `None` for a hole that was not filled.
    pub region_offset: Option<u64>,
    /// Bytes, a multiple of 4096.
    pub length: u64,
}

/// Statistics of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct FsStat {
    /// What `st_dev` says.
    pub device: u64,
    pub block_size: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    /// Without the reserve.
    pub blocks_available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub fsid: u64,
    pub read_only: bool,
}

/// The kind of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum LockKind {
    Read,
    Write,
    Unlock,
}

/// The holder of a record lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOwner {
    /// The calling process (`F_SETLK`).
    Process,
    /// The open file description (`F_OFD_SETLK`).
    Description,
    /// A program that the calling process serves.
    Guest(Guest),
}

/// A program behind a face that serves others, as a holder of record locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guest {
    /// Its process id, below 2^22, which other processes see as its locks' holder.
    pub pid: u32,
    /// Tells those of one process id apart, below 2^14.
    pub number: u16,
    /// It waits as a process does: circles of such waits are found.
    pub is_process: bool,
}

/// A byte range and how it is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordLock {
    /// Shared, exclusive, or to be unlocked.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` for "to the end, wherever it is".
    pub end: u64,
    /// The holder's process id in an answer; -1 for a lock of a description.
    pub pid: i32,
}

/// A place prepared for a child process: opaque to the face. It has a word for each of
/// [several](crate::composite) file systems: threads of one process may have children that are
/// being made at once, and each child must find its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForkTicket([u64; MEMBERS_MAX]);

impl ForkTicket {
    /// A file system's own.
    #[must_use]
    pub const fn new(word: u64) -> Self {
        let mut words = [0; MEMBERS_MAX];
        words[0] = word;
        Self(words)
    }

    /// What it was made of.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0[0]
    }

    /// Keeps a member's.
    pub const fn put(&mut self, number: usize, own: Self) {
        self.0[number] = own.word();
    }

    /// A member's own.
    #[must_use]
    pub const fn of_member(self, number: usize) -> Self {
        Self::new(self.0[number])
    }
}
