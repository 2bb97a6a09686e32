//! What a program says of mappings whose pages may be away (`ddmap`): `madvise`, `posix_fadvise`,
//! `mlock`, `MAP_POPULATE`, `MAP_LOCKED`. The kernel hears of it, too.

use std::ffi::{c_int, c_void};

use ddmap::{AccessPattern, Pagers};
use os::interrupt::system_call;
use vfs::{Desc, IoOffset, UserOut};

use crate::entry::process::Process;
use crate::entry::{Served, Stop};
use crate::mappings::page_faults;

/// Bytes of a read that brings pages: one request.
const PIECE: usize = 256 << 10;

/// `madvise`; whether it was about how the program reads.
pub fn advise(start: usize, len: usize, advice: c_int) -> bool {
    let way = match advice {
        libc::MADV_WILLNEED => None,
        libc::MADV_NORMAL => Some(AccessPattern::Normal),
        libc::MADV_RANDOM => Some(AccessPattern::Random),
        libc::MADV_SEQUENTIAL => Some(AccessPattern::InOrder),
        _ => return false,
    };
    if !Pagers::any() {
        return false;
    }
    match way {
        Some(way) => Pagers::reads(start, len, way),
        None => Pagers::will_need(start, len),
    }
    true
}

/// A mapping was made with these flags. As for the kernel, it stands if pages cannot be had.
pub fn mapped(start: usize, len: usize, flags: c_int) {
    if flags & (libc::MAP_POPULATE | libc::MAP_LOCKED) == 0 {
        return;
    }
    if !Pagers::any() {
        if flags & libc::MAP_LOCKED != 0 {
            // SAFETY: what was mapped just now. Its pieces were mapped without that flag.
            let _ = unsafe { system_call(libc::SYS_mlock, [start, len, 0, 0, 0, 0]) };
        }
        return;
    }
    if flags & libc::MAP_LOCKED == 0 || Pagers::lock(start, len).is_err() {
        Pagers::will_need(start, len);
    }
}

/// `mlock`: the pages stay here, then the kernel keeps their memory.
pub fn lock(start: *const c_void, len: usize, kernel: impl FnOnce() -> c_int) -> Served<c_int> {
    // Too much is refused before any of it is brought.
    if Pagers::any() {
        Pagers::lock(start as usize, len).map_err(Stop::Errno)?;
    }
    page_faults::ready(start, len);
    let answer = kernel();
    if answer != 0 && Pagers::any() {
        Pagers::unlock(start as usize, len);
    }
    Ok(answer)
}

/// `munlock`.
pub fn unlock(start: usize, len: usize) {
    if Pagers::any() {
        Pagers::unlock(start, len);
    }
}

/// `posix_fadvise`, of a range of a file (0: up to its end) that is wanted soon. It is read, into
/// nowhere, as far as there is room: what cannot be read is told to the access.
pub fn wanted(process: &Process, desc: Desc, offset: i64, len: i64) {
    let (Ok(offset), Ok(len)) = (u64::try_from(offset), u64::try_from(len)) else { return };
    if !Pagers::any() {
        return;
    }
    let mut piece = vec![0; PIECE];
    let mut done = 0;
    while (len == 0 || done < len) && Pagers::free_pages() > (PIECE >> 12) as u64 {
        let want = if len == 0 { PIECE } else { PIECE.min((len - done) as usize) };
        let mut out = [UserOut::new(&mut piece[..want])];
        match process.fs.read(desc, &mut out, IoOffset::offset(offset + done)) {
            Ok(0) | Err(_) => return,
            Ok(read) => done += read as u64,
        }
    }
}
