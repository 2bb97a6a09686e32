//! The places of the benchmark, in a directory of a tmpfs: the volume, the cache, other files.
//!
//! As root the first two lie on tmpfs of their own with huge pages: the volume as memory that is
//! mapped directly has them, the cache as `solera cache create` makes it. The mounts are made in a
//! mount namespace of this process, so that they go with it however it ends.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::harness::scratch::touch;

/// Bytes of the volume beyond its files.
const FIXED_BYTES: u64 = 256 << 20;
/// Files of the size that is measured: one that is read, and three that are written.
const FILES: u64 = 4;

/// The places; removed when this is dropped.
pub struct Testbed {
    pub directory: PathBuf,
    mounted: Vec<PathBuf>,
}

/// The volume's file.
pub fn volume(directory: &Path) -> PathBuf {
    memory(directory).join("v.pm")
}

/// The directory of the volume.
pub fn memory(directory: &Path) -> PathBuf {
    directory.join("memory")
}

/// The directory of the cache.
pub fn cache(directory: &Path) -> PathBuf {
    directory.join("cache")
}

impl Testbed {
    /// Makes them in `place` for files of `size` bytes; the volume's memory is touched.
    pub fn make(place: &Path, size: u64) -> Result<Self, Failure> {
        let asked = format!("measure in {}", place.display());
        let failed = |error| Failure::new(&asked, error, "give the directory of a tmpfs");
        // Programs get whole paths.
        let place = place.canonicalize().map_err(failed)?;
        let directory = place.join(format!("solera-bench-flac-{}", std::process::id()));
        let mut testbed = Self { directory, mounted: Vec::new() };
        testbed.prepare(size).map_err(failed)?;
        Ok(testbed)
    }

    fn prepare(&mut self, size: u64) -> io::Result<()> {
        let make = |path: &Path| fs::DirBuilder::new().mode(0o700).create(path);
        make(&self.directory)?;
        let places = [memory(&self.directory), cache(&self.directory)];
        for place in &places {
            make(place)?;
        }
        match own_namespace() {
            Ok(()) => {
                for (place, pages) in places.iter().zip(["always", "within_size"]) {
                    self.mount(place, pages)?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
        touch(&volume(&self.directory), FILES * size + FIXED_BYTES)
    }

    fn mount(&mut self, place: &Path, pages: &str) -> io::Result<()> {
        let options = CString::new(format!("huge={pages},mode=0700"))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("tmpfs", place, "tmpfs", flags, options.as_c_str())?;
        self.mounted.push(place.to_owned());
        Ok(())
    }

    pub fn volume_is_huge(&self) -> bool {
        flac::has_huge_pages(&memory(&self.directory))
    }

    pub fn cache_is_huge(&self) -> bool {
        flac::has_huge_pages(&cache(&self.directory))
    }
}

fn own_namespace() -> io::Result<()> {
    // SAFETY: only the view of mounts becomes this process's own, nothing that Rust relies on.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", all)?)
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for place in &self.mounted {
            // What is still in use goes with this process's mount namespace.
            let _ = rustix::mount::unmount(place, UnmountFlags::DETACH);
        }
        // What cannot be removed stays.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
