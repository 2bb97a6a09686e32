//! The node table of a region: a word of 8 bytes a page, in a sparse file that the node and every
//! process with the volume attached map (`docs/format.md`, "ddmap").
//!
//! ```text
//! | header 4 KiB | process slots 8 KiB | names 256 KiB | ... | holds 128 KiB, from 288 KiB on |
//! | handles 20 KiB | ... | words, from 512 KiB on |
//! ```
//!
//! A process takes a slot when it attaches (`robust::slot`): its claims are in that slot's name. It
//! holds a byte of the file `live`, by a lock of an open file description, which goes with it. (A
//! forked child that cannot open the file, since it has become another user or has got another
//! root, holds its byte as a process, by a description that it has inherited and that nobody holds
//! a byte by. Its parent's own description it closes first: a close of any descriptor of the file
//! would give up what the process holds.) Each
//! slot has 64 *names*: pages that threads of the process are about to map (`protocol/mod.rs`,
//! invariant 6). A name is put by a locked instruction, so all processors see it before the load of
//! the word behind it. It also has 32 *holds*, which are names of many pages in a row: the buffer
//! of a call that the kernel serves, which must stay as long as that takes. And it has its
//! *handles*: by what numbers the process knows its userfaultfd and its list of mappings, so that a
//! node that begins while the process does nothing can fetch them.

use crate::protocol::{Claimant, Flags, State, Word};
use crate::shared_memory::files;
use crate::shared_memory::share::Share;
use os::InternalFd;
use pmem::{Fault, OpenError, Region};
use robust::bytes::{self, Hold, Kind};
use robust::owner::Owner;
use robust::slot::{self, Claim, LIVE, Slots};
use robust::word::RegionWord;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The names of the files in a volume's folder.
pub const NAME: &str = "table";
const LIVE_NAME: &str = "live";

const MAGIC: u64 = u64::from_le_bytes(*b"SolTable");
/// Changes when the structures do: builds of different layouts do not share a table.
pub const LAYOUT: u64 = 4;
/// The same structures, of builds that know no pages that are clean.
const LAYOUT_BEFORE: u64 = 3;

const HEADER_MAGIC: u64 = 0;
const HEADER_LAYOUT: u64 = 8;
const HEADER_PAGES: u64 = 16;
/// Slots below it were used at some time.
const HEADER_SLOTS: u64 = 64;
/// Whether holders may keep pages that nobody told them to drop.
const HEADER_IN_VAIN: u64 = 128;
// From 192 on: `share.rs`.
const SLOTS_AT: u64 = 4096;
const SLOT_BYTES: u64 = 16;
/// Processes that can have the volume attached at once.
pub const SLOTS: u32 = 512;
const NAMES_AT: u64 = SLOTS_AT + SLOTS as u64 * SLOT_BYTES;
/// Threads of a process that map a page at the same time.
const NAMES: u64 = 64;
const HOLDS_AT: u64 = 288 << 10;
/// Calls of a process that hold pages at the same time.
const HOLDS: u64 = 32;
const HANDLES_AT: u64 = HOLDS_AT + SLOTS as u64 * HOLDS * 8;
const HANDLE_BYTES: u64 = 40;
const WORDS_AT: u64 = 512 << 10;
/// Where the number of pages begins in a name; below it is the first page's number, plus 1.
const NAMED_PAGES: u32 = 40;

const _: () = assert!(NAMES_AT + SLOTS as u64 * NAMES * 8 <= HOLDS_AT);
const _: () = assert!(HANDLES_AT + SLOTS as u64 * HANDLE_BYTES <= WORDS_AT);

/// Slots of a table are of one epoch for ever.
const EPOCH: u32 = 1;
/// First of the bytes that recoverers hold.
const RECOVERY_BYTES: i64 = 8192;

thread_local! {
    /// Where it lies tells this thread from others.
    static HERE: u8 = const { 0 };
}

