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

pub mod protocol;
pub mod wire;
