//! What happens at single instructions of a call: its thread is cancelled there, its process
//! changes the user there.
//!
//! What is tried is sampled by rotation; with `SOLERA_TEST_LONG` it is each instruction.

mod cancelled;
mod stepping;
#[path = "../support/mod.rs"]
mod support;
