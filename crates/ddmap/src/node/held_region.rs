//! What a holder keeps of a region: a page file and a table of its own, in the folder of the
//! region's number (`protocol/holder.rs`).
//!
//! Pages are put into the file by a userfaultfd over a mapping of it: where the file system gives
//! large pages (`huge=always`), a write of 4 KiB would take 2 MiB.
//!
//! Spares have room here as long as nobody else wants it: the node says that it is free, and drops
//! them when it is wanted.

use crate::protocol::holder::{self, Keeper};
use crate::protocol::messages::{Answer, CLAIMS, KeptPage, PAGES, Request};
use crate::protocol::{Installed, NodeId, PAGE, State, TERM, Version, Word};
use crate::shared_memory::capacity::Capacity;
use crate::shared_memory::files;
use crate::shared_memory::store::{KEPT_HOST, KEPT_PAGES};
use crate::shared_memory::table::{Table, TableError};
use crate::shared_memory::uffd::Uffd;
use crate::shared_memory::view::is_zero;
use pmem::Region;
use rustix::buffer::spare_capacity;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::Advice;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Spares that are dropped at once.
const BATCH: u64 = PAGES as u64;

/// What this node keeps of one region.
pub struct HeldRegion {
    table: Table,
    region: Region,
    uffd: Uffd,
    room: Arc<Capacity>,
    folder: PathBuf,
    /// For which node, in which term: the number in the upper half, 0 if it is not known.
    host: AtomicU64,
    /// How many pages are spares, and where one was looked for last.
    spares: AtomicU64,
    hand: AtomicU64,
    /// Pages were found without bytes, which was said.
    is_damaged: AtomicBool,
}

fn host_of(node: u16, term: u32) -> u64 {
    u64::from(node) << 32 | u64::from(term)
}

/// What the file says.
fn parse_host(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    let node = NodeId::new(words.next()?.parse().ok()?)?;
    let term = words.next().map_or(Ok(TERM), str::parse).ok()?;
    Some(host_of(node.number(), term))
}

impl HeldRegion {
    /// What the folder has, which is made for a region of so many pages if it is not there.
    pub fn open(
        folder: &Path,
        (host, term): (u16, u32),
        pages: u64,
        room: Arc<Capacity>,
    ) -> Result<Self, TableError> {
        let system = |what| move |errno| TableError::System(what, errno);
        // A node that died, or had no memory left, when it made it has kept nothing yet.
        if !Table::is_made(folder) {
            if pages == 0 {
                return Err(TableError::Layout("is not made, and has no size yet".to_owned()));
            }
            let file = folder.join(KEPT_HOST);
            let made = std::fs::create_dir_all(folder);
            made.and_then(|()| std::fs::write(file, format!("{host} {term}"))).map_err(
                |error| {
                    let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
                    TableError::System("the folder", errno)
                },
            )?;
            files::create(&folder.join(KEPT_PAGES), pages * PAGE)?;
            Table::create(folder, pages)?;
        }
        let table = Table::attach(folder)?;
        let region = files::open(&folder.join(KEPT_PAGES))?;
        if region.len() < table.pages() * PAGE {
            let (found, pages) = (region.len(), table.pages());
            let found =
                format!("says {pages} pages, and the page file beside it has {found} bytes");
            return Err(TableError::Layout(found));
        }
        let uffd = Uffd::open().map_err(system("the userfaultfd"))?;
        let (start, length) = (region.base(), region.len() as usize);
        // SAFETY: the region's own mapping, in which children would fill holes with zeros.
        unsafe { rustix::mm::madvise(start.cast(), length, Advice::LinuxDontFork) }
            .map_err(system("the mapping"))?;
        uffd.register(start as usize, length).map_err(system("the userfaultfd"))?;
        let host = std::fs::read_to_string(folder.join(KEPT_HOST)).ok();
        let host = host.and_then(|host| parse_host(&host)).unwrap_or(host_of(0, TERM));
        let (folder, host) = (folder.to_owned(), AtomicU64::new(host));
        let is_spare = |page: &u64| table.word(*page).state() == State::Spare;
        let spares = AtomicU64::new(table.touched().filter(is_spare).count() as u64);
        let (hand, is_damaged) = (AtomicU64::new(0), AtomicBool::new(false));
        let kept = Self { table, region, uffd, room, folder, host, spares, hand, is_damaged };
        holder::restart(&kept, kept.table.touched()).map_err(system("a page"))?;
        Ok(kept)
    }

