//! What the machines of a host work on, of this machine's kernel: the node table, the directory,
//! the page file, and the hands of the process that runs them.

use crate::protocol::{
    Batch, Claimant, DamagedPlace, Flags, Host, Installed, Location, NodeId, PAGE, Shown, State,
    Version, Word,
};
use crate::shared_memory::capacity::Capacity;
use crate::shared_memory::counters::{Count, Counted, Counts, Touch};
use crate::shared_memory::directory::Directory;
use crate::shared_memory::runs::Runs;
use crate::shared_memory::silence::Silence;
use crate::shared_memory::table::{Table, TableError};
use crate::wire::now_ns;
use os::InternalFd;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::time::Duration;

/// The name of the page file in a volume's folder.
pub const REGION: &str = "region";
/// Words of a directory in a page of its file.
const WORDS: usize = 512;
/// The part of what may be here that may be locked; as much may be mapped so as to stay.
const STAYING_PART: u64 = 4;

/// A region on its host.
pub struct SharedRegion {
    /// A word a page.
    pub table: Table,
    directory: Directory,
    counts: Counts,
    /// The page file, by a descriptor of its own.
    file: InternalFd,
    /// The node's capacity.
    pub room: Capacity,
    /// Nodes that did not answer this process.
    silence: Silence,
    here: NodeId,
}

impl SharedRegion {
    /// The region in a volume's folder, on a node whose capacity is `room`.
    pub fn attach(folder: &Path, room: Capacity, here: NodeId) -> Result<Self, TableError> {
        let table = Table::attach(folder)?;
        let path = folder.join(Directory::NAME);
        if !path.exists() {
            return Err(TableError::NoDirectory);
        }
        let directory = Directory::open(&path)?;
        let counts = Counts::open(folder)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(folder.join(REGION), flags, Mode::empty())
            .map_err(|errno| TableError::System("the page file", errno))?;
        let (file, silence) = (InternalFd::new(file), Silence::default());
        Ok(Self { table, directory, counts, file, room, silence, here })
    }

    /// This node.
    pub fn here(&self) -> NodeId {
        self.here
    }

    /// Counts what this process has done.
    pub fn count(&self, what: Count, by: u64) {
        self.counts.add(self.table.me().slot, what, by);
    }

    /// Counts a touch of this process's that began at this time of the monotonic clock.
    pub fn touched(&self, kind: Touch, begun_ns: u64) {
        let ns = now_ns().saturating_sub(begun_ns);
        self.counts.touched(self.table.me().slot, kind, ns);
    }

    /// What was counted in this process's slot, ever.
    pub fn counted(&self) -> Counted {
        self.counts.of(self.table.me().slot)
    }

    /// What all processes of the volume have counted, ever.
    pub fn counted_by_all(&self) -> Counted {
        self.counts.all(self.table.used_slots())
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

    /// Pages that programs may have stay here: nobody else has room there.
    pub fn may_stay(&self) -> u64 {
        self.capacity() / STAYING_PART
    }

    /// Counts anew behind a death: whether all is right.
    pub fn recount(&self, rest: Duration) -> bool {
        let stay = || self.table.count_stays();
        self.table.share().recount(|| self.pages_in_file(), stay, rest)
    }

    /// Where a page's bytes are.
    pub fn place(&self, page: u64) -> Result<Location, DamagedPlace> {
        self.directory.get(page)
    }

    /// Who is asked first for a page, and for which version, if it is away.
    pub fn giver(&self, page: u64) -> Option<(NodeId, Version)> {
        let place = self.place(page).ok()?;
        let [first, _] = place.givers(self.here, |node| self.is_silent(node));
        first.map(|first| (first, place.version()))
    }

    /// A node has answered this process, or has not, in the time that it has.
    pub fn heard(&self, node: NodeId, has_answered: bool) {
        self.silence.heard(node, has_answered);
    }

    fn is_silent(&self, node: NodeId) -> bool {
        self.room.is_silent(node) || self.silence.is_silent(node)
    }

    /// Says where a page's bytes are, of which no process has a claim.
    pub fn set_place(&self, page: u64, place: Location) {
        // A directory that was cut short has no places.
        let _ = self.directory.set(page, place);
    }

    /// Pages of which the directory says something, with others among them.
    pub fn directory_pages(&self) -> impl Iterator<Item = u64> + '_ {
        let all = (0..self.table.pages()).step_by(WORDS);
        let said = |first: &u64| self.directory.has_memory(*first);
        let end = self.table.pages();
        all.filter(said).flat_map(move |first| first..(first + WORDS as u64).min(end))
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
                || !matches!(self.place(page), Ok(Location::Void(_)));
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

    /// Reads from a page on: how many bytes, fewer where the file ends. An error: its memory has
    /// failed, or there is none to bring it from swap.
    fn read_at(&self, page: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&self.file, &mut into[done..], page * PAGE + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }
}

/// Whether all of them are 0.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<64>();
    let all = |bytes: &[u8]| bytes.iter().fold(0, |some, byte| some | byte) == 0;
    chunks.iter().all(|chunk| all(chunk)) && all(rest)
}

