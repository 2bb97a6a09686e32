//! Calls the function that serves an operation, by its number.

use vfs::{Errno, Result, Synced};

use crate::abi::{BatchForgetIn, ForgetIn, ForgetOne, InterruptIn, op};
use crate::request::{Answer, Request};
use crate::session::Worker;

impl Worker {
    /// Serves one request; `false`: it gets no answer (now).
    pub fn dispatch(&self, request: &mut Request<'_>, answer: &mut Answer) -> Result<bool> {
        let session = &*self.session;
        match request.header.opcode {
            op::FORGET => {
                let ForgetIn { nlookup } = request.take()?;
                session.forget(request.header.nodeid, nlookup);
                return Ok(false);
            }
            op::BATCH_FORGET => {
                let BatchForgetIn { count, .. } = request.take()?;
                for _ in 0..count {
                    let ForgetOne { nodeid, nlookup } = request.take()?;
                    session.forget(nodeid, nlookup);
                }
                return Ok(false);
            }
            op::INTERRUPT => {
                let InterruptIn { unique } = request.take()?;
                session.locks.interrupt(unique);
                return Ok(false);
            }
            op::SETLK => self.set_lock(request, false),
            op::SETLKW => return self.set_lock(request, true).map(|()| false),
            op::GETLK => session.test_lock(request, answer),
            op::LOOKUP => session.lookup(request, answer),
            op::GETATTR => session.get_attr(request, answer),
            op::STATX => session.statx(request, answer),
            op::SETATTR => session.set_attr(request, answer),
            op::READLINK => session.read_link(request, answer),
            op::SYMLINK => session.symlink(request, answer),
            op::MKNOD => session.make_node(request, answer),
            op::MKDIR => session.make_dir(request, answer),
            op::UNLINK => session.unlink(request),
            op::RMDIR => session.remove_dir(request),
            op::RENAME => session.rename(request, false),
            op::RENAME2 => session.rename(request, true),
            op::LINK => session.link(request, answer),
            op::OPEN | op::OPENDIR => session.open(request, answer),
            op::CREATE => session.create(request, answer),
            op::TMPFILE => session.create_temporary(request, answer),
            op::READ => session.read(request, answer),
            op::WRITE => session.write(request, answer),
            op::FLUSH => session.flush(request),
            op::RELEASE | op::RELEASEDIR => session.release(request),
            op::FSYNC | op::FSYNCDIR => session.sync(request),
            op::SYNCFS => session.fs.sync(Synced::All),
            op::STATFS => session.stat_fs(answer),
            op::READDIR => session.read_dir(request, answer, false),
            op::READDIRPLUS => session.read_dir(request, answer, true),
            op::SETXATTR => session.set_xattr(request),
            op::GETXATTR => session.get_xattr(request, answer),
            op::LISTXATTR => session.list_xattr(request, answer),
            op::REMOVEXATTR => session.remove_xattr(request),
            op::FALLOCATE => session.allocate(request),
            op::LSEEK => session.seek(request, answer),
            op::COPY_FILE_RANGE => session.copy_range(request, answer),
            op::IOCTL => Err(Errno::NOTTY),
            op::DESTROY => Ok(()),
            // The kernel then does what it can by itself, and does not ask again.
            _ => Err(Errno::NOSYS),
        }
        .map(|()| true)
    }
}
