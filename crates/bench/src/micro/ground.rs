//! The places where the benchmark runs: own tmpfs mounts if it may mount, else in /dev/shm.
//!
//! The mounts are made in a mount namespace of this process, so that they go with it however it
//! ends; the directory is removed at an orderly end.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use console::size::show;
use rustix::fs::FallocateFlags;
use rustix::mount::UnmountFlags;

use crate::mounts;

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
pub struct Ground {
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

impl Ground {
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
        let mut ground = made.map_err(failed)?;
        let beside = ground.memory.clone();
        ground.regions =
            (1..=volumes).map(|number| beside.with_file_name(format!("{number}.pm"))).collect();
        for region in &ground.regions {
            touch(region, region_bytes).map_err(failed)?;
        }
        touch(&ground.memory, size).map_err(failed)?;
        Ok(ground)
    }

    fn on_own_mounts(bytes: u64) -> io::Result<Self> {
        mounts::own_namespace()?;
        let dir = own_directory(&std::env::temp_dir())?;
        let (huge, small) = (dir.join("huge"), dir.join("small"));
        let mut ground = Self {
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
            ground.mounted.push(point);
        }
        fs::create_dir(&ground.tmpfs[1].dir)?;
        Ok(ground)
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

impl Drop for Ground {
    fn drop(&mut self) {
        for point in self.mounted.iter().rev() {
            // What is still in use goes with this process's mount namespace.
            let _ = rustix::mount::unmount(point, UnmountFlags::DETACH);
        }
        // A directory that stays behind is empty, and in a place for temporary things.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A new directory there, by the name that all benchmarks use.
pub fn own_directory(parent: &Path) -> io::Result<PathBuf> {
    let dir = parent.join(format!("solera-bench-{}", std::process::id()));
    fs::create_dir(&dir)?;
    Ok(dir)
}

/// Refuses what is more than the machine has free.
pub fn check_room(bytes: u64, advice: &str) -> Result<(), Failure> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    match kib {
        Some(kib) if kib.saturating_mul(1024) < bytes => Err(Failure::new(
            format!("measure with {} of memory", show(bytes)),
            format!("only {} are available", show(kib * 1024)),
            advice,
        )),
        _ => Ok(()),
    }
}

/// Makes a file whose pages all exist.
pub fn touch(path: &Path, bytes: u64) -> io::Result<()> {
    let file = File::create_new(path)?;
    Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?)
}
