//! A volume gets another host: what its old and its new one have on their stores, step by step.
//!
//! The old host's page file becomes what it keeps for the new one, and what the new one has kept
//! becomes its page file: offsets are the same. So no page goes over. The directory does, and of
//! each page the flags, as *tables*: pages of 4 KiB, first 512 places each, then flags of 4,096
//! pages, a byte each.
//!
//! | step | on the old host | on the new one | host |
//! |---|---|---|---|
//! | 1 | `volumes/NAME/going` is written | | old |
//! | 2 | | `volumes/NAME/` with `arriving` and empty files | old |
//! | 3 | | the tables are there, whole | old |
//! | 4 | `volumes/NAME/about` is removed: it is decided | | new, which is told |
//! | 5 | `volumes/NAME` becomes `kept/UUID`, with `going` | | new |
//! | 6 | | `pages` becomes `region`, then `arriving` becomes `about` | new: it serves |
//! | 7 | `directory`, then `going` is removed | `kept/UUID` is removed | new |
//! | back | `kept/UUID` becomes `volumes/NAME`, then `about` is written, in a later term | | old |
//!
//! CRASH: one call to the file system decides, on the old host: `about` is there, or it is not.
//! Ahead of it `going` and `arriving` mean nothing, and are removed. Behind it the old host says
//! so to the new one until that has answered; both may do their steps again from any point.
//!
//! The way back: until the new host has been heard of as such, what the old one has is all as it
//! was, with the directory. If the new one was removed from the domain by then, the old one can be
//! the host again. From the first word of the new one on the directory is gone here: pages may have
//! changed there.

use crate::protocol::{Flags, Location, NodeId, PAGE, State, Version, Word};
use crate::shared_memory::directory::Directory;
use crate::shared_memory::error::DomainError;
use crate::shared_memory::store::{
    ABOUT, COPIES_MAX, FORMAT, KEPT_HOST, KEPT_PAGES, REMOVED, Store, VolumeAbout, one_copy,
};
use crate::shared_memory::table::{self, Table};
use crate::shared_memory::view::{REGION, SharedRegion};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// On the old host: it is about to go, or has gone.
const GOING: &str = "going";
/// On the new one: it is about to come.
const ARRIVING: &str = "arriving";
/// The flags of pages that arrive, a byte each.
const FLAGS: &str = "flags";
/// Places in a page of tables.
const PLACES: u64 = PAGE / 8;

/// A volume on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moved {
    format: u32,
    /// Its region's number.
    pub uuid: [u8; 16],
    /// Pages of the region.
    pub pages: u64,
    /// Its term under the new host.
    pub term: u32,
    /// The volume's name.
    pub name: String,
    /// The other node: on the old host the new one, on the new one the old.
    pub node: u16,
    /// Which attempt to move it this is: a number of its own.
    pub attempt: u64,
    /// [`VolumeAbout::copies`].
    #[serde(default = "one_copy")]
    copies: u8,
}

impl Moved {
    /// An attempt to move a volume of this name to a node, in the next term.
    pub fn new(name: &str, about: &VolumeAbout, node: u16) -> Self {
        let mut number = [0; 8];
        // Without one it is no worse than a counter that is always 0: tables are sent anew.
        let _ = rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty());
        let attempt = u64::from_ne_bytes(number);
        let VolumeAbout { uuid, pages, copies, .. } = *about;
        let (name, term) = (name.to_owned(), about.term + 1);
        Self { format: FORMAT, uuid, pages, term, name, node, attempt, copies }
    }

    /// Pages of its tables.
    fn tables(&self) -> u64 {
        self.pages.div_ceil(PLACES) + self.pages.div_ceil(PAGE)
    }
}

/// The tables of a volume that is about to go, of which no process has a claim: pages in which
/// something is said. An error: a page's place cannot be told.
pub struct Tables<'g> {
    ground: &'g SharedRegion,
    next: u64,
}

impl<'g> Tables<'g> {
    /// Of a volume.
    pub fn of(ground: &'g SharedRegion) -> Self {
        Self { ground, next: 0 }
    }

    /// How many pages of tables there are, with empty ones.
    pub fn total(&self) -> u64 {
        let pages = self.ground.table.pages();
        pages.div_ceil(PLACES) + pages.div_ceil(PAGE)
    }

    /// How many were looked at.
    pub fn done(&self) -> u64 {
        self.next
    }

