//! The contract of files and of logs, with other processes and without.

mod file;
mod log;
mod processes;
mod support;
