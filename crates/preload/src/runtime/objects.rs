//! The functions of other loaded objects: what `dlsym` does, without the dynamic linker's locks.
//!
//! The dynamic linker keeps a list of what is loaded, in the order in which symbols are looked for
//! (`_r_debug`, which debuggers read). It only ever grows while a program runs, but for what
//! `dlclose` takes out: so a name is looked for here in what was loaded with the program, behind
//! this library, as by `RTLD_NEXT`. The tables are those of the ELF specification: `DT_GNU_HASH`,
//! symbols, versions. A symbol of several versions means its default, as there.
//!
//! An indirect function (`memcpy`) is asked which one it is: its resolver looks at the processor.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{Dl_info, Elf64_Sym};

use crate::runtime::hidden;

/// The beginning of `struct link_map`, which is public.
#[repr(C)]
pub struct Object {
    base: usize,
    name: *const c_char,
    dynamic: *const [usize; 2],
    next: *const Object,
    previous: *const Object,
}

/// `struct r_debug_extended`.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Object,
    breakpoint: usize,
    state: c_int,
    loader: usize,
    /// Of another name space (`dlmopen`); there from version 2 on.
    next: *const Debug,
}

unsafe extern "C" {
    static _r_debug: Debug;
    /// The linker's own symbol: where this library begins.
    static __ehdr_start: u8;
}

const DT_HASH_GNU: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
/// Not the default of its name.
const HIDDEN_VERSION: u16 = 0x8000;
const TYPE: u8 = 0xf;
const STT_TLS: u8 = 6;
const STT_GNU_IFUNC: u8 = 10;

/// What is loaded, in the order of the search.
pub fn loaded() -> impl Iterator<Item = &'static Object> {
    // SAFETY: the dynamic linker's list. What stands in front of it is never taken out.
    unsafe {
        let mut at = _r_debug.first;
        std::iter::from_fn(move || {
            let found = at.as_ref()?;
            at = found.next;
            Some(found)
        })
    }
}

/// What is loaded in any name space.
pub fn loaded_anywhere() -> impl Iterator<Item = &'static Object> {
    // SAFETY: the dynamic linker's lists, in a thread that it has stopped in, or while there is
    // one.
    unsafe {
        let mut space = &raw const _r_debug;
        let mut at = _r_debug.first;
        std::iter::from_fn(move || {
            while at.is_null() {
                space = if (*space).version < 2 { std::ptr::null() } else { (*space).next };
                at = space.as_ref()?.first;
            }
            let found = at.as_ref()?;
            at = found.next;
            Some(found)
        })
    }
}

/// What is loaded behind this library.
fn behind() -> impl Iterator<Item = &'static Object> {
    loaded().skip_while(|object| !object.is_own()).skip(1)
}

impl Object {
    fn is_own(&self) -> bool {
        self.base == &raw const __ehdr_start as usize
    }

    /// The file that it was loaded from.
    pub fn file(&self) -> &'static [u8] {
        // SAFETY: the dynamic linker's text, which stays as long as the object.
        if self.name.is_null() { b"" } else { unsafe { CStr::from_ptr(self.name) }.to_bytes() }
    }

    /// Gives it another name, by which `dladdr` and debuggers know it from now on.
    ///
    /// # Safety
    ///
    /// It was loaded with the program, so it is never unloaded; no other thread looks at its name.
    pub unsafe fn rename(&self, name: &'static CStr) {
        let place = (&raw const self.name).cast_mut();
        // SAFETY: the dynamic linker keeps its objects in memory that it writes itself.
        unsafe { place.write_volatile(name.as_ptr()) };
    }

    /// Where its first byte is.
    pub const fn base(&self) -> usize {
        self.base
    }

    /// What an entry of its dynamic section points at; `None`: it has none of this kind.
    fn table<T>(&self, kind: usize) -> Option<*const T> {
        let mut at = self.dynamic;
        // SAFETY: the section of an object that is loaded; its last entry is 0.
        unsafe {
            while !at.is_null() && (*at)[0] != 0 {
                let [found, value] = at.read();
                if found == kind {
                    // The dynamic linker has made addresses of most, where it may write.
                    let place = if value < self.base { self.base + value } else { value };
                    return Some(place as *const T);
                }
                at = at.add(1);
            }
        }
        None
    }

    /// The address of the function of this name that it exports.
    pub fn function(&self, name: &[u8]) -> Option<usize> {
        let symbols = self.table::<Elf64_Sym>(DT_SYMTAB)?;
        let texts = self.table::<c_char>(DT_STRTAB)?;
        let header = self.table::<u64>(DT_HASH_GNU)?;
        let versions = self.table::<u16>(DT_VERSYM);
        let hash = hash(name);
        // SAFETY: the tables of a loaded object, in the form that the dynamic linker reads itself:
        // numbers of buckets, of the first symbol, of words of the filter, a shift; the filter,
        // the buckets, a chain of hashes whose last has its lowest bit set.
        unsafe {
            let [buckets, first, words, shift] = header.cast::<[u32; 4]>().read();
            let filter = header.add(2);
            let word = filter.add((hash / 64 % words) as usize).read();
            if word >> (hash % 64) & word >> ((hash >> shift) % 64) & 1 == 0 {
                return None;
            }
            let bucket = filter.add(words as usize).cast::<u32>();
            let chain = bucket.add(buckets as usize);
            let mut index = bucket.add((hash % buckets) as usize).read();
            if index < first {
                return None;
            }
            loop {
                let found = chain.add((index - first) as usize).read();
                let symbol = &*symbols.add(index as usize);
                let of_default = versions
                    .is_none_or(|versions| versions.add(index as usize).read() < HIDDEN_VERSION);
                if found | 1 == hash | 1
                    && of_default
                    && symbol.st_shndx != 0
                    && symbol.st_info & TYPE != STT_TLS
                    && CStr::from_ptr(texts.add(symbol.st_name as usize)).to_bytes() == name
                {
                    return Some(self.resolved(symbol));
                }
                if found & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    fn resolved(&self, symbol: &Elf64_Sym) -> usize {
        let address = self.base + symbol.st_value as usize;
        if symbol.st_info & TYPE != STT_GNU_IFUNC {
            return address;
        }
        // SAFETY: the resolver of an object that is relocated; on x86-64 it takes nothing.
        unsafe { std::mem::transmute::<usize, extern "C" fn() -> usize>(address)() }
    }
}

/// The hash of `DT_GNU_HASH`.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// The dynamic linker: it alone has this function.
pub fn linker() -> Option<&'static Object> {
    loaded().find(|object| object.function(b"__tls_get_addr").is_some())
}

/// The function of this name that stands behind this library's.
pub fn next(name: &[u8]) -> Option<usize> {
    behind().find_map(|object| object.function(name))
}

/// The file of this library, as the dynamic linker opened it.
pub fn own_file() -> &'static [u8] {
    loaded().find(|object| object.is_own()).map_or(b"", Object::file)
}

/// What `std` and the crates ask for is looked for behind this library; of one object, if they name
/// it.
extern "C" fn dlsym(handle: *const Object, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's text, and a handle, which is the object, or one of two small numbers.
    let found = unsafe {
        let name = CStr::from_ptr(name).to_bytes();
        match handle as isize {
            0 | -1 => next(name),
            _ => (*handle).function(name),
        }
    };
    found.unwrap_or(0) as *mut c_void
}

/// Nothing is known of any address: `std` asks for the sake of messages.
extern "C" fn dladdr(address: *const c_void, found: *mut Dl_info) -> c_int {
    let _ = (address, found);
    0
}

hidden! { "dlsym" => dlsym, "dladdr" => dladdr }
