//! A thread for which others wait: it asks the kernel for short slices of the processor, so that it
//! gets one soon after it has something to do, however many others want it. It gets no more of the
//! processor than others (`sched(7)`, EEVDF: who asks for less at a time is served earlier).
//!
//! Not for a thread that polls: what it yields it gets back at once, ahead of those with longer
//! slices. So not for those that answer other nodes.

use os::interrupt::system_call;
use rustix::io::Errno;

/// The shortest slice that the kernel gives, in ns.
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` in its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// From here on this thread gets short slices, if the kernel knows them (Linux 6.12): else it is as
/// any other. Its niceness stays.
pub(super) fn be_prompt() -> Result<(), Errno> {
    let size = size_of::<Attributes>() as u32;
    let mut own = Attributes::default();
    let at = std::ptr::from_mut(&mut own) as usize;
    // SAFETY: the kernel writes as many bytes as the structure has.
    unsafe { system_call(libc::SYS_sched_getattr, [0, at, size as usize, 0, 0, 0])? };
    if own.policy != libc::SCHED_OTHER as u32 {
        // Somebody has chosen how it is scheduled.
        return Ok(());
    }
    let wanted = Attributes { size, runtime: SLICE_NS, ..own };
    let at = std::ptr::from_ref(&wanted) as usize;
    // SAFETY: it reads the structure.
    unsafe { system_call(libc::SYS_sched_setattr, [0, at, 0, 0, 0, 0]) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_what_it_is_but_for_its_slice() {
        let nice = || {
            // SAFETY: it takes numbers, of this thread.
            unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
        };
        std::thread::spawn(move || {
            // SAFETY: as above.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
            assert_eq!(be_prompt(), Ok(()));
            assert_eq!(nice(), 5);
            // SAFETY: it takes a number.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_OTHER);
        })
        .join()
        .unwrap();
    }
}
