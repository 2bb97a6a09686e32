//! A volume as a [`Target`]: attached by this process, through the engine's own contract.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use console::failure::Failure;
use console::runs::{CHUNK, Run};
use rustix::io::Errno;
use vfs::{
    EntryName, FileSystem, FileSystemExt, IoOffset, Kind, NewNode, Node, OpenFlags, Removes, UserIn,
};
use volume::{AttachOptions, Volume};

use super::{PLACE, Target, occupied};

/// An attached volume.
pub struct OnVolume {
    volume: Arc<Volume>,
    directories: Vec<Node>,
    /// Files by number: directory, node.
    files: HashMap<u64, (Node, Node)>,
}

impl OnVolume {
    /// Attaches it and makes the place.
    pub fn open(path: &Path, compaction: Option<u32>) -> Result<Self, Failure> {
        let volume = volume::attach(path, &AttachOptions::default())?;
        if let Some(most) = compaction {
            volume.set_compaction(most);
        }
        let found = volume.create(volume.root(), PLACE.as_bytes(), &new(Kind::Directory));
        let place = found.map_err(|errno| match errno {
            Errno::EXIST => occupied(path),
            errno => Failure::on_volume(format!("age {}", path.display()), errno, &volume),
        })?;
        Ok(Self { volume, directories: vec![place], files: HashMap::new() })
    }
}

impl Drop for OnVolume {
    fn drop(&mut self) {
        // What detach cannot do now, the next attacher does.
        let _ = self.volume.leave();
    }
}

impl Target for OnVolume {
    fn capacity(&self) -> Result<u64, Errno> {
        let stat = self.volume.statistics()?;
        Ok(stat.blocks * stat.block_size)
    }

    fn available(&self) -> Result<u64, Errno> {
        let stat = self.volume.statistics()?;
        Ok(stat.blocks_available * stat.block_size)
    }

    fn make_directories(&mut self, paths: &[String]) -> Result<(), Errno> {
        let place = self.directories[0];
        self.directories.clear();
        for path in paths {
            let mut components = path.split('/').peekable();
            let mut dir = place;
            while let Some(name) = components.next() {
                dir = if components.peek().is_some() {
                    self.volume.lookup(dir, name.as_bytes())?
                } else {
                    self.volume.create(dir, name.as_bytes(), &new(Kind::Directory))?
                };
            }
            self.directories.push(dir);
        }
        Ok(())
    }

    fn create(&mut self, number: u64, dir: u16, size: u64) -> Result<(), Errno> {
        let dir = self.directories[usize::from(dir)];
        let node = self.volume.create(dir, name(number).as_bytes(), &new(Kind::File))?;
        let allocated = self.with(node, |volume, desc| match size {
            0 => Ok(()),
            _ => volume.allocate(desc, 0, 0, size),
        });
        if let Err(errno) = allocated {
            self.volume.remove(&EntryName::new(dir, name(number).as_bytes()), Removes::Name)?;
            return Err(errno);
        }
        self.files.insert(number, (dir, node));
        Ok(())
    }

    fn write(&mut self, number: u64, offset: Option<u64>, data: &[u8]) -> Result<(), Errno> {
        let node = self.files.get(&number).ok_or(Errno::NOENT)?.1;
        let offset = match offset {
            Some(offset) => offset,
            None => self.volume.attributes(node)?.size,
        };
        self.with(node, |volume, desc| {
            volume.write(desc, &[UserIn::new(data)], IoOffset::offset(offset)).map(drop)
        })
    }

    fn remove(&mut self, number: u64) -> Result<(), Errno> {
        let (dir, _) = self.files.remove(&number).ok_or(Errno::NOENT)?;
        self.volume.remove(&EntryName::new(dir, name(number).as_bytes()), Removes::Name)
    }

    fn write_journal(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    fn free_space(&self) -> Result<Option<Vec<Run>>, Errno> {
        let uses = self.volume.chunk_uses()?;
        let first = self.volume.info()?.size_bytes - uses.len() as u64 * CHUNK;
        let mut runs = Vec::new();
        for (chunk, used) in uses.iter().enumerate() {
            let place = first + chunk as u64 * CHUNK;
            let free = CHUNK - used.bytes();
            // Only whole chunks matter to the caller: holes are told as if they began where their
            // chunk begins, and never fill it.
            if free > 0 {
                runs.push(Run { offset: place, place, length: free });
            }
        }
        Ok(Some(runs))
    }

    fn extents(&self, number: u64) -> Result<Option<Vec<Run>>, Errno> {
        let node = self.files.get(&number).ok_or(Errno::NOENT)?.1;
        Ok(Some(self.volume.extents(node)?.iter().map(Run::from).collect()))
    }

    fn failure(&self, asked: &str, errno: Errno) -> Failure {
        Failure::on_volume(asked, errno, &self.volume)
    }

    fn moved_bytes(&self) -> u64 {
        self.volume.moved_bytes()
    }
}

impl OnVolume {
    /// Opens a node for the time of `work`.
    fn with(
        &self,
        node: Node,
        work: impl FnOnce(&Volume, vfs::Desc) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let desc = self.volume.open(node.into(), OpenFlags(libc::O_RDWR), None)?;
        let worked = work(&self.volume, desc);
        worked.and(self.volume.close(desc))
    }
}

fn name(number: u64) -> String {
    format!("f{number}")
}

fn new(kind: Kind) -> NewNode<'static> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mode = if kind == Kind::Directory { 0o755 } else { 0o644 };
    NewNode { kind, mode, uid, gid, rdev: 0, target: b"" }
}
