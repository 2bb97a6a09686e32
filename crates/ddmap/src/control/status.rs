//! How a domain is, as one of its nodes sees it.

use crate::control::node_messages::Member;
use serde::{Deserialize, Serialize};

/// A domain.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub domain: String,
    /// The node that says so.
    pub node: u16,
    /// The one that gives out numbers, and in which term it does.
    #[serde(default)]
    pub first: u16,
    /// That term.
    #[serde(default)]
    pub term: u32,
    /// All nodes.
    pub nodes: Vec<Member>,
    /// The volumes that this node is the host of.
    pub volumes: Vec<VolumeStatus>,
    /// What it keeps for others: pages by volume.
    pub kept: Vec<KeptStatus>,
}

/// A volume on its host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// The region's number, by which other nodes know what they keep of it.
    #[serde(default)]
    pub uuid: String,
    /// Pages of its region.
    pub pages: u64,
    /// Pages that are here.
    pub here: u64,
    /// Processes that have it attached.
    pub processes: u64,
    /// Pages that have left since the node began.
    pub evicted: u64,
    /// Pages that must stay here.
    #[serde(default)]
    pub stays: u64,
    /// Besides them, pages that may be here; `None`: as many as the node has room for.
    #[serde(default)]
    pub local: Option<u64>,
    /// How many holders are to have each page that is away.
    #[serde(default)]
    pub copies: u8,
    /// Pages that only one has, if there are to be two.
    #[serde(default)]
    pub single: u64,
    /// Pages that got a second one since the node began.
    #[serde(default)]
    pub healed: u64,
}

/// What is kept of another host's volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KeptStatus {
    /// The region's number.
    pub uuid: String,
    /// Pages.
    pub pages: u64,
}
