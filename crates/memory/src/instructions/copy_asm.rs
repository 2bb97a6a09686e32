//! The assembly behind `copy.rs`: every bulk load and store of the region or of caller memory.
//!
//! All routines return 0, [`LOAD_FAULT`], or 2 for a fault of a store. They follow the C calling
//! convention: `rdi` destination, `rsi` source, `rdx` length in bytes. Groups of loads and of
//! stores are wrapped in `load!` and `store!`, which list them in the exception table with the
//! landing pads `98` and `99` of `pads!`.

use crate::instructions::exception_table::guarded;
use std::arch::naked_asm;

/// A load from the source faulted.
pub const LOAD_FAULT: u32 = 1;

macro_rules! load {
    ($($instruction:expr),+ $(,)?) => {
        concat!("2:\n", $($instruction, "\n",)+ "3:\n", guarded!("2b", "3b", "98f"))
    };
}

macro_rules! store {
    ($($instruction:expr),+ $(,)?) => {
        concat!("2:\n", $($instruction, "\n",)+ "3:\n", guarded!("2b", "3b", "99f"))
    };
}

/// The two landing pads; `$leave` restores vector state if the routine dirtied it.
macro_rules! pads {
    ($leave:literal) => {
        concat!("98:\n", $leave, "\nmov eax, 1\nret\n", "99:\n", $leave, "\nmov eax, 2\nret\n")
    };
}

/// Copies 0 to 15 bytes, any alignment.
#[unsafe(naked)]
unsafe extern "C" fn copy_tiny(_to: *mut u8, _from: *const u8, _len: usize) -> u32 {
    naked_asm!(
        "cmp rdx, 8",
        "jb 51f",
        load!("mov rax, [rsi]", "mov rcx, [rsi + rdx - 8]"),
        store!("mov [rdi], rax", "mov [rdi + rdx - 8], rcx"),
        "xor eax, eax",
        "ret",
        "51:",
        "cmp rdx, 4",
        "jb 52f",
        load!("mov eax, [rsi]", "mov ecx, [rsi + rdx - 4]"),
        store!("mov [rdi], eax", "mov [rdi + rdx - 4], ecx"),
        "xor eax, eax",
        "ret",
        "52:",
        "test rdx, rdx",
        "jz 53f",
        "mov r8, rdx",
        "shr r8, 1",
        load!(
            "movzx eax, byte ptr [rsi]",
            "movzx ecx, byte ptr [rsi + r8]",
            "movzx r9d, byte ptr [rsi + rdx - 1]",
        ),
        store!("mov [rdi], al", "mov [rdi + r8], cl", "mov [rdi + rdx - 1], r9b"),
        "53:",
        "xor eax, eax",
        "ret",
        pads!(""),
    )
}

/// Copies `rdx` bytes, any alignment, SSE2 only; best below 256 bytes. Loads of one step precede
/// its stores, ends may overlap: bytes in the middle may be stored twice, with the same value.
#[unsafe(naked)]
pub unsafe extern "C" fn copy_small(_to: *mut u8, _from: *const u8, _len: usize) -> u32 {
    naked_asm!(
        "cmp rdx, 16",
        "jb {tiny}",
        "cmp rdx, 32",
        "ja 41f",
        load!("movups xmm0, [rsi]", "movups xmm1, [rsi + rdx - 16]"),
        store!("movups [rdi], xmm0", "movups [rdi + rdx - 16], xmm1"),
        "xor eax, eax",
        "ret",
        "41:",
        "cmp rdx, 64",
        "ja 43f",
        "42:",
        load!(
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + 16]",
            "movups xmm2, [rsi + rdx - 32]",
            "movups xmm3, [rsi + rdx - 16]",
        ),
        store!(
            "movups [rdi], xmm0",
            "movups [rdi + 16], xmm1",
            "movups [rdi + rdx - 32], xmm2",
            "movups [rdi + rdx - 16], xmm3",
        ),
        "xor eax, eax",
        "ret",
        "43:",
        load!(
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + 16]",
            "movups xmm2, [rsi + 32]",
            "movups xmm3, [rsi + 48]",
        ),
        store!(
            "movups [rdi], xmm0",
            "movups [rdi + 16], xmm1",
            "movups [rdi + 32], xmm2",
            "movups [rdi + 48], xmm3",
        ),
        "add rdi, 64",
        "add rsi, 64",
        "sub rdx, 64",
        "cmp rdx, 64",
        "ja 43b",
        "cmp rdx, 32",
        "ja 42b",
        // 1 to 32 bytes are left and at least 64 precede them: one step that ends at the end.
        load!("movups xmm0, [rsi + rdx - 32]", "movups xmm1, [rsi + rdx - 16]"),
        store!("movups [rdi + rdx - 32], xmm0", "movups [rdi + rdx - 16], xmm1"),
        "xor eax, eax",
        "ret",
        pads!(""),
        tiny = sym copy_tiny,
    )
}

