//! The places where the benchmark runs: own tmpfs mounts if it may mount, else in /dev/shm.
//!
//! The mounts are made in a mount namespace of this process, so that they go with it however it
//! ends; the directory is removed at an orderly end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use rustix::mount::UnmountFlags;

use crate::harness::mounts;
use crate::harness::scratch::{check_room, own_directory, touch};

/// What the volume needs beyond its files: metadata, the runtime, blocks in flight.
const VOLUME_SLACK_BYTES: u64 = 256 << 20;

const SHM: &str = "/dev/shm";

/// A directory of a tmpfs peer.
pub struct Tmpfs {
    /// As the table calls it.
    pub name: &'static str,
    pub dir: PathBuf,
}

/// The places of the peers.
pub struct Testbed {
    dir: PathBuf,
    mounted: Vec<PathBuf>,
    /// The regions of the volumes, touched.
    pub regions: Vec<PathBuf>,
    /// The region for the memory's own limit, touched.
    pub memory: PathBuf,
    pub tmpfs: Vec<Tmpfs>,
    /// Whether the regions lie on huge pages.
    pub huge: bool,
}

impl Testbed {
    /// Prepares everything for a working set of `size` bytes on so many volumes.
    pub fn make(size: u64, volumes: u64) -> Result<Self, Failure> {
        let region_bytes = 3 * size + VOLUME_SLACK_BYTES;
        check_room(volumes * region_bytes + size + 2 * 2 * size, "give a smaller --size")?;
        let failed = |error: io::Error| Failure::new("prepare the benchmark", error, "");
        let made = match Self::on_own_mounts(volumes * region_bytes + 2 * size) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Self::in_shared_memory()
            }
            made => made,
        };
        let mut testbed = made.map_err(failed)?;
        let beside = testbed.memory.clone();
        testbed.regions =
            (1..=volumes).map(|number| beside.with_file_name(format!("{number}.pm"))).collect();
        for region in &testbed.regions {
            touch(region, region_bytes).map_err(failed)?;
        }
        touch(&testbed.memory, size).map_err(failed)?;
        Ok(testbed)
    }

    fn on_own_mounts(bytes: u64) -> io::Result<Self> {
        mounts::own_namespace()?;
        let dir = own_directory(&std::env::temp_dir())?;
        let (huge, small) = (dir.join("huge"), dir.join("small"));
        let mut testbed = Self {
            regions: Vec::new(),
            memory: huge.join("memory"),
            tmpfs: vec![
                Tmpfs { name: "tmpfs 4K", dir: small.clone() },
                Tmpfs { name: "tmpfs 2M", dir: huge.join("files") },
            ],
            huge: true,
            dir,
            mounted: Vec::new(),
        };
        for (point, with_huge) in [(huge, true), (small, false)] {
            fs::create_dir(&point)?;
            mounts::tmpfs(&point, bytes * 2, with_huge)?;
            testbed.mounted.push(point);
        }
        fs::create_dir(&testbed.tmpfs[1].dir)?;
        Ok(testbed)
    }

    fn in_shared_memory() -> io::Result<Self> {
        let dir = own_directory(Path::new(SHM))?;
        let files = dir.join("files");
        fs::create_dir(&files)?;
        Ok(Self {
            regions: Vec::new(),
            memory: dir.join("memory"),
            tmpfs: vec![Tmpfs { name: "tmpfs 4K", dir: files }],
            huge: false,
            dir,
            mounted: Vec::new(),
        })
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for point in self.mounted.iter().rev() {
            // What is still in use goes with this process's mount namespace.
            let _ = rustix::mount::unmount(point, UnmountFlags::DETACH);
        }
        // A directory that stays behind is empty, and in a place for temporary things.
        let _ = fs::remove_dir_all(&self.dir);
    }
}
