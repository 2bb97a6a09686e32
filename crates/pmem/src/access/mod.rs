//! What is read from a region, and its volatile words, which no flush makes durable.

pub mod counters;
mod prefetch;
mod send;
mod shared_words;
pub mod span;
