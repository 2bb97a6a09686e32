//! Space: chunks and their blocks, which blocks a request gets, the index over them, what a CPU
//! keeps, the memory beneath, and which memory is near.

pub(crate) mod alloc;
#[cfg(test)]
mod alloc_tests;
pub(crate) mod beneath;
pub(crate) mod chunk;
pub(crate) mod free_map;
pub(crate) mod fullness;
pub(crate) mod numa;
mod owners;
pub(crate) mod reserve;
