//! Decides how many threads read requests: the *members* of the pool.
//!
//! One, as a rule: requests of one program come one after another, and a server that is woken for
//! each of them on the same processor answers in two thirds of the time that threads in turn take.
//! Where one is not enough, the watching thread calls in more. It looks every few milliseconds
//! while there is anything to do: a member that sleeps inside the same request as at the last look
//! waits for a process (a stopped one that holds an inode's lock, say), and members that are busy
//! most of their time have too much to do. (A member that could run and does not get a processor is
//! no reason for another one, which would not get one either.)
//!
//! A member that is not wanted any more leaves after its next request. Nothing here is locked while
//! a request is served; a request costs two relaxed stores and a load.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::nodes::lock;

/// Members at most.
pub const MEMBERS: usize = 16;
/// Of its time, in percent, that a member may be busy before another one is called.
const BUSY_PERCENT: u128 = 80;
/// Samples for which fewer members must have been enough before one is sent away.
const CALM_LOOKS: u32 = 20;

#[derive(Default)]
struct Member {
    /// Requests taken; odd while one is served.
    steps: AtomicU64,
    /// The clock of the thread's processor time; 0: not known yet.
    clock: AtomicUsize,
    /// The thread's number.
    thread: AtomicU32,
}

impl Member {
    /// Whether its thread sleeps, and not for want of a processor.
    fn sleeps(&self) -> bool {
        let thread = self.thread.load(Ordering::Relaxed);
        let said = std::fs::read(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
        // The name before it, in brackets, may be anything.
        let after = said.iter().rposition(|&byte| byte == b')').map_or(0, |at| at + 2);
        said.get(after) != Some(&b'R')
    }
}

/// All members.
pub struct ThreadPool {
    members: [Member; MEMBERS],
    /// Those of a lower number read.
    wanted: AtomicUsize,
    ended: AtomicBool,
    /// The watching thread sleeps: the next request wakes it.
    unwatched: AtomicBool,
    door: (Mutex<()>, Condvar),
}

/// The watching thread's state between its looks.
pub struct Samples {
    steps: [u64; MEMBERS],
    /// Processor time of each; `None`: it was not known then.
    used: [Option<Duration>; MEMBERS],
    at: Instant,
    calm: u32,
}

impl Samples {
    /// Before the first look.
    pub fn new() -> Self {
        Self { steps: [0; MEMBERS], used: [None; MEMBERS], at: Instant::now(), calm: 0 }
    }
}

impl ThreadPool {
    /// One member reads.
    pub fn new() -> Self {
        Self {
            members: std::array::from_fn(|_| Member::default()),
            wanted: AtomicUsize::new(1),
            ended: AtomicBool::new(false),
            unwatched: AtomicBool::new(false),
            door: (Mutex::new(()), Condvar::new()),
        }
    }

