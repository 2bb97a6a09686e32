//! Page faults in mappings: fills the pages that are missing until they are accessed, which are
//! holes, and what lies beyond the end of a file until it grows (see [`crate::mappings::mapping`]).
//!
//! The access raises SIGBUS. If the program's own code made it, the handler asks the engine for the
//! pieces around the page (which fills a hole as `fallocate` would), maps them over the empty ones,
//! and the instruction runs again. If there is none, because the page lies beyond the end or the
//! volume is full, the signal is the program's, as the kernel would send it.
//!
//! The program may have been interrupted anywhere, in malloc or on a small signal stack. So the
//! handler works like any call: inside, with the library's own heap and locks, none of which a
//! thread outside holds. It runs on a stack of its own, with all signals but those of faults
//! blocked, and with the program's signal stack switched off: the handler's own frame may lie on
//! it, and a guarded fault would overwrite it.
//!
//! Our own code touches the program's memory by guarded copies, whose faults are errors: there the
//! copies' callers ask for pages by [`supply`], with no lock held, and try again. Where the kernel
//! gets pointers of the program, it answers `EFAULT` for such a page, and the call is made again
//! with the pages of its arguments there ([`with_pages`]). Calls that move many bytes would move a
//! part of them: they get their pages before ([`ready`]), reads only as many as bytes can come
//! ([`ready_for`]).

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use ddmap::{Interruptible, Pagers};
use os::interrupt::system_call;
use rustix::mm::{MapFlags, ProtFlags};
use vfs::{Errno, FileSystemExt, Fill, Mapped, Piece, UserIn};

use crate::entry::attachment;
use crate::entry::maptable::{Mapping, PAGE, any_gap, had_gap};
use crate::entry::pending_signals;
use crate::entry::pointers::{Bytes, Out};
use crate::entry::process::Process;
use crate::entry::thread::here;
use crate::entry::{Answer, Inside, errno, set_errno};
use crate::files::rw::{Vector, vectors};
use crate::mappings::mapping;
use crate::mappings::read_estimate::{Source, coming};

/// Bytes around a page that show zeros where the volume has no room for a page that is only read.
const ZEROS: usize = 64 << 10;

/// Beyond this many parts without pages a mapping is filled by larger pieces; beyond twice as many
/// the pieces grow so that it cannot get as many again.
const PARTS: usize = 512;
/// The larger pieces, bytes.
const LARGER: u64 = 2 << 20;

/// Why a mapping cannot have a page: messages for a program that this ends.
const REASONS: [&str; 4] = [
    "solera: SIGBUS: the program has stored into a hole of a mapped file, and the volume is full; \
     make room (`solera df` shows it), or `solera grow` the volume\n",
    "solera: SIGBUS: the program has touched a mapped file where the volume's memory cannot be \
     had: the file system that the volume lies on is full, or a page is lost (`solera fsck \
     --read-data`)\n",
    "solera: SIGBUS: the program has touched a mapped file where the volume gives no page: it is \
     damaged (`solera fsck`)\n",
    "solera: SIGBUS: the program has touched a mapped file whose page is on a node that does not \
     answer, or has lost it (`solera domain status`)\n",
];
const FULL: usize = 2;
const NO_MEMORY: usize = 3;
const DAMAGED: usize = 4;
const ELSEWHERE: usize = 5;

thread_local! {
    /// Signals that the program does not block where it has touched a page; and whether it stores.
    static DELIVERABLE: Cell<u64> = const { Cell::new(0) };
    static STORES: Cell<bool> = const { Cell::new(false) };
}

/// A SIGSEGV at `address` outside of our code, by a store or a load: whether another thread was
/// placing a piece of a mapping there, which nobody may touch meanwhile. It is placed now.
pub fn was_placed(address: usize, stores: bool) -> bool {
    if !Pagers::any() || here().is_inside() || !Pagers::may_help(address) {
        return false;
    }
    let Some(process) = attachment::process() else { return false };
    let failed = errno();
    let mask = pending_signals::block_for_fault();
    let wants = if stores { libc::PROT_WRITE } else { libc::PROT_READ };
    let allowed = {
        let _inside = Inside::new();
        process.lock().find(address).is_some_and(|map| map.prot & wants != 0)
    };
    pending_signals::set_mask(mask);
    set_errno(failed);
    allowed
}

