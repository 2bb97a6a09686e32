//! Regions: how they are opened, what is stored and loaded, which faults are whose.

mod absent;
mod compile_fail;
mod directory;
mod faults;
mod holes;
mod key;
mod open;
mod persistence;
mod policy;
mod process;
mod shared_words;
