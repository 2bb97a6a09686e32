//! ddmap: volumes larger than one machine (the dissertation's chapter 6, which calls it
//! `ScaleMem`).
//!
//! A volume's region may lie on several machines. Its pages are fetched when they are touched, and
//! sent away when they are cold; a flush makes a store durable where the program runs.
//!
//! | room | what it answers |
//! |---|---|
//! | `protocol/` | which node has a page, and how it moves |
//! | `wire/` | how messages go over sockets |
//! | `ground/` | what processes of a machine share, and how touches of it are caught |
//! | `reach/` | how processes and nodes find each other, and what they say besides pages |
//! | `program/` | how a process's touches are served |
//! | `node/` | what a node runs: makes room, keeps pages for others, buries the dead |
//!
//! A room names those above it in this table, and no others.

mod ground;
mod node;
mod program;
mod protocol;
mod reach;
mod round_trips;
mod wire;

// What a process's touches need (`preload`).
pub use ground::maps::Mapped;
pub use ground::view::REGION;
pub use program::attach::pager_of;
pub use program::hints::Way;
pub use program::paged::{Ends, Pagers};
pub use program::pager::Wishes;

// What a node is, and what commands ask of one (`cli`).
pub use ground::counts::Times;
pub use ground::directory::Directory;
pub use ground::error::DomainError;
pub use ground::room::Room;
pub use ground::share::LEAST;
pub use ground::store::{Standing, Store};
pub use ground::uffd::Uffd;
pub use node::members::SILENT;
pub use node::{Node, NodeOptions};
pub use program::repair::{Repaired, repair};
pub use protocol::{PAGE, Place};
pub use reach::control::Member;
pub use reach::local::{Answered, Ordered, Said};
pub use reach::registry::{Registered, Registry};
pub use reach::status::{KeptStatus, Status, VolumeStatus};
pub use wire::Wire;
pub use wire::key::Key;
pub use wire::tls::Tls;

// For fuzzing (`crates/fuzz`).
pub use round_trips::{round_trip_frame, round_trip_text};

#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;