/// A SIGBUS at `address` outside of our code, by a store or a load: `Ok`: the page is there now;
/// else why it is not, if the volume is to blame.
pub fn serve(address: usize, stores: bool) -> Result<(), Option<&'static str>> {
    if here().is_inside() {
        return Err(None);
    }
    let failed = errno();
    // Until the handler returns; whatever it has interrupted.
    let mask = pending_signals::block_for_fault();
    DELIVERABLE.set(!mask);
    STORES.set(stores);
    let found = with_stack(address);
    if found != 1 {
        pending_signals::set_mask(mask);
    }
    set_errno(failed);
    match found {
        1 => Ok(()),
        reason => Err(reason.checked_sub(FULL).and_then(|at| REASONS.get(at).copied())),
    }
}

/// Gives the page at `address` if it is one that a mapping lacks: for what our own code could not
/// touch, or the kernel did not find. True also if a mapping has it already, since another thread
/// may have supplied it meanwhile. No lock may be held.
#[cold]
pub fn supply(address: usize) -> bool {
    if !had_gap() && !Pagers::any() {
        return false;
    }
    let _inside = Inside::new();
    // The kernel may be about to store there.
    let found = Pagers::ending(Interruptible::Never, || find(address, true));
    matches!(found, Page::New | Page::There | Page::Brought(Ok(())))
}

/// Gives all pages of `len` bytes from `start` on that mappings lack, before the kernel gets to see
/// the address.
#[inline]
pub fn ready(start: *const c_void, len: usize) {
    if any_gap() || Pagers::any() {
        all(start as usize, len);
    }
}

/// As [`ready`], for what the kernel will read from somewhere: no more pages than the bytes that
/// are there to be read, where that can be told. Inside, with no lock held. An error: the call ends
/// while nothing is there (`mappings/read_estimate.rs`).
#[inline]
pub fn ready_for(from: Source, start: *const c_void, len: usize) -> Result<(), Errno> {
    if any_gap() || Pagers::any() { ready_as_far(from, start, len) } else { Ok(()) }
}

#[cold]
fn ready_as_far(from: Source, start: *const c_void, len: usize) -> Result<(), Errno> {
    // Where nothing is to come, or to nowhere, the kernel says so at once.
    let to_nowhere = len == 0 || Bytes(start.cast_mut()).check(len).is_err();
    if !to_nowhere && (lacks(start as usize, len) || Pagers::any()) {
        all(start as usize, coming(from)?.unwrap_or(len).min(len));
    }
    Ok(())
}

/// Whether pages are not there.
fn lacks(start: usize, len: usize) -> bool {
    let end = start.saturating_add(len);
    attachment::process().is_some_and(|process| next_gap(process, start, end).is_some())
}

/// Whether pages may lack at all.
pub fn may_lack() -> bool {
    any_gap() || Pagers::any()
}

/// The memory of a vectored call that the kernel serves has its pages.
pub fn ready_all(list: Out<Vector>, count: c_int) {
    if any_gap() || Pagers::any() {
        ready_up_to(list, count, usize::MAX);
    }
}

/// As [`ready_for`], of a vectored call.
pub fn ready_all_for(from: Source, list: Out<Vector>, count: c_int) -> Result<(), Errno> {
    if !any_gap() && !Pagers::any() {
        return Ok(());
    }
    // Of a list that is wrong, or of nothing, the kernel says so at once.
    let pieces = vectors(list, count).unwrap_or_default();
    let lack = |piece: &Vector| lacks(piece.iov_base as usize, piece.iov_len);
    let is_empty = pieces.iter().all(|piece| piece.iov_len == 0);
    if !is_empty && (Pagers::any() || pieces.iter().any(lack)) {
        ready_up_to(list, count, coming(from)?.unwrap_or(usize::MAX));
    }
    Ok(())
}

