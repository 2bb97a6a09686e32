//! How the time of one is to compare with another's.

/// What it is to be at most.
#[derive(Clone, Copy)]
pub enum Bound {
    /// So many times the other's.
    Times(f64),
    /// So many microseconds more.
    More(f64),
    /// The ratio is shown, without a target.
    Shown,
}
