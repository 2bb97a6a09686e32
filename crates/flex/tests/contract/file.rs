//! The contract of files.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::{TestDir, alone, in_child};
use flex::{Create, Error, File, FileOptions, Length};
use pmem::costs::CostCounter;
use pmem::{Class, Region, UserIn, UserOut};

const STEP: u64 = 64 << 10;

fn made() -> FileOptions {
    FileOptions {
        size: 16 << 20,
        step: STEP,
        create: Create::Missing,
        page: true,
        ..FileOptions::default()
    }
}

fn file(place: &TestDir) -> PathBuf {
    place.0.join("file")
}

fn bytes(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + salt * 7 + at / 251) as u8).collect()
}

/// From here on any system call but the end of the process kills it.
fn no_system_calls() {
    let line = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut lines = [
        line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_exit_group as u32),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        line(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog { len: 4, filter: lines.as_mut_ptr() };
    // SAFETY: a filter of this process.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let filter = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program), 0);
    }
}

#[test]
fn what_is_written_is_read_over_many_steps_and_openings() {
    let place = TestDir::new();
    let mut whole = Vec::new();
    for opening in 0..5 {
        let file = File::open(&file(&place), &made()).expect("a file");
        assert_eq!(file.opened(), Length::Exact(whole.len() as u64));
        for number in 0..200 {
            let more = bytes(1 + number * 17 % 3000, number + opening);
            let (at, ticket) = file.append(&more).expect("appended");
            ticket.wait().expect("durable");
            assert_eq!(at, whole.len() as u64);
            whole.extend_from_slice(&more);
        }
        for number in 0..50 {
            let (at, more) = (number * 1931, bytes(number * 13, number));
            file.write_at(at as u64, &more).expect("written").wait().expect("durable");
            whole[at..at + more.len()].copy_from_slice(&more);
        }
        // Beyond the end: zeros before it.
        file.write_at(whole.len() as u64 + 5000, b"far").expect("written").wait().expect("durable");
        whole.resize(whole.len() + 5000, 0);
        whole.extend_from_slice(b"far");
        assert_eq!(file.len(), whole.len() as u64);
        let mut back = vec![1; whole.len() + 10];
        assert_eq!(file.read_at(0, &mut back).expect("read"), whole.len());
        assert_eq!(back[..whole.len()], whole);
        assert_eq!(file.read_at(whole.len() as u64, &mut back).expect("the end"), 0);
        file.close().expect("closed");
    }
    assert_eq!(std::fs::read(file(&place)).expect("the file"), whole);
}

#[test]
fn inside_a_step_there_is_no_system_call() {
    if !alone("file::inside_a_step_there_is_no_system_call") {
        return;
    }
    let place = TestDir::new();
    // An ordinary disk waits for its medium.
    let here = flex::Place::open(&place.0, true).expect("a place");
    if here.class().0 == Class::Page {
        println!("skipped: {} is of class page, where each wait is a call", place.0.display());
        return;
    }
    let appends = |beyond: bool| {
        let options = FileOptions { step: 1 << 20, create: Create::New, ..made() };
        let path = place.0.join(format!("file-{beyond}"));
        // Its end would be a call.
        let file = std::mem::ManuallyDrop::new(File::open(&path, &options).expect("a file"));
        let (_, first) = file.append(&[1; 4096]).expect("appended");
        first.wait().expect("durable");
        no_system_calls();
        let mut back = [0; 4096];
        for _ in 1..256 {
            let Ok((at, ticket)) = file.append(&[2; 4096]) else { return 1 };
            let written = ticket.wait().and_then(|()| file.write_at(at / 2, &[3; 100]));
            if written.and_then(flex::Ticket::wait).is_err() || file.persist(at, 64).is_err() {
                return 2;
            }
            if file.read_at(at, &mut back).is_err() || back != [2; 4096] {
                return 3;
            }
        }
        // The step is full.
        if beyond {
            let _ = file.append(&[4]);
        }
        0
    };
    assert_eq!(in_child(|| appends(false)), 0, "no call inside the step");
    assert_eq!(in_child(|| appends(true)), 128 + libc::SIGSYS, "the next step is a call");
}

