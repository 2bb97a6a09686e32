//! Databases on volumes, in a process that has the volume by its own engine.
//!
//! A file there is named `VOLUME:/path` ([`names`]), by which the names of journals and logs that
//! SQLite makes of it lead to the same volume. Where `solera run` shows the volume to the process,
//! such a name is the path by which it is shown, and the file the parent's: all connections of the
//! process then have one table of POSIX locks.
//!
//! Files, names, lock bytes and the shared memory beside a log are those of SQLite's `unix`
//! ([`file`], [`shared`]), so that its programs take part under `solera run`, and with a rollback
//! journal through a mount.
//!
//! PERSIST: a call of the engine that has returned is durable, in order with all others, so a sync
//! is nothing. Where the volume lies in the page cache (class `page`) it is one of the volume's.

mod file;
mod names;
mod shared;

use std::path::Path;

use flex::volumes::Names;
use libsqlite3_sys::{
    SQLITE_ACCESS_EXISTS, SQLITE_IOERR_DELETE, SQLITE_IOERR_DELETE_NOENT, SQLITE_IOERR_DIR_FSYNC,
    SQLITE_OK,
};
use rustix::io::Errno;

pub use file::open;
pub use names::{FileName, FullName, file_name, full_name, may_be_mounted, of_mount, show};

/// Takes a file's name away.
pub fn delete(names: &dyn Names, path: &Path, sync: bool) -> i32 {
    match names.unlink(path) {
        Ok(()) => {}
        Err(Errno::NOENT) => return SQLITE_IOERR_DELETE_NOENT,
        Err(_) => return SQLITE_IOERR_DELETE,
    }
    if sync && names.promise().needs_sync() && names.sync().is_err() {
        return SQLITE_IOERR_DIR_FSYNC;
    }
    SQLITE_OK
}

/// Whether a file is there (an empty one is not), or may be written.
pub fn access(names: &dyn Names, path: &Path, flags: i32) -> bool {
    if flags == SQLITE_ACCESS_EXISTS {
        return names.look(path).is_ok_and(|seen| !seen.is_file || seen.size > 0);
    }
    names.may_write(path).unwrap_or(false)
}