    /// Makes what the folder has longer, for a region of so many pages.
    pub fn grow(folder: &Path, pages: u64) -> Result<(), TableError> {
        let system = |errno| TableError::System("the page file", errno);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(folder.join(KEPT_PAGES), flags, Mode::empty());
        let grown = file.and_then(|file| rustix::fs::ftruncate(&file, pages * PAGE));
        grown.map_err(system)?;
        Table::grow(folder, pages)
    }

    /// The node for which they are kept.
    pub fn host(&self) -> Option<NodeId> {
        NodeId::new((self.host.load(Ordering::SeqCst) >> 32) as u16)
    }

    /// Whether a node is heard that takes itself for the host in a term: not behind a later one. If
    /// its term is a later one, others are not heard from here on.
    pub fn hears(&self, node: NodeId, term: u32) -> Result<(), String> {
        let known = self.host.load(Ordering::SeqCst);
        if term < known as u32 {
            return Err(format!(
                "node {} is the host of this volume in term {}, {node} was in term {term}",
                known >> 32,
                known as u32
            ));
        }
        let new = host_of(node.number(), term);
        if term == known as u32 && self.host().is_some_and(|host| host != node) {
            return Err(format!("node {} is the host of this volume, not {node}", known >> 32));
        }
        if new != known {
            // PERSIST: in the store before anything of that term is kept.
            let text = format!("{} {term}", node.number());
            let (path, beside) = (self.folder.join(KEPT_HOST), self.folder.join("host.new"));
            std::fs::write(&beside, text)
                .and_then(|()| std::fs::rename(&beside, &path))
                .map_err(|error| format!("{}: {error}", path.display()))?;
            self.host.store(new, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Pages of its region, as far as they were told.
    pub fn pages(&self) -> u64 {
        self.table.pages()
    }

    /// Drops all pages.
    pub fn drop_all(&self) {
        let kept = |page| KeptPage::new(page, self.table.word(page).version());
        let all: Vec<_> = self.table.touched().map(kept).collect();
        // Its folder goes next.
        let _ = self.release(&all);
    }

    /// How many pages are spares.
    pub fn spares(&self) -> u64 {
        self.spares.load(Ordering::Relaxed)
    }

    /// Drops so many spares, if there are as many: how many it did.
    pub fn drop_spares(&self, wanted: u64) -> u64 {
        let mut dropped = 0;
        // One that comes meanwhile is found the next time.
        while dropped < wanted && self.spares() > 0 {
            let from = self.hand.load(Ordering::Relaxed);
            let spares = self.table.touched_from(from).filter(|page| self.is_spare(*page));
            let found: Vec<u64> = spares.take((wanted - dropped).min(BATCH) as usize).collect();
            let last = found.last().map_or(0, |page| page + 1);
            self.hand.store(last, Ordering::Relaxed);
            if found.is_empty() && from == 0 {
                break;
            }
            match holder::drop_spares(self, found) {
                Ok(done) => dropped += u64::from(done),
                Err(_) => break,
            }
        }
        dropped
    }

    fn is_spare(&self, page: u64) -> bool {
        self.table.word(page).state() == State::Spare
    }

    /// Pages that are kept, by their allocated memory.
    pub fn pages_in_file(&self) -> u64 {
        rustix::fs::fstat(self.fd()).map_or(0, |stat| stat.st_blocks as u64 * 512 / PAGE)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the region's own, open as long as it.
        unsafe { BorrowedFd::borrow_raw(self.region.fd()) }
    }

    /// Whether a page is in the page file.
    fn is_in_file(&self, page: u64) -> bool {
        let at = page * PAGE;
        rustix::fs::seek(self.fd(), SeekFrom::Data(at)) == Ok(at)
    }

    /// Does what the host asks for. What cannot be done now is refused, and may be asked for again:
    /// who asked for several pages asks for the one that it needs.
    pub fn serve(&self, request: &Request) -> Answer {
        let done = match request {
            Request::Fetch { pages, releases } => {
                self.release(releases).and_then(|_| self.fetch(pages))
            }
            Request::Store { pages, bytes } => self.store(pages, bytes),
            Request::Keep { pages } => {
                let kept = pages.iter().map(|(page, version)| holder::keep(self, *page, *version));
                kept.collect::<Result<_, Errno>>().map(Answer::Stored)
            }
            Request::Release { pages } => self.release(pages).map(Answer::Released),
            Request::Lines { lines, version } => holder::fetch(self, lines.page(), *version)
                .map(|found| Answer::Lined(found.map(|bytes| bytes[lines.range()].to_vec()))),
            Request::Claims { from } => Ok(self.claims(*from)),
            Request::Ping | Request::Control { .. } | Request::Tables { .. } => {
                Ok(Answer::Pong { capacity: self.room.capacity(), used: self.room.used() })
            }
        };
        done.unwrap_or_else(|errno| {
            let text = format!("what is kept cannot be had now: {}", os::describe(errno));
            Answer::Refused { errno: errno.raw_os_error() as u16, text }
        })
    }

    fn release(&self, pages: &[KeptPage]) -> Result<u32, Errno> {
        holder::release(self, pages)
    }

    fn fetch(&self, pages: &[(u64, Version)]) -> Result<Answer, Errno> {
        let mut bytes = Vec::with_capacity(pages.len().min(PAGES) * PAGE as usize);
        let found = pages.iter().take(PAGES).map(|(page, version)| {
            let found = holder::fetch(self, *page, *version)?;
            bytes.extend_from_slice(found.as_deref().unwrap_or_default());
            Ok(found.is_some())
        });
        let found = found.collect::<Result<_, Errno>>()?;
        Ok(Answer::Fetched { found, bytes })
    }

    fn store(&self, pages: &[(u64, Version)], bytes: &[u8]) -> Result<Answer, Errno> {
        let (whole, rest) = bytes.as_chunks::<{ PAGE as usize }>();
        if whole.len() != pages.len() || !rest.is_empty() {
            let text = format!("{} pages with {} bytes", pages.len(), bytes.len());
            return Ok(Answer::Refused { errno: Errno::INVAL.raw_os_error() as u16, text });
        }
        let stored = pages.iter().zip(whole);
        let stored = stored
            .map(|((page, version), bytes)| holder::store(self, *page, *version, &bytes.to_vec()));
        stored.collect::<Result<_, Errno>>().map(Answer::Stored)
    }

    fn claims(&self, from: u64) -> Answer {
        let mut claims = Vec::new();
        for page in self.table.touched_from(from) {
            if claims.len() == CLAIMS {
                return Answer::Claims { claims, next: Some(page) };
            }
            let word = self.table.word(page);
            if word.state().is_kept() {
                let is_spare = word.state() == State::Spare;
                claims.push(KeptPage { page, version: word.version(), is_spare });
            }
        }
        Answer::Claims { claims, next: None }
    }
}

impl Keeper for HeldRegion {
    type Bytes = Vec<u8>;
    type Error = Errno;

    fn word(&self, page: u64) -> Result<Word, Errno> {
        Ok(self.table.word(page))
    }

    fn turn(&self, page: u64, from: Word, to: Word) -> Result<bool, Errno> {
        let to = if to.state() == State::Busy { to.claimed(self.table.me()) } else { to };
        // The claim is this process's: it was put here.
        let busy = from.state() == State::Busy && from.claimant() == Word(0).claimant();
        let from = if busy { from.claimed(self.table.me()) } else { from };
        let turned = self.table.turn(page, from, to);
        if turned && to.state() == State::Spare {
            self.spares.fetch_add(1, Ordering::Relaxed);
        } else if turned && from.state() == State::Spare {
            self.spares.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(turned)
    }

    fn take_room(&self) -> Result<bool, Errno> {
        Ok(self.room.take() || self.drop_spares(BATCH) > 0 && self.room.take())
    }

    fn give_room(&self) -> Result<(), Errno> {
        self.room.give(1);
        Ok(())
    }

    fn put(&self, page: u64, bytes: &Vec<u8>) -> Result<Installed, Errno> {
        let at = self.region.base() as usize + (page * PAGE) as usize;
        Ok(match self.uffd.install(at, bytes, false) {
            Ok(()) => Installed::Whole,
            Err(Errno::EXIST) => Installed::Exists,
            Err(_) => Installed::NoRoom,
        })
    }

    /// A file that was cut short, or has a hole where a page is kept: its zeros are no page.
    fn get(&self, page: u64) -> Result<Option<Vec<u8>>, Errno> {
        let mut bytes = Vec::with_capacity(PAGE as usize);
        let read = rustix::io::retry_on_intr(|| {
            rustix::io::pread(self.fd(), spare_capacity(&mut bytes), page * PAGE)
        })?;
        let is_there = read == PAGE as usize && (!is_zero(&bytes) || self.is_in_file(page));
        Ok(is_there.then_some(bytes))
    }

    fn punch(&self, page: u64, pages: u64) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(self.fd(), flags, page * PAGE, pages * PAGE)
        });
        debug_assert_eq!(punched, Ok(()), "a file of memory takes holes");
        Ok(())
    }

    fn has_gone(&self, page: u64) {
        if !self.is_damaged.swap(true, Ordering::Relaxed) {
            let folder = self.folder.display();
            eprintln!(
                "solera: node: the page file in {folder} was changed: the bytes of page {page} are \
                 gone, and perhaps others'"
            );
        }
    }
}
