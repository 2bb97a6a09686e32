//! Describes a stray load or store into a guarded region, to help to find its cause.
//!
//! Runs in a signal handler, maybe on a small stack of the program's: nothing here allocates,
//! locks, calls the C library, or has large frames. There is room for one text at a time; another
//! thread's fault meanwhile is not described.

use crate::faults::key;
use rustix::fs::{CWD, Mode, OFlags};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// `si_code` of a fault that a protection key caused.
const SEGV_PKUERR: i32 = 4;
/// Where `siginfo_t` holds the key.
const KEY_AT: usize = 32;
const TEXT_BYTES: usize = 2048;
/// Longest line of the list of mappings that is looked at.
const LINE_BYTES: usize = 4096;

/// A guarded region's name: where it is, its path, and the one that was guarded before it.
struct Named {
    start: usize,
    path: Vec<u8>,
    before: *const Named,
}

/// The one that was guarded last. They live for ever.
static NAMES: AtomicPtr<Named> = AtomicPtr::new(std::ptr::null_mut());

/// Says what the guarded region at this address is called.
pub fn name(start: usize, path: &Path) {
    let path = path.as_os_str().as_bytes().to_vec();
    let named = Box::into_raw(Box::new(Named { start, path, before: std::ptr::null() }));
    let put = |before: *mut Named| {
        // SAFETY: made above, and not published yet.
        unsafe { (*named).before = before };
        Some(named)
    };
    // The closure never refuses.
    let _ = NAMES.fetch_update(Ordering::Release, Ordering::Relaxed, put);
}

fn region_name(start: usize) -> &'static [u8] {
    let mut at: *const Named = NAMES.load(Ordering::Acquire);
    // SAFETY: published by `name`, and never freed.
    while let Some(named) = unsafe { at.as_ref() } {
        if named.start == start {
            return &named.path;
        }
        at = named.before;
    }
    b"(anonymous memory)"
}

/// The text, and room for lines of the list of mappings.
struct Page {
    text: [u8; TEXT_BYTES],
    length: usize,
    line: [u8; LINE_BYTES],
}

struct Place(UnsafeCell<Page>);
// SAFETY: used by the one thread that has set `TAKEN`.
unsafe impl Sync for Place {}
static PLACE: Place =
    Place(UnsafeCell::new(Page { text: [0; TEXT_BYTES], length: 0, line: [0; LINE_BYTES] }));
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Page {
    /// As far as there is room.
    fn push(&mut self, bytes: &[u8]) {
        let take = bytes.len().min(TEXT_BYTES - self.length);
        self.text[self.length..self.length + take].copy_from_slice(&bytes[..take]);
        self.length += take;
    }
}

