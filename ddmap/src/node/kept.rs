//! What a holder keeps of a region: a page file and a table of its own, in the folder of the
//! region's number (`protocol/keep.rs`).
//!
//! Pages are put into the file by a userfaultfd over a mapping of it: where the file system gives
//! large pages (`huge=always`), a write of 4 KiB would take 2 MiB.

use crate::ground::files;
use crate::ground::room::Room;
use crate::ground::table::{Table, TableError};
use crate::ground::uffd::Uffd;
use crate::protocol::keep::{self, Keeper};
use crate::protocol::messages::{Answer, CLAIMS, PAGES, Request};
use crate::protocol::{Flags, Installed, NodeId, PAGE, State, Version, Word};
use pmem::Region;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::Advice;
use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// The name of the page file.
const PAGES_NAME: &str = "pages";
/// The file that says for which node they are kept.
const HOST_NAME: &str = "host";

/// What this node keeps of one region.
pub struct Kept {
    table: Table,
    region: Region,
    uffd: Uffd,
    room: Arc<Room>,
    host: Option<NodeId>,
}

impl Kept {
    /// What the folder has, which is made for a region of so many pages if it is not there.
    pub fn open(
        folder: &Path,
        (host, pages): (u16, u64),
        room: Arc<Room>,
    ) -> Result<Self, TableError> {
        let system = |what| move |errno| TableError::System(what, errno);
        // A node that died, or had no memory left, when it made it has kept nothing yet.
        if !Table::is_made(folder) {
            if pages == 0 {
                return Err(TableError::Layout("is not made, and has no size yet".to_owned()));
            }
            let file = folder.join(HOST_NAME);
            let made = std::fs::create_dir_all(folder);
            made.and_then(|()| std::fs::write(file, host.to_string())).map_err(|error| {
                let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
                TableError::System("the folder", errno)
            })?;
            files::create(&folder.join(PAGES_NAME), pages * PAGE)?;
            Table::create(folder, pages)?;
        }
        let table = Table::attach(folder)?;
        let region = files::open(&folder.join(PAGES_NAME))?;
        let uffd = Uffd::open().map_err(system("the userfaultfd"))?;
        let (start, length) = (region.base(), region.len() as usize);
        // SAFETY: the region's own mapping, in which children would fill holes with zeros.
        unsafe { rustix::mm::madvise(start.cast(), length, Advice::LinuxDontFork) }
            .map_err(system("the mapping"))?;
        uffd.register(start as usize, length).map_err(system("the userfaultfd"))?;
        let host = std::fs::read_to_string(folder.join(HOST_NAME)).ok();
        let host = host.and_then(|host| NodeId::new(host.parse().ok()?));
        let kept = Self { table, region, uffd, room, host };
        let Ok(()) = keep::restart(&kept, kept.table.touched());
        Ok(kept)
    }

    /// The node for which they are kept.
    pub fn host(&self) -> Option<NodeId> {
        self.host
    }

    /// Drops all pages.
    pub fn drop_all(&self) {
        for page in self.table.touched() {
            let Ok(_) = keep::release(self, page, self.table.word(page).version());
        }
    }

    /// Pages that are kept, by their allocated memory.
    pub fn pages_in_file(&self) -> u64 {
        rustix::fs::fstat(self.fd()).map_or(0, |stat| stat.st_blocks as u64 * 512 / PAGE)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the region's own, open as long as it.
        unsafe { BorrowedFd::borrow_raw(self.region.fd()) }
    }

    /// Does what the host asks for.
    pub fn serve(&self, request: &Request) -> Answer {
        match request {
            Request::Fetch { pages, releases } => {
                self.release(releases);
                self.fetch(pages)
            }
            Request::Store { pages, bytes } => self.store(pages, bytes),
            Request::Release { pages } => Answer::Released(self.release(pages)),
            Request::Lines { lines, version } => {
                let Ok(found) = keep::fetch(self, lines.page(), *version);
                Answer::Lined(found.map(|bytes| bytes[lines.range()].to_vec()))
            }
            Request::Claims { from } => self.claims(*from),
            Request::Ping | Request::Control { .. } => {
                Answer::Pong { capacity: self.room.capacity(), used: self.room.used() }
            }
        }
    }

