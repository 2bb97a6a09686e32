//! The clock of emulated memory: the time-stamp counter.
//!
//! It is read in half of the time of `clock_gettime`, in one instruction that no library
//! interposes, and all processes of a machine see the same one, in whatever time namespace: so a
//! time in a word that they share means the same to each. Its rate is measured once in a process,
//! for a millisecond.

use rustix::time::{ClockId, clock_gettime};
use std::arch::x86_64::_rdtsc;
use std::sync::OnceLock;

/// Bits of a fraction of a tick.
pub(super) const FRACTION: u32 = 32;
/// How long the rate is measured.
const MEASURE_NS: u64 = 1_000_000;
/// Of so many readings of both clocks the one counts that took the least time.
const READINGS: u32 = 8;

/// Ticks of the counter.
#[inline]
pub(super) fn now() -> u64 {
    // SAFETY: every x86-64 CPU has the counter, and it changes nothing.
    unsafe { _rdtsc() }
}

/// A moment by both clocks: ticks, ns.
fn moment() -> (u64, u64) {
    let reading = |_| {
        let before = now();
        let time = clock_gettime(ClockId::Monotonic);
        let took = now().wrapping_sub(before);
        let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        (took, before.wrapping_add(took / 2), ns)
    };
    let narrowest = (0..READINGS).map(reading).min();
    narrowest.map_or((0, 0), |(_, ticks, ns)| (ticks, ns))
}

/// How many ticks a nanosecond has, in 2^-[`FRACTION`].
pub(super) fn rate() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (ticks, ns) = moment();
        loop {
            let (ticks_later, ns_later) = moment();
            let took_ns = ns_later.saturating_sub(ns);
            if took_ns >= MEASURE_NS {
                let ticks = u128::from(ticks_later.wrapping_sub(ticks));
                return ((ticks << FRACTION) / u128::from(took_ns)) as u64;
            }
        }
    })
}

/// Waits until `clock` has reached `tick`.
pub(super) fn wait_until(tick: u64, clock: impl Fn() -> u64) {
    while (tick.wrapping_sub(clock()) as i64) > 0 {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_counter_and_the_clock_agree() {
        let rate = rate();
        assert!(rate >> (FRACTION - 7) > 0 && rate >> FRACTION < 100, "{rate}");
        let (ticks, ns) = moment();
        wait_until(ticks + ((2_000_000 * u128::from(rate)) >> FRACTION) as u64, now);
        let (_, later) = moment();
        assert!(later - ns >= 1_900_000, "2 ms of the counter are {} ns", later - ns);
    }

    #[test]
    fn a_wait_ends_when_the_clock_is_there() {
        for (from, until, looks) in
            [(0, 10, 11), (10, 10, 1), (11, 10, 1), (u64::MAX - 4, 5, 11), (5, u64::MAX - 4, 1)]
        {
            let (time, looked) = (Cell::new(from), Cell::new(0));
            wait_until(until, || {
                looked.set(looked.get() + 1);
                time.replace(time.get().wrapping_add(1))
            });
            assert_eq!(looked.get(), looks, "from {from} until {until}");
        }
    }
}
