//! What the tests of the crate's contract share: volumes of their own, and processes that play a
//! role.
//!
//! A test that needs more processes starts itself again with a role in the environment; the child
//! runs the same test function, sees its role, and plays it.

use rustix::io::Errno;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vfs::{FileSystem, FileSystemExt, IoOffset, Kind, NewNode, Node, OpenFlags, UserIn, UserOut};
use volume::{AttachOptions, FormatOptions, Volume, attach, format};

/// Bytes of a test's volume.
pub const SIZE: u64 = 64 << 20;

const ROLE: &str = "SOLERA_TEST_ROLE";
const PLACE: &str = "SOLERA_TEST_PLACE";

/// A volume of its own for a test, removed afterwards.
pub struct Place {
    path: PathBuf,
    own: bool,
}

impl Place {
    /// A path where nothing is.
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let base = std::env::var_os("SOLERA_TEST_DIR").map_or("/dev/shm".into(), PathBuf::from);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("solera-test-{}-{number}-{name}", std::process::id()));
        let place = Self { path, own: true };
        place.clear();
        place
    }

    /// A new volume.
    pub fn formatted(name: &str) -> Self {
        Self::of_size(name, SIZE)
    }

    /// A new volume of so many bytes.
    pub fn of_size(name: &str, bytes: u64) -> Self {
        let place = Self::new(name);
        let options = FormatOptions { size: Some(bytes), ..FormatOptions::default() };
        format(place.path(), &options).expect("a new volume");
        place
    }

    /// The volume that the test itself made, in a process that plays a role.
    pub fn of_parent() -> Self {
        Self { path: std::env::var_os(PLACE).expect("a place").into(), own: false }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn anchor(&self) -> PathBuf {
        let mut anchor = self.path.clone().into_os_string();
        anchor.push(".solera");
        anchor.into()
    }

    pub fn attach(&self) -> Arc<Volume> {
        attach(self.path(), &AttachOptions::default()).expect("attached")
    }

    fn clear(&self) {
        // What is not there need not go.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_dir_all(self.anchor());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.own {
            self.clear();
        }
    }
}

/// Whether this process plays the role.
pub fn role(name: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == name)
}

/// The name of a test of the caller's file, as the harness knows it.
#[track_caller]
pub fn test_name(test: &str) -> String {
    let module = Path::new(Location::caller().file()).file_stem().expect("a file's name");
    format!("{}::{test}", module.display())
}

/// A process that is to play a role of a test of the caller's file.
#[track_caller]
pub fn actor(test: &str, role: &str, place: &Place) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", &test_name(test), "--test-threads=1", "--nocapture"])
        .env(ROLE, role)
        .env(PLACE, place.path())
        .stdout(Stdio::null());
    command
}

/// Starts it.
#[track_caller]
pub fn child(test: &str, role: &str, place: &Place) -> Child {
    actor(test, role, place).spawn().expect("a child")
}

pub fn new_file() -> NewNode<'static> {
    NewNode { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: &[] }
}

/// Makes a file in the root directory and writes it.
pub fn put(volume: &Volume, name: &str, bytes: &[u8]) -> Node {
    let node = volume.create(volume.root(), name.as_bytes(), &new_file()).expect("created");
    let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
    assert_eq!(volume.write(desc, &[UserIn::new(bytes)], IoOffset::POSITION), Ok(bytes.len()));
    volume.close(desc).expect("closed");
    node
}

/// Reads a file of the root directory.
pub fn get(volume: &Volume, name: &str) -> Result<Vec<u8>, Errno> {
    let node = volume.lookup(volume.root(), name.as_bytes())?;
    let desc = volume.open(node.into(), OpenFlags(libc::O_RDONLY), None)?;
    let mut bytes = vec![0; volume.attributes(node)?.size as usize];
    let read = volume.read(desc, &mut [UserOut::new(&mut bytes)], IoOffset::POSITION)?;
    volume.close(desc)?;
    assert_eq!(read, bytes.len());
    Ok(bytes)
}

/// Numbers below what is asked for, the same ones for the same seed.
pub fn random(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    }
}
