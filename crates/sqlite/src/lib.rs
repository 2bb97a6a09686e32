//! A VFS of SQLite, named `solera`: databases of which the bytes that are there already are read
//! and written as memory.
//!
//! A file in a directory of a kernel file system is a file of SQLite's own VFS `unix`, the
//! *parent*: locks, shared memory, names, temporary files, growth and every error are the parent's
//! ([`directory`]). On top of that a database and its write-ahead log have a *window*, where their
//! memory can be mapped ([`window`]): it is a fast path for bytes inside the file, and whatever it
//! cannot do is done by the parent.
//!
//! A file on a volume is read, written, locked and mapped by the volume's engine ([`volume`]), in
//! the same files and by the same locks as `unix` has where `solera run` shows it the volume.
//!
//! SQLite is reached by a few function pointers ([`Calls`]): a program may hold several copies of
//! SQLite, and this library needs none of their symbols.

mod calls;
mod directory;
mod vfs;
mod volume;
mod window;

pub use calls::{Calls, OLDEST, Refused};
pub use vfs::{attach, load};
pub use volume::show;
