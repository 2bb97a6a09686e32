//! Signals that end a measurement in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use console::failure::Failure;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether a signal has come. Workers of this process group die of the same one; what was mounted
/// or made is removed on the way out, so the signal must not end this process at once.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub fn watch() -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))
                .map_err(|error| Failure::new("watch for signals", error, ""))?;
        }
        Ok(Self(stop))
    }

    pub fn go_on(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure::new("measure", "interrupted", "").code(130));
        }
        Ok(())
    }
}
