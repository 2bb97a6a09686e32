//! Memory that may vanish: guarded loads and stores, and what a fault in them means.
//!
//! A page of a mapped file can be cut away, and a pointer of the program's can be wrong. Each
//! access here is listed in a table ([`instructions::exception_table`]); a fault in it is an error
//! of the call, not the end of the process.
//!
//! - [`instructions`] are the accesses: words, lines, copies, streams, flushes, checksums, each by
//!   what this CPU has ([`Dispatch`]).
//! - [`faults`] says what a fault at an address is: the handler, mapped regions by address, keys
//!   that keep the program out of them ([`key`], [`stray`]), the program's buffers ([`UserIn`],
//!   [`UserOut`]).
//!
//! Nothing here knows of persistence. `pmem`, `emulation` and `window` stand on it, and nobody else
//! names its instructions. No function here calls what a preload library interposes: system calls
//! go through rustix's raw backend.

pub mod faults;
pub mod instructions;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("Solera runs on x86-64 Linux");

pub use faults::handler::{handle_fault, install_fault_handler, own_fault_handler};
pub use faults::service::{FaultService, serve_touches};
pub use faults::user_memory::{Fault, UserIn, UserOut, supply_pages_by, text_length};
pub use faults::{key, stray};
pub use instructions::checksum::{checksum, checksum_after, checksum_words};
pub use instructions::copy::{prefetch, store_fence as fence};
pub use instructions::dispatch::{CopyKind, Dispatch, FlushKind};
