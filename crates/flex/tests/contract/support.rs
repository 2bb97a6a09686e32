//! What the tests of files and of logs share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory of a test's own.
pub struct TestDir(pub PathBuf);

impl TestDir {
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

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether this process is of this test (its module and its name) alone; if not, it is run in one
/// that is. A forked child has all descriptors of its process, and with them the locks of files
/// that other tests believe closed.
pub fn alone(test: &str) -> bool {
    const ALONE: &str = "SOLERA_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("this program");
    let mut command = std::process::Command::new(program);
    let output = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output();
    let output = output.expect("this program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    false
}

/// A forked child.
pub struct Child(libc::pid_t);

impl Child {
    /// Begins `work` in a child, which ends with its answer.
    pub fn of(work: impl FnOnce() -> i32) -> Self {
        // SAFETY: the child runs `work` and ends; it takes no lock that another thread may have
        // held.
        match unsafe { libc::fork() } {
            0 => {
                let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                // SAFETY: ends this process.
                unsafe { libc::_exit(worked.unwrap_or(99)) }
            }
            child => Self(child),
        }
    }

    /// Its exit code, or 128 and the signal.
    pub fn end(self) -> i32 {
        let mut status = 0;
        // SAFETY: waits for the child.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            128 + libc::WTERMSIG(status)
        }
    }
}

/// What a child that does this answers.
pub fn in_child(work: impl FnOnce() -> i32) -> i32 {
    Child::of(work).end()
}
