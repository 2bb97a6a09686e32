//! The unwinder of GCC, loaded when the first exception passes through this library, not with it.
//!
//! `libgcc_s.so.1` asks the CPU twelve times what it is when it is loaded, a trap each in a virtual
//! machine; and hardly any program throws through this library. glibc loads it late, too, for
//! threads that are cancelled. So the functions of it that Rust's runtime calls stand here, hidden
//! from all others, and go on to the real ones: frames stay as they are, for each is one jump.
//!
//! One of them is asked what a frame has to clean up, and answers itself where it must
//! ([`of_frame`]). A signal's handler runs on any instruction of a call that is not inside, and may
//! end its thread by a cancellation, as in the C library's own code. Rust's tables know the calls
//! that may unwind, and Rust's runtime refuses to leave a frame anywhere else: the C library would
//! end the process then.
//!
//! No locks but the dynamic linker's.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::entry::Inside;
use crate::entry::thread::{OwnCode, here};
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
            ".globl _Unwind_GetLanguageSpecificData",
            ".hidden _Unwind_GetLanguageSpecificData",
            ".type _Unwind_GetLanguageSpecificData, @function",
            "_Unwind_GetLanguageSpecificData:",
            "jmp {of_frame}",
            ".size _Unwind_GetLanguageSpecificData, . - _Unwind_GetLanguageSpecificData",
            ".popsection",
            load = sym load,
            table = sym TABLE,
            of_frame = sym of_frame,
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
    7 "_Unwind_GetRegionStart"
    8 "_Unwind_GetTextRelBase"
    9 "_Unwind_GetDataRelBase"
    10 "_Unwind_SetGR"
    11 "_Unwind_SetIP"
}

/// The real function of this place in the table.
fn real(index: usize) -> usize {
    let found = TABLE[index].load(Ordering::Relaxed);
    if found == 0 { load(index) } else { found }
}

/// What is to be done in a frame that is left, as Rust's runtime reads it: nothing (NULL) where the
/// thread was outside and a signal has interrupted it, or no call is that may unwind. (What covers
/// the calls of a function may cover what lies between them, too.) What the frame would have
/// undone, the program must not see: from then on its own code runs.
extern "C" fn of_frame(context: *mut c_void) -> *const u8 {
    type Gives<T> = extern "C" fn(*mut c_void) -> T;
    type GivesAt = extern "C" fn(*mut c_void, *mut c_int) -> usize;
    // SAFETY: the unwinder's functions of these names, by their own addresses.
    let (data, start, at) = unsafe {
        (
            std::mem::transmute::<usize, Gives<*const u8>>(real(6)),
            std::mem::transmute::<usize, Gives<usize>>(real(7)),
            std::mem::transmute::<usize, GivesAt>(real(5)),
        )
    };
    let data = data(context);
    if data.is_null() || here().is_inside() {
        return data;
    }
    let mut is_interrupted: c_int = 0;
    let at = at(context, &raw mut is_interrupted);
    // Of a call its last byte counts.
    let offset = at.wrapping_sub(1).wrapping_sub(start(context));
    // SAFETY: the table of this frame's function.
    if is_interrupted == 0 && unsafe { Table(data).covers(offset) } != Some(false) {
        return data;
    }
    OwnCode::is_left();
    std::ptr::null()
}

/// A table of the functions' places that may unwind, as compilers write it.
struct Table(*const u8);

impl Table {
    const OMITTED: u8 = 0xff;
    const ULEB128: u8 = 1;
    const UDATA4: u8 = 3;

    /// Whether an entry covers what lies so far behind the function's beginning; `None`: the table
    /// is written in another way.
    ///
    /// # Safety
    ///
    /// It is such a table, at its beginning.
    unsafe fn covers(mut self, offset: usize) -> Option<bool> {
        // SAFETY: as the caller says: the header, then as many entries as it says.
        unsafe {
            if self.byte() != Self::OMITTED {
                return None;
            }
            if self.byte() != Self::OMITTED {
                self.number();
            }
            let encoding = self.byte();
            let length = self.number();
            let end = self.0.wrapping_add(length);
            while self.0 < end {
                let [from, count, _lands] =
                    [self.encoded(encoding)?, self.encoded(encoding)?, self.encoded(encoding)?];
                let _action = self.number();
                if (from..from + count).contains(&offset) {
                    return Some(true);
                }
            }
        }
        Some(false)
    }

    /// # Safety
    ///
    /// There is another byte, as in the functions below.
    unsafe fn byte(&mut self) -> u8 {
        // SAFETY: as the caller says.
        let byte = unsafe { self.0.read() };
        self.0 = self.0.wrapping_add(1);
        byte
    }

    /// # Safety
    ///
    /// As above.
    unsafe fn number(&mut self) -> usize {
        let mut number = 0;
        for shift in (0..usize::BITS).step_by(7) {
            // SAFETY: as the caller says.
            let byte = unsafe { self.byte() };
            number |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }

    /// # Safety
    ///
    /// As above.
    unsafe fn encoded(&mut self, encoding: u8) -> Option<usize> {
        // SAFETY: as the caller says.
        unsafe {
            match encoding {
                Self::ULEB128 => Some(self.number()),
                Self::UDATA4 => {
                    let bytes = std::array::from_fn(|_| self.byte());
                    Some(u32::from_le_bytes(bytes) as usize)
                }
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_table_tells_which_places_it_covers() {
        // No base of landing pads, no types; ULEB128; 9 bytes: two entries.
        let numbers = [0xff, 0xff, 1, 9, 0x10, 0x05, 0x40, 0, 0x80, 0x01, 0x08, 0, 0];
        // The same with types, in four bytes.
        let mut words = vec![0xff, 0x9b, 0x11, 3, 26];
        for [from, count, lands] in [[0x10_u32, 5, 0x40], [0x80, 8, 0]] {
            words.extend([from, count, lands].iter().flat_map(|word| word.to_le_bytes()));
            words.push(0);
        }
        for table in [&numbers[..], &words] {
            for (offset, covered) in
                [(0, false), (0x10, true), (0x14, true), (0x15, false), (0x87, true), (0x88, false)]
            {
                // SAFETY: a whole table.
                assert_eq!(unsafe { Table(table.as_ptr()).covers(offset) }, Some(covered));
            }
        }
        // SAFETY: as above.
        assert_eq!(unsafe { Table([0xff, 0xff, 0x0b, 1, 0].as_ptr()).covers(0) }, None);
    }
}
