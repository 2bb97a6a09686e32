//! The window of a file: its bytes as memory, for the bytes that are there already.
//!
//! Growth, short reads and errors are the kernel's: a window serves an access only if it ends at or
//! before `known`, the start of a page that the file was seen to reach into, and if that page is
//! still there. A load of it tells, without a system call: the kernel gives no page behind the end
//! of a file. So a file that another process has cut is found before a byte is stored behind its
//! end, where it would be lost. The last page of a file is never served.
//!
//! A window holds no descriptor. POSIX locks, by which SQLite excludes other processes, end when
//! *any* descriptor of the file is closed in the process that holds them. The window is therefore
//! mapped by a thread that has a table of descriptors of its own: to the kernel it is another owner
//! of locks, and what it closes ends none of the process's.
//!
//! PERSIST: where memory is durable each store is streamed and fenced before it returns. A
//! connection may be synced by another thread than the one that wrote, and a fence is of its own
//! thread's streams.
//!
//! Locks: `WINDOWS`, for opening only.

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pmem::{Class, UserIn, UserOut};
use rustix::fs::{FileType, Mode, OFlags};

const PAGE_BYTES: u64 = 4096;
/// Address space for a file that may grow; a larger file has twice its size.
const SPACE_BYTES: u64 = 16 << 30;
const HUGE_PAGE_BYTES: u64 = 2 << 20;
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// `CLOSE_RANGE_UNSHARE`.
const UNSHARE: usize = 2;

/// Device and inode number.
pub type Inode = (u64, u64);

/// What is mapped of a file.
pub struct Window {
    memory: ::window::Window,
    /// Bytes that are mapped, or will be when the file has them.
    bytes: u64,
    inode: Inode,
    class: Class,
    /// A page that is there needs no call to be durable in its place: mapped with `MAP_SYNC`, or of
    /// tmpfs, whose memory may be taken for durable by name.
    is_direct: bool,
    /// Bytes before here may be served, if the page that begins here is there.
    known: AtomicU64,
}

/// The windows that files of this process have open.
static WINDOWS: Mutex<Vec<Weak<Window>>> = Mutex::new(Vec::new());

/// The inode of a regular file at a path, as the program sees it: by the C library, whose function
/// `solera run` answers for a volume. The kernel may have another file at that path.
pub fn inode_at(path: &CStr) -> Option<Inode> {
    // SAFETY: any bytes make a `stat`; a path and room for the answer.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::stat(path.as_ptr(), &raw mut stat) == 0).then_some(stat)
    };
    inode_of(stat?.st_mode, stat?.st_dev, stat?.st_ino)
}

fn inode_of(mode: u32, device: u64, number: u64) -> Option<Inode> {
    let is_file = FileType::from_raw_mode(mode) == FileType::RegularFile;
    is_file.then_some((device, number))
}

/// Whether files of the kernel have their bytes in the kernel: not where `solera run` serves them
/// by its second engine, which may keep what was written elsewhere for a while.
fn kernel_has_bytes() -> bool {
    type Serves = unsafe extern "C" fn() -> c_int;
    // SAFETY: a function of the preload library's, of this type; 2 is that engine.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"solera_serves".as_ptr());
        found.is_null() || std::mem::transmute::<*mut c_void, Serves>(found)() & 2 == 0
    }
}

impl Window {
    /// The window that another file of this process has on `inode`.
    pub fn shared(inode: Inode, writable: bool) -> Option<Arc<Self>> {
        let windows = WINDOWS.lock().unwrap_or_else(PoisonError::into_inner);
        Self::among(&windows, inode, writable)
    }

    /// The window of the file at `path`, which is `inode`. `None`: its memory cannot be mapped so,
    /// or it is another file by now.
    pub fn of(path: &CStr, inode: Inode, writable: bool) -> Option<Arc<Self>> {
        if !kernel_has_bytes() {
            return None;
        }
        let mut windows = WINDOWS.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = Self::among(&windows, inode, writable);
        if shared.is_some() {
            return shared;
        }
        windows.retain(|window| window.strong_count() > 0);
        let window = Arc::new(map_apart(path, inode, writable)?);
        windows.push(Arc::downgrade(&window));
        Some(window)
    }

    /// A mapping keeps its inode: while it is there its number is no other file's.
    fn among(windows: &[Weak<Self>], inode: Inode, writable: bool) -> Option<Arc<Self>> {
        let fits =
            |window: &Arc<Self>| window.inode == inode && (window.memory.writable() || !writable);
        windows.iter().filter_map(Weak::upgrade).find(fits)
    }

    /// The window of a file of tmpfs, of memory that is taken for `class`.
    #[cfg(test)]
    pub fn taken_for(path: &CStr, class: Class) -> Arc<Self> {
        let window = map_apart(path, inode_at(path).expect("it is there"), true);
        Arc::new(Self { class, ..window.expect("it is mapped") })
    }

