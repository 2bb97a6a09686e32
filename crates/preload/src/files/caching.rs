//! The cache that the environment asks for: `SOLERA_CACHE`, its size in bytes, `SOLERA_CACHE_DIR`,
//! where it lies, `SOLERA_CACHE_ATTACH`, from how many bytes on reads may map it, and
//! `SOLERA_CACHE_MISS`, whether a thread fills it ahead of them. One that cannot be had is
//! reported, and the volume serves without: it shows the same.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::Arc;

use flac::{Cached, Options, Spawn, VolumeId, program};
use vfs::variable;
use volume::Volume;

use crate::entry::attachment;
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::pending_signals::{bit, set_mask};
use crate::entry::report;
use crate::entry::thread::{Inside, here};

/// The engines of these volumes, with a cache over each if one is asked for. What belongs to the
/// caches, and the program must not touch, is added to `internal`.
pub fn over(
    volumes: &[Arc<Volume>],
    guarded: bool,
    internal: &mut Vec<c_int>,
) -> Result<Vec<Arc<dyn vfs::Engine>>, String> {
    let budget: Option<u64> = variable::number("SOLERA_CACHE")?;
    let place = std::env::var_os("SOLERA_CACHE_DIR").map(PathBuf::from);
    if budget.is_some() {
        flac::descriptors::guard(numbers);
    }
    let attach: Option<u64> = variable::number("SOLERA_CACHE_ATTACH")?;
    let ahead = variable::is("SOLERA_CACHE_MISS", "ahead", &["sync"])?.then_some(spawn as Spawn);
    if attach.is_some() && budget.is_some() && program::begin(is_own).is_err() {
        report::fell_back("(attach)", "attach:kernel");
    }
    let over = |(number, volume): (usize, &Arc<Volume>)| {
        let cached = budget.filter(|&budget| budget > 0).and_then(|budget| {
            cache(volume, budget, (place.clone(), attach, ahead))
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
                // Some belong to all caches.
                let own = cached.internal_descriptors();
                internal.extend(
                    own.into_iter().filter(|fd| !internal.contains(fd)).collect::<Vec<_>>(),
                );
                Arc::new(cached)
            }
        }
    };
    Ok(volumes.iter().enumerate().map(over).collect())
}

/// Begins a thread of the cache's: inside, with the engine's memory open to it, and with all
/// signals blocked but two, so that no handler of the program's runs there but for these.
fn spawn(run: Box<dyn FnOnce() + Send>) -> bool {
    cached_fd::before_thread();
    let thread = std::thread::Builder::new().name("solera-ahead".into()).stack_size(STACK);
    let body = move || {
        let _inside = Inside::new();
        here().open();
        run();
    };
    // The engine takes these of its own accesses for errors. The new thread has this one's mask.
    let before = set_mask(!(bit(libc::SIGBUS) | bit(libc::SIGSEGV)));
    let began = thread.spawn(body).is_ok();
    set_mask(before);
    began
}

const STACK: usize = 256 << 10;

/// As `descriptors::Guard`. A call of another thread that closes or replaces numbers, or a fork,
/// is waited for for a moment; then the volume serves the read.
fn numbers(act: &mut dyn FnMut()) -> bool {
    let Some(process) = attachment::process() else {
        // At the start.
        act();
        return true;
    };
    for _ in 0..TRIES {
        if let Some(_lock) = process.try_lock()
            && cached_fd::is_quiet()
        {
            act();
            return true;
        }
        std::thread::yield_now();
    }
    false
}

const TRIES: u32 = 100;

/// Whether a descriptor is none of the program's.
fn is_own(fd: c_int) -> bool {
    fdtable::is_hidden(fd) || fdtable::get(fd).is_some()
}

fn cache(
    volume: &Arc<Volume>,
    budget: u64,
    (place, attach, ahead): (Option<PathBuf>, Option<u64>, Option<Spawn>),
) -> Result<Cached, String> {
    let (uuid, owner) = volume.uuid_and_owner().map_err(|errno| errno.to_string())?;
    let told = |reason, bytes| report::moved_otherwise("read", reason, bytes);
    let options = Options { budget, place, whose: VolumeId { uuid, owner }, attach, ahead, told };
    Cached::over(Arc::clone(volume) as _, &options)
}