/// Defines a cached copy in which one side is accessed by whole words: each aligned 8-byte word
/// that lies wholly inside that side is accessed by exactly one instruction, in ascending order.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, aligned $low:literal, loads $ld:literal, stores $st:literal) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_to: *mut u8, _from: *const u8, _len: usize) -> u32 {
            naked_asm!(
                concat!("test ", $low, ", 7"),
                "jnz 60f",
                "40:",
                "cmp rdx, 128",
                "jae 70f",
                "41:",
                "sub rdx, 16",
                "jb 42f",
                load!("mov rax, [rsi]", "mov rcx, [rsi + 8]"),
                store!("mov [rdi], rax", "mov [rdi + 8], rcx"),
                "add rsi, 16",
                "add rdi, 16",
                "jmp 41b",
                "42:",
                "add rdx, 16",
                "43:",
                "sub rdx, 8",
                "jb 44f",
                load!("mov rax, [rsi]"),
                store!("mov [rdi], rax"),
                "add rsi, 8",
                "add rdi, 8",
                "jmp 43b",
                // Less than a word is left, so no whole word can be stored twice.
                "44:",
                "add rdx, 8",
                "jmp {tiny}",
                "46:",
                "xor eax, eax",
                "ret",
                // Bytes up to the first aligned word.
                "60:",
                "test rdx, rdx",
                "jz 46b",
                load!("movzx eax, byte ptr [rsi]"),
                store!("mov [rdi], al"),
                "inc rsi",
                "inc rdi",
                "dec rdx",
                concat!("test ", $low, ", 7"),
                "jnz 60b",
                "jmp 40b",
                // 128 bytes and more: 16-byte accesses, aligned there, which never split a word.
                "70:",
                concat!("test ", $low, ", 8"),
                "jz 71f",
                load!("mov rax, [rsi]"),
                store!("mov [rdi], rax"),
                "add rsi, 8",
                "add rdi, 8",
                "sub rdx, 8",
                "71:",
                load!(
                    concat!($ld, " xmm0, [rsi]"),
                    concat!($ld, " xmm1, [rsi + 16]"),
                    concat!($ld, " xmm2, [rsi + 32]"),
                    concat!($ld, " xmm3, [rsi + 48]"),
                ),
                store!(
                    concat!($st, " [rdi], xmm0"),
                    concat!($st, " [rdi + 16], xmm1"),
                    concat!($st, " [rdi + 32], xmm2"),
                    concat!($st, " [rdi + 48], xmm3"),
                ),
                "add rsi, 64",
                "add rdi, 64",
                "sub rdx, 64",
                "cmp rdx, 64",
                "jae 71b",
                "jmp 41b",
                pads!(""),
                tiny = sym copy_tiny,
            )
        }
    };
}

words!(
    /// Copies `rdx` bytes; the destination is stored by whole words.
    store_words, aligned "dil", loads "movups", stores "movaps"
);
words!(
    /// Copies `rdx` bytes; the source is loaded by whole words.
    load_words, aligned "sil", loads "movaps", stores "movups"
);

/// Copies `rdx` bytes by the string instruction, any alignment; best for a page and more where the
/// CPU says that it is fast (ERMS). Both sides share one instruction, so the landing pad finds out
/// which one faulted by reading the source once more.
#[unsafe(naked)]
pub unsafe extern "C" fn copy_string(_to: *mut u8, _from: *const u8, _len: usize) -> u32 {
    naked_asm!(
        "mov rcx, rdx",
        "2:",
        "rep movsb",
        "3:",
        guarded!("2b", "3b", "97f"),
        "xor eax, eax",
        "ret",
        "97:",
        load!("movzx eax, byte ptr [rsi]"),
        "mov eax, 2",
        "ret",
        pads!(""),
    )
}