    fn release(&self, pages: &[(u64, Version)]) -> u32 {
        let dropped = |one: &&(u64, Version)| {
            let Ok(dropped) = keep::release(self, one.0, one.1);
            dropped
        };
        pages.iter().filter(dropped).count() as u32
    }

    fn fetch(&self, pages: &[(u64, Version)]) -> Answer {
        let mut bytes = Vec::with_capacity(pages.len().min(PAGES) * PAGE as usize);
        let found = pages.iter().take(PAGES).map(|(page, version)| {
            let Ok(found) = keep::fetch(self, *page, *version);
            bytes.extend_from_slice(found.as_deref().unwrap_or_default());
            found.is_some()
        });
        let found = found.collect();
        Answer::Fetched { found, bytes }
    }

    fn store(&self, pages: &[(u64, Version)], bytes: &[u8]) -> Answer {
        let (whole, rest) = bytes.as_chunks::<{ PAGE as usize }>();
        if whole.len() != pages.len() || !rest.is_empty() {
            let text = format!("{} pages with {} bytes", pages.len(), bytes.len());
            return Answer::Refused { errno: Errno::INVAL.raw_os_error() as u16, text };
        }
        let stored = pages.iter().zip(whole).map(|((page, version), bytes)| {
            let Ok(stored) = keep::store(self, *page, *version, &bytes.to_vec());
            stored
        });
        Answer::Stored(stored.collect())
    }

    fn claims(&self, from: u64) -> Answer {
        let mut claims = Vec::new();
        for page in self.table.touched_from(from) {
            if claims.len() == CLAIMS {
                return Answer::Claims { claims, next: Some(page) };
            }
            let word = self.table.word(page);
            if word.state() == State::Kept {
                claims.push((page, word.version()));
            }
        }
        Answer::Claims { claims, next: None }
    }
}

impl Keeper for Kept {
    type Bytes = Vec<u8>;
    type Error = Infallible;

    fn word(&self, page: u64) -> Result<Word, Infallible> {
        Ok(self.table.word(page))
    }

    fn turn(&self, page: u64, from: Word, to: Word) -> Result<bool, Infallible> {
        let to = if to.state() == State::Busy { to.claimed(self.table.me()) } else { to };
        // The claim is this process's: it was put here.
        let busy = from.state() == State::Busy && from.claimant() == Word(0).claimant();
        let from = if busy { from.claimed(self.table.me()) } else { from };
        Ok(self.table.turn(page, from, to))
    }

    fn take_room(&self) -> Result<bool, Infallible> {
        Ok(self.room.take())
    }

    fn give_room(&self) -> Result<(), Infallible> {
        self.room.give(1);
        Ok(())
    }

    fn put(&self, page: u64, bytes: &Vec<u8>) -> Result<Installed, Infallible> {
        let at = self.region.base() as usize + (page * PAGE) as usize;
        Ok(match self.uffd.install(at, bytes) {
            Ok(()) => Installed::Whole,
            Err(Errno::EXIST) => Installed::Exists,
            Err(_) => Installed::NoRoom,
        })
    }

    fn get(&self, page: u64) -> Result<Vec<u8>, Infallible> {
        let mut bytes = vec![0; PAGE as usize];
        // A file that was cut short: its sum is that of zeros, and the host's directory does not
        // know. So what is not whole is no page.
        let whole =
            rustix::io::retry_on_intr(|| rustix::io::pread(self.fd(), &mut bytes[..], page * PAGE));
        if whole != Ok(PAGE as usize) {
            let word = self.table.word(page);
            let lost = Word::new(State::Lost, Flags::default(), word.version());
            self.table.turn(page, word, lost);
        }
        Ok(bytes)
    }

    fn punch(&self, page: u64) -> Result<(), Infallible> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = rustix::fs::fallocate(self.fd(), flags, page * PAGE, PAGE);
        debug_assert_eq!(punched, Ok(()), "a file of memory takes holes");
        Ok(())
    }
}
