//! How many processors this thread may use: what decides how many threads share a long work.
//!
//! No locks.

use std::cell::Cell;
use std::num::NonZero;

thread_local! {
    /// What [`set_processors`] said; 0: nothing.
    static SAID: Cell<usize> = const { Cell::new(0) };
}

/// As many as the kernel lets this thread use, within the quota of its group; 1 if that is unknown.
#[must_use]
pub fn processors() -> usize {
    match SAID.get() {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        said => said,
    }
}

/// [`processors`] answers `count` to this thread from here on; 0: what it finds again. Gives what
/// was said before. For the crash explorer: the answer takes six files of the kernel's to be read,
/// which it does not want for each of its states.
pub fn set_processors(count: usize) -> usize {
    SAID.replace(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_this_threads() {
        let found = processors();
        assert_eq!(set_processors(7), 0);
        assert_eq!(processors(), 7);
        assert_eq!(std::thread::spawn(processors).join().unwrap_or(0), found);
        assert_eq!(set_processors(0), 7);
        assert_eq!(processors(), found);
    }
}
