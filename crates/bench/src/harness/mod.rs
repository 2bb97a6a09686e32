//! What all measurements use: the programs that they start, what they make for themselves and
//! mount, signals that end them, and what is said of many times.

pub mod bound;
pub mod conversation;
pub mod executable;
pub mod interrupt;
pub mod mounts;
pub mod scratch;
pub mod statistics;
pub mod stores;