/// The place of the first NUL among the `rsi` bytes from `rdi` on; `rsi` or more: there is none;
/// `usize::MAX`: a fault. Reads aligned blocks of 16 bytes, which lie in one page each: a fault
/// means that a byte before the first NUL cannot be reached.
#[unsafe(naked)]
pub unsafe extern "C" fn find_nul(_from: *const u8, _max: usize) -> usize {
    naked_asm!(
        "mov rax, rsi",
        "test rsi, rsi",
        "jz 43f",
        "mov rdx, rdi",
        "and rdx, -16",
        "mov ecx, edi",
        "and ecx, 15",
        "pxor xmm0, xmm0",
        load!("movdqa xmm1, [rdx]"),
        "pcmpeqb xmm1, xmm0",
        "pmovmskb eax, xmm1",
        // Bytes of the first block before the text do not count.
        "shr eax, cl",
        "test eax, eax",
        "jnz 42f",
        // `rcx`: bytes looked at so far.
        "neg rcx",
        "40:",
        "add rcx, 16",
        "cmp rcx, rsi",
        "jae 41f",
        load!("movdqa xmm1, [rdi + rcx]"),
        "pcmpeqb xmm1, xmm0",
        "pmovmskb eax, xmm1",
        "test eax, eax",
        "jz 40b",
        "bsf eax, eax",
        "add rax, rcx",
        "ret",
        "41:",
        "mov rax, rsi",
        "ret",
        "42:",
        "bsf eax, eax",
        "43:",
        "ret",
        "98:",
        "mov rax, -1",
        "ret",
    )
}

/// Streams `rdx` bytes, a multiple of 8, to a destination aligned to 8: each word around the cache
/// by one instruction.
#[unsafe(naked)]
pub unsafe extern "C" fn stream_words(_to: *mut u8, _from: *const u8, _len: usize) -> u32 {
    naked_asm!(
        "test rdx, rdx",
        "jz 41f",
        "40:",
        load!("mov rax, [rsi]"),
        store!("movnti [rdi], rax"),
        "add rsi, 8",
        "add rdi, 8",
        "sub rdx, 8",
        "jnz 40b",
        "41:",
        "xor eax, eax",
        "ret",
        pads!(""),
    )
}

