//! The exported functions of this room: processes made, programs executed, the end; what serves
//! this process.
//!
//! `execl`, `execlp`, `execle` are C functions with a list of arguments of any length, which Rust
//! cannot define. Each turns its registers and stack into the array that `execv` and its kin take:
//! by the x86-64 calling convention, after the return address is taken off, pushing the five
//! argument registers in reverse before the stack's arguments makes them one contiguous array. The
//! functions come back only if exec failed.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use libc::FILE;
use vfs::preloaded::Preloaded;

use crate::entry::pointers::{Out, Text};
use crate::entry::{Stop, outside};
use crate::interposed::interpose;
use crate::paths::flags;
use crate::processes::announcement;
use crate::processes::exec::{List, exec, exec_search, failed, image_at, open_image, run};
use crate::processes::fork::{
    self, Main, Start, clone_by, fork_with_handlers, fork_without_handlers, real_clone, real_fork,
    vfork_by,
};
use crate::processes::lifecycle;
use crate::processes::spawn::{self, Actions, Attributes, Program, by_descriptor, posix};
use crate::split::engine;
use crate::start;

/// What serves this process: 1 a volume or several, 2 the engine over a kernel file system, 3 both,
/// 0 nothing. `solera run` looks it up by its name: a program is served once.
#[unsafe(no_mangle)]
pub extern "C" fn solera_serves() -> c_int {
    let volumes = c_int::from(start::process().is_some());
    if engine::is_here() { volumes | 2 } else { volumes }
}

/// The variable that the text is, of a volume besides, goes to what this process executes next:
/// `solera run` in a program that is served names volumes so.
///
/// # Safety
///
/// The text ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solera_shows(variable: Text) {
    if let (Some(process), Ok(text)) = (start::process(), variable.bytes()) {
        process.show(text);
    }
}

/// What other libraries of this process are told, by a name that all versions have.
#[unsafe(no_mangle)]
pub extern "C" fn solera_preloaded() -> *const Preloaded {
    &raw const announcement::TABLE
}

// ---- new processes

interpose! {
    fn [fork, __fork, __libc_fork]() -> c_int = |process, _| {
        Ok(fork_with_handlers(process)?)
    }
    fn [_Fork]() -> c_int = |process, _| {
        Ok(fork_without_handlers(process)?)
    }
    /// Never glibc's: its child would return through this library's frame, which is the parent's.
    fn [vfork, __vfork]() -> c_int = |process, _| {
        Ok(vfork_by(process, real_fork)?)
    }
    /// The last three are there only if the flags say so.
    fn [clone, __clone](
        main: Main, stack: *mut c_void, flags: c_int, argument: *mut c_void,
        parent_id: *mut c_int, tls: *mut c_void, child_id: *mut c_int,
    ) -> c_int = |process, _| {
        let own = |flags: c_int, start: *mut Start| {
            real_clone(start, (stack, flags), (parent_id, tls, child_id))
        };
        clone_by(process, (main, argument), (stack, flags), own)
    }
}

// ---- programs executed

interpose! {
    fn [execve](path: Text, arguments: List, environment: List) -> c_int = |process, _| {
        failed(exec(process, path.bytes()?, arguments, environment))
    }
    fn [execv](path: Text, arguments: List) -> c_int = |process, _| {
        failed(exec(process, path.bytes()?, arguments, List::environment()))
    }
    fn [execvp](file: Text, arguments: List) -> c_int = |process, _| {
        failed(exec_search(process, file.bytes()?, arguments, List::environment()))
    }
    fn [execvpe](file: Text, arguments: List, environment: List) -> c_int = |process, _| {
        failed(exec_search(process, file.bytes()?, arguments, environment))
    }
    fn [fexecve](fd: c_int, arguments: List, environment: List) -> c_int = |process, _| {
        let image = open_image(process, fd)?;
        failed(run(process, &image, arguments, environment))
    }
    fn [execveat](
        dirfd: c_int, path: Text, arguments: List, environment: List, flags: c_int,
    ) -> c_int = |process, _| {
        flags::EXECUTE.check_at(process, (dirfd, path), flags)?;
        let path = path.bytes()?;
        let image = if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            open_image(process, dirfd)?
        } else {
            image_at(process, dirfd, path, flags)?
        };
        failed(run(process, &image, arguments, environment))
    }
}

