//! Descriptions over fork and exec, and what is left of processes that end in the middle.

use crate::common::{Place, child, get, new_file, put, role, test_name};
use rustix::io::Errno;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use vfs::{
    Attached, Desc, EntryName, FileSystem, FileSystemExt, IoOffset, Kind, LockKind, LockOwner,
    Locks, NewNode, Node, OpenFlags, RecordLock, Removes, RenameFlags, UserIn, UserOut, Whence,
};
use volume::{AttachOptions, FsckOptions, Mode, Volume, attach, detach_dead, fsck, info, resume};

const DESC: &str = "SOLERA_TEST_DESC";
const TOKEN: &str = "SOLERA_TEST_TOKEN";

fn open(volume: &Volume, name: &str, flags: i32) -> Desc {
    let node = volume.lookup(volume.root(), name.as_bytes()).expect("found");
    volume.open(node.into(), OpenFlags(flags), None).expect("opened")
}

fn read(volume: &Volume, desc: Desc, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let read =
        volume.read(desc, &mut [UserOut::new(&mut bytes)], IoOffset::POSITION).expect("read");
    bytes.truncate(read);
    bytes
}

fn write(volume: &Volume, desc: Desc, bytes: &[u8]) {
    assert_eq!(volume.write(desc, &[UserIn::new(bytes)], IoOffset::POSITION), Ok(bytes.len()));
}

/// Forks as a face does; the child runs `body` and ends without destructors.
fn fork(volume: &Volume, held: &[Desc], body: impl FnOnce()) -> libc::pid_t {
    let ticket = volume.fork_prepare(held).expect("prepared");
    // SAFETY: the child calls this crate and `_exit` only; a panic ends it by a signal.
    match unsafe { libc::fork() } {
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                volume.fork_child(ticket).expect("a child's slot");
                body();
            }));
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        pid => {
            assert!(pid > 0);
            volume.fork_parent(ticket, Some(pid as u32));
            pid
        }
    }
}

fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is valid for writing.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

#[test]
fn a_child_shares_the_position_and_keeps_the_file() {
    if role("fork") {
        let volume = Place::of_parent().attach();
        put(&volume, "a", b"one two three");
        let desc = open(&volume, "a", libc::O_RDWR);
        assert_eq!(read(&volume, desc, 4), b"one ");
        let pid = fork(&volume, &[desc], || {
            assert_eq!(read(&volume, desc, 4), b"two ");
            volume.detach().expect("detached");
        });
        assert_eq!(wait(pid), 0);
        assert_eq!(read(&volume, desc, 5), b"three");
        assert_eq!(volume.seek(desc, 0, Whence::Set), Ok(0));
        // A daemon: the parent is gone before the child does anything.
        let pid = fork(&volume, &[desc], || {
            std::thread::sleep(Duration::from_millis(100));
            write(&volume, desc, b"ONE");
            volume.close(desc).expect("closed");
            volume.detach().expect("detached");
        });
        volume.close(desc).expect("closed");
        volume.detach().expect("detached");
        assert_eq!(wait(pid), 0);
        return;
    }
    let place = Place::formatted("fork");
    let name = "a_child_shares_the_position_and_keeps_the_file";
    assert!(child(name, "fork", &place).wait().expect("waited").success());
    assert_eq!(get(&place.attach(), "a").expect("read"), b"ONE two three");
}

