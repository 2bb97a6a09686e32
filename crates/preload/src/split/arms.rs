//! What the second engine does of a call that the volume leaves to the kernel.
//!
//! [`call!`] stands where a call is made that the volume leaves to the kernel. What the table says
//! of it ([`calls::Split`]) chooses; whether there is an engine is asked by one load.

/// `call!(name of the call, hidden (arguments))`, where `SAID` is what the table says of it.
macro_rules! call {
    ($name:ident $h:ident $arguments:tt) => {
        if const { matches!(SAID.split, calls::Split::Own) } {
            $crate::split::engine::arm!($name $h $arguments)
        } else {
            if const { matches!(SAID.split, calls::Split::Drained) } {
                $crate::split::engine::drain_changes();
            }
            if const { matches!(SAID.split, calls::Split::HandedOver) } {
                $crate::split::engine::hand_over_all();
            }
            $h $arguments
        }
    };
}
pub(crate) use call;

/// The arms of the engine's own, by the first name of each function.
macro_rules! arm {
    // Calls whose arguments and arms are the same.
    (lstat $($r:tt)*) => { $crate::split::engine::arm!(stat $($r)*) };
    // Data.
    (read $h:ident ($fd:ident, $to:ident, $len:ident)) => {
        $crate::split::engine::read($fd, $to, $len, None, || $h($fd, $to, $len))
    };
    (pread64 $h:ident ($fd:ident, $to:ident, $len:ident, $at:ident)) => {
        $crate::split::engine::read($fd, $to, $len, Some($at), || $h($fd, $to, $len, $at))
    };
    (write $h:ident ($fd:ident, $from:ident, $len:ident)) => {
        $crate::split::engine::write($fd, $from, $len, None, || $h($fd, $from, $len))
    };
    (pwrite64 $h:ident ($fd:ident, $from:ident, $len:ident, $at:ident)) => {
        $crate::split::engine::write($fd, $from, $len, Some($at), || $h($fd, $from, $len, $at))
    };
    (readv $h:ident ($fd:ident, $list:ident, $count:ident)) => {
        $crate::split::engine::read_vectors($fd, $list, $count, None, || $h($fd, $list, $count))
    };
    (writev $h:ident ($fd:ident, $list:ident, $count:ident)) => {
        $crate::split::engine::write_vectors($fd, $list, $count, None, || $h($fd, $list, $count))
    };
    (preadv $h:ident ($fd:ident, $list:ident, $count:ident, $at:ident)) => {
        $crate::split::engine::read_vectors($fd, $list, $count, Some($at), || {
            $h($fd, $list, $count, $at)
        })
    };
    (pwritev $h:ident ($fd:ident, $list:ident, $count:ident, $at:ident)) => {
        $crate::split::engine::write_vectors($fd, $list, $count, Some($at), || {
            $h($fd, $list, $count, $at)
        })
    };
    (preadv2 $h:ident ($fd:ident, $list:ident, $n:ident, $at:ident, $u:ident, $flags:ident)) => {
        $crate::split::engine::around($fd, false, || $h($fd, $list, $n, $at, $u, $flags))
    };
    (pwritev2 $h:ident ($fd:ident, $list:ident, $n:ident, $at:ident, $u:ident, $flags:ident)) => {
        $crate::split::engine::around($fd, true, || $h($fd, $list, $n, $at, $u, $flags))
    };
    (lseek $h:ident ($fd:ident, $offset:ident, $whence:ident)) => {
        $crate::split::engine::seek($fd, $offset, $whence, || $h($fd, $offset, $whence))
    };
    (fsync $h:ident ($fd:ident)) => { $crate::split::engine::sync($fd, || $h($fd)) };
    (fdatasync $h:ident ($fd:ident)) => { $crate::split::engine::sync($fd, || $h($fd)) };
    (sync_file_range $h:ident ($fd:ident, $at:ident, $len:ident, $flags:ident)) => {
        $crate::split::engine::sync($fd, || $h($fd, $at, $len, $flags))
    };
    (syncfs $h:ident ($fd:ident)) => {{
        $crate::split::engine::drain_all();
        $h($fd)
    }};
    (sync $h:ident ()) => {{
        $crate::split::engine::drain_all();
        $h()
    }};
    (sendfile $h:ident ($to:ident, $from:ident, $at:ident, $len:ident)) => {{
        $crate::split::engine::hand_over(&[$to, $from]);
        $h($to, $from, $at, $len)
    }};
    (splice $h:ident ($from:ident, $f:ident, $to:ident, $t:ident, $len:ident, $flags:ident)) => {{
        $crate::split::engine::hand_over(&[$to, $from]);
        $h($from, $f, $to, $t, $len, $flags)
    }};
    (copy_file_range $h:ident
        ($from:ident, $f:ident, $to:ident, $t:ident, $len:ident, $flags:ident)) => {{
        $crate::split::engine::hand_over(&[$to, $from]);
        $h($from, $f, $to, $t, $len, $flags)
    }};
    (ftruncate $h:ident ($fd:ident, $size:ident)) => {
        $crate::split::engine::around($fd, true, || $h($fd, $size))
    };
    (fallocate $h:ident ($fd:ident, $how:ident, $at:ident, $len:ident)) => {
        $crate::split::engine::around($fd, true, || $h($fd, $how, $at, $len))
    };
    (unlink $h:ident ($path:ident)) => {
        $crate::split::engine::removed(libc::AT_FDCWD, $path, || $h($path))
    };
    (unlinkat $h:ident ($dirfd:ident, $path:ident, $flags:ident)) => {
        $crate::split::engine::removed($dirfd, $path, || $h($dirfd, $path, $flags))
    };
    (rename $h:ident ($from:ident, $to:ident)) => {
        $crate::split::engine::named($from, false, $to, || {
            $crate::split::engine::removed(libc::AT_FDCWD, $to, || $h($from, $to))
        })
    };
    (renameat $h:ident ($a:ident, $from:ident, $b:ident, $to:ident)) => {
        $crate::split::engine::named($from, false, $to, || {
            $crate::split::engine::removed($b, $to, || $h($a, $from, $b, $to))
        })
    };
    (renameat2 $h:ident ($a:ident, $from:ident, $b:ident, $to:ident, $flags:ident)) => {
        $crate::split::engine::named($to, false, $from, || {
            $crate::split::engine::named($from, false, $to, || {
                $crate::split::engine::removed($b, $to, || $h($a, $from, $b, $to, $flags))
            })
        })
    };
    (link $h:ident ($from:ident, $to:ident)) => {
        $crate::split::engine::named($from, false, $to, || $h($from, $to))
    };
    (linkat $h:ident ($a:ident, $from:ident, $b:ident, $to:ident, $flags:ident)) => {
        $crate::split::engine::named($from, $flags != 0, $to, || $h($a, $from, $b, $to, $flags))
    };
    (truncate $h:ident ($path:ident, $size:ident)) => {
        $crate::split::engine::truncate($path, || $h($path, $size))
    };
    (mmap $h:ident ($at:ident, $len:ident, $prot:ident, $flags:ident, $fd:ident, $o:ident)) => {{
        if $flags & libc::MAP_ANONYMOUS == 0 {
            $crate::split::engine::mapped($fd);
        }
        $h($at, $len, $prot, $flags, $fd, $o)
    }};
    // Descriptors.
    (open $h:ident ($path:ident, $flags:ident, $mode:ident)) => {
        $crate::split::engine::opened($flags, || $h($path, $flags, $mode))
    };
    (openat $h:ident ($dir:ident, $path:ident, $flags:ident, $mode:ident)) => {
        $crate::split::engine::opened($flags, || $h($dir, $path, $flags, $mode))
    };
    (creat $h:ident ($path:ident, $mode:ident)) => {
        $crate::split::engine::opened(libc::O_TRUNC | libc::O_WRONLY, || $h($path, $mode))
    };
    (close $h:ident ($fd:ident)) => { $crate::split::engine::close($fd, || $h($fd)) };
    (close_range $h:ident ($first:ident, $last:ident, $flags:ident)) => {
        $crate::split::engine::close_range($first, $last, $flags, |a, b| $h(a, b, $flags))
    };
    (dup $h:ident ($fd:ident)) => { $crate::split::engine::duplicated($fd, || $h($fd)) };
    (dup2 $h:ident ($old:ident, $new:ident)) => {
        $crate::split::engine::replaced($old, $new, || $h($old, $new))
    };
    (dup3 $h:ident ($old:ident, $new:ident, $flags:ident)) => {
        $crate::split::engine::replaced($old, $new, || $h($old, $new, $flags))
    };
    (fcntl $h:ident ($fd:ident, $command:ident, $argument:ident)) => {
        $crate::split::engine::control($fd, $command, $argument, || $h($fd, $command, $argument))
    };
    (ioctl $h:ident ($fd:ident, $request:ident, $argument:ident)) => {
        $crate::split::engine::around($fd, false, || $h($fd, $request, $argument))
    };
    (flock $h:ident ($fd:ident, $operation:ident)) => {{
        if $operation & libc::LOCK_UN != 0 {
            $crate::split::engine::drain($fd);
        }
        $h($fd, $operation)
    }};
    (sendmsg $h:ident ($socket:ident, $message:ident, $flags:ident)) => {{
        $crate::split::engine::sends(&[$message]);
        $h($socket, $message, $flags)
    }};
    (sendmmsg $h:ident ($socket:ident, $list:ident, $count:ident, $flags:ident)) => {{
        $crate::split::engine::hand_over_all();
        $h($socket, $list, $count, $flags)
    }};
    // What is said of files.
    (stat $h:ident ($path:ident, $out:ident)) => {
        $crate::split::engine::stat($out, || $h($path, $out))
    };
    (fstat $h:ident ($fd:ident, $out:ident)) => {
        $crate::split::engine::stat_number($fd, $out, || $h($fd, $out))
    };
    (newfstatat $h:ident ($dir:ident, $path:ident, $out:ident, $flags:ident)) => {
        $crate::split::engine::stat($out, || $h($dir, $path, $out, $flags))
    };
    (statx $h:ident ($dir:ident, $path:ident, $flags:ident, $mask:ident, $out:ident)) => {
        $crate::split::engine::statx($out, || $h($dir, $path, $flags, $mask, $out))
    };
    (getdents64 $h:ident ($fd:ident, $to:ident, $len:ident)) => {
        $crate::split::engine::entries($to, || $h($fd, $to, $len))
    };
    // The process.
    (clone $h:ident
        ($main:ident, $stack:ident, $flags:ident, $a:ident, $p:ident, $tls:ident, $c:ident)) => {{
        if $flags & libc::CLONE_VM == 0 || $flags & libc::CLONE_FILES == 0 {
            $crate::split::engine::hand_over_all();
        }
        $h($main, $stack, $flags, $a, $p, $tls, $c)
    }};
    (rt_sigaction $h:ident ($signal:ident, $new:ident, $old:ident, $size:ident)) => {
        $crate::split::engine::alone(
            || $crate::signals::sigaction::exchange($signal, $new, $old, $size),
            || $h($signal, $new, $old, $size),
        )
    };
    (rt_sigprocmask $h:ident ($how:ident, $new:ident, $old:ident, $size:ident)) => {
        $crate::split::engine::alone(
            || $crate::signals::sigmask::change($how, $new, $old, $size, |new, old| {
                $h($how, new, old, $size)
            }),
            || $h($how, $new, $old, $size),
        )
    };
    (rt_sigpending $h:ident $arguments:tt) => {
        $crate::split::engine::alone(
            || $crate::signals::sigmask::with_blocked(|| $h $arguments),
            || $h $arguments,
        )
    };
    (rt_sigtimedwait $h:ident $arguments:tt) => {
        $crate::split::engine::alone(
            || $crate::signals::sigmask::with_blocked(|| $h $arguments),
            || $h $arguments,
        )
    };
    (rt_sigsuspend $h:ident ($mask:ident, $size:ident)) => {
        $crate::split::engine::alone(
            || $crate::signals::sigmask::with_mask($mask, $size, |mask| $h(mask, $size)),
            || $h($mask, $size),
        )
    };
    (ppoll $h:ident ($list:ident, $count:ident, $time:ident, $mask:ident, $size:ident)) => {
        $crate::split::engine::alone(
            || $crate::signals::sigmask::with_mask($mask, $size, |mask| {
                $h($list, $count, $time, mask, $size)
            }),
            || $h($list, $count, $time, $mask, $size),
        )
    };
    (pselect6 $h:ident ($n:ident, $r:ident, $w:ident, $o:ident, $time:ident, $mask:ident)) => {
        $crate::split::engine::alone(
            || $crate::signals::sigmask::with_sized($mask, |mask| {
                $h($n, $r, $w, $o, $time, mask)
            }),
            || $h($n, $r, $w, $o, $time, $mask),
        )
    };
    (epoll_pwait $h:ident $arguments:tt) => {
        $crate::split::engine::arm!(wait $h $arguments)
    };
    (epoll_pwait2 $h:ident $arguments:tt) => {
        $crate::split::engine::arm!(wait $h $arguments)
    };
    (wait $h:ident
        ($poll:ident, $events:ident, $n:ident, $time:ident, $mask:ident, $size:ident)) => {
        $crate::split::engine::alone(
            || $crate::signals::sigmask::with_mask($mask, $size, |mask| {
                $h($poll, $events, $n, $time, mask, $size)
            }),
            || $h($poll, $events, $n, $time, $mask, $size),
        )
    };
    (sigaltstack $h:ident ($new:ident, $old:ident)) => {
        $crate::split::engine::always(
            || $crate::signals::altstack::exchange($new, $old),
            || $h($new, $old),
        )
    };
    (setrlimit $h:ident ($resource:ident, $limit:ident)) => {
        $crate::split::engine::limited(|| $h($resource, $limit))
    };
    (prlimit64 $h:ident ($pid:ident, $resource:ident, $new:ident, $old:ident)) => {
        $crate::split::engine::limited(|| $h($pid, $resource, $new, $old))
    };
    (io_setup $h:ident ($events:ident, $context:ident)) => {
        $crate::split::engine::ring_instead(
            || Err($crate::files::kernel_aio::begun("io_setup")),
            || $h($events, $context),
        )
    };
    (io_uring_setup $h:ident ($entries:ident, $parameters:ident)) => {
        $crate::split::engine::ring_instead(
            || Err($crate::files::kernel_aio::begun("io_uring_setup")),
            || $h($entries, $parameters),
        )
    };
    // Of which the table says something else.
    ($name:ident $h:ident $arguments:tt) => {{
        const { assert!(!matches!(SAID.split, calls::Split::Own), "there is no arm of its own") };
        $h $arguments
    }};
}
pub(crate) use arm;
