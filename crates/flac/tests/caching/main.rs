//! The cache over a volume: what it serves is what is there, whoever changes it, dies or damages
//! it.

mod buffers;
mod damage;
mod deaths;
mod eras;
mod exclusive;
mod model;
mod read_ahead;
mod support;
