//! Who is in a domain, and which node is first: what nodes tell each other of themselves.

pub mod entering;
pub mod leadership;
pub mod members;
pub mod saying;
mod uptime;

use std::time::Duration;

/// How often a node says that it is there.
pub const BEAT: Duration = Duration::from_secs(1);
