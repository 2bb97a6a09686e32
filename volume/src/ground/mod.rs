//! The ground that every room stands on: the layout of the medium and of the runtime, checked
//! words, lock words, the runtime's memory, and errors of whole volumes.

pub(crate) mod error;
pub(crate) mod layout;
pub(crate) mod lockword;
pub(crate) mod runtime;
pub(crate) mod word;
