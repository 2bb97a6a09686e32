//! Variables, arguments and the auxiliary vector, as the kernel has put them on the first thread's
//! stack: read there, they need neither the C library nor that it has begun.
//!
//! What concerns this library (`SOLERA_*`) is copied once, at the start: a program may change its
//! environment, or write other text over it, before the first call that needs them. All other
//! variables are those of the moment.

use std::ffi::{CStr, c_char, c_int, c_ulong};
use std::sync::atomic::{AtomicUsize, Ordering};

use once_cell::race::OnceBox;

use crate::runtime::{hidden, objects};

unsafe extern "C" {
    /// Where the kernel has put the number of arguments.
    static __libc_stack_end: *const usize;
    /// The variables of the moment; NULL before the C library has begun.
    static mut environ: *mut *mut c_char;
}

/// The names of what is this library's.
const OWN: &[u8] = b"SOLERA_";

/// `NAME=VALUE`, each with its NUL, of what is this library's.
static SETTINGS: OnceBox<Vec<&'static CStr>> = OnceBox::new();

/// Where the number of arguments is; NULL: it is not known yet.
///
/// A program that is not position-independent may have the variable as a copy of its own, which the
/// dynamic linker fills when it relocates the program: last. Until then the linker's own says it.
fn stack_end() -> *const usize {
    // SAFETY: a variable that the dynamic linker has set before any of our code runs, here or in
    // the linker itself, whose symbol it is.
    unsafe {
        if !__libc_stack_end.is_null() {
            return __libc_stack_end;
        }
        let own = objects::linker().and_then(|linker| linker.function(b"__libc_stack_end"));
        own.map_or(std::ptr::null(), |own| *(own as *const *const usize))
    }
}

/// Whether the environment can be read yet.
pub fn is_readable() -> bool {
    !stack_end().is_null()
}

/// The list of pointers to the arguments, without its end.
fn arguments() -> &'static [*const c_char] {
    let end = stack_end();
    if end.is_null() {
        return &[];
    }
    // SAFETY: the kernel's layout: a number and as many pointers.
    unsafe { std::slice::from_raw_parts(end.add(1).cast(), *end) }
}

/// What the program was called as.
pub fn called_as() -> &'static [u8] {
    // SAFETY: texts that end with a NUL, or what the program has written over them, which does.
    arguments().first().map_or(b"", |first| unsafe { CStr::from_ptr(*first) }.to_bytes())
}

/// Where the list of variables that the kernel made begins; NULL: it is not known yet.
fn first_variables() -> *mut *mut c_char {
    if !is_readable() {
        return std::ptr::null_mut();
    }
    arguments().as_ptr_range().end.wrapping_add(1).cast_mut().cast()
}

/// The pointers from here to the NULL at the end.
///
/// # Safety
///
/// A list that ends with NULL, or NULL.
unsafe fn list(mut at: *mut *mut c_char) -> impl Iterator<Item = *mut c_char> {
    std::iter::from_fn(move || {
        // SAFETY: the end was not met yet.
        let next = unsafe { at.as_ref() }.copied().filter(|next| !next.is_null())?;
        at = at.wrapping_add(1);
        Some(next)
    })
}

/// The variables of the moment.
fn variables() -> impl Iterator<Item = *mut c_char> {
    // SAFETY: the C library's variable, and the kernel's list.
    unsafe { list(if environ.is_null() { first_variables() } else { environ }) }
}

/// What is this library's: `NAME=VALUE`.
pub fn settings() -> &'static [&'static CStr] {
    SETTINGS.get_or_init(|| {
        let found = variables()
            // SAFETY: each is a text that ends with a NUL.
            .map(|text| unsafe { CStr::from_ptr(text) })
            .filter(|text| text.to_bytes().starts_with(OWN))
            .map(|text| &*Box::leak(Box::<CStr>::from(text)))
            .collect();
        Box::new(found)
    })
}

/// Whether a variable is there, said before anything else: nothing that is relocated late is used,
/// and nothing kept.
pub fn is_there(name: &[u8]) -> bool {
    // SAFETY: as in `stack_end` and `variables`: each is a text that ends with a NUL.
    let can_be_read = unsafe { !__libc_stack_end.is_null() };
    let is_it = |text: *mut c_char| {
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(text) }.to_bytes();
        text.len() > name.len() && text.starts_with(name) && text[name.len()] == b'='
    };
    can_be_read && variables().any(is_it)
}

