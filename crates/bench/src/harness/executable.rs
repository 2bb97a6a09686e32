//! The programs that a measurement starts: this one again, as a worker, and `solera` beside it.

use std::io;
use std::path::PathBuf;

/// This program.
pub fn own() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// `solera`, which lies beside it.
pub fn solera() -> io::Result<PathBuf> {
    let solera = own()?.with_file_name("solera");
    if solera.is_file() {
        return Ok(solera);
    }
    let found = format!("{} is not there: solera-bench lies beside it", solera.display());
    Err(io::Error::new(io::ErrorKind::NotFound, found))
}
