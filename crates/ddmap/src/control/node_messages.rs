//! What nodes say to each other besides pages: which nodes there are, and how they are. JSON, so
//! that a later release can say more.

use crate::control::status::Waits;
use crate::protocol::{Asked, Reign, Terms};
use crate::shared_memory::migration::Moved;
use crate::shared_memory::store::Standing;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// A node that was not heard of for so long gets no pages.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(8);
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
    /// Of them, those that it keeps for other nodes.
    #[serde(default)]
    pub kept: u64,
    /// How it stands, as the first node says.
    #[serde(default)]
    pub standing: Standing,
    /// Pages that it keeps free.
    #[serde(default)]
    pub reserve: u64,
    /// Pages of the volumes that it is the host of, wherever they are or are to be.
    #[serde(default)]
    pub promised: u64,
    /// Of them, those of volumes of two copies.
    #[serde(default)]
    pub promised_twice: u64,
    /// Which store it has: a number of its own.
    #[serde(default)]
    pub store: u64,
    /// How often it was started.
    #[serde(default)]
    pub starts: u64,
    /// Seconds since it was heard of, as the node that tells it counts.
    #[serde(default)]
    pub silent: u64,
}

impl Member {
    /// One of which nothing else is known.
    pub fn new(node: u16, address: SocketAddr) -> Self {
        let (passive, capacity, used, reserve, promised, promised_twice) = (false, 0, 0, 0, 0, 0);
        let (kept, store, starts, silent, standing) = (0, 0, 0, 0, Standing::There);
        Self {
            node,
            address,
            passive,
            capacity,
            used,
            kept,
            standing,
            reserve,
            promised,
            promised_twice,
            store,
            starts,
            silent,
        }
    }

    /// Pages that are free.
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeRequest {
    /// This node is there, or still is: it wants to know all others.
    Join {
        /// The domain that it is of.
        domain: String,
        /// The node.
        member: Member,
    },
    /// A node stands so from now on. To the first node.
    Mark {
        /// Its number.
        node: u16,
        /// How it is to stand.
        standing: Standing,
    },
    /// Which node the domain's first is.
    Lead {
        /// The domain.
        domain: String,
    },
    /// The asked node is to be the domain's first.
    BeFirst {
        /// The domain.
        domain: String,
        /// That node.
        node: u16,
        /// Also without a majority.
        force: bool,
    },
    /// Whether the reign's node may be first.
    Agree {
        /// The domain.
        domain: String,
        /// The reign.
        reign: Reign,
    },
    /// This node is first: it tells what there is, which the asked node is to store.
    Note {
        /// The domain.
        domain: String,
        /// The first's.
        reign: Reign,
        /// No greater number was given, or is about to be.
        numbers: u16,
        /// All nodes.
        all: Vec<Member>,
    },
    /// Which node the asked one is: it is told as the only one of the members.
    Who,
    /// The connection's volume is removed: what is kept of it is dropped.
    Drop,
    /// Whether the asked node is the host of the volume of this name; without one: of the
    /// connection's.
    Where {
        /// The volume's name.
        name: Option<String>,
    },
    /// The connection's volume is about to move to the asked node, which the asker wants to know to
    /// be able to.
    Arrive(Moved),
    /// It has moved there in this attempt: the asked node is to be its host, and says whether it
    /// is.
    TakeOver {
        /// Which attempt.
        attempt: u64,
        /// The programs that wait for it.
        #[serde(default)]
        queue: Vec<Asked>,
    },
    /// A program of this node waits for the volume of this name, or still does. To its host.
    Want {
        /// The volume's name.
        name: String,
        /// The program.
        asked: Asked,
    },
    /// It does not any more.
    Unwant {
        /// The volume's name.
        name: String,
        /// The program's number.
        number: u64,
    },
    /// Whether a program of the asked node, of this number, waits still.
    Wanted {
        /// Its number.
        number: u64,
    },
    /// Whether this attempt to move a volume to the asker is under way still, or was decided.
    Attempt {
        /// Which.
        attempt: u64,
    },
    /// The connection's volume has so many pages, and this node is meant: another one may be at its
    /// address by now.
    Hold {
        /// Of its region.
        pages: u64,
        /// The node.
        node: u16,
    },
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeReply {
    /// The domain's nodes, and which of them the asker is.
    Members {
        /// Its number.
        you: u16,
        /// All of them.
        all: Vec<Member>,
        /// What the one that answers knows of firsts.
        #[serde(default)]
        terms: Terms,
    },
    /// Another node is first.
    Led {
        /// Whose reign it is, and which one the answering node has agreed to.
        terms: Terms,
        /// Where that first is reached.
        address: Option<SocketAddr>,
    },
    /// The answering node agrees.
    Agreed {
        /// Its number.
        node: u16,
        /// What it knows of firsts.
        terms: Terms,
        /// The nodes that it knows.
        all: Vec<Member>,
    },
    /// The answering node has stored what it was told.
    Noted {
        /// Its number.
        node: u16,
    },
    /// It is done.
    Done,
    /// It will be.
    Later,
    /// The volume is not the asker's yet.
    Waits(Waits),
    /// It is the host now. So many pages that are to be there are not there yet.
    Took {
        /// Pages.
        missing: u64,
    },
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
