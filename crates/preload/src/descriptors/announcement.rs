//! What other libraries of the process are told of its volumes (`vfs::preloaded`): libsolera does
//! not attach those a second time, it goes by the C library's calls. It tells of its explicit
//! buffers, which the caches here map into.

use std::ffi::c_int;

use vfs::preloaded::{Preloaded, Told, VERSION};

use crate::entry::attachment;
use crate::entry::fdtable;
use crate::entry::process::VolumeView;
use crate::entry::thread::Inside;

pub static TABLE: Preloaded = Preloaded {
    version: VERSION.as_ptr(),
    of_descriptor,
    of_volume,
    buffer_add,
    buffer_remove,
    buffer_detach,
    buffer_keep,
    waits: vfs::lock_waits::of_thread,
};

/// # Safety
///
/// As `flac::buffers::add`.
unsafe extern "C" fn buffer_add(start: usize, length: usize) -> c_int {
    let _inside = Inside::new();
    // SAFETY: the caller's promise.
    c_int::from(unsafe { flac::buffers::add(start, length) })
}

extern "C" fn buffer_remove(start: usize, length: usize) {
    let _inside = Inside::new();
    flac::buffers::remove(start, length);
}

extern "C" fn buffer_detach(start: usize, length: usize) -> c_int {
    let _inside = Inside::new();
    c_int::from(flac::buffers::detach(start, length))
}

extern "C" fn buffer_keep(start: usize, length: usize) -> c_int {
    let _inside = Inside::new();
    c_int::from(flac::buffers::keep(start, length))
}

/// # Safety
///
/// There is room for what is told.
unsafe extern "C" fn of_descriptor(fd: c_int, told: *mut Told) -> c_int {
    let Some(process) = attachment::process() else { return 0 };
    let _inside = Inside::new();
    let found = fdtable::get(fd).map(|desc| process.volume_of(desc));
    // SAFETY: the caller's promise.
    unsafe { tell(found, told) }
}

/// # Safety
///
/// As above.
unsafe extern "C" fn of_volume(device: u64, ino: u64, told: *mut Told) -> c_int {
    let Some(process) = attachment::process() else { return 0 };
    let found = process.volumes().find(|seen| seen.texts.file == (device, ino));
    // SAFETY: the caller's promise.
    unsafe { tell(found, told) }
}

/// # Safety
///
/// As above.
unsafe fn tell(found: Option<&VolumeView>, told: *mut Told) -> c_int {
    let Some(texts) = found.map(|seen| &seen.texts) else { return 0 };
    // SAFETY: the caller's promise. The texts are part of the attachment, which stays.
    unsafe {
        told.write(Told {
            prefix: texts.prefix.as_ptr(),
            class: texts.class.as_ptr(),
            reason: texts.reason.as_ptr(),
            durable: texts.durable,
            atomic: texts.atomic,
        });
    }
    1
}