/// The first `most` bytes of the pieces.
fn ready_up_to(list: Out<Vector>, count: c_int, mut most: usize) {
    // The kernel reports errors of the list.
    for piece in vectors(list, count).unwrap_or_default() {
        ready(piece.iov_base, piece.iov_len.min(most));
        most = most.saturating_sub(piece.iov_len);
    }
}

/// The address that an argument is, if it is one.
#[inline]
pub const fn address<T: Copy>(argument: &T) -> usize {
    if size_of::<T>() != size_of::<usize>() {
        return 0;
    }
    // SAFETY: of that size; integers and pointers are all that functions take.
    unsafe { std::mem::transmute_copy(argument) }
}

/// Whether the kernel finds all pages of the program's memory, and nobody is to be told of what it
/// stores there: no mapping has ever lacked one, none lies elsewhere, no buffer is of a cache.
#[inline]
pub fn kernel_finds_all() -> bool {
    !had_gap() && !any_gap() && !Pagers::any() && flac::buffers::attached() == 0
}

/// A call that the kernel serves; once more if it does not find pages that mappings lack at its
/// arguments.
#[inline]
pub fn with_pages<T: Answer, const N: usize>(
    mut call: impl FnMut() -> T,
    arguments: impl FnOnce() -> [usize; N],
) -> T {
    let value = call();
    if value.has_failed()
        && (had_gap() || Pagers::any())
        && errno() == libc::EFAULT
        && !here().is_inside()
    {
        return again(value, call, &arguments());
    }
    value
}

#[cold]
fn again<T: Answer>(mut value: T, mut call: impl FnMut() -> T, arguments: &[usize]) -> T {
    // What lies at an argument reaches into the next page at most.
    for page in [0, PAGE] {
        let supplied = arguments.iter().filter(|&&at| supply(at.saturating_add(page))).count();
        set_errno(libc::EFAULT);
        if supplied > 0 {
            value = call();
            if !value.has_failed() || errno() != libc::EFAULT {
                break;
            }
        }
    }
    value
}

#[cold]
fn all(start: usize, len: usize) {
    let end = start.saturating_add(len);
    let mut at = start;
    let Some(process) = attachment::process() else { return };
    let _inside = Inside::new();
    Pagers::ready(start, len);
    while at < end {
        let Some(next) = next_gap(process, at, end) else { return };
        if !matches!(page(process, next), Page::New | Page::There) {
            return;
        }
        at = next / PAGE * PAGE + PAGE;
    }
}

/// The first address from `at` on, before `end`, where a mapping lacks a page.
fn next_gap(process: &Process, at: usize, end: usize) -> Option<usize> {
    let maps = process.lock();
    let gap = maps.within(at, end).find_map(|map| map.empty_from(at))?;
    (gap.0 < end).then_some(gap.0.max(at))
}

/// The outcome of a page fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    /// It was not there, and is now.
    New,
    /// It was there already.
    There,
    /// There is none: no mapping has the address, or it lies beyond the end.
    None,
    /// The volume could not give it.
    Refused(Errno),
    /// It lies in a region with a pager, which brings it.
    Paged,
    /// The pager has brought it, or has not.
    Brought(Result<(), Errno>),
}

/// Times that a page is looked for which lies in a region with a pager, and whose mapping changes
/// meanwhile.
const ROUNDS: u32 = 64;

/// Gives the page at `address`, wherever it is, for a store or a load. Waits end as the caller has
/// said.
///
/// A thread may have touched a place that has no page, while another one maps a piece of the region
/// there: of what it finds mapped when that is over, no page need be here. (To look whether it can
/// be read would take one that is elsewhere, or busy, for one that is lost.) So the pager is asked
/// once more, then.
fn find(address: usize, stores: bool) -> Page {
    for _ in 0..ROUNDS {
        if let Some(served) = Pagers::serve(address, stores) {
            return Page::Brought(served);
        }
        let found = attachment::process().map_or(Page::None, |process| page(process, address));
        if found != Page::Paged {
            return found;
        }
    }
    // It is mapped, and no pager knows it.
    Page::There
}

