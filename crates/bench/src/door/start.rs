//! Programs that start, armed in each way or not at all: what the whole of one takes.
//!
//! The program is this one. It arms its C library by the steps that the preload library takes, with
//! a handler that passes on all, says how, and ends. That the dynamic linker and Rust's runtime
//! take most of its time is the same in each way.

use std::ffi::{CString, c_int, c_void};
use std::io::{self, Error, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use console::failure::{Failure, Outcome};
use door::arm::{self, Armed, Loaded, Refusal, Way};
use door::elf::ProgramHeader;
use solera_bench::{DoorStartArgs, StartWay};

use crate::harness::executable;

/// What a program took.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Of the processor.
    pub microseconds: f64,
    pub faults: f64,
}

/// Starts a program that arms itself in this way, and gives what it took and what it said.
pub fn measure(way: StartWay, folder: &Path) -> Result<(Start, String), Failure> {
    let failed = |error: Error| Failure::new("start a program", error, "");
    let mut command = Command::new(executable::own().map_err(failed)?);
    let name = match way {
        StartWay::Unarmed => "unarmed",
        StartWay::File => "file",
        StartWay::Memory => "memory",
        StartWay::Linker => "linker",
    };
    command.args(["bench", "door-start", name]).arg(folder).env_remove("LD_PRELOAD");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut said = String::new();
    if let Some(output) = &mut child.stdout {
        output.read_to_string(&mut said).map_err(failed)?;
    }
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: a child of this process's, which nobody else waits for; all zeros is a usage.
    let (waited, usage) = unsafe {
        let waited = libc::wait4(child.id() as i32, &raw mut status, 0, usage.as_mut_ptr());
        (waited, usage.assume_init())
    };
    if waited < 0 || status != 0 {
        return Err(failed(Error::other(format!("it ended with status {status:#x}"))));
    }
    let microseconds = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    let start = Start {
        microseconds: microseconds(usage.ru_utime) + microseconds(usage.ru_stime),
        faults: usage.ru_minflt as f64,
    };
    Ok((start, said.trim().to_owned()))
}

/// The program: arms itself, says how, and ends.
pub fn run(args: &DoorStartArgs) -> Outcome {
    let failed = |refusal: Refusal| Failure::new("arm the C library", refusal, "");
    let said = arm(args).map_err(failed)?;
    let said = match said.map(|armed| armed.way) {
        None => "not armed",
        Some(Way::Mapped) => "mapped",
        Some(Way::Copied) => "copied",
        Some(Way::InMemory) => "in memory",
    };
    writeln!(io::stdout(), "{said}").map_err(|error| Failure::new("say how", error, ""))?;
    Ok(0)
}

fn arm(args: &DoorStartArgs) -> Result<Option<Armed>, Refusal> {
    let folder = CString::new(args.folder.as_os_str().as_bytes()).ok();
    let folders = match args.way {
        StartWay::Unarmed => return Ok(None),
        StartWay::Memory => None,
        StartWay::File | StartWay::Linker => folder.as_deref(),
    };
    let own = rustix::process::geteuid().as_raw();
    let library = Loading::find(libc::gnu_get_libc_version as *const () as usize);
    // SAFETY: the C library, while this process has one thread, which is here.
    let armed = unsafe { door::cache::arm(&library.loaded(), folders.into_iter(), own) }?;
    if args.way == StartWay::Linker {
        // SAFETY: asks for a number.
        let linker = Loading::find(unsafe { libc::getauxval(libc::AT_BASE) } as usize);
        // SAFETY: the dynamic linker, as above.
        unsafe { arm::in_memory(&linker.loaded(), &door::wanted) }?;
    }
    Ok(Some(armed))
}

/// An object that is loaded.
pub struct Loading {
    /// An address in it.
    at: usize,
    base: usize,
    headers: &'static [ProgramHeader],
    /// The file that it was loaded from.
    pub path: Vec<u8>,
}

impl Loading {
    /// The one that has this address; without headers if there is none.
    pub fn find(at: usize) -> Self {
        let mut found = Self { at, base: 0, headers: &[], path: Vec::new() };
        // SAFETY: the callback is called while this runs, with what is passed here.
        unsafe { libc::dl_iterate_phdr(Some(Self::look), (&raw mut found).cast()) };
        found
    }

    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: what `dl_iterate_phdr` passes; objects that the program starts with stay loaded.
        unsafe {
            let (info, found) = (&*info, &mut *found.cast::<Self>());
            let count = usize::from(info.dlpi_phnum);
            let inside = |header: &libc::Elf64_Phdr| {
                let start = info.dlpi_addr + header.p_vaddr;
                (start..start + header.p_memsz).contains(&(found.at as u64))
            };
            if std::slice::from_raw_parts(info.dlpi_phdr, count).iter().any(inside) {
                found.base = info.dlpi_addr as usize;
                found.headers = std::slice::from_raw_parts(info.dlpi_phdr.cast(), count);
                found.path = std::ffi::CStr::from_ptr(info.dlpi_name).to_bytes().to_vec();
                return 1;
            }
        }
        0
    }

    fn loaded(&self) -> Loaded<'static> {
        Loaded { base: self.base, headers: self.headers }
    }
}
