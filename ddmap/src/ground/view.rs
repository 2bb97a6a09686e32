//! What the machines of a host work on, of this machine's kernel: the node table, the directory,
//! the page file, and the hands of the process that runs them.

use crate::ground::directory::{self, Directory};
use crate::ground::room::Room;
use crate::ground::table::{Table, TableError};
use crate::protocol::{
    Claimant, DamagedPlace, Flags, Host, Installed, NodeId, PAGE, Place, Shown, State, Word,
};
use pmem::InternalFd;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// The name of the page file in a volume's folder.
pub const REGION: &str = "region";
/// Words of a directory in a page of its file.
const WORDS: usize = 512;

/// A region on its host.
pub struct Ground {
    /// A word a page.
    pub table: Table,
    directory: Directory,
    /// The page file, by a descriptor of its own.
    file: InternalFd,
    /// The node's capacity.
    pub room: Room,
    here: NodeId,
}

impl Ground {
    /// The region in a volume's folder, on a node whose capacity is `room`.
    pub fn attach(folder: &Path, room: Room, here: NodeId) -> Result<Self, TableError> {
        let table = Table::attach(folder)?;
        let path = folder.join(directory::NAME);
        if !path.exists() {
            return Err(TableError::NoDirectory);
        }
        let directory = Directory::open(&path)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(folder.join(REGION), flags, Mode::empty())
            .map_err(|errno| TableError::System("the page file", errno))?;
        Ok(Self { table, directory, file: InternalFd::new(file), room, here })
    }

    /// This node.
    pub fn here(&self) -> NodeId {
        self.here
    }

    /// Takes room for a page: of the volume's share, and of the node's. `false`: there is none.
    pub fn take_room(&self) -> bool {
        let share = self.table.share();
        let may = share.take();
        let taken = may && self.room.take();
        if may && !taken {
            share.give(1);
        }
        if !may || share.missing() > 0 {
            self.room.ask();
        }
        taken
    }

    /// Gives the room of so many pages back.
    pub fn give_room(&self, pages: u64) {
        self.table.share().give(pages);
        self.room.give(pages);
    }

    /// Pages that may come without anyone waiting.
    pub fn free(&self) -> u64 {
        self.room.free().min(self.table.share().free())
    }

    /// Pages of the volume that may be here, besides those that stay.
    pub fn capacity(&self) -> u64 {
        let capacity = self.room.capacity();
        self.table.share().local().map_or(capacity, |local| local.min(capacity))
    }

    /// The time by which the volume's pages age: the node's, or its own if its share is limited. A
    /// new limit has it jump: pages leave in no order for a while.
    pub fn tick(&self) -> u16 {
        let share = self.table.share();
        share.local().map_or_else(|| self.room.tick(), |_| share.tick(self.capacity()))
    }

    /// Counts anew behind a death: whether all is right.
    pub fn recount(&self, rest: Duration) -> bool {
        let stay = || self.table.count_stays();
        self.table.share().recount(|| self.pages_in_file(), stay, rest)
    }

    /// Where a page's bytes are.
    pub fn place(&self, page: u64) -> Result<Place, DamagedPlace> {
        self.directory.get(page)
    }

    /// Says where a page's bytes are, of which no process has a claim.
    pub fn set_place(&self, page: u64, place: Place) {
        // A directory that was cut short has no places.
        let _ = self.directory.set(page, place);
    }

    /// Pages of which the directory says something, with others among them.
    pub fn directory_pages(&self) -> impl Iterator<Item = u64> + '_ {
        let all = (0..self.table.pages()).step_by(WORDS);
        let said = |first: &u64| self.directory.has_memory(*first);
        all.filter(said).flat_map(|first| first..first + WORDS as u64)
    }

    /// Makes pages holes, in the file and in every process.
    pub fn punch(&self, page: u64, pages: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(&self.file, flags, page * PAGE, pages * PAGE)
        });
        debug_assert_eq!(punched, Ok(()), "a file of memory takes holes");
    }

    /// Pages that the page file has.
    pub fn pages_in_file(&self) -> u64 {
        rustix::fs::fstat(&self.file).map_or(0, |stat| stat.st_blocks as u64 * 512 / PAGE)
    }

    /// The first page from one on that was ever touched (or never, and holds zeros).
    pub fn next_page(&self, from: u64, touched: bool) -> Option<u64> {
        let mut page = from;
        while page < self.table.pages() {
            let is = self.table.word(page).state() != State::Absent
                || !matches!(self.place(page), Ok(Place::Void(_)));
            if is == touched {
                return Some(page);
            }
            page += 1;
            if touched && page.is_multiple_of(512) {
                // Words of what was never touched are holes.
                page = self.table.touched_from(page).next()?;
            }
        }
        None
    }

    /// Whether a page is in the page file.
    pub fn is_in_file(&self, page: u64) -> bool {
        let at = page * PAGE;
        rustix::fs::seek(&self.file, SeekFrom::Data(at)) == Ok(at)
    }

    /// Reads a page out of the file, behind what `to` has. `false`: it is all zeros, or no more.
    /// An error: its memory has failed, or there is none to bring it from swap.
    fn read(&self, page: u64, to: &mut Vec<u8>) -> Result<bool, Errno> {
        let from = to.len();
        to.resize(from + PAGE as usize, 0);
        let mut done = 0;
        let read = loop {
            let at = page * PAGE + done as u64;
            match rustix::io::pread(&self.file, &mut to[from + done..], at) {
                Ok(0) => break Ok(()),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => break Err(errno),
            }
            if done == PAGE as usize {
                break Ok(());
            }
        };
        let is_some = read.is_ok() && to[from..].iter().any(|byte| *byte != 0);
        if !is_some {
            to.truncate(from);
        }
        read.map(|()| is_some)
    }
}

