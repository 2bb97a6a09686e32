//! What a program asks of its pager, and of the node: how `solera run` says it to the library.

use crate::control::preferences::{EvictionStart, Policy, Preferences};
use crate::paging::prefetch::PrefetchMode;
use crate::paging::remote_reads::LineCache;
use std::time::Duration;

/// How a program's pages are brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagerOptions {
    /// How long a touch waits for a holder that does not answer.
    pub patience: Duration,
    /// How pages are brought ahead.
    pub ahead: PrefetchMode,
    /// How pages are to leave.
    pub wish: Preferences,
    /// How large the cache of lines may be.
    pub lines: LineCache,
}

impl PagerOptions {
    /// What a text says: `patience=SECONDS,ahead=auto|seq|stride|off,policy=lru|fifo|lfu,
    /// evict=background|demand,local=BYTES,lines=auto|off|BYTES`, each of them or none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut wishes = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let known = match part.split_once('=') {
                Some(("patience", seconds)) => seconds.parse().ok().map(|seconds: u64| {
                    wishes.patience = Duration::from_secs(seconds.min(86_400));
                }),
                Some(("lines", text)) => LineCache::parse(text).map(|lines| wishes.lines = lines),
                Some(("ahead", name)) => {
                    PrefetchMode::parse(name).map(|ahead| wishes.ahead = ahead)
                }
                Some(("policy", name)) => {
                    Policy::parse(name).map(|policy| wishes.wish.policy = Some(policy))
                }
                Some(("evict", name)) => {
                    EvictionStart::parse(name).map(|when| wishes.wish.when = Some(when))
                }
                Some(("local", bytes)) => {
                    Preferences::local_of(bytes).map(|pages| wishes.wish.local = Some(pages))
                }
                _ => None,
            };
            known.ok_or_else(|| format!("SOLERA_DDMAP={text}: {part} is no wish of a pager"))?;
        }
        Ok(wishes)
    }
}

impl Default for PagerOptions {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(30),
            ahead: PrefetchMode::default(),
            wish: Preferences::default(),
            lines: LineCache::default(),
        }
    }
}
