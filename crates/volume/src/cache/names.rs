//! The caches of this process: names that it looked up, attributes that it read.
//!
//! Each entry carries the sequence number of the inode under which it was read (of the directory,
//! for a name) and is right exactly as long as that number has not moved: every change of an inode
//! moves it, and numbers outlive the inode's reuse ([`crate::inode`]). So nothing is ever
//! invalidated, and a hit writes no memory at all.
//!
//! A process's own changes leave its cache valid. Under the directory's lock it enters what the
//! changed names mean, under the number that the directory will have if the change becomes durable
//! ([`Caches::carry_names`], `namespace/change.rs`), and notes from which number on all moves were
//! its own: names entered since then are right too. Attributes are entered anew in the same way.
//!
//! The tables are direct-mapped and shared by all threads and all volumes of the process, never
//! with other processes. An entry is guarded by a version, odd while it is filled; a call that
//! finds it odd does without.
//!
//! Locks: none. Persistence: none.

use crate::Result;
use crate::cache::Caches;
use crate::cache::place::EntryPlace;
use crate::inode::Inode;
use crate::medium::layout::{BLOCK, Identity};
use crate::medium::subword::{halves, padded};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use vfs::{Attr, Kind, Node};
use zerocopy::IntoBytes;

/// Words of an entry beside its version.
const WORDS: usize = 15;
type Words = [u64; WORDS];
/// Words that all entries begin with: volume and generation, inode, sequence number.
const HEAD: usize = 3;
/// Words of a name's entry before the name.
const NAME: usize = HEAD + 2;
/// In the entry of a name that leaves room for them: the two words of its [`EntryPlace`].
const PLACE: usize = WORDS - 2;
/// Longest name beside which a place is kept.
const PLACED_MAX: u64 = (PLACE - NAME) as u64 * 8;
/// A name by words, padded with zeros.
pub(crate) type Padded = [u64; NAME_MAX / 8];
/// Longest name that is remembered.
const NAME_MAX: usize = (WORDS - NAME) * 8;
/// Entries of a table: few pages, since a short-lived process pays a fault for each that it uses.
const ENTRIES: usize = 512;
const OWN_ENTRIES: usize = 32;
/// Words of such an entry beside its version.
const OWN_WORDS: usize = HEAD + 3;

/// Two cache lines, or more.
#[repr(align(128))]
pub(crate) struct Entry<const W: usize = WORDS> {
    version: AtomicU64,
    words: [AtomicU64; W],
}

pub(crate) struct Table<const N: usize, const W: usize = WORDS>(pub(crate) [Entry<W>; N]);

/// More, since listing a directory enters as many as one call gives; a process that asks for few
/// names pays a page fault for nearly each.
const NAME_ENTRIES: usize = 2048;

static NAMES: Table<NAME_ENTRIES> = Table([const { Entry::new() }; NAME_ENTRIES]);
/// Of directories that this process changes: the number that its last change left, the one from
/// which on every change was its own and is in [`NAMES`], the one from which on none of them took a
/// directory's name, the one from which on no entry moved but those of names that changed.
static OWN: Table<OWN_ENTRIES, OWN_WORDS> = Table([const { Entry::new() }; OWN_ENTRIES]);
static ATTRIBUTES: Table<ENTRIES> = Table([const { Entry::new() }; ENTRIES]);

/// The words of an entry that is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Looked<'e, const W: usize>(&'e [AtomicU64; W]);

impl<const W: usize> Looked<'_, W> {
    #[inline]
    pub(crate) fn at(self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    /// Whether its words from `first` on are these.
    #[inline]
    pub(crate) fn are(self, first: usize, words: &[u64]) -> bool {
        let own = self.0[first..].iter().zip(words);
        own.into_iter().all(|(own, word)| own.load(Ordering::Relaxed) == *word)
    }
}

impl<const N: usize, const W: usize> Table<N, W> {
    #[inline]
    pub(crate) fn entry(&self, hash: u64) -> &Entry<W> {
        &self.0[(hash >> 32) as usize % N]
    }
}

