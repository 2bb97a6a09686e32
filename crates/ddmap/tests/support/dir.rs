//! A folder in memory, which goes with its test.

use super::process::Share;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder in memory, which goes with it; and the share of the test that has it.
pub struct TestDir(PathBuf, #[expect(dead_code, reason = "held")] Share);

impl TestDir {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let share = Share::new();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/dev/shm/solera-ddmap-{}-{number}", std::process::id());
        std::fs::create_dir(&path).unwrap();
        Self(PathBuf::from(path), share)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        // What cannot be removed is seen in /dev/shm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
