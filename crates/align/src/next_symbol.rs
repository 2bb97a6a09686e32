//! The next definition of each function: that of the program's own allocator.
//!
//! They are looked up all at once, at the first call of any of them. That call comes before the
//! process has a second thread, since making one allocates. So nobody waits here for the loader's
//! lock while its owner waits for him. Looking up twice finds the same.
//!
//! `dlsym` allocates nothing where it finds something. Older glibc asked `calloc` for a buffer of
//! the thread's first, and goes on without it. What is asked for during the look-up therefore gets
//! nothing (`ENOMEM`): memory from anywhere else would be foreign to the `free` that it meets.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What a function gives that was not found.
trait ErrorValue {
    fn nothing() -> Self;
}

impl ErrorValue for *mut c_void {
    fn nothing() -> Self {
        set_errno(libc::ENOMEM);
        std::ptr::null_mut()
    }
}

impl ErrorValue for c_int {
    fn nothing() -> Self {
        libc::ENOMEM
    }
}

impl ErrorValue for usize {
    fn nothing() -> Self {
        0
    }
}

impl ErrorValue for () {
    fn nothing() -> Self {}
}

/// Makes a function for each of the C library's, which calls the next definition of that name.
macro_rules! next {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        /// Where they are; 0: not looked up yet.
        #[allow(non_upper_case_globals)]
        mod places {
            use super::AtomicUsize;

            $(pub static $name: AtomicUsize = AtomicUsize::new(0);)*
        }

        $(
            /// # Safety
            ///
            /// As the C library's function of this name.
            #[inline]
            pub unsafe fn $name($($argument: $kind),*) -> $result {
                type Next = unsafe extern "C" fn($($kind),*) -> $result;

                let mut found = places::$name.load(Ordering::Relaxed);
                if found == 0 {
                    find_all();
                    found = places::$name.load(Ordering::Relaxed);
                    if found == 0 {
                        return <$result>::nothing();
                    }
                }
                // SAFETY: the address of a function of this name, which has this signature.
                let next = unsafe { std::mem::transmute::<usize, Next>(found) };
                // SAFETY: the caller's promise.
                unsafe { next($($argument),*) }
            }
        )*

        fn find_each() {
            $(
                let name = concat!(stringify!($name), "\0");
                // SAFETY: a name. From this library on, those behind it are searched.
                let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
                places::$name.store(found as usize, Ordering::Relaxed);
            )*
        }
    };
}

next! {
    malloc(size: usize) -> *mut c_void;
    calloc(count: usize, each: usize) -> *mut c_void;
    realloc(old: *mut c_void, size: usize) -> *mut c_void;
    reallocarray(old: *mut c_void, count: usize, each: usize) -> *mut c_void;
    memalign(alignment: usize, size: usize) -> *mut c_void;
    aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    valloc(size: usize) -> *mut c_void;
    pvalloc(size: usize) -> *mut c_void;
    free(block: *mut c_void) -> ();
    malloc_usable_size(block: *mut c_void) -> usize;
}

/// Whether blocks of [`posix_memalign`] are what the program's `free` and `realloc` take.
static FITS: AtomicBool = AtomicBool::new(false);

/// Whether the allocator is glibc's own.
static IS_GLIBC: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread is looking up.
    static FINDING: Cell<bool> = const { Cell::new(false) };
}

#[cold]
#[inline(never)]
fn find_all() {
    if FINDING.replace(true) {
        return;
    }
    find_each();
    let object = |address: usize| Symbol::at(address).map(|symbol| symbol.object);
    let glibc = object(libc::gnu_get_libc_version as *const () as usize);
    let is_glibc = glibc.is_some() && object(places::free.load(Ordering::Relaxed)) == glibc;
    IS_GLIBC.store(is_glibc, Ordering::Relaxed);
    FITS.store(all_fit(), Ordering::Release);
    FINDING.set(false);
}

/// Whether the allocator may be asked for alignment: all functions that see such a block are those
/// of one library, and are those that the program calls.
pub fn fits() -> bool {
    if places::free.load(Ordering::Relaxed) == 0 {
        find_all();
    }
    FITS.load(Ordering::Acquire)
}

pub fn is_glibc() -> bool {
    IS_GLIBC.load(Ordering::Relaxed)
}

fn all_fit() -> bool {
    let of = |place: &AtomicUsize| Symbol::at(place.load(Ordering::Relaxed)).map(|one| one.object);
    let home = of(&places::free);
    // A library that only counts calls of `malloc` and `free`, or that lacks `posix_memalign`,
    // would meet blocks that it did not give.
    let others =
        [&places::malloc, &places::realloc, &places::posix_memalign, &places::malloc_usable_size];
    home.is_some()
        && others.iter().all(|place| of(place) == home)
        && is_first(c"malloc", Symbol::at(is_first as *const () as usize).map(|own| own.object))
        && is_first(c"free", home)
}

/// Whether the program's calls of a function go to the definition in this library: none stands in
/// front of it, in the program's own file say.
fn is_first(name: &std::ffi::CStr, object: Option<usize>) -> bool {
    // SAFETY: a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // A program that is linked to a fixed address and takes the function's has a stub of its own,
    // which stands for it: a symbol without a definition.
    Symbol::at(found as usize)
        .is_some_and(|found| Some(found.object) == object || !found.is_definition)
}

/// What the loader knows of an address.
struct Symbol {
    /// Where its library begins.
    object: usize,
    is_definition: bool,
}

impl Symbol {
    fn at(address: usize) -> Option<Self> {
        const RTLD_DL_SYMENT: c_int = 1;
        unsafe extern "C" {
            fn dladdr1(
                address: *const c_void,
                info: *mut libc::Dl_info,
                symbol: *mut *const libc::Elf64_Sym,
                flags: c_int,
            ) -> c_int;
        }
        let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
        let mut symbol = std::ptr::null::<libc::Elf64_Sym>();
        // SAFETY: room for both answers.
        let info = unsafe {
            if dladdr1(address as *const c_void, info.as_mut_ptr(), &raw mut symbol, RTLD_DL_SYMENT)
                == 0
            {
                return None;
            }
            info.assume_init()
        };
        // SAFETY: null, or a symbol of a library that is loaded and stays so during this.
        let symbol = unsafe { symbol.as_ref() };
        let is_definition = symbol.is_none_or(|symbol| symbol.st_shndx != 0);
        Some(Self { object: info.dli_fbase as usize, is_definition })
    }
}

pub fn errno() -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(errno: c_int) {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno }
}
