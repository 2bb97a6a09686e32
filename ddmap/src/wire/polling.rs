//! Who polls gives the processor away between two looks.

use super::now_ns;

/// A yield that takes that long has given it to a thread that has something to do: two that poll
/// are back sooner.
const GIVEN_NS: u64 = 5_000;

/// Lets others run. `false`: some did. Who polls on then stands behind them with each look, and is
/// there later than one that sleeps, which is woken ahead of them; and what it takes is theirs.
pub(super) fn yields_in_vain() -> bool {
    let begun = now_ns();
    rustix::thread::sched_yield();
    now_ns() - begun < GIVEN_NS
}
