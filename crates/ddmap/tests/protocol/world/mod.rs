//! A domain in virtual time: one host with several processes, 2 to 15 holders, connections between
//! them, and what may fail. All is drawn from a seed, so a run can be had again.
//!
//! | file | what |
//! |---|---|
//! | `draw.rs` | numbers from a seed, and what a seed's world is like |
//! | `links.rs` | connections: order, delay, loss, sessions, partitions |
//! | `threads.rs` | a program's threads: accesses, faults, waiting |
//! | `node.rs` | the host's node: evictions, reconciling, claims of the dead |
//! | `failures.rs` | what fails, and how it comes back |
//! | `run.rs` | who is next, what is looked at behind each step, how a run ends |

mod draw;
mod failures;
mod links;
mod node;
mod run;
mod threads;

pub use run::{Counts, Run, run};
