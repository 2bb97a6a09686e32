//! The mapped file, this process's place in it, and each thread's area.
//!
//! The process's number lies in a page that the kernel empties in children: so a child notices at
//! its first call that its thread's area is its parent's, however it was made. A child that shares
//! the memory (`vfork`) counts for its parent.
//!
//! The file is reached by the command's own path to it, which other users may not follow. Where
//! root becomes one of those a descriptor stays open for what is executed then.
//!
//! A thread that ends gives its area back, by a key of glibc's: one below the first 32, which need
//! no memory. What a dead process has left is taken when there is no other area.

use std::arch::{asm, global_asm};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use record::{AREAS, Area, LINK, Map, Unmapped};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::process::{Pid, geteuid, getpid, test_kill_process};
use rustix::thread::gettid;
use vfs::lock_waits::Waits;

use crate::descriptors;
use crate::next_symbol::keeping_errno;
use crate::paths;

/// The variable that names the file.
const FILE: &CStr = c"SOLERA_PROFILE";
/// The descriptor by which programs of other users have it, which may not open it by that name.
const HELD: c_int = 1000;
const PAGE_BYTES: usize = 4096;
/// Keys of glibc's with a place in each thread's own memory.
const KEYS_AT_HAND: u32 = 32;

/// What a child finds empty.
#[repr(C)]
struct Page {
    /// 0: not asked for yet.
    process: AtomicU32,
    /// The first area of this process.
    first: AtomicPtr<Area>,
}

/// A thread's record; all zero in a new thread.
#[repr(C, align(64))]
pub struct ThreadRecord {
    /// For which process the area was taken.
    process: Cell<u32>,
    thread: Cell<u32>,
    area: Cell<Option<&'static Area>>,
    /// What the preload library says of this thread's waits for locks; how many and how long they
    /// were when it was asked last.
    waits: Cell<Option<&'static Waits>>,
    waited: Cell<[u64; 2]>,
    /// What was made inside the call under way took so long.
    pub inner: Cell<u64>,
}

// In the thread's static block, as the preload library's (`crates/preload/src/entry/thread.rs`):
// found in two loads, without `__tls_get_addr`.
global_asm!(
    ".pushsection .tbss.solera_profiled,\"awT\",@nobits",
    ".balign 64",
    ".globl solera_profiled",
    ".hidden solera_profiled",
    ".type solera_profiled, @object",
    ".size solera_profiled, {bytes}",
    "solera_profiled:",
    ".zero {bytes}",
    ".popsection",
    bytes = const size_of::<ThreadRecord>(),
);

static MAP: OnceLock<Map> = OnceLock::new();
static PAGE: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());
static TRACES: AtomicBool = AtomicBool::new(false);
static STARTED: AtomicBool = AtomicBool::new(false);
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Run by the dynamic linker.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    if !STARTED.swap(true, Ordering::Relaxed) {
        keeping_errno(start);
    }
}

/// The value of a variable, as it is now.
pub fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a name; the value is looked at before the program can change it.
    unsafe {
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// Takes part, if the environment says so. What fails leaves the program without a profile.
fn start() {
    let Some(path) = variable(FILE).filter(|_| !is_bypassed()) else { return };
    let map = match open(path) {
        Ok(file) => Map::new(file),
        Err(_) => held().ok_or(Unmapped).and_then(Map::new),
    };
    let Ok(map) = map else { return };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new page, which stays.
    let page = unsafe {
        let Ok(page) = mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE)
        else {
            return;
        };
        if madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork).is_err() {
            return;
        }
        page
    };
    let mut key = 0;
    // SAFETY: `ended` takes what is set for the key.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0 && key < KEYS_AT_HAND {
        KEY.store(key, Ordering::Relaxed);
    }
    paths::learn();
    TRACES.store(map.ring() > 0, Ordering::Relaxed);
    if MAP.set(map).is_ok() {
        let page: *mut Page = page.cast();
        // SAFETY: the page of this process, all zero.
        unsafe { (*page).process.store(resume(), Ordering::Relaxed) };
        PAGE.store(page, Ordering::Release);
    }
}

