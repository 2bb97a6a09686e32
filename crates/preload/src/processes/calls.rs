//! The calls of this room: programs executed, the file mode creation mask.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use crate::entry::pointers::Text;
use crate::interposed::bodies;
use crate::paths::flags;
use crate::processes::exec::{List, exec, failed, image_at, open_image, run};

bodies! {
    fn execve(path: Text, arguments: List, environment: List) -> c_int = |process, _| {
        failed(exec(process, path.bytes()?, arguments, environment))
    }
    fn execveat(
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
    fn umask(mask: c_uint) -> c_int = |process, kernel| {
        let before = kernel(mask);
        process.umask.store(mask & 0o777, Ordering::Relaxed);
        Ok(before)
    }
}
