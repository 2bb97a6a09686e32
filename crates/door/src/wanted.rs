//! Which system calls a volume may have to serve.

/// Whether a site that makes this system call is patched. Calls with a path, a descriptor, a
/// mapping, a process, an action, mask or stack of signals, credentials or limits are; so is every
/// number that this list does not know, for a later kernel's call may have a path.
pub const fn wanted(number: u32) -> bool {
    !matches!(
        number,
        // brk, rt_sigreturn, sched_yield.
        12 | 15 | 24
        // shmget, shmctl; pause, nanosleep, timers of a process, getpid.
        | 29 | 31 | 34..=39
        // exit (of one thread), kill, uname; semaphores and message queues of System V.
        | 60 | 62..=66 | 68..=71
        // The time, usage, system's numbers; ptrace; who one is; the log.
        | 96 | 98..=104 | 107 | 108 | 110 | 111 | 115 | 118 | 120 | 121 | 124
        // sched_* and priorities; signals that pend, are awaited or sent.
        | 127..=129 | 135 | 140..=148
        // mlockall and munlockall, vhangup, modify_ldt, arch_prctl, the clock.
        | 151..=154 | 158 | 159 | 164
        // reboot, names of the machine, ports; gettid, tkill, time, futex, affinity.
        | 169..=173 | 186 | 200..=205 | 211
        // set_tid_address, restart_syscall, semtimedop, POSIX timers and clocks, tgkill.
        | 218..=220 | 222..=230 | 234
        // Policies of memory that name no range; priorities of input and output; robust lists.
        | 238 | 239 | 251 | 252 | 256 | 273 | 274
        // Signals to threads, clock_adjtime, getcpu, sched_*attr, getrandom, membarrier.
        | 297 | 305 | 309 | 314 | 315 | 318 | 324
        // Protection keys, rseq; waits on many futexes.
        | 330 | 331 | 334 | 449 | 454..=456
    )
}
