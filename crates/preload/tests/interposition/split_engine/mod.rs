//! The second engine: programs on a kernel file system.

mod beside_volume;
mod concurrency;
mod programs;
mod random_calls;