/// Defines the bulk routines for one vector width.
///
/// `$copy`: cached copy, 256 bytes or more, any alignment. `$stream`: non-temporal copy to an
/// aligned destination, a multiple of 64 bytes. `$zero`: non-temporal zeroes, the same;
/// `$clear_lines`: zeroes through the cache.
macro_rules! bulk {
    (
        $copy:ident, $stream:ident, $zero:ident, $clear_lines:ident,
        width $w:literal, twice $w2:literal, thrice $w3:literal,
        four times $w4:literal, mask $mask:literal,
        registers $r0:literal $r1:literal $r2:literal $r3:literal,
        loads $ld:literal, stores $st:literal, streams $nt:literal,
        clear $clear:literal, leave $leave:literal
    ) => {
        #[unsafe(naked)]
        pub unsafe extern "C" fn $copy(_to: *mut u8, _from: *const u8, _len: usize) -> u32 {
            naked_asm!(
                // One unaligned step, then up to the destination's alignment.
                load!(concat!($ld, " ", $r0, ", [rsi]")),
                store!(concat!($ld, " [rdi], ", $r0)),
                "mov rax, rdi",
                "neg rax",
                concat!("and rax, ", $mask),
                "add rdi, rax",
                "add rsi, rax",
                "sub rdx, rax",
                concat!("sub rdx, ", $w4),
                "jb 41f",
                ".balign 32",
                "40:",
                load!(
                    concat!($ld, " ", $r0, ", [rsi]"),
                    concat!($ld, " ", $r1, ", [rsi + ", $w, "]"),
                    concat!($ld, " ", $r2, ", [rsi + ", $w2, "]"),
                    concat!($ld, " ", $r3, ", [rsi + ", $w3, "]"),
                ),
                store!(
                    concat!($st, " [rdi], ", $r0),
                    concat!($st, " [rdi + ", $w, "], ", $r1),
                    concat!($st, " [rdi + ", $w2, "], ", $r2),
                    concat!($st, " [rdi + ", $w3, "], ", $r3),
                ),
                concat!("add rsi, ", $w4),
                concat!("add rdi, ", $w4),
                concat!("sub rdx, ", $w4),
                "jae 40b",
                "41:",
                concat!("add rdx, ", $w4),
                "42:",
                concat!("cmp rdx, ", $w),
                "jb 43f",
                load!(concat!($ld, " ", $r0, ", [rsi]")),
                store!(concat!($st, " [rdi], ", $r0)),
                concat!("add rsi, ", $w),
                concat!("add rdi, ", $w),
                concat!("sub rdx, ", $w),
                "jmp 42b",
                "43:",
                // The rest by one unaligned step that ends at the end.
                load!(concat!($ld, " ", $r0, ", [rsi + rdx - ", $w, "]")),
                store!(concat!($ld, " [rdi + rdx - ", $w, "], ", $r0)),
                $leave,
                "xor eax, eax",
                "ret",
                pads!($leave),
            )
        }

        #[unsafe(naked)]
        pub unsafe extern "C" fn $stream(_to: *mut u8, _from: *const u8, _len: usize) -> u32 {
            naked_asm!(
                concat!("sub rdx, ", $w4),
                "jb 41f",
                ".balign 32",
                "40:",
                load!(
                    concat!($ld, " ", $r0, ", [rsi]"),
                    concat!($ld, " ", $r1, ", [rsi + ", $w, "]"),
                    concat!($ld, " ", $r2, ", [rsi + ", $w2, "]"),
                    concat!($ld, " ", $r3, ", [rsi + ", $w3, "]"),
                ),
                store!(
                    concat!($nt, " [rdi], ", $r0),
                    concat!($nt, " [rdi + ", $w, "], ", $r1),
                    concat!($nt, " [rdi + ", $w2, "], ", $r2),
                    concat!($nt, " [rdi + ", $w3, "], ", $r3),
                ),
                concat!("add rsi, ", $w4),
                concat!("add rdi, ", $w4),
                concat!("sub rdx, ", $w4),
                "jae 40b",
                "41:",
                concat!("add rdx, ", $w4),
                "jz 43f",
                "42:",
                load!(concat!($ld, " ", $r0, ", [rsi]")),
                store!(concat!($nt, " [rdi], ", $r0)),
                concat!("add rsi, ", $w),
                concat!("add rdi, ", $w),
                concat!("sub rdx, ", $w),
                "jnz 42b",
                "43:",
                $leave,
                "xor eax, eax",
                "ret",
                pads!($leave),
            )
        }

        #[unsafe(naked)]
        pub unsafe extern "C" fn $zero(_to: *mut u8, _from: *const u8, _len: usize) -> u32 {
            naked_asm!(
                $clear,
                "test rdx, rdx",
                "jz 43f",
                "40:",
                store!(concat!($nt, " [rdi], ", $r0)),
                concat!("add rdi, ", $w),
                concat!("sub rdx, ", $w),
                "jnz 40b",
                "43:",
                $leave,
                "xor eax, eax",
                "ret",
                pads!($leave),
            )
        }

        #[unsafe(naked)]
        pub unsafe extern "C" fn $clear_lines(_to: *mut u8, _from: *const u8, _len: usize) -> u32 {
            naked_asm!(
                $clear,
                "test rdx, rdx",
                "jz 43f",
                "40:",
                store!(concat!($st, " [rdi], ", $r0)),
                concat!("add rdi, ", $w),
                concat!("sub rdx, ", $w),
                "jnz 40b",
                "43:",
                $leave,
                "xor eax, eax",
                "ret",
                pads!($leave),
            )
        }
    };
}

bulk!(
    copy_avx512, stream_avx512, zero_avx512, clear_avx512, width "64", twice "128", thrice "192",
    four times "256", mask "63", registers "zmm0" "zmm1" "zmm2" "zmm3",
    loads "vmovdqu64", stores "vmovdqa64", streams "vmovntdq",
    clear "vpxorq zmm0, zmm0, zmm0", leave "vzeroupper"
);
bulk!(
    copy_avx2, stream_avx2, zero_avx2, clear_avx2, width "32", twice "64", thrice "96",
    four times "128", mask "31", registers "ymm0" "ymm1" "ymm2" "ymm3",
    loads "vmovdqu", stores "vmovdqa", streams "vmovntdq",
    clear "vpxor ymm0, ymm0, ymm0", leave "vzeroupper"
);
bulk!(
    copy_sse2, stream_sse2, zero_sse2, clear_sse2, width "16", twice "32", thrice "48",
    four times "64", mask "15", registers "xmm0" "xmm1" "xmm2" "xmm3",
    loads "movdqu", stores "movdqa", streams "movntdq",
    clear "pxor xmm0, xmm0", leave ""
);

