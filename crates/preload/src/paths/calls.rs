//! The calls of this room: those that change a thread's identity, and the working directory.

use std::ffi::{c_int, c_long};

use ddmap::Pagers;
use vfs::{Errno, FileSystemExt};

use crate::entry::pointers::{Bytes, Text};
use crate::entry::report;
use crate::entry::{Stop, fdtable};
use crate::interposed::bodies;
use crate::paths::{self, Target, credentials, cwd};

/// Bodies of calls that change the calling thread's identity.
macro_rules! identities {
    ($($name:ident $number:ident),* $(,)?) => {
        bodies! {
            $(fn $name(a: usize, b: usize, c: usize) -> c_long = |process, _| {
                Ok(credentials::by_number(process, libc::$number, [a, b, c, 0, 0, 0]))
            })*
        }
    };
}

identities! {
    setuid SYS_setuid, setgid SYS_setgid, setreuid SYS_setreuid, setregid SYS_setregid,
    setgroups SYS_setgroups, setresuid SYS_setresuid, setresgid SYS_setresgid,
    setfsuid SYS_setfsuid, setfsgid SYS_setfsgid, capset SYS_capset,
}

bodies! {
    fn unshare(flags: c_int) -> c_long = |process, kernel| {
        Pagers::learn();
        Ok(credentials::moved(process, flags, || kernel(flags) as c_int).into())
    }
    fn setns(fd: c_int, kinds: c_int) -> c_long = |process, kernel| {
        Pagers::learn();
        let entered = credentials::entered_by(fd, kinds);
        Ok(credentials::moved(process, entered, || kernel(fd, kinds) as c_int).into())
    }
}

bodies! {
    fn chdir(path: Text) -> c_int = |process, kernel| {
        let target = paths::resolve(process, libc::AT_FDCWD, path.bytes()?, true)?;
        let kernel_path = match &target {
            Target::Kernel => path,
            Target::Elsewhere(path) => Text(path.as_ptr()),
            _ => return cwd::enter(process, &paths::existing(process, &target)?),
        };
        let result = kernel(kernel_path);
        if result == 0 {
            cwd::entered_kernel_directory(process);
        } else if matches!(target, Target::Kernel) {
            // It may lead here by a symlink.
            return Err(Stop::Kernel);
        }
        Ok(result)
    }
    fn fchdir(fd: c_int) -> c_int = |process, kernel| {
        if let Some(desc) = fdtable::get(fd) {
            let (node, _) = process.fs.describe(desc)?;
            return cwd::enter(process, &process.fs.attributes(node)?);
        }
        let result = kernel(fd);
        if result == 0 {
            cwd::entered_kernel_directory(process);
        }
        Ok(result)
    }
    fn getcwd(to: Bytes, len: usize) -> c_int = |process, _| {
        Ok(cwd::by_number(process, to, len)? as c_int)
    }
    fn chroot(path: Text) -> c_int = |process, _| {
        match paths::resolve(process, libc::AT_FDCWD, path.bytes()?, true)? {
            Target::Kernel | Target::Elsewhere(_) => {
                Pagers::learn();
                Err(Stop::Kernel)
            }
            target => {
                let found = paths::existing(process, &target)?;
                paths::require_directory(&found)?;
                report::about(found.node.member());
                Err(Stop::Refused("chroot-onto-volume", Errno::PERM))
            }
        }
    }
}
