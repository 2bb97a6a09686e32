//! Opening: where regions come from, which class they get, and what is said when they cannot be
//! had.

use crate::directory::TestDir;
use crate::process::{alone, run_alone};
use pmem::{Class, CopyKind, FlushKind, Locality, OpenOptions, Purpose, Region};
use std::path::Path;

const WRITE: OpenOptions = OpenOptions {
    write: true,
    force_class: None,
    flushed: false,
    allow_page: false,
    reserve: 0,
    purpose: Purpose::Volume,
};

/// What opening `path` says, without the path.
fn refusal(path: &Path, options: &OpenOptions) -> String {
    let error = Region::open(path, options).unwrap_err().to_string();
    error.replace(path.to_str().unwrap(), "PATH")
}

#[test]
fn memory_is_volatile_and_its_file_is_sparse() {
    let directory = TestDir::in_memory("volatile");
    let path = directory.file("region");
    let region = Region::create(&path, 1 << 30, 0o640, true).unwrap();
    assert_eq!((region.class(), region.len()), (Class::Volatile, 1 << 30));
    assert!(region.class_reason().contains("tmpfs"), "{}", region.class_reason());
    assert!(region.writable() && region.fd() >= 0);
    assert_eq!(region.path(), Some(path.as_path()));
    assert_eq!(region.base() as usize % (2 << 20), 0, "starts on a huge page");
    region.sync_file().unwrap();
    let status = std::fs::metadata(&path).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::blocks(&status), 0);
}

#[test]
fn create_refuses_or_resizes_what_exists() {
    let directory = TestDir::in_memory("create");
    let path = directory.file("region");
    let first = Region::create(&path, 8192, 0o600, true).unwrap();
    let _ = first.store64(0, 7).unwrap().flush().fence();
    let again = Region::create(&path, 8192, 0o600, true).unwrap_err();
    assert!(again.to_string().contains("it exists already"), "{again}");
    assert_eq!(again.errno(), rustix::io::Errno::EXIST);
    let resized = Region::create(&path, 12_288, 0o600, false).unwrap();
    assert_eq!((resized.len(), resized.load64(0)), (12_288, Ok(7)));
}

#[test]
fn odd_sizes_are_kept() {
    let directory = TestDir::in_memory("odd");
    let region = Region::create(&directory.file("region"), 5001, 0o600, true).unwrap();
    let mut byte = [0];
    assert!(region.read(5000, &mut byte).is_ok() && region.read(5001, &mut byte).is_err());
}

#[test]
fn a_region_grows_inside_its_reserve() {
    let directory = TestDir::in_memory("grow");
    let path = directory.file("region");
    Region::create(&path, 5000, 0o600, true).unwrap();
    let options = OpenOptions { reserve: 4 << 20, ..WRITE };
    let region = Region::open(&path, &options).unwrap();
    assert_eq!(region.extend().unwrap(), 5000, "has not grown");
    let _ = region.store64(8, 1).unwrap().flush().fence();
    Region::create(&path, 3 << 20, 0o600, false).unwrap();
    assert!(region.load64(2 << 20).is_err(), "not before extend");
    assert_eq!(region.extend().unwrap(), 3 << 20);
    let _ = region.store64((3 << 20) - 8, 2).unwrap().flush().fence();
    assert_eq!((region.load64(8), region.load64((3 << 20) - 8)), (Ok(1), Ok(2)));
    Region::create(&path, 64 << 20, 0o600, false).unwrap();
    let refused = region.extend().unwrap_err().to_string();
    assert!(refused.contains("outgrown the address space"), "{refused}");
    assert_eq!(region.load64(8), Ok(1), "and is usable as before");
}

#[test]
fn a_forced_class_says_so() {
    let directory = TestDir::in_memory("forced");
    let path = directory.file("region");
    Region::create(&path, 4096, 0o600, true).unwrap();
    for class in [Class::Byte, Class::CacheLine, Class::Volatile, Class::Page] {
        let options = OpenOptions { force_class: Some(class), ..WRITE };
        let region = Region::open(&path, &options).unwrap();
        assert_eq!(region.class(), class);
        assert!(region.class_reason().starts_with("forced by request; found volatile:"));
        let unflushed = matches!(class, Class::Byte | Class::Volatile);
        assert_eq!(region.dispatch().flush == FlushKind::None, unflushed);
        assert_eq!(class.to_string().parse(), Ok(class));
        region.sync_file().unwrap();
    }
}

#[test]
fn a_plain_file_must_be_asked_for_by_name() {
    let directory = TestDir::new(Path::new(env!("CARGO_TARGET_TMPDIR")), "plain");
    let path = directory.file("region");
    let refused = Region::create(&path, 4096, 0o600, true);
    let Err(refused) = refused else {
        // The build directory itself may lie in memory or on a DAX mount.
        return;
    };
    let refused = refused.to_string();
    assert!(refused.contains("a plain file without MAP_SYNC"), "{refused}");
    assert!(refused.contains("ask for class `page` by name"), "{refused}");
    assert!(!path.exists(), "a file that is of no use is not left behind");

    let options = OpenOptions { allow_page: true, ..WRITE };
    let region = Region::create_with(&path, 4096, 0o600, true, &options).unwrap();
    assert_eq!(region.class(), Class::Page);
    let _ = region.store64(0, u64::from_le_bytes(*b"durable!")).unwrap().flush().fence();
    region.sync_file().unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[..8], *b"durable!");
}

