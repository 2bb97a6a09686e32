//! Forked children in a node table: each holds a byte of its own, whether or not it can open the
//! liveness file still (it cannot if it has become another user, or has got another root).

use crate::protocol::Claimant;
use crate::shared_memory::table::Table;
use crate::tests::support::dir::TestDir;
use crate::tests::support::process::apart;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const PAGES: u64 = 64;

/// A folder in memory with a table.
fn with_table() -> TestDir {
    let folder = TestDir::new();
    Table::create(folder.path(), PAGES).expect("a table");
    folder
}

fn tell(to: &mut UnixStream, who: Claimant) {
    let bytes = [who.slot.to_le_bytes(), who.life.to_le_bytes()].concat();
    to.write_all(&bytes).expect("told");
}

fn told(from: &mut UnixStream) -> Claimant {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes).expect("told");
    let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    Claimant { slot: number(0), life: number(2) }
}

/// A process of its own, which ends behind this.
fn child(act: impl FnOnce()) -> i32 {
    // SAFETY: the child calls what needs no other thread, and ends.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        // SAFETY: ends this process, and nothing else.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    pid
}

/// The end of a process is seen by a lock that goes with it, maybe behind what waits for it.
fn dies(table: &Table, who: Claimant) -> bool {
    let begun = Instant::now();
    while !table.is_dead(who) && begun.elapsed() < Duration::from_mins(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
    table.is_dead(who)
}

/// A parent attaches, and forks a child, which forks another one. Each is dead when it has ended,
/// and not before, in whatever order they end: a child that shares its parent's descriptors would
/// keep its parent alive, or be dead with it.
fn each_lives_as_long_as_it_does(folder: &Path, is_closed: bool) {
    let table = Table::attach(folder).expect("attached");
    let (mut here, mut there) = UnixStream::pair().expect("a pair");
    let parent = child(|| {
        let own = Table::attach(folder).expect("attached");
        tell(&mut there, own.me());
        if is_closed {
            std::fs::rename(folder.join("live"), folder.join("away")).expect("renamed");
        }
        child(|| {
            own.forked().expect("a slot");
            tell(&mut there, own.me());
            child(|| {
                own.forked().expect("a slot");
                tell(&mut there, own.me());
                let _ = there.read(&mut [0]);
            });
            let _ = there.read(&mut [0]);
        });
        let _ = there.read(&mut [0]);
        // It does not leave: it dies.
        std::mem::forget(own);
    });
    let all = [told(&mut here), told(&mut here), told(&mut here)];
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
    assert!(all.iter().all(|one| !table.is_dead(*one)), "{all:?}");
    // A byte for each: who gets it ends, in any order.
    for left in (0..all.len()).rev() {
        here.write_all(&[0]).expect("told");
        let begun = Instant::now();
        let alive = || all.iter().filter(|one| !table.is_dead(**one)).count();
        while alive() > left && begun.elapsed() < Duration::from_mins(2) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(alive(), left, "{all:?}");
    }
    let mut status = 0;
    // SAFETY: a number of our own.
    assert_eq!(unsafe { libc::waitpid(parent, &raw mut status, 0) }, parent);
    assert_eq!(status, 0, "the parent has ended well");
    assert_eq!(table.bury(), Ok(3));
    if is_closed {
        std::fs::rename(folder.join("away"), folder.join("live")).expect("renamed");
    }
    assert!(all.iter().all(|one| dies(&table, *one)));
}

#[test]
fn children_live_as_long_as_they_do() {
    if apart(module_path!(), "children_live_as_long_as_they_do") {
        return;
    }
    let folder = with_table();
    each_lives_as_long_as_it_does(folder.path(), false);
}

#[test]
fn children_that_cannot_open_the_file_live_as_long_as_they_do() {
    if apart(module_path!(), "children_that_cannot_open_the_file_live_as_long_as_they_do") {
        return;
    }
    let folder = with_table();
    each_lives_as_long_as_it_does(folder.path(), true);
    // What is at the file's place may be another file.
    let table = Table::attach(folder.path()).expect("attached");
    std::fs::rename(folder.at("live"), folder.at("away")).expect("renamed");
    std::fs::write(folder.at("live"), []).expect("another file");
    let (mut here, mut there) = UnixStream::pair().expect("a pair");
    let pid = child(|| {
        table.forked().expect("a slot");
        tell(&mut there, table.me());
        let _ = there.read(&mut [0]);
    });
    let other = told(&mut here);
    assert!(!table.is_dead(other), "it holds its byte in the file that is the table's");
    here.write_all(&[0]).expect("told");
    assert!(dies(&table, other));
    // SAFETY: a number of our own.
    assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
}
