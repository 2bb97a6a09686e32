//! Mistakes that tests put back, each of which they must catch: in builds of tests alone.

/// A mistake.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mistake {
    /// A page that a dead process has installed is fetched again.
    FinishedUndone,
    /// A thread looks at the word, and names the page then.
    NamedLate,
    /// Names are collected before the word has changed for all.
    NamesCollectedEarly,
    /// A page that is named goes.
    NamedEvicted,
    /// A page goes before stores to it are taken away.
    SentUnprotected,
    /// A page whose move failed keeps its version.
    SameVersionAgain,
    /// A page whose move failed gets the version that was sent.
    OneVersionOn,
    /// An owner that does not answer has lost the page.
    UnansweredLost,
    /// The directory names this node before the bytes are here.
    PlacedHereEarly,
    /// The word says owned before the directory names this node.
    OwnedEarly,
    /// The directory names the new place before the bytes are there.
    PlacedEarly,
    /// The word says absent before the page is a hole.
    AbsentBeforeHole,
    /// What a living process is at is taken from it.
    TakenFromTheLiving,
    /// A page of zeros has no version any more.
    ZerosForgetVersion,
    /// The word of a page of zeros that has left does not say so.
    ZerosUnmarked,
    /// A holder takes bytes that are older than what it has.
    OlderStored,
    /// A holder drops a page that is newer than what is released.
    NewerReleased,
    /// A holder gives what it has, whatever the version.
    AnyVersionGiven,
    /// A page that a dead node was sending away is dropped, though the directory cannot be read.
    UnreadableDropped,
    /// A page is a hole before the directory names its new place.
    HoleBeforePlaced,
    /// A holder's word says kept before it has the bytes.
    KeptEarly,
    /// A holder gives what it has read, though the page may have been dropped meanwhile.
    NotLookedAgain,
    /// What a holder keeps is compared with the directory first, and the word is looked at then.
    PlaceFirst,
    /// What a holder keeps is compared with the directory while the page is leaving.
    LeavingReconciled,
    /// A page that is lost becomes void in the version that was lost.
    LostKeepsVersion,
    /// A page that nobody wants is absent before the directory says that it is void.
    VoidedLate,
    /// A page that nobody wants is absent before it is a hole.
    DroppedInFile,
    /// A page that is stored to whole is given up, though it is not lost.
    FoundGivenUp,
    /// That a page is clean is not compared when its word is changed, as flags are not.
    CleanIsFlag,
    /// A load that finds its page mapped opens it for stores.
    LoadOpens,
    /// A page may be stored to before the directory says that it has no spare.
    SpareClearedLate,
    /// A holder keeps what it has, whatever the version.
    AnyVersionKept,
    /// A page that is stored to leaves by its spare.
    SpareBelieved,
    /// A holder drops a page that it was not told to be a spare.
    DroppedUntold,
    /// A page is lost when the first of its two holders has not got it.
    OneRefusedLost,
    /// A page is lost when its second holder has not got it, and the first has not answered.
    SilentIsNo,
    /// The directory names two holders, of which only one has said that it keeps the page.
    SecondUnheard,
    /// The directory names a new holder though the page has moved meanwhile.
    HealedBlindly,
    /// The directory's word is changed for a new holder without a claim.
    HealedUnclaimed,
    /// A holder that has the directory's version, and is not named, is told to drop it.
    EqualInVain,
    /// A new holder that is not named in the end is told to drop the page, also in the directory's
    /// version.
    ThirdReleased,
    /// A node that agrees to a reign stores numbers of an earlier one.
    PromiseForgotten,
    /// A node stores the numbers of any first.
    EarlierStored,
    /// A node that becomes first does not hear which numbers there are.
    NumbersUnheard,
    /// A node that becomes first counts the members that it knew before.
    VotersUnheard,
    /// Half of the members are a majority.
    HalfSuffices,
    /// A node that is first by force gives numbers.
    ForceSuffices,
    /// A process that is about to attach a volume does not have it.
    StartingUncounted,
    /// A program that was let in, and may not have begun to attach, does not have the volume.
    InsideUncounted,
    /// A program is let in while the volume is about to move.
    LetInWhileMoving,
    /// A host looks which processes have a volume before it lets nobody in any more.
    LookedEarly,
    /// A volume moves, and those that wait for it are forgotten.
    QueueLeftBehind,
    /// On a volume's new host those that wait begin to.
    WaitBeginsAnew,
    /// A newcomer goes ahead of others however long they have waited.
    HoldUnbounded,
    /// A program that waited, and died with its node, waits on.
    DeadAskerStays,
}

#[cfg(test)]
thread_local! {
    static MADE: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

/// This thread makes a mistake from here on, or none.
#[cfg(test)]
pub fn make(mistake: Option<Mistake>) {
    MADE.set(mistake);
}

/// The mistake of all threads of this process.
#[cfg(test)]
static EVERYWHERE: std::sync::OnceLock<Mistake> = std::sync::OnceLock::new();

/// All threads of this process make a mistake, from here on.
#[cfg(test)]
pub fn make_everywhere(mistake: Mistake) {
    EVERYWHERE.get_or_init(|| mistake);
}

/// Whether a mistake is to be made.
#[cfg(test)]
pub(super) fn made(mistake: Mistake) -> bool {
    MADE.get() == Some(mistake) || EVERYWHERE.get() == Some(&mistake)
}

/// Whether a mistake is to be made: never.
#[cfg(not(test))]
pub(super) const fn made(_: Mistake) -> bool {
    false
}
