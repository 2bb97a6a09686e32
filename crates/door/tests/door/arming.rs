//! A program whose C library and loader are armed before its first constructor, with a handler that
//! counts and passes everything on: its results are those of the same program that is not armed,
//! and every call came by.
//!
//! The program is this test, re-executed: an entry of `.init_array` arms it if it is told to.

use std::ffi::{CStr, CString};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use door::arm::{self, Loaded, Way};
use door::elf::ProgramHeader;
use door::entry::{Call, Verdict, answer_by};
use door::image::Image;

use crate::{libraries, stepping};

/// How often each number came by.
static COUNTS: [AtomicU32; 512] = [const { AtomicU32::new(0) }; 512];

unsafe extern "C-unwind" fn count(call: &mut Call) -> Verdict {
    if let Some(count) = COUNTS.get(call.number() as usize) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    Verdict::Pass
}

fn counted(number: i64) -> u32 {
    COUNTS[number as usize].load(Ordering::Relaxed)
}

/// The variable that tells the child what to do: `file:DIRECTORY` or `memory`.
const ARM: &str = "SOLERA_DOOR_TEST_ARM";

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

/// How this process is to be armed; a process under `unshare` and its shell by what is there.
fn how() -> Option<String> {
    let from = || std::env::var("SOLERA_DOOR_TEST_FROM").ok().map(|from| format!("file:{from}"));
    std::env::var(ARM).ok().or_else(from)
}

