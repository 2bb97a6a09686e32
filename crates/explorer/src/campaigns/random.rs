//! Random sequences of calls: the same seed gives the same sequence, on every machine.
//!
//! Calls are drawn with the model at hand, so that most of them succeed; each sequence has a theme
//! (files, names, one directory that grows and shrinks, attributes, mappings), because related
//! calls would meet too seldom otherwise. Sizes stay within what the volume holds.

use crate::cases::Start;
use crate::model::{Body, Model, ObjectId};
use crate::states::mix;
use crate::workload::short::{
    allocate, close, dir, file, link, open, rewrite, symlink, truncate, unlink, write_at, xattr,
};
use crate::workload::{Action, System};
use vfs::{Kind, Whence};

const MIB: u64 = 1 << 20;
/// Open-file slots that sequences use.
const SLOTS_USED: u64 = 5;
/// Bytes that the large steps of one sequence may take in all.
const LARGE_MAX: u64 = 5 * MIB;
/// Bytes that all files may have in all.
const BYTES_MAX: u64 = 9 * MIB;

const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
const COLLAPSE: i32 = libc::FALLOC_FL_COLLAPSE_RANGE;
const INSERT: i32 = libc::FALLOC_FL_INSERT_RANGE;
const UNSHARE: i32 = libc::FALLOC_FL_UNSHARE_RANGE;

/// A stream of numbers.
pub struct Random(u64);

impl Random {
    /// Of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x5_0E4A))
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % limit.max(1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// What a sequence is mostly about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Theme {
    Mixed,
    Files,
    Names,
    Directory,
    Attributes,
    Mappings,
    /// Short appends, and what changes them.
    Tails,
}

/// The starts of random sequences: all have the files `a`, `b`, `c` and the directories `d`, `e`,
/// `d/s`.
#[must_use]
pub fn starts() -> Vec<Start> {
    let with = |name: &'static str, more: Vec<Action>| {
        let mut build = vec![dir("d"), dir("e"), dir("d/s")];
        build.extend(filled("a", 1, &[(0, 21_714)]));
        build.extend(more);
        Start { name, build, full: false }
    };
    let tree = || filled("b", 2, &[(0, 57_444)]);
    let sparse = || filled("c", 3, &[(0, 100), (16_384, 8192), (39_000, 1000)]);
    let named = vec![
        link("a", "g"),
        symlink("l", &"long/".repeat(40)),
        xattr("a", "user.one", 4, 300),
        xattr("d", "user.two", 5, 30),
        file("d/f"),
        dir("e/s"),
    ];
    let children = |count: u32| (0..count).map(|n| file(&format!("d/name-{n}"))).collect();
    let leaf = || filled("b", 2, &[(0, 2 * MIB), (2 * MIB, 5000)]);
    let ahead = vec![open("c", 0), allocate(0, KEEP, 0, 90_000), write_at(0, 4, 0, 300), close(0)];
    vec![
        with("mixed", [tree(), sparse(), named].concat()),
        with("crowded", [filled("b", 2, &[(0, 3000)]), sparse(), children(54)].concat()),
        with("grown", [filled("b", 2, &[(0, 9000)]), sparse(), children(74)].concat()),
        with("large", [leaf(), sparse()].concat()),
        with("ahead", [tree(), vec![file("c")], ahead].concat()),
    ]
}

fn filled(path: &str, tag: u32, pieces: &[(u64, u64)]) -> Vec<Action> {
    let mut actions = vec![file(path), open(path, 0)];
    actions.extend(pieces.iter().map(|&(offset, length)| write_at(0, tag, offset, length)));
    actions.push(close(0));
    actions
}

/// The number of the start of a seed's sequence, and its calls.
#[must_use]
pub fn sequence(seed: u64, length: usize) -> (usize, Vec<Action>) {
    let starts = starts();
    let mut random = Random::new(seed);
    let themes = [
        (Theme::Mixed, 0),
        (Theme::Files, 0),
        (Theme::Files, 4),
        (Theme::Names, 0),
        (Theme::Directory, 1),
        (Theme::Directory, 2),
        (Theme::Attributes, 0),
        (Theme::Mappings, 3),
        (Theme::Files, 3),
        (Theme::Mixed, 4),
        (Theme::Mappings, 0),
        (Theme::Mixed, 2),
        (Theme::Tails, 0),
        (Theme::Tails, 4),
    ];
    let (theme, start) = themes[(seed % themes.len() as u64) as usize];
    let mut model = Model::default();
    for action in &starts[start].build {
        let _ = model.apply(action);
    }
    model.close_all();
    let mut drawer = Drawer { random: &mut random, theme, large: 0, tag: 100 };
    let mut actions = Vec::new();
    while actions.len() < length {
        let action = drawer.useful(&model);
        let _ = model.apply(&action);
        actions.push(action);
    }
    (start, actions)
}