/// Defines a copy of words that sums them on the way.
macro_rules! words_summed {
    ($(#[$doc:meta])* $name:ident, stores $store:literal) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(
            _to: *mut u8,
            _from: *const u8,
            _len: usize,
            _state: u32,
        ) -> u64 {
            naked_asm!(
                "mov eax, ecx",
                // Both ends, and how far it is to them.
                "add rsi, rdx",
                "add rdi, rdx",
                "neg rdx",
                "add rdx, 32",
                "jg 41f",
                "40:",
                load!(
                    "mov r8, [rsi + rdx - 32]",
                    "mov r9, [rsi + rdx - 24]",
                    "mov r10, [rsi + rdx - 16]",
                    "mov r11, [rsi + rdx - 8]",
                ),
                store!(
                    concat!($store, " [rdi + rdx - 32], r8"),
                    concat!($store, " [rdi + rdx - 24], r9"),
                    concat!($store, " [rdi + rdx - 16], r10"),
                    concat!($store, " [rdi + rdx - 8], r11"),
                ),
                "crc32 rax, r8",
                "crc32 rax, r9",
                "crc32 rax, r10",
                "crc32 rax, r11",
                "add rdx, 32",
                "jle 40b",
                "41:",
                "sub rdx, 32",
                "jz 43f",
                "42:",
                load!("mov r8, [rsi + rdx]"),
                store!(concat!($store, " [rdi + rdx], r8")),
                "crc32 rax, r8",
                "add rdx, 8",
                "jnz 42b",
                "43:",
                "shl rax, 32",
                "ret",
                pads!(""),
            )
        }
    };
}

words_summed!(
    /// As [`stream_words`], summed on the way: `ecx` is the state of a crc32c before them; the
    /// state behind them comes back in the upper half of the result, whose lower half is as of all
    /// routines.
    stream_words_summed, stores "movnti"
);
words_summed!(
    /// As [`stream_words_summed`], through the cache.
    copy_words_summed, stores "mov"
);

