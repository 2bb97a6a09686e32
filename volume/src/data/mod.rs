//! The bytes of files: their map, reads, writes, sizes, holes, relinks, mappings.

mod at_once;
#[cfg(test)]
mod at_once_tests;
pub(crate) mod edit;
pub(crate) mod fallocate;
pub(crate) mod file;
pub(crate) mod file_read;
#[cfg(test)]
mod file_tests;
pub(crate) mod file_write;
mod habit;
pub(crate) mod map;
pub(crate) mod mapping;
mod relink;
#[cfg(test)]
mod replace_tests;
mod summed;
#[cfg(test)]
mod summed_tests;
mod truncate;
