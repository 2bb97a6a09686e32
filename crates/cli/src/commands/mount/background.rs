//! Lets a command go on in the background after a good start.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::exit;

use console::failure::{Failure, Outcome};
use console::output;
use rustix::fs::{Mode, OFlags};

/// Forks. The child calls `start`, tells the parent how that went, and then `serve`s without a
/// terminal; the parent gives the child's result of the start. Called while there is one thread.
pub fn run<S>(
    start: impl FnOnce() -> Result<S, Failure>,
    serve: impl FnOnce(S) -> Outcome,
) -> Outcome {
    let failed = |error: &dyn std::fmt::Display| Failure::new("go to the background", error, "");
    let (from_child, to_parent) = rustix::pipe::pipe().map_err(|errno| failed(&errno))?;
    // SAFETY: this process has one thread, so the child may do whatever it likes.
    match unsafe { libc::fork() } {
        -1 => Err(failed(&std::io::Error::last_os_error())),
        0 => {
            drop(from_child);
            exit(child(to_parent, start, serve));
        }
        _ => {
            drop(to_parent);
            let mut said = String::new();
            let read =
                output::busy("attaching", || File::from(from_child).read_to_string(&mut said));
            match (read, said.strip_prefix("ok")) {
                (Ok(_), Some(_)) => Ok(0),
                (Ok(_), None) if !said.is_empty() => Err(Failure::told(&said)),
                _ => Err(failed(&"the process that serves the mount has died")),
            }
        }
    }
}

fn child<S>(
    to_parent: OwnedFd,
    start: impl FnOnce() -> Result<S, Failure>,
    serve: impl FnOnce(S) -> Outcome,
) -> i32 {
    // A session of its own: the terminal's signals and its end do not concern this process.
    let _ = rustix::process::setsid();
    let mut to_parent = File::from(to_parent);
    let started = match start() {
        Ok(started) => started,
        Err(failure) => {
            let _ = to_parent.write_all(failure.to_string().as_bytes());
            return failure.exit_code().into();
        }
    };
    let _ = rustix::process::chdir("/");
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(null.as_fd());
        let _ = rustix::stdio::dup2_stdout(null.as_fd());
        let _ = rustix::stdio::dup2_stderr(null.as_fd());
    }
    // If the parent was killed no process waits for the result.
    let _ = to_parent.write_all(b"ok");
    drop(to_parent);
    match serve(started) {
        Ok(code) => code.into(),
        Err(failure) => failure.exit_code().into(),
    }
}