/// Why a table cannot be used.
#[derive(Debug)]
pub enum TableError {
    /// Its file cannot be opened.
    Open(OpenError),
    /// It is no table, or another build's.
    Layout(String),
    /// A call failed.
    System(&'static str, Errno),
    /// All slots are taken.
    Full,
    /// The file that says where pages are is gone.
    NoDirectory,
}

impl fmt::Display for TableError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(out),
            Self::Layout(found) => {
                write!(out, "the node table {found}; use the build that made it")
            }
            Self::System(what, errno) => {
                write!(out, "{what} of the node table: {}", os::describe(*errno))
            }
            Self::NoDirectory => write!(
                out,
                "the directory of its pages is gone: `solera domain repair` makes it anew"
            ),
            Self::Full => write!(out, "{SLOTS} processes have the volume attached: end one"),
        }
    }
}

impl From<OpenError> for TableError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

/// Where a process has what a node needs to reach it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handles {
    /// The process.
    pub pid: i32,
    /// The number of its userfaultfd.
    pub uffd: i32,
    /// The number of its list of mappings.
    pub maps: i32,
    /// What tells that list from all others: a number of a process may be another one's elsewhere.
    pub token: u64,
}

/// A table, and this process's slot of it.
pub struct Table {
    region: Region,
    pages: u64,
    live: InternalFd,
    /// What forked children inherit of it.
    inherited: InternalFd,
    /// It holds bytes as a process.
    as_process: AtomicBool,
    slot: AtomicU32,
    life: AtomicU32,
}

impl Slots for Table {
    type Fault = Fault;
    type Error = Errno;
    type Word<'s> = RegionWord<'s>;

    fn epoch(&self) -> u32 {
        EPOCH
    }

    fn state(&self, slot: u32) -> RegionWord<'_> {
        RegionWord(&self.region, SLOTS_AT + u64::from(slot) * SLOT_BYTES)
    }

    fn recoverer(&self, slot: u32) -> RegionWord<'_> {
        RegionWord(&self.region, SLOTS_AT + u64::from(slot) * SLOT_BYTES + 8)
    }

    fn hold(&self, slot: u32) -> Result<bool, Errno> {
        bytes::try_take(self.live.as_raw_fd(), self.kind(), Hold::Alone, i64::from(slot))
    }

    fn release(&self, slot: u32) -> Result<(), Errno> {
        bytes::release(self.live.as_raw_fd(), self.kind(), i64::from(slot))
    }

    fn is_held(&self, slot: u32) -> Result<bool, Errno> {
        let other = bytes::holder(self.live.as_raw_fd(), Kind::Description, i64::from(slot), 1)?;
        Ok(other.is_some() || self.is_own(slot))
    }

    fn is_own(&self, slot: u32) -> bool {
        self.slot.load(Ordering::Relaxed) == slot
    }

    fn begin_recovery(&self, slot: u32) -> Result<bool, Errno> {
        let fd = self.live.as_raw_fd();
        let at = RECOVERY_BYTES + i64::from(slot);
        if !bytes::try_take(fd, self.kind(), Hold::Alone, at)? {
            return Ok(false);
        }
        if self.hold(slot)? {
            return Ok(true);
        }
        bytes::release(fd, self.kind(), at)?;
        Ok(false)
    }

    fn end_recovery(&self, slot: u32) -> Result<(), Errno> {
        self.release(slot)?;
        let at = RECOVERY_BYTES + i64::from(slot);
        bytes::release(self.live.as_raw_fd(), self.kind(), at)
    }
}

/// A process by its number and name, for messages; 0: it has said no number.
pub fn process_name(pid: i32) -> String {
    if pid == 0 {
        return "one without a number".to_owned();
    }
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", name.trim())
}

fn open_live(folder: &Path, made: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | made | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(folder.join(LIVE_NAME), flags, Mode::from_raw_mode(0o600))
}

