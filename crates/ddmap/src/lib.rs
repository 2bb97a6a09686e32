//! ddmap: volumes larger than one machine (the dissertation's chapter 6, which calls it
//! `ScaleMem`).
//!
//! A volume's region may lie on several machines. Its pages are fetched when they are touched, and
//! sent away when they are cold; a flush makes a store durable where the program runs.
//!
//! | room | what it answers |
//! |---|---|
//! | [`protocol`] | which node has a page, and how it moves |
//! | [`wire`] | how messages go over sockets |
//! | [`ground`] | what processes of a machine share, and how touches of it are caught |
//! | [`reach`] | how processes and nodes find each other, and what they say besides pages |
//! | [`program`] | how a process's touches are served |
//! | [`node`] | what a node runs: makes room, keeps pages for others, buries the dead |
//!
//! A room names those above it in this table, and no others.

pub mod ground;
pub mod node;
pub mod program;
pub mod protocol;
pub mod reach;
pub mod wire;

#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;