struct Drawer<'r> {
    random: &'r mut Random,
    theme: Theme,
    /// Bytes taken by large steps so far.
    large: u64,
    tag: u32,
}

impl Drawer<'_> {
    /// A call that succeeds, nearly always.
    fn useful(&mut self, model: &Model) -> Action {
        loop {
            let large = self.large;
            let action = self.draw(model);
            let mut tried = model.clone();
            let outcome = tried.apply(&action);
            let fits = total(&tried) <= BYTES_MAX && self.large <= LARGE_MAX;
            let foreign = opens_what_faces_open(model, &action)
                || too_deep(model, &action)
                || moves_unsynced(model, &action);
            if fits && !foreign && (outcome.is_ok() || self.random.one_in(24)) {
                return action;
            }
            self.large = large;
        }
    }

    fn draw(&mut self, model: &Model) -> Action {
        let among = |random: &mut Random, weights: [u64; 6]| {
            let mut at = random.below(weights.iter().sum());
            weights.iter().position(|&weight| {
                let here = at < weight;
                at = at.saturating_sub(weight);
                here
            })
        };
        // Names, attributes, opens, data, mappings, ends of files.
        let weights = match self.theme {
            Theme::Mixed => [5, 2, 4, 10, 1, 2],
            Theme::Files => [1, 0, 4, 16, 0, 1],
            Theme::Names => [14, 2, 3, 2, 0, 0],
            Theme::Directory => [30, 0, 1, 1, 0, 0],
            Theme::Attributes => [3, 12, 2, 3, 0, 0],
            Theme::Mappings => [2, 0, 3, 8, 6, 0],
            Theme::Tails => [1, 0, 4, 3, 0, 18],
        };
        match among(self.random, weights) {
            Some(0) => self.name(),
            Some(1) => self.attribute(),
            Some(2) => self.opening(),
            Some(3) => self.data(),
            Some(4) => self.mapping(),
            _ => self.tail(model),
        }
    }

    fn tag(&mut self) -> u32 {
        self.tag += 1;
        self.tag
    }

    fn path(&mut self) -> String {
        if self.theme == Theme::Directory && !self.random.one_in(6) {
            return format!("d/name-{}", self.random.below(90));
        }
        let long = self.random.one_in(16);
        let name = self.random.pick(&["a", "b", "c", "f", "g", "s", "d", "e"]);
        let name = if long { format!("{name}{}", "n".repeat(200)) } else { name.to_owned() };
        let dir = self.random.pick(&["", "", "", "d/", "d/", "e/", "d/s/", "e/s/"]);
        format!("{dir}{name}")
    }

    /// A file that is likely there.
    fn file(&mut self) -> String {
        if self.random.one_in(4) {
            return self.path();
        }
        self.random.pick(&["a", "b", "c", "a", "b", "g", "d/f"]).to_owned()
    }

    fn slot(&mut self) -> usize {
        self.random.below(SLOTS_USED) as usize
    }

    fn name(&mut self) -> Action {
        let (path, other) = (self.path(), self.path());
        let from = if self.random.one_in(2) { self.file() } else { self.path() };
        let flags = self.random.pick(&[
            0,
            0,
            0,
            libc::RENAME_EXCHANGE,
            libc::RENAME_EXCHANGE,
            libc::RENAME_NOREPLACE,
            libc::RENAME_WHITEOUT,
        ]);
        match self.random.below(20) {
            0..=4 => file(&path),
            5 | 6 => dir(&path),
            7 => symlink(&path, &"t/".repeat(1 + self.random.below(90) as usize)),
            8 => Action::Create { path, kind: Kind::Fifo, mode: 0o600 },
            9 => {
                let exclusive = self.random.one_in(3);
                Action::Temporary { dir: "d".into(), slot: self.slot(), exclusive }
            }
            10 => Action::LinkOpen { slot: self.slot(), to: path },
            11 => link(&from, &path),
            12..=14 => unlink(&path),
            15 => Action::RemoveDir { path },
            16 | 17 => Action::Rename { from: path, to: other, flags },
            _ => Action::Rename { from, to: path, flags },
        }
    }

    fn attribute(&mut self) -> Action {
        let path = if self.random.one_in(2) { self.file() } else { self.path() };
        let name = self.random.pick(&["user.one", "user.two", "user.three"]).to_owned();
        match self.random.below(10) {
            0 => Action::SetMode { path, mode: self.random.below(0o777) as u32 },
            1 => Action::SetOwner { path, uid: self.random.below(9) as u32, gid: 5 },
            2 => Action::SetTimes { path, atime: 9, mtime: self.random.below(1 << 40) as i64 },
            3 | 4 => Action::RemoveXattr { path, name },
            _ => {
                let flags = [0, 0, libc::XATTR_CREATE, libc::XATTR_REPLACE];
                let flags = self.random.pick(&flags) as u32;
                let length = self.random.pick(&[0, 7, 100, 900, 1500]);
                Action::SetXattr { path, name, tag: self.tag(), length, flags }
            }
        }
    }

    fn opening(&mut self) -> Action {
        if self.random.one_in(4) {
            return close(self.slot());
        }
        let access = self.random.pick(&[libc::O_RDWR, libc::O_RDWR, libc::O_RDWR, libc::O_WRONLY]);
        let more = self.random.pick(&[0, 0, 0, libc::O_APPEND, libc::O_APPEND, libc::O_TRUNC]);
        Action::Open { path: self.file(), slot: self.slot(), flags: access | more }
    }

    /// An offset or a size, around the borders that matter.
    fn amount(&mut self) -> u64 {
        match self.random.below(12) {
            0..=3 => self.random.below(70_000),
            4 | 5 => self.random.below(9000),
            6..=8 => self.random.below(16) * 4096,
            9 => self.random.below(16) * 4096 + self.random.below(16),
            10 => self.random.pick(&[2 * MIB, 2 * MIB - 100, 2 * MIB + 5000, 4 * MIB]),
            _ => self.random.pick(&[1 << 30, (1 << 30) + 77]),
        }
    }

    fn length(&mut self) -> u64 {
        match self.random.below(14) {
            0..=3 => 1 + self.random.below(1500),
            4..=6 => 1 + self.random.below(9000),
            7 | 8 => 1 + self.random.below(50_000),
            9..=11 => 4096 * (1 + self.random.below(8)),
            12 => 8,
            _ if self.theme == Theme::Files => self.large_length(),
            _ => 1 + self.random.below(200),
        }
    }

    fn large_length(&mut self) -> u64 {
        let length = self.random.pick(&[2 * MIB, MIB, 300_000, 2 * MIB + 4096]);
        self.large += length;
        length
    }

    fn range(&mut self) -> (u64, u64) {
        if self.random.one_in(2) {
            (4096 * self.random.below(14), 4096 * (1 + self.random.below(6)))
        } else {
            (self.amount(), self.length())
        }
    }

    fn data(&mut self) -> Action {
        let (slot, tag) = (self.slot(), self.tag());
        let (offset, length) = (self.amount(), self.length());
        match self.random.below(30) {
            0..=6 => Action::Write { slot, tag, length },
            7..=13 => write_at(slot, tag, offset, length),
            14 => truncate(&self.file(), offset),
            15 | 16 => Action::TruncateOpen { slot, size: offset },
            17..=21 => {
                let modes =
                    [0, 0, KEEP, PUNCH, PUNCH, ZERO, ZERO | KEEP, COLLAPSE, INSERT, UNSHARE];
                let mode = self.random.pick(&modes);
                let (offset, length) = self.range();
                allocate(slot, mode, offset, length)
            }
            22 => Action::Seek { slot, offset: offset as i64, whence: Whence::Set },
            23 => {
                let (to, (from_offset, length)) = (self.slot(), self.range());
                let length = length.min(200_000);
                Action::CopyRange { from: slot, from_offset, to, to_offset: offset, length }
            }
            24 => {
                let (to, (from_offset, length)) = (self.slot(), self.range());
                let to_offset = offset / 4096 * 4096;
                Action::Relink { from: slot, from_offset, to, to_offset, length }
            }
            25 => Action::SyncAll,
            26 => Action::Compact,
            27 => rewrite(&self.file()),
            _ => Action::Sync { slot, data_only: self.random.one_in(2) },
        }
    }

    /// What appends a little, or changes what lies just below the end.
    fn tail(&mut self, model: &Model) -> Action {
        let (slot, tag) = (self.slot(), self.tag());
        let size = model.size_of_open(slot).unwrap_or(0);
        let offset = size - self.random.below(1500).min(size);
        let most = self.random.pick(&[40, 1100, 1100]);
        let length = 1 + self.random.below(most);
        let block = offset / 4096 * 4096;
        match self.random.below(20) {
            0..=5 => Action::Write { slot, tag, length },
            6..=8 => write_at(slot, tag, size, length),
            9..=12 => write_at(slot, tag, offset, length),
            13 => allocate(slot, PUNCH, offset, length),
            14 => allocate(slot, ZERO | KEEP, offset, length),
            15 => Action::TruncateOpen { slot, size: offset },
            16 => {
                let to = self.slot();
                Action::Relink {
                    from: slot,
                    from_offset: block,
                    to,
                    to_offset: block,
                    length: size - block,
                }
            }
            17 => {
                Action::StoreMapped { slot, tag, offset, length: length.min(size - offset).max(1) }
            }
            18 => Action::CopyRange {
                from: self.slot(),
                from_offset: 0,
                to: slot,
                to_offset: offset,
                length,
            },
            _ => Action::Sync { slot, data_only: self.random.one_in(2) },
        }
    }

    fn mapping(&mut self) -> Action {
        let (slot, offset) = (self.slot(), 4096 * self.random.below(14));
        if self.random.one_in(4) {
            return Action::Map { slot, offset, length: 4096 * (1 + self.random.below(6)) };
        }
        let (tag, length) = (self.tag(), 1 + self.random.below(6000));
        Action::StoreMapped { slot, tag, offset: offset + self.random.below(4096), length }
    }
}

