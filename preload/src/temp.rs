//! Temporary names: `mkstemp` and its kin, `mkdtemp`, `mktemp`. glibc opens them inside itself.

use std::ffi::{c_char, c_int};

use vfs::{Errno, Kind};

use crate::entry::{Served, Stop, interpose};
use crate::open::open_at;
use crate::paths::{self, Target};
use crate::pointers::Text;
use crate::process::Process;

const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// Length of `XXXXXX`.
const RANDOM: usize = 6;
const TRIES_MAX: u32 = 1000;

/// Replaces the six `X` before the last `suffix` bytes until `make` finds a name that is free.
fn try_names<T>(
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

fn make_file(
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

interpose! {
    fn [mkstemp, mkstemp64](template: *mut c_char) -> c_int = |process, _| {
        make_file(process, template, 0, 0)
    }
    fn [mkostemp, mkostemp64](template: *mut c_char, flags: c_int) -> c_int = |process, _| {
        make_file(process, template, 0, flags)
    }
    fn [mkstemps, mkstemps64](template: *mut c_char, suffix: c_int) -> c_int = |process, _| {
        make_file(process, template, suffix, 0)
    }
    fn [mkostemps, mkostemps64](template: *mut c_char, suffix: c_int, flags: c_int) -> c_int
    = |process, _| {
        make_file(process, template, suffix, flags)
    }
    fn [mkdtemp](template: *mut c_char) -> *mut c_char = |process, _| {
        try_names(process, template, 0, |path| {
            match paths::resolve(process, libc::AT_FDCWD, path.bytes()?, false)? {
                Target::Volume(found) => {
                    process.user().make(&found, Kind::Directory, 0o700, 0)?;
                    Ok(template)
                }
                _ => Err(Stop::Errno(Errno::NOENT)),
            }
        })
    }
    fn [mktemp](template: *mut c_char) -> *mut c_char = |process, _| {
        try_names(process, template, 0, |path| {
            match paths::resolve(process, libc::AT_FDCWD, path.bytes()?, false)? {
                Target::Volume(found) if found.attr.is_none() => Ok(template),
                _ => Err(Stop::Errno(Errno::EXIST)),
            }
        })
    }
}
