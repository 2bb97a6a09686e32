//! Stores and the order in which they become durable.

mod absent;
mod checksummed_stream;
mod slow;
mod store;
mod stream;
pub mod tokens;