#[test]
fn what_is_no_region_is_refused_with_advice() {
    let directory = TestDir::in_memory("refused");
    let missing = refusal(&directory.file("missing"), &WRITE);
    assert_eq!(
        missing,
        "cannot use PATH as the memory of a volume: there is no such file; create it with `solera \
         format`"
    );
    let is_directory = "cannot use PATH as the memory of a volume: it is a directory, \
                        and a volume is a file or a dax device; name the volume's file";
    assert_eq!(refusal(directory.path(), &WRITE), is_directory);
    assert_eq!(refusal(directory.path(), &OpenOptions::default()), is_directory);

    std::fs::write(directory.file("empty"), b"").unwrap();
    let empty = refusal(&directory.file("empty"), &WRITE);
    assert!(empty.contains("it is empty; give it a size"), "{empty}");

    let device = refusal(Path::new("/dev/null"), &WRITE);
    assert!(device.contains("a device, but not a dax device"), "{device}");

    let fifo = directory.file("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(refusal(&fifo, &WRITE).contains("it is a fifo"), "a fifo, without waiting");
}

fn show_what_open_chose() {
    match Region::anonymous(4096) {
        Ok(region) => {
            let dispatch = region.dispatch();
            println!("{} {} {}", region.class(), dispatch.flush, dispatch.copy);
        }
        Err(error) => println!("{error}"),
    }
}

#[test]
fn the_environment_forces_class_and_instructions() {
    if alone() {
        return show_what_open_chose();
    }
    let show = |variables: &[(&str, &str)]| {
        let output = run_alone("open::the_environment_forces_class_and_instructions", variables);
        String::from_utf8(output.stdout).unwrap()
    };
    let (clflush, sse2) = (FlushKind::Clflush, CopyKind::Sse2);
    let forced = show(&[
        ("SOLERA_CLASS", "cache-line"),
        ("SOLERA_FLUSH", "clflush"),
        ("SOLERA_COPY", "sse2"),
    ]);
    assert!(forced.contains(&format!("cache-line {clflush} {sse2}")), "{forced}");
    assert!(show(&[("SOLERA_CLASS", "byte")]).contains("byte none "));
    for variable in ["SOLERA_CLASS", "SOLERA_FLUSH", "SOLERA_COPY"] {
        let refused = show(&[(variable, "fast")]);
        let expected = format!("{variable}=fast is not one of ");
        assert!(refused.contains(&expected), "{refused}");
    }
}

fn stumble() {
    let region = Region::anonymous(4096).unwrap();
    assert_eq!(region.load64(0), Ok(0));
    // SAFETY: none; the process is to die of it.
    unsafe { std::ptr::null_mut::<u64>().write_volatile(1) };
}

#[test]
fn a_fault_that_is_not_ours_ends_the_process_as_ever() {
    if alone() {
        return stumble();
    }
    let status = run_alone("open::a_fault_that_is_not_ours_ends_the_process_as_ever", &[]).status;
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(libc::SIGSEGV), "{status}");
}

extern "C" fn leave(_signal: i32) {
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(42) };
}

fn stumble_with_a_handler() {
    // SAFETY: `leave` is a handler of the old style.
    unsafe { libc::signal(libc::SIGSEGV, leave as *const () as usize) };
    stumble();
}

#[test]
fn a_fault_that_is_not_ours_reaches_the_handler_before_us() {
    if alone() {
        return stumble_with_a_handler();
    }
    let status =
        run_alone("open::a_fault_that_is_not_ours_reaches_the_handler_before_us", &[]).status;
    assert_eq!(status.code(), Some(42), "{status}");
}

fn be_sent_signals() {
    // SAFETY: plain dispositions, set before a region is opened, in a process with one test.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_IGN);
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
    }
    let region = Region::anonymous(4096).unwrap();
    // SAFETY: the handlers of this process can be called at any time.
    unsafe { libc::raise(libc::SIGSEGV) };
    // SAFETY: no byte at this address can be reached.
    let nowhere = unsafe { pmem::UserIn::from_raw(std::ptr::null(), 8) };
    assert_eq!(region.stream_from(0, &nowhere, Locality::Near).map(drop), Err(pmem::Fault::Caller));
    println!("ignored one");
    // SAFETY: as above.
    unsafe { libc::raise(libc::SIGBUS) };
    println!("still here");
}

#[test]
fn a_signal_that_was_sent_is_not_ours() {
    if alone() {
        return be_sent_signals();
    }
    let output = run_alone("open::a_signal_that_was_sent_is_not_ours", &[]);
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(signal, Some(libc::SIGBUS), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("ignored one") && !said.contains("still here"), "{said}");
}
