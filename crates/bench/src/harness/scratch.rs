//! What a measurement makes for itself: directories and volumes that go with it, files whose pages
//! are all there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use console::size::show;
use rustix::fs::FallocateFlags;

/// A volume of this run, gone with it.
pub struct ScratchVolume(pub PathBuf);

impl Drop for ScratchVolume {
    fn drop(&mut self) {
        // A file that is not there need not be removed.
        let _ = fs::remove_file(&self.0);
        let mut anchor: OsString = self.0.clone().into();
        anchor.push(".solera");
        let _ = fs::remove_dir_all(anchor);
    }
}

/// A directory of this run, gone with it.
pub struct ScratchDirectory(pub PathBuf);

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // What cannot be removed stays.
        let _ = fs::remove_dir_all(&self.0);
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