/// What a process does to mappings.
pub trait Mapper {
    /// [`Host::install`].
    fn install(&self, page: u64, bytes: Option<&[u8]>, is_clean: bool) -> Installed;

    /// [`Host::show`].
    fn show(&self, page: u64, is_clean: bool, stores: bool) -> Shown;

    /// Takes stores to pages in a row away from all processes.
    fn protect(&self, page: u64, pages: u64);

    /// Pages that stay since processes have them mapped so, as their lists say now.
    fn staying(&self) -> Runs {
        Runs::default()
    }
}

/// What was done to pages at once, in the order of their numbers.
#[derive(Default)]
struct Prepared {
    batch: Option<Batch>,
    pages: Vec<u64>,
}

impl Prepared {
    /// Where a page is among those to which this was done.
    fn find(&self, batch: Batch, page: u64) -> Option<usize> {
        self.pages.binary_search(&page).ok().filter(|_| self.batch == Some(batch))
    }
}

/// A host's machines take their steps on it: one thread at a time.
pub struct View<'g, H> {
    ground: &'g SharedRegion,
    hands: H,
    /// Where a page's bytes are found: what has come, or is to go. A page is an offset in it.
    pub buffer: RefCell<Vec<u8>>,
    /// Bytes of it that are to go.
    outgoing: Cell<usize>,
    prepared: RefCell<Prepared>,
    name: Cell<Option<u64>>,
    /// The names that were found when all had met.
    names: RefCell<Runs>,
    /// Pages that could not be read.
    unreadable: RefCell<Vec<u64>>,
}

impl<'g, H: Mapper> View<'g, H> {
    /// A thread's, whose mappings these hands reach.
    pub fn new(ground: &'g SharedRegion, hands: H) -> Self {
        let (buffer, names) = (RefCell::default(), RefCell::default());
        let (name, unreadable) = (Cell::new(None), RefCell::default());
        let (outgoing, prepared) = (Cell::new(0), RefCell::default());
        Self { ground, hands, buffer, outgoing, prepared, name, names, unreadable }
    }

    /// The same with a buffer that is there.
    pub fn with_buffer(ground: &'g SharedRegion, hands: H, buffer: Vec<u8>) -> Self {
        let view = Self::new(ground, hands);
        view.buffer.replace(buffer);
        view
    }

    /// The bytes of these pages, which are to go: all of the buffer, if they are all that it has.
    pub fn take_outgoing(&self, pages: &[usize]) -> Vec<u8> {
        let (all, length) = (self.outgoing.get(), PAGE as usize);
        if pages.len() * length == all {
            let mut bytes = self.buffer.take();
            bytes.truncate(all);
            return bytes;
        }
        let buffer = self.buffer.borrow();
        pages.iter().flat_map(|at| &buffer[*at..*at + length]).copied().collect()
    }

    /// They have gone, and may have to go again.
    pub fn put_outgoing(&self, bytes: Vec<u8>) {
        if bytes.len() == self.outgoing.get() {
            self.buffer.replace(bytes);
        }
    }

    /// Reads pages out of the file, each to its place in the order of their numbers: one call for
    /// those in a row. What was not read whole is read again, alone.
    fn read_together(&self, pages: &mut Vec<u64>) {
        let mut buffer = self.buffer.borrow_mut();
        let length = pages.len() * PAGE as usize;
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let (mut whole, mut at) = (Vec::with_capacity(pages.len()), 0);
        for run in pages.chunk_by(|one, next| one + 1 == *next) {
            let into = &mut buffer[at..at + run.len() * PAGE as usize];
            let read = self.ground.read_at(run[0], into).unwrap_or(0);
            at += into.len();
            let done = (read as u64 / PAGE) as usize;
            if done < run.len() {
                // Behind a page that failed places would not fit.
                whole.extend_from_slice(&run[..done]);
                break;
            }
            whole.extend_from_slice(run);
        }
        *pages = whole;
    }

