//! What the CPU knows, by the dynamic linker's word where that has one.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::runtime::objects;

/// Whether the CPU and the kernel know `xsavec`. The dynamic linker has asked the CPU already: a
/// virtual machine takes 10 us for each answer. Asked at the first call that arrives, not at the
/// start.
pub fn has_xsavec() -> bool {
    type Leaf = unsafe extern "C" fn(c_uint) -> *const [[u32; 4]; 2];
    /// `CPUID_INDEX_D_ECX_1` of `sys/platform/x86.h` (glibc 2.33), and its bit in EAX.
    const INDEX: c_uint = 3;
    const XSAVEC: u32 = 1 << 1;
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {}
        known => return known == YES,
    }
    let leaf =
        objects::linker().and_then(|linker| linker.function(b"__x86_get_cpuid_feature_leaf"));
    let told = leaf.and_then(|leaf| {
        // SAFETY: glibc's function of that name and type, which only reads; the answer is there for
        // ever.
        let found = unsafe { std::mem::transmute::<usize, Leaf>(leaf)(INDEX).as_ref() }?;
        let [[has, ..], [can, ..]] = *found;
        // An empty answer is none.
        (has != 0).then_some(can & XSAVEC != 0)
    });
    let has = told.unwrap_or_else(|| is_x86_feature_detected!("xsavec"));
    KNOWN.store(if has { YES } else { NO }, Ordering::Relaxed);
    has
}