/// The value of a variable.
pub fn value(name: &[u8]) -> Option<&'static CStr> {
    let of = |text: &'static CStr| {
        let rest = text.to_bytes_with_nul().strip_prefix(name)?.strip_prefix(b"=")?;
        CStr::from_bytes_with_nul(rest).ok()
    };
    if name.starts_with(OWN) {
        return settings().iter().find_map(|text| of(text));
    }
    // SAFETY: as above.
    variables().find_map(|text| of(unsafe { CStr::from_ptr(text) }))
}

/// Takes a variable out of the program's list, in place. What [`value`] says of it stays.
pub fn remove(name: &[u8]) {
    auxiliary_vector();
    let is_it = |text: *mut c_char| {
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(text) }.to_bytes();
        text.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&b'='))
    };
    let kept: Vec<_> = variables().filter(|text| !is_it(*text)).collect();
    // SAFETY: the list has at least as many elements, and its end.
    unsafe {
        let at = if environ.is_null() { first_variables() } else { environ };
        if !at.is_null() {
            for (index, text) in kept.iter().enumerate() {
                at.add(index).write(*text);
            }
            at.add(kept.len()).write(std::ptr::null_mut());
        }
    }
}

/// Gives a variable another text, `NAME=VALUE`, in place; if the program's list has it.
pub fn replace(name: &[u8], text: &'static CStr) {
    // SAFETY: as above; each element that is met is the list's own.
    unsafe {
        let mut at = if environ.is_null() { first_variables() } else { environ };
        while !at.is_null() && !(*at).is_null() {
            let found = CStr::from_ptr(*at).to_bytes().strip_prefix(name);
            if found.is_some_and(|rest| rest.first() == Some(&b'=')) {
                at.write(text.as_ptr().cast_mut());
            }
            at = at.add(1);
        }
    }
}

/// The auxiliary vector: pairs of words, of which the last is 0, 0. NULL: it is not known yet.
pub fn auxiliary_vector() -> *const [c_ulong; 2] {
    // Looked for once: the list in front of it becomes shorter where variables are taken out.
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let found = FOUND.load(Ordering::Relaxed);
    if found != 0 {
        return found as *const _;
    }
    let mut at = first_variables();
    // SAFETY: the kernel's layout: the variables, NULL, pairs of words.
    unsafe {
        while !at.is_null() && !at.read().is_null() {
            at = at.add(1);
        }
    }
    if at.is_null() {
        return std::ptr::null();
    }
    FOUND.store(at.wrapping_add(1) as usize, Ordering::Relaxed);
    at.wrapping_add(1).cast()
}

/// An entry of the auxiliary vector; 0: there is none.
pub fn auxiliary(kind: c_ulong) -> c_ulong {
    let mut pair = auxiliary_vector();
    if pair.is_null() {
        return 0;
    }
    // SAFETY: the kernel's layout.
    unsafe {
        loop {
            match pair.read() {
                [0, _] => return 0,
                [found, value] if found == kind => return value,
                _ => pair = pair.add(1),
            }
        }
    }
}

extern "C" fn getauxval(kind: c_ulong) -> c_ulong {
    auxiliary(kind)
}

extern "C" fn getenv(name: *const c_char) -> *const c_char {
    // SAFETY: the caller's text.
    value(unsafe { CStr::from_ptr(name) }.to_bytes()).map_or(std::ptr::null(), CStr::as_ptr)
}

/// NULL in a program that has rights which its user has not.
extern "C" fn secure_getenv(name: *const c_char) -> *const c_char {
    if auxiliary(libc::AT_SECURE) == 0 { getenv(name) } else { std::ptr::null() }
}

extern "C" fn unsetenv(name: *const c_char) -> c_int {
    // SAFETY: the caller's text.
    remove(unsafe { CStr::from_ptr(name) }.to_bytes());
    0
}

hidden! {
    "getauxval" => getauxval,
    "getenv" => getenv,
    "secure_getenv" => secure_getenv,
    "unsetenv" => unsetenv,
}