fn open(path: &CStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Whether this program is left alone: it is named in `SOLERA_BYPASS`.
fn is_bypassed() -> bool {
    unsafe extern "C" {
        static program_invocation_name: *const c_char;
    }
    let Some(names) = variable(c"SOLERA_BYPASS") else { return false };
    let mut room = [const { MaybeUninit::uninit() }; paths::LONGEST];
    let executable = rustix::fs::readlinkat_raw(CWD, c"/proc/self/exe", &mut room);
    // SAFETY: glibc's, which is a text in each program.
    let called = unsafe { CStr::from_ptr(program_invocation_name) };
    executable.is_ok_and(|(path, _)| {
        vfs::variable::names_program(names.to_bytes(), path, called.to_bytes())
    })
}

/// The file by [`HELD`], if it is that.
fn held() -> Option<BorrowedFd<'static>> {
    let mut room = [const { MaybeUninit::uninit() }; paths::LONGEST];
    let link = rustix::fs::readlinkat_raw(CWD, c"/proc/self/fd/1000", &mut room);
    // SAFETY: it is open, and nobody has a reason to close it while the program starts.
    link.is_ok_and(|(path, _)| path == LINK).then(|| unsafe { BorrowedFd::borrow_raw(HELD) })
}

/// The process is about to become one of these users: what it executes then has the file by
/// [`HELD`]. A process of another user than root cannot become any that matters.
pub fn hand_on(users: &[c_uint]) {
    let stays = |&user: &c_uint| user == 0 || user == c_uint::MAX;
    if map().is_none() || users.iter().all(stays) || !geteuid().is_root() || held().is_some() {
        return;
    }
    let file = variable(FILE).and_then(|path| open(path).ok());
    let held = file.and_then(|file| fcntl_dupfd_cloexec(file, HELD).ok());
    if let Some(held) = held.filter(|held| held.as_raw_fd() == HELD)
        && fcntl_setfd(&held, FdFlags::empty()).is_ok()
    {
        // It stays open.
        let _ = held.into_raw_fd();
    }
}

const fn owner(process: u32, thread: u32) -> u64 {
    (process as u64) << 32 | thread as u64
}

fn process_of(owner: u64) -> u32 {
    (owner >> 32) as u32
}

/// Behind an exec: the areas of the image before are free, its descriptors known. The number of
/// this process, if it has taken part before; else 0.
fn resume() -> u32 {
    let Some(map) = MAP.get() else { return 0 };
    let mut before = 0;
    let own = getpid().as_raw_pid().cast_unsigned();
    for (number, word) in map.header().owners.iter().enumerate() {
        if process_of(word.load(Ordering::Relaxed)) != own {
            continue;
        }
        if let Some(area) = map.area(number)
            && area.first.swap(0, Ordering::Relaxed) != 0
        {
            descriptors::remember(&area.descriptors);
        }
        word.store(0, Ordering::Release);
        before = own;
    }
    before
}

/// A thread has ended: what is set for the key is its area.
extern "C" fn ended(area: *mut c_void) {
    // SAFETY: the thread is still there.
    let here = unsafe { here() };
    here.area.set(None);
    here.process.set(0);
    let Some(map) = MAP.get() else { return };
    // The first area of a process stays: it has the descriptors.
    if first() == area.cast() {
        return;
    }
    let mapped = map.area(0).map_or(0, |first| std::ptr::from_ref(first) as usize);
    let stride = map.area(1).map_or(usize::MAX, |next| std::ptr::from_ref(next) as usize - mapped);
    let number = (area as usize).wrapping_sub(mapped) / stride;
    if let Some(word) = map.header().owners.get(number) {
        word.store(0, Ordering::Release);
    }
}

/// The first area of this process.
fn first() -> *mut Area {
    // SAFETY: the page stays.
    let page = unsafe { PAGE.load(Ordering::Relaxed).as_ref() };
    page.map_or(std::ptr::null_mut(), |page| page.first.load(Ordering::Relaxed))
}

/// The descriptors of this process as an exec finds them again.
pub fn kept() -> Option<&'static [AtomicU32]> {
    // SAFETY: areas stay mapped.
    unsafe { first().as_ref() }.map(|area| area.descriptors.as_slice())
}

/// The mapped file.
pub fn map() -> Option<&'static Map> {
    MAP.get()
}

/// Whether calls are kept one by one.
#[inline]
pub fn traces() -> bool {
    TRACES.load(Ordering::Relaxed)
}