impl Write for Page {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Whether a fault with these registers was that of a store.
pub fn is_store(registers: &[libc::greg_t]) -> bool {
    /// Of the error code.
    const STORE: i64 = 2;
    registers[libc::REG_ERR as usize] & STORE != 0
}

/// Hands to `tell` a description of a SIGSEGV, lines with newlines at their ends, if it is a stray
/// access to a guarded region.
///
/// # Safety
///
/// The arguments are those the kernel gave to an `SA_SIGINFO` handler.
#[cold]
#[inline(never)]
pub unsafe fn explain(
    info: *const libc::siginfo_t,
    context: *const c_void,
    tell: impl FnOnce(&[u8]),
) {
    // SAFETY: the caller passes what the kernel passed; a code of this kind comes with the key.
    let (fault, key, address, registers) = unsafe {
        let key = info.byte_add(KEY_AT).cast::<u32>().read_unaligned();
        let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        (&*info, key, (*info).si_addr() as usize, registers)
    };
    if fault.si_signo != libc::SIGSEGV || fault.si_code != SEGV_PKUERR {
        return;
    }
    let Some(region) = key::is_own(key, address) else { return };
    if TAKEN.swap(true, Ordering::Acquire) {
        return;
    }
    // SAFETY: this thread has taken it.
    let page = unsafe { &mut *PLACE.0.get() };
    let store = is_store(registers);
    let at = registers[libc::REG_RIP as usize] as usize;
    describe(page, (address, region), store, at);
    tell(&page.text[..page.length]);
    TAKEN.store(false, Ordering::Release);
}

/// Fills the page: address and where its region begins, kind, address of the instruction.
fn describe(page: &mut Page, (address, region): (usize, usize), store: bool, at: usize) {
    page.length = 0;
    let offset = address - region;
    let kind = if store { "store to" } else { "load from" };
    // Writing to memory does not fail.
    let _ = write!(
        page,
        "solera: stray {kind} address {address:#x}, offset {offset:#x} of the volume "
    );
    page.push(region_name(region));
    let _ = write!(page, ",\nsolera: by the instruction at {at:#x}");
    describe_code(page, at);
    let process = rustix::process::getpid().as_raw_nonzero();
    let thread = rustix::thread::gettid().as_raw_nonzero();
    let _ = write!(
        page,
        ", process {process}, thread {thread}.\n\
         solera: The protection key stopped it: the volume is unharmed. Only calls reach\n\
         solera: a volume's memory; the program has used a bad pointer.\n\
         solera: `solera run --no-guard` runs it without the key.\n"
    );
}

/// Adds ` (file+offset)`, if the code at `address` comes from a file.
fn describe_code(page: &mut Page, address: usize) {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(list) = rustix::fs::openat(CWD, c"/proc/self/maps", flags, Mode::empty()) else {
        return;
    };
    let mut filled = 0;
    while let Ok(count @ 1..) = rustix::io::read(&list, &mut page.line[filled..]) {
        filled += count;
        while let Some(end) = page.line[..filled].iter().position(|&byte| byte == b'\n') {
            if let Some((offset, path)) = line_of(&page.line[..end], address) {
                let (first, length) = (end - path.len(), path.len());
                page.push(b" (");
                let take = length.min(TEXT_BYTES - page.length);
                page.text[page.length..][..take].copy_from_slice(&page.line[first..first + take]);
                page.length += take;
                // As above.
                let _ = write!(page, "+{offset:#x})");
                return;
            }
            page.line.copy_within(end + 1..filled, 0);
            filled -= end + 1;
        }
        if filled == page.line.len() {
            // A path that is longer than any.
            filled = 0;
        }
    }
}

/// Offset in the file, and the file, if a line `start-end rights offset device inode path` says
/// that `address` lies there.
fn line_of(line: &[u8], address: usize) -> Option<(usize, &[u8])> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let hex = |word: &[u8]| usize::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok();
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
    if !(start..end).contains(&address) {
        return None;
    }
    let offset = hex(words.nth(1)?)?;
    let path = words.nth(2)?.trim_ascii();
    (!path.is_empty()).then_some((offset + (address - start), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_list_of_mappings_names_its_file() {
        let line = b"7f00-8f00 r-xp 00001000 08:01 1234                       /usr/lib/a b.so";
        assert_eq!(line_of(line, 0x7f10), Some((0x1010, b"/usr/lib/a b.so".as_slice())));
        assert_eq!(line_of(line, 0x8f00), None);
        assert_eq!(line_of(b"7f00-8f00 rw-p 00000000 00:00 0 ", 0x7f10), None);
    }

    #[test]
    fn own_code_is_found_in_the_list() {
        let mut page = Page { text: [0; TEXT_BYTES], length: 0, line: [0; LINE_BYTES] };
        describe_code(&mut page, own_code_is_found_in_the_list as fn() as usize);
        let own = std::env::current_exe().unwrap();
        let text = String::from_utf8_lossy(&page.text[..page.length]).into_owned();
        assert!(text.starts_with(&format!(" ({}+0x", own.display())), "{text}");
    }
}
