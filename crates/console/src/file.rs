//! Files that commands write and read besides volumes: pictures, traces, reports. Files that must
//! not be written as ordinary ones (`volume::Kept`) are refused, and no call waits for the other
//! side of a fifo.

use std::fmt;
use std::fs::File;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use volume::Kept;

use crate::failure::{Failure, describe};

/// Permissions of what is made, before the umask.
const MODE: u32 = 0o666;

/// Makes or empties the file. `asked` says what for.
pub fn create(asked: impl fmt::Display, path: &Path) -> Result<File, Failure> {
    volume::create_ordinary(path, MODE, false).map(File::from).map_err(|kept| refused(asked, kept))
}

/// Refuses at once what [`create`] would refuse at the end of a long run.
pub fn check(asked: impl fmt::Display, path: &Path) -> Result<(), Failure> {
    volume::check_ordinary(path, false).map_err(|kept| refused(asked, kept))
}

/// Makes the file with this content.
pub fn write(asked: impl fmt::Display, path: &Path, content: &str) -> Result<(), Failure> {
    let asked = asked.to_string();
    let mut file = create(&asked, path)?;
    std::io::Write::write_all(&mut file, content.as_bytes())
        .map_err(|error| Failure::io(&asked, &error))
}

/// Opens a file for reading. A fifo is refused: perhaps no process ever writes into it.
pub fn open(asked: impl fmt::Display, path: &Path) -> Result<File, Failure> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let read = || {
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let waits = volume::is_fifo(&rustix::fs::fstat(&file)?, rustix::fs::fstatfs(&file).ok());
        rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
        Ok((file, waits))
    };
    match read() {
        Ok((file, false)) => Ok(File::from(file)),
        Ok((_, true)) => {
            let found = "it is a fifo, and reading would wait until a program writes into it";
            Err(Failure::new(asked, found, "name a file"))
        }
        Err(errno) => Err(Failure::outside(asked, errno)),
    }
}

fn refused(asked: impl fmt::Display, kept: Kept) -> Failure {
    match kept {
        Kept::System(errno) => {
            Failure::new(asked, describe(errno), "name a file that can be written")
        }
        kept => Failure::new(asked, kept, "name another file"),
    }
}
