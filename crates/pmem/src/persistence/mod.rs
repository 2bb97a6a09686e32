//! Stores and the order in which they become durable.

mod checksummed_stream;
mod slow;
mod stream;
pub mod tokens;
