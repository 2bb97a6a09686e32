//! A region's file that was cut short under its mapping: what to say, once.
//!
//! Accesses beyond the new end fault and become errors (`guard.rs`); a program then says "Input/output error"
//! about something that has nothing to do with it. So the first such fault of a process puts a line on
//! standard error that names the file.
//!
//! Made in a signal handler: nothing here allocates, locks or calls the C library. Regions are listed in a
//! fixed table; one that finds no room there goes without.

use crate::interrupt::system_call;
use std::fmt::{self, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

/// Shared regions of one process that are known here.
const REGIONS_MAX: usize = 16;
const TEXT_BYTES: usize = 1024;

/// One region; a base of 0: none.
struct Known {
    base: AtomicUsize,
    /// Bytes that are mapped.
    len: AtomicUsize,
    fd: AtomicI32,
    /// The path: bytes that live for ever.
    name: AtomicPtr<u8>,
    name_bytes: AtomicUsize,
}

static REGIONS: [Known; REGIONS_MAX] = [const {
    Known {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        fd: AtomicI32::new(-1),
        name: AtomicPtr::new(std::ptr::null_mut()),
        name_bytes: AtomicUsize::new(0),
    }
}; REGIONS_MAX];

/// This process has said it.
static TOLD: AtomicBool = AtomicBool::new(false);

fn known(base: *mut u8) -> Option<&'static Known> {
    REGIONS.iter().find(|region| region.base.load(Ordering::Acquire) == base as usize)
}

/// Lists a region, or says how long it is by now and which descriptor it has.
pub(crate) fn note(base: *mut u8, len: usize, fd: RawFd, name: &Path) {
    if let Some(region) = known(base) {
        region.fd.store(fd, Ordering::Relaxed);
        region.len.store(len, Ordering::Relaxed);
        return;
    }
    for region in &REGIONS {
        // Another thread that looks meanwhile finds no bytes in it.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if region.base.compare_exchange(0, base as usize, order.0, order.1).is_ok() {
            let bytes: &'static mut [u8] = name.as_os_str().as_bytes().to_vec().leak();
            region.name_bytes.store(bytes.len(), Ordering::Relaxed);
            region.name.store(bytes.as_mut_ptr(), Ordering::Relaxed);
            region.fd.store(fd, Ordering::Relaxed);
            region.len.store(len, Ordering::Release);
            return;
        }
    }
}

/// Forgets a region; nobody uses it any more.
pub(crate) fn forget(base: *mut u8) {
    if let Some(region) = known(base) {
        region.len.store(0, Ordering::Relaxed);
        region.base.store(0, Ordering::Release);
    }
}

/// A guarded access has met a page that is not there: says so if the file has lost its end.
#[cold]
pub(crate) fn tell(address: usize) {
    let region = REGIONS.iter().find(|region| {
        let base = region.base.load(Ordering::Acquire);
        base != 0 && address.wrapping_sub(base) < region.len.load(Ordering::Acquire)
    });
    let Some(region) = region else { return };
    let len = region.len.load(Ordering::Relaxed) as u64;
    // SAFETY: asks about a number; if it is another file's by now, that is not shorter, or is wrongly named.
    let fd = unsafe { BorrowedFd::borrow_raw(region.fd.load(Ordering::Relaxed).max(0)) };
    let now = match rustix::fs::fstat(fd) {
        Ok(stat) if stat.st_rdev == 0 && (stat.st_size as u64) < len => stat.st_size as u64,
        _ => return,
    };
    if TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut text = Text { bytes: [0; TEXT_BYTES], length: 0 };
    describe(&mut text, name_of(region), len, now);
    let arguments = [2, text.bytes.as_ptr() as usize, text.length, 0, 0, 0];
    // SAFETY: the text is this thread's. There is nobody else to tell.
    let _ = unsafe { system_call(libc::SYS_write, arguments) };
}

fn name_of(region: &Known) -> &'static [u8] {
    let at = region.name.load(Ordering::Relaxed);
    if at.is_null() {
        return b"?";
    }
    // SAFETY: stored by `note` before the length of the region, and never freed.
    unsafe { std::slice::from_raw_parts(at, region.name_bytes.load(Ordering::Relaxed)) }
}

/// One line.
fn describe(text: &mut Text, name: &[u8], len: u64, now: u64) {
    text.push(b"solera: the file of the volume ");
    text.push(name);
    // Writing to memory does not fail.
    let _ = write!(
        text,
        " was cut from {len} to {now} bytes while in use: calls fail (EIO) from here on. End the programs \
         that use it, then `truncate --size {len} "
    );
    text.push(name);
    text.push(b"` and `solera fsck --salvage ");
    text.push(name);
    text.push(b"`, or restore it from a copy\n");
}

struct Text {
    bytes: [u8; TEXT_BYTES],
    length: usize,
}

impl Text {
    /// As far as there is room.
    fn push(&mut self, bytes: &[u8]) {
        let take = bytes.len().min(TEXT_BYTES - self.length);
        self.bytes[self.length..self.length + take].copy_from_slice(&bytes[..take]);
        self.length += take;
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_line_that_says_what_to_do() {
        let mut text = Text { bytes: [0; TEXT_BYTES], length: 0 };
        describe(&mut text, b"/dev/shm/v.pm", 8192, 3);
        let line = String::from_utf8_lossy(&text.bytes[..text.length]).into_owned();
        assert!(line.contains("/dev/shm/v.pm was cut from 8192 to 3 bytes"), "{line}");
        assert!(line.ends_with('\n') && line.lines().count() == 1, "{line}");
    }
}
