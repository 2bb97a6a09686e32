//! ddmap: volumes larger than one machine (the dissertation's chapter 6, which calls it
//! `ScaleMem`).
//!
//! A volume's region may lie on several machines. Its pages are fetched when they are touched, and
//! sent away when they are cold; a flush makes a store durable where the program runs.
//!
//! | module | what it answers |
//! |---|---|
//! | [`protocol`] | which node has a page, and how it moves |
//! | [`wire`] | how messages go over sockets |
//! | [`table`], [`directory`], [`room`], [`view`] | what a host has in memory |
//! | [`uffd`], [`maps`], [`pager`], [`paged`] | how a process's touches are served |
//! | [`evict`], [`kept`] | how pages leave, and what a holder does with them |
//! | [`node`], [`host`], [`service`], [`members`], [`status`] | what a node runs |
//! | [`control`] | what nodes say to each other besides pages |
//! | [`store`], [`local`], [`attach`], [`registry`] | how processes find a node |
//! | [`links`], [`carrier`] | how their requests reach holders |

pub mod attach;
pub mod carrier;
pub mod control;
pub mod directory;
pub mod error;
pub mod evict;
mod files;
pub mod host;
pub mod kept;
pub mod links;
pub mod local;
pub mod maps;
pub mod members;
pub mod node;
pub mod paged;
pub mod pager;
pub mod protocol;
pub mod registry;
mod renewed;
pub mod room;
pub mod service;
pub mod status;
pub mod store;
pub mod table;
pub mod uffd;
pub mod view;
pub mod wire;

/// The term of every volume: with one copy of each page there is no other.
pub(crate) const TERM: u32 = 1;
