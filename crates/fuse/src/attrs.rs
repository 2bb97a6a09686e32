//! Requests about attributes: of nodes, extended ones, and of the file system.

use vfs::{Attr, Errno, FileSystemExt, Kind, Nanos, Node, Result, SetAttr, mounts};

use crate::abi::{
    self, AttrOut, GETATTR_HANDLE, GetAttrIn, GetXattrIn, SetAttrIn, SetXattrIn, StatfsOut, Statx,
    StatxIn, StatxOut, StatxTime, set,
};
use crate::nodes::PATIENCE_TO_TELL;
use crate::request::{Answer, Request};
use crate::session::Session;

const SECOND: Nanos = 1_000_000_000;
/// Largest value, and largest list of names, of extended attributes.
const XATTR_MAX: usize = 65_536;
const BLOCK: u32 = 4096;

/// Any attribute of this name says which process serves the mount.
pub const PROCESS: &[u8] = b"solera.process";

fn parts(time: Nanos) -> (u64, u32) {
    (time.div_euclid(SECOND) as u64, time.rem_euclid(SECOND) as u32)
}

fn whole(seconds: u64, nanoseconds: u32) -> Nanos {
    (seconds as i64).saturating_mul(SECOND).saturating_add(nanoseconds.into())
}

fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    time.tv_sec * SECOND + time.tv_nsec
}

/// Attributes as the kernel takes them.
pub fn to_kernel(attr: &Attr) -> abi::Attr {
    let (atime, mtime, ctime) = (parts(attr.atime), parts(attr.mtime), parts(attr.ctime));
    abi::Attr {
        ino: attr.node.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: atime.0,
        mtime: mtime.0,
        ctime: ctime.0,
        atime_nsec: atime.1,
        mtime_nsec: mtime.1,
        ctime_nsec: ctime.1,
        mode: attr.kind.mode_bits() | attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev as u32,
        blksize: BLOCK,
        flags: 0,
    }
}

fn statx_of(attr: &Attr) -> Statx {
    let time = |time| {
        let (seconds, nanoseconds) = parts(time);
        StatxTime { seconds: seconds as i64, nanoseconds, reserved: 0 }
    };
    Statx {
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        blksize: BLOCK,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: (attr.kind.mode_bits() | attr.mode) as u16,
        ino: attr.node.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(attr.btime),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        rdev_major: libc::major(attr.rdev),
        rdev_minor: libc::minor(attr.rdev),
        ..Statx::default()
    }
}

impl Session {
    /// The node of an open handle, which is there whatever happened to its names; else the one that
    /// the request names.
    fn handled(&self, request: &Request<'_>, flags: u32, handle: u64) -> Result<Node> {
        if flags & GETATTR_HANDLE != 0
            && let Ok((node, _)) = self.desc(handle).and_then(|desc| self.fs.describe(desc))
        {
            return Ok(node);
        }
        self.node(request)
    }

    pub fn get_attr(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let GetAttrIn { flags, fh, .. } = request.take()?;
        let attr = self.fs.attributes(self.handled(request, flags, fh)?)?;
        answer.put(&AttrOut { attr: to_kernel(&attr), ..AttrOut::default() })
    }

    pub fn statx(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let StatxIn { getattr_flags, fh, .. } = request.take()?;
        let attr = self.fs.attributes(self.handled(request, getattr_flags, fh)?)?;
        answer.put(&StatxOut { stat: statx_of(&attr), ..StatxOut::default() })
    }

    pub fn set_attr(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let asked: SetAttrIn = request.take()?;
        let node = self.node(request)?;
        let given = |bit| asked.valid & bit != 0;
        let time = |set_bit, now_bit, seconds, nanoseconds| {
            let stated = given(set_bit).then(|| whole(seconds, nanoseconds));
            if given(now_bit) { Some(now()) } else { stated }
        };
        let owned = given(set::UID | set::GID);
        if given(set::KILL_SUIDGID) || owned && self.fs.attributes(node)?.kind != Kind::Directory {
            self.drop_privileges(node)?;
        }
        if given(set::SIZE) {
            // Only by a name: a handle that writes was checked at its opening.
            if !given(set::HANDLE) && self.fs.is_executed(node)? {
                return Err(Errno::TXTBSY);
            }
            self.fs.truncate(node, asked.size)?;
        }
        let change = SetAttr {
            mode: given(set::MODE).then_some(asked.mode & 0o7777),
            uid: given(set::UID).then_some(asked.uid),
            gid: given(set::GID).then_some(asked.gid),
            atime: time(set::ATIME, set::ATIME_NOW, asked.atime, asked.atime_nsec),
            mtime: time(set::MTIME, set::MTIME_NOW, asked.mtime, asked.mtime_nsec),
            touch: false,
        };
        if change != SetAttr::default() {
            self.fs.set_attr(node, &change)?;
        }
        let attr = to_kernel(&self.fs.attributes(node)?);
        answer.put(&AttrOut { attr, ..AttrOut::default() })
    }

    pub fn stat_fs(&self, answer: &mut Answer) -> Result<()> {
        // Holds of a moment are no use of space.
        self.nodes.end_holds(&*self.fs, PATIENCE_TO_TELL);
        let found = self.fs.statistics()?;
        answer.put(&StatfsOut {
            blocks: found.blocks,
            bfree: found.blocks_free,
            bavail: found.blocks_available,
            files: found.inodes,
            ffree: found.inodes_free,
            bsize: found.block_size as u32,
            namelen: 255,
            frsize: found.block_size as u32,
            ..StatfsOut::default()
        })
    }

    // ---- extended attributes --------------------------------------------------------------------

    /// Answers with bytes, or with how many there are where no room was offered.
    fn sized(bytes: &[u8], size: u32, answer: &mut Answer) -> Result<()> {
        if size == 0 {
            return answer.put(&GetXattrIn { size: bytes.len() as u32, padding: 0 });
        }
        if bytes.len() > size as usize {
            return Err(Errno::RANGE);
        }
        answer.put_bytes(bytes)
    }

    pub fn get_xattr(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let GetXattrIn { size, .. } = request.take()?;
        let name = request.name()?;
        if name == PROCESS {
            return Self::sized(std::process::id().to_string().as_bytes(), size, answer);
        }
        if name == mounts::IDENTITY.as_bytes() {
            return Self::sized(self.identity.as_bytes(), size, answer);
        }
        let mut value = vec![0; if size == 0 { 0 } else { XATTR_MAX }];
        let length = self.fs.get_xattr(self.node(request)?, name, &mut value)?;
        value.resize(length, 0);
        Self::sized(&value, size, answer)
    }

    pub fn set_xattr(&self, request: &mut Request<'_>) -> Result<()> {
        let SetXattrIn { size, flags } = request.take()?;
        let name = request.name()?;
        let value = request.data(size as usize)?;
        self.fs.set_xattr(self.node(request)?, name, value, flags)
    }

    pub fn remove_xattr(&self, request: &mut Request<'_>) -> Result<()> {
        let name = request.name()?;
        self.fs.remove_xattr(self.node(request)?, name)
    }

    pub fn list_xattr(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<()> {
        let GetXattrIn { size, .. } = request.take()?;
        let mut names = vec![0; XATTR_MAX];
        let length = self.fs.list_xattr(self.node(request)?, &mut names)?;
        names.truncate(length);
        if request.header.uid != 0 {
            // As in Linux: other users do not see them.
            let shown = names.split_inclusive(|&byte| byte == 0);
            names =
                shown.filter(|name| !name.starts_with(b"trusted.")).flatten().copied().collect();
        }
        Self::sized(&names, size, answer)
    }
}
