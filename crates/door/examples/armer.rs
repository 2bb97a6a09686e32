//! A library that arms the program that preloads it, with a handler that passes everything on, or
//! serves one call, `getcwd`, where `SOLERA_DOOR_SERVE` is set. For the tests, and to see what is
//! needed.
//!
//! `SOLERA_DOOR_ARM` names the folder of patched files, by their build-ids, or is `memory`. A
//! program that is told to be armed and cannot be ends with 125 and the reason.

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use door::arm::{self, Armed, Loaded};
use door::cache;
use door::elf::{self, ProgramHeader};
use door::entry::{Call, Verdict, answer_by};

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

/// Before the program's own constructors: it has one thread.
extern "C" fn at_start() {
    let Some(how) = std::env::var_os("SOLERA_DOOR_ARM") else { return };
    answer_by(if std::env::var_os("SOLERA_DOOR_SERVE").is_some() { answer } else { pass });
    // SAFETY: the callback is called while this runs, with what is passed here.
    let code = unsafe { libc::dl_iterate_phdr(Some(each), (&raw const how).cast_mut().cast()) };
    if code != 0 {
        std::process::exit(125);
    }
}

unsafe extern "C" fn each(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    how: *mut libc::c_void,
) -> i32 {
    // SAFETY: what `dl_iterate_phdr` passes; the name is a string, the headers stay loaded.
    let (name, loaded, how) = unsafe {
        let info = &*info;
        let headers: *const ProgramHeader = info.dlpi_phdr.cast();
        let headers = std::slice::from_raw_parts(headers, usize::from(info.dlpi_phnum));
        let name = CStr::from_ptr(info.dlpi_name);
        (name, Loaded { base: info.dlpi_addr as usize, headers }, &*how.cast::<OsString>())
    };
    let name = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    let file = name.file_name().unwrap_or_default().to_string_lossy();
    if !file.starts_with("libc.so") && !file.starts_with("ld-linux") {
        return 0;
    }
    match arm(&loaded, how) {
        Ok(_) => 0,
        Err(why) => {
            eprintln!("armer: {}: {why}", name.display());
            1
        }
    }
}

fn arm(loaded: &Loaded, how: &OsString) -> Result<Armed, String> {
    if how == "memory" {
        // SAFETY: one thread, in a constructor.
        return unsafe { arm::in_memory(loaded, &door::wanted) }.map_err(|why| why.to_string());
    }
    let read = |address: u64, size: usize| {
        let start = (loaded.base + address as usize) as *const u8;
        // SAFETY: the notes of a library that stays loaded.
        Some(unsafe { std::slice::from_raw_parts(start, size) })
    };
    let id = elf::build_id(loaded.headers, read).map_err(|unfit| format!("{unfit:?}"))?;
    let folder = CString::new(how.as_bytes()).map_err(|error| error.to_string())?;
    let own = rustix::process::geteuid().as_raw();
    let file = cache::open(&folder, id, own).map_err(|why| why.to_string())?;
    // SAFETY: as above; the file is opened.
    let armed = unsafe { arm::by_file(loaded, file) }.map_err(|why| why.to_string());
    // SAFETY: opened here.
    unsafe { libc::close(file) };
    armed
}

unsafe extern "C-unwind" fn pass(_: &mut Call) -> Verdict {
    Verdict::Pass
}

unsafe extern "C-unwind" fn answer(call: &mut Call) -> Verdict {
    const SERVED: &[u8] = b"/served/by/the/handler\0";
    if call.number() != libc::SYS_getcwd as u32 || call.arguments()[1] < SERVED.len() {
        return Verdict::Pass;
    }
    // SAFETY: the caller's own buffer, of this size at least.
    unsafe {
        let to = call.arguments()[0] as *mut u8;
        std::ptr::copy_nonoverlapping(SERVED.as_ptr(), to, SERVED.len());
    }
    call.result = SERVED.len() as isize;
    Verdict::Served
}
