//! What the second engine does of a call that the volume leaves to the kernel.
//!
//! [`call!`] stands where an interposed function calls the one that it hides. What the table says
//! of the function ([`calls::Split`]) chooses; whether there is an engine is asked by one load.

/// `call!(what the table says, first name of the function, hidden (arguments))`.
macro_rules! call {
    ($split:expr, $name:ident $h:ident $arguments:tt) => {
        if const { matches!($split, calls::Split::Own) } {
            $crate::split::engine::arm!($name $h $arguments)
        } else {
            if const { matches!($split, calls::Split::Drained) } {
                $crate::split::engine::drain_changes();
            }
            if const { matches!($split, calls::Split::HandedOver) } {
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
    (__lxstat $($r:tt)*) => { $crate::split::engine::arm!(__xstat $($r)*) };
    (__fxstat $($r:tt)*) => { $crate::split::engine::arm!(__xstat $($r)*) };
    (freopen $($r:tt)*) => { $crate::split::engine::arm!(fopen $($r)*) };
    // Data.
    (read $h:ident ($fd:ident, $to:ident, $len:ident)) => {
        $crate::split::engine::read($fd, $to, $len, None, || $h($fd, $to, $len))
    };
    (__read_chk $h:ident ($fd:ident, $to:ident, $len:ident, $room:ident)) => {
        if $len > $room {
            $h($fd, $to, $len, $room)
        } else {
            $crate::split::engine::read($fd, $to, $len, None, || $h($fd, $to, $len, $room))
        }
    };
    (pread $h:ident ($fd:ident, $to:ident, $len:ident, $at:ident)) => {
        $crate::split::engine::read($fd, $to, $len, Some($at), || $h($fd, $to, $len, $at))
    };
    (__pread_chk $h:ident ($fd:ident, $to:ident, $len:ident, $at:ident, $room:ident)) => {
        if $len > $room {
            $h($fd, $to, $len, $at, $room)
        } else {
            $crate::split::engine::read($fd, $to, $len, Some($at), || {
                $h($fd, $to, $len, $at, $room)
            })
        }
    };
    (write $h:ident ($fd:ident, $from:ident, $len:ident)) => {
        $crate::split::engine::write($fd, $from, $len, None, || $h($fd, $from, $len))
    };
    (pwrite $h:ident ($fd:ident, $from:ident, $len:ident, $at:ident)) => {
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
    (preadv2 $h:ident ($fd:ident, $list:ident, $count:ident, $at:ident, $flags:ident)) => {
        $crate::split::engine::around($fd, false, || $h($fd, $list, $count, $at, $flags))
    };
    (pwritev2 $h:ident ($fd:ident, $list:ident, $count:ident, $at:ident, $flags:ident)) => {
        $crate::split::engine::around($fd, true, || $h($fd, $list, $count, $at, $flags))
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
    (posix_fallocate $h:ident ($fd:ident, $at:ident, $len:ident)) => {
        $crate::split::engine::around($fd, true, || $h($fd, $at, $len))
    };
    (unlink $h:ident ($path:ident)) => {
        $crate::split::engine::removed(libc::AT_FDCWD, $path, || $h($path))
    };
    (unlinkat $h:ident ($dirfd:ident, $path:ident, $flags:ident)) => {
        $crate::split::engine::removed($dirfd, $path, || $h($dirfd, $path, $flags))
    };
    (remove $h:ident ($path:ident)) => {
        $crate::split::engine::removed(libc::AT_FDCWD, $path, || $h($path))
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
    (__open_2 $h:ident ($path:ident, $flags:ident)) => {
        $crate::split::engine::opened($flags, || $h($path, $flags))
    };
    (openat $h:ident ($dir:ident, $path:ident, $flags:ident, $mode:ident)) => {
        $crate::split::engine::opened($flags, || $h($dir, $path, $flags, $mode))
    };
    (__openat_2 $h:ident ($dir:ident, $path:ident, $flags:ident)) => {
        $crate::split::engine::opened($flags, || $h($dir, $path, $flags))
    };
    (creat $h:ident ($path:ident, $mode:ident)) => {
        $crate::split::engine::opened(libc::O_TRUNC | libc::O_WRONLY, || $h($path, $mode))
    };
    (close $h:ident ($fd:ident)) => { $crate::split::engine::close($fd, || $h($fd)) };
    (close_range $h:ident ($first:ident, $last:ident, $flags:ident)) => {
        $crate::split::engine::close_range($first, $last, $flags, |a, b| $h(a, b, $flags))
    };
    (closefrom $h:ident ($first:ident)) => {
        $crate::split::engine::close_from($first, || $h($first))
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
    (lockf $h:ident ($fd:ident, $command:ident, $len:ident)) => {{
        if $command == libc::F_ULOCK {
            $crate::split::engine::drain($fd);
        } else {
            $crate::split::engine::before_lock($fd);
        }
        $crate::split::engine::place_kernel($fd);
        $h($fd, $command, $len)
    }};
    (sendmsg $h:ident ($socket:ident, $message:ident, $flags:ident)) => {{
        $crate::split::engine::sends(&[$message]);
        $h($socket, $message, $flags)
    }};
    (sendmmsg $h:ident ($socket:ident, $list:ident, $count:ident, $flags:ident)) => {{
        $crate::split::engine::hand_over_all();
        $h($socket, $list, $count, $flags)
    }};
    (fopen $h:ident ($path:ident, $mode:ident $(, $stream:ident)?)) => {
        $crate::split::engine::stream($mode, || $h($path, $mode $(, $stream)?))
    };
    (fdopen $h:ident ($fd:ident, $mode:ident)) => {{
        $crate::split::engine::left_to_stream($fd);
        $h($fd, $mode)
    }};
    // What is said of files.
    (stat $h:ident ($path:ident, $out:ident)) => {
        $crate::split::engine::stat($out, || $h($path, $out))
    };
    (fstat $h:ident ($fd:ident, $out:ident)) => {
        $crate::split::engine::stat_number($fd, $out, || $h($fd, $out))
    };
    (fstatat $h:ident ($dir:ident, $path:ident, $out:ident, $flags:ident)) => {
        $crate::split::engine::stat($out, || $h($dir, $path, $out, $flags))
    };
    (__xstat $h:ident ($version:ident, $what:ident, $out:ident)) => {
        $crate::split::engine::stat($out, || $h($version, $what, $out))
    };
    (__fxstatat $h:ident ($v:ident, $dir:ident, $path:ident, $out:ident, $flags:ident)) => {
        $crate::split::engine::stat($out, || $h($v, $dir, $path, $out, $flags))
    };
    (statx $h:ident ($dir:ident, $path:ident, $flags:ident, $mask:ident, $out:ident)) => {
        $crate::split::engine::statx($out, || $h($dir, $path, $flags, $mask, $out))
    };
    (getdents64 $h:ident ($fd:ident, $to:ident, $len:ident)) => {
        $crate::split::engine::entries($to, || $h($fd, $to, $len))
    };
    (getdirentries $h:ident ($fd:ident, $to:ident, $len:ident, $start:ident)) => {
        $crate::split::engine::entries($to, || $h($fd, $to, $len, $start))
    };
    (readdir $h:ident ($dir:ident)) => { $crate::split::engine::next_entry(|| $h($dir)) };
    // The process.
    (vfork $h:ident ()) => { $crate::split::engine::vfork() };
    (clone $h:ident
        ($main:ident, $stack:ident, $flags:ident, $a:ident, $p:ident, $tls:ident, $c:ident)) => {{
        if $flags & libc::CLONE_VM == 0 || $flags & libc::CLONE_FILES == 0 {
            $crate::split::engine::hand_over_all();
        }
        $h($main, $stack, $flags, $a, $p, $tls, $c)
    }};
    (daemon $h:ident ($directory:ident, $streams:ident)) => {
        $crate::split::engine::daemon(|| $h($directory, $streams))
    };
    (_exit $h:ident ($code:ident)) => {{
        $crate::split::engine::leave();
        $h($code)
    }};
    (sigaction $h:ident ($signal:ident, $new:ident, $old:ident)) => {
        $crate::split::engine::instead(
            || $crate::signals::sigaction::exchange($signal, $new, $old),
            || $h($signal, $new, $old),
        )
    };
    (signal $h:ident ($signal:ident, $handler:ident)) => {
        $crate::split::engine::instead(
            || $crate::signals::sigaction::set_handler($signal, $handler),
            || $h($signal, $handler),
        )
    };
    (sysv_signal $h:ident ($signal:ident, $handler:ident)) => {
        $crate::split::engine::instead(
            || $crate::signals::sigaction::set_once($signal, $handler),
            || $h($signal, $handler),
        )
    };
    (siginterrupt $h:ident ($signal:ident, $how:ident)) => {
        $crate::split::engine::instead(
            || $crate::signals::sigaction::set_interrupting($signal, $how != 0),
            || $h($signal, $how),
        )
    };
    (sigset $h:ident ($signal:ident, $handler:ident)) => {
        $crate::split::engine::instead(
            || $crate::signals::sigaction::set_or_hold($signal, $handler),
            || $h($signal, $handler),
        )
    };
    (sigignore $h:ident ($signal:ident)) => {
        $crate::split::engine::instead(
            || $crate::signals::sigaction::ignore($signal),
            || $h($signal),
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
    (prlimit $h:ident ($pid:ident, $resource:ident, $new:ident, $old:ident)) => {
        $crate::split::engine::limited(|| $h($pid, $resource, $new, $old))
    };
    (syscall $h:ident ($n:ident, $a:ident, $b:ident, $c:ident, $d:ident, $e:ident, $f:ident)) => {
        $crate::split::engine::by_number($n, [$a, $b, $c, $d, $e, $f], || {
            $h($n, $a, $b, $c, $d, $e, $f)
        })
    };
    // Here of which the table says something else.
    ($name:ident $h:ident $arguments:tt) => {{
        const { assert!(!matches!(NAMED.split, calls::Split::Own), "there is no arm of its own") };
        $h $arguments
    }};
}
pub(crate) use arm;
