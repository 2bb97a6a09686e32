//! A guest whose starter traces it (`PTRACE_TRACEME`): to that one its exec seems to be over when
//! it is mapped. Then it stops as at an exec, and the kernel tells its auxiliary vector, not the
//! host's: a debugger finds by that where the program lies, and sets breakpoints.

use std::ffi::c_ulong;

use crate::entry::syscall;
use crate::processes::host_program;

const PR_SET_MM: usize = 35;
const PR_SET_MM_MAP: usize = 14;

/// The kernel's structure (`prctl_mm_map`).
#[repr(C)]
struct MemoryMap {
    /// The fields of `/proc/self/stat`: beginning and end of code and data, beginning and end of
    /// the kernel's `brk`, beginning of the stack, beginning and end of arguments and variables.
    places: [u64; 11],
    auxiliary: *const usize,
    auxiliary_bytes: u32,
    /// No other file.
    program: u32,
}

/// Stops, if it is traced. `auxiliary`: the guest's vector, with its end.
pub fn begin(auxiliary: &[usize]) {
    if !host_program::is_traced() {
        return;
    }
    // A debugger that is not told finds what it found before.
    let _ = tell(auxiliary);
    if syscall::kernel(libc::SYS_ptrace, [libc::PTRACE_TRACEME as usize, 0, 0, 0, 0, 0]) == 0 {
        let own = rustix::process::getpid().as_raw_nonzero().get() as usize;
        syscall::kernel(libc::SYS_kill, [own, libc::SIGTRAP as usize, 0, 0, 0, 0]);
    }
}

/// `None`: the kernel does not let it be told.
fn tell(auxiliary: &[usize]) -> Option<()> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<u64> = stat
        .rsplit_once(") ")?
        .1
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    // The third field is the first here.
    let field = |number: usize| fields.get(number - 3).copied();
    let end = syscall::kernel(libc::SYS_brk, [0; 6]) as c_ulong;
    let map = MemoryMap {
        places: [
            field(26)?,
            field(27)?,
            field(45)?,
            field(46)?,
            field(47)?,
            end,
            field(28)?,
            field(48)?,
            field(49)?,
            field(50)?,
            field(51)?,
        ],
        auxiliary: auxiliary.as_ptr(),
        auxiliary_bytes: size_of_val(auxiliary) as u32,
        program: u32::MAX,
    };
    let at = std::ptr::from_ref(&map) as usize;
    let given = [PR_SET_MM, PR_SET_MM_MAP, at, size_of::<MemoryMap>(), 0, 0];
    (syscall::kernel(libc::SYS_prctl, given) == 0).then_some(())
}