/// The calling thread's record.
///
/// # Safety
///
/// It is used by this thread only, and no longer than it lives.
#[inline]
pub unsafe fn here() -> &'static ThreadRecord {
    let at: *const ThreadRecord;
    // SAFETY: the thread pointer, which points at itself, and the distance that the dynamic linker
    // has put into the table; the caller's promise.
    unsafe {
        asm!(
            "mov {at}, qword ptr fs:[0]",
            "add {at}, qword ptr [rip + solera_profiled@GOTTPOFF]",
            at = out(reg) at,
            options(nostack, readonly),
        );
        &*at
    }
}

impl ThreadRecord {
    /// The thread's area; `None`: there is no profile, or no area.
    #[inline]
    pub fn area(&self) -> Option<&'static Area> {
        // SAFETY: the page stays.
        let page = unsafe { PAGE.load(Ordering::Acquire).as_ref() }?;
        let process = page.process.load(Ordering::Relaxed);
        if process != 0 && process == self.process.get() {
            return self.area.get();
        }
        self.take(page)
    }

    /// Whose locks were waited for since this was asked last, how often and for how many ticks.
    #[inline]
    pub fn waited(&self) -> Option<(u32, [u64; 2])> {
        let waits = self.waits.get()?;
        let count = waits.count.load(Ordering::Relaxed);
        let [before, ticks_before] = self.waited.get();
        if count == before {
            return None;
        }
        let ticks = waits.ticks.load(Ordering::Relaxed);
        self.waited.set([count, ticks]);
        let whose = waits.whose.load(Ordering::Relaxed);
        Some((whose, [count.wrapping_sub(before), ticks.wrapping_sub(ticks_before)]))
    }

    /// Process and thread.
    pub fn who(&self) -> [u32; 2] {
        [self.process.get(), self.thread.get()]
    }

    /// The first call of a thread, or of a child.
    #[cold]
    fn take(&self, page: &Page) -> Option<&'static Area> {
        let map = MAP.get()?;
        let process = getpid().as_raw_pid().cast_unsigned();
        let thread = gettid().as_raw_pid().cast_unsigned();
        if page.process.swap(process, Ordering::Relaxed) == 0 {
            paths::forget_directory();
            map.header().processes.fetch_add(1, Ordering::Relaxed);
        }
        map.header().threads.fetch_add(1, Ordering::Relaxed);
        self.process.set(process);
        self.thread.set(thread);
        self.waits.set(descriptors::waits());
        let area = claim(map, owner(process, thread));
        self.area.set(area);
        let Some(area) = area else {
            map.header().without.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let place = std::ptr::from_ref(area).cast_mut();
        let null = std::ptr::null_mut();
        let order = Ordering::Relaxed;
        let is_first = page.first.compare_exchange(null, place, order, order).is_ok();
        area.first.store(u32::from(is_first), Ordering::Relaxed);
        if is_first {
            descriptors::keep(&area.descriptors);
        }
        area.process.store(process, Ordering::Relaxed);
        name(area);
        let key = KEY.load(Ordering::Relaxed);
        if key < KEYS_AT_HAND {
            // SAFETY: a key of ours, whose place is in the thread's own memory.
            unsafe { libc::pthread_setspecific(key, place.cast()) };
        }
        Some(area)
    }
}

/// Takes an area: one that nobody has, or else that of a dead process.
fn claim(map: &'static Map, own: u64) -> Option<&'static Area> {
    let owners = &map.header().owners[..map.areas().min(AREAS)];
    let take = |word: &AtomicU64, now: u64| {
        word.compare_exchange(now, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    let is_dead = |now: u64| {
        let process = Pid::from_raw(process_of(now).cast_signed());
        process.is_some_and(|id| test_kill_process(id) == Err(rustix::io::Errno::SRCH))
    };
    let free = owners.iter().position(|word| word.load(Ordering::Relaxed) == 0 && take(word, 0));
    let number = free.or_else(|| {
        owners.iter().position(|word| {
            let now = word.load(Ordering::Relaxed);
            is_dead(now) && take(word, now)
        })
    })?;
    map.area(number)
}

/// The program's name, for the trace.
fn name(area: &Area) {
    let mut name = [0_u8; 16];
    // SAFETY: there is room for the 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    for (to, byte) in area.name.iter().zip(name) {
        to.store(byte, Ordering::Relaxed);
    }
}

const _: () = assert!(size_of::<c_int>() == 4, "numbers of processes");
