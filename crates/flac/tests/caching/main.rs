//! The cache over a volume serves what the volume has, also when processes change it, die, or
//! damage it.

mod buffers;
mod damage;
mod deaths;
mod eras;
mod exclusive;
mod model;
mod read_ahead;
mod support;
