//! How a domain is, as one of its nodes sees it.

use crate::control::node_messages::Member;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

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
    /// Programs of its machine that wait for volumes of other hosts.
    #[serde(default)]
    pub asks: Vec<AskStatus>,
}

/// A process that has a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UserStatus {
    /// Its number and its name.
    pub process: String,
    /// How long it has been there.
    pub seconds: u64,
}

/// A program that waits for a volume, as its host says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WaitStatus {
    /// The node on which it is.
    pub node: u16,
    /// For how long.
    pub seconds: u64,
}

/// A program that waits for a volume, as its own node says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AskStatus {
    /// The volume.
    pub volume: String,
    /// For how long.
    pub seconds: u64,
    /// What it waits for.
    pub waits: Waits,
}

/// What a program waits for that has asked for a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Waits {
    /// The volume's host; 0: it is not known yet.
    pub host: u16,
    /// Those that ask before it.
    pub before: u64,
    /// The processes that have the volume. `None`: that was not looked at yet.
    pub users: Option<Vec<UserStatus>>,
    /// Why else it waits; empty: for these.
    pub note: String,
    /// It waits in vain, and why.
    pub ended: Option<String>,
}

impl Display for Waits {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { host, before, users, note, .. } = self;
        if *host == 0 {
            return write!(out, "its host has not answered yet");
        }
        let user = |one: &UserStatus| format!("{}, for {} s", one.process, one.seconds);
        let named: Vec<String> = users.iter().flatten().map(user).collect();
        match (note.as_str(), named.is_empty()) {
            ("", true) => write!(out, "node {host} has it")?,
            ("", false) => write!(out, "node {host} has it: {}", named.join("; "))?,
            (note, _) => write!(out, "{note}")?,
        }
        match before {
            0 => Ok(()),
            1 => write!(out, "; 1 program waits before this one"),
            more => write!(out, "; {more} programs wait before this one"),
        }
    }
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
    /// The processes that have it attached.
    #[serde(default)]
    pub users: Vec<UserStatus>,
    /// The programs that wait for it, in order.
    #[serde(default)]
    pub waiting: Vec<WaitStatus>,
}

/// What is kept of another host's volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KeptStatus {
    /// The region's number.
    pub uuid: String,
    /// Pages.
    pub pages: u64,
}
