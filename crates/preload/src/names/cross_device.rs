//! Names of the kernel's in a call whose other path is a volume's: nothing goes from the one file
//! system to the other, and the kernel would say so behind what else is wrong.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, CWD, statat};
use vfs::Errno;

use crate::entry::fdtable;
use crate::entry::pointers::Text;
use crate::paths::Target;

/// A path of the kernel's, from where it is walked.
struct Name<'p> {
    directory: BorrowedFd<'static>,
    path: &'p [u8],
}

impl<'p> Name<'p> {
    /// `None`: it is a volume's.
    fn new((dirfd, path): (c_int, Text), target: &'p Target<'_>) -> Result<Option<Self>, Errno> {
        Ok(match target {
            Target::Volume(_) | Target::Descriptor(_) => None,
            Target::Elsewhere(path) => Some(Self { directory: CWD, path: path.as_bytes() }),
            Target::Kernel => {
                // A text of the program's, which lives for the call.
                let path = path.bytes()?;
                if dirfd < 0 && dirfd != libc::AT_FDCWD && path.first() != Some(&b'/') {
                    return Err(Errno::BADF);
                }
                Some(Self { directory: fdtable::borrow_directory(dirfd), path })
            }
        })
    }

    /// Whether the directory is found in which its last name stands.
    fn check_directory(&self) -> Result<(), Errno> {
        let slashes = self.path.iter().rev().take_while(|&&byte| byte == b'/').count();
        let plain = &self.path[..self.path.len() - slashes];
        let parent = match plain.iter().rposition(|&byte| byte == b'/') {
            _ if self.path.is_empty() => return Err(Errno::NOENT),
            // The root itself, or what stands in it.
            _ if plain.is_empty() => b"/",
            Some(0) => b"/",
            Some(at) => &plain[..at],
            None => b".".as_slice(),
        };
        // Behind the slash, so that it is one, and may be searched.
        statat(self.directory, [parent, b"/."].concat(), AtFlags::empty()).map(|_| ())
    }
}

/// Whether the directory of a name is found, if that is the kernel's.
pub fn check_directory(at: (c_int, Text), target: &Target<'_>) -> Result<(), Errno> {
    Name::new(at, target)?.map_or(Ok(()), |name| name.check_directory())
}

/// Whether a file of the kernel's is there, for `linkat` with these flags.
pub fn check_there(at: (c_int, Text), target: &Target<'_>, flags: c_int) -> Result<(), Errno> {
    let Some(name) = Name::new(at, target)? else { return Ok(()) };
    let has = |flag| flags & flag != 0;
    let mut how = AtFlags::empty();
    how.set(AtFlags::SYMLINK_NOFOLLOW, !has(libc::AT_SYMLINK_FOLLOW));
    how.set(AtFlags::EMPTY_PATH, has(libc::AT_EMPTY_PATH));
    statat(name.directory, name.path, how).map(|_| ())
}

/// Why a file of a volume cannot have this name of the kernel's: a name that is there or cannot be
/// a file's comes first.
pub fn why_no_name(at: (c_int, Text), target: &Target<'_>) -> Result<Errno, Errno> {
    let Some(name) = Name::new(at, target)? else { return Ok(Errno::XDEV) };
    name.check_directory()?;
    Ok(match statat(name.directory, name.path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Errno::EXIST,
        Err(Errno::NOENT) if name.path.ends_with(b"/") => Errno::NOENT,
        Err(Errno::NOENT) => Errno::XDEV,
        Err(errno) => errno,
    })
}
