//! Stores and the order in which they become durable.

mod absent;
mod checksummed_stream;
pub mod policy;
mod slow;
mod store;
pub mod stream;
pub mod tokens;
