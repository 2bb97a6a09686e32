//! Entries of pages that a holder keeps: of releases, and of claims. A spare is in state 1.

use super::{Bad, Entry, Kind, too_much};
use crate::protocol::messages::KeptPage;
use zerocopy::IntoBytes;

/// Writes them, at most so many.
pub(super) fn push(
    head: &mut Vec<u8>,
    kind: Kind,
    pages: &[KeptPage],
    limit: usize,
) -> Result<(), Bad> {
    if pages.len() > limit {
        return Err(too_much(kind, pages.len(), 0));
    }
    for kept in pages {
        let entry = Entry::new(kept.page, u32::from(kept.is_spare), kept.version);
        head.extend_from_slice(entry.as_bytes());
    }
    Ok(())
}

/// What they say.
pub(super) fn of(entries: &[Entry]) -> Vec<KeptPage> {
    let kept = |entry: &Entry| {
        let (page, version) = entry.names();
        KeptPage { page, version, is_spare: entry.state() == 1 }
    };
    entries.iter().map(kept).collect()
}