/// Before `main`: the process has one thread.
extern "C" fn at_start() {
    let Some(how) = how() else { return };
    answer_by(count);
    let mut libraries: Vec<(String, usize, &'static [ProgramHeader])> = Vec::new();
    // SAFETY: the callback is called while this runs.
    unsafe { libc::dl_iterate_phdr(Some(remember), (&raw mut libraries).cast()) };
    for (name, base, headers) in libraries {
        let file = if name.contains("libc.so") {
            "libc"
        } else if name.contains("ld-linux") {
            "loader"
        } else {
            continue;
        };
        let loaded = Loaded { base, headers };
        let begun = std::time::Instant::now();
        let done = match how.strip_prefix("file:") {
            Some(folder) => {
                let path = format!("{folder}/{file}");
                let file = std::fs::File::open(path).unwrap();
                // SAFETY: one thread, before main; the file is opened.
                unsafe { arm::by_file(&loaded, file.as_raw_fd()) }
            }
            // SAFETY: as above.
            None => unsafe { arm::in_memory(&loaded, &door::wanted) },
        };
        let took = begun.elapsed();
        eprintln!("{file}: {:?} in {took:?}", done.map(|done| done.way));
        let done = done.unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        let way = if how == "memory" {
            Way::InMemory
        } else if std::env::var("SOLERA_DOOR_TEST_WAY").is_ok() {
            Way::Copied
        } else {
            Way::Mapped
        };
        assert_eq!(done.way, way);
        stepping::ARMED.lock().unwrap().push(done);
    }
}

unsafe extern "C" fn remember(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut libc::c_void,
) -> i32 {
    // SAFETY: what `dl_iterate_phdr` passes, and what `at_start` gave it.
    let (info, found) =
        unsafe { (&*info, &mut *data.cast::<Vec<(String, usize, &'static [ProgramHeader])>>()) };
    // SAFETY: a string, and the headers of a library that stays loaded.
    let (name, headers) = unsafe {
        let name = CStr::from_ptr(info.dlpi_name).to_string_lossy().into_owned();
        (name, std::slice::from_raw_parts(info.dlpi_phdr.cast(), info.dlpi_phnum as usize))
    };
    found.push((name, info.dlpi_addr as usize, headers));
    0
}

/// Runs this test again, armed in a way.
fn run(how: &str, way: Option<&str>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "arming::what_the_armed_program_does", "--nocapture", "--test-threads=1"])
        .env(ARM, how);
    if let Some(way) = way {
        command.env("SOLERA_DOOR_TEST_WAY", way);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    eprintln!("{errors}");
    assert!(output.status.success(), "{how}: {:?}\n{text}\n{errors}", output.status);
    assert!(text.contains("all of it was done"), "{text}\n{errors}");
    for line in text.lines().filter(|line| line.contains(" ns") || line.contains("unwound")) {
        println!("{line}");
    }
    text
}

/// The patched files of this machine's library and loader, in a folder.
pub fn prepare(folder: &std::path::Path) {
    for (path, name) in libraries::host().iter().zip(["libc", "loader"]) {
        let file = std::fs::read(path).unwrap();
        let image = Image::make(&file, &door::wanted).unwrap();
        std::fs::write(folder.join(name), &image.bytes).unwrap();
    }
}

#[test]
fn a_program_does_the_same_when_its_library_is_mapped() {
    let folder = libraries::Scratch::new("mapped");
    prepare(&folder.0);
    run(&format!("file:{}", folder.0.display()), None);
}

#[test]
fn a_program_does_the_same_when_its_library_is_patched_in_memory() {
    run("memory", None);
}

/// On a file system that is mounted `noexec` the file is read.
#[test]
fn a_program_does_the_same_when_its_library_is_copied() {
    let folder = libraries::Scratch::new("copied");
    // The mount is the child's own.
    let script = format!(
        "mount -t tmpfs -o noexec none {0} && cp {1}/* {0} && exec \"$0\" --exact \
         arming::what_the_armed_program_does --nocapture --test-threads=1",
        folder.0.join("noexec").display(),
        folder.0.join("made").display(),
    );
    for name in ["noexec", "made"] {
        std::fs::create_dir(folder.0.join(name)).unwrap();
    }
    prepare(&folder.0.join("made"));
    // SAFETY: one's own number.
    let own = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-rm" };
    if !Command::new("unshare").args([own, "true"]).status().is_ok_and(|done| done.success()) {
        println!("left out: no mounts of one's own here");
        return;
    }
    let output = Command::new("unshare")
        .args([own, "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env("SOLERA_DOOR_TEST_FROM", folder.0.join("noexec"))
        .env("SOLERA_DOOR_TEST_WAY", "copied")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    eprintln!("{errors}");
    assert!(output.status.success(), "{}\n{errors}", String::from_utf8_lossy(&output.stdout));
    assert!(
        errors.contains("libc: Ok(Copied)") && errors.contains("loader: Ok(Copied)"),
        "{errors}"
    );
}

#[test]
fn what_the_armed_program_does() {
    let armed = how().is_some();
    let folder = libraries::Scratch::new("program");
    let path = |name: &str| CString::new(folder.0.join(name).to_str().unwrap()).unwrap();
    streams(&path("stream"));
    directories(&folder.0);
    children();
    threads();
    plugins(&folder.0);
    mappings();
    if armed {
        for number in [
            libc::SYS_openat,
            libc::SYS_read,
            libc::SYS_write,
            libc::SYS_lseek,
            libc::SYS_close,
            libc::SYS_mmap,
            libc::SYS_munmap,
            libc::SYS_getdents64,
            libc::SYS_rt_sigaction,
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_newfstatat,
            libc::SYS_pipe2,
        ] {
            assert!(counted(number) > 0, "number {number} did not come by");
        }
        assert_eq!(counted(libc::SYS_getpid), 0);
        costs();
        stepping::every_instruction_is_unwound();
    }
    println!("all of it was done");
}

/// What `fopen` and its kin do, checked by the kernel's view of the file.
fn streams(path: &CStr) {
    let seeks = counted(libc::SYS_lseek);
    // SAFETY: the C library's streams, of one thread.
    unsafe {
        let stream = libc::fopen(path.as_ptr(), c"w+".as_ptr());
        assert!(!stream.is_null());
        assert_eq!(libc::fprintf(stream, c"%d %s\n".as_ptr(), 42, c"words".as_ptr()), 9);
        assert_eq!(libc::fseek(stream, 3, libc::SEEK_SET), 0);
        let mut word = [0_u8; 8];
        assert_eq!(libc::fscanf(stream, c"%7s".as_ptr(), word.as_mut_ptr()), 1);
        assert_eq!(&word, b"words\0\0\0");
        for byte in 0..100_000 {
            assert_eq!(libc::fputc(byte & 0x7f, stream), byte & 0x7f);
        }
        assert_eq!(libc::ftell(stream), 100_008);
        libc::rewind(stream);
        assert_eq!(libc::fgetc(stream), i32::from(b'4'));
        assert_eq!(libc::fclose(stream), 0);
    }
    let text = std::fs::read(std::ffi::OsStr::new(path.to_str().unwrap())).unwrap();
    assert_eq!(text.len(), 100_008);
    assert_eq!(&text[..8], b"42 words");
    // A program that is armed is asked inside of `fseek`, where no symbol is called.
    assert!(how().is_none() || counted(libc::SYS_lseek) > seeks);
    // SAFETY: errors come as numbers.
    unsafe {
        assert!(libc::fopen(c"/nonexistent/x".as_ptr(), c"r".as_ptr()).is_null());
        assert_eq!(*libc::__errno_location(), libc::ENOENT);
        assert_eq!(libc::lseek(9999, 0, 0), -1);
        assert_eq!(*libc::__errno_location(), libc::EBADF);
    }
}

fn directories(folder: &std::path::Path) {
    for name in ["a1", "a2", "b1"] {
        std::fs::write(folder.join(name), name).unwrap();
    }
    let folder_name = CString::new(folder.to_str().unwrap()).unwrap();
    // SAFETY: directory streams and patterns of the C library.
    unsafe {
        let stream = libc::opendir(folder_name.as_ptr());
        let mut entries = 0;
        while !libc::readdir(stream).is_null() {
            entries += 1;
        }
        // With `.`, `..` and what the streams wrote.
        assert_eq!(entries, 6);
        assert_eq!(libc::closedir(stream), 0);
        let pattern = CString::new(format!("{}/a*", folder.display())).unwrap();
        let mut found: libc::glob_t = std::mem::zeroed();
        assert_eq!(libc::glob(pattern.as_ptr(), 0, None, &raw mut found), 0);
        assert_eq!(found.gl_pathc, 2);
        libc::globfree(&raw mut found);
    }
}

fn children() {
    // SAFETY: children of one thread.
    unsafe {
        assert_eq!(libc::system(c"exit 7".as_ptr()) >> 8, 7);
        let stream = libc::popen(c"echo told".as_ptr(), c"r".as_ptr());
        let mut line = [0_u8; 16];
        assert!(!libc::fgets(line.as_mut_ptr().cast(), 16, stream).is_null());
        assert_eq!(&line[..5], b"told\n");
        assert_eq!(libc::pclose(stream), 0);
        for code in 0..20 {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(code);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(libc::WEXITSTATUS(status), code);
        }
    }
    // posix_spawn, with a pipe.
    let output = Command::new("/bin/echo").arg("spawned").output().unwrap();
    assert_eq!(output.stdout, b"spawned\n");
    assert!(Command::new("/nonexistent").spawn().is_err());
    // vfork.
    // SAFETY: the child only ends.
    #[allow(deprecated)]
    unsafe {
        let child = libc::vfork();
        if child == 0 {
            libc::_exit(3);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(libc::WEXITSTATUS(status), 3);
    }
}

extern "C" fn wait(_: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: it sleeps until it is cancelled.
    unsafe { libc::pause() };
    std::ptr::null_mut()
}

fn threads() {
    let total = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let length = std::fs::read("/proc/self/stat").unwrap().len();
                    total.fetch_add(usize::from(length > 0), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 3200);
    // Cancelled in a wait.
    // SAFETY: a thread that is cancelled and joined.
    unsafe {
        let mut thread = std::mem::zeroed();
        assert_eq!(
            libc::pthread_create(&raw mut thread, std::ptr::null(), wait, std::ptr::null_mut()),
            0
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(libc::pthread_cancel(thread), 0);
        let mut result = std::ptr::null_mut();
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
        assert_eq!(result as isize, -1);
        // Its own identity again, through the broadcast to threads.
        assert_eq!(libc::setuid(libc::getuid()), 0);
    }
}

fn plugins(folder: &std::path::Path) {
    let object = folder.join("plugin.so");
    crate::entry::forms(&object);
    let name = CString::new(object.to_str().unwrap()).unwrap();
    // SAFETY: a library without constructors.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null());
        assert!(!libc::dlsym(handle, c"counter".as_ptr()).is_null());
        assert_eq!(libc::dlclose(handle), 0);
        assert!(libc::dlopen(c"/nonexistent.so".as_ptr(), libc::RTLD_NOW).is_null());
    }
}

fn mappings() {
    for size in [1 << 20, 64 << 20] {
        let mut memory = vec![0_u8; size];
        memory[size - 1] = 1;
        memory.resize(size + (1 << 20), 2);
        assert_eq!(memory[size - 1], 1);
    }
    std::io::stdout().flush().unwrap();
}

/// What a call costs that is served, and what it costs more that is passed on: printed, and held to
/// several times what it should be, for the machine may be busy.
fn costs() {
    let least = |count: u32, call: &dyn Fn()| {
        (0..9)
            .map(|_| {
                let begun = std::time::Instant::now();
                for _ in 0..count {
                    call();
                }
                begun.elapsed().as_secs_f64() * 1e9 / f64::from(count)
            })
            .fold(f64::MAX, f64::min)
    };
    let seek = || {
        // SAFETY: a descriptor that is none.
        std::hint::black_box(unsafe { libc::lseek(-1, 0, 0) });
    };
    answer_by(pass);
    let passed = least(100_000, &seek);
    let own = least(100_000, &|| {
        let arguments = [usize::MAX, 0, 0, 0, 0, 0];
        // SAFETY: the same call, past the library.
        let _ = unsafe { os::interrupt::system_call(libc::SYS_lseek, arguments) };
    });
    let function: extern "C" fn(i32, i64, i32) -> i64 = std::hint::black_box(bare);
    let bare = least(1_000_000, &|| {
        std::hint::black_box(function(-1, 0, 0));
    });
    answer_by(serve);
    let served = least(1_000_000, &seek);
    answer_by(count);
    println!("a function {bare:.1} ns, a call that is served {served:.1} ns");
    println!("passed on {passed:.1} ns, by the kernel alone {own:.1} ns");
    assert!(served < 50.0, "{served}");
}

unsafe extern "C-unwind" fn pass(_: &mut Call) -> Verdict {
    Verdict::Pass
}

/// What a call of a function costs.
extern "C" fn bare(_: i32, _: i64, _: i32) -> i64 {
    -1
}

unsafe extern "C-unwind" fn serve(call: &mut Call) -> Verdict {
    call.result = 0;
    Verdict::Served
}
