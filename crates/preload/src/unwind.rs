//! The unwinder of GCC, loaded when the first exception passes through this library, not with it.
//!
//! `libgcc_s.so.1` asks the CPU twelve times what it is when it is loaded, a trap each in a virtual
//! machine; and hardly any program throws through this library. glibc loads it late, too, for
//! threads that are cancelled. So the functions of it that Rust's runtime calls stand here, hidden
//! from all others, and go on to the real ones: frames stay as they are, for each is one jump.
//!
//! No locks but the dynamic linker's.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::entry::Inside;
use crate::processes::lifecycle;

/// Their names, in the order of [`TABLE`].
const NAMES: [&std::ffi::CStr; 12] = [
    c"_Unwind_RaiseException",
    c"_Unwind_Resume",
    c"_Unwind_DeleteException",
    c"_Unwind_Backtrace",
    c"_Unwind_GetIP",
    c"_Unwind_GetIPInfo",
    c"_Unwind_GetLanguageSpecificData",
    c"_Unwind_GetRegionStart",
    c"_Unwind_GetTextRelBase",
    c"_Unwind_GetDataRelBase",
    c"_Unwind_SetGR",
    c"_Unwind_SetIP",
];

/// Their addresses; 0: not asked for yet.
static TABLE: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// Fills the table, and gives an entry of it.
#[cold]
extern "C" fn load(index: usize) -> usize {
    let _inside = Inside::new();
    // SAFETY: a name; the library stays.
    let library = unsafe { libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW) };
    for (place, name) in TABLE.iter().zip(NAMES) {
        // SAFETY: a name, and a library that was just loaded, or the program's own scope.
        place.store(unsafe { libc::dlsym(library, name.as_ptr()) } as usize, Ordering::Relaxed);
    }
    let found = TABLE[index].load(Ordering::Relaxed);
    if library.is_null() || found == 0 {
        // As glibc says it where it needs the library.
        let text = b"libgcc_s.so.1 must be installed for exceptions to work\n";
        // SAFETY: a whole text. Nothing is done about a message that cannot be written.
        let _ = unsafe { libc::write(2 as c_int, text.as_ptr().cast::<c_void>(), text.len()) };
        lifecycle::exit_now(lifecycle::EXIT_WITHOUT_VOLUME);
    }
    found
}

macro_rules! jumps {
    ($($index:literal $name:literal)*) => {
        global_asm!(
            ".pushsection .text.solera_unwind,\"ax\",@progbits",
            // All registers of arguments are kept over the load; the stack is aligned.
            "2:",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push r11",
            "mov rdi, r11",
            "call {load}",
            "pop r11",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            $(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                concat!("mov rax, qword ptr [rip + {table} + 8 * ", $index, "]"),
                concat!("mov r11d, ", $index),
                "test rax, rax",
                "jz 2b",
                "jmp rax",
                concat!(".size ", $name, ", . - ", $name),
            )*
            ".popsection",
            load = sym load,
            table = sym TABLE,
        );
    };
}

jumps! {
    0 "_Unwind_RaiseException"
    1 "_Unwind_Resume"
    2 "_Unwind_DeleteException"
    3 "_Unwind_Backtrace"
    4 "_Unwind_GetIP"
    5 "_Unwind_GetIPInfo"
    6 "_Unwind_GetLanguageSpecificData"
    7 "_Unwind_GetRegionStart"
    8 "_Unwind_GetTextRelBase"
    9 "_Unwind_GetDataRelBase"
    10 "_Unwind_SetGR"
    11 "_Unwind_SetIP"
}
