//! ddmap: volumes larger than one machine (the dissertation's chapter 6, which calls it
//! `ScaleMem`).
//!
//! A volume's region may lie on several machines. Its pages are fetched when they are touched, and
//! sent away when they are cold; a flush makes a store durable where the program runs.
//!
//! | module | what it answers |
//! |---|---|
//! | [`protocol`] | who has a page, and how it moves |
//! | [`wire`] | how messages go over sockets |

pub mod carrier;
pub mod directory;
pub mod evict;
mod files;
pub mod kept;
pub mod maps;
pub mod paged;
pub mod pager;
pub mod protocol;
pub mod room;
pub mod table;
pub mod uffd;
pub mod view;
pub mod wire;
