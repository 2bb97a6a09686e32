//! ddmap: volumes larger than one machine (the dissertation's chapter 6, which calls it
//! `ScaleMem`).
//!
//! A volume's region may lie on several machines. Its pages are fetched when they are touched, and
//! sent away when they are cold; a flush makes a store durable where the program runs.
//!
//! | layer | what it answers |
//! |---|---|
//! | `protocol/` | which node has a page, and how it moves |
//! | `wire/` | how messages go over sockets |
//! | `shared_memory/` | what processes of a machine share, and how touches of it are caught |
//! | `control/` | how processes and nodes find each other, and what they say besides pages |
//! | `membership/` | which nodes a domain has, and which is first |
//! | `paging/` | how a process's touches are served |
//! | `node/` | what a node runs: makes room, keeps pages for others, buries the dead |
//!
//! A layer names those above it in this table, and no others. All are private: what other crates
//! use is named here, and nowhere else.

mod control;
mod membership;
mod node;
mod paging;
mod protocol;
mod round_trips;
mod shared_memory;
mod wire;

// What a process's touches need (`preload`).
pub use paging::attachment::pager_of;
pub use paging::hints::AccessPattern;
pub use paging::pager::PagerOptions;
pub use paging::pagers::{Interruptible, Pagers};
pub use shared_memory::maps::PagedMapping;
pub use shared_memory::view::REGION;

// What a node is, and what commands ask of one (`cli`).
pub use control::local_socket::{JobProgress, LocalReply, LocalRequest};
pub use control::node_messages::{Member, NODE_TIMEOUT};
pub use control::registry::{Registration, Registry, Turn};
pub use control::room::{Room, not_twice};
pub use control::status::{
    AskStatus, KeptStatus, Status, UserStatus, VolumeStatus, WaitStatus, Waits,
};
pub use node::{Node, NodeOptions};
pub use paging::repair::{RepairReport, repair};
pub use protocol::{Location, PAGE};
pub use shared_memory::capacity::Capacity;
pub use shared_memory::counters::TimeHistogram;
pub use shared_memory::directory::Directory;
pub use shared_memory::error::DomainError;
pub use shared_memory::share::LOCAL_LEAST;
pub use shared_memory::store::{Standing, Store};
pub use shared_memory::uffd::{Uffd, missing as userfaultfd_missing};
pub use wire::Wire;
pub use wire::key::Key;
pub use wire::tls::Tls;

// For fuzzing (`crates/fuzz`).
pub use round_trips::{round_trip_frame, round_trip_text};

#[cfg(test)]
#[path = "../tests/mod.rs"]
mod tests;
