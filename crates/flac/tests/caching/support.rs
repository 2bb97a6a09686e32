//! What the tests share: a volume of their own, a directory for its cache, and ways to use both.

// `bugs` uses a part of it.
#![allow(dead_code)]

use flac::{Cached, Count, Options, Status, VolumeId, status};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Desc, EntryName, FileSystem, IoOffset, Kind, NewNode, Open, OpenFlags, UserIn, UserOut};
use volume::{AttachOptions, FormatOptions, Mode, Volume, attach, format};

/// A volume and its cache, removed afterwards.
pub struct TestDir {
    pub dir: PathBuf,
    /// Where the cache is to lie.
    pub cache: PathBuf,
}

impl TestDir {
    pub fn new(name: &str) -> Self {
        let dir = format!("/dev/shm/solera-test-flac-{}-{name}", std::process::id());
        let place = Self::at(dir.into());
        let _ = std::fs::remove_dir_all(&place.dir);
        std::fs::create_dir(&place.dir).expect("a directory");
        let options = FormatOptions { size: Some(128 << 20), ..FormatOptions::default() };
        format(&place.volume(), &options).expect("a volume");
        place
    }

    /// What lies there already.
    pub fn at(dir: PathBuf) -> Self {
        Self { cache: dir.clone(), dir }
    }

    /// A new one, with its cache on a tmpfs of its own with pages of 2 MiB. `None`, and a line: one
    /// cannot be had.
    pub fn huge(name: &str) -> Option<Self> {
        let dir = format!("/dev/shm/solera-test-flac-{}-huge-{name}", std::process::id());
        std::fs::create_dir(&dir).expect("a directory");
        let options = ["-t", "tmpfs", "-o", "huge=always,mode=700", "tmpfs", &dir];
        let mounted = std::process::Command::new("mount").args(options).output();
        if !mounted.is_ok_and(|done| done.status.success()) {
            println!("skipped: it takes root to mount a tmpfs with huge pages");
            std::fs::remove_dir(&dir).expect("removed");
            return None;
        }
        // The volume lies beside it: the cache's memory is counted by the mount's.
        let mut place = Self::new(name);
        place.cache = dir.into();
        Some(place)
    }

    pub fn volume(&self) -> PathBuf {
        self.dir.join("v.pm")
    }

    pub fn whose() -> VolumeId {
        VolumeId { uuid: "test".into(), owner: rustix::process::geteuid().as_raw() }
    }

    /// The directory of the cache's eras.
    pub fn eras(&self) -> PathBuf {
        self.cache.join("solera-cache-test")
    }

    pub fn attach(&self, mode: Mode) -> Arc<Volume> {
        attach(&self.volume(), &AttachOptions { mode, ..AttachOptions::default() })
            .expect("attached")
    }

    /// Lays the cache over an attachment.
    pub fn cached(&self, volume: &Arc<Volume>, budget: u64) -> Cached {
        let place = Some(self.cache.clone());
        let options = Options {
            budget,
            place,
            whose: Self::whose(),
            attach: None,
            ahead: None,
            told: |_, _| {},
        };
        Cached::over(Arc::clone(volume) as _, &options).expect("a cache")
    }

    pub fn status(&self) -> Status {
        status(&Self::whose(), Some(&self.cache)).expect("a status")
    }

    pub fn counted(&self, what: Count) -> u64 {
        self.status().counts[what as usize].1
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        if self.cache != self.dir {
            let _ = std::process::Command::new("umount").arg("-l").arg(&self.cache).status();
            let _ = std::fs::remove_dir(&self.cache);
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Opens a file of the root, making it if it is not there.
pub fn open(fs: &dyn FileSystem, name: &[u8], flags: i32) -> Desc {
    let mut node = fs.root();
    let flags = OpenFlags(flags);
    let root = fs.root();
    if fs.walk(root, name, vfs::WalkOutput::Name(&mut node)).is_ok() {
        return fs.open(Open::Node(node, Some(Kind::File)), flags, None).expect("opened");
    }
    let new = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" };
    fs.open(Open::New(&EntryName::new(root, name), &new), flags, None).expect("made")
}

pub fn write(fs: &dyn FileSystem, desc: Desc, offset: u64, bytes: &[u8]) {
    let written = fs.write(desc, &[UserIn::new(bytes)], IoOffset::offset(offset));
    assert_eq!(written, Ok(bytes.len()));
}

pub fn read(fs: &dyn FileSystem, desc: Desc, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; length];
    let read =
        fs.read(desc, &mut [UserOut::new(&mut bytes)], IoOffset::offset(offset)).expect("read");
    bytes.truncate(read);
    bytes
}

/// A small generator (xorshift): the same seed gives the same run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("copied");
}

/// Sets a flag should its thread panic, so that others that wait for the thread end.
pub struct OnPanic<'f>(pub &'f std::sync::atomic::AtomicBool);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }
}
