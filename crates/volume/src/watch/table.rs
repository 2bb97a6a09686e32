//! The table of what is watched: a file beside the shadows, mapped by each process that needs it.
//!
//! An entry has the inode, the union of the events that its watches ask for, and a bit for each
//! process slot that has added one. It is found by a hash of the inode's number; entries change
//! under the lock of watches and are read without. Beside the entries stand the union of all events
//! that are asked for, which only grows until nothing is watched any more, and for each inode that
//! has a name in a watched directory one such name ([`Table::place_of`]). The table is one epoch's:
//! the first to watch something in an epoch begins anew.

use crate::Result;
use crate::medium::layout::PROCESS_SLOTS;
use pmem::{Class, OpenOptions, Region};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::path::Path;
use vfs::Node;

/// How the file is called.
const FILE: &str = "watched";
/// Word of the file: the epoch.
const EPOCH: u64 = 0;
/// Word of the file: the events that any watch asks for.
const ASKED: u64 = 8;
/// Where the heads of the lists of entries begin, and how many there are, a power of two.
const ENTRY_HEADS: u64 = 4096;
const ENTRY_HEADS_COUNT: u64 = 1 << 15;
/// Where the entries begin, and how many there are.
const ENTRIES: u64 = ENTRY_HEADS + ENTRY_HEADS_COUNT * 8;
const ENTRIES_COUNT: u64 = 1 << 16;
/// Bytes of an entry: a line of words, a line of holders.
const ENTRY: u64 = 128;
/// Where the heads of the lists of names begin, and how many there are, a power of two.
const HEADS: u64 = ENTRIES + ENTRIES_COUNT * ENTRY;
const HEADS_COUNT: u64 = 1 << 19;
/// Where the names begin, and how many there are.
const NAMES: u64 = HEADS + HEADS_COUNT * 8;
const NAMES_COUNT: u64 = 1 << 18;
/// Bytes of a name's record.
const NAME: u64 = 296;
const LENGTH: u64 = NAMES + NAMES_COUNT * NAME;
/// Longest name.
const NAME_BYTES_MAX: usize = 255;

/// Words of the file: names that were ever used; the first that is free again, plus one; how often
/// a list was changed; whether some entry has no holder any more.
const NAMES_USED: u64 = 16;
const NAMES_FREE: u64 = 24;
const CHANGES: u64 = 32;
const LEFT: u64 = 40;
/// Entries that were ever used; the first that is free again, plus one.
const ENTRIES_USED: u64 = 48;
const ENTRIES_FREE: u64 = 56;

/// Words of a name's record: the inode's number (0: none), its generation and the name's length,
/// the directory's number and generation, the next record's number plus one, then the name.
const OF: u64 = 0;
const OF_LENGTH: u64 = 8;
const DIRECTORY: u64 = 16;
const DIRECTORY_GENERATION: u64 = 24;
const NEXT: u64 = 32;
const TEXT: u64 = 40;
const _: () = assert!(TEXT + 256 == NAME);

/// Words of an entry: the inode's number (0: free), then generation and events, then how often the
/// shadow got another name, the next entry's number plus one, then the holders.
const INO: u64 = 0;
const STATE: u64 = 8;
const MOVES: u64 = 16;
const ENTRY_NEXT: u64 = 24;
const HOLDERS: u64 = 64;

const _: () = assert!(HOLDERS + PROCESS_SLOTS / 8 == ENTRY);

/// The mapped table.
pub(crate) struct Table(Region);

/// An entry that was found.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    at: u64,
    /// The events that are asked for (`IN_*`).
    pub(crate) mask: u32,
}