#[test]
fn a_failed_or_killed_child_leaves_nothing() {
    if role("fork-killed") {
        let volume = Place::of_parent().attach();
        let node = put(&volume, "a", b"contents");
        let desc = open(&volume, "a", libc::O_RDWR);
        let ticket = volume.fork_prepare(&[desc]).expect("prepared");
        volume.fork_parent(ticket, None);
        // A child that dies before it says that it is there.
        let ticket = volume.fork_prepare(&[desc]).expect("prepared");
        // SAFETY: the child ends at once.
        match unsafe { libc::fork() } {
            // SAFETY: ends the process at once.
            0 => unsafe { libc::_exit(0) },
            pid => {
                volume.fork_parent(ticket, Some(pid as u32));
                wait(pid);
            }
        }
        let pid = fork(&volume, &[desc], || {
            // SAFETY: ends this process.
            unsafe { libc::raise(libc::SIGKILL) };
        });
        wait(pid);
        volume.remove(&EntryName::new(volume.root(), b"a"), Removes::Name).expect("unlinked");
        volume.close(desc).expect("closed");
        // The killed one holds the file until it is found, at the latest by the next to attach.
        assert!(volume.describe(desc).is_ok());
        detach_dead(Place::of_parent().path()).expect("recovered");
        assert_eq!(volume.describe(desc), Err(Errno::BADF));
        assert_eq!(volume.attributes(node), Err(Errno::STALE));
        return;
    }
    let place = Place::formatted("fork-killed");
    let name = "a_failed_or_killed_child_leaves_nothing";
    assert!(child(name, "fork-killed", &place).wait().expect("waited").success());
}

/// A fork waits for nothing: the C library's locks are held in it. What a child held that ended
/// without a slot is given back at the next fork.
#[test]
fn a_child_that_never_came_is_found_at_the_next_fork() {
    if role("fork-late") {
        let volume = Place::of_parent().attach();
        put(&volume, "a", b"contents");
        let desc = open(&volume, "a", libc::O_RDWR);
        let ticket = volume.fork_prepare(&[desc]).expect("prepared");
        // SAFETY: the child ends at once.
        match unsafe { libc::fork() } {
            // SAFETY: ends the process at once.
            0 => unsafe { libc::_exit(0) },
            pid => {
                wait(pid);
                volume.fork_parent(ticket, Some(pid as u32));
            }
        }
        volume.close(desc).expect("closed");
        assert!(volume.describe(desc).is_ok(), "it was looked for in the fork");
        let ticket = volume.fork_prepare(&[]).expect("prepared");
        assert_eq!(volume.describe(desc), Err(Errno::BADF));
        volume.fork_parent(ticket, None);
        volume.detach().expect("detached");
        return;
    }
    let place = Place::formatted("fork-late");
    let name = "a_child_that_never_came_is_found_at_the_next_fork";
    assert!(child(name, "fork-late", &place).wait().expect("waited").success());
}

/// A parent says which process its child is when the fork has come back. By then the child may have
/// ended, and its place be another's: that one's number became the dead child's, and its parent
/// took it for ended, or locks were said to be a process's that there was no more.
#[test]
fn a_parent_that_comes_late_names_no_other_process() {
    if role("fork-named") {
        let volume = Place::of_parent().attach();
        let begins = |ticket, pipe: &(std::io::PipeReader, std::io::PipeWriter)| {
            // SAFETY: the child calls this crate, reads and ends.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let come = volume.fork_child(ticket).is_ok();
                let done = std::io::Read::read(&mut &pipe.0, &mut [0]).is_ok();
                let done = come && done && volume.detach().is_ok();
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(!done)) };
            }
            pid
        };
        let ends = |pid, pipe: &(std::io::PipeReader, std::io::PipeWriter)| {
            std::io::Write::write_all(&mut &pipe.1, b"x").expect("told");
            assert_eq!(wait(pid), 0);
        };
        let pipe = std::io::pipe().expect("a pipe");
        let first = volume.fork_prepare(&[]).expect("prepared");
        let gone = begins(first, &pipe);
        ends(gone, &pipe);
        // A child that has come to the same place, and one that is still to come.
        for comes in [true, false] {
            let second = volume.fork_prepare(&[]).expect("prepared");
            let there = comes.then(|| begins(second, &pipe));
            let others = || {
                let own = std::process::id();
                let path = Place::of_parent().path().to_owned();
                let all = info(&path).expect("info").attached;
                all.into_iter().map(|one| one.pid).filter(|pid| *pid != own).collect::<Vec<_>>()
            };
            let expected: Vec<u32> = there.iter().map(|pid| *pid as u32).collect();
            while others() != expected {
                std::thread::yield_now();
            }
            volume.fork_parent(first, Some(gone as u32));
            assert_eq!(others(), expected, "named after a process that has ended");
            // Looks for children that will not come.
            let third = volume.fork_prepare(&[]).expect("prepared");
            volume.fork_parent(third, None);
            let pid = there.unwrap_or_else(|| begins(second, &pipe));
            volume.fork_parent(second, Some(pid as u32));
            ends(pid, &pipe);
        }
        volume.detach().expect("detached");
        return;
    }
    let place = Place::formatted("fork-named");
    let name = "a_parent_that_comes_late_names_no_other_process";
    assert!(child(name, "fork-named", &place).wait().expect("waited").success());
}

