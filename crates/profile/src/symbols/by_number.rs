//! `syscall`: those of a file's calls that programs make by number. All others go on. Which kind a
//! number is, and which of its arguments names the file, says the table (crate `calls`).

use std::ffi::{c_char, c_int, c_long};

use calls::Argument;
use record::Kind;

use crate::paths;
use crate::symbols::bytes::control;
use crate::symbols::timed;
use crate::timing::{at, closed, copied, on, opened};

/// Makes [`kind`] of the table's rows.
macro_rules! kinds {
    ($(
        $number:literal $name:ident [$($argument:expr),*] $how:ident $(($($body:tt)*))?
        $(numbers($numbers:ident))? $(split($split:ident))? $(kind($kind:ident))?
        $(as [$($symbol:ident)*])?;
    )*) => {
        /// The kind of a call; `None`: it is none on files.
        fn kind(number: c_long) -> Option<Kind> {
            match number {
                $($($number => Some(Kind::$kind),)?)*
                _ => None,
            }
        }
    };
}
calls::for_each_row!(kinds);

const HERE: c_int = libc::AT_FDCWD;

/// What names a call's file.
enum Named {
    /// A descriptor.
    Descriptor(c_int),
    /// A path, from a directory on.
    Path(c_int, *const c_char),
}

/// Which of the arguments names the file: of two paths the new one of a link, else the first; of
/// two descriptors the one that is read, but for a copy.
fn named(kind: Kind, arguments: &[Argument], given: [usize; 4]) -> Option<Named> {
    use Argument::{Dir, Fd, Path, Text};
    let [a, b, c, d] = given;
    let path = |dirfd: c_int, path: usize| Some(Named::Path(dirfd, path as *const c_char));
    match (kind, arguments) {
        (Kind::Link, [Path, Path]) | (_, [Text, Path, ..]) => path(HERE, b),
        (Kind::Link, [Dir, Path, Dir, Path, ..]) => path(c as c_int, d),
        (_, [Text, Dir, Path, ..]) => path(b as c_int, c),
        (_, [Dir, Path, ..]) => path(a as c_int, b),
        (_, [Path, ..]) => path(HERE, a),
        (Kind::Sendfile, _) => Some(Named::Descriptor(b as c_int)),
        (Kind::CopyRange, _) => Some(Named::Descriptor(c as c_int)),
        (_, [Fd, ..]) => Some(Named::Descriptor(a as c_int)),
        _ => None,
    }
}

/// Times a call by number.
fn call(number: c_long, given: [usize; 4], next: impl FnOnce() -> c_long) -> c_long {
    let row = usize::try_from(number).ok().and_then(calls::row);
    let (Some(row), Some(kind)) = (row, kind(number)) else { return next() };
    let answer = |fd: c_long| fd as c_int;
    match (kind, named(kind, row.arguments, given)) {
        (Kind::Close, Some(Named::Descriptor(fd))) => closed(kind, fd, next),
        (Kind::Dup, Some(Named::Descriptor(fd))) => copied(fd, || next() as c_int).into(),
        (Kind::Fcntl, Some(Named::Descriptor(fd))) => {
            control(fd, given[1] as c_int, || next() as c_int).into()
        }
        (Kind::Open, Some(Named::Path(dirfd, path))) => opened(kind, (dirfd, path), answer, next),
        (Kind::Chdir, Some(named)) => {
            let changed = match named {
                Named::Descriptor(fd) => on(kind, fd, next),
                Named::Path(dirfd, path) => at(kind, dirfd, path, next),
            };
            paths::changed_directory();
            changed
        }
        (_, Some(Named::Descriptor(fd))) => on(kind, fd, next),
        (_, Some(Named::Path(dirfd, path))) => at(kind, dirfd, path, next),
        (_, None) => next(),
    }
}

timed! {
    fn [syscall](
        number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize
    ) -> c_long = |next| call(number, [a, b, c, d], next);
}
