//! Files that commands write besides volumes: pictures, traces, reports. What must not be written as an
//! ordinary file (`volume::Kept`) is refused.

use std::fmt;
use std::fs::File;
use std::path::Path;

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

fn refused(asked: impl fmt::Display, kept: Kept) -> Failure {
    match kept {
        Kept::System(errno) => {
            Failure::new(asked, describe(errno), "name a file that can be written")
        }
        kept => Failure::new(asked, kept, "name another file"),
    }
}