    /// A page's bytes among those that were read together, if it is no page of zeros: they lie
    /// behind those of the pages in front of it that were none, either.
    fn keep(&self, number: usize) -> Option<usize> {
        let mut buffer = self.buffer.borrow_mut();
        let (from, to, length) = (number * PAGE as usize, self.outgoing.get(), PAGE as usize);
        if is_zero(&buffer[from..from + length]) {
            return None;
        }
        if from != to {
            buffer.copy_within(from..from + length, to);
        }
        self.outgoing.set(to + length);
        Some(to)
    }
}

impl<H> View<'_, H> {
    /// The hands.
    pub fn hands(&self) -> &H {
        &self.hands
    }
}

impl<H: Mapper> Host for View<'_, H> {
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
        // One that stays, though it was to leave, is as new.
        let stays = from.state() == State::Leaving;
        let new = to.state().is_here() && (stays || !to.is_known());
        let to = if new { to.arrived(self.ground.tick()) } else { to };
        let turned = self.ground.table.turn(page, from, to);
        if turned && to.state() == State::Lost {
            self.ground.count(Count::Lost, 1);
        }
        turned
    }

    fn place(&self, page: u64) -> Result<Location, DamagedPlace> {
        self.ground.place(page)
    }

    fn set_place(&self, page: u64, place: Location) {
        // A directory that was cut short gives no places either: every page of it is damaged.
        let _ = self.ground.directory.set(page, place);
    }

    fn is_silent(&self, node: NodeId) -> bool {
        self.ground.is_silent(node)
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

    fn install(&self, page: u64, bytes: Option<&usize>, is_clean: bool) -> Installed {
        let buffer = self.buffer.borrow();
        self.hands.install(page, bytes.map(|at| &buffer[*at..*at + PAGE as usize]), is_clean)
    }

    fn show(&self, page: u64, is_clean: bool, stores: bool) -> Shown {
        self.hands.show(page, is_clean, stores)
    }

    fn punch(&self, page: u64) {
        if self.prepared.borrow().find(Batch::Punch, page).is_none() {
            self.ground.punch(page, 1);
        }
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
        // Who has mapped a page that is to stay has listed that before, and named it (`maps.rs`).
        let names = self.ground.table.names().into_iter();
        self.names.replace(Runs::of(names.chain(self.hands.staying().iter())));
    }

    /// A page that is to stay counts as named. Its word was seen without that flag, which does not
    /// keep a word from being changed; but who sets the flag looks at the state behind that.
    fn is_named(&self, page: u64) -> bool {
        self.names.borrow().has(page) || self.word(page).flags().has(Flags::STAYS)
    }

    fn protect(&self, page: u64) {
        if self.prepared.borrow().find(Batch::Protect, page).is_none() {
            self.hands.protect(page, 1);
        }
    }

    fn prepare(&self, batch: Batch, pages: &mut dyn Iterator<Item = u64>) {
        let mut pages: Vec<u64> = pages.collect();
        if !pages.is_sorted() {
            return;
        }
        if batch == Batch::Read {
            self.read_together(&mut pages);
        } else {
            for run in pages.chunk_by(|one, next| one + 1 == *next) {
                match batch {
                    Batch::Protect => self.hands.protect(run[0], run.len() as u64),
                    _ => self.ground.punch(run[0], run.len() as u64),
                }
            }
        }
        self.prepared.replace(Prepared { batch: Some(batch), pages });
    }

    fn read(&self, page: u64) -> Option<usize> {
        let found = self.prepared.borrow().find(Batch::Read, page);
        if let Some(number) = found {
            return self.keep(number);
        }
        let mut bytes = [0; PAGE as usize];
        if self.ground.read_at(page, &mut bytes).is_err() {
            self.unreadable.borrow_mut().push(page);
            return None;
        }
        if is_zero(&bytes) {
            return None;
        }
        let mut buffer = self.buffer.borrow_mut();
        let at = self.outgoing.get();
        self.outgoing.set(at + bytes.len());
        buffer.truncate(at);
        buffer.extend_from_slice(&bytes);
        Some(at)
    }

    fn is_unreadable(&self, page: u64) -> bool {
        self.unreadable.borrow().contains(&page)
    }
}