impl<const W: usize> Entry<W> {
    pub(crate) const fn new() -> Self {
        Self { version: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; W] }
    }

    /// What `read` finds in its words, if no thread changes them meanwhile and the first ones are
    /// `head`.
    #[inline]
    pub(crate) fn look<T>(
        &self,
        head: [u64; 2],
        read: impl FnOnce(Looked<'_, W>) -> Option<T>,
    ) -> Option<T> {
        let version = self.version.load(Ordering::Acquire);
        let words = Looked(&self.words);
        if version & 1 != 0 || words.at(0) != head[0] || words.at(1) != head[1] {
            return None;
        }
        let found = read(words)?;
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some(found)
    }

    /// Puts the words in if `still` says so once no other thread can; whether it did.
    #[inline]
    pub(crate) fn put(&self, words: &[u64; W], still: impl FnOnce() -> bool) -> bool {
        let version = self.version.load(Ordering::Relaxed);
        let odd = version | 1;
        let taken = version & 1 == 0
            && self
                .version
                .compare_exchange(version, odd, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !taken {
            return false;
        }
        let puts = still();
        if puts {
            for (to, from) in self.words.iter().zip(words) {
                to.store(*from, Ordering::Release);
            }
        }
        self.version.store(odd + 1, Ordering::Release);
        puts
    }
}

impl<const W: usize> Entry<W> {
    /// Changes its words by `change`, if no other thread does so and the first ones are `head`.
    #[inline]
    fn amend(&self, head: [u64; 2], change: impl FnOnce(&[AtomicU64; W])) {
        let version = self.version.load(Ordering::Relaxed);
        let odd = version | 1;
        let (taken, not) = (Ordering::Acquire, Ordering::Relaxed);
        let words = Looked(&self.words);
        if version & 1 != 0
            || words.at(0) != head[0]
            || words.at(1) != head[1]
            || self.version.compare_exchange(version, odd, taken, not).is_err()
        {
            return;
        }
        change(&self.words);
        self.version.store(odd + 1, Ordering::Release);
    }
}

/// Mixes words to a hash, whose upper half is good.
#[inline]
pub(crate) fn mix(words: &[u64]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    words.iter().fold(0, |hash, word| {
        // Both halves of the product: a word's last bytes are its highest bits, in which names
        // differ. (Bytes swapped: a rotation becomes `shld`, which takes six steps on Zen.)
        let product = u128::from(hash.swap_bytes() ^ word) * u128::from(ODD);
        product as u64 ^ (product >> 64) as u64
    })
}

/// Whether a word has a byte that is 0.
#[inline]
fn has_zero(word: u64) -> bool {
    const ONES: u64 = u64::MAX / 255;
    word.wrapping_sub(ONES) & !word & ONES << 7 != 0
}

/// The kind of a `d_type`; `None` for 0.
fn kind_of(d_type: u8) -> Option<Kind> {
    Kind::from_mode(u32::from(d_type) << 12)
}

/// A head's volume.
#[inline]
fn instance(head: [u64; 2]) -> u64 {
    head[0] >> 32 << 32
}

/// Tells the volumes of a process apart.
pub(crate) struct Instance(u32);

impl Default for Instance {
    fn default() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Instance {
    /// Never 0.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.0
    }
}

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) node: Node,
    pub(crate) kind: Kind,
}

/// A name in a directory, on its way through the table.
pub(crate) struct Asked {
    head: [u64; 2],
    length: u64,
    name: Padded,
    entry: &'static Entry,
}

