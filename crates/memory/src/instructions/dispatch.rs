//! What this CPU can do, decided once by name: the flush instruction and the copy width.
//!
//! `SOLERA_FLUSH` (`clwb`, `clflushopt`, `clflush`) and `SOLERA_COPY` (`avx512`, `avx2`, `sse2`)
//! force a choice for tests. A name that is unknown, or that this CPU lacks, is an error of
//! the caller that opens a region, never a silent fallback.

use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::ffi::c_uint;
use std::fmt;

use once_cell::race::OnceBox;

/// How a cache line is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushKind {
    /// Writes back, may keep the line cached.
    Clwb,
    /// Writes back and evicts; not ordered with other flushes.
    Clflushopt,
    /// Writes back and evicts, one after the other.
    Clflush,
    /// Nothing: the caches themselves are durable (class `byte`).
    None,
}

/// The vector width of bulk copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyKind {
    /// 64-byte registers.
    Avx512,
    /// 32-byte registers.
    Avx2,
    /// 16-byte registers, which every x86-64 CPU has.
    Sse2,
}

impl fmt::Display for FlushKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            FlushKind::Clwb => "clwb",
            FlushKind::Clflushopt => "clflushopt",
            FlushKind::Clflush => "clflush",
            FlushKind::None => "none",
        })
    }
}

impl fmt::Display for CopyKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            CopyKind::Avx512 => "avx512",
            CopyKind::Avx2 => "avx2",
            CopyKind::Sse2 => "sse2",
        })
    }
}

/// The instructions chosen for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// How lines are flushed (a region of class `byte` uses [`FlushKind::None`] instead).
    pub flush: FlushKind,
    /// How wide bulk copies are.
    pub copy: CopyKind,
    /// Long reads use `rep movsb`: the CPU has a fast one and no width was forced.
    pub string_copy: bool,
    /// Whole lines are stored by `movdir64b`: the CPU has it and no flush was forced.
    pub direct_line: bool,
    /// Streams are summed on the way, in vectors as wide as those of bulk copies: the CPU
    /// multiplies polynomials in them.
    pub folded_sum: bool,
}

/// Best first; the last one always works.
const FLUSHES: [FlushKind; 3] = [FlushKind::Clwb, FlushKind::Clflushopt, FlushKind::Clflush];
const COPIES: [CopyKind; 3] = [CopyKind::Avx512, CopyKind::Avx2, CopyKind::Sse2];

/// Leaf 7 of CPUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// What the CPU has.
    pub ebx: u32,
    pub ecx: u32,
    /// What of it programs can use: the kernel keeps its registers.
    usable_ebx: u32,
    usable_ecx: u32,
}

/// What this CPU has: from the dynamic linker, which has asked it already (a virtual machine takes
/// microseconds for each answer); else from the CPU.
pub(crate) fn features() -> Features {
    static FOUND: OnceBox<Features> = OnceBox::new();
    *FOUND.get_or_init(|| Box::new(told().unwrap_or_else(asked)))
}

/// glibc's answer, from version 2.33 on (`sys/platform/x86.h`).
fn told() -> Option<Features> {
    type Leaf = unsafe extern "C" fn(c_uint) -> *const [[u32; 4]; 2];
    /// `CPUID_INDEX_7`.
    const SEVEN: c_uint = 1;
    // SAFETY: a name.
    let found =
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__x86_get_cpuid_feature_leaf".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: glibc's function of that name and type; the answer is there for ever.
    let leaf = unsafe { std::mem::transmute::<*mut libc::c_void, Leaf>(found)(SEVEN).as_ref() }?;
    let [[_, ebx, ecx, _], [_, usable_ebx, usable_ecx, _]] = *leaf;
    // An empty answer is none: all CPUs that this runs on have something of it.
    (ebx != 0).then_some(Features { ebx, ecx, usable_ebx, usable_ecx })
}

fn asked() -> Features {
    let leaf = __cpuid_count(7, 0);
    let bit = |has: bool, bit: u32| u32::from(has) << bit;
    let usable_ebx = bit(std::is_x86_feature_detected!("avx512f"), 16)
        | bit(std::is_x86_feature_detected!("avx2"), 5);
    let usable_ecx = bit(std::is_x86_feature_detected!("vpclmulqdq"), 10);
    Features { ebx: leaf.ebx, ecx: leaf.ecx, usable_ebx, usable_ecx }
}

impl FlushKind {
    pub(crate) fn available(self) -> bool {
        let features = features().ebx;
        match self {
            FlushKind::Clwb => features & (1 << 24) != 0,
            FlushKind::Clflushopt => features & (1 << 23) != 0,
            FlushKind::Clflush | FlushKind::None => true,
        }
    }
}

impl CopyKind {
    pub(crate) fn available(self) -> bool {
        match self {
            CopyKind::Avx512 => features().usable_ebx & (1 << 16) != 0,
            CopyKind::Avx2 => features().usable_ebx & (1 << 5) != 0,
            CopyKind::Sse2 => true,
        }
    }
}

/// CPUID's ERMS bit: `rep movsb` moves whole lines at a time.
fn fast_string_copy() -> bool {
    features().ebx & (1 << 9) != 0
}