#[test]
fn a_durable_append_is_one_fence_and_no_flush() {
    let counts = CostCounter::new();
    let file = File::create_on(Region::in_memory(vec![0; 1 << 20], Some(Arc::clone(&counts) as _)))
        .expect("a file");
    let now = || {
        let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        (load(&counts.fences), load(&counts.flushed_lines), load(&counts.streamed_bytes))
    };
    for number in 1..=100 {
        let before = now();
        file.append(&[7; 4096]).expect("appended").1.wait().expect("durable");
        file.write_at(0, &[number; 4096]).expect("written").wait().expect("durable");
        let (fences, flushes, streamed) = now();
        let did = (fences - before.0, flushes - before.1, streamed - before.2);
        assert_eq!(did, (2, 0, 8192));
    }
    let before = now();
    file.persist(100, 8).expect("durable");
    assert_eq!((now().0 - before.0, now().1 - before.1), (1, 1));
}

#[test]
fn views_stay_while_it_grows_to_its_largest_size() {
    let place = TestDir::new();
    let file = File::open(&file(&place), &made()).expect("a file");
    let _ = file.append(b"first").expect("appended");
    let view = file.view(0, 5).expect("a view");
    assert_eq!(file.offset_of(view.as_ptr()).expect("its offset"), 0);
    let piece = bytes(1 << 20, 1);
    let error = loop {
        match file.append(&piece) {
            Ok((_, ticket)) => ticket.wait().expect("durable"),
            Err(error) => break error,
        }
        assert_eq!(file.view(0, 5).expect("a view"), view);
    };
    assert!(matches!(error, Error::TooLarge { most } if most == 16 << 20), "{error}");
    assert_eq!(file.len(), 5 + (15 << 20));
    // SAFETY: five bytes of the file, which nobody stores to.
    assert_eq!(unsafe { std::slice::from_raw_parts(view.as_ptr(), 5) }, b"first");
    // SAFETY: the file's own bytes.
    unsafe { view.as_ptr().write(b'F') };
    file.persist(0, 1).expect("durable");
    let mut back = [0; 5];
    file.read_at(0, &mut back).expect("read");
    assert_eq!(&back, b"First");
    assert!(matches!(file.view(0, 16 << 20), Err(Error::Invalid(_))));
    assert!(matches!(file.persist(u64::MAX, 2), Err(Error::Invalid(_))));
}

#[test]
fn a_file_that_others_cut_says_so_and_can_be_cut_and_go_on() {
    let place = TestDir::new();
    let file = File::open(&file(&place), &made()).expect("a file");
    let _ = file.append(&bytes(100_000, 1)).expect("appended");
    let other = std::fs::OpenOptions::new().write(true).open(place.0.join("file")).expect("open");
    other.set_len(8192).expect("cut");
    let mut back = vec![0; 100_000];
    let cut = |found: Result<(), Error>| match found {
        Err(Error::Truncated { size: 8192 }) => {}
        found => panic!("{found:?}"),
    };
    cut(file.read_at(0, &mut back).map(drop));
    cut(file.append(&[1]).map(drop));
    cut(file.write_at(50_000, &[1; 9000]).map(drop));
    assert_eq!(file.read_at(0, &mut back[..8192]).expect("what is left"), 8192);
    assert_eq!(back[..8192], bytes(100_000, 1)[..8192]);
    file.truncate(8192).expect("cut here, too");
    let (at, ticket) = file.append(b"on").expect("appended");
    ticket.wait().expect("durable");
    assert_eq!(at, 8192);
    assert_eq!(file.read_at(8190, &mut back[..10]).expect("read"), 4);
    assert_eq!(&back[2..4], b"on");
}

