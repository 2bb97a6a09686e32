//! The contract of the crate: what a disassembler says of patched files, what becomes of damaged
//! ones, what a site finds behind the entry, and programs whose C library is armed.

mod arming;
mod cache;
mod damaged;
mod disassembly;
mod entry;
mod libraries;
mod programs;
mod refused;
mod stepping;