fn page(process: &Process, address: usize) -> Page {
    let mut maps = process.lock();
    let Some(mut map) = maps.find_mut(address) else { return Page::None };
    let is_paged = Pagers::has_pager(process.fs.region_address(map.desc.into()));
    match map.empty_at(address) {
        None if is_paged => Page::Paged,
        None => Page::There,
        Some(gap) => match give(process, &mut map, address, gap) {
            Ok(true) if is_paged => Page::Paged,
            Ok(true) => Page::New,
            Ok(false) => Page::None,
            Err(errno) => Page::Refused(errno),
        },
    }
}

/// Gives `map` the page at `address`, in the middle of a part that has none; `false`: it lies
/// beyond the end.
fn give(
    process: &Process,
    map: &mut Mapping,
    address: usize,
    (from, to): (usize, usize),
) -> Result<bool, Errno> {
    let at = map.offset_of(address / PAGE * PAGE);
    let least = match map.empty.len() {
        0..PARTS => 0,
        PARTS..1024 => LARGER,
        _ => LARGER.max((map.end - map.start) as u64 / PARTS as u64),
    };
    let within = (map.offset_of(from), map.offset_of(to));
    let range = (within.0, within.1 - within.0);
    match process.fs.map(map.desc, range, map.usage(), Fill::Faulted { at, least }) {
        Ok(pieces) if pieces.is_empty() => Ok(false),
        Ok(pieces) if mapping::is_copied(process, map) => {
            let end = pieces.last().map_or(0, |piece| piece.file_offset + piece.length);
            let to = to.min(from + (end - within.0) as usize);
            mapping::copy_in(process, map, address / PAGE * PAGE, to)?;
            Ok(true)
        }
        // On a volume that was found damaged, holes cannot be filled any more and get no place.
        Ok(pieces) => mapping::place(process, map, &pieces, (false, true))
            .map(|()| map.empty_at(address).is_none()),
        // A page that is only read, or private, is shown as the zeros that it is.
        Err(Errno::NOSPC) if map.usage() != Mapped::Write && !map.is_large() => {
            let hole = hole_around(process, map, address, (from, to))?;
            show_zeros(map, hole).map(|()| true)
        }
        Err(errno) => Err(errno),
    }
}

/// The part of `from..to` around `address`, at most [`ZEROS`] bytes, that is a hole of the file
/// now. The rest may have been written since it was mapped, or lie beyond the end.
fn hole_around(
    process: &Process,
    map: &Mapping,
    address: usize,
    (from, to): (usize, usize),
) -> Result<(usize, usize), Errno> {
    let (page, first) = (address / PAGE * PAGE, address / ZEROS * ZEROS);
    let (first, last) = (first.max(from), (first + ZEROS).min(to));
    let size = process.fs.attributes(map.node)?.size;
    let end = map.start + (size.saturating_sub(map.offset) as usize).next_multiple_of(PAGE);
    let (start, last) = (map.offset_of(first), last.min(end));
    let length = last.saturating_sub(first) as u64;
    let pieces = match length {
        0 => Vec::new(),
        _ => process.fs.map(map.desc, (start, length), map.usage(), Fill::None)?,
    };
    let part = |piece: &Piece| {
        let from = first + (piece.file_offset - start) as usize;
        (from, from + piece.length as usize)
    };
    let mut holes = pieces.iter().filter(|piece| piece.region_offset.is_none()).map(part);
    let found = holes.find(|hole| (hole.0..hole.1).contains(&page));
    // It was a hole a moment ago.
    Ok(found.unwrap_or((page, page + PAGE)))
}

/// Shows zeros. Of a shared mapping the table says that the part has no pages: if it is to be
/// written after all, it will have none again.
fn show_zeros(map: &mut Mapping, (first, last): (usize, usize)) -> Result<(), Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let prot = ProtFlags::from_bits_retain(map.prot as u32);
    // SAFETY: inside the range of this mapping.
    unsafe { rustix::mm::mmap_anonymous(first as *mut c_void, last - first, prot, flags)? };
    if map.shared {
        map.zeros = true;
    } else {
        map.note(first, last, false);
    }
    Ok(())
}