impl Asked {
    /// The name, which no other thread changes.
    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        &self.name.as_bytes()[..self.length as usize]
    }

    /// The same, padded with zeros.
    #[inline]
    pub(crate) fn padded(&self) -> &Padded {
        &self.name
    }

    /// Whether the name is one that may be made: surely so. (By words; else its bytes tell.)
    #[inline]
    pub(crate) fn is_legal(&self) -> bool {
        const SLASHES: u64 = u64::MAX / 255 * b'/' as u64;
        let whole = (self.length / 8) as usize;
        let rest = self.name.get(whole).copied().unwrap_or(0) | u64::MAX << (self.length % 8 * 8);
        let odd = self.name[..whole].iter().any(|&word| has_zero(word) | has_zero(word ^ SLASHES));
        let dots = self.length < 3 && self.name[0] as u8 == b'.';
        !(odd || dots || has_zero(rest) || has_zero(rest ^ SLASHES) || self.length == 0)
    }

    /// Enters what the name means while the directory's number is `sequence`; whether it did.
    /// `place`: where its entry lies, or would.
    #[inline]
    pub(crate) fn enter(
        &self,
        sequence: u64,
        meaning: Option<Target>,
        place: Option<EntryPlace>,
    ) -> bool {
        let (ino, told) = self.told(meaning);
        let used = self.length.div_ceil(8) as usize;
        let mut same = false;
        self.entry.amend(self.head, |words| {
            // A name that was just asked for is there already.
            let found = Looked(words);
            same = found.at(4) >> 40 == self.length && found.are(NAME, &self.name[..used]);
            if same {
                for (at, word) in [(2, sequence), (3, ino), (4, told)] {
                    words[at].store(word, Ordering::Release);
                }
                if self.length <= PLACED_MAX {
                    let [first, second] = EntryPlace::words(place);
                    words[PLACE].store(first, Ordering::Release);
                    words[PLACE + 1].store(second, Ordering::Release);
                }
            }
        });
        same || self.entry.put(&self.words(sequence, meaning, place), || true)
    }

    /// What the name leads to while the directory's number is `now`, and where its entry lies, or
    /// would; `None` if either is not known. (Another new name may have taken the key of one that
    /// leads nowhere: its place is only known from a moment since when nothing has changed.)
    #[inline]
    pub(crate) fn known_at(&self, now: u64) -> Option<(Option<Target>, EntryPlace)> {
        let used = self.length.div_ceil(8) as usize;
        let (ino, told, sequence, place) = self.entry.look(self.head, |words| {
            let told = words.at(4);
            let same = told >> 40 == self.length
                && self.length <= PLACED_MAX
                && words.are(NAME, &self.name[..used]);
            same.then(|| (words.at(3), told, words.at(2), [words.at(PLACE), words.at(PLACE + 1)]))
        })?;
        let place = EntryPlace::of_words(place)?;
        let kind = kind_of((told >> 32) as u8);
        let own = || {
            let since = Caches::own_since(self.head, now);
            kind.is_some() && since.is_some_and(|[_, _, base]| base <= sequence && sequence < now)
        };
        if sequence != now && !own() {
            return None;
        }
        let node = Node { ino, generation: told as u32 };
        Some((kind.map(|kind| Target { node, kind }), place))
    }

    /// An entry's words that say what the name means.
    #[inline]
    fn told(&self, found: Option<Target>) -> (u64, u64) {
        let told = found.map_or((0, 0), |target| {
            let kind = u64::from(target.kind.d_type()) << 32;
            (target.node.ino, u64::from(target.node.generation) | kind)
        });
        (told.0, told.1 | self.length << 40)
    }

    /// An entry's words.
    #[inline]
    fn words(&self, sequence: u64, found: Option<Target>, place: Option<EntryPlace>) -> Words {
        let mut words = [0; WORDS];
        [words[0], words[1]] = self.head;
        words[2] = sequence;
        (words[3], words[4]) = self.told(found);
        words[NAME..].copy_from_slice(&self.name);
        if self.length <= PLACED_MAX {
            words[PLACE..].copy_from_slice(&EntryPlace::words(place));
        }
        words
    }
}

impl Caches {
    pub(crate) fn head(&self, node: Node) -> [u64; 2] {
        [u64::from(self.instance.0) << 32 | u64::from(node.generation), node.ino]
    }

    /// Whether an inode's sequence number still is `sequence`.
    #[inline]
    pub(crate) fn unmoved(&self, ino: u64, sequence: u64) -> bool {
        sequence & 1 == 0 && self.sequence(Inode(ino)).is_ok_and(|now| now == sequence)
    }

    /// Whether what was entered about a directory's names under `sequence` is right.
    #[inline]
    pub(crate) fn names_stand(&self, head: [u64; 2], sequence: u64) -> bool {
        self.stands_since(head, sequence, |[base, ..]| base)
    }

    /// Whether the names of directories in a directory mean what they did under `sequence`.
    #[inline]
    pub(crate) fn subdirectories_stand(&self, head: [u64; 2], sequence: u64) -> bool {
        self.stands_since(head, sequence, |[_, base, _]| base)
    }

    #[inline]
    fn stands_since(
        &self,
        head: [u64; 2],
        sequence: u64,
        base: impl FnOnce([u64; 3]) -> u64,
    ) -> bool {
        let Ok(now) = self.sequence(Inode(head[1])) else { return false };
        let own = || Self::own_since(head, now).is_some_and(|since| base(since) <= sequence);
        now & 1 == 0 && (now == sequence || sequence < now && own())
    }

