//! What the tests of files and of logs share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory of a test's own.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let base = std::env::var_os("SOLERA_TEST_DIR").unwrap_or_else(|| "/dev/shm".into());
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("solera-flex-{}-{number}", std::process::id());
        let place = Path::new(&base).join(name);
        std::fs::create_dir(&place).expect("a directory");
        Self(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
