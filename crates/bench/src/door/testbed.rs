//! The places of `bench door`: a volume, a directory of the kernel's, folders of the patched file.

use std::fs::{self, DirBuilder};
use std::io::{self, Error};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use door::cache::Cache;
use door::image::Image;
use rustix::mount::{MountFlags, UnmountFlags};
use volume::FormatOptions;

use super::start::Loading;
use crate::harness::mounts;
use crate::harness::scratch::own_directory;

const VOLUME_BYTES: u64 = 128 << 20;

/// Gone when it is dropped.
pub struct Testbed {
    dir: PathBuf,
    pub volume: PathBuf,
    pub outside: PathBuf,
    /// Where the patched file may be mapped.
    pub folder: PathBuf,
    /// Where it may not; or why there is no such folder.
    pub not_executed: Result<PathBuf, String>,
}

impl Testbed {
    pub fn make() -> Result<Self, Failure> {
        let failed = |error: Error| Failure::new("make a place for the benchmark", error, "");
        // As root: what is mounted is this process's own.
        let mounts = mounts::own_namespace();
        let dir = own_directory(Path::new("/dev/shm")).map_err(failed)?;
        let made = Self::make_in(&dir, mounts);
        if made.is_err() {
            // What cannot be removed stays.
            let _ = fs::remove_dir_all(&dir);
        }
        made
    }

    fn make_in(dir: &Path, mounts: io::Result<()>) -> Result<Self, Failure> {
        let failed = |error: Error| Failure::new("make a place for the benchmark", error, "");
        let (volume, outside) = (dir.join("volume.pm"), dir.join("outside"));
        fs::create_dir(&outside).map_err(failed)?;
        let size = Some(VOLUME_BYTES);
        volume::format(&volume, &FormatOptions { size, ..FormatOptions::default() })?;
        let library = Loading::find(libc::gnu_get_libc_version as *const () as usize);
        let path = std::ffi::OsStr::from_bytes(&library.path);
        let bytes = fs::read(path).map_err(|error| Failure::io("read the C library", &error))?;
        let image = Image::make(&bytes, &door::wanted)
            .map_err(|error| Failure::new("make a patched file", error, ""))?;
        let make = |name: &str, flags: Option<MountFlags>| -> io::Result<PathBuf> {
            let folder = dir.join(name);
            DirBuilder::new().mode(0o700).create(&folder)?;
            if let Some(flags) = flags {
                rustix::mount::mount("tmpfs", &folder, "tmpfs", flags, c"mode=700")?;
            }
            let installed = Cache::named(&folder, &[]).install(&image);
            installed.map(|_| folder).map_err(|(_, error)| error)
        };
        let folder = make("folder", None).map_err(failed)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let not_executed = mounts
            .and_then(|()| make("not-executed", Some(flags)))
            .map_err(|error| format!("a folder that is noexec: {error} (this needs root)"));
        Ok(Self { dir: dir.to_owned(), volume, outside, folder, not_executed })
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if let Ok(mounted) = &self.not_executed {
            // What is still in use goes with this process's mount name space.
            let _ = rustix::mount::unmount(mounted, UnmountFlags::DETACH);
        }
        // A directory that stays behind is in a place for temporary things.
        let _ = fs::remove_dir_all(&self.dir);
    }
}
