//! What a fault at an address means: the handler, the protection key, the regions by their
//! addresses, the memory of the program.

pub mod copy_on_write;
pub mod handler;
pub mod key;
pub mod region_table;
pub mod service;
pub mod stray;
pub(crate) mod truncation;
pub mod user_memory;