    /// A page is where its word says, if it is here: it may be so in a later version than the
    /// directory's.
    fn place(&self, page: u64) -> Result<u64, u64> {
        let word = self.ground.table.word(page);
        let place = match word.state() {
            // Behind the move it has no spare: that is told by who the host is.
            State::Owned | State::Clean => Location::Held(self.ground.here(), word.version(), None),
            _ => self.ground.place(page).map_err(|_| page)?,
        };
        let is_here = matches!(place, Location::Held(owner, ..) if owner == self.ground.here());
        let place = if is_here { place.alone() } else { place };
        Ok(place.word(page))
    }
}

impl Iterator for Tables<'_> {
    /// A page's number, and the page; or of which page of the region nothing is known.
    type Item = Result<(u64, Vec<u8>), u64>;

    fn next(&mut self) -> Option<Self::Item> {
        let (table, pages) = (&self.ground.table, self.ground.table.pages());
        let of_places = pages.div_ceil(PLACES);
        while self.next < self.total() {
            let number = self.next;
            self.next += 1;
            let mut bytes = Vec::with_capacity(PAGE as usize);
            if let Some(flags) = number.checked_sub(of_places) {
                let of = flags * PAGE..((flags + 1) * PAGE).min(pages);
                bytes.extend(of.map(|page| table.word(page).flags().bits()));
            } else {
                for page in number * PLACES..((number + 1) * PLACES).min(pages) {
                    match self.place(page) {
                        Ok(word) => bytes.extend(word.to_le_bytes()),
                        Err(page) => return Some(Err(page)),
                    }
                }
            }
            if bytes.iter().any(|byte| *byte != 0) {
                bytes.resize(PAGE as usize, 0);
                return Some(Ok((number, bytes)));
            }
        }
        None
    }
}

/// A volume that arrives: its tables are put in.
#[derive(Debug)]
pub struct Arrival {
    /// Which.
    pub moved: Moved,
    directory: File,
    flags: File,
}

impl Arrival {
    /// A page of its tables.
    pub fn put(&self, number: u64, page: &[u8]) -> Result<(), std::io::Error> {
        let of_places = self.moved.pages.div_ceil(PLACES);
        if number >= self.moved.tables() {
            return Err(Errno::INVAL.into());
        }
        let (file, at, end) = match number.checked_sub(of_places) {
            Some(flags) => (&self.flags, flags * PAGE, self.moved.pages),
            None => (&self.directory, number * PAGE, self.moved.pages * 8),
        };
        let length = (end - at).min(page.len() as u64) as usize;
        file.write_all_at(&page[..length], at)
    }
}

fn is_there(folder: &Path, name: &str) -> bool {
    folder.join(name).is_file()
}

