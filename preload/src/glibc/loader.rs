//! Libraries and message catalogues on the volume: `dlopen`, `dlmopen`, `catopen`. The dynamic
//! linker and the C library open and map such files inside themselves, so they get a copy in
//! memory, named through `/proc/self/fd`.
//!
//! The copy of a library stays open under its number, hidden from the program, for as long as the
//! process lives: the linker tells libraries apart by name, so the same file gets the same name
//! each time and no other file ever does.
//!
//! `dlopen` looks at its caller (`$ORIGIN`, the name space of the caller), so what is not ours
//! jumps on to glibc's with the program's own return address.
//!
//! Locks: `COPIES` only under the structure lock, which `fork` takes: a child never finds it held
//! by a thread that it does not have. Both are held over the copying, not over the loading.

use std::arch::naked_asm;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use vfs::cred::READ;
use vfs::{Attr, Kind, Node};

use crate::entry::fdtable;
use crate::entry::pointers::Text;
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::{Inside, Real, Served, Stop, outside};
use crate::interposed::interpose;
use crate::paths::{self, Target};
use crate::processes::exec::copy_to_memory;

/// A library that has been copied, as it was then, and the number of its copy.
struct Copied {
    node: Node,
    size: u64,
    mtime: i64,
    number: c_int,
}

static COPIES: Mutex<Vec<Copied>> = Mutex::new(Vec::new());

/// Numbers of copies start here: out of the program's way.
const NUMBERS_FROM: c_int = 1000;

/// The regular file of the volume at `path`, if the process may read it.
fn readable(process: &Process, path: &[u8]) -> Option<Attr> {
    let target = paths::resolve(process, libc::AT_FDCWD, path, true).ok()?;
    if matches!(target, Target::Kernel | Target::Elsewhere(_)) {
        return None;
    }
    let attr = paths::existing(process, &target).ok()?;
    let allowed = process.cred().check(&attr, READ).is_ok();
    (attr.kind == Kind::File && allowed).then_some(attr)
}

/// The number of the copy of a library; copies it if it is new or has changed.
fn copy_of(process: &Process, attr: &Attr, path: &[u8]) -> Option<c_int> {
    let _structure = process.lock();
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    let same =
        |copy: &&Copied| (copy.node, copy.size, copy.mtime) == (attr.node, attr.size, attr.mtime);
    if let Some(copy) = copies.iter().find(same) {
        return Some(copy.number);
    }
    let memory = copy_to_memory(process, attr, path).ok()?;
    let mut high: OwnedFd = rustix::io::fcntl_dupfd_cloexec(&memory, NUMBERS_FROM).ok()?;
    // A program may have closed an older copy (`closefrom`), whose name is still the linker's.
    while copies.iter().any(|copy| copy.number == high.as_raw_fd()) {
        high = rustix::io::fcntl_dupfd_cloexec(&memory, high.as_raw_fd() + 1).ok()?;
    }
    let number = high.into_raw_fd();
    fdtable::hide(number);
    copies.push(Copied { node: attr.node, size: attr.size, mtime: attr.mtime, number });
    Some(number)
}

fn name(number: c_int) -> Option<CString> {
    CString::new(format!("/proc/self/fd/{number}")).ok()
}

/// The name to load instead of `path`; `None`: the path is not the volume's, or nothing there can
/// be loaded, which glibc says best.
fn instead(path: *const c_char) -> Option<CString> {
    if Inside::already() {
        return None;
    }
    let process = crate::start::process()?;
    let _inside = Inside::new();
    let path = Text(path).bytes().ok()?;
    // Names without a slash are searched for by the linker, in places of its own.
    if !path.contains(&b'/') {
        return None;
    }
    let attr = readable(process, path)?;
    let number = copy_of(process, &attr, path)?;
    report::fell_back("dlopen", "library-copied-to-memory");
    name(number)
}

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type OpenIn = unsafe extern "C" fn(i64, *const c_char, c_int) -> *mut c_void;

unsafe extern "C" fn open_copy(path: *const c_char, flags: c_int) -> *mut c_void {
    static REAL: Real = Real::new("dlopen\0");
    let Some(copy) = instead(path) else { return std::ptr::null_mut() };
    // SAFETY: glibc's `dlopen`; the constructors of the library are the program's own code.
    let handle = outside(|| unsafe {
        std::mem::transmute::<usize, Open>(REAL.address())(copy.as_ptr(), flags)
    });
    if handle.is_null() { FAILED as *mut c_void } else { handle }
}

unsafe extern "C" fn open_copy_in(space: i64, path: *const c_char, flags: c_int) -> *mut c_void {
    static REAL: Real = Real::new("dlmopen\0");
    let Some(copy) = instead(path) else { return std::ptr::null_mut() };
    // SAFETY: as above.
    let handle = outside(|| unsafe {
        std::mem::transmute::<usize, OpenIn>(REAL.address())(space, copy.as_ptr(), flags)
    });
    if handle.is_null() { FAILED as *mut c_void } else { handle }
}

/// What the two functions above give when the library is ours and could not be loaded: no handle.
const FAILED: usize = 1;

unsafe extern "C" fn real_open() -> usize {
    static REAL: Real = Real::new("dlopen\0");
    REAL.address()
}

unsafe extern "C" fn real_open_in() -> usize {
    static REAL: Real = Real::new("dlmopen\0");
    REAL.address()
}

/// Calls `$serve` with the same arguments; if that says that the path is not ours, jumps to the
/// function whose address `$real` gives, with arguments and return address as they were.
macro_rules! or_jump {
    ($name:ident, $serve:path, $real:path) => {
        // SAFETY: the symbol replaces glibc's of the same name; the stack is left as it was found.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() -> *mut c_void {
            naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "call {serve}",
                "test rax, rax",
                "jnz 2f",
                "call {real}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                "2:",
                "add rsp, 24",
                // The mark of failure becomes NULL.
                "xor ecx, ecx",
                "cmp rax, {failed}",
                "cmove rax, rcx",
                "ret",
                serve = sym $serve,
                real = sym $real,
                failed = const FAILED,
            )
        }
    };
}

or_jump!(dlopen, open_copy, real_open);
or_jump!(dlmopen, open_copy_in, real_open_in);

/// `nl_catd`'s failure is -1.
fn open_catalogue(
    process: &Process,
    path: &[u8],
    kernel: impl Fn(*const c_char) -> isize,
) -> Served<isize> {
    if !path.contains(&b'/') {
        return Err(Stop::Kernel);
    }
    let Some(attr) = readable(process, path) else { return Err(Stop::Kernel) };
    // It is read or mapped whole: the copy need not stay.
    let memory = copy_to_memory(process, &attr, path)?;
    let copy = name(memory.as_raw_fd()).ok_or(Stop::Kernel)?;
    Ok(kernel(copy.as_ptr()))
}

interpose! {
    fn [catopen](path: Text, flags: c_int) -> isize = |process, kernel| {
        open_catalogue(process, path.bytes()?, |path| outside(|| kernel(Text(path), flags)))
    }
}
