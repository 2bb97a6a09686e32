//! What is explored: sequences of calls, calls beside each other, processes that die, whole
//! volumes, the log and the files of `flex`.

pub mod concurrent;
pub mod deaths;
pub mod extent_release;
pub mod flex_file;
pub mod flex_log;
pub mod lifecycle;
pub mod pairs;
pub mod random;
pub mod sequences;
pub mod survivor;