macro_rules! from_list {
    ($name:ident, $target:path) => {
        // SAFETY: the symbol replaces glibc's of the same name; the stack is left as it was found.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, first: *const c_char) -> c_int {
            naked_asm!(
                "pop r10",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rbp",
                "mov rbp, rsp",
                "push r10",
                "and rsp, -16",
                "call {target}",
                "mov r10, [rbp - 8]",
                "mov rsp, rbp",
                "pop rbp",
                "add rsp, 40",
                "push r10",
                "ret",
                target = sym $target,
            )
        }
    };
}

unsafe extern "C" fn with_list(path: *const c_char, list: *const *const c_char) -> c_int {
    // SAFETY: a NULL-terminated array, made above.
    unsafe { libc::execv(path, list) }
}

unsafe extern "C" fn with_search(file: *const c_char, list: *const *const c_char) -> c_int {
    // SAFETY: as above.
    unsafe { libc::execvp(file, list) }
}

/// The environment stands after the list's NULL.
unsafe extern "C" fn with_environment(path: *const c_char, list: *const *const c_char) -> c_int {
    // SAFETY: a NULL-terminated array and one more argument, by the contract of `execle`.
    unsafe {
        let mut end = list;
        while !(*end).is_null() {
            end = end.add(1);
        }
        libc::execve(path, list, (*end.add(1)).cast())
    }
}

from_list!(execl, with_list);

from_list!(execlp, with_search);

from_list!(execle, with_environment);

// ---- spawned

interpose! {
    fn [posix_spawn](
        pid: Out<c_int>, path: Text, actions: *const Actions, attributes: Attributes,
        arguments: List, environment: List,
    ) -> c_int = |process, _| {
        let program = Program { file: path.bytes()?, search: false, arguments, environment };
        posix(process, pid, program, (actions, attributes))
    }
    fn [posix_spawnp](
        pid: Out<c_int>, file: Text, actions: *const Actions, attributes: Attributes,
        arguments: List, environment: List,
    ) -> c_int = |process, _| {
        let program = Program { file: file.bytes()?, search: true, arguments, environment };
        posix(process, pid, program, (actions, attributes))
    }
    fn [pidfd_spawn](
        pidfd: Out<c_int>, path: Text, actions: *const Actions, attributes: Attributes,
        arguments: List, environment: List,
    ) -> c_int = |process, _| {
        let program = Program { file: path.bytes()?, search: false, arguments, environment };
        by_descriptor(process, pidfd, program, (actions, attributes))
    }
    fn [pidfd_spawnp](
        pidfd: Out<c_int>, file: Text, actions: *const Actions, attributes: Attributes,
        arguments: List, environment: List,
    ) -> c_int = |process, _| {
        let program = Program { file: file.bytes()?, search: true, arguments, environment };
        by_descriptor(process, pidfd, program, (actions, attributes))
    }
    fn [popen, _IO_popen](command: *const c_char, mode: Text) -> *mut FILE = |process, _| {
        spawn::open_pipe(process, command, mode.bytes()?)
    }
    fn [pclose](stream: *mut FILE) -> c_int = |_, _| {
        spawn::close_pipe(stream)
    }
    fn [system, __libc_system](text: *const c_char) -> c_int = |process, _| {
        spawn::command(process, text)
    }
}

// ---- the process itself

interpose! {
    fn [_exit, _Exit](code: c_int) -> () = |process, _| {
        let _ = code;
        lifecycle::leave(process);
        Err(Stop::Kernel)
    }
    /// glibc's forks inside itself.
    fn [daemon](keep_directory: c_int, keep_streams: c_int) -> c_int = |process, _| {
        if fork::fork_with_handlers(process)? != 0 {
            lifecycle::leave(process);
            lifecycle::exit_now(0);
        }
        rustix::process::setsid()?;
        outside(|| {
            // SAFETY: calls with constant arguments, as the program would make them.
            unsafe {
                if keep_directory == 0 {
                    libc::chdir(c"/".as_ptr());
                }
                if keep_streams == 0 {
                    let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                    for fd in 0..3 {
                        libc::dup2(null, fd);
                    }
                    if null > 2 {
                        libc::close(null);
                    }
                }
            }
        });
        Ok(0)
    }
    fn [umask](mask: c_uint) -> c_uint = |process, kernel| {
        let before = kernel(mask);
        process.umask.store(mask & 0o777, Ordering::Relaxed);
        Ok(before)
    }
}