    /// What a power cut leaves.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Whether what is stored in a page that is there needs no call to be durable.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The file was seen to have `size` bytes, or more.
    #[inline]
    pub fn reaches(&self, size: u64) {
        let start = self.last_page(size);
        if start > self.known.load(Ordering::Relaxed) {
            self.known.store(start, Ordering::Relaxed);
        }
    }

    /// The file was seen to have `size` bytes.
    #[inline]
    pub fn ends_at(&self, size: u64) {
        self.known.store(self.last_page(size), Ordering::Relaxed);
    }

    /// Where the last page of so many bytes begins, as far as it is mapped.
    #[inline]
    fn last_page(&self, size: u64) -> u64 {
        (size.saturating_sub(1) & !(PAGE_BYTES - 1)).min(self.bytes - PAGE_BYTES)
    }

    /// Whether all of a range is in the file, and is served.
    #[inline]
    fn has(&self, offset: u64, count: usize) -> bool {
        let known = self.known.load(Ordering::Relaxed);
        if offset.saturating_add(count as u64) > known {
            return false;
        }
        let is_there = self.memory.byte(known as usize).is_ok();
        if !is_there {
            // Cut. What is accessed next by the parent tells how far it reaches now.
            self.known.store(0, Ordering::Relaxed);
        }
        is_there
    }

    /// Copies bytes out. False: nothing can be said, ask the parent.
    #[inline]
    pub fn read(&self, offset: u64, to: &UserOut<'_>) -> bool {
        self.has(offset, to.len()) && self.memory.read_to(offset as usize, to, to.len()).is_ok()
    }

    /// Stores bytes. False: they may be there in part, ask the parent.
    #[inline]
    pub fn write(&self, offset: u64, from: &UserIn<'_>) -> bool {
        if !self.memory.writable() || !self.has(offset, from.len()) {
            return false;
        }
        if self.class == Class::Volatile {
            return self.memory.write(offset as usize, from).is_ok();
        }
        let stored = self.memory.stream(offset as usize, from).is_ok();
        // PERSIST: as the head of this file says. It also orders the stream before what tells other
        // processes of it.
        pmem::fence();
        stored
    }
}

/// Maps a file by a thread that shares no descriptors with the process.
fn map_apart(path: &CStr, inode: Inode, writable: bool) -> Option<Window> {
    // A signal of the program's is not for this thread.
    let blocked = Blocked::new();
    let found = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("solera-map".to_owned());
        thread.spawn_scoped(scope, || map(path, inode, writable)).ok()?.join().ok()?
    });
    drop(blocked);
    found
}

/// Maps a file, in a thread that ends afterwards.
fn map(path: &CStr, inode: Inode, writable: bool) -> Option<Window> {
    let arguments = [0, u32::MAX as usize, UNSHARE, 0, 0, 0];
    // SAFETY: plain numbers. From here on the thread has a table of its own, which is empty.
    unsafe { os::interrupt::system_call(libc::SYS_close_range, arguments) }.ok()?;
    let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
    let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    if inode_of(stat.st_mode, stat.st_dev, stat.st_ino)? != inode {
        return None;
    }
    // The very file that is open, whatever its path leads to by now.
    let link = PathBuf::from(format!("/proc/thread-self/fd/{}", file.as_raw_fd()));
    let class = pmem::class_of(&link).ok()?;
    if class == Class::Page {
        return None;
    }
    let size = stat.st_size as u64;
    let least = size.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES)?;
    let space = least.checked_mul(2)?.max(SPACE_BYTES);
    let wants_sync = class != Class::Volatile && writable;
    let mapped = |bytes: u64, sync| {
        ::window::Window::map(file.as_fd(), 0, bytes as usize, writable, sync)
            .map(|it| (it, bytes, sync))
    };
    // Less where address space is limited; without where a class was asked for by name.
    let (memory, bytes, is_synced) = mapped(space, wants_sync)
        .or_else(|_| mapped(space, false))
        .or_else(|_| mapped(least, wants_sync))
        .or_else(|_| mapped(least, false))
        .ok()?;
    let system = rustix::fs::fstatfs(&file).ok()?;
    let is_direct = is_synced || system.f_type == TMPFS_MAGIC;
    let window = Window { memory, bytes, inode, class, is_direct, known: AtomicU64::new(0) };
    window.ends_at(size);
    Some(window)
}

