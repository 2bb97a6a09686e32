//! The exported functions of this room: processes made with a stack of their own, libraries loaded;
//! what serves this process.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

use vfs::preloaded::Preloaded;

use crate::descriptors::announcement;
use crate::door;
use crate::entry::Inside;
use crate::entry::Real;
use crate::entry::pointers::Text;
use crate::interposed::interpose;
use crate::processes::fork::{Main, Start, clone_by, real_clone};
use crate::split::engine;
use crate::start;

/// What serves this process: 1 a volume or several, 2 the engine over a kernel file system, 3 both,
/// 0 nothing. `solera run` looks it up by its name: a program is served once.
#[unsafe(no_mangle)]
pub extern "C" fn solera_serves() -> c_int {
    let volumes = c_int::from(start::process().is_some());
    if engine::is_here() { volumes | 2 } else { volumes }
}

/// The variable that the text is, of a volume besides, goes to what this process executes next:
/// `solera run` in a program that is served names volumes so.
///
/// # Safety
///
/// The text ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_shows(variable: Text) {
    if let (Some(process), Ok(text)) = (start::process(), variable.bytes()) {
        process.show(text);
    }
}

/// What other libraries of this process are told, by a name that all versions have.
#[unsafe(no_mangle)]
pub extern "C" fn solera_preloaded() -> *const Preloaded {
    &raw const announcement::TABLE
}

// ---- new processes

interpose! {
    /// The last three are there only if the flags say so.
    fn [clone, __clone](
        main: Main, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent_id: *mut c_int, tls: *mut c_void, child_id: *mut c_int,
    ) -> c_int = |process, _| {
        let own = |flags: c_int, start: *mut Start| {
            real_clone(start, (stack, flags), (parent_id, tls, child_id))
        };
        clone_by(process, (main, argument), (stack, flags), own)
    }
}

// ---- libraries

unsafe extern "C" fn real_open() -> usize {
    static REAL: Real = Real::new("dlopen\0");
    before_load();
    REAL.address()
}

unsafe extern "C" fn real_open_in() -> usize {
    static REAL: Real = Real::new("dlmopen\0");
    before_load();
    REAL.address()
}

/// A library is about to be loaded, from a volume perhaps.
fn before_load() {
    if !Inside::already() {
        start::process();
        let _inside = Inside::new();
        door::arm_linker();
    }
}

/// Jumps to the function whose address `$real` gives, with arguments and return address as they
/// were: the C library looks at its caller (`$ORIGIN`, the name space of the caller).
macro_rules! jump {
    ($name:ident, $real:path) => {
        // SAFETY: the symbol replaces glibc's of the same name; the stack is left as it was found.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() -> *mut c_void {
            naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "call {real}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                real = sym $real,
            )
        }
    };
}

jump!(dlopen, real_open);

jump!(dlmopen, real_open_in);
