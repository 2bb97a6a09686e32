//! How processes and nodes reach each other: a process its node, both of them holders, a machine's
//! commands the nodes that run on it.

pub mod carrier;
pub mod control;
pub mod links;
pub mod local;
pub mod registry;
pub mod status;
pub mod waiting;
pub mod wish;
