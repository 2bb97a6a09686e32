//! What lies in memory that processes share: the node table, the directory, the page file, the room
//! there is; and how touches of it are caught.

pub mod counts;
pub mod directory;
pub mod error;
pub(crate) mod files;
pub mod maps;
pub mod moving;
pub(crate) mod renewed;
pub mod room;
pub mod runs;
pub mod share;
pub mod store;
pub mod table;
pub mod uffd;
pub mod view;
