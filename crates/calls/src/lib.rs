//! The one table of system calls: a row for every number that x86-64's kernel has.
//!
//! What a call's arguments are, what it does to descriptor numbers, who serves it, what the profile
//! calls it, and which functions of the C library that make it the library exports ([`ROWS`]). From
//! it come the dispatcher by number, the page of what is supported, and the test of each call's
//! wrong arguments.
//!
//! Constant data: no allocation, no lock, no call. A number from 0 to [`LAST`] without a row, but
//! those that the kernel left out, does not compile. Numbers behind it are passed on ([`row`]).

#![no_std]

mod composed;
mod table;

pub use composed::COMPOSED;

/// What an argument is. A length stands at the index that is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Argument {
    /// A descriptor.
    Fd,
    /// The descriptor of the directory where the path behind it begins, or `AT_FDCWD`.
    Dir,
    /// A path that ends with a NUL.
    Path,
    /// Another text that ends with a NUL.
    Text,
    /// Texts, of which the last is NULL.
    Texts,
    /// Bytes that are read; which argument says how many.
    In(usize),
    /// Bytes that are written; which argument says how many.
    Out(usize),
    /// Pieces whose bytes are read (`struct iovec`); which argument says how many.
    ListIn(usize),
    /// Pieces whose bytes are written; which argument says how many.
    ListOut(usize),
    /// A structure of so many bytes that is read, or NULL.
    Reads(usize),
    /// A structure of so many bytes that is written, or NULL.
    Writes(usize),
    /// A structure of so many bytes that is read and written, or NULL.
    Updates(usize),
    /// A pointer to something of another form.
    Pointer,
    /// An address in the caller's memory whose bytes the call does not touch.
    Address,
    /// A number of bytes or of items.
    Len,
    /// A place in a file, or a distance in it.
    Offset,
    /// Permission bits and the file's type.
    Mode,
    /// Flags: the bits that are known. With another one the call fails, `EINVAL` for most.
    Flags(u32),
    /// Flags of which unknown ones are ignored, or depend on something else.
    AnyFlags,
    /// Another number: a command, an identity, a signal.
    Number,
}

/// What it does to descriptor numbers, where the kernel serves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbers {
    /// Nothing.
    Unchanged,
    /// The answer is a number that the program gets.
    Gives,
    /// It writes two numbers that the program gets.
    Pair,
    /// It makes numbers in another way.
    Makes,
    /// It begins a thread, or a process that may share the numbers.
    Thread,
    /// It is given a number, which its body does not look up.
    Takes,
    /// It looks at numbers that are no arguments, or forbids that numbers are closed.
    Looks,
    /// It closes the number that it is given.
    Closes,
    /// It replaces its second argument, and gives it.
    Replaces,
    /// It closes a range.
    ClosesRange,
    /// What is open is handed on to another program or process.
    HandsOn,
}

/// What the library has to know of a call that the kernel serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// What is mapped where, or how.
    Mappings,
    /// Processes and threads.
    Processes,
    /// Actions and masks.
    Signals,
    /// What the process may do from now on.
    Limits,
}

/// Who serves a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// The volume, if it concerns one; else the kernel.
    Volume,
    /// The kernel. If it names something on a volume it fails with this error, for this reason.
    Refused(&'static str, &'static str),
    /// The kernel. By number it fails with `EOPNOTSUPP` if its first argument is a descriptor of a
    /// volume; a path on a volume is not seen.
    Unserved(&'static str),
    /// The kernel, and the library knows of it.
    Watched(What),
    /// The kernel.
    Kernel,
}

/// What the second engine does when a call that the volume leaves to the kernel is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Split {
    /// Nothing.
    Passed,
    /// What is staged goes to its place first.
    Drained,
    /// All files are handed over to the kernel first.
    HandedOver,
    /// What its own arm says.
    Own,
}

/// A system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its number.
    pub number: usize,
    /// The kernel's name.
    pub name: &'static str,
    /// What its arguments are, from the first.
    pub arguments: &'static [Argument],
    /// Who serves it.
    pub server: Server,
    /// What it does to numbers.
    pub numbers: Numbers,
    /// What the second engine does.
    pub split: Split,
    /// The kind of call that it is in a profile, by the name of `record::Kind`'s variant.
    pub kind: Option<&'static str>,
    /// The functions of the C library that make it and that the library exports.
    pub symbols: &'static [&'static str],
}

/// Functions of the C library that are no system call of one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Their names.
    pub symbols: &'static [&'static str],
    /// What they do to numbers.
    pub numbers: Numbers,
    /// What the second engine does.
    pub split: Split,
}

/// The first value given, or the second.
macro_rules! or {
    ([$value:expr] $default:expr) => {
        $value
    };
    ([] $default:expr) => {
        $default
    };
}

/// Who serves a row.
macro_rules! server {
    (volume $body:tt) => {
        Server::Volume
    };
    (refused ($($body:ident)+, $error:literal, $reason:literal)) => {
        Server::Refused($error, $reason)
    };
    (unserved ($reason:literal)) => {
        Server::Unserved($reason)
    };
    (watched ($what:ident)) => {
        Server::Watched(What::$what)
    };
    (kernel) => {
        Server::Kernel
    };
}