impl Table {
    /// Makes the table of a region of so many pages, none of which was ever touched.
    pub fn create(folder: &Path, pages: u64) -> Result<(), TableError> {
        let region = files::create(&folder.join(NAME), WORDS_AT + pages * 8)?;
        let set = |word, value| {
            region
                .shared_store(word, value)
                .map_err(|fault| TableError::System("the header", fault.into()))
        };
        set(HEADER_LAYOUT, LAYOUT)?;
        set(HEADER_PAGES, pages)?;
        set(HEADER_MAGIC, MAGIC)
    }

    /// Makes a table longer, for so many pages. Who has it attached does not see them.
    pub fn grow(folder: &Path, pages: u64) -> Result<(), TableError> {
        let system = |errno| TableError::System("the file", errno);
        let path = folder.join(NAME);
        let file = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(system)?;
        rustix::fs::ftruncate(&file, WORDS_AT + pages * 8).map_err(system)?;
        let stored = files::open(&path)?.shared_store(HEADER_PAGES, pages);
        stored.map_err(|fault| TableError::System("the header", fault.into()))
    }

    /// Whether a folder has a table, whole: its magic number is written last. What cannot be opened
    /// is there, and is not to be made anew.
    pub fn is_made(folder: &Path) -> bool {
        let path = folder.join(NAME);
        let has_some = std::fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        let magic = || files::open(&path).map(|region| region.shared_load(HEADER_MAGIC));
        has_some && !matches!(magic(), Ok(Ok(0)))
    }

    /// Holds the bytes of all process slots, of the layout before this one, too: until what this
    /// gives is dropped no process takes one. Or gives the processes that have one.
    pub fn hold_all(folder: &Path) -> Result<Result<OwnedFd, Vec<String>>, TableError> {
        let system = |errno| TableError::System("the liveness file", errno);
        let live = open_live(folder, OFlags::CREATE).map_err(system)?;
        let region = files::open(&folder.join(NAME))?;
        let pid = |slot: u32| region.shared_load(HANDLES_AT + u64::from(slot) * HANDLE_BYTES);
        let mut users = Vec::new();
        for slot in 0..SLOTS {
            let (fd, at) = (live.as_raw_fd(), i64::from(slot));
            if !bytes::try_take(fd, Kind::Description, Hold::Alone, at).map_err(system)? {
                users.push(process_name(pid(slot).unwrap_or(0) as i32));
            }
        }
        Ok(if users.is_empty() { Ok(live) } else { Err(users) })
    }

    /// A table of the layout before is one of this.
    pub fn set_layout(folder: &Path) -> Result<(), TableError> {
        let region = files::open(&folder.join(NAME))?;
        let fault = |fault: Fault| TableError::System("the header", fault.into());
        if region.shared_load(HEADER_LAYOUT).map_err(fault)? == LAYOUT_BEFORE {
            region.shared_store(HEADER_LAYOUT, LAYOUT).map_err(fault)?;
        }
        Ok(())
    }

    /// Attaches this process to the table in a volume's folder: it takes a slot.
    pub fn attach(folder: &Path) -> Result<Self, TableError> {
        let region = files::open(&folder.join(NAME))?;
        let get = |word| region.shared_load(word).unwrap_or(0);
        if get(HEADER_MAGIC) != MAGIC {
            return Err(TableError::Layout("has no magic number: it is no table".to_owned()));
        }
        if get(HEADER_LAYOUT) != LAYOUT {
            let found = format!("has layout {}, and this build has {LAYOUT}", get(HEADER_LAYOUT));
            return Err(TableError::Layout(found));
        }
        let pages = get(HEADER_PAGES);
        if region.len().saturating_sub(WORDS_AT) / 8 < pages {
            return Err(TableError::Layout(format!("is too short for {pages} pages")));
        }
        let open = || {
            let opened = open_live(folder, OFlags::CREATE).map(InternalFd::new);
            opened.map_err(|errno| TableError::System("the liveness file", errno))
        };
        let (live, inherited, as_process) = (open()?, open()?, AtomicBool::new(false));
        let (slot, life) = (AtomicU32::new(u32::MAX), AtomicU32::new(0));
        let table = Self { region, pages, live, inherited, as_process, slot, life };
        table.take_slot()?;
        Ok(table)
    }