    /// The number from which on every move of this directory was this process's own, the one from
    /// which on none of them took a directory's name, and the one from which on none of them moved
    /// other entries, if that goes up to `now`.
    #[inline]
    fn own_since(head: [u64; 2], now: u64) -> Option<[u64; 3]> {
        OWN.entry(mix(&[head[1]])).look([instance(head), head[1]], |words| {
            (words.at(2) == now).then(|| [words.at(3), words.at(4), words.at(5)])
        })
    }

    /// Prepares a search for `name`; `None` if such names are not remembered.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what it gives is some lines, made where it stays")]
    pub(crate) fn ask_for(&self, dir: Node, name: &[u8]) -> Option<Asked> {
        let words: Padded = padded(name)?;
        let used = &words[..name.len().div_ceil(8)];
        let entry = NAMES.entry(mix(&[dir.ino, mix(used)]));
        let length = name.len() as u64;
        Some(Asked { head: self.head(dir), length, name: words, entry })
    }

    /// What the name led to, or that it led nowhere (`ENOENT`), if that is still so.
    #[inline]
    pub(crate) fn remembered(&self, asked: &Asked) -> Option<Result<Target>> {
        let used = asked.length.div_ceil(8) as usize;
        let (ino, told, sequence) = asked.entry.look(asked.head, |words| {
            let told = words.at(4);
            // Behind its end a name is padded with zeros.
            let same = told >> 40 == asked.length && words.are(NAME, &asked.name[..used]);
            same.then(|| (words.at(3), told, words.at(2)))
        })?;
        if !self.names_stand(asked.head, sequence) {
            return None;
        }
        let node = Node { ino, generation: told as u32 };
        Some(match kind_of((told >> 32) as u8) {
            Some(kind) => Ok(Target { node, kind }),
            None => Err(Errno::NOENT),
        })
    }

    /// Remembers what was found while the directory's sequence number was `sequence`, and where.
    pub(crate) fn remember(
        &self,
        asked: &Asked,
        sequence: u64,
        found: Option<Target>,
        place: Option<EntryPlace>,
    ) {
        // Asked once the entry is taken: a thread that changes the name enters that later, or not
        // at all.
        let still = || self.unmoved(asked.head[1], sequence);
        asked.entry.put(&asked.words(sequence, found, place), still);
    }

    /// Notes a change of names by this process, once it is durable and before its locks go: the
    /// directory's number was `before`, and will be `after`. `takes`: a directory's name is among
    /// them that means something else now.
    pub(crate) fn carry_names(
        &self,
        dir: Node,
        (before, after): (u64, u64),
        changed: &[(&[u8], Option<Target>)],
        takes: bool,
    ) {
        let mut known = true;
        for &(name, meaning) in changed {
            if let Some(asked) = self.ask_for(dir, name) {
                known &= asked.enter(after, meaning, None);
            }
        }
        self.carry_own(dir, (before, after), known, takes, false);
    }

    /// Notes that the directory's next number is this process's own; `known`: all names that change
    /// with it were entered; `keeps`: the entries of all other names stay where they are.
    #[inline]
    pub(crate) fn carry_own(
        &self,
        dir: Node,
        (before, after): (u64, u64),
        known: bool,
        takes: bool,
        keeps: bool,
    ) {
        let head = self.head(dir);
        let since = Self::own_since(head, before).unwrap_or([before; 3]);
        let mut words = [0; OWN_WORDS];
        // The numbers alone tell this object from others that had the inode.
        [words[0], words[1]] = [instance(head), dir.ino];
        words[2] = after;
        // If not all were entered, what stands there about a changed name may be old.
        words[3] = if known { since[0] } else { after };
        words[4] = if takes { after } else { since[1] };
        words[5] = if known && keeps { since[2] } else { after };
        OWN.entry(mix(&[dir.ino])).put(&words, || true);
    }

    /// The attributes of a node as they were read last, but for the access time, if nothing has
    /// changed them.
    #[inline]
    pub(crate) fn remembered_attributes(&self, node: Node) -> Option<Attr> {
        let mut attr = Attr::NONE;
        self.cached_attributes(node, &mut attr).then_some(attr)
    }

