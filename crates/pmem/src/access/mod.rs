//! What is read from a region, and its volatile words, which no flush makes durable.

mod absent;
pub mod counters;
mod load;
mod prefetch;
mod send;
mod shared_words;
mod slow;
pub mod span;