/// All signals blocked, until the drop.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn new() -> Self {
        // SAFETY: both sets are this function's; any bytes make one, and all of both are set.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            // A fault of the thread's own must reach its handler.
            libc::sigdelset(&raw mut all, libc::SIGBUS);
            libc::sigdelset(&raw mut all, libc::SIGSEGV);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set that was there before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// A file in memory, gone with this.
    struct Made(CString, File);

    impl Made {
        fn new(name: &str, bytes: usize) -> Self {
            let path = format!("/dev/shm/solera-window-{name}-{}", std::process::id());
            std::fs::write(&path, vec![7; bytes]).expect("a file");
            let file = File::options().read(true).write(true).open(&path).expect("that file");
            Self(CString::new(path).expect("a path"), file)
        }

        fn window(&self) -> Arc<Window> {
            let inode = inode_at(&self.0).expect("it is there");
            Window::of(&self.0, inode, true).expect("a window in memory")
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(self.0.to_str().expect("a path"));
        }
    }

    fn reads(window: &Window, offset: u64, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        window.read(offset, &UserOut::new(&mut bytes)).then_some(bytes)
    }

    fn writes(window: &Window, offset: u64, bytes: &[u8]) -> bool {
        window.write(offset, &UserIn::new(bytes))
    }

    #[test]
    fn bytes_before_the_last_page_are_the_files() {
        let made = Made::new("bytes", 3 * 4096 + 100);
        let window = made.window();
        assert!(writes(&window, 4095, b"three"));
        let mut bytes = [0; 5];
        made.1.read_exact_at(&mut bytes, 4095).expect("read");
        assert_eq!(&bytes, b"three");
        made.1.write_all_at(b"four", 2 * 4096).expect("write");
        assert_eq!(reads(&window, 2 * 4096, 4).as_deref(), Some(&b"four"[..]));
        assert_eq!(reads(&window, 3 * 4096 - 1, 1), Some(vec![7]));
        assert_eq!(reads(&window, 3 * 4096 - 1, 2), None, "the last page is the parent's");
        assert!(!writes(&window, 3 * 4096 - 1, b"ab"));
    }

    /// A log of 98,500 bytes has a page of which the file has a part. A store behind its end would
    /// be taken by that page, and lost.
    #[test]
    fn nothing_is_stored_behind_the_end_of_a_file_that_was_cut() {
        let made = Made::new("cut", 5 * 4096);
        let window = made.window();
        made.1.set_len(2 * 4096 + 10).expect("cut");
        assert!(!writes(&window, 2 * 4096 + 100, b"lost"));
        assert_eq!(reads(&window, 2 * 4096 + 100, 4), None);
        window.ends_at(2 * 4096 + 10);
        assert!(!writes(&window, 2 * 4096 + 100, b"lost"));
        assert!(writes(&window, 2 * 4096 - 4, b"kept"));
        made.1.set_len(0).expect("cut");
        assert!(!writes(&window, 0, b"lost"));
        made.1.set_len(3 * 4096).expect("grown");
        let mut bytes = [1; 3 * 4096];
        made.1.read_exact_at(&mut bytes, 0).expect("read");
        assert!(bytes.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_the_parent_has_reached_is_served() {
        let made = Made::new("grown", 10);
        let window = made.window();
        assert_eq!(reads(&window, 0, 4), None);
        made.1.write_all_at(&[9; 4096], 4096).expect("write");
        assert_eq!(reads(&window, 0, 4), None, "nobody has said so");
        window.reaches(8192);
        assert_eq!(reads(&window, 0, 4), Some(vec![7; 4]));
        // A wrong word does no harm.
        window.reaches(1 << 40);
        assert_eq!(reads(&window, 0, 4), None);
    }

    #[test]
    fn the_files_of_an_inode_share_a_window_and_a_new_inode_has_another() {
        let made = Made::new("shared", 8192);
        let window = made.window();
        assert!(Arc::ptr_eq(&window, &made.window()));
        let other = Made::new("other", 8192);
        let inode = inode_at(&made.0).expect("it is there");
        std::fs::rename(other.0.to_str().expect("path"), made.0.to_str().expect("path"))
            .expect("rename");
        drop(window);
        assert!(Window::of(&made.0, inode, true).is_none(), "that is another file by now");
    }

    /// A lock of a process ends when it closes any descriptor of the file.
    #[test]
    fn no_lock_of_the_process_ends() {
        let made = Made::new("locks", 8192);
        let lock = |kind| libc::flock {
            l_type: kind as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: 0,
            l_len: 1,
            l_pid: 0,
        };
        let own = lock(libc::F_WRLCK);
        // SAFETY: a descriptor of this test's, and a lock.
        let done = unsafe { libc::fcntl(made.1.as_raw_fd(), libc::F_SETLK, &raw const own) };
        assert_eq!(done, 0);
        drop(made.window());
        let mut asked = lock(libc::F_WRLCK);
        // Asked for an open file, the kernel tells of the process's own locks.
        // SAFETY: as above.
        let done = unsafe { libc::fcntl(made.1.as_raw_fd(), libc::F_OFD_GETLK, &raw mut asked) };
        assert_eq!((done, i32::from(asked.l_type)), (0, libc::F_WRLCK));
    }
}
