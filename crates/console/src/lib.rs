//! What `solera` and `solera-bench` have in common: why a command failed, what it prints, sizes and
//! files as people name them, how a volume is attached, and where the libraries are that programs
//! are started with.

// Figures for people: percentages and sizes lie far below 2^52.
#![allow(clippy::cast_precision_loss)]

pub mod attachment;
pub mod class;
pub mod command_line;
pub mod failure;
pub mod file;
pub mod output;
pub mod preload;
pub mod runs;
pub mod size;
