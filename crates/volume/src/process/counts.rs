//! What processes have called, and which ones were found dead, summed for people and monitors.
//!
//! A reader takes no lock and stores nothing: it loads the words of `medium/call_counters.rs`,
//! which grow meanwhile. The counts of a process are what its slot's words say more than when it
//! took the slot; those of the volume are the words of all slots, of processes that live and that
//! have gone. So a dead process's calls stay in the sum, until a build with another runtime format
//! begins anew.

use crate::Result;
use crate::medium::layout::{HEADER_FORMAT, PROCESS_SLOTS, RuntimeLayout};
use crate::medium::now;
use crate::process::liveness::own_pid;
use crate::process::{BEGUN, DEATHS, Processes};
use pmem::counters::{APART, GROUPS};
use zerocopy::IntoBytes;

/// Words of the last death of a slot's process, behind their number.
const DEAD_PID: u64 = DEATHS + 8;
const FOUND_BY: u64 = DEATHS + 16;
const FOUND_AT: u64 = DEATHS + 24;

/// What was called, so many times. In the order of `medium/call_counters.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Reads of files.
    pub reads: u64,
    /// What they gave, bytes.
    pub bytes_read: u64,
    /// Writes of files.
    pub writes: u64,
    /// What they took, bytes.
    pub bytes_written: u64,
    /// Opens, those that make a file too.
    pub opens: u64,
    /// Looks at names and attributes, and changes of them.
    pub names: u64,
    /// Calls that make something durable.
    pub syncs: u64,
    /// Waits for a lock of another thread or process.
    pub lock_waits: u64,
}

impl Counts {
    const fn words(self) -> [u64; 8] {
        let Self { reads, bytes_read, writes, bytes_written, opens, names, syncs, lock_waits } =
            self;
        [reads, bytes_read, writes, bytes_written, opens, names, syncs, lock_waits]
    }

    fn from_words(words: [u64; 8]) -> Self {
        let [reads, bytes_read, writes, bytes_written, opens, names, syncs, lock_waits] = words;
        Self { reads, bytes_read, writes, bytes_written, opens, names, syncs, lock_waits }
    }

    /// Word by word.
    fn with(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        let (mine, others) = (self.words(), other.words());
        Self::from_words(std::array::from_fn(|at| each(mine[at], others[at])))
    }

    /// Together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::wrapping_add)
    }

    /// What was called since; nothing where an addition was lost meanwhile.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    /// Calls of all kinds.
    pub const fn calls(self) -> u64 {
        self.reads + self.writes + self.opens + self.names + self.syncs
    }
}

/// The last death of a process that had a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Death {
    /// The dead one, as it saw itself.
    pub pid: u32,
    /// Who found it dead, and recovered what it left.
    pub found_by: u32,
    /// When, ns since 1970.
    pub found_at: u64,
}

impl Processes {
    /// From now on this process counts in the words of a slot; those of no slot: nowhere.
    pub(super) fn count_in(&self, slot: u32) {
        let counts = u64::from(slot) < PROCESS_SLOTS && !self.is_reader();
        let at = counts.then(|| self.rt.counters(slot)).flatten();
        self.counters.set(at.map(|at| self.superblock.runtime + at));
    }

    /// What the words of a slot say, of all processes that had it. `None`: the volume has none.
    fn slot_counts(&self, slot: u32) -> Result<Option<Counts>> {
        let Some(first) = self.rt.counters(slot) else { return Ok(None) };
        let mut sum = Counts::default();
        for group in 0..GROUPS {
            sum = sum.plus(Counts::from_words(self.rt.line(first + group * APART)?));
        }
        Ok(Some(sum))
    }

    /// A process takes a slot: what it counts begins here.
    pub(super) fn begin_counting(&self, slot: u32) -> Result<()> {
        if let Some(before) = self.slot_counts(slot)? {
            self.rt.write(self.rt.process(slot) + BEGUN, before.words().as_bytes())?;
        }
        Ok(())
    }

    /// What the process of a slot has called since it took it.
    pub(crate) fn counts_of(&self, slot: u32) -> Result<Option<Counts>> {
        let Some(now) = self.slot_counts(slot)? else { return Ok(None) };
        let before = Counts::from_words(self.rt.line(self.rt.process(slot) + BEGUN)?);
        Ok(Some(now.since(before)))
    }

    /// Whether another build's words stand in the runtime. (None does in a new volume's.)
    fn is_strange(&self) -> Result<bool> {
        let format = self.rt.load(HEADER_FORMAT)?;
        Ok(format != 0 && format != RuntimeLayout::format())
    }

    /// What all processes have called that had the volume attached. `None`: it was made without
    /// room for counters, or another build has used it last.
    pub(crate) fn counts(&self) -> Result<Option<Counts>> {
        let mut sum = Counts::default();
        if self.is_strange()? {
            return Ok(None);
        }
        for slot in 0..PROCESS_SLOTS as u32 {
            match self.slot_counts(slot)? {
                Some(counts) => sum = sum.plus(counts),
                None => return Ok(None),
            }
        }
        Ok(Some(sum))
    }

    /// This process has found the process of a slot dead.
    pub(crate) fn note_death(&self, slot: u32) -> Result<()> {
        let (at, pid) = (self.rt.process(slot), self.slot_pid(slot)?);
        if pid == 0 {
            // A child that never came.
            return Ok(());
        }
        self.rt.store(at + DEAD_PID, u64::from(pid))?;
        self.rt.store(at + FOUND_BY, u64::from(own_pid()))?;
        self.rt.store(at + FOUND_AT, now() as u64)?;
        self.rt.store(at + DEATHS, self.rt.load(at + DEATHS)? + 1)?;
        Ok(())
    }

    /// How many processes were found dead, and of each slot the last one, the latest first.
    pub(crate) fn deaths(&self) -> Result<(u64, Vec<Death>)> {
        let (mut count, mut last) = (0, Vec::new());
        if self.is_strange()? {
            return Ok((count, last));
        }
        for slot in 0..PROCESS_SLOTS as u32 {
            let word = |word| self.rt.load(self.rt.process(slot) + word);
            let deaths = word(DEATHS)?;
            if deaths > 0 {
                let (pid, found_by) = (word(DEAD_PID)? as u32, word(FOUND_BY)? as u32);
                last.push(Death { pid, found_by, found_at: word(FOUND_AT)? });
            }
            count += deaths;
        }
        last.sort_by_key(|death| std::cmp::Reverse(death.found_at));
        Ok((count, last))
    }
}