/// What a process does to mappings.
pub trait Hands {
    /// Puts bytes (`None`: zeros) into a hole of the page file.
    fn install(&self, page: u64, bytes: Option<&[u8]>) -> Installed;

    /// Maps a page that is in the file, for loads and stores.
    fn show(&self, page: u64) -> Shown;

    /// Takes stores to a page away from all processes.
    fn protect(&self, page: u64);
}

/// A host's machines take their steps on it: one thread at a time.
pub struct View<'g, H> {
    ground: &'g Ground,
    hands: H,
    /// Where a page's bytes are found: what has come, or is to go. A page is an offset in it.
    pub buffer: RefCell<Vec<u8>>,
    name: Cell<Option<u64>>,
    /// The names that were found when all had met.
    names: RefCell<Vec<Range<u64>>>,
    /// Pages that could not be read.
    unreadable: RefCell<Vec<u64>>,
}

impl<'g, H: Hands> View<'g, H> {
    /// A thread's, whose mappings these hands reach.
    pub fn new(ground: &'g Ground, hands: H) -> Self {
        let (buffer, names) = (RefCell::default(), RefCell::default());
        let (name, unreadable) = (Cell::new(None), RefCell::default());
        Self { ground, hands, buffer, name, names, unreadable }
    }
}

impl<H: Hands> Host for View<'_, H> {
    type Bytes = usize;

    fn here(&self) -> NodeId {
        self.ground.here
    }

    fn me(&self) -> Claimant {
        self.ground.table.me()
    }

    fn word(&self, page: u64) -> Word {
        self.ground.table.word(page)
    }

    fn turn(&self, page: u64, from: Word, to: Word) -> bool {
        let new = to.state() == State::Owned;
        let to = if new { to.arrived(self.ground.tick()) } else { to };
        self.ground.table.turn(page, from, to)
    }

    fn place(&self, page: u64) -> Result<Place, DamagedPlace> {
        self.ground.place(page)
    }

    fn set_place(&self, page: u64, place: Place) {
        // A directory that was cut short gives no places either: every page of it is damaged.
        let _ = self.ground.directory.set(page, place);
    }

    fn is_dead(&self, claimant: Claimant) -> bool {
        self.ground.table.is_dead(claimant)
    }

    fn take_room(&self) -> bool {
        self.ground.take_room()
    }

    fn give_room(&self) {
        self.ground.give_room(1);
    }

    fn is_in_file(&self, page: u64) -> bool {
        self.ground.is_in_file(page)
    }

    fn install(&self, page: u64, bytes: Option<&usize>) -> Installed {
        let buffer = self.buffer.borrow();
        self.hands.install(page, bytes.map(|at| &buffer[*at..*at + PAGE as usize]))
    }

    fn show(&self, page: u64) -> Shown {
        self.hands.show(page)
    }

    fn punch(&self, page: u64) {
        self.ground.punch(page, 1);
    }

    fn name(&self, page: u64) {
        self.name.set(Some(self.ground.table.name(page)));
    }

    fn unname(&self) {
        if let Some(name) = self.name.take() {
            self.ground.table.unname(name);
        }
    }

    fn meet(&self) {
        // Words are changed, and names put, by locked instructions: who has named a page before its
        // word changed is seen here; who names it behind sees the word.
        self.names.replace(self.ground.table.names());
    }

    /// A page that is to stay counts as named. Its word was seen without that flag, which does not
    /// keep a word from being changed; but who sets the flag looks at the state behind that.
    fn is_named(&self, page: u64) -> bool {
        self.names.borrow().iter().any(|named| named.contains(&page))
            || self.word(page).flags().has(Flags::STAYS)
    }

    fn protect(&self, page: u64) {
        self.hands.protect(page);
    }

    fn read(&self, page: u64) -> Option<usize> {
        let mut buffer = self.buffer.borrow_mut();
        let at = buffer.len();
        let read = self.ground.read(page, &mut buffer);
        if read.is_err() {
            self.unreadable.borrow_mut().push(page);
        }
        read.unwrap_or(false).then_some(at)
    }

    fn is_unreadable(&self, page: u64) -> bool {
        self.unreadable.borrow().contains(&page)
    }
}
