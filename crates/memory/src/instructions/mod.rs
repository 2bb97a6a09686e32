//! The instructions that touch memory which may vanish: which the CPU has, guarded loads and
//! stores, copies, checksums.

pub mod checksum;
pub mod copy;
pub(crate) mod copy_asm;
pub mod copy_words;
pub mod dispatch;
pub mod exception_table;
mod string;