#[test]
fn a_parent_that_ends_waits_for_a_child_that_comes_late() {
    if role("fork-slow") {
        let volume = Place::of_parent().attach();
        put(&volume, "a", b"before");
        let desc = open(&volume, "a", libc::O_RDWR);
        let (end, mut start) = std::io::pipe().expect("a pipe");
        let ticket = volume.fork_prepare(&[desc]).expect("prepared");
        // SAFETY: the child calls this crate, reads and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            drop(start);
            let mut byte = [0];
            let come = std::io::Read::read(&mut &end, &mut byte).is_ok()
                && volume.fork_child(ticket).is_ok();
            if come {
                write(&volume, desc, b"behind");
            }
            let done = come && volume.detach().is_ok();
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(!done)) };
        }
        volume.fork_parent(ticket, Some(pid as u32));
        let other = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            std::io::Write::write_all(&mut start, b"x").expect("told");
        });
        volume.detach().expect("detached");
        other.join().expect("told");
        assert_eq!(wait(pid), 0);
        return;
    }
    let place = Place::formatted("fork-slow");
    let name = "a_parent_that_ends_waits_for_a_child_that_comes_late";
    assert!(child(name, "fork-slow", &place).wait().expect("waited").success());
    assert_eq!(get(&place.attach(), "a").expect("read"), b"behind");
}

#[test]
fn a_child_that_nobody_announced_harms_nothing_when_it_ends() {
    if role("raw-fork") {
        let volume = Place::of_parent().attach();
        put(&volume, "a", b"contents");
        let desc = open(&volume, "a", libc::O_RDONLY);
        // SAFETY: the child calls this crate and `_exit` only.
        match unsafe { libc::fork() } {
            0 => {
                let result = volume.detach();
                drop(volume);
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(result.is_err())) }
            }
            pid => assert_eq!(wait(pid), 0),
        }
        assert_eq!(read(&volume, desc, 8), b"contents");
        return;
    }
    let place = Place::formatted("raw-fork");
    let name = "a_child_that_nobody_announced_harms_nothing_when_it_ends";
    assert!(child(name, "raw-fork", &place).wait().expect("waited").success());
}

