//! What nodes say to each other besides pages: which nodes there are, and how they are. JSON, so
//! that a later release can say more.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Bytes of a text, at most.
pub const TEXT_MAX: usize = crate::protocol::messages::CONTROL;

/// A node of a domain, as it says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Its number; 0: it has none yet.
    pub node: u16,
    /// Where it is reached.
    pub address: SocketAddr,
    /// Whether it runs no programs.
    pub passive: bool,
    /// Pages that it may have.
    pub capacity: u64,
    /// Pages that it has.
    pub used: u64,
    /// Seconds since it was heard of, as the node that tells it counts.
    #[serde(default)]
    pub silent: u64,
}

impl Member {
    /// Pages that are free.
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// This node is there, or still is: it wants to know all others.
    Join(Member),
    /// The connection's volume has so many pages.
    Hold {
        /// Of its region.
        pages: u64,
    },
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Told {
    /// The domain's nodes, and which of them the asker is.
    Members {
        /// Its number.
        you: u16,
        /// All of them.
        all: Vec<Member>,
    },
    /// It is done.
    Done,
    /// It was refused.
    Refused {
        /// What was found, and what to do.
        text: String,
    },
}

/// What is said, as text.
pub fn text<T: Serialize>(said: &T) -> String {
    serde_json::to_string(said).unwrap_or_default()
}

/// What a text says.
pub fn parse<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("a text that is no message: {error}"))
}