    /// In a forked child: it takes a slot of its own. Its parent's byte goes with its parent.
    pub fn forked(&self) -> Result<(), TableError> {
        let live = match self.open_again() {
            Some(live) => live,
            None => rustix::io::fcntl_dupfd_cloexec(&self.inherited, 0)
                .inspect(|_| self.as_process.store(true, Ordering::Relaxed))
                .map_err(|errno| TableError::System("the liveness file", errno))?,
        };
        let old = self.live.as_raw_fd();
        self.live.replace(InternalFd::new(live));
        // SAFETY: the number that this had until now, which nobody else closes.
        drop(unsafe { OwnedFd::from_raw_fd(old) });
        self.slot.store(u32::MAX, Ordering::Relaxed);
        self.take_slot()
    }

    /// A description of the liveness file of this process's own. `None`: it cannot have one, or has
    /// none already.
    fn open_again(&self) -> Option<OwnedFd> {
        if self.as_process.load(Ordering::Relaxed) {
            return None;
        }
        let folder = self.region.path().and_then(Path::parent)?;
        let live = open_live(folder, OFlags::empty()).ok()?;
        let of = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        // Below another root it may be another file.
        (of(live.as_fd()).ok()? == of(self.inherited.as_fd()).ok()?).then_some(live)
    }

    /// Whose this process's locks are.
    fn kind(&self) -> Kind {
        if self.as_process.load(Ordering::Relaxed) { Kind::Process } else { Kind::Description }
    }

    fn take_slot(&self) -> Result<(), TableError> {
        let system = |errno| TableError::System("a process slot", errno);
        self.bury().map_err(system)?;
        let (slot, life) = slot::take(self, 0..SLOTS).map_err(system)?.ok_or(TableError::Full)?;
        self.slot.store(slot, Ordering::Relaxed);
        self.life.store(life, Ordering::Relaxed);
        let mut used = self.used_slots();
        while used <= slot {
            match self.region.shared_cas(HEADER_SLOTS, used.into(), u64::from(slot) + 1) {
                Ok(Err(found)) => used = found as u32,
                _ => break,
            }
        }
        Ok(())
    }

    /// Slots below this one were used at some time.
    pub fn used_slots(&self) -> u32 {
        (self.region.shared_load(HEADER_SLOTS).unwrap_or(0) as u32).min(SLOTS)
    }

    /// Pages of the region.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Who this process is.
    pub fn me(&self) -> Claimant {
        let (slot, life) = (self.slot.load(Ordering::Relaxed), self.life.load(Ordering::Relaxed));
        Claimant { slot: slot as u16, life: (life & 0xFFF) as u16 }
    }

    /// Which of its slot's lives this process is: more than any before it.
    pub fn life(&self) -> u32 {
        self.life.load(Ordering::Relaxed)
    }

    fn at(page: u64) -> u64 {
        WORDS_AT + page * 8
    }

    /// A page's word. Of one that cannot be loaded, or is beyond the end: lost.
    pub fn word(&self, page: u64) -> Word {
        let lost = Word::new(State::Lost, Flags::default(), crate::protocol::Version::default());
        if page >= self.pages {
            return lost;
        }
        self.region.shared_load(Self::at(page)).map_or(lost, Word)
    }

    /// Replaces a word, if it is `from` but for its flags, which stay; and wakes who waits for it.
    pub fn turn(&self, page: u64, from: Word, to: Word) -> bool {
        let mut found = self.word(page);
        loop {
            if found.flagged(from.flags()) != from {
                return false;
            }
            match self.region.shared_cas(Self::at(page), found.0, to.behind(found).0) {
                Ok(Ok(_)) => break,
                Ok(Err(other)) => found = Word(other),
                Err(_) => return false,
            }
        }
        if found.flags().has(Flags::AWAITED) {
            self.region.futex_wake(Self::at(page), u32::MAX);
        }
        true
    }

