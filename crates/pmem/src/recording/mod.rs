//! Hooks: what is recorded of a region for the crash explorer, and what is counted.

pub mod costs;
pub mod trace;