#[test]
fn bad_memory_of_the_caller_changes_no_length() {
    let place = TestDir::new();
    let file = File::open(&file(&place), &made()).expect("a file");
    let _ = file.append(b"good").expect("appended");
    // SAFETY: nothing is mapped there.
    let bad = unsafe { UserIn::from_raw(std::ptr::without_provenance(4096), 9000) };
    assert!(matches!(file.append_from(&bad), Err(Error::Caller)));
    assert!(matches!(file.write_at_from(2, &bad), Err(Error::Caller)));
    assert_eq!(file.len(), 4);
    // SAFETY: nothing is mapped there.
    let bad = unsafe { UserOut::from_raw(std::ptr::without_provenance_mut(4096), 4) };
    assert!(matches!(file.read_at_to(0, &bad), Err(Error::Caller)));
    // Half of it: what was stored behind the end is zeros again.
    let pages = 2 * 4096;
    // SAFETY: fresh memory, of which the second page is taken away again.
    let half = unsafe {
        let (prot, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = libc::mmap(std::ptr::null_mut(), pages, prot | libc::PROT_WRITE, flags, -1, 0);
        at.cast::<u8>().write_bytes(9, pages);
        libc::munmap(at.cast::<u8>().add(4096).cast(), 4096);
        UserIn::from_raw(at.cast(), pages)
    };
    assert!(matches!(file.append_from(&half), Err(Error::Caller)));
    assert_eq!(file.len(), 4);
    file.truncate(5000).expect("longer");
    let mut back = vec![1; 5000];
    assert_eq!(file.read_at(0, &mut back).expect("read"), 5000);
    assert_eq!(&back[..4], b"good");
    assert!(back[4..].iter().all(|&byte| byte == 0), "zeros behind it");
}

#[test]
fn a_killed_writer_leaves_zeros_and_the_next_one_is_told() {
    if !alone("file::a_killed_writer_leaves_zeros_and_the_next_one_is_told") {
        return;
    }
    let place = TestDir::new();
    let path = file(&place);
    let code = in_child(|| {
        let file = File::open(&path, &made()).expect("a file");
        file.append(b"durable").expect("appended").1.wait().expect("durable");
        // It ends without closing.
        std::mem::forget(file);
        0
    });
    assert_eq!(code, 0);
    let file = File::open(&path, &made()).expect("a file");
    assert_eq!(file.opened(), Length::AtMost(STEP));
    let mut back = [0; 10];
    file.read_at(0, &mut back).expect("read");
    assert_eq!(&back, b"durable\0\0\0");
    file.truncate(7).expect("cut");
    file.sync_len().expect("durable");
    assert_eq!(std::fs::metadata(&path).expect("the file").len(), 7);
    let _ = file.append(b"!").expect("appended");
    assert_eq!(std::fs::metadata(&path).expect("the file").len(), STEP, "while it is open");
    drop(file);
    assert_eq!(std::fs::read(&path).expect("the file"), b"durable!");
    assert_eq!(File::open(&path, &made()).expect("a file").opened(), Length::Exact(8));
}

#[test]
fn a_child_of_fork_is_told_and_its_parent_goes_on() {
    if !alone("file::a_child_of_fork_is_told_and_its_parent_goes_on") {
        return;
    }
    let place = TestDir::new();
    let file = File::open(&file(&place), &made()).expect("a file");
    let _ = file.append(b"parent").expect("appended");
    let code = in_child(|| {
        let stale = |found: Result<(), Error>| matches!(found, Err(Error::Forked));
        let all = stale(file.append(b"child").map(drop))
            && stale(file.read_at(0, &mut [0]).map(drop))
            && stale(file.view(0, 1).map(drop))
            && stale(file.fence())
            && stale(file.sync_len());
        i32::from(all)
    });
    assert_eq!(code, 1);
    file.append(b"!").expect("appended").1.wait().expect("durable");
    file.close().expect("closed");
    assert_eq!(std::fs::read(place.0.join("file")).expect("the file"), b"parent!");
}

#[test]
fn threads_append_and_read_at_once() {
    let place = TestDir::new();
    let file = File::open(&file(&place), &made()).expect("a file");
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let file = &file;
            scope.spawn(move || {
                for number in 0..2000 {
                    let (at, ticket) = file.append(&[thread + 1; 100]).expect("appended");
                    ticket.wait().expect("durable");
                    let mut back = [0; 100];
                    assert_eq!(file.read_at(at, &mut back).expect("read"), 100);
                    assert_eq!(back, [thread + 1; 100], "record {number} at {at}");
                }
            });
        }
    });
    assert_eq!(file.len(), 4 * 2000 * 100);
}

