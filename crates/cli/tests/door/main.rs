//! Programs on a volume beside tmpfs, by whatever functions they call: generated programs on stdio
//! and shell scripts, and small programs that once differed.
//!
//! What is compared, and on which faces: `faces.rs`.

mod faces;
mod generated;
mod inputs;
mod random;
mod shell;
mod stdio;
#[path = "../support/mod.rs"]
mod support;
