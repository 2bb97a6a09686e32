//! What Rust's runtime and the crates ask the C library for, done without it.
//!
//! A call of the program's may come from under the C library's own locks (malloc's, the dynamic
//! linker's, a stream's), from a resolver, from a signal handler. So nothing in this library may
//! enter the C library: what the compiler, `std` and the crates call by a C name is defined here,
//! hidden from all other objects, and goes to the kernel by itself. What is still undefined is a
//! list that a test holds (`tests/interposition/undefined.rs`).
//!
//! | file | subject |
//! |---|---|
//! | `allocation` | what `std` allocates past the library's heap |
//! | `bytes` | copies, fills, comparisons, lengths |
//! | `code` | which file the code at an address is from |
//! | `cpu` | what the CPU knows |
//! | `environment` | variables, arguments, the auxiliary vector |
//! | `errors` | texts and names of error numbers |
//! | `guest` | the two thread pointers where a program without the C library runs |
//! | `objects` | the functions of other loaded objects |
//! | `process` | numbers of processes and processors, clocks, sleep, the end |
//! | `relocation` | the addresses within the library, at the start or later |
//! | `signal_sets` | sets of signals |
//! | `system_calls` | those on the library's own files, sockets and memory |
//! | `thread_locals` | variables of a thread |
//!
//! Nothing here takes a lock but that of the library's own heap.

mod allocation;
mod bytes;
pub(crate) mod code;
pub(crate) mod cpu;
pub(crate) mod environment;
pub(crate) mod errors;
pub(crate) mod guest;
pub(crate) mod objects;
mod process;
pub(crate) mod relocation;
mod signal_sets;
mod system_calls;
mod thread_locals;

/// Defines symbols that only this library sees: `"name" => function`. A call is one jump more.
macro_rules! hidden {
    ($($name:literal => $function:path),* $(,)?) => {$(
        std::arch::global_asm!(
            ".pushsection .text.solera_runtime,\"ax\",@progbits",
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            "jmp {function}",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            function = sym $function,
        );
    )*};
}
use hidden;