    /// A member waits until it is wanted; `false`: the mount is gone.
    pub fn wait(&self, number: usize) -> bool {
        let wanted = || number < self.wanted.load(Ordering::Acquire);
        if wanted() {
            return true;
        }
        let mut guard = lock(&self.door.0);
        while !wanted() && !self.ended.load(Ordering::Acquire) {
            let waited = self.door.1.wait(guard);
            guard = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        !self.ended.load(Ordering::Acquire)
    }

    /// A member has a request; `true`: the watching thread is to be woken.
    pub fn begin(&self, number: usize) -> bool {
        let member = &self.members[number];
        if member.clock.load(Ordering::Relaxed) == 0 {
            let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            member.thread.store(thread, Ordering::Relaxed);
            member.clock.store(own_clock(), Ordering::Relaxed);
        }
        let steps = member.steps.load(Ordering::Relaxed);
        member.steps.store(steps + 1, Ordering::Relaxed);
        self.unwatched.load(Ordering::Relaxed) && self.unwatched.swap(false, Ordering::AcqRel)
    }

    /// It is served.
    pub fn finish(&self, number: usize) {
        let steps = &self.members[number].steps;
        steps.store(steps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The mount is gone: all leave.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        drop(lock(&self.door.0));
        self.door.1.notify_all();
    }

    /// Whether it is.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The watching thread goes to sleep until a request comes.
    pub fn unwatch(&self) {
        self.unwatched.store(true, Ordering::Release);
    }

    fn used(&self) -> [Option<Duration>; MEMBERS] {
        std::array::from_fn(|at| match self.members[at].clock.load(Ordering::Relaxed) {
            0 => None,
            clock => Some(time_of(clock)),
        })
    }

    /// Whether other members may be inside a request as well.
    pub fn is_many(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 1
    }

    /// Looks whether there are enough; gives whether anything was done since the last look.
    pub fn look(&self, looks: &mut Samples) -> bool {
        let now: [u64; MEMBERS] =
            std::array::from_fn(|at| self.members[at].steps.load(Ordering::Relaxed));
        let both = || now.iter().zip(&looks.steps);
        let stays = |(now, before): (&u64, &u64)| now == before && now % 2 == 1;
        let staying = both().zip(&self.members).filter(|&(steps, _)| stays(steps));
        let stuck = staying.filter(|(_, member)| member.sleeps()).count();
        let moved = both().any(|(now, before)| now != before);
        let (used_now, at) = (self.used(), Instant::now());
        let both_times = used_now.iter().zip(&looks.used);
        let used: u128 = both_times
            .filter_map(|(now, before)| Some(now.as_ref()?.saturating_sub((*before)?).as_nanos()))
            .sum();
        let passed = at.duration_since(looks.at).as_nanos().max(1);
        let busy = (used * 100 / passed).div_ceil(BUSY_PERCENT) as usize;
        let enough = (stuck + busy.max(1)).min(MEMBERS);
        let wanted = self.wanted.load(Ordering::Relaxed);
        if enough >= wanted {
            looks.calm = 0;
        } else {
            looks.calm += 1;
        }
        if enough > wanted {
            self.wanted.store(enough, Ordering::Release);
            drop(lock(&self.door.0));
            self.door.1.notify_all();
        } else if looks.calm > CALM_LOOKS {
            self.wanted.store(wanted - 1, Ordering::Release);
            looks.calm = 0;
        }
        (looks.steps, looks.used, looks.at) = (now, used_now, at);
        moved || stuck > 0 || wanted > 1
    }
}

/// The clock of the calling thread's processor time, as a number that is not 0.
fn own_clock() -> usize {
    let mut clock = 0;
    // SAFETY: asks about the calling thread, into a variable.
    let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    if failed == 0 { clock as u32 as usize } else { 0 }
}

fn time_of(clock: usize) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into a variable; a clock of a thread that has ended is refused.
    let failed = unsafe { libc::clock_gettime(clock as u32 as libc::clockid_t, &raw mut time) };
    if failed == 0 {
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    } else {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_member_is_called_where_one_is_stuck() {
        let pool = ThreadPool::new();
        let mut looks = Samples::new();
        assert!(pool.wait(0), "the first one is always wanted");
        // A thread that is inside a request and sleeps; this one, which looks, runs.
        let (go, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let pool = &pool;
            scope.spawn(move || {
                pool.begin(0);
                let _ = wait.recv();
                pool.finish(0);
            });
            while pool.members[0].steps.load(Ordering::Relaxed) == 0 || !pool.members[0].sleeps() {
                std::thread::yield_now();
            }
            pool.look(&mut looks);
            assert_eq!(pool.wanted.load(Ordering::Relaxed), 1, "it has only just begun");
            pool.look(&mut looks);
            assert!(pool.is_many());
            drop(go);
        });
        // One that runs all the time is not stuck, however long it takes.
        pool.begin(1);
        let wanted = pool.wanted.load(Ordering::Relaxed);
        for _ in 0..3 {
            let looked = Instant::now();
            while looked.elapsed() < Duration::from_millis(2) {}
            pool.look(&mut looks);
        }
        assert!(pool.wanted.load(Ordering::Relaxed) <= wanted.max(2));
        pool.finish(1);
        // Each of them needs a calm stretch; this test's own work is no calm.
        for _ in 0..50 * CALM_LOOKS {
            std::thread::sleep(Duration::from_millis(1));
            pool.look(&mut looks);
            if !pool.is_many() {
                break;
            }
        }
        assert_eq!(pool.wanted.load(Ordering::Relaxed), 1);
        pool.end();
        assert!(!pool.wait(3));
    }
}