    /// Sets a page's word, on a node that serves nothing of the region now.
    pub fn put(&self, page: u64, word: Word) {
        // A table that was cut short says of its pages that they are lost.
        let _ = self.region.shared_store(Self::at(page), word.0);
    }

    /// Changes a page's flags.
    pub fn flag(&self, page: u64, set: Flags, clear: Flags) {
        if page >= self.pages {
            return;
        }
        let mut found = self.word(page);
        loop {
            let to = found.flagged(found.flags().without(clear).with(set));
            if to == found {
                return;
            }
            match self.region.shared_cas(Self::at(page), found.0, to.0) {
                Ok(Err(other)) => found = Word(other),
                Ok(Ok(_)) => {
                    let stays = |word: Word| word.flags().has(Flags::STAYS);
                    if stays(found) != stays(to) {
                        self.share().page_stays(stays(to));
                    }
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// How much of the volume is here, and may be.
    pub fn share(&self) -> Share<'_> {
        Share::new(&self.region)
    }

    /// Pages that must stay, by their words.
    pub fn count_stays(&self) -> u64 {
        let stays = |page: &u64| self.word(*page).flags().has(Flags::STAYS);
        self.touched().filter(stays).count() as u64
    }

    /// A page of this word is wanted now. It is a hint: it is lost if the word changes meanwhile.
    pub fn heat(&self, page: u64, word: Word, now: u16) {
        let wanted = word.wanted(now);
        if word.state().is_here() && word != wanted {
            // As said.
            let _ = self.region.shared_cas(Self::at(page), word.0, wanted.0);
        }
    }

    /// Its node asks about a page of this word, which is here: gives its word from now on. `None`:
    /// it was another one.
    pub fn ask(&self, page: u64, word: Word) -> Option<Word> {
        let asked = word.asked();
        let turned = self.region.shared_cas(Self::at(page), word.0, asked.0);
        matches!(turned, Ok(Ok(_))).then_some(asked)
    }

    /// Waits while a page's word is this one, at most `patience`; an error if a signal has come
    /// whose turn it is.
    pub fn wait(&self, page: u64, word: Word, patience: Duration) -> Result<bool, Errno> {
        // Who changes the word wakes others only if its flag says that there are some: so that is
        // set, on this very word, before this thread sleeps on it.
        let is_this = |found: Word| found.flagged(word.flags()) == word;
        let mut found = self.word(page);
        while is_this(found) && !found.flags().has(Flags::AWAITED) {
            let awaited = found.flagged(found.flags().with(Flags::AWAITED));
            match self.region.shared_cas(Self::at(page), found.0, awaited.0) {
                Ok(Ok(_)) => found = awaited,
                Ok(Err(other)) => found = Word(other),
                Err(_) => return Ok(false),
            }
        }
        if !is_this(found) {
            return Ok(true);
        }
        self.region.futex_wait_interruptible(Self::at(page), word.0 as u32, patience)
    }

    /// Names a page that this thread is about to map: gives the name's place, for
    /// [`Table::unname`].
    pub fn name(&self, page: u64) -> u64 {
        self.name_pages(page, 1)
    }

    /// The same of pages in a row, at most 2^20.
    pub fn name_pages(&self, page: u64, pages: u64) -> u64 {
        let name = Self::named(page, pages);
        let first = NAMES_AT + u64::from(self.slot.load(Ordering::Relaxed)) * NAMES * 8;
        // A number of the thread's that takes no call of the kernel.
        let thread = HERE.with(|here| std::ptr::from_ref(here) as u64);
        let thread = thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        // Other threads have theirs for microseconds.
        for place in (0..).map(|turn| first + (thread + turn) % NAMES * 8) {
            match self.region.shared_cas(place, 0, name) {
                Ok(Ok(_)) | Err(_) => return place,
                Ok(Err(_)) => {}
            }
        }
        first
    }

    /// Takes a name back.
    pub fn unname(&self, place: u64) {
        // A table that vanished has no names either.
        let _ = self.region.shared_store(place, 0);
    }

    /// Holds pages in a row, at most 2^20, which stay until [`Table::unname`] of the hold's place.
    /// `None`: this process holds too much at the same time.
    pub fn hold_pages(&self, first: u64, pages: u64) -> Option<u64> {
        let name = Self::named(first, pages.min(1 << 20));
        let from = HOLDS_AT + u64::from(self.slot.load(Ordering::Relaxed)) * HOLDS * 8;
        let mut places = (0..HOLDS).map(|at| from + at * 8);
        places.find(|place| matches!(self.region.shared_cas(*place, 0, name), Ok(Ok(_))))
    }

    /// All pages that are named or held.
    pub fn names(&self) -> Vec<Range<u64>> {
        let slots = u64::from(self.used_slots());
        let names = (0..slots * NAMES).map(|name| NAMES_AT + name * 8);
        let holds = (0..slots * HOLDS).map(|hold| HOLDS_AT + hold * 8);
        names.chain(holds).filter_map(|place| self.named_at(place)).collect()
    }

    /// What calls of this process hold.
    pub fn own_holds(&self) -> Vec<Range<u64>> {
        let from = HOLDS_AT + u64::from(self.slot.load(Ordering::Relaxed)) * HOLDS * 8;
        (0..HOLDS).filter_map(|hold| self.named_at(from + hold * 8)).collect()
    }

    fn named(first: u64, pages: u64) -> u64 {
        (pages - 1) << NAMED_PAGES | (first + 1)
    }

    fn named_at(&self, place: u64) -> Option<Range<u64>> {
        let name = self.region.shared_load(place).ok()?;
        let first = (name & ((1 << NAMED_PAGES) - 1)).checked_sub(1)?;
        Some(first..first + (name >> NAMED_PAGES) + 1)
    }

    fn handles_at(slot: u16) -> u64 {
        HANDLES_AT + u64::from(slot) * HANDLE_BYTES
    }

    /// Says where this process has what a node needs to reach it.
    pub fn publish(&self, handles: Handles) {
        let at = Self::handles_at(self.me().slot);
        let life = u64::from(self.life());
        let Handles { pid, uffd, maps, token } = handles;
        let words = [0, pid as u64, uffd as u64, maps as u64, token, life];
        for (word, value) in [4, 0, 1, 2, 3, 4].into_iter().zip(words) {
            // A table that vanished is nobody's any more.
            let _ = self.region.shared_store(at + word * 8, value);
        }
    }

    /// Where a process that is attached has them, if it has said so.
    pub fn published(&self, claimant: Claimant) -> Option<Handles> {
        let at = Self::handles_at(claimant.slot);
        let get = |word: u64| self.region.shared_load(at + word * 8).ok();
        let of_life = || get(4).filter(|life| *life & 0xFFF == u64::from(claimant.life));
        let life = of_life().filter(|life| *life != 0)?;
        let handles = Handles {
            pid: get(0)? as i32,
            uffd: get(1)? as i32,
            maps: get(2)? as i32,
            token: get(3)?,
        };
        (of_life() == Some(life)).then_some(handles)
    }

    /// Holders may keep pages that this process has not told them to drop.
    pub fn set_in_vain(&self) {
        // A hint for the node; pages are kept in vain meanwhile.
        let _ = self.region.shared_store(HEADER_IN_VAIN, 1);
    }

    /// Whether that was said since it was asked last.
    pub fn take_in_vain(&self) -> bool {
        self.region.shared_load(HEADER_IN_VAIN) == Ok(1)
            && self.region.shared_swap(HEADER_IN_VAIN, 0) == Ok(1)
    }

    /// Pages whose words were ever changed, as far as the file's memory tells: in ascending order,
    /// with others among them.
    pub fn touched(&self) -> impl Iterator<Item = u64> + '_ {
        self.touched_from(0)
    }

    /// The same, from a page on.
    pub fn touched_from(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        let mut part = from..from;
        std::iter::from_fn(move || {
            loop {
                if let Some(page) = part.next() {
                    return Some(page);
                }
                part = self.part_from(part.end)?;
            }
        })
    }

    /// The first part of the words from a page on that has memory.
    fn part_from(&self, page: u64) -> Option<std::ops::Range<u64>> {
        if page >= self.pages {
            return None;
        }
        // SAFETY: the region's own descriptor, open as long as it.
        let fd = unsafe { BorrowedFd::borrow_raw(self.region.fd()) };
        let data = rustix::fs::seek(fd, SeekFrom::Data(Self::at(page))).ok()?;
        let hole = rustix::fs::seek(fd, SeekFrom::Hole(data)).ok()?;
        let page_of = |at: u64| at.saturating_sub(WORDS_AT) / 8;
        let first = page_of(data).max(page);
        let last = page_of(hole).min(self.pages);
        (first < last).then_some(first..last)
    }

    /// Whether a claimant is dead, or has left.
    pub fn is_dead(&self, claimant: Claimant) -> bool {
        let slot = u32::from(claimant.slot);
        let Ok(state) = slot::look(self, slot) else { return false };
        if state.state != LIVE || state.generation & 0xFFF != u32::from(claimant.life) {
            return true;
        }
        // What cannot be asked is alive.
        slot::is_dead(self, slot, state).unwrap_or(false)
    }

    /// The processes that have the table attached: slot and life.
    pub fn processes(&self) -> Vec<Claimant> {
        (0..self.used_slots())
            .filter_map(|slot| {
                let state = slot::look(self, slot).ok()?;
                let life = (state.generation & 0xFFF) as u16;
                (state.state == LIVE).then_some(Claimant { slot: slot as u16, life })
            })
            .collect()
    }

    /// Takes back the names and the slots of processes that have died: how many. Their claims stay,
    /// and are taken over by whoever meets them.
    pub fn bury(&self) -> Result<u32, Errno> {
        let mut buried = 0;
        for slot in 0..self.used_slots() {
            let state = slot::look(self, slot)?;
            if state.state != LIVE || !slot::is_dead(self, slot, state)? {
                continue;
            }
            let me = self.me();
            // Before it has a slot of its own, a process is told by a number that no slot has.
            let own = Owner::of_process(u32::from(me.slot) & 0x1FF, me.life.into());
            if slot::claim_recovery(self, slot, state, own)? == Claim::Own {
                self.drop_names(slot);
                // What it owed to holders nobody tells them; the node may not be the one that
                // buries it.
                self.set_in_vain();
                slot::finish_recovery(self, slot, state, slot::FREE)?;
                buried += 1;
            }
        }
        Ok(buried)
    }

    fn drop_names(&self, slot: u32) {
        let slot = u64::from(slot);
        let names = (0..NAMES).map(|name| NAMES_AT + (slot * NAMES + name) * 8);
        let holds = (0..HOLDS).map(|hold| HOLDS_AT + (slot * HOLDS + hold) * 8);
        names.chain(holds).for_each(|place| self.unname(place));
    }

    /// Leaves the table. This process's claims must be done.
    pub fn leave(&self) -> Result<(), Errno> {
        let slot = self.slot.swap(u32::MAX, Ordering::Relaxed);
        if slot == u32::MAX {
            return Ok(());
        }
        self.drop_names(slot);
        let state = slot::look(self, slot)?;
        slot::turn(self, slot, state, slot::SlotState { state: slot::FREE, ..state })?;
        self.release(slot)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // The lock goes with the descriptor: who comes next buries what stands.
        let _ = self.leave();
    }
}
