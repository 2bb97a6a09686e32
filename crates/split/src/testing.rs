//! A directory of a unit test's own, gone with it, also where the test fails.

use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// Where files of tests lie.
pub fn base() -> OsString {
    std::env::var_os("SOLERA_TEST_DIR").unwrap_or_else(|| "/dev/shm".into())
}

/// A new directory, removed when it is dropped.
pub struct TestDir(PathBuf);

impl TestDir {
    pub fn new(test: &str) -> Self {
        let name = format!("solera-{test}-{}", std::process::id());
        let directory = Path::new(&base()).join(name);
        std::fs::create_dir(&directory).expect("a directory");
        Self(directory)
    }
}

impl Deref for TestDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        // Where the test fails, it says why.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
