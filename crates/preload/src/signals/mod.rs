//! Signals: actions, masks, and the way to the program's handlers.

pub(crate) mod altstack;
pub(crate) mod calls;
pub(crate) mod passing;
pub(crate) mod sigaction;
pub(crate) mod sigmask;
pub(crate) mod signal;
mod symbols;
