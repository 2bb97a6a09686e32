//! What this CPU can do, decided once by name: the flush instruction and the copy width.
//!
//! `SOLERA_FLUSH` (`clwb`, `clflushopt`, `clflush`) and `SOLERA_COPY` (`avx512`, `avx2`, `sse2`)
//! force a choice for tests. A name that is unknown, or that this CPU lacks, is an error of
//! the caller that opens a region, never a silent fallback.

use std::arch::x86_64::__cpuid_count;
use std::fmt;
use std::sync::OnceLock;

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
    /// Streams are summed on the way, in vectors: the CPU multiplies polynomials in 512-bit
    /// vectors, and bulk copies are that wide.
    pub folded_sum: bool,
}

/// Best first; the last one always works.
const FLUSHES: [FlushKind; 3] = [FlushKind::Clwb, FlushKind::Clflushopt, FlushKind::Clflush];
const COPIES: [CopyKind; 3] = [CopyKind::Avx512, CopyKind::Avx2, CopyKind::Sse2];

impl FlushKind {
    pub(crate) fn available(self) -> bool {
        let features = __cpuid_count(7, 0).ebx;
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
            CopyKind::Avx512 => std::is_x86_feature_detected!("avx512f"),
            CopyKind::Avx2 => std::is_x86_feature_detected!("avx2"),
            CopyKind::Sse2 => true,
        }
    }
}

/// CPUID's ERMS bit: `rep movsb` moves whole lines at a time.
fn fast_string_copy() -> bool {
    __cpuid_count(7, 0).ebx & (1 << 9) != 0
}

/// CPUID's MOVDIR64B bit: 64 bytes in one direct store, which no power cut tears (Intel SDM,
/// "MOVDIR64B": 64-byte write atomicity).
fn direct_store() -> bool {
    __cpuid_count(7, 0).ecx & (1 << 28) != 0
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
            folded_sum: kind == CopyKind::Avx512 && std::is_x86_feature_detected!("vpclmulqdq"),
        })
    }

    /// The choice of this process, made at the first call, or what is wrong with the environment.
    pub fn of_process() -> Result<Dispatch, String> {
        static CHOICE: OnceLock<Result<Dispatch, String>> = OnceLock::new();
        CHOICE
            .get_or_init(|| {
                let word = |name| std::env::var_os(name).map(|w| w.to_string_lossy().into_owned());
                let (flush, copy) = (word("SOLERA_FLUSH"), word("SOLERA_COPY"));
                Dispatch::choose(flush.as_deref(), copy.as_deref())
            })
            .clone()
    }
}

/// The instructions for callers without a region: the process's choice, or what always works.
#[inline]
pub(crate) fn dispatch() -> Dispatch {
    static CHOICE: OnceLock<Dispatch> = OnceLock::new();
    *CHOICE.get_or_init(|| {
        Dispatch::of_process().unwrap_or(Dispatch {
            flush: FlushKind::Clflush,
            copy: CopyKind::Sse2,
            string_copy: false,
            direct_line: false,
            folded_sum: false,
        })
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