#[test]
fn an_exec_keeps_slot_descriptions_and_locks() {
    let name = "an_exec_keeps_slot_descriptions_and_locks";
    if role("exec") {
        let volume = Place::of_parent().attach();
        put(&volume, "a", b"one two three");
        let desc = open(&volume, "a", libc::O_RDWR);
        assert_eq!(read(&volume, desc, 4), b"one ");
        let token = volume.exec_prepare().expect("prepared");
        volume.exec_failed();
        let again = volume.exec_prepare().expect("prepared");
        assert_eq!(token, again);
        // Not detached: the image goes, the attachment stays.
        std::mem::forget(Arc::clone(&volume));
        let error = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", &test_name(name), "--test-threads=1"])
            .env("SOLERA_TEST_ROLE", "resumed")
            .env(TOKEN, token)
            .env(DESC, volume.hand_over(desc).expect("a name").0.to_string())
            .exec();
        panic!("exec failed: {error}");
    }
    if role("resumed") {
        let volume = resume(&std::env::var(TOKEN).expect("a token")).expect("resumed");
        let text = std::env::var(DESC).expect("a description");
        let desc = volume.adopt(text.parse().expect("a number")).expect("adopted");
        assert_eq!(read(&volume, desc, 4), b"two ");
        volume.close(desc).expect("closed");
        put(&volume, "b", b"resumed");
        volume.detach().expect("detached");
        return;
    }
    let place = Place::formatted("exec");
    let witness = place.attach();
    assert!(child(name, "exec", &place).wait().expect("waited").success());
    assert_eq!(get(&witness, "b").expect("read"), b"resumed");
    drop(witness);
    assert!(resume("1:3:0:1:1:strict:0:volatile:/nowhere").is_err());
    assert!(resume("nonsense").is_err());
}

#[test]
fn writes_at_a_shared_position_follow_one_another() {
    if role("shared") {
        let volume = Place::of_parent().attach();
        let desc = open(&volume, "a", libc::O_RDWR);
        let pids: Vec<_> = (1..=4_u8)
            .map(|fill| {
                fork(&volume, &[desc], || {
                    for _ in 0..200 {
                        write(&volume, desc, &[fill; 100]);
                    }
                    volume.detach().expect("detached");
                })
            })
            .collect();
        assert!(pids.into_iter().all(|pid| wait(pid) == 0));
        return;
    }
    let place = Place::formatted("shared");
    put(&place.attach(), "a", b"");
    let name = "writes_at_a_shared_position_follow_one_another";
    assert!(child(name, "shared", &place).wait().expect("waited").success());
    let bytes = get(&place.attach(), "a").expect("read");
    assert_eq!(bytes.len(), 4 * 200 * 100);
    assert!(bytes.chunks(100).all(|piece| piece[0] != 0 && piece.iter().all(|b| *b == piece[0])));
    for fill in 1..=4 {
        assert_eq!(bytes.chunks(100).filter(|piece| piece[0] == fill).count(), 200);
    }
}

/// What may be answered while others change the same names.
fn tolerate<T>(result: Result<T, Errno>) {
    if let Some(errno) = result.err() {
        let known =
            [Errno::NOENT, Errno::EXIST, Errno::STALE, Errno::NOTEMPTY, Errno::NOSPC, Errno::AGAIN];
        assert!(known.contains(&errno), "{errno}");
    }
}

/// One random operation on a few names in a few directories.
fn work(volume: &Volume, draw: &mut impl FnMut(u64) -> u64) {
    let root = volume.root();
    let (name, other) = (format!("f{}", draw(12)), format!("f{}", draw(12)));
    let (link, directory) = (format!("l{}", draw(5)), format!("d{}", draw(3)));
    let dir = volume.lookup(root, directory.as_bytes());
    let new_dir = NewNode { kind: Kind::Directory, ..new_file() };
    let Ok(dir) = dir.or_else(|_| volume.create(root, directory.as_bytes(), &new_dir)) else {
        return;
    };
    let file = volume.lookup(dir, name.as_bytes());
    match draw(9) {
        0 | 1 => tolerate(volume.create(dir, name.as_bytes(), &new_file())),
        2 => tolerate(volume.remove(&EntryName::new(dir, name.as_bytes()), Removes::Name)),
        3 => {
            let flags = RenameFlags::default();
            tolerate(volume.rename(
                &EntryName::new(dir, name.as_bytes()),
                &EntryName::new(dir, other.as_bytes()),
                flags,
            ));
        }
        4 => {
            tolerate(
                volume.remove(&EntryName::new(root, directory.as_bytes()), Removes::Directory),
            );
        }
        5 => tolerate(file.and_then(|file| volume.truncate(file, draw(20_000)))),
        6 => tolerate(file.and_then(|file| volume.link(file, root, link.as_bytes()))),
        7 => tolerate(volume.remove(&EntryName::new(root, link.as_bytes()), Removes::Name)),
        _ => {
            let Ok(desc) =
                file.and_then(|file| volume.open(file.into(), OpenFlags(libc::O_RDWR), None))
            else {
                return;
            };
            let bytes = vec![draw(256) as u8; draw(30_000) as usize + 1];
            tolerate(volume.write(desc, &[UserIn::new(&bytes)], IoOffset::offset(draw(100_000))));
            let kind = LockKind::Write;
            let lock = RecordLock { kind, start: draw(10), end: 20, pid: 0 };
            tolerate(volume.record_lock(desc, LockOwner::Description, &lock, draw(2) == 0));
            tolerate(volume.flock(desc, LockKind::Write, false));
            volume.close(desc).expect("closed");
        }
    }
}

