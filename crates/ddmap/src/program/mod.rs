//! What is done in a process that has a region attached: its touches of absent pages are served.

mod ahead;
mod anew;
pub mod apart;
mod around;
pub mod attach;
mod discard;
mod fresh;
mod hands;
pub mod hints;
pub mod lines;
mod look;
mod owed;
pub mod paged;
pub mod pager;
pub mod prefetch;
mod private;
pub mod repair;
mod wishes;
