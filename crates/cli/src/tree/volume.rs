//! A volume's side of [`Tree`].

use std::path::{Path, PathBuf};

use console::attachment::AttachedVolume;
use console::failure::{Failure, lacks_memory};
use rustix::io::Errno;
use vfs::cred::Cred;
use vfs::walk::{Found, Last, Place, Walk};
use vfs::{
    Attr, Desc, FileSystem, FileSystemExt, IoOffset, Kind, NewNode, Node, OpenFlags, SetAttr,
    Synced, UserIn, UserOut, Whence,
};
use volume::{Extent, Volume, VolumeError};

use super::{Home, Meta, Open, Tree};
use crate::location::display;

/// An attached volume; detached when it is dropped.
pub struct VolumeTree {
    volume: AttachedVolume,
    /// The path by which it was named.
    path: PathBuf,
    home: Home,
}

impl VolumeTree {
    /// Attaches for reading and writing.
    pub fn attach(path: &Path) -> Result<Self, VolumeError> {
        AttachedVolume::attach(path).map(|volume| Self::of(path, volume))
    }

    fn of(path: &Path, volume: AttachedVolume) -> Self {
        let stat = rustix::fs::stat(path);
        let path = path.to_owned();
        Self { volume, path, home: stat.map_or((0, 0), |stat| (stat.st_dev, stat.st_ino)) }
    }

    /// Attaches for reading (`Attached::attach_to_read`).
    pub fn attach_to_read(path: &Path) -> Result<Self, VolumeError> {
        AttachedVolume::attach_to_read(path).map(|volume| Self::of(path, volume))
    }

    /// Whether the memory beneath the volume is what is used up.
    pub fn lacks_memory(&self) -> bool {
        lacks_memory(&self.volume)
    }

    /// The volume itself.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The end of a path. An absolute symlink means the volume's own root, wherever it is shown.
    fn walk<'t>(&self, path: &'t [u8], follow: bool) -> Result<Found<'t>, Errno> {
        let root = Cred::root();
        let tree = vfs::walk::Tree { root: self.volume.root(), prefix: Vec::new() };
        let walk = Walk { fs: &*self.volume, tree: &tree, cred: &root };
        match walk.walk(self.volume.root(), path, follow)? {
            Place::Inside(found) => Ok(found),
            // Without a prefix nothing lies outside.
            Place::Outside(_) => Err(Errno::XDEV),
        }
    }

    fn find(&self, path: &[u8], follow: bool) -> Result<Node, Errno> {
        Ok(self.walk(path, follow)?.existing()?.node)
    }

    /// Where the bytes of a file lie, and its size.
    pub fn extents(&self, path: &[u8]) -> Result<(Vec<Extent>, u64), Errno> {
        let node = self.find(path, true)?;
        Ok((self.volume.extents(node)?, self.volume.attributes(node)?.size))
    }

    /// Makes a scattered file whole; `each` is told how many parts of it are done. Gives the bytes
    /// moved.
    pub fn rewrite(
        &self,
        path: &[u8],
        each: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<u64, Errno> {
        self.volume.rewrite(self.find(path, true)?, each)
    }

    /// The file's node.
    pub fn node(&self, path: &[u8]) -> Result<Node, Errno> {
        self.find(path, true)
    }

    fn read_target(&self, link: Node) -> Result<Vec<u8>, Errno> {
        let mut target = vec![0; 4096];
        let length = self.volume.read_link(link, &mut target)?;
        target.truncate(length);
        Ok(target)
    }

    fn make(
        &self,
        path: &[u8],
        kind: Kind,
        mode: u32,
        rdev: u64,
        target: &[u8],
    ) -> Result<Node, Errno> {
        let found = self.walk(path, false)?;
        let Last::Name(name) = found.last else { return Err(Errno::EXIST) };
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        self.volume.create(
            found.at.dir,
            name.as_bytes(),
            &NewNode { kind, mode, uid, gid, rdev, target },
        )
    }

    fn file(&self, node: Node, flags: i32) -> Result<Box<dyn Open + '_>, Errno> {
        Ok(Box::new(VolumeFile {
            desc: self.volume.open(node.into(), OpenFlags(flags), None)?,
            volume: &self.volume,
        }))
    }
}