    /// The same, written to `attr`, which is anything if the answer is `false`.
    #[inline]
    pub(crate) fn cached_attributes(&self, node: Node, attr: &mut Attr) -> bool {
        let known = ATTRIBUTES.entry(mix(&[node.ino])).look(self.head(node), |words| {
            let stands = self.unmoved(node.ino, words.at(2));
            (stands && unpack(node, |index| words.at(HEAD + index), attr)).then_some(())
        });
        known.is_some()
    }

    /// Kind and number of names of a node, and its `FLAG_*`, as they were read under this sequence
    /// number.
    #[inline]
    pub(crate) fn remembered_kind(&self, node: Node, sequence: u64) -> Option<(Kind, u32, u16)> {
        ATTRIBUTES.entry(mix(&[node.ino])).look(self.head(node), |words| {
            let (first, flags) = (words.at(HEAD), words.at(HEAD + PACKED) as u16);
            let kind = kind_of(first as u8).filter(|_| words.at(2) == sequence);
            kind.map(|kind| (kind, (first >> 32) as u32, flags))
        })
    }

    /// Remembers attributes that were read, with the inode's `FLAG_*`, while its sequence number
    /// was `sequence`.
    pub(crate) fn remember_attributes(&self, attr: &Attr, flags: u16, sequence: u64) {
        if self.unmoved(attr.node.ino, sequence) {
            self.enter_attributes(attr, flags, sequence);
        }
    }

    /// Enters attributes that are right while the inode's sequence number is `sequence`.
    pub(crate) fn enter_attributes(&self, attr: &Attr, flags: u16, sequence: u64) {
        let node = attr.node;
        let mut words = [0; WORDS];
        [words[0], words[1]] = self.head(node);
        words[2] = sequence;
        words[HEAD..HEAD + PACKED].copy_from_slice(&packed(attr));
        words[HEAD + PACKED] = u64::from(flags);
        ATTRIBUTES.entry(mix(&[node.ino])).put(&words, || true);
    }

    /// As [`Caches::carry_attributes`], of a directory in which a name comes or goes, perhaps with
    /// blocks.
    #[inline]
    pub(crate) fn carry_directory(
        &self,
        dir: Node,
        (before, after): (u64, u64),
        (entries, blocks, time): (u64, i64, i64),
    ) {
        ATTRIBUTES.entry(mix(&[dir.ino])).amend(self.head(dir), |words| {
            if words[2].load(Ordering::Relaxed) == before {
                words[2].store(after, Ordering::Release);
                words[HEAD + PACKED_SIZE].store(entries, Ordering::Release);
                if blocks != 0 {
                    let count = words[HEAD + PACKED_BLOCKS].load(Ordering::Relaxed);
                    let count = count.wrapping_add_signed(blocks * (BLOCK as i64 / 512));
                    words[HEAD + PACKED_BLOCKS].store(count, Ordering::Release);
                }
                for at in [PACKED_MTIME, PACKED_MTIME + 1] {
                    words[HEAD + at].store(time.cast_unsigned(), Ordering::Release);
                }
            }
        });
    }

    /// As [`Caches::carry_attributes`], of a node of which nothing but the change time moves.
    #[inline]
    pub(crate) fn carry_moved(&self, node: Node, (before, after): (u64, u64), time: i64) {
        ATTRIBUTES.entry(mix(&[node.ino])).amend(self.head(node), |words| {
            if words[2].load(Ordering::Relaxed) == before {
                words[2].store(after, Ordering::Release);
                words[HEAD + PACKED_MTIME + 1].store(time.cast_unsigned(), Ordering::Release);
            }
        });
    }

    /// Enters the attributes of a new, empty file, whose sequence number is `sequence`.
    #[inline]
    pub(crate) fn enter_new_file(&self, ino: u64, identity: &Identity, sequence: u64) {
        let node = Node { ino, generation: identity.generation };
        let time = identity.ctime.cast_unsigned();
        let first = u64::from(Kind::File.d_type())
            | u64::from(identity.mode & 0o7777) << 8
            | u64::from(identity.nlink) << 32;
        let owners = halves(identity.uid, identity.gid);
        let [head, number] = self.head(node);
        let mut words =
            [head, number, sequence, first, owners, 0, 0, 0, time, time, time, 0, 0, 0, 0];
        words[HEAD + PACKED] = u64::from(identity.flags);
        ATTRIBUTES.entry(mix(&[ino])).put(&words, || true);
    }

