//! The C libraries at hand: this machine's, one that is linked here, and those below
//! `SOLERA_DOOR_LIBRARIES` (`scripts/door-libraries.sh` fetches several builds).

use std::path::{Path, PathBuf};
use std::process::Command;

/// This machine's.
pub fn host() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut found: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.contains("libc.so") || path.contains("ld-linux"))
        .map(PathBuf::from)
        .collect();
    found.dedup();
    assert_eq!(found.len(), 2, "{maps}");
    found
}

/// All of them.
pub fn all() -> Vec<PathBuf> {
    let mut found = host();
    if let Some(folder) = std::env::var_os("SOLERA_DOOR_LIBRARIES") {
        let mut folders: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        folders.sort();
        for folder in folders {
            found.extend([folder.join("libc.so.6"), folder.join("ld.so")]);
        }
    }
    found
}

/// A folder that is removed at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("solera-door-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compiles a shared object.
pub fn link(source: &Path, object: &Path, options: &[&str]) {
    let done = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wl,--build-id=sha1", "-o"])
        .arg(object)
        .arg(source)
        .args(options)
        .status()
        .unwrap();
    assert!(done.success());
}
