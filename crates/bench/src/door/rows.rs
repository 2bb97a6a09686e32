//! What `bench door` compares, and what each row is to be at most.

use super::calls::{Call, Function, Place, Turn};

/// A worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// Without Solera.
    Plain,
    /// The same, once more: the control.
    PlainAgain,
    /// On a volume, with one thread.
    Volume,
    /// On a volume, beside a second thread.
    Threads,
}

impl Who {
    pub const ALL: [Self; 4] = [Self::Plain, Self::PlainAgain, Self::Volume, Self::Threads];

    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "glibc",
            Self::PlainAgain => "glibc, again",
            Self::Volume => "a volume",
            Self::Threads => "a volume, two threads",
        }
    }
}

/// How a row is to compare with its peer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Target {
    /// So many nanoseconds more, at most.
    More(f64),
    /// So many times, at most.
    Times(f64),
    /// It has none.
    Shown,
}

/// A worker's turn.
pub type Work = (Who, Turn);

/// A row: its own work, and what it is compared with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    pub table: &'static str,
    pub what: Call,
    pub how: &'static str,
    pub own: Work,
    pub peer: Work,
    /// The peer's work once more, by another worker.
    pub control: Option<Work>,
    pub target: Target,
}

/// By the door, over the shortcut.
const DOOR: &str = "by the door, over the shortcut";
/// The same beside a second thread.
const THREADS: &str = "by the door beside a second thread, over the shortcut";
/// What the kernel serves, over glibc.
const PASSED: &str = "passed on to the kernel, over glibc alone";
/// Streams, of tmpfs.
const STREAMS: &str = "glibc's streams on a volume, of those on tmpfs";

/// All rows.
pub fn all() -> Vec<Row> {
    let door = |who, table, what, target| {
        let of = |function| (who, Turn { call: what, function, place: Place::Here });
        let (own, peer) = (of(Function::Own), of(Function::First));
        Row { table, what, how: "door", own, peer, control: None, target }
    };
    let mut rows = Vec::new();
    for what in [Call::Read, Call::Pread, Call::Write, Call::Pwrite, Call::Lseek] {
        rows.push(door(Who::Volume, DOOR, what, Target::More(5.0)));
    }
    // The kernel's `fstat`, by its number.
    let mut fstat = door(Who::Volume, DOOR, Call::FstatByNumber, Target::More(5.0));
    fstat.peer.1.call = Call::Fstat;
    rows.push(fstat);
    // Another body than the shortcut's.
    rows.push(door(Who::Volume, DOOR, Call::Fstat, Target::Shown));
    rows.push(door(Who::Volume, DOOR, Call::Stat, Target::Shown));
    for what in [Call::Read, Call::Pread, Call::Write, Call::Pwrite, Call::Lseek] {
        rows.push(door(Who::Threads, THREADS, what, Target::More(16.0)));
    }
    for (what, function, how) in [
        (Call::Lseek, Function::First, "shortcut"),
        (Call::Lseek, Function::Own, "door"),
        (Call::Pread, Function::First, "shortcut"),
        (Call::Pread, Function::Own, "door"),
        (Call::Fstat, Function::First, "shortcut"),
        (Call::Fstat, Function::Own, "door"),
        (Call::Stat, Function::First, "shortcut"),
        (Call::Stat, Function::Own, "door"),
        (Call::Access, Function::Own, "door"),
        (Call::OpenClose, Function::First, "shortcut"),
        (Call::OpenClose, Function::Own, "door"),
    ] {
        let of = |who| (who, Turn { call: what, function, place: Place::Outside });
        let (own, peer, control) = (of(Who::Volume), of(Who::Plain), Some(of(Who::PlainAgain)));
        rows.push(Row { table: PASSED, what, how, own, peer, control, target: Target::More(6.0) });
    }
    for what in [Call::Fputc, Call::Fgetc, Call::Getline] {
        let of = |who| (who, Turn { call: what, function: Function::First, place: Place::Here });
        let (own, peer, control) = (of(Who::Volume), of(Who::Plain), Some(of(Who::PlainAgain)));
        let target = Target::Times(1.1);
        rows.push(Row { table: STREAMS, what, how: "stream", own, peer, control, target });
    }
    rows
}