/// Serves a page fault in a signal handler: inside, and on a stack of our own. Gives 1 if the page
/// is there, 0 if nothing is known of it, or the reason.
extern "C" fn serve_inside(address: usize) -> usize {
    let before = pending_signals::set_stack(None);
    let inside = Inside::new();
    let (ends, stores) = (Interruptible::AtSignals(DELIVERABLE.get()), STORES.get());
    let found = Pagers::ending(ends, || find(address, stores));
    if matches!(found, Page::Brought(_)) {
        see_to_mappings();
    }
    let served = match found {
        // A signal whose turn it is comes when the handler has returned; then the instruction
        // faults again.
        Page::New
        | Page::Brought(Err(Errno::INTR))
        | Page::Refused(Errno::INTR | vfs::INTERRUPTED | vfs::BEGIN_ANEW) => 1,
        // Another thread was faster; or the memory itself has failed.
        Page::There if can_read(address) => 1,
        Page::There => NO_MEMORY,
        Page::None => 0,
        Page::Brought(Ok(())) if Pagers::may_help(address) => 1,
        Page::Brought(_) | Page::Paged => ELSEWHERE,
        Page::Refused(Errno::NOSPC) => FULL,
        Page::Refused(_) => DAMAGED,
    };
    drop(inside);
    pending_signals::set_stack(Some(before));
    served
}

/// Looks at the pages of which a node wants to know whether they are used, and maps those that have
/// come with the one that was touched, if no other thread changes a mapping just now: then the next
/// one to trap does it.
fn see_to_mappings() {
    let (asked, others) = (Pagers::is_asked(), Pagers::has_others());
    if (asked || others)
        && let Some(process) = attachment::process()
        && let Some(_unchanged) = process.try_lock()
    {
        if asked {
            Pagers::look();
        }
        Pagers::map_others();
    }
}

/// Whether a byte can be read now.
fn can_read(address: usize) -> bool {
    // SAFETY: guarded.
    let byte = unsafe { UserIn::from_raw(address as *const u8, 1) };
    byte.read(&mut [0]).is_ok()
}

// ---- stacks

const STACK: usize = 256 << 10;
const STACKS: usize = 8;

/// Stacks that were made: the address of each, and 1 while it is used. A fork may leave some used
/// in the child for ever: then others are made and given up.
static MADE: [AtomicUsize; STACKS] = [const { AtomicUsize::new(0) }; STACKS];

fn with_stack(address: usize) -> usize {
    for slot in &MADE {
        let made = slot.load(Ordering::Relaxed);
        let take = |from| {
            slot.compare_exchange(from, from | 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        if made & 1 != 0 || !take(made) {
            continue;
        }
        let stack = if made == 0 { new_stack() } else { Some(made) };
        let served = stack.map_or(0, |stack| on_stack(stack, address));
        slot.store(stack.unwrap_or(0), Ordering::Release);
        return served;
    }
    new_stack().map_or(0, |stack| {
        let served = on_stack(stack, address);
        // SAFETY: made above, and left.
        let _ = unsafe { system_call(libc::SYS_munmap, [stack, STACK, 0, 0, 0, 0]) };
        served
    })
}

fn new_stack() -> Option<usize> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping.
    let made = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), STACK, prot, flags) };
    made.ok().map(|stack| stack as usize)
}

fn on_stack(stack: usize, address: usize) -> usize {
    // SAFETY: the top of a stack that no other thread uses, a multiple of 16.
    unsafe { switch(stack + STACK, address, serve_inside) }
}

/// Calls `call` with `argument` on the stack that ends at `top`.
#[unsafe(naked)]
unsafe extern "C" fn switch(
    top: usize,
    argument: usize,
    call: extern "C" fn(usize) -> usize,
) -> usize {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rsi",
        "call rdx",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}
