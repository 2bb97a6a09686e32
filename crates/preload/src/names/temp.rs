//! Temporary names: `mkstemp` and its kin, `mkdtemp`, `mktemp`, `tmpfile`, `tempnam`. glibc opens
//! and looks for them inside itself.

use std::ffi::{CStr, c_char, c_int};

use vfs::{Errno, Kind};

use crate::descriptors::open::open_at;
use crate::entry::pointers::Text;
use crate::entry::process::Process;
use crate::entry::program_memory;
use crate::entry::{Served, Stop, outside};
use crate::paths::{self, Target};

const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// Length of `XXXXXX`.
const RANDOM: usize = 6;
const TRIES_MAX: u32 = 1000;

/// Replaces the six `X` before the last `suffix` bytes until `make` finds a name that is free.
pub fn try_names<T>(
    process: &Process,
    template: *mut c_char,
    suffix: c_int,
    mut make: impl FnMut(Text) -> Served<T>,
) -> Served<T> {
    let text = Text(template).bytes()?;
    let suffix = usize::try_from(suffix).map_err(|_| Errno::INVAL)?;
    let start = text.len().checked_sub(suffix + RANDOM).ok_or(Errno::INVAL)?;
    if &text[start..start + RANDOM] != b"XXXXXX" {
        return Err(Stop::Errno(Errno::INVAL));
    }
    match paths::resolve(process, libc::AT_FDCWD, text, false)? {
        Target::Volume(_) => {}
        Target::Kernel => return Err(Stop::Kernel),
        Target::Elsewhere(_) | Target::Descriptor(_) => {
            return Err(Stop::Refused("temporary-name-through-symlink", Errno::NOENT));
        }
    }
    for _ in 0..TRIES_MAX {
        let mut random = [0_u8; RANDOM];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        for (index, byte) in random.iter().enumerate() {
            let letter = LETTERS[usize::from(*byte) % LETTERS.len()];
            // SAFETY: the template is the program's to change, and this lies inside it.
            unsafe { template.add(start + index).write(letter as c_char) };
        }
        match make(Text(template)) {
            Err(Stop::Errno(Errno::EXIST)) => {}
            result => return result,
        }
    }
    Err(Stop::Errno(Errno::EXIST))
}

pub fn make_file(
    process: &Process,
    template: *mut c_char,
    suffix: c_int,
    flags: c_int,
) -> Served<c_int> {
    let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    try_names(process, template, suffix, |path| {
        open_at(process, |_, _| -1, libc::AT_FDCWD, path, flags, 0o600)
    })
}

/// Whether what lies in this directory is the volume's.
pub fn directory_is_ours(process: &Process, path: &[u8]) -> bool {
    let target = paths::resolve(process, libc::AT_FDCWD, path, true);
    matches!(target, Ok(Target::Volume(found)) if found.attr.is_some_and(|attr| {
        attr.kind == Kind::Directory
    }))
}

fn is_directory(path: Text) -> bool {
    // SAFETY: all zeros is a value of this plain structure; then `stat` fills it.
    outside(|| unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::stat(path.0, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFDIR
    })
}

/// A name in `directory`, which is the volume's, that nothing has yet: in memory of the program's.
pub fn free_name(process: &Process, directory: &[u8], prefix: &[u8]) -> Served<*mut c_char> {
    let prefix = &prefix[..prefix.len().min(PREFIX_MAX)];
    let template = paths::c_text(&[directory, b"/", prefix, b"XXXXXX"].concat())?;
    let template = program_memory::copy_of(&template);
    if template.is_null() {
        return Err(Stop::Errno(Errno::NOMEM));
    }
    try_names(process, template, 0, |path| is_free(process, template, path))
}

pub fn is_free(process: &Process, template: *mut c_char, path: Text) -> Served<*mut c_char> {
    match paths::resolve(process, libc::AT_FDCWD, path.bytes()?, false)? {
        Target::Volume(found) if found.attr.is_none() => Ok(template),
        _ => Err(Stop::Errno(Errno::EXIST)),
    }
}

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// How much of a prefix `tempnam` takes.
const PREFIX_MAX: usize = 5;
/// `P_tmpdir`.
pub const DEFAULT: &CStr = c"/tmp";

/// `tempnam`'s choice: `TMPDIR`, the argument, the default, whichever first is a directory.
pub fn chosen(asked: Text) -> Text {
    // SAFETY: a text of the environment, or NULL.
    let variable = Text(unsafe { secure_getenv(c"TMPDIR".as_ptr()) });
    let mut candidates = [variable, asked].into_iter();
    candidates
        .find(|path| path.bytes().is_ok_and(|text| !text.is_empty()) && is_directory(*path))
        .unwrap_or(Text(DEFAULT.as_ptr()))
}
