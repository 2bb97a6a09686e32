//! Stores and the order in which they become durable.

mod absent;
mod checksummed_stream;
pub mod locality;
mod slow;
mod store;
pub mod stream;
pub mod tokens;
