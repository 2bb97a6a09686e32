//! A directory of a test's own.

use std::path::{Path, PathBuf};

/// A fresh directory that removes itself.
pub struct TestDir(PathBuf);

impl TestDir {
    pub fn new(parent: &Path, name: &str) -> Self {
        let path = parent.join(format!("solera-pmem-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn in_memory(name: &str) -> Self {
        Self::new(Path::new("/dev/shm"), name)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