/// What this process cuts itself is no error of reads and writes beside it.
#[test]
fn reads_and_writes_beside_a_cut_of_ones_own() {
    let place = TestDir::new();
    let file = File::open(&file(&place), &made()).expect("a file");
    file.truncate(1 << 20).expect("longer");
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (file, ended) = (&file, &ended);
            scope.spawn(move || {
                let mut back = vec![0; 10_000];
                while !ended.load(Ordering::Relaxed) {
                    if thread % 2 == 0 {
                        file.read_at(900_000, &mut back).expect("what there is");
                    } else {
                        file.write_at(700_000, &back).expect("written").wait().expect("durable");
                    }
                }
            });
        }
        for _ in 0..if rotation::all() { 2000 } else { 500 } {
            file.truncate(5000).expect("cut");
            file.truncate(1 << 20).expect("longer");
        }
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_reader_sees_what_others_append_and_writes_nothing() {
    let place = TestDir::new();
    let path = file(&place);
    std::fs::write(&path, b"").expect("an empty file");
    let read = FileOptions { read_only: true, create: Create::Never, ..made() };
    let reader = File::open(&path, &read).expect("a file");
    let mut back = [0; 20];
    assert_eq!(reader.read_at(0, &mut back).expect("the end"), 0);
    let other = std::fs::OpenOptions::new().write(true).open(&path).expect("open");
    other.write_all_at(b"more", 0).expect("written");
    assert_eq!(reader.read_at(1, &mut back).expect("read"), 3);
    assert_eq!(&back[..3], b"ore");
    let errno = |error: Error| error.errno().raw_os_error();
    assert_eq!(reader.append(b"x").map(drop).map_err(errno), Err(libc::EBADF));
    assert_eq!(reader.truncate(0).map_err(errno), Err(libc::EBADF));
    drop(reader);
    assert_eq!(std::fs::read(&path).expect("the file"), b"more");
    let new = FileOptions { create: Create::New, ..made() };
    assert_eq!(File::open(&path, &new).map(drop).map_err(errno), Err(libc::EEXIST));
    let missing = FileOptions { create: Create::Never, ..made() };
    let none = File::open(&place.0.join("none"), &missing);
    assert_eq!(none.map(drop).map_err(errno), Err(libc::ENOENT));
}

#[test]
fn a_place_keeps_its_paths_and_tells_its_class() {
    let directory = TestDir::new();
    let place = flex::Place::open(&directory.0, true).expect("a place");
    let (class, why) = place.class();
    assert!(!why.is_empty());
    let file = place.file("/a".as_ref(), &made()).expect("a file");
    assert_eq!(file.class().0, class);
    file.append(b"a").expect("appended").1.wait().expect("durable");
    place.fence().expect("durable");
    drop(file);
    assert_eq!(std::fs::read(directory.0.join("a")).expect("the file"), b"a");
    assert!(matches!(place.file("../a".as_ref(), &made()), Err(Error::Invalid(_))));
    let log = flex::LogOptions { capacity: 4096, create: true, ..flex::LogOptions::default() };
    let log = place.log("log".as_ref(), &log).expect("a log");
    let position = log.append(b"record").expect("appended");
    let follower = place.follow("log".as_ref()).expect("a follower");
    let mut back = [0; 6];
    assert!(follower.read(position, &mut back).expect("read").is_some());
    assert_eq!(&back, b"record");
    let no_directory = flex::Place::open(&directory.0.join("a"), true);
    assert!(matches!(no_directory, Err(Error::System(..))));
}