/// The rows, as constant data.
macro_rules! rows {
    ($(
        $number:literal $name:ident [$($argument:expr),*] $how:ident $(($($body:tt)*))?
        $(numbers($numbers:ident))? $(split($split:ident))? $(kind($kind:ident))?
        $(as [$($symbol:ident)*])?;
    )*) => {
        /// Every row, by rising number.
        pub const ROWS: &[Row] = {
            use Argument::*;
            &[$(Row {
                number: $number,
                name: stringify!($name),
                arguments: &[$($argument),*],
                server: server!($how $(($($body)*))?),
                numbers: or!([$(Numbers::$numbers)?] Numbers::Unchanged),
                split: or!([$(Split::$split)?] Split::Passed),
                kind: or!([$(Some(stringify!($kind)))?] None),
                symbols: or!([$(&[$(stringify!($symbol)),*])?] &[]),
            }),*]
        };
    };
}
for_each_row!(rows);

/// The highest number that has a row.
pub const LAST: usize = ROWS[ROWS.len() - 1].number;

/// Numbers that x86-64 has not, so that later ones are the same on all machines: first and last.
const LEFT_OUT: (usize, usize) = (337, 423);

/// Where the row of a number is; [`NONE`]: there is none.
const PLACES: [u16; LAST + 1] = {
    let mut places = [NONE; LAST + 1];
    let mut at = 0;
    while at < ROWS.len() {
        let number = ROWS[at].number;
        assert!(places[number] == NONE, "two rows have this number");
        assert!(at == 0 || ROWS[at - 1].number < number, "the rows are not in order");
        places[number] = at as u16;
        at += 1;
    }
    let mut number = 0;
    while number <= LAST {
        let left_out = LEFT_OUT.0 <= number && number <= LEFT_OUT.1;
        assert!((places[number] == NONE) == left_out, "a number without a row");
        number += 1;
    }
    places
};
const NONE: u16 = u16::MAX;

/// The row of a number; `None`: the kernel has it not, or only a later kernel has.
pub const fn row(number: usize) -> Option<&'static Row> {
    if number > LAST || PLACES[number] == NONE {
        return None;
    }
    Some(&ROWS[PLACES[number] as usize])
}

impl Row {
    /// Whether the library must see the call: it serves or refuses it, or the call changes what the
    /// library keeps of numbers, mappings, processes, signals, identity or limits.
    pub const fn wanted(&self) -> bool {
        !matches!(self.server, Server::Kernel) || !matches!(self.numbers, Numbers::Unchanged)
    }

    /// Whether one of its arguments is a descriptor.
    pub const fn has_descriptor(&self) -> bool {
        let mut at = 0;
        while at < self.arguments.len() {
            if matches!(self.arguments[at], Argument::Fd | Argument::Dir) {
                return true;
            }
            at += 1;
        }
        false
    }
}

/// By number, whether a call concerns the volume only if its first argument is a descriptor of it.
pub const fn is_of_descriptor(number: usize) -> bool {
    number <= LAST && OF_DESCRIPTOR[number / 64] >> (number % 64) & 1 != 0
}

const OF_DESCRIPTOR: [u64; LAST / 64 + 1] = {
    let mut bits = [0; LAST / 64 + 1];
    let mut at = 0;
    while at < ROWS.len() {
        let Row { number, name, arguments, server, numbers, .. } = ROWS[at];
        let mut others = 1;
        while others < arguments.len() {
            if matches!(arguments[others], Argument::Fd | Argument::Dir | Argument::Path) {
                break;
            }
            others += 1;
        }
        // The library follows the working directory.
        let changes = !matches!(numbers, Numbers::Unchanged) || is_same(name, "fchdir");
        let is_alone = !arguments.is_empty()
            && matches!(arguments[0], Argument::Fd)
            && others == arguments.len();
        if is_alone && !changes && matches!(server, Server::Volume) {
            bits[number / 64] |= 1 << (number % 64);
        }
        at += 1;
    }
    bits
};

/// [`Row::wanted`], by number. A number without a row may make or close numbers: it is wanted.
pub const fn wanted(number: usize) -> bool {
    match row(number) {
        Some(row) => row.wanted(),
        None => number > LAST,
    }
}

/// Whether the two are the same.
const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

const fn holds(list: &[&str], name: &str) -> bool {
    let mut at = 0;
    while at < list.len() {
        if is_same(list[at], name) {
            return true;
        }
        at += 1;
    }
    false
}

/// What the table says of an exported function of the C library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// What it does to numbers.
    pub numbers: Numbers,
    /// What the second engine does.
    pub split: Split,
    /// It makes this one system call; else it is composed of several.
    pub is_call: bool,
}

/// What the table says of the function of this name.
///
/// # Panics
///
/// No row and no function composed of calls has the name. It is for constants: there it is an error
/// at compile time.
pub const fn named(name: &str) -> Named {
    let mut at = 0;
    while at < ROWS.len() {
        let Row { symbols, numbers, split, .. } = ROWS[at];
        if holds(symbols, name) {
            return Named { numbers, split, is_call: true };
        }
        at += 1;
    }
    let mut at = 0;
    while at < COMPOSED.len() {
        let Function { symbols, numbers, split } = COMPOSED[at];
        if holds(symbols, name) {
            return Named { numbers, split, is_call: false };
        }
        at += 1;
    }
    panic!("a name that is neither in the table nor among the functions composed of calls");
}

/// The row of this kernel's name.
///
/// # Panics
///
/// There is none: an error at compile time, as above.
pub const fn called(name: &str) -> &'static Row {
    let mut at = 0;
    while at < ROWS.len() {
        if is_same(ROWS[at].name, name) {
            return &ROWS[at];
        }
        at += 1;
    }
    panic!("no system call has this name");
}

#[cfg(test)]
mod tests;
