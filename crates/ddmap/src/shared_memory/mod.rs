//! What lies in memory that processes share: the node table, the directory, the page file, the room
//! there is; and how touches of it are caught.

pub mod capacity;
mod conversion;
pub mod counters;
pub mod directory;
pub mod error;
pub(crate) mod files;
pub(crate) mod fork_lock;
pub mod maps;
pub mod migration;
pub mod runs;
pub mod share;
pub mod silence;
pub mod store;
pub mod table;
pub mod uffd;
pub mod view;
