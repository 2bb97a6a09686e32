//! What happens at single instructions of a call: its thread is cancelled there, its process
//! changes the user there; a static program, which a host serves, is killed there, or interrupted.
//!
//! What is tried is sampled by rotation; with `SOLERA_TEST_LONG` it is each instruction.
//! `SOLERA_C_LIBRARY` names a folder with another build of the C library to try it with
//! (`libc.so.6` and `ld.so`: scripts/door-libraries.sh fetches some); `SOLERA_CALL` one of the
//! calls (here and in `guests.rs`).

mod cancelled;
mod guests;
mod stepping;
#[path = "../support/mod.rs"]
mod support;
