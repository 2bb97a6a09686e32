//! File systems that are mounted for a test, and gone with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::TestDir;

/// A file system in a file, mounted.
pub struct Mounted {
    pub at: PathBuf,
    _place: TestDir,
}

impl Mounted {
    /// `None`: not as this user, or not with these tools.
    pub fn new(kind: &str) -> Option<Self> {
        // Several tests have one of a kind, at once.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = TestDir::new(&format!("beneath-{kind}-{count}"));
        let (image, at) = (place.0.join("image"), place.0.join("mounted"));
        std::fs::create_dir_all(&at).expect("a directory");
        let file = std::fs::File::create(&image).expect("an image");
        file.set_len(400 << 20).expect("its size");
        let made = match kind {
            "ext4" => succeeds(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image)),
            _ => {
                succeeds(Command::new("mkfs.xfs").args(["-q", "-f", "-m", "reflink=1"]).arg(&image))
            }
        };
        let allow = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/exchange-range");
        let set = kind != "exchange" || succeeds(Command::new(allow).arg("on").arg(&image));
        let mounted = made
            && set
            && succeeds(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at));
        mounted.then(|| Self { at, _place: place })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.at);
    }
}

/// A child that another test is starting has copies of this process's descriptors until it executes
/// its program, and one that was killed is not gone at once: the file system is in use for that
/// long.
fn unmount(at: &Path) {
    let begun = Instant::now();
    while !succeeds(Command::new("umount").arg(at)) {
        assert!(begun.elapsed() < Duration::from_mins(1), "{} is in use", at.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A mount of a tmpfs, gone when it is dropped.
pub struct Small(pub PathBuf);

impl Small {
    pub fn new(at: PathBuf, options: &str) -> Option<Self> {
        std::fs::create_dir_all(&at).expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&at);
        succeeds(&mut mount).then(|| Self(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}