    /// Forgets a node's attributes: a thread that enters them meanwhile read them before.
    pub(crate) fn forget_attributes(node: Node) {
        ATTRIBUTES.entry(mix(&[node.ino])).put(&[0; WORDS], || true);
    }

    /// Enters anew, under the number `after`, attributes that were right under `before`, as
    /// `change` makes them, with these `FLAG_*`.
    pub(crate) fn carry_attributes(
        &self,
        node: Node,
        (before, after): (u64, u64),
        flags: u16,
        change: impl FnOnce(&mut Attr),
    ) {
        let known = ATTRIBUTES.entry(mix(&[node.ino])).look(self.head(node), |words| {
            (words.at(2) == before).then(|| attributes_of(node, words))?
        });
        if let Some(mut attr) = known {
            change(&mut attr);
            self.enter_attributes(&attr, flags, after);
        }
    }
}

/// The attributes in an entry.
fn attributes_of(node: Node, words: Looked<'_, WORDS>) -> Option<Attr> {
    let mut attr = Attr::NONE;
    unpack(node, |index| words.at(HEAD + index), &mut attr).then_some(attr)
}

/// Words that attributes take, node and access time left out. In an entry the flags are behind.
pub(crate) const PACKED: usize = 8;

/// The places of the size and of the modification time among them; the change time follows.
const PACKED_SIZE: usize = 3;
const PACKED_BLOCKS: usize = 4;
const PACKED_MTIME: usize = 5;

/// Attributes as they are remembered.
#[inline]
pub(crate) fn packed(attr: &Attr) -> [u64; PACKED] {
    let first = u64::from(attr.kind.d_type())
        | u64::from(attr.mode & 0o7777) << 8
        | u64::from(attr.nlink) << 32;
    let owners = halves(attr.uid, attr.gid);
    let times = [attr.mtime, attr.ctime, attr.btime].map(i64::cast_unsigned);
    [first, owners, attr.rdev, attr.size, attr.blocks, times[0], times[1], times[2]]
}

/// The reverse, written to where it is wanted; the access time is 0. `false` where nothing was
/// packed.
#[inline]
pub(crate) fn unpack(node: Node, word: impl Fn(usize) -> u64, attr: &mut Attr) -> bool {
    let first = word(0);
    let Some(kind) = kind_of(first as u8) else { return false };
    attr.node = node;
    attr.kind = kind;
    attr.mode = (first >> 8) as u32 & 0o7777;
    attr.nlink = (first >> 32) as u32;
    (attr.uid, attr.gid) = (word(1) as u32, (word(1) >> 32) as u32);
    (attr.rdev, attr.size, attr.blocks) = (word(2), word(3), word(4));
    attr.atime = 0;
    let [mtime, ctime, btime] = [word(5), word(6), word(7)].map(u64::cast_signed);
    (attr.mtime, attr.ctime, attr.btime) = (mtime, ctime, btime);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_gives_what_was_put_and_nothing_while_it_is_filled() {
        let entry: Entry = Entry::new();
        let get = |head| {
            entry.look(head, |words| Some(std::array::from_fn::<_, WORDS, _>(|at| words.at(at))))
        };
        assert_eq!(get([1, 2]), None);
        let words = std::array::from_fn(|index| index as u64 + 1);
        entry.put(&words, || true);
        assert_eq!(get([1, 2]), Some(words));
        assert_eq!(get([1, 3]), None);
        entry.version.fetch_add(1, Ordering::Relaxed);
        assert_eq!(get([1, 2]), None);
        assert!(!entry.put(&[9; WORDS], || true));
        assert_eq!(entry.words[0].load(Ordering::Relaxed), 1, "a taken entry is left alone");
    }

    #[test]
    fn names_have_places_apart() {
        assert_ne!(mix(&[1, 2]) >> 32, mix(&[2, 1]) >> 32);
        let places = |names: &[u64]| {
            let places = names.iter().map(|&name| (mix(&[1, mix(&[name])]) >> 32) % 512);
            places.collect::<std::collections::HashSet<_>>().len()
        };
        let last_bytes: Vec<u64> = (0..256).map(|at| at << 56 | 0x65_6d61_6e66).collect();
        assert!(places(&last_bytes) > 150, "names that differ in the last byte of a word");
    }
}
