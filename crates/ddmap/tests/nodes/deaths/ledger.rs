//! What was stored, outside of the region: who stores a value to a page says so before, and once
//! more when it is flushed. Each of them has a word of its own in each page.

use pmem::{OpenOptions, Region};
use std::path::Path;

use crate::tests::support::running::PAGE;

/// Pages of the region.
pub const PAGES: u64 = 512;
/// Who stores: two threads of a process that lives, and the two of one that is killed.
pub const STORERS: u64 = 4;
/// Of the process that is killed: the thread that brings a page, and the other one.
pub const BRINGS: u64 = 2;
pub const BESIDE: u64 = 3;
/// The word of a page that is its number, from its beginning on.
const STAMP: u64 = 7;

/// A number that processes share.
#[derive(Clone, Copy)]
pub enum Word {
    /// The storers are to end.
    Over = 0,
    /// How often a node was started.
    Nodes = 1,
    /// Who is to be killed: the thread's number.
    Thread = 2,
    /// It is to begin.
    Go = 3,
    /// The page that it brings, plus 1.
    Page = 4,
    /// It has brought it.
    Done = 5,
    /// A storer has lost a store.
    Wrong = 6,
    /// Pages that the first storer has come to, and the second.
    First = 8,
    Second = 9,
}

/// The ledger: a file of memory.
pub struct Ledger(Region);

impl Ledger {
    pub fn create(path: &Path) -> Self {
        let size = (4096 + STORERS * PAGES * 16).next_multiple_of(PAGE);
        Self(Region::create(path, size, 0o600, true).unwrap())
    }

    pub fn open(path: &Path) -> Self {
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        Self(Region::open(path, &options).unwrap())
    }

    pub fn get(&self, word: Word) -> u64 {
        self.0.shared_load(word as u64 * 64).unwrap()
    }

    pub fn set(&self, word: Word, value: u64) {
        self.0.shared_store(word as u64 * 64, value).unwrap();
    }

    pub fn add(&self, word: Word) {
        self.0.shared_add(word as u64 * 64, 1).unwrap();
    }

    fn at(storer: u64, page: u64) -> u64 {
        4096 + (storer * PAGES + page) * 16
    }

    /// The value that was stored last, and flushed.
    pub fn done(&self, storer: u64, page: u64) -> u64 {
        self.0.shared_load(Self::at(storer, page) + 8).unwrap()
    }

    /// The value that may have been stored.
    pub fn begun(&self, storer: u64, page: u64) -> u64 {
        self.0.shared_load(Self::at(storer, page)).unwrap()
    }

    fn set_done(&self, storer: u64, page: u64, value: u64) {
        self.0.shared_store(Self::at(storer, page) + 8, value).unwrap();
    }

    fn set_begun(&self, storer: u64, page: u64, value: u64) {
        self.0.shared_store(Self::at(storer, page), value).unwrap();
    }
}

fn word_of(storer: u64, page: u64) -> u64 {
    page * PAGE + storer * 64
}

fn fault(region: &Region, access: pmem::Access) -> Result<(), String> {
    let at = region.absent_page().ok_or("a page that is no absent one fails")?;
    let pager = region.pager().ok_or("a region without a pager")?;
    pager.fault(at, access).map_err(|errno| format!("page {} cannot be had: {errno}", at / PAGE))
}

/// Loads a word of the region, wherever it is.
fn load(region: &Region, at: u64) -> Result<u64, String> {
    loop {
        match region.load64(at) {
            Ok(value) => return Ok(value),
            Err(_) => fault(region, pmem::Access::Load)?,
        }
    }
}

/// Stores a word, and flushes it; `false`: its page is not here, and was not to be brought.
fn store(region: &Region, at: u64, value: u64, bring: bool) -> Result<bool, String> {
    loop {
        match region.store64(at, value) {
            Ok(stored) => {
                // PERSIST: flushed, and fenced, before the ledger says so.
                let _ = stored.flush().fence();
                return Ok(true);
            }
            Err(_) if bring => fault(region, pmem::Access::Store)?,
            Err(_) => return Ok(false),
        }
    }
}

/// One store of a storer to a page, which finds the one before it. `bring`: whether the page is
/// brought if it is not here.
pub fn store_next(
    ledger: &Ledger,
    region: &Region,
    (storer, page): (u64, u64),
    bring: bool,
) -> Result<bool, String> {
    let at = word_of(storer, page);
    let (before, begun) = (ledger.done(storer, page), ledger.begun(storer, page));
    let found = match region.load64(at) {
        Ok(value) => value,
        Err(_) if bring => load(region, at)?,
        Err(_) => return Ok(false),
    };
    if found < before || found > begun {
        let text = "had stored to page";
        return Err(format!("storer {storer} {text} {page}: {before}..={begun}, found {found}"));
    }
    let value = begun + 1;
    ledger.set_begun(storer, page, value);
    if !store(region, at, value, bring)? {
        return Ok(false);
    }
    ledger.set_done(storer, page, value);
    Ok(true)
}

/// Gives each page its number.
pub fn stamp_all(region: &Region) {
    for page in 0..PAGES {
        store(region, page * PAGE + STAMP * 64, page + 1, true).unwrap();
    }
}

/// Reads all pages again, and compares them with the ledger, while others store.
pub fn check_all(ledger: &Ledger, region: &Region) -> Result<(), String> {
    for page in 0..PAGES {
        let stamp = load(region, page * PAGE + STAMP * 64)?;
        if stamp != page + 1 {
            return Err(format!("page {page} has the stamp {stamp}"));
        }
        for storer in 0..STORERS {
            let done = ledger.done(storer, page);
            let found = load(region, word_of(storer, page))?;
            let begun = ledger.begun(storer, page);
            if found < done || found > begun {
                let text = "but flushed was";
                return Err(format!("page {page} has {found} of storer {storer}, {text} {done}"));
            }
        }
    }
    Ok(())
}
