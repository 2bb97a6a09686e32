//! The FUSE protocol between the kernel and a server: its structures and numbers (version 7, as in
//! `linux/fuse.h`), as far as they are used here.
//!
//! All structures are plain bytes without gaps; they are copied out of and into buffers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version that this server speaks; kernels of the same major version adapt to the minor one.
pub const VERSION: (u32, u32) = (7, 40);

/// The node id of the root.
pub const ROOT: u64 = 1;

/// Declares operation codes.
macro_rules! opcodes {
    ($($name:ident = $number:literal),+ $(,)?) => {
        /// Operations.
        #[allow(missing_docs)]
        pub mod op {
            $(pub const $name: u32 = $number;)+
        }
    };
}

opcodes! {
    LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8,
    MKDIR = 9, UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16,
    STATFS = 17, RELEASE = 18, FSYNC = 20, SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23,
    REMOVEXATTR = 24, FLUSH = 25, INIT = 26, OPENDIR = 27, READDIR = 28, RELEASEDIR = 29,
    FSYNCDIR = 30, GETLK = 31, SETLK = 32, SETLKW = 33, CREATE = 35, INTERRUPT = 36,
    DESTROY = 38, IOCTL = 39, BATCH_FORGET = 42, FALLOCATE = 43, READDIRPLUS = 44, RENAME2 = 45,
    LSEEK = 46, COPY_FILE_RANGE = 47, SYNCFS = 50, TMPFILE = 51, STATX = 52,
}

/// Abilities that both sides agree on at the start.
pub mod init {
    #![allow(missing_docs)]
    pub const ASYNC_READ: u64 = 1;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// Answer to an open: no page cache for `read` and `write`.
pub const OPEN_DIRECT_IO: u32 = 1;
/// Answer to an open: writes to the same file need not wait for each other.
pub const OPEN_PARALLEL_WRITES: u32 = 1 << 6;
/// A flag of a request to open: for execution (the kernel's own `FMODE_EXEC`).
pub const OPEN_EXEC: u32 = 0x20;
/// Request to open: the set-id bits go with the truncation.
pub const OPEN_KILL_SUIDGID: u32 = 1;
/// The handle of a `GETATTR` is valid.
pub const GETATTR_HANDLE: u32 = 1;
/// A read on behalf of a call, not of the page cache.
pub const READ_LOCKOWNER: u32 = 1 << 1;
/// A write by the page cache, of what was stored through a mapping.
pub const WRITE_CACHE: u32 = 1;
/// The set-id bits go with the write.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// A `flock`.
pub const LOCK_FLOCK: u32 = 1;
/// `fdatasync`.
pub const FSYNC_DATA: u32 = 1;
/// Tells the kernel to forget the pages of an inode.
pub const NOTIFY_INVALIDATE_INODE: i32 = 2;

/// Which fields of a `SETATTR` are given.
pub mod set {
    #![allow(missing_docs)]
    pub const MODE: u32 = 1;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const HANDLE: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Declares structures of the protocol with their sizes.
macro_rules! structures {
    ($($name:ident $size:literal { $($field:ident: $kind:ty),+ $(,)? })+) => {
        $(
            #[allow(missing_docs)]
            #[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name { $(pub $field: $kind),+ }
            const _: () = assert!(size_of::<$name>() == $size);
        )+
    };
}

structures! {
    InHeader 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        extensions: u16, padding: u16,
    }
    OutHeader 16 { len: u32, error: i32, unique: u64 }
    InitIn 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    InitOut 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    Attr 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atime_nsec: u32,
        mtime_nsec: u32, ctime_nsec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        blksize: u32, flags: u32,
    }
    EntryOut 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    GetAttrIn 16 { flags: u32, dummy: u32, fh: u64 }
    StatxIn 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    StatxTime 16 { seconds: i64, nanoseconds: u32, reserved: i32 }
    Statx 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime,
        btime: StatxTime, ctime: StatxTime, mtime: StatxTime, rdev_major: u32, rdev_minor: u32,
        dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut 288 {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx,
    }
    SetAttrIn 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64,
        ctime: u64, atime_nsec: u32, mtime_nsec: u32, ctime_nsec: u32, mode: u32, unused4: u32,
        uid: u32, gid: u32, unused5: u32,
    }
    MknodIn 16 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn 8 { mode: u32, umask: u32 }
    RenameIn 8 { newdir: u64 }
    Rename2In 16 { newdir: u64, flags: u32, padding: u32 }
    LinkIn 8 { oldnodeid: u64 }
    OpenIn 8 { flags: u32, open_flags: u32 }
    CreateIn 16 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut 16 { fh: u64, open_flags: u32, backing_id: i32 }
    ReadIn 40 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteIn 40 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32,
        padding: u32,
    }
    WriteOut 8 { size: u32, padding: u32 }
    ReleaseIn 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    FsyncIn 16 { fh: u64, fsync_flags: u32, padding: u32 }
    StatfsOut 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, padding: u32, spare: [u32; 6],
    }
    SetXattrIn 8 { size: u32, flags: u32 }
    GetXattrIn 8 { size: u32, padding: u32 }
    FileLock 24 { start: u64, end: u64, kind: u32, pid: u32 }
    LockIn 48 { fh: u64, owner: u64, lock: FileLock, lock_flags: u32, padding: u32 }
    InterruptIn 8 { unique: u64 }
    ForgetIn 8 { nlookup: u64 }
    BatchForgetIn 8 { count: u32, dummy: u32 }
    ForgetOne 16 { nodeid: u64, nlookup: u64 }
    FallocateIn 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn 24 { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut 8 { offset: u64 }
    CopyFileRangeIn 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    Dirent 24 { ino: u64, off: u64, namelen: u32, kind: u32 }
    InvalidateInodeOut 24 { ino: u64, off: i64, len: i64 }
}
