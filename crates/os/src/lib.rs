//! What a process asks of the kernel, past the C library: system calls, waits that a signal ends,
//! descriptors out of the program's way, processors.
//!
//! - [`interrupt`] makes system calls, and ends a wait when a signal was kept back.
//! - [`InternalFd`] stands at a number where the program does not expect its own.
//! - [`real_path`] and [`names_in`] look at files without the C library.
//! - [`has_call_dispatch`] says whether a process can see system calls of its own code.
//! - [`processors`] says how many threads share a long work.
//!
//! No function here calls what a preload library interposes.

mod call_dispatch;
mod errno;
mod internal_fd;
pub mod interrupt;
mod paths;
mod processors;

pub use call_dispatch::{can_host, has_call_dispatch};
pub use errno::describe;
pub use internal_fd::{InternalFd, internal_numbers, is_internal_number, put_in_place};
pub use paths::{names_in, real_path, remove_all, truncate};
pub use processors::{processors, set_processors};