impl Tree for VolumeTree {
    fn failure(&self, asked: String, errno: Errno) -> Failure {
        Failure::on_volume(asked, errno, &self.volume)
    }

    fn name(&self, path: &[u8]) -> String {
        format!("{}:{}", self.path.display(), display(path))
    }

    fn meta(&self, path: &[u8], follow: bool) -> Result<Meta, Errno> {
        Ok(meta_of(self.home, &self.volume.attributes(self.find(path, follow)?)?))
    }

    fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = Vec::new();
        self.volume.read_dir(self.find(path, true)?, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            true
        })?;
        names.sort_unstable();
        Ok(names)
    }

    fn link_target(&self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        self.read_target(self.find(path, false)?)
    }

    fn make_dir(&self, path: &[u8]) -> Result<(), Errno> {
        self.make(path, Kind::Directory, 0o700, 0, b"").map(drop)
    }

    fn make_symlink(&self, path: &[u8], target: &[u8]) -> Result<(), Errno> {
        self.make(path, Kind::Symlink, 0o777, 0, target).map(drop)
    }

    fn make_node(&self, path: &[u8], meta: &Meta) -> Result<(), Errno> {
        self.make(path, meta.kind, meta.mode, meta.rdev, b"").map(drop)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn Open + '_>, Errno> {
        self.file(self.find(path, true)?, libc::O_RDONLY)
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn Open + '_>, Failure> {
        let node = match self.find(path, true) {
            Err(Errno::NOENT) => self.make(path, Kind::File, 0o600, 0, b""),
            found => found,
        };
        node.and_then(|node| self.file(node, libc::O_RDWR | libc::O_TRUNC))
            .map_err(|errno| self.failure(format!("write {}", self.name(path)), errno))
    }

    fn finish(&self, path: &[u8], meta: &Meta) -> Result<(), Errno> {
        let mode = (meta.kind != Kind::Symlink).then_some(meta.mode);
        let (atime, mtime) = (Some(meta.atime), Some(meta.mtime));
        let change = SetAttr { mode, atime, mtime, ..SetAttr::default() };
        self.volume.set_attr(self.find(path, false)?, &change)
    }
}

struct VolumeFile<'v> {
    volume: &'v Volume,
    desc: Desc,
}

impl Open for VolumeFile<'_> {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        self.volume.read(self.desc, &mut [UserOut::new(out)], IoOffset::offset(offset))
    }

    fn write_all_at(&self, mut offset: u64, mut data: &[u8]) -> Result<(), Errno> {
        while !data.is_empty() {
            let written =
                self.volume.write(self.desc, &[UserIn::new(data)], IoOffset::offset(offset))?;
            data = &data[written..];
            offset += written as u64;
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Errno> {
        match self.volume.seek(self.desc, offset as i64, Whence::Data) {
            Ok(start) => {
                Ok(Some((start, self.volume.seek(self.desc, start as i64, Whence::Hole)?)))
            }
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn close_at(&self, size: u64) -> Result<(), Errno> {
        let (node, _) = self.volume.describe(self.desc)?;
        if self.volume.attributes(node)?.size != size {
            self.volume.truncate(node, size)?;
        }
        self.volume.sync(Synced::File(self.desc))
    }
}

impl Drop for VolumeFile<'_> {
    fn drop(&mut self) {
        // The description was only read or is synced: closing it loses nothing.
        let _ = self.volume.close(self.desc);
    }
}

fn meta_of(home: Home, attr: &Attr) -> Meta {
    Meta {
        kind: attr.kind,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        home,
        ino: attr.node.ino,
        size: attr.size,
        allocated: attr.blocks * 512,
        atime: attr.atime,
        mtime: attr.mtime,
    }
}
