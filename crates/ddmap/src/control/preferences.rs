//! What a program asks of the node that makes room for it.

use crate::protocol::PAGE;
use crate::shared_memory::share::LOCAL_LEAST;
use serde::{Deserialize, Serialize};

/// Which pages leave first (dissertation, 6.4.4, "Tracking hot blocks").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Those that were wanted longest ago.
    #[default]
    Lru,
    /// Those that came first.
    Fifo,
    /// Those that were wanted least often.
    Lfu,
}

/// When pages leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvictionStart {
    /// Before anybody has to wait for room.
    #[default]
    Background,
    /// When a touch finds no room.
    Demand,
}

/// A program's wish; `None`: it has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Preferences {
    /// Which pages leave first.
    #[serde(default)]
    pub policy: Option<Policy>,
    /// When they leave.
    #[serde(default)]
    pub when: Option<EvictionStart>,
    /// How many pages of the volume are kept on the host, at most, besides those that must stay.
    #[serde(default)]
    pub local: Option<u64>,
}

impl Preferences {
    /// The pages of so many bytes, as `solera run --local` hands them on. `None`: too few, or no
    /// number.
    pub fn local_of(bytes: &str) -> Option<u64> {
        let pages = bytes.parse::<u64>().ok()? / PAGE;
        (pages >= LOCAL_LEAST).then_some(pages)
    }
}

impl Policy {
    /// The one of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "lru" => Self::Lru,
            "fifo" => Self::Fifo,
            "lfu" => Self::Lfu,
            _ => return None,
        })
    }
}

impl EvictionStart {
    /// The one of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "background" => Self::Background,
            "demand" => Self::Demand,
            _ => return None,
        })
    }
}
