//! Faults that other file systems had, and that this design could have: the crash explorer must
//! catch each.
//!
//! They are built in only with the feature `inject`, and there while a test runs, by [`select`].
//! Without the feature [`injected`] is constant, and nothing of them is left in what is built.

#[cfg(feature = "inject")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// An append's size is committed while its bytes are in flight.
    SizeBeforeData,
    /// The words of a block map are published before the blocks they lead to are written.
    WordsBeforeBytes,
    /// A map node is reachable before its words are durable.
    WordBeforeNode,
    /// A name counts before its inode is durable.
    NameBeforeInode,
    /// A split directory's node counts before the bucket that it names is durable.
    SplitBeforeBucket,
    /// The word that makes a name count is never flushed.
    NameNotFlushed,
    /// The words of a block map are never flushed.
    WordsNotFlushed,
    /// Bytes before and behind whole lines of a long write are never flushed.
    #[cfg(feature = "inject")]
    EdgesNotFlushed,
    /// Changes in place begin before their undo images are durable.
    ChangeBeforeUndo,
    /// A transaction's number moves before its changes are durable.
    NumberBeforeChanges,
    /// Recovery voids a lane before what it put back is durable.
    VoidBeforeUndone,
    /// Recovery looks at as many lanes as there are processors.
    LanesByProcessors,
    /// A link count changes in place, outside the transaction.
    LinkCountOutside,
    /// A rename drops the old name before the new one is committed.
    RenameDropsFirst,
    /// A write of several blocks is not atomic in mode `strict`.
    WordsOneByOne,
    /// Blocks are cut off before the smaller size is durable.
    CutBeforeSize,
    /// What lies behind the old end is not zeroed when a file is extended over it.
    GapNotZeroed,
    /// Blocks are free before what unlinks them is durable.
    FreedEarly,
    /// The block of extended attributes is written after the word that names it.
    AttributesAfterWord,
    /// A commit overwrites the slot that counts, not the older one.
    CommitInPlace,
    /// A bucket covers its neighbour's names before those that it gave up are dropped.
    LeftoversRevived,
    /// The last detach says clean, and the saved free map is believed without its checksum.
    MapBelieved,
    /// An attach does not say that the volume is in use.
    NeverDirty,
    /// Both superblocks are rewritten at once.
    SuperblocksAtOnce,
    /// Recovery believes a checksummed slot whose bytes are not there.
    SumNotAsked,
    /// A transaction's call returns before its new number is durable.
    NumberNotFenced,
    /// Bytes that overwrite others in place are in flight when the call returns.
    DataNotFenced,
    /// Blocks that `fallocate` attaches count as written.
    JunkShown,
    /// Bytes that a slot sums change before a slot without a sum stands.
    TailSumNotCleared,
    /// A sync does not flush what was stored through mappings.
    StoresNotFlushed,
    /// Recovery gives the files whose ends it recovers its own time.
    RecoveryTouchesTimes,
    /// Recovery cuts files off before the free map is there, and loses what that freed.
    EndsBeforeMap,
    /// Who recovers a dead process does not flush what that one had committed.
    DeadNotFlushed,
    /// Who recovers a dead process does not flush the bytes that its slot sums.
    DeadTailNotFlushed,
    /// Bytes change in place before the record of the overwrite is durable.
    ChangeBeforeRedo,
    /// What an overwrite's record tells of changes while the record counts.
    RedoNotVoided,
    /// Recovery does not look at the records of overwrites.
    RedoForgotten,
    /// A record becomes void before the word that it tells of is durable.
    WordNotDurable,
}

impl Bug {
    /// All of them.
    #[cfg(feature = "inject")]
    pub const ALL: [Bug; 38] = [
        Self::SizeBeforeData,
        Self::WordsBeforeBytes,
        Self::WordBeforeNode,
        Self::NameBeforeInode,
        Self::SplitBeforeBucket,
        Self::NameNotFlushed,
        Self::WordsNotFlushed,
        Self::EdgesNotFlushed,
        Self::ChangeBeforeUndo,
        Self::NumberBeforeChanges,
        Self::VoidBeforeUndone,
        Self::LanesByProcessors,
        Self::LinkCountOutside,
        Self::RenameDropsFirst,
        Self::WordsOneByOne,
        Self::CutBeforeSize,
        Self::GapNotZeroed,
        Self::FreedEarly,
        Self::AttributesAfterWord,
        Self::CommitInPlace,
        Self::LeftoversRevived,
        Self::MapBelieved,
        Self::NeverDirty,
        Self::SuperblocksAtOnce,
        Self::SumNotAsked,
        Self::NumberNotFenced,
        Self::DataNotFenced,
        Self::JunkShown,
        Self::TailSumNotCleared,
        Self::StoresNotFlushed,
        Self::RecoveryTouchesTimes,
        Self::EndsBeforeMap,
        Self::DeadNotFlushed,
        Self::DeadTailNotFlushed,
        Self::ChangeBeforeRedo,
        Self::RedoNotVoided,
        Self::RedoForgotten,
        Self::WordNotDurable,
    ];
}

/// The selected fault's number, from 1 on.
#[cfg(feature = "inject")]
static SELECTED: AtomicUsize = AtomicUsize::new(0);

/// From here on this fault is there, in the whole process.
#[cfg(feature = "inject")]
pub fn select(bug: Option<Bug>) {
    SELECTED.store(bug.map_or(0, |bug| bug as usize + 1), Ordering::SeqCst);
    pmem::inject::lose_edges(bug == Some(Bug::EdgesNotFlushed));
}

/// Whether this fault is there.
#[cfg(feature = "inject")]
pub(crate) fn injected(bug: Bug) -> bool {
    SELECTED.load(Ordering::Relaxed) == bug as usize + 1
}

/// Whether this fault is there: never.
#[cfg(not(feature = "inject"))]
#[inline]
pub(crate) const fn injected(_: Bug) -> bool {
    false
}

/// A witness of a fence of another region, for what pretends to be durable.
#[cold]
pub(crate) fn forged() -> pmem::Durable<'static> {
    static OTHER: std::sync::OnceLock<pmem::Region> = std::sync::OnceLock::new();
    OTHER.get_or_init(|| pmem::Region::in_memory([0; 64], None)).fence()
}