/// CPUID's MOVDIR64B bit: 64 bytes in one direct store, which no power cut tears (Intel SDM,
/// "MOVDIR64B": 64-byte write atomicity).
fn direct_store() -> bool {
    features().ecx & (1 << 28) != 0
}

/// The first of `kinds` that is available, or the one that `word` asks for.
fn choose<K: Copy + fmt::Display>(
    variable: &str,
    word: Option<&str>,
    kinds: &[K],
    available: impl Fn(K) -> bool,
) -> Result<K, String> {
    let names = || kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let Some(word) = word else {
        let best = kinds.iter().copied().find(|kind| available(*kind));
        return best.ok_or_else(|| format!("this CPU has none of {}", names()));
    };
    let Some(kind) = kinds.iter().copied().find(|kind| kind.to_string() == word) else {
        return Err(format!("{variable}={word} is not one of {}", names()));
    };
    if available(kind) {
        Ok(kind)
    } else {
        Err(format!("{variable}={word}: this CPU does not have it"))
    }
}

impl Dispatch {
    /// The choice for this CPU, with the environment's words if there are any.
    pub fn choose(flush: Option<&str>, copy: Option<&str>) -> Result<Dispatch, String> {
        let kind = choose("SOLERA_COPY", copy, &COPIES, CopyKind::available)?;
        Ok(Dispatch {
            flush: choose("SOLERA_FLUSH", flush, &FLUSHES, FlushKind::available)?,
            copy: kind,
            string_copy: copy.is_none() && fast_string_copy(),
            direct_line: flush.is_none() && direct_store(),
            folded_sum: kind != CopyKind::Sse2 && features().usable_ecx & (1 << 10) != 0,
        })
    }

    /// The choice of this process, made at the first call, or what is wrong with the environment.
    pub fn of_process() -> Result<Dispatch, String> {
        static CHOICE: OnceBox<Result<Dispatch, String>> = OnceBox::new();
        CHOICE
            .get_or_init(|| {
                let word = |name| std::env::var_os(name).map(|w| w.to_string_lossy().into_owned());
                let (flush, copy) = (word("SOLERA_FLUSH"), word("SOLERA_COPY"));
                Box::new(Dispatch::choose(flush.as_deref(), copy.as_deref()))
            })
            .clone()
    }
}

/// Whether a stream of `len` bytes, with its fences, takes less time than a copy through the cache,
/// of memory that is in no cache. A stream saves the read of each line; what it takes besides
/// depends on who made the CPU (`docs/figures/costs.md`, "In DRAM").
#[inline]
pub fn streams_cold(len: usize) -> bool {
    const INTEL: usize = 4096;
    const OTHERS: usize = 32 << 10;
    // Asked only where it matters: in a virtual machine the answer takes a microsecond.
    static FOUND: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let least = || {
        let name = __cpuid(0);
        let name = [name.ebx, name.edx, name.ecx].map(u32::to_le_bytes).concat();
        if name == *b"GenuineIntel" { INTEL } else { OTHERS }
    };
    len >= INTEL && (len >= OTHERS || len >= *FOUND.get_or_init(least))
}

/// The instructions for callers without a region: the process's choice, or what always works.
#[inline]
pub fn dispatch() -> Dispatch {
    static CHOICE: OnceBox<Dispatch> = OnceBox::new();
    *CHOICE.get_or_init(|| {
        Box::new(Dispatch::of_process().unwrap_or(Dispatch {
            flush: FlushKind::Clflush,
            copy: CopyKind::Sse2,
            string_copy: false,
            direct_line: false,
            folded_sum: false,
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_forces_the_choice() {
        let forced = Dispatch::choose(Some("clflush"), Some("sse2")).unwrap();
        assert_eq!((forced.flush, forced.copy), (FlushKind::Clflush, CopyKind::Sse2));
        assert!(!forced.string_copy, "a forced width is used for long reads too");
        let free = Dispatch::choose(None, None).unwrap();
        assert!(free.flush.available() && free.copy.available());
    }

    /// The dynamic linker's answer is the CPU's.
    #[test]
    fn the_linker_says_what_the_cpu_says() {
        let Some(told) = told() else { return };
        let asked = asked();
        assert_eq!((told.ebx, told.usable_ebx & asked.usable_ebx), (asked.ebx, asked.usable_ebx));
        assert_eq!(told.ecx & !(1 << 4), asked.ecx & !(1 << 4), "but for OSPKE, which may change");
        assert_eq!(told.usable_ecx & asked.usable_ecx, asked.usable_ecx);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let wrong = Dispatch::choose(Some("clwbx"), None).unwrap_err();
        assert_eq!(wrong, "SOLERA_FLUSH=clwbx is not one of clwb, clflushopt, clflush");
        let wrong = Dispatch::choose(None, Some("")).unwrap_err();
        assert_eq!(wrong, "SOLERA_COPY= is not one of avx512, avx2, sse2");
    }

    #[test]
    fn what_the_cpu_lacks_is_refused() {
        let lacking = choose("SOLERA_COPY", Some("avx2"), &COPIES, |kind| kind == CopyKind::Sse2);
        assert_eq!(lacking.unwrap_err(), "SOLERA_COPY=avx2: this CPU does not have it");
    }
}
