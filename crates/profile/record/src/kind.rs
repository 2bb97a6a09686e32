//! Kinds of calls.

macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident = $name:literal),+ $(,)?) => {
        /// A kind of call: functions that do the same, under all names that they have.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Kind {
            $(
                #[doc = concat!("`", $name, "` and its kin.")]
                $(#[$meta])*
                $kind,
            )+
        }

        impl Kind {
            /// All of them, by their numbers.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// As it is shown.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }
        }
    };
}

kinds! {
    Open = "open",
    Close = "close",
    Read = "read",
    Pread = "pread",
    Readv = "readv",
    Preadv = "preadv",
    Write = "write",
    Pwrite = "pwrite",
    Writev = "writev",
    Pwritev = "pwritev",
    Lseek = "lseek",
    Fsync = "fsync",
    Fdatasync = "fdatasync",
    SyncRange = "sync_file_range",
    Sync = "sync",
    Ftruncate = "ftruncate",
    Truncate = "truncate",
    Fallocate = "fallocate",
    Fadvise = "fadvise",
    Sendfile = "sendfile",
    CopyRange = "copy_file_range",
    Splice = "splice",
    Aio = "aio",
    Stat = "stat",
    Fstat = "fstat",
    Access = "access",
    Statfs = "statfs",
    Unlink = "unlink",
    Rename = "rename",
    Link = "link",
    Symlink = "symlink",
    Readlink = "readlink",
    Mkdir = "mkdir",
    Rmdir = "rmdir",
    Mknod = "mknod",
    Chmod = "chmod",
    Chown = "chown",
    Utimes = "utimes",
    Getxattr = "getxattr",
    Setxattr = "setxattr",
    Listxattr = "listxattr",
    Removexattr = "removexattr",
    Opendir = "opendir",
    Readdir = "readdir",
    Closedir = "closedir",
    Chdir = "chdir",
    Dup = "dup",
    Fcntl = "fcntl",
    Lock = "lock",
    Ioctl = "ioctl",
    Mmap = "mmap",
    Msync = "msync",
    Fopen = "fopen",
    Fclose = "fclose",
}

const _: () = assert!(Kind::ALL.len() <= crate::KINDS);

impl Kind {
    /// Whether it brings bytes to the program.
    pub const fn reads(self) -> bool {
        matches!(
            self,
            Self::Read | Self::Pread | Self::Readv | Self::Preadv | Self::Getxattr | Self::Readdir
        )
    }

    /// Whether it moves bytes, one way or the other.
    pub const fn moves(self) -> bool {
        self.reads()
            || matches!(
                self,
                Self::Write
                    | Self::Pwrite
                    | Self::Writev
                    | Self::Pwritev
                    | Self::Sendfile
                    | Self::CopyRange
                    | Self::Splice
            )
    }
}