impl Table {
    /// Opens it in the directory for carriers; `None`: nothing was watched in this epoch.
    pub(crate) fn open(beside: BorrowedFd<'_>, epoch: u32) -> Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(beside, FILE, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => file?,
        };
        if rustix::fs::fstat(&file)?.st_size.cast_unsigned() < LENGTH {
            return Ok(None);
        }
        let options = OpenOptions {
            write: true,
            force_class: Some(Class::Volatile),
            ..OpenOptions::default()
        };
        let region = Region::adopt(file, Path::new(FILE), &options).map_err(|_| Errno::NOMEM)?;
        let table = Self(region);
        Ok((table.0.shared_load(EPOCH)? == u64::from(epoch)).then_some(table))
    }

    /// Removes the file; whether there was one.
    pub(crate) fn remove_file(beside: BorrowedFd<'_>) -> bool {
        rustix::fs::unlinkat(beside, FILE, rustix::fs::AtFlags::empty()).is_ok()
    }

    /// Makes it. Lock of watches held.
    pub(crate) fn create(beside: BorrowedFd<'_>, epoch: u32) -> Result<Self> {
        // That of an epoch before may still be mapped somewhere: it gets another file.
        Self::remove_file(beside);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let open_to_all = Mode::from_raw_mode(0o666);
        let file = rustix::fs::openat(beside, FILE, flags, open_to_all)?;
        // Whatever the umask: a process that has the directory open may use it.
        rustix::fs::fchmod(&file, open_to_all)?;
        rustix::fs::ftruncate(&file, LENGTH)?;
        rustix::io::pwrite(&file, &u64::from(epoch).to_ne_bytes(), EPOCH)?;
        drop(file);
        Self::open(beside, epoch)?.ok_or(Errno::IO)
    }

    /// A hash of an inode's number below a power of two.
    fn hash(node: Node, below: u64) -> u64 {
        node.ino.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - below.ilog2())
    }

    fn entry(number: u64) -> u64 {
        ENTRIES + number * ENTRY
    }

    /// The word that leads to a node's entry, and the entry.
    fn find_entry(&self, node: Node) -> Option<(u64, Entry)> {
        let mut link = ENTRY_HEADS + Self::hash(node, ENTRY_HEADS_COUNT) * 8;
        // A list that changes meanwhile may lead anywhere, but not for ever.
        for _ in 0..ENTRIES_COUNT {
            let at = Self::entry(self.0.shared_load(link).ok()?.checked_sub(1)?);
            let state = self.0.shared_load(at + STATE).ok()?;
            if self.0.shared_load(at + INO).ok()? == node.ino
                && state >> 32 == u64::from(node.generation)
            {
                return Some((link, Entry { at, mask: state as u32 }));
            }
            link = at + ENTRY_NEXT;
        }
        None
    }

    /// The entry of a node.
    pub(crate) fn find(&self, node: Node) -> Option<Entry> {
        loop {
            let before = self.0.shared_load(CHANGES).ok()?;
            let found = self.find_entry(node).map(|(_, entry)| entry);
            if found.is_some() || self.0.shared_load(CHANGES).ok()? == before {
                return found;
            }
        }
    }

    /// The entry of a node, made if there is none (`true`). `ENOSPC`. Lock held.
    pub(crate) fn add(&self, node: Node) -> Result<(Entry, bool)> {
        if let Some(entry) = self.find(node) {
            return Ok((entry, false));
        }
        let free = self.0.shared_load(ENTRIES_FREE)?.checked_sub(1);
        let number = free.map_or_else(|| self.0.shared_load(ENTRIES_USED), Ok)?;
        if number == ENTRIES_COUNT {
            return Err(Errno::NOSPC);
        }
        let at = Self::entry(number);
        match free {
            Some(_) => self.0.shared_store(ENTRIES_FREE, self.0.shared_load(at + ENTRY_NEXT)?)?,
            None => self.0.shared_store(ENTRIES_USED, number + 1)?,
        }
        let head = ENTRY_HEADS + Self::hash(node, ENTRY_HEADS_COUNT) * 8;
        self.change()?;
        self.0.shared_zero(at, ENTRY)?;
        self.0.shared_store(at + STATE, u64::from(node.generation) << 32)?;
        self.0.shared_store(at + INO, node.ino)?;
        self.0.shared_store(at + ENTRY_NEXT, self.0.shared_load(head)?)?;
        self.0.shared_store(head, number + 1)?;
        self.change()?;
        Ok((Entry { at, mask: 0 }, true))
    }

    /// A process asks for these events, too. Lock held.
    pub(crate) fn ask(&self, entry: Entry, mask: u32, slot: u32) -> Result<()> {
        self.0.shared_or(entry.at + STATE, u64::from(mask))?;
        self.0.shared_or(ASKED, u64::from(mask))?;
        let word = entry.at + HOLDERS + u64::from(slot / 64) * 8;
        self.0.shared_or(word, 1 << (slot % 64))?;
        Ok(())
    }

    /// Whether any watch asks for one of these events.
    pub(crate) fn is_asked(&self, events: u32) -> bool {
        self.0.shared_load(ASKED).is_ok_and(|asked| asked as u32 & events != 0)
    }

    /// Whether anybody may have to be told that a description of this node is closed.
    pub(crate) fn may_concern_close(&self, node: Node) -> bool {
        self.is_asked(libc::IN_CLOSE) || self.find(node).is_some()
    }

    /// Nothing is watched any more. Lock held.
    pub(crate) fn forget_all(&self) -> Result<()> {
        self.change()?;
        for word in [ASKED, NAMES_USED, NAMES_FREE, LEFT, ENTRIES_USED, ENTRIES_FREE] {
            self.0.shared_store(word, 0)?;
        }
        // Its memory is given back: zeros would take all of it.
        self.0.punch(ENTRY_HEADS, LENGTH - ENTRY_HEADS)?;
        self.change()
    }

    /// How often the shadow of an entry got another name. Lock held.
    pub(crate) fn moves(&self, entry: Entry) -> Result<u64> {
        Ok(self.0.shared_load(entry.at + MOVES)?)
    }

    /// It gets one more. Lock held.
    pub(crate) fn moved(&self, entry: Entry) -> Result<()> {
        self.0.shared_store(entry.at + MOVES, self.moves(entry)? + 1).map_err(Errno::from)
    }

    /// An entry is no more. Lock held.
    pub(crate) fn remove(&self, node: Node) -> Result<()> {
        let Some((link, Entry { at, .. })) = self.find_entry(node) else { return Ok(()) };
        self.change()?;
        self.0.shared_store(link, self.0.shared_load(at + ENTRY_NEXT)?)?;
        self.0.shared_store(at + INO, 0)?;
        self.0.shared_store(at + ENTRY_NEXT, self.0.shared_load(ENTRIES_FREE)?)?;
        self.0.shared_store(ENTRIES_FREE, (at - ENTRIES) / ENTRY + 1)?;
        self.change()
    }

    /// All entries.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Node, Entry)> {
        let used = self.0.shared_load(ENTRIES_USED).unwrap_or(0).min(ENTRIES_COUNT);
        (0..used).filter_map(move |number| {
            let at = Self::entry(number);
            let ino = self.0.shared_load(at + INO).ok()?;
            let state = self.0.shared_load(at + STATE).ok()?;
            let node = Node { ino, generation: (state >> 32) as u32 };
            (ino != 0).then_some((node, Entry { at, mask: state as u32 }))
        })
    }

    /// A child holds what its parent does.
    pub(crate) fn share(&self, entry: Entry, parent: u32, child: u32) -> Result<()> {
        if self.holds(entry, parent)? {
            self.ask(entry, 0, child)?;
        }
        Ok(())
    }

    fn holds(&self, entry: Entry, slot: u32) -> Result<bool> {
        let word = self.0.shared_load(entry.at + HOLDERS + u64::from(slot / 64) * 8)?;
        Ok(word >> (slot % 64) & 1 != 0)
    }

    /// A slot holds nothing any more. Needs no lock.
    pub(crate) fn drop_holds(&self, slot: u32) -> Result<()> {
        for (_, entry) in self.all() {
            if self.holds(entry, slot)? {
                let word = entry.at + HOLDERS + u64::from(slot / 64) * 8;
                self.0.shared_and(word, !(1 << (slot % 64)))?;
                self.0.shared_store(LEFT, 1)?;
            }
        }
        Ok(())
    }

    /// The entries that nobody holds any more, if there may be some. Lock held.
    pub(crate) fn left(&self) -> Vec<Node> {
        match self.0.shared_swap(LEFT, 0) {
            Ok(0) | Err(_) => Vec::new(),
            Ok(_) => {
                let unheld = self.all().filter(|&(_, entry)| self.is_unheld(entry));
                unheld.map(|(node, _)| node).collect()
            }
        }
    }

    fn is_unheld(&self, entry: Entry) -> bool {
        let words = 0..PROCESS_SLOTS / 64;
        words.into_iter().all(|word| self.0.shared_load(entry.at + HOLDERS + word * 8) == Ok(0))
    }

    // ---- names in watched directories -----------------------------------------------------------

    fn record(number: u64) -> u64 {
        NAMES + number * NAME
    }

    /// The word that leads to a node's record, and the record.
    fn find_name(&self, node: Node) -> Option<(u64, u64)> {
        let mut link = HEADS + Self::hash(node, HEADS_COUNT) * 8;
        // A list that changes meanwhile may lead anywhere, but not for ever.
        for _ in 0..NAMES_COUNT {
            let number = self.0.shared_load(link).ok()?.checked_sub(1)?;
            let at = Self::record(number);
            let generation = self.0.shared_load(at + OF_LENGTH).ok()? >> 32;
            if self.0.shared_load(at + OF).ok()? == node.ino
                && generation == u64::from(node.generation)
            {
                return Some((link, at));
            }
            link = at + NEXT;
        }
        None
    }

    /// A name that a node has in a watched directory: that, and the name's length in `name`.
    pub(crate) fn place_of(&self, node: Node, name: &mut [u8; 256]) -> Option<(Node, usize)> {
        loop {
            let before = self.0.shared_load(CHANGES).ok()?;
            let found = self.find_name(node).and_then(|(_, at)| self.read_name(at, name));
            if self.0.shared_load(CHANGES).ok()? == before {
                return found;
            }
        }
    }

    fn read_name(&self, at: u64, name: &mut [u8; 256]) -> Option<(Node, usize)> {
        let length = self.0.shared_load(at + OF_LENGTH).ok()? as u32 as usize;
        let ino = self.0.shared_load(at + DIRECTORY).ok()?;
        let generation = self.0.shared_load(at + DIRECTORY_GENERATION).ok()? as u32;
        let whole = length.next_multiple_of(8).min(name.len());
        self.0.shared_read(at + TEXT, &mut name[..whole]).ok()?;
        (length <= NAME_BYTES_MAX).then_some((Node { ino, generation }, length))
    }

    /// A node gets this name, in place of one that it had. `ENOSPC`: nobody is told of what
    /// happens to it. Lock held.
    pub(crate) fn set_name(&self, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        let found = self.find_name(node);
        let at = match found {
            Some((_, at)) => at,
            None => self.free_record()?,
        };
        let mut text = [0; 256];
        let length = name.len().min(NAME_BYTES_MAX);
        text[..length].copy_from_slice(&name[..length]);
        self.change()?;
        self.0.shared_store(at + OF, 0)?;
        let state = u64::from(node.generation) << 32 | length as u64;
        self.0.shared_store(at + OF_LENGTH, state)?;
        self.0.shared_store(at + DIRECTORY, dir.ino)?;
        self.0.shared_store(at + DIRECTORY_GENERATION, u64::from(dir.generation))?;
        self.0.shared_write(at + TEXT, &text[..length.next_multiple_of(8)])?;
        self.0.shared_store(at + OF, node.ino)?;
        if found.is_none() {
            let head = HEADS + Self::hash(node, HEADS_COUNT) * 8;
            self.0.shared_store(at + NEXT, self.0.shared_load(head)?)?;
            self.0.shared_store(head, (at - NAMES) / NAME + 1)?;
        }
        self.change()
    }

    /// A node has this name no more. Lock held.
    pub(crate) fn clear_name(&self, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        let Some((link, at)) = self.find_name(node) else { return Ok(()) };
        let mut known = [0; 256];
        let is_it = self.read_name(at, &mut known);
        if is_it.is_none_or(|(of, length)| of != dir || known[..length] != *name) {
            return Ok(());
        }
        self.change()?;
        self.0.shared_store(link, self.0.shared_load(at + NEXT)?)?;
        self.0.shared_store(at + OF, 0)?;
        self.0.shared_store(at + NEXT, self.0.shared_load(NAMES_FREE)?)?;
        self.0.shared_store(NAMES_FREE, (at - NAMES) / NAME + 1)?;
        self.change()
    }

    fn change(&self) -> Result<()> {
        self.0.shared_add(CHANGES, 1).map(drop).map_err(Errno::from)
    }

    fn free_record(&self) -> Result<u64> {
        if let Some(number) = self.0.shared_load(NAMES_FREE)?.checked_sub(1) {
            let at = Self::record(number);
            self.0.shared_store(NAMES_FREE, self.0.shared_load(at + NEXT)?)?;
            return Ok(at);
        }
        let used = self.0.shared_load(NAMES_USED)?;
        if used == NAMES_COUNT {
            return Err(Errno::NOSPC);
        }
        self.0.shared_store(NAMES_USED, used + 1)?;
        Ok(Self::record(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use std::collections::HashMap;
    use std::os::fd::AsFd;

    fn node(number: u64) -> Node {
        Node { ino: (number % 97 + 1) * 512, generation: (number / 97) as u32 + 1 }
    }

    /// A table in a directory of its own, which is removed.
    fn with_table(name: &str, test: impl FnOnce(&Table, BorrowedFd<'_>)) {
        let path = std::env::temp_dir().join(format!("watched-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let beside = rustix::fs::open(&path, flags, Mode::empty()).expect("opened");
        assert!(Table::open(beside.as_fd(), 7).expect("looked for").is_none());
        test(&Table::create(beside.as_fd(), 7).expect("made"), beside.as_fd());
        std::fs::remove_dir_all(&path).expect("removed");
    }

    #[test]
    fn entries_are_found_until_they_are_removed() {
        with_table("entries", |table, beside| {
            let mut known = HashMap::new();
            for step in 0..4000_u64 {
                let node = node(step * 7919 % 500);
                if step % 3 == 2 {
                    table.remove(node).expect("removed");
                    known.remove(&node);
                    continue;
                }
                let (entry, is_new) = table.add(node).expect("added");
                assert_eq!(is_new, !known.contains_key(&node), "{node:?}");
                table.ask(entry, 1 << (step % 12), (step % 500) as u32).expect("asked");
                *known.entry(node).or_insert(0) |= 1 << (step % 12);
            }
            for number in 0..500 {
                let found = table.find(node(number)).map(|entry| entry.mask);
                assert_eq!(found, known.get(&node(number)).copied());
            }
            // Another process sees the same; an epoch later there is nothing.
            let other = Table::open(beside, 7).expect("opened").expect("this epoch's");
            assert_eq!(other.all().count(), known.len());
            assert!(Table::open(beside, 8).expect("opened").is_none());
        });
    }

    #[test]
    fn what_nobody_holds_any_more_is_left() {
        with_table("holders", |table, _| {
            let [one, two] = [node(1), node(2)].map(|node| table.add(node).expect("added").0);
            table.ask(one, 1, 3).expect("asked");
            table.ask(two, 1, 3).expect("asked");
            table.share(two, 3, 511).expect("shared");
            assert!(table.left().is_empty());
            table.drop_holds(3).expect("dropped");
            assert_eq!(table.left(), [node(1)]);
            assert!(table.left().is_empty(), "it is told once");
            table.drop_holds(511).expect("dropped");
            assert_eq!(table.left().len(), 2);
            table.forget_all().expect("forgotten");
            assert!(table.find(node(1)).is_none() && !table.is_asked(u32::MAX));
        });
    }

    #[test]
    fn a_node_has_the_name_that_it_got_last() {
        with_table("names", |table, _| {
            let mut known: HashMap<Node, (Node, Vec<u8>)> = HashMap::new();
            for step in 0..6000_u64 {
                let (node, dir) = (node(step * 31 % 700), node(step % 5));
                let name = format!("{step}").repeat((step % 60) as usize + 1).into_bytes();
                let name = &name[..name.len().min(NAME_BYTES_MAX)];
                match known.get(&node) {
                    // Another name than the known one goes: nothing happens.
                    Some(_) if step % 4 == 0 => {
                        table.clear_name(node, dir, b"other").expect("left");
                    }
                    Some((dir, name)) if step % 2 == 0 => {
                        table.clear_name(node, *dir, name).expect("cleared");
                        known.remove(&node);
                    }
                    _ => {
                        table.set_name(node, dir, name).expect("set");
                        known.insert(node, (dir, name.to_vec()));
                    }
                }
            }
            for number in 0..700 {
                let mut name = [0; 256];
                let found = table.place_of(node(number), &mut name);
                let found = found.map(|(dir, length)| (dir, name[..length].to_vec()));
                assert_eq!(found, known.get(&node(number)).cloned());
            }
        });
    }
}
