//! A cache over each engine that is explored, if `SOLERA_TEST_CACHE` is set: what is found must be
//! the same.

use flac::{Cached, Options, VolumeId};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use volume::Volume;

/// Bytes that it may use.
const BUDGET: u64 = 64 << 20;

/// A directory in memory that goes with what is in it.
pub struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        // What is left is in memory, below a name that says whose it is.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The engine of a volume, maybe with a cache over it, and where that lies.
///
/// # Panics
///
/// There is to be a cache, and there can be none.
pub fn engine(volume: &Arc<Volume>) -> (Arc<dyn vfs::Engine>, Option<Place>) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if std::env::var_os("SOLERA_TEST_CACHE").is_none() {
        return (Arc::clone(volume) as _, None);
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let place = format!("/dev/shm/solera-explorer-{}-{number}", std::process::id());
    let place = Place(place.into());
    std::fs::create_dir(&place.0).expect("a directory in memory");
    let whose = VolumeId { uuid: "explored".into(), owner: rustix::process::geteuid().as_raw() };
    let at = Some(place.0.clone());
    let options =
        Options { budget: BUDGET, place: at, whose, attach: None, ahead: None, told: |_, _| {} };
    match Cached::over(Arc::clone(volume) as _, &options) {
        Ok(cached) => (Arc::new(cached), Some(place)),
        // A volume that is only read has no versions.
        Err(found) if found.contains("only read") => (Arc::clone(volume) as _, None),
        Err(found) => panic!("no cache: {found}"),
    }
}
