//! What a system forbids: each way of arming is refused with its reason, and the library works as
//! it did. Each in a process of its own, for what is forbidden stays so.

use std::os::fd::AsRawFd;
use std::process::Command;

use door::arm::{self, Loaded, Refusal, Step, Way};
use door::entry::{Call, Verdict, answer_by};
use door::image::{Damaged, Image};
use rustix::io::Errno;

use crate::entry::{Library, forms};
use crate::libraries::Scratch;

/// The variable that says what is forbidden.
const FORBID: &str = "SOLERA_DOOR_TEST_FORBID";

unsafe extern "C-unwind" fn never(_: &mut Call) -> Verdict {
    std::process::abort()
}

#[test]
fn what_is_forbidden_is_said_and_changes_nothing() {
    for what in ["nothing", "mdwe", "mprotect", "execution", "sealed"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "refused::what_a_restricted_process_sees", "--nocapture"])
            .arg("--test-threads=1")
            .env(FORBID, what)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {:?}\n{said}\n{errors}", output.status);
        for line in said.lines().filter(|line| line.starts_with("left out")) {
            println!("{line}");
        }
    }
}

#[test]
fn what_a_restricted_process_sees() {
    let Ok(what) = std::env::var(FORBID) else { return };
    let folder = Scratch::new(&what);
    let paths = ["file.so", "memory.so"].map(|name| folder.0.join(name));
    for path in &paths {
        forms(path);
    }
    let [file, memory] = paths.each_ref().map(|path| Library::load(path));
    let image = Image::make(&std::fs::read(&paths[0]).unwrap(), &door::wanted).unwrap();
    let patched = folder.0.join("patched");
    std::fs::write(&patched, &image.bytes).unwrap();
    let patched = std::fs::File::open(&patched).unwrap();
    let text = (file.base + image.footer.text_address as usize) & !4095;
    if !forbid(&what, &[text, text - file.base + memory.base]) {
        println!("left out: this kernel cannot forbid {what}");
        return;
    }
    let loaded = Loaded { base: file.base, headers: file.headers() };
    // SAFETY: nobody is in the library.
    let by_file = unsafe { arm::by_file(&loaded, patched.as_raw_fd()) };
    let loaded = Loaded { base: memory.base, headers: memory.headers() };
    // SAFETY: as above.
    let in_memory = unsafe { arm::in_memory(&loaded, &door::wanted) };
    let refused = |errno| Refusal::Forbidden(Step::Write, errno);
    let (mapped, patched) = match what.as_str() {
        "nothing" => (None, None),
        "mdwe" => (None, Some(refused(Errno::ACCESS))),
        "mprotect" => (None, Some(refused(Errno::PERM))),
        _ => (Some(refused(Errno::PERM)), Some(refused(Errno::PERM))),
    };
    assert_eq!(by_file.map(|done| done.way), mapped.map_or(Ok(Way::Mapped), Err));
    assert_eq!(in_memory.map(|done| done.way), patched.map_or(Ok(Way::InMemory), Err));
    // What was refused works without the handler, and its slot is as it was.
    answer_by(never);
    for (library, refusal) in [(&file, mapped), (&memory, patched)] {
        let Some(refusal) = refusal else { continue };
        assert!(refusal.to_string().contains("may not be"), "{refusal}");
        let function = library.function(c"constant");
        // SAFETY: `stat` of two pointers that are none.
        let result = unsafe {
            std::mem::transmute::<usize, extern "C" fn(usize, usize) -> isize>(function)(1, 1)
        };
        assert_eq!(result as i32, -libc::EFAULT);
        // SAFETY: the library's slot.
        let slot = unsafe { *((library.base + image.footer.slot as usize) as *const u64) };
        assert_eq!(slot, image.footer.slot_before);
    }
}

/// Forbids something to this process from now on; false if the kernel cannot.
fn forbid(what: &str, texts: &[usize]) -> bool {
    const PR_SET_MDWE: i32 = 65;
    const MSEAL: i64 = 462;
    match what {
        // SAFETY: refuses what was not executable to become so.
        "mdwe" => unsafe { libc::prctl(PR_SET_MDWE, 1, 0, 0, 0) == 0 },
        // SAFETY: a page of a library that is loaded may not be changed any more.
        "sealed" => texts.iter().all(|text| unsafe { libc::syscall(MSEAL, *text, 4096, 0) == 0 }),
        "mprotect" => filter(false),
        "execution" => filter(true),
        _ => true,
    }
}

/// A filter that answers `mprotect` by EPERM, and with `mmap` the mapping of what is executable.
fn filter(mmap: bool) -> bool {
    let load = |offset| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let equal = |value, jf| libc::sock_filter { code: 0x15, jt: 0, jf, k: value };
    let bits = |value, jf| libc::sock_filter { code: 0x45, jt: 0, jf, k: value };
    let answer = |value| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: value };
    let refuse = answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let allow = answer(libc::SECCOMP_RET_ALLOW);
    let mut rules = vec![load(0), equal(libc::SYS_mprotect as u32, 1), refuse];
    if mmap {
        // The third argument.
        rules.extend([equal(libc::SYS_mmap as u32, 3), load(32)]);
        rules.extend([bits(libc::PROT_EXEC as u32, 1), refuse]);
    }
    rules.push(allow);
    let program = libc::sock_fprog { len: rules.len() as u16, filter: rules.as_mut_ptr() };
    // SAFETY: a filter of this process's own.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program) == 0
    }
}

#[test]
fn a_file_that_does_not_fit_is_refused() {
    let folder = Scratch::new("misfit");
    let path = folder.0.join("library.so");
    forms(&path);
    let library = Library::load(&path);
    let loaded = Loaded { base: library.base, headers: library.headers() };
    let image = Image::make(&std::fs::read(&path).unwrap(), &door::wanted).unwrap();
    let other = Image::make(&std::fs::read(&crate::libraries::host()[0]).unwrap(), &door::wanted);
    let mut flipped = image.bytes.clone();
    let last = flipped.len() - 20;
    flipped[last] ^= 1;
    let cut = &image.bytes[..image.bytes.len() - 1];
    let cases: [(&[u8], Refusal); 5] = [
        (b"", Refusal::Damaged(Damaged::Short)),
        (&[0; 4096], Refusal::Damaged(Damaged::Magic)),
        (cut, Refusal::Damaged(Damaged::Magic)),
        (&flipped, Refusal::Damaged(Damaged::Checksum)),
        (&other.unwrap().bytes, Refusal::OtherBuild),
    ];
    for (bytes, refusal) in cases {
        let patched = folder.0.join("patched");
        std::fs::write(&patched, bytes).unwrap();
        let patched = std::fs::File::open(&patched).unwrap();
        // SAFETY: nobody is in the library.
        let done = unsafe { arm::by_file(&loaded, patched.as_raw_fd()) };
        assert_eq!(done, Err(refusal));
    }
    // SAFETY: as above; no descriptor.
    let done = unsafe { arm::by_file(&loaded, -1) };
    assert_eq!(done, Err(Refusal::Forbidden(Step::Read, Errno::BADF)));
}
