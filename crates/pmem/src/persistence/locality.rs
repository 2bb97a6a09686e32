//! Whether bytes that need not be durable are stored through the cache or around it: by what takes
//! less time.

use memory::instructions::copy::Route;
use memory::instructions::dispatch::streams_cold;

/// Whether what is overwritten is likely in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// It was read or written lately, or will be soon.
    Near,
    /// Nobody looked at it for long: new space of a file that grows.
    Cold,
}

/// From how many bytes on a stream takes less time than a copy of memory that may be in a cache:
/// then it is longer than what a cache of one processor holds.
const NEAR: usize = 2 << 20;

impl Locality {
    /// How so many bytes are stored best where nothing has to be durable.
    #[inline]
    pub(crate) fn route(self, len: usize) -> Route {
        let streams = match self {
            Locality::Near => len >= NEAR,
            Locality::Cold => streams_cold(len),
        };
        if streams { Route::Streamed } else { Route::Cached }
    }
}