/// Bytes of all files, holes aside.
fn total(model: &Model) -> u64 {
    let pages = |content: &crate::content::Content| content.page_numbers().count() as u64 * 4096;
    model.objects().filter_map(|(_, object)| object.content()).map(pages).sum()
}

/// Fifos and devices are opened by the face, and the owner changes for root only.
fn opens_what_faces_open(model: &Model, action: &Action) -> bool {
    let path = match action {
        Action::Open { path, .. } => path,
        Action::SetOwner { .. } => return !rustix::process::geteuid().is_root(),
        _ => return false,
    };
    let mut model = model.clone();
    let found = model.apply(&Action::Stat { path: path.clone() });
    let faces = [Kind::Fifo, Kind::CharDevice].map(Kind::d_type);
    matches!(found, Ok(crate::workload::Value::Stat(stat)) if faces.contains(&stat.kind))
}

/// Blocks that are moved take along what their caches hold: the model does not follow that.
pub(crate) fn moves_unsynced(model: &Model, action: &Action) -> bool {
    match *action {
        Action::Allocate { slot, mode, .. } => {
            mode & (COLLAPSE | INSERT) as u32 != 0 && model.is_unsynced(slot)
        }
        Action::Relink { from, to, .. } => model.is_unsynced(from) || model.is_unsynced(to),
        _ => false,
    }
}

/// Directories deeper than this are not made: removing everything would take longer than it tells.
fn too_deep(model: &Model, action: &Action) -> bool {
    fn depth(model: &Model, id: ObjectId) -> u32 {
        match &model.object(id).body {
            Body::Directory { entries, .. } => {
                1 + entries.values().map(|&child| depth(model, child)).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
    let mut model = model.clone();
    let renames = matches!(action, Action::Rename { .. });
    renames && model.apply(action).is_ok() && depth(&model, crate::model::ROOT) > 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_its_sequence() {
        for seed in 0..24 {
            let (one, two) = (sequence(seed, 30), sequence(seed, 30));
            assert_eq!(one, two);
            let (_, longer) = sequence(seed, 40);
            assert_eq!(one.1, longer[..30]);
        }
    }
}
