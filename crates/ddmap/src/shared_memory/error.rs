//! What went wrong with a domain or a node: what was asked, what was found, what to do.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};
use std::io;

/// An error for a person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DomainError {
    /// What was asked for.
    pub asked: String,
    /// What was found.
    pub found: String,
    /// What to do; empty: nothing is known.
    pub advice: String,
}

impl DomainError {
    /// An error of these three.
    pub fn new(asked: impl Display, found: impl Display, advice: impl Display) -> Self {
        Self { asked: asked.to_string(), found: found.to_string(), advice: advice.to_string() }
    }

    /// A call failed for something.
    pub fn io(asked: impl Display, what: impl Display, error: &io::Error) -> Self {
        Self::new(asked, format!("{what}: {error}"), "")
    }
}

impl Display for DomainError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.asked, self.found)?;
        if self.advice.is_empty() { Ok(()) } else { write!(out, "; {}", self.advice) }
    }
}

impl std::error::Error for DomainError {}