/// Removes what may be gone already.
fn remove(path: &Path) -> std::io::Result<()> {
    match if path.is_dir() { os::remove_all(path) } else { fs::remove_file(path) } {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

impl Store {
    fn moved(&self, path: &Path) -> Option<Moved> {
        self.read::<Moved>(path).ok()?.filter(|moved| moved.format == FORMAT)
    }

    pub(super) fn each(&self, of: &str) -> Vec<PathBuf> {
        let folder = self.path().join(of);
        let names = os::names_in(&folder).unwrap_or_default();
        names.into_iter().map(|name| folder.join(name)).collect()
    }

    /// The volume of a name is on its way: from where, or where to.
    pub(super) fn on_its_way(&self, name: &str) -> Option<(u16, &'static str)> {
        let folder = self.volume(name);
        if let Some(moved) = self.moved(&folder.join(ARRIVING)) {
            return Some((moved.node, "on its way here from"));
        }
        self.moved(&folder.join(GOING)).map(|moved| (moved.node, "on its way to"))
    }

    /// Step 1: the volume is about to go.
    pub fn set_going(&self, moved: &Moved) -> Result<(), DomainError> {
        let path = self.volume(&moved.name).join(GOING);
        self.write(path, &serde_json::to_vec_pretty(moved).unwrap_or_default())
    }

    /// It stays.
    pub fn stays(&self, name: &str) {
        // It means nothing beside `about`, and is removed when the node begins.
        let _ = remove(&self.volume(name).join(GOING));
    }

    /// Whether an attempt is under way, or was decided.
    pub fn knows_attempt(&self, attempt: u64) -> bool {
        let folders = self.each("volumes").into_iter().chain(self.each("kept"));
        let of = |folder: PathBuf| self.moved(&folder.join(GOING));
        folders.filter_map(of).any(|moved| moved.attempt == attempt)
    }

    /// Step 4: another node is the host.
    pub fn give_up(&self, name: &str) -> Result<(), DomainError> {
        let path = self.volume(name).join(ABOUT);
        fs::remove_file(&path).map_err(|error| {
            DomainError::io(format!("move the volume {name}"), path.display(), &error)
        })
    }

    /// The volumes that have gone, and whose new hosts have not answered yet.
    pub fn gone(&self) -> Vec<Moved> {
        let of =
            |folder: PathBuf| self.moved(&folder.join(GOING)).filter(|_| !is_there(&folder, ABOUT));
        self.each("volumes").into_iter().chain(self.each("kept")).filter_map(of).collect()
    }

    /// Step 5: what is here of a volume that has gone is kept for its new host.
    pub fn keep_gone(&self, moved: &Moved) -> Result<(), DomainError> {
        let (folder, kept) = (self.volume(&moved.name), self.kept(&moved.uuid));
        if is_there(&kept, REGION) && is_there(&kept, GOING) {
            // This node died as it took the volume back: step 5 again, from its beginning.
            fs::rename(&kept, &folder)
                .map_err(|error| DomainError::io(self.asked(), folder.display(), &error))?;
        }
        if self.moved(&folder.join(GOING)).as_ref() != Some(moved) {
            return Ok(());
        }
        let asked = format!("keep what is here of the volume {}", moved.name);
        let failed = |error: std::io::Error| DomainError::io(&asked, folder.display(), &error);
        let table = Table::attach(&folder)
            .map_err(|error| DomainError::new(&asked, error, "start the node anew"))?;
        let none = Flags::default();
        for page in table.touched() {
            let word = table.word(page);
            if word.state().is_here() || word.state() == State::Kept {
                table.put(page, Word::new(State::Kept, none, word.version()));
            } else if word.0 != 0 {
                table.put(page, Word(0));
            }
        }
        drop(table);
        if is_there(&folder, REGION) {
            fs::rename(folder.join(REGION), folder.join(KEPT_PAGES)).map_err(failed)?;
        }
        fs::write(folder.join(KEPT_HOST), format!("{} {}", moved.node, moved.term))
            // A host keeps nothing of its own volume.
            .and_then(|()| remove(&kept))
            .and_then(|()| fs::create_dir_all(self.path().join("kept")))
            .and_then(|()| fs::rename(&folder, &kept))
            .map_err(failed)
    }

    /// Step 7: the new host has answered.
    pub fn has_gone(&self, moved: &Moved) {
        self.close_way_back(&moved.uuid);
        // What cannot be removed is asked about again.
        let _ = remove(&self.kept(&moved.uuid).join(GOING));
    }

    /// What has gone, if it can come back: its new host was not heard of as such.
    pub fn may_come_back(&self, uuid: &[u8; 16]) -> Option<Moved> {
        let kept = self.kept(uuid);
        is_there(&kept, Directory::NAME).then(|| self.moved(&kept.join(GOING))).flatten()
    }

    /// The new host has the volume: what is here may be older.
    pub fn close_way_back(&self, uuid: &[u8; 16]) {
        // PERSIST: in the store before the new host is served by this node.
        let _ = remove(&self.kept(uuid).join(Directory::NAME));
    }

    /// The nodes that have pages of a volume that has gone, as its directory says.
    pub fn holders_of(&self, moved: &Moved) -> Result<BTreeSet<NodeId>, DomainError> {
        let path = self.kept(&moved.uuid).join(Directory::NAME);
        let places = Directory::open(&path)
            .map_err(|error| DomainError::new(self.asked(), error, "start the node anew"))?;
        let parts = (0..moved.pages).step_by(PLACES as usize);
        let pages = parts.filter(|first| places.has_memory(*first));
        let pages = pages.flat_map(|first| first..(first + PLACES).min(moved.pages));
        let owners = |page| match places.get(page) {
            Ok(Location::Held(owner, _, other)) => [Some(owner), other],
            _ => [None; 2],
        };
        Ok(pages.flat_map(owners).flatten().collect())
    }

    /// A volume that has gone comes back to this node, `here`, in a later term. Nothing of it may
    /// be served meanwhile.
    /// CRASH: until `about` is there it has gone, and what was done is undone by step 5.
    pub fn take_back(&self, moved: &Moved, here: NodeId) -> Result<(), DomainError> {
        self.keep_gone(moved)?;
        let (folder, kept) = (self.volume(&moved.name), self.kept(&moved.uuid));
        let asked = format!("take the volume {} back", moved.name);
        let failed = |error: std::io::Error| DomainError::io(&asked, folder.display(), &error);
        let text = |error: &dyn std::fmt::Display| DomainError::new(&asked, error, "");
        if folder.exists() {
            return Err(text(&"another volume of its name is here, or is on its way"));
        }
        let words = Table::attach(&kept).map_err(|error| text(&error))?;
        let places = Directory::open(&kept.join(Directory::NAME)).map_err(|error| text(&error))?;
        for page in 0..moved.pages {
            let word = words.word(page);
            if word.state() == State::Kept {
                // In a later version than the directory's, perhaps.
                places
                    .set(page, Location::Held(here, word.version(), None))
                    .map_err(|errno| text(&format!("its directory: {}", os::describe(errno))))?;
            } else if !places.has_memory(page) {
                continue;
            }
            let Ok(place) = places.get(page) else { continue };
            words.put(page, word_at_arrival(here, place, Some(word)));
        }
        drop((words, places));
        let (term, text) = (moved.term + 1, |about: &VolumeAbout| {
            serde_json::to_vec_pretty(about).unwrap_or_default()
        });
        let about = VolumeAbout {
            format: FORMAT,
            uuid: moved.uuid,
            pages: moved.pages,
            term,
            copies: moved.copies,
        };
        fs::rename(kept.join(KEPT_PAGES), kept.join(REGION))
            .and_then(|()| remove(&kept.join(KEPT_HOST)))
            .and_then(|()| fs::rename(&kept, &folder))
            .map_err(failed)?;
        self.write(folder.join(ABOUT), &text(&about))?;
        self.stays(&moved.name);
        Ok(())
    }

    /// Step 2: a volume is about to come; an earlier attempt is forgotten.
    pub fn receive(&self, moved: &Moved) -> Result<Arrival, DomainError> {
        let folder = self.volume(&moved.name);
        let asked = format!("receive the volume {}", moved.name);
        let failed = |error: std::io::Error| DomainError::io(&asked, folder.display(), &error);
        if is_there(&folder, ABOUT) || is_there(&folder, REMOVED) || is_there(&folder, GOING) {
            let found = "this node has, or had, another one of that name";
            return Err(DomainError::new(asked, found, "remove that one: solera rm"));
        }
        if !(1..=COPIES_MAX).contains(&moved.copies) {
            let found = format!("it has {} copies of each page", moved.copies);
            return Err(DomainError::new(asked, found, "use a later build here"));
        }
        remove(&folder).map_err(failed)?;
        Self::fill_volume(&folder, moved.pages)
            .map_err(|error| DomainError::new(&asked, error, "see that the store has room"))?;
        let open = |name: &str| {
            File::options().write(true).create(true).truncate(false).open(folder.join(name))
        };
        let (directory, flags) =
            (open(Directory::NAME).map_err(failed)?, open(FLAGS).map_err(failed)?);
        flags.set_len(moved.pages).map_err(failed)?;
        let text = serde_json::to_vec_pretty(moved).unwrap_or_default();
        self.write(folder.join(ARRIVING), &text)?;
        Ok(Arrival { moved: moved.clone(), directory, flags })
    }

    /// The volumes that are about to come.
    pub fn arriving(&self) -> Vec<Moved> {
        let of = |folder: PathBuf| self.moved(&folder.join(ARRIVING));
        self.each("volumes").into_iter().filter_map(of).collect()
    }

    /// One of them does not come.
    pub fn refuse(&self, moved: &Moved) {
        let folder = self.volume(&moved.name);
        if self.moved(&folder.join(ARRIVING)).as_ref() == Some(moved) {
            // What cannot be removed is tried again.
            let _ = remove(&folder);
        }
    }

    /// Step 6: this node, `here`, is the host of a volume that arrives from now on. Nothing of it
    /// may be served meanwhile.
    pub fn take_over(&self, moved: &Moved, here: NodeId) -> Result<(), DomainError> {
        let (folder, kept) = (self.volume(&moved.name), self.kept(&moved.uuid));
        let asked = format!("take the volume {} over", moved.name);
        let failed = |error: std::io::Error| DomainError::io(&asked, folder.display(), &error);
        let text = |error: &dyn std::fmt::Display| DomainError::new(&asked, error, "");
        let tables = || {
            let kept = Table::is_made(&kept).then(|| Table::attach(&kept)).transpose()?;
            Ok((Table::attach(&folder)?, kept))
        };
        let (words, before) = tables().map_err(|error: table::TableError| text(&error))?;
        let places =
            Directory::open(&folder.join(Directory::NAME)).map_err(|error| text(&error))?;
        let flags = fs::read(folder.join(FLAGS)).map_err(failed)?;
        let is_said = |page: &u64| flags[*page as usize] != 0 || places.has_memory(*page);
        if flags.len() as u64 != moved.pages {
            return Err(text(&"the flags of its pages are gone"));
        }
        for page in (0..moved.pages).filter(is_said) {
            let flags = Flags::of_bits(flags[page as usize]);
            let Ok(place) = places.get(page) else { continue };
            let kept = before.as_ref().map(|table| table.word(page));
            let place = match place_at_arrival(here, place, kept) {
                Some(alone) => {
                    // PERSIST: before this node is the host; and it is said so again, if it dies.
                    places.set(page, alone).map_err(|errno| {
                        text(&format!("its directory: {}", os::describe(errno)))
                    })?;
                    alone
                }
                None => place,
            };
            let word = word_at_arrival(here, place, kept);
            if word.0 != 0 || flags != Flags::default() {
                words.put(page, word.behind(word.flagged(flags)));
            }
        }
        if is_there(&kept, KEPT_PAGES) {
            let path = kept.join(KEPT_PAGES);
            let before = before.iter().flat_map(Table::touched);
            drop_in_vain(&path, before.filter(|page| words.word(*page).state() != State::Owned))
                .map_err(|errno| failed(errno.into()))?;
            let file = File::options().write(true).open(&path).map_err(failed)?;
            file.set_len(moved.pages * PAGE).map_err(failed)?;
            fs::rename(&path, folder.join(REGION)).map_err(failed)?;
        }
        drop(before);
        fs::rename(folder.join(ARRIVING), folder.join(ABOUT)).map_err(failed)?;
        self.finish_arrivals();
        Ok(())
    }

    /// At a node's start, and behind step 6: removes what is left of moves that are over.
    pub fn finish_arrivals(&self) {
        for name in self.volumes() {
            let Ok(Some(about)) = self.volume_about(&name) else { continue };
            for left in [self.volume(&name).join(FLAGS), self.kept(&about.uuid)] {
                // As often as the node begins.
                let _ = remove(&left);
            }
        }
    }
}

/// Where a page is on the new host, if that is one of the two nodes that have it: here alone, if it
/// is here (what the other one keeps is not told from it by its version, and is dropped); else with
/// the other one alone.
fn place_at_arrival(here: NodeId, place: Location, kept: Option<Word>) -> Option<Location> {
    let Location::Held(owner, version, Some(other)) = place else { return None };
    if owner != here && other != here {
        return None;
    }
    let is_here = kept.is_some_and(|kept| (kept.state(), kept.version()) == (State::Kept, version));
    let with = if owner == here { other } else { owner };
    Some(Location::Held(if is_here { here } else { with }, version, None))
}

/// The word of a page of which the directory says this, on the new host, where this word stood in
/// what it has kept. A page leaves in the version behind its word's.
fn word_at_arrival(here: NodeId, place: Location, kept: Option<Word>) -> Word {
    let version = place.version();
    let none = Flags::default();
    let is_here = kept.is_some_and(|kept| {
        place == Location::Held(here, version, None)
            && (kept.state(), kept.version()) == (State::Kept, version)
    });
    match place {
        _ if is_here => Word::new(State::Owned, none, version),
        Location::Held(..) => {
            let before = Version::new(version.number().wrapping_sub(1));
            Word::new(State::Absent, none, before)
        }
        Location::Void(_) if version != Version::default() => Word(0).emptied(version),
        Location::Void(_) | Location::Lost(..) => Word::new(State::Absent, none, version),
    }
}

fn drop_in_vain(path: &Path, pages: impl Iterator<Item = u64>) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for page in pages {
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(&file, flags, page * PAGE, PAGE))?;
    }
    Ok(())
}
