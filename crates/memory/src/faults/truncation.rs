//! Reports, once, that a region's file was cut short under its mapping.
//!
//! Accesses beyond the new end fault and become errors (`faults/handler.rs`); a program then says
//! "Input/output error" about something that has nothing to do with it. So the first such fault of
//! a process puts a line on standard error that names the file.
//!
//! Runs in a signal handler: nothing here allocates, locks or calls the C library.

use crate::faults::region_table;
use os::interrupt::system_call;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

const TEXT_BYTES: usize = 1024;

/// This process has said it.
static TOLD: AtomicBool = AtomicBool::new(false);

/// A guarded access has met a page that is not there: says so if the file has lost its end.
#[cold]
pub fn tell(address: usize) {
    let Some(region) = region_table::find(address) else { return };
    let (len, Some(name)) = (region.len(), region.name()) else { return };
    if region.offset(address) >= len {
        return;
    }
    let now = match rustix::fs::fstat(region.fd()) {
        Ok(stat) if stat.st_rdev == 0 && (stat.st_size as u64) < len => stat.st_size as u64,
        _ => return,
    };
    if TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut text = Text { bytes: [0; TEXT_BYTES], length: 0 };
    describe(&mut text, name, len, now);
    let arguments = [2, text.bytes.as_ptr() as usize, text.length, 0, 0, 0];
    // SAFETY: the text is this thread's. A line that cannot be written is lost.
    let _ = unsafe { system_call(libc::SYS_write, arguments) };
}

/// One line.
fn describe(text: &mut Text, name: &[u8], len: u64, now: u64) {
    text.push(b"solera: the file of the volume ");
    text.push(name);
    // Writing to memory does not fail.
    let _ = write!(
        text,
        " was cut from {len} to {now} bytes while in use: calls fail (EIO) from here on. End the \
         programs that use it, then `truncate --size {len} "
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
