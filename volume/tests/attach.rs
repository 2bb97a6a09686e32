//! Coming and going: what several processes, clean and unclean ends, and bad input do to a volume.

use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{FileSystem, Kind, NewNode, Node, OpenFlags, UserIn, UserOut};
use volume::{AttachOptions, ErrorKind, FormatOptions, Volume, attach, attach_region, format};

const SIZE: u64 = 64 << 20;

/// A volume of its own for a test, removed afterwards.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let base = std::env::var_os("SOLERA_TEST_DIR").map_or("/dev/shm".into(), PathBuf::from);
        let path = base.join(format!("solera-test-{}-{name}", std::process::id()));
        let place = Self(path);
        place.clear();
        place
    }

    fn formatted(name: &str) -> Self {
        let place = Self::new(name);
        let options = FormatOptions { size: Some(SIZE), ..FormatOptions::default() };
        format(&place.0, &options).expect("a new volume");
        place
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn attach(&self) -> Arc<Volume> {
        attach(&self.0, &AttachOptions::default()).expect("attached")
    }

    fn clear(&self) {
        let _ = std::fs::remove_file(&self.0);
        let mut anchor = self.0.clone().into_os_string();
        anchor.push(".solera");
        let _ = std::fs::remove_dir_all(anchor);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clear();
    }
}

fn new_file() -> NewNode<'static> {
    NewNode { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: &[] }
}

fn put(volume: &Volume, name: &str, bytes: &[u8]) -> Node {
    let node = volume.create(volume.root(), name.as_bytes(), &new_file()).expect("created");
    let desc = volume.open(node, OpenFlags(libc::O_RDWR)).expect("opened");
    assert_eq!(volume.write(desc, &[UserIn::new(bytes)]), Ok(bytes.len()));
    volume.close(desc).expect("closed");
    node
}

fn get(volume: &Volume, name: &str) -> Result<Vec<u8>, Errno> {
    let node = volume.lookup(volume.root(), name.as_bytes())?;
    let desc = volume.open(node, OpenFlags(libc::O_RDONLY))?;
    let mut bytes = vec![0; volume.attr(node)?.size as usize];
    let read = volume.read(desc, &mut [UserOut::new(&mut bytes)])?;
    volume.close(desc)?;
    assert_eq!(read, bytes.len());
    Ok(bytes)
}

#[test]
fn what_was_written_is_there_after_an_orderly_detach() {
    let place = Place::formatted("orderly");
    let volume = place.attach();
    put(&volume, "a", b"hello");
    volume.detach().expect("detached");
    assert_eq!(volume.attr(volume.root()), Err(Errno::BADF));
    let volume = place.attach();
    assert_eq!(get(&volume, "a").expect("read"), b"hello");
}