/// Defines a copy of lines that folds them on the way.
macro_rules! folded {
    ($(#[$doc:meta])* $name:ident, stores $store:literal) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(
            _to: *mut u8,
            _from: *const u8,
            _len: usize,
            _state: u32,
            _powers: *const u64,
        ) -> u64 {
            naked_asm!(
                "vbroadcasti32x4 zmm8, [r8]",
                "vmovd xmm9, ecx",
                // Both ends, and how far it is to them.
                "add rsi, rdx; add rdi, rdx; neg rdx",
                load!(
                    "vmovdqu64 zmm0, [rsi + rdx]",
                    "vmovdqu64 zmm1, [rsi + rdx + 64]",
                    "vmovdqu64 zmm2, [rsi + rdx + 128]",
                    "vmovdqu64 zmm3, [rsi + rdx + 192]",
                ),
                store!(
                    concat!($store, " [rdi + rdx], zmm0"),
                    concat!($store, " [rdi + rdx + 64], zmm1"),
                    concat!($store, " [rdi + rdx + 128], zmm2"),
                    concat!($store, " [rdi + rdx + 192], zmm3"),
                ),
                "vpxorq zmm0, zmm0, zmm9",
                "add rdx, 256",
                "jz 41f",
                ".balign 32",
                "40:",
                load!(
                    "vmovdqu64 zmm4, [rsi + rdx]",
                    "vmovdqu64 zmm5, [rsi + rdx + 64]",
                    "vmovdqu64 zmm6, [rsi + rdx + 128]",
                    "vmovdqu64 zmm7, [rsi + rdx + 192]",
                ),
                store!(
                    concat!($store, " [rdi + rdx], zmm4"),
                    concat!($store, " [rdi + rdx + 64], zmm5"),
                    concat!($store, " [rdi + rdx + 128], zmm6"),
                    concat!($store, " [rdi + rdx + 192], zmm7"),
                ),
                "vpclmulqdq zmm9, zmm0, zmm8, 0x00",
                "vpclmulqdq zmm10, zmm1, zmm8, 0x00",
                "vpclmulqdq zmm11, zmm2, zmm8, 0x00",
                "vpclmulqdq zmm12, zmm3, zmm8, 0x00",
                "vpclmulqdq zmm0, zmm0, zmm8, 0x11",
                "vpclmulqdq zmm1, zmm1, zmm8, 0x11",
                "vpclmulqdq zmm2, zmm2, zmm8, 0x11",
                "vpclmulqdq zmm3, zmm3, zmm8, 0x11",
                "vpternlogq zmm0, zmm9, zmm4, 0x96",
                "vpternlogq zmm1, zmm10, zmm5, 0x96",
                "vpternlogq zmm2, zmm11, zmm6, 0x96",
                "vpternlogq zmm3, zmm12, zmm7, 0x96",
                "add rdx, 256",
                "jnz 40b",
                "41:",
                // The sixteen sums, each multiplied by how far it is to the last one, which
                // stays as it is.
                "vextracti32x4 xmm10, zmm3, 3",
                "vpclmulqdq zmm4, zmm0, [r8 + 64], 0x00",
                "vpclmulqdq zmm0, zmm0, [r8 + 64], 0x11",
                "vpclmulqdq zmm5, zmm1, [r8 + 128], 0x00",
                "vpclmulqdq zmm1, zmm1, [r8 + 128], 0x11",
                "vpclmulqdq zmm6, zmm2, [r8 + 192], 0x00",
                "vpclmulqdq zmm2, zmm2, [r8 + 192], 0x11",
                "vpclmulqdq zmm7, zmm3, [r8 + 256], 0x00",
                "vpclmulqdq zmm3, zmm3, [r8 + 256], 0x11",
                "vpternlogq zmm0, zmm4, zmm1, 0x96",
                "vpternlogq zmm2, zmm5, zmm6, 0x96",
                "vpternlogq zmm3, zmm7, zmm0, 0x96",
                "vpxorq zmm2, zmm2, zmm3",
                "vextracti64x4 ymm3, zmm2, 1",
                "vpxor ymm2, ymm2, ymm3",
                "vextracti128 xmm3, ymm2, 1",
                "vpternlogq zmm2, zmm3, zmm10, 0x96",
                "vmovq rsi, xmm2",
                "vpextrq rdi, xmm2, 1",
                "xor eax, eax",
                "crc32 rax, rsi",
                "crc32 rax, rdi",
                "shl rax, 32",
                "vzeroupper",
                "ret",
                pads!("vzeroupper"),
            )
        }
    };
}

folded!(
    /// Streams `rdx` bytes, a multiple of 256 and at least that, to a line, and folds them on the
    /// way. `ecx` is the state of a crc32c before them; the state behind them comes back in the
    /// upper half of the result, whose lower half is as of all routines. `r8`: five lines, the
    /// powers of x by which 128 bits are multiplied to stand 2048 bits further on (twice one word),
    /// and, for each 128 of 2048 bits, at their end.
    stream_folded_avx512, stores "vmovntdq"
);
folded!(
    /// As [`stream_folded_avx512`], through the cache.
    copy_folded_avx512, stores "vmovdqa64"
);

/// Folds four words of 256 bits on: loads them, stores them, and adds them to four sums, each of
/// which is multiplied first to stand 2048 bits further on.
macro_rules! fold_four {
    ($store:literal, $at:literal, $a:literal, $b:literal, $c:literal, $d:literal) => {
        concat!(
            load!(
                concat!("vmovdqu ymm10, [rsi + rdx + ", $at, "]"),
                concat!("vmovdqu ymm11, [rsi + rdx + ", $at, " + 32]"),
                concat!("vmovdqu ymm12, [rsi + rdx + ", $at, " + 64]"),
                concat!("vmovdqu ymm13, [rsi + rdx + ", $at, " + 96]"),
            ),
            store!(
                concat!($store, " [rdi + rdx + ", $at, "], ymm10"),
                concat!($store, " [rdi + rdx + ", $at, " + 32], ymm11"),
                concat!($store, " [rdi + rdx + ", $at, " + 64], ymm12"),
                concat!($store, " [rdi + rdx + ", $at, " + 96], ymm13"),
            ),
            fold_one!($a, "ymm10"),
            fold_one!($b, "ymm11"),
            fold_one!($c, "ymm12"),
            fold_one!($d, "ymm13"),
        )
    };
}

