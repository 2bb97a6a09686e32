//! The cache that the environment asks for: `SOLERA_CACHE`, its size in bytes, `SOLERA_CACHE_DIR`,
//! where it lies, and `SOLERA_CACHE_ATTACH`, from how many bytes on reads may map it. One that
//! cannot be had is reported, and the volume serves without: it shows the same.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::Arc;

use flac::{Cached, Options, Whose, program};
use vfs::variable;
use volume::Volume;

use crate::entry::fdtable;
use crate::entry::report;

/// The engines of these volumes, with a cache over each if one is asked for. What belongs to the
/// caches, and the program must not touch, is added to `internal`.
pub fn over(
    volumes: &[Arc<Volume>],
    guarded: bool,
    internal: &mut Vec<c_int>,
) -> Result<Vec<Arc<dyn vfs::Engine>>, String> {
    let budget: Option<u64> = variable::number("SOLERA_CACHE")?;
    let place = std::env::var_os("SOLERA_CACHE_DIR").map(PathBuf::from);
    let attach: Option<u64> = variable::number("SOLERA_CACHE_ATTACH")?;
    if attach.is_some() && budget.is_some() && program::begin(is_own).is_err() {
        report::fell_back("(attach)", "attach:kernel");
    }
    let over = |(number, volume): (usize, &Arc<Volume>)| {
        let cached = budget.filter(|&budget| budget > 0).and_then(|budget| {
            cache(volume, budget, (place.clone(), attach))
                .inspect_err(|_| {
                    report::about(number);
                    report::fell_back("(attach)", "cache:unreachable");
                })
                .ok()
        });
        match cached {
            None => Arc::clone(volume) as Arc<dyn vfs::Engine>,
            Some(cached) => {
                // Reported of the volume itself, where it cannot be had.
                let _ = guarded.then(|| cached.region().guard());
                internal.extend(cached.internal_descriptors());
                Arc::new(cached)
            }
        }
    };
    Ok(volumes.iter().enumerate().map(over).collect())
}

/// Whether a descriptor is none of the program's.
fn is_own(fd: c_int) -> bool {
    fdtable::is_hidden(fd) || fdtable::get(fd).is_some()
}

fn cache(
    volume: &Arc<Volume>,
    budget: u64,
    (place, attach): (Option<PathBuf>, Option<u64>),
) -> Result<Cached, String> {
    let (uuid, owner) = volume.uuid_and_owner().map_err(|errno| errno.to_string())?;
    let told = |reason, bytes| report::moved_otherwise("read", reason, bytes);
    let options = Options { budget, place, whose: Whose { uuid, owner }, attach, told };
    Cached::over(Arc::clone(volume) as _, &options)
}