fn work_for_ever(seed: u64, mode: Mode) {
    // A panic of one thread must end the process, where the test sees it.
    std::panic::set_hook(Box::new(|what| {
        eprintln!("{what}");
        std::process::exit(3);
    }));
    let options = AttachOptions { mode, ..AttachOptions::default() };
    let volume = attach(Place::of_parent().path(), &options).expect("attached");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let volume = &volume;
            let mut draw = crate::common::random(seed * 2 + thread);
            scope.spawn(move || {
                loop {
                    work(volume, &mut draw);
                }
            });
        }
    });
}

/// A child that works for ever, killed when dropped: also when the test fails.
struct Worker(std::process::Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn remove_all(volume: &Volume, dir: Node) {
    let mut entries = Vec::new();
    volume
        .read_dir(dir, 0, &mut |entry| {
            if entry.cookie > 2 {
                entries.push((entry.name.to_vec(), entry.kind));
            }
            true
        })
        .expect("listed");
    for (name, kind) in entries {
        if kind == Kind::Directory {
            remove_all(volume, volume.lookup(dir, &name).expect("found"));
            volume.remove(&EntryName::new(dir, &name), Removes::Directory).expect("removed");
        } else {
            volume.remove(&EntryName::new(dir, &name), Removes::Name).expect("unlinked");
        }
    }
}

#[test]
fn processes_killed_at_work_never_stop_the_others_nor_lose_a_block() {
    let name = "processes_killed_at_work_never_stop_the_others_nor_lose_a_block";
    let modes = [Mode::Strict, Mode::Posix, Mode::Sync, Mode::Strict];
    let roles = ["worker-0", "worker-1", "worker-2", "worker-3"];
    for (index, mode) in modes.into_iter().enumerate() {
        if role(roles[index]) {
            return work_for_ever(u64::from(std::process::id()), mode);
        }
    }
    let place = Place::formatted("killed");
    let survivor = place.attach();
    let free = survivor.statistics().expect("statistics").blocks_free;
    for round in 0..8_u64 {
        let start = |index: usize| child(name, roles[index], &place);
        let mut workers: Vec<_> = (0..4).map(start).map(Worker).collect();
        for kill in 0..20 {
            std::thread::sleep(Duration::from_millis(5 + (round + kill) * 7 % 13));
            let index = kill as usize % 4;
            assert_eq!(workers[index].0.try_wait().expect("asked"), None, "it works for ever");
            workers[index] = Worker(start(index));
        }
        drop(workers);
        assert_eq!(detach_dead(place.path()).expect("recovered"), [std::process::id()]);
        let report = fsck(place.path(), &FsckOptions::default(), &mut |_, _| {}).expect("checked");
        assert!(report.faults.is_empty(), "round {round}: {:?}", report.faults);
        remove_all(&survivor, survivor.root());
        assert_eq!(survivor.statistics().expect("statistics").blocks_free, free, "round {round}");
    }
    drop(survivor);
    assert!(info(place.path()).expect("told").clean);
}