macro_rules! fold_one {
    ($sum:literal, $new:literal) => {
        concat!(
            concat!("vpclmulqdq ymm9, ", $sum, ", ymm8, 0x00\n"),
            concat!("vpclmulqdq ", $sum, ", ", $sum, ", ymm8, 0x11\n"),
            concat!("vpxor ymm9, ymm9, ", $new, "\n"),
            concat!("vpxor ", $sum, ", ", $sum, ", ymm9\n"),
        )
    };
}

/// Multiplies two of the sixteen sums by how far it is to the last one, and adds them to `ymm11`.
macro_rules! end_two {
    ($sum:literal, $at:literal) => {
        concat!(
            concat!("vpclmulqdq ymm9, ", $sum, ", [r8 + ", $at, "], 0x00\n"),
            concat!("vpclmulqdq ", $sum, ", ", $sum, ", [r8 + ", $at, "], 0x11\n"),
            "vpxor ymm11, ymm11, ymm9\n",
            concat!("vpxor ymm11, ymm11, ", $sum, "\n"),
        )
    };
}

/// Defines the same by words of 256 bits: two of the sixteen sums in each of eight registers.
macro_rules! folded_avx2 {
    ($(#[$doc:meta])* $name:ident, stores $store:literal) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(
            _to: *mut u8,
            _from: *const u8,
            _len: usize,
            _state: u32,
            _powers: *const u64,
        ) -> u64 {
            naked_asm!(
                "vbroadcasti128 ymm8, [r8]",
                "vmovd xmm14, ecx",
                // Both ends, and how far it is to them.
                "add rsi, rdx; add rdi, rdx; neg rdx",
                load!(
                    "vmovdqu ymm0, [rsi + rdx]",
                    "vmovdqu ymm1, [rsi + rdx + 32]",
                    "vmovdqu ymm2, [rsi + rdx + 64]",
                    "vmovdqu ymm3, [rsi + rdx + 96]",
                    "vmovdqu ymm4, [rsi + rdx + 128]",
                    "vmovdqu ymm5, [rsi + rdx + 160]",
                    "vmovdqu ymm6, [rsi + rdx + 192]",
                    "vmovdqu ymm7, [rsi + rdx + 224]",
                ),
                store!(
                    concat!($store, " [rdi + rdx], ymm0"),
                    concat!($store, " [rdi + rdx + 32], ymm1"),
                    concat!($store, " [rdi + rdx + 64], ymm2"),
                    concat!($store, " [rdi + rdx + 96], ymm3"),
                    concat!($store, " [rdi + rdx + 128], ymm4"),
                    concat!($store, " [rdi + rdx + 160], ymm5"),
                    concat!($store, " [rdi + rdx + 192], ymm6"),
                    concat!($store, " [rdi + rdx + 224], ymm7"),
                ),
                "vpxor ymm0, ymm0, ymm14",
                "add rdx, 256",
                "jz 41f",
                ".balign 32",
                "40:",
                fold_four!($store, "0", "ymm0", "ymm1", "ymm2", "ymm3"),
                fold_four!($store, "128", "ymm4", "ymm5", "ymm6", "ymm7"),
                "add rdx, 256",
                "jnz 40b",
                "41:",
                // The last sum stays as it is.
                "vextracti128 xmm10, ymm7, 1",
                "vpxor xmm11, xmm11, xmm11",
                end_two!("ymm0", "64"),
                end_two!("ymm1", "96"),
                end_two!("ymm2", "128"),
                end_two!("ymm3", "160"),
                end_two!("ymm4", "192"),
                end_two!("ymm5", "224"),
                end_two!("ymm6", "256"),
                end_two!("ymm7", "288"),
                "vextracti128 xmm0, ymm11, 1",
                "vpxor xmm0, xmm0, xmm11",
                "vpxor xmm0, xmm0, xmm10",
                "vmovq rsi, xmm0",
                "vpextrq rdi, xmm0, 1",
                "xor eax, eax",
                "crc32 rax, rsi",
                "crc32 rax, rdi",
                "shl rax, 32",
                "vzeroupper",
                "ret",
                pads!("vzeroupper"),
            )
        }
    };
}

folded_avx2!(
    /// As [`stream_folded_avx512`], by words of 256 bits.
    stream_folded_avx2, stores "vmovntdq"
);
folded_avx2!(
    /// As [`stream_folded_avx2`], through the cache.
    copy_folded_avx2, stores "vmovdqa"
);
