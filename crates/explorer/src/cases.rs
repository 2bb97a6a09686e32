//! Start states and the calls that are explored on them.
//!
//! Every operation of the contract that changes anything, on every start on which it takes another
//! path: files in holes and in whole chunks, inline and in trees, with holes, with unwritten blocks
//! and with blocks beyond the end; directories with room, full, and about to lose their last names;
//! files that are open, unlinked, mapped, or end in short appends; and a full volume.

use crate::campaign::is_long;
use crate::pairs;
use crate::workload::Action;
use crate::workload::short::{
    allocate, close, dir, file, link, open, open_append, rename, rewrite, symlink, truncate,
    unlink, write_at, write_parts, xattr,
};
use vfs::Kind;

/// A start: what a fresh volume is filled with.
pub struct Start {
    /// Part of the case's identity.
    pub name: &'static str,
    /// Done on a fresh volume, then everything is closed and the volume detached.
    pub build: Vec<Action>,
    /// The volume has no room left: exercising it may fail.
    pub full: bool,
}

/// Calls to be explored, one after the other.
pub struct Case {
    /// Part of the case's identity.
    pub name: String,
    /// Done first, after attaching; not explored.
    pub before: Vec<Action>,
    /// Each is explored.
    pub calls: Vec<Action>,
}

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
const COLLAPSE: i32 = libc::FALLOC_FL_COLLAPSE_RANGE;
const INSERT: i32 = libc::FALLOC_FL_INSERT_RANGE;
const MIB: u64 = 1 << 20;

/// A name as long as names may be.
pub fn long_name(first: char) -> String {
    format!("{first}{}", "n".repeat(254))
}

fn filled(path: &str, tag: u32, pieces: &[(u64, u64)]) -> Vec<Action> {
    let mut actions = vec![file(path), open(path, 0)];
    actions.extend(pieces.iter().map(|&(offset, length)| write_at(0, tag, offset, length)));
    actions.push(close(0));
    actions
}

fn many_names(count: u32) -> Vec<Action> {
    let mut actions = vec![dir("d")];
    actions.extend((0..count).map(|n| file(&format!("d/name-{n}"))));
    actions
}

/// Sizes of the file `f` of the starts with data.
fn data_starts() -> Vec<(Start, u64)> {
    let start = |name, build| Start { name, build, full: false };
    let mut keep = filled("f", 1, &[(0, 3000)]);
    keep.extend([open("f", 0), allocate(0, KEEP, 0, 65_536), close(0)]);
    let mut unwritten = filled("f", 1, &[]);
    unwritten.extend([open("f", 0), allocate(0, 0, 0, 65_536), write_at(0, 1, 10_000, 5000)]);
    unwritten.push(close(0));
    let far = 1 << 30;
    vec![
        (start("empty", filled("f", 1, &[])), 0),
        (start("small", filled("f", 1, &[(0, 3000)])), 3000),
        (start("direct", filled("f", 1, &[(0, 21_714)])), 21_714),
        (start("tree", filled("f", 1, &[(0, 57_444)])), 57_444),
        (start("leaf", filled("f", 1, &[(0, 2 * MIB), (2 * MIB, 5000)])), 2 * MIB + 5000),
        (start("sparse", filled("f", 1, &[(0, 100), (16_384, 8192), (39_000, 1000)])), 40_000),
        (start("far", filled("f", 1, &[(0, 5000), (far, 5000)])), far + 5000),
        (start("keep", keep), 3000),
        (start("unwritten", unwritten), 65_536),
    ]
}

fn data_calls(size: u64) -> Vec<(String, Vec<Action>, Vec<Action>)> {
    let mut all = Vec::new();
    let mut add = |name: &str, before: Vec<Action>, calls: Vec<Action>| {
        all.push((name.to_owned(), before, calls));
    };
    let opened = || vec![open("f", 0)];
    for length in [100, 5000, 20_000] {
        let call = Action::Write { slot: 0, tag: 2, length };
        add(&format!("append-{length}"), vec![open_append("f", 0)], vec![call]);
    }
    for (offset, length) in
        [(0, 8), (54, 20), (50, 100), (1000, 1500), (0, 4096), (100, 4096), (0, 9000)]
    {
        if offset + length <= size {
            let call = write_at(0, 2, offset, length);
            add(&format!("overwrite-{length}-at-{offset}"), opened(), vec![call]);
        }
    }
    for (parts, offset, length) in [(2, 0, 300), (2, 100, 4096), (3, 50, 1500), (8, 3000, 9000)] {
        if offset + length <= size {
            let call = write_parts(0, 2, offset, length, parts);
            add(&format!("overwrite-{length}-from-{parts}"), opened(), vec![call]);
        }
    }
    if size >= 5000 {
        // Each record takes the place of one that stands.
        let lists = vec![
            write_parts(0, 2, 100, 4096, 2),
            write_parts(0, 3, 50, 1500, 3),
            write_at(0, 4, 60, 100),
            write_parts(0, 5, size - 50, 200, 2),
            write_at(0, 6, 70, 2000),
        ];
        add("lists-in-turns", opened(), lists);
    }
    add("write-across-end", opened(), vec![write_at(0, 2, size.saturating_sub(50), 200)]);
    add("write-beyond-end", opened(), vec![write_at(0, 2, size + 5000, 300)]);
    add("write-far", opened(), vec![write_at(0, 2, (2 << 30) + 7, 5000)]);
    for (what, to) in [("0", 0), ("half", size / 2), ("less", size.saturating_sub(1))] {
        add(&format!("truncate-to-{what}"), vec![], vec![truncate("f", to)]);
    }
    add("truncate-up", vec![], vec![truncate("f", size + 10_000)]);
    add("shrink-and-grow", opened(), vec![truncate("f", size / 2), truncate("f", size + 50)]);
    for (what, mode) in [("", 0), ("-keep", KEEP), ("-zero", ZERO), ("-zero-keep", ZERO | KEEP)] {
        let inside = allocate(0, mode, size / 3, 9000);
        add(&format!("allocate{what}-inside"), opened(), vec![inside]);
        let beyond = allocate(0, mode, size + 100, 30_000);
        add(&format!("allocate{what}-beyond"), opened(), vec![beyond]);
    }
    add("punch-part", opened(), vec![allocate(0, PUNCH, 100, 500)]);
    add("punch-blocks", opened(), vec![allocate(0, PUNCH, 3000, 14_000)]);
    add("punch-all", opened(), vec![allocate(0, PUNCH, 0, size.max(1))]);
    add("collapse", opened(), vec![allocate(0, COLLAPSE, 4096, 4096)]);
    add("insert", opened(), vec![allocate(0, INSERT, 4096, 8192)]);
    let flags = libc::O_RDWR | libc::O_TRUNC;
    add("open-truncating", vec![], vec![Action::Open { path: "f".into(), slot: 0, flags }]);
    add("remove", vec![], vec![unlink("f")]);
    add("remove-open", opened(), vec![unlink("f"), write_at(0, 2, 0, 5000), close(0)]);
    let (from_offset, to_offset, length) = (0, size.next_multiple_of(4096) + 4096, size.min(9000));
    let copy = Action::CopyRange { from: 0, from_offset, to: 0, to_offset, length };
    add("copy-inside", opened(), vec![copy]);
    add("mapped", opened(), mapped_calls(size));
    if size >= 3000 {
        // No record of the write stands when the mapping is stored to.
        let map = Action::Map { slot: 0, offset: 0, length: 4096 };
        let store = Action::StoreMapped { slot: 0, tag: 7, offset: 128, length: 64 };
        let sync = Action::Sync { slot: 0, data_only: true };
        let calls = vec![write_at(0, 2, 100, 300), store, sync];
        add("write-and-store-mapped", vec![open("f", 0), map], calls);
    }
    let sync = Action::Sync { slot: 0, data_only: false };
    let dirty = vec![open_append("f", 0), Action::Write { slot: 0, tag: 3, length: 300 }];
    let calls = [sync.clone(), write_at(1, 4, size + 10, 50), sync];
    add("second-descriptor", [dirty, opened_second()].concat(), calls.into());
    all
}

fn opened_second() -> Vec<Action> {
    vec![open("f", 1)]
}

/// Calls on a file that a process has mapped.
fn mapped_calls(size: u64) -> Vec<Action> {
    vec![
        Action::Map { slot: 0, offset: 0, length: 8192 },
        write_at(0, 2, 100, 5000),
        allocate(0, PUNCH, 0, 4096),
        truncate("f", size / 2),
        write_at(0, 3, size, 100),
        close(0),
    ]
}

/// Bytes of overwrites, one for each way in which they are made atomic: in a record, in a lane's
/// data area, in blocks.
const SIZE_CLASSES: [u64; 8] = [8, 24, 25, 1024, 4096, 16_384, 16_385, 262_144];

/// Of these, what is explored in a 2 MiB leaf, which takes long to compare; in the long run all.
const IN_LEAF: [u64; 2] = [4096, 40_000];

/// Overwrites of each size class where the start's file has blocks; then the same on a file that is
/// mapped.
fn sized_calls(size: u64, classes: &[u64]) -> Vec<Case> {
    let map = || Action::Map { slot: 0, offset: 0, length: 4096 };
    let fitting = classes.iter().copied().filter(|length| 3000 + length <= size);
    let case = |length, before: Vec<Action>, mapped| Case {
        name: format!("sized-{length}{mapped}"),
        before,
        calls: vec![write_at(0, 2, 3000, length), write_at(0, 3, 2990, length)],
    };
    fitting
        .flat_map(|length| {
            let opened = vec![open("f", 0)];
            let mapped = vec![open("f", 0), map()];
            [case(length, opened, ""), case(length, mapped, "-mapped")]
        })
        .collect()
}

/// Calls on a file that in mode `posix` ends in a checksummed append and then one that is not
/// committed.
fn lazy_calls() -> Vec<Case> {
    let append = |length| Action::Write { slot: 0, tag: 5, length };
    let before = || {
        let sync = Action::Sync { slot: 0, data_only: false };
        let opens = vec![open_append("f", 0), open("f", 1)];
        [opens, vec![append(200), sync, append(300), append(60)]].concat()
    };
    let case = |name: &str, call| Case {
        name: name.into(),
        before: before(),
        calls: vec![call, append(80), write_at(1, 8, 3100, 200)],
    };
    vec![
        case("lazy-over", write_at(1, 6, 0, 50)),
        case("lazy-over-end", write_at(1, 6, 3500, 100)),
        case("lazy-punch", allocate(1, PUNCH, 3300, 100)),
        case("lazy-map", Action::Map { slot: 1, offset: 0, length: 4096 }),
        case("lazy-rewrite", rewrite("f")),
    ]
}

/// The calls on a chunk-aligned file that do not fit a smaller one.
fn leaf_calls() -> Vec<Case> {
    let case = |name: &str, calls| Case { name: name.into(), before: vec![open("f", 0)], calls };
    vec![
        case("overwrite-in-leaf", vec![write_at(0, 2, MIB, 6000)]),
        case("overwrite-whole-leaf", vec![write_at(0, 2, 0, 2 * MIB)]),
        case("truncate-in-leaf", vec![truncate("f", MIB + 77)]),
        case("punch-in-leaf", vec![allocate(0, PUNCH, MIB, 65_536)]),
        case("append-to-leaf", vec![write_at(0, 2, 2 * MIB + 5000, 100_000)]),
        case("allocate-leaf", vec![allocate(0, 0, 4 * MIB, 2 * MIB)]),
    ]
}

fn name_start() -> Start {
    let mut build = vec![dir("d"), dir("d/e"), dir("empty"), dir("other"), dir("d/e/below")];
    build.extend(filled("f", 1, &[(0, 3000)]));
    build.extend(filled("d/h", 2, &[(0, 100)]));
    build.extend(filled(&long_name('L'), 3, &[(0, 10)]));
    build.push(link("f", "g"));
    build.push(symlink("s", "short"));
    build.push(symlink("t", &"long/".repeat(40)));
    build.push(Action::Create { path: "p".into(), kind: Kind::Fifo, mode: 0o600 });
    build.push(xattr("f", "user.one", 4, 30));
    build.push(xattr("d", "user.two", 5, 300));
    Start { name: "names", build, full: false }
}

fn name_calls() -> Vec<(&'static str, Vec<Action>)> {
    let node = |path: &str, kind| Action::Create { path: path.into(), kind, mode: 0o640 };
    let rmdir = |path: &str| Action::RemoveDir { path: path.into() };
    let long = long_name('M');
    let temporary = |exclusive| Action::Temporary { dir: "d".into(), slot: 0, exclusive };
    vec![
        ("create", vec![file("new")]),
        ("create-below", vec![file("d/e/new")]),
        ("create-in-empty", vec![file("empty/new")]),
        ("create-long", vec![file(&long)]),
        ("mkdir", vec![dir("new")]),
        ("mkdir-below", vec![dir("empty/new"), dir("empty/new/er")]),
        ("symlink", vec![symlink("new", "target")]),
        ("symlink-long", vec![symlink("new", &"x/".repeat(400))]),
        ("fifo", vec![node("new", Kind::Fifo)]),
        ("socket", vec![node("d/new", Kind::Socket)]),
        ("temporary", vec![temporary(true), write_at(0, 6, 0, 5000), close(0)]),
        (
            "temporary-linked",
            vec![
                temporary(false),
                write_at(0, 6, 0, 100),
                Action::LinkOpen { slot: 0, to: "new".into() },
            ],
        ),
        ("link", vec![link("f", "new")]),
        ("link-below", vec![link("d/h", "d/e/new")]),
        ("link-long", vec![link("d/h", &long)]),
        ("unlink-one-of-two", vec![unlink("g")]),
        ("unlink-both", vec![unlink("f"), unlink("g")]),
        ("unlink-last", vec![unlink("d/h")]),
        ("unlink-long", vec![unlink(&long_name('L'))]),
        ("unlink-symlinks", vec![unlink("s"), unlink("t")]),
        ("unlink-fifo", vec![unlink("p")]),
        ("rmdir", vec![rmdir("empty")]),
        ("rmdir-below", vec![rmdir("d/e/below"), rmdir("d/e")]),
        ("mode", vec![Action::SetMode { path: "f".into(), mode: 0o400 }]),
        ("owner", vec![Action::SetOwner { path: "d".into(), uid: 7, gid: 8 }]),
        ("times", vec![Action::SetTimes { path: "f".into(), atime: 9, mtime: 10 }]),
        ("xattr-new", vec![xattr("d/h", "user.new", 7, 40)]),
        ("xattr-more", vec![xattr("f", "user.new", 7, 2000)]),
        ("xattr-replace", vec![xattr("f", "user.one", 7, 200)]),
        ("xattr-dir", vec![xattr("d", "user.two", 7, 10)]),
        ("xattr-remove", vec![Action::RemoveXattr { path: "f".into(), name: "user.one".into() }]),
        ("remove-with-xattr", vec![unlink("f"), unlink("g")]),
        ("rename-over-open", vec![open("d/h", 0), rename("f", "d/h"), close(0)]),
        ("sync-all", vec![file("new"), Action::SyncAll]),
    ]
}

/// Names that come and go at once, where the CPU's operation record keeps an inode (and a block for
/// a directory's first bucket), by the paths that the engine does as programs do.
fn calls_at_once() -> Vec<Case> {
    // Leaves the record an inode, and no name.
    let keeping = Action::Temporary { dir: "d".into(), slot: 0, exclusive: true };
    let before = || vec![keeping.clone(), close(0)];
    let case = |name: &str, calls| Case { name: name.into(), before: before(), calls };
    let node = |path: &str, kind| Action::Create { path: path.into(), kind, mode: 0o640 };
    let link = |path: &str| symlink(path, "short");
    // Two empty directories, and a block that is kept for a bucket: the last one of `n`.
    let mut emptied = before();
    emptied.extend([dir("n"), dir("m"), file("n/x"), unlink("n/x")]);
    let only = |name: &str, calls| Case { name: name.into(), before: emptied.clone(), calls };
    vec![
        only("at-once-first", vec![file("m/a"), link("m/b")]),
        only("at-once-only", vec![file("n/a"), unlink("n/a"), link("n/b"), unlink("n/b")]),
        case("at-once-kinds", vec![link("a"), node("b", Kind::Fifo), unlink("a"), unlink("b")]),
        case("at-once-create", vec![file("a"), file("d/b")]),
        case("at-once-unlink", vec![unlink("d/h")]),
        case("at-once-again", vec![file("a"), unlink("a"), file("c"), unlink("c")]),
    ]
}

fn rename_calls() -> Vec<(&'static str, Vec<Action>)> {
    let exchange = |from: &str, to: &str| Action::Rename {
        from: from.into(),
        to: to.into(),
        flags: libc::RENAME_EXCHANGE,
    };
    let no_replace = |from: &str, to: &str| Action::Rename {
        from: from.into(),
        to: to.into(),
        flags: libc::RENAME_NOREPLACE,
    };
    let leaving = |from: &str, to: &str| Action::Rename {
        from: from.into(),
        to: to.into(),
        flags: libc::RENAME_WHITEOUT,
    };
    vec![
        ("rename-here", vec![rename("f", "new")]),
        ("rename-below", vec![rename("f", "d/new")]),
        ("rename-up", vec![rename("d/h", "new")]),
        ("rename-to-long", vec![rename("f", &long_name('M'))]),
        ("rename-from-long", vec![rename(&long_name('L'), "short")]),
        ("rename-over-here", vec![rename("f", "s")]),
        ("rename-over-below", vec![rename("f", "d/h")]),
        ("rename-over-link", vec![rename("f", "g")]),
        ("rename-over-last", vec![rename("g", "d/h")]),
        ("rename-dir", vec![rename("empty", "new")]),
        ("rename-dir-below", vec![rename("d/e", "other/new")]),
        ("rename-dir-up", vec![rename("d/e/below", "new")]),
        ("rename-dir-over", vec![rename("d/e/below", "empty")]),
        ("rename-dir-over-here", vec![rename("empty", "other")]),
        ("rename-into-itself", vec![rename("d", "d/e/new")]),
        ("no-replace", vec![no_replace("f", "d/new"), no_replace("d/new", "g")]),
        ("exchange-here", vec![exchange("f", "s")]),
        ("exchange-files", vec![exchange("f", "d/h")]),
        ("exchange-file-and-dir", vec![exchange("f", "d/e")]),
        ("exchange-dirs", vec![exchange("d/e", "other")]),
        ("exchange-dirs-here", vec![exchange("empty", "other")]),
        ("whiteout-here", vec![leaving("f", "new")]),
        ("whiteout-below", vec![leaving("f", "d/new")]),
        ("whiteout-from-long", vec![leaving(&long_name('L'), "short")]),
        ("whiteout-over-here", vec![leaving("f", "s")]),
        ("whiteout-over-last", vec![leaving("g", "d/h")]),
        ("whiteout-dir", vec![leaving("d/e", "other/new")]),
        ("whiteout-dir-over", vec![leaving("d/e/below", "empty")]),
        ("whiteout-again", vec![leaving("f", "new"), leaving("new", "f")]),
    ]
}

/// Between the files of the first two slots.
fn relink(from_offset: u64, to_offset: u64, length: u64) -> Action {
    Action::Relink { from: 0, from_offset, to: 1, to_offset, length }
}

fn two_files() -> (Start, Vec<Case>) {
    let mut build = filled("a", 1, &[(0, 24_576)]);
    build.extend(filled("b", 2, &[(0, 16_484)]));
    build.extend(filled("c", 3, &[(0, 100), (8192, 4096)]));
    let both = |one, two| vec![open(one, 0), open(two, 1)];
    let copy = |from_offset, to_offset, length| Action::CopyRange {
        from: 0,
        from_offset,
        to: 1,
        to_offset,
        length,
    };
    let case = |name: &str, before, call| Case { name: name.into(), before, calls: vec![call] };
    let cases = vec![
        case("relink-block", both("a", "b"), relink(4096, 8192, 4096)),
        case("relink-blocks", both("a", "b"), relink(0, 0, 16_384)),
        case("relink-growing", both("a", "b"), relink(8192, 20_480, 16_384)),
        case("relink-tail", both("b", "c"), relink(12_288, 12_288, 4196)),
        case("relink-holes", both("c", "a"), relink(0, 4096, 12_288)),
        case("relink-far", both("a", "b"), relink(0, 1 << 30, 8192)),
        case("relink-inside", vec![open("a", 0), open("a", 1)], relink(0, 12_288, 8192)),
        case("copy", both("a", "b"), copy(0, 0, 24_576)),
        case("copy-unaligned", both("a", "b"), copy(100, 3000, 7000)),
        case("copy-growing", both("a", "b"), copy(0, 16_484, 9000)),
        case("copy-holes", both("c", "b"), copy(0, 0, 12_288)),
    ];
    (Start { name: "two", build, full: false }, cases)
}

fn two_leaves() -> (Start, Vec<Case>) {
    let mut build = filled("a", 1, &[(0, 2 * MIB), (2 * MIB, 8192)]);
    build.extend(filled("b", 2, &[(0, 2 * MIB)]));
    let before = || vec![open("a", 0), open("b", 1)];
    let case = |name: &str, call| Case { name: name.into(), before: before(), calls: vec![call] };
    let cases = vec![
        case("relink-leaf", relink(0, 0, 2 * MIB)),
        case("relink-leaf-behind", relink(0, 2 * MIB, 2 * MIB)),
        case("relink-part-of-leaf", relink(MIB, 4096, 65_536)),
        case("relink-leaf-shifted", relink(0, 2 * MIB + 4096, 2 * MIB)),
    ];
    (Start { name: "leaves", build, full: false }, cases)
}

fn directories() -> Vec<(Start, Vec<Case>)> {
    let case = |name: &str, calls| Case { name: name.into(), before: vec![], calls };
    let full = Start { name: "bucket-full", build: many_names(56), full: false };
    let full_cases = vec![
        case("create-splits", vec![file("d/new")]),
        case("mkdir-splits", vec![dir("d/new")]),
        case("long-name-splits", vec![file(&format!("d/{}", long_name('x')))]),
        case("rename-here-splits", vec![rename("d/name-3", "d/new")]),
        case(
            "exchange-in-full",
            vec![Action::Rename {
                from: "d/name-1".into(),
                to: "d/name-2".into(),
                flags: libc::RENAME_EXCHANGE,
            }],
        ),
        case("link-splits", vec![link("d/name-0", "d/new")]),
        case("move-in-splits", vec![file("new"), rename("new", "d/new")]),
    ];
    let split = Start { name: "bucket-split", build: many_names(70), full: false };
    let all = (0..70).map(|n| unlink(&format!("d/name-{n}"))).collect();
    let split_cases = vec![
        case("remove-all", all),
        case("move-out", vec![rename("d/name-7", "out")]),
        case("rename-here", vec![rename("d/name-7", "d/other")]),
        case("replace-here", vec![rename("d/name-7", "d/name-8")]),
    ];
    vec![(full, full_cases), (split, split_cases)]
}

/// A file that ends in two short appends, each of one fence, and calls that change these bytes.
fn tails() -> (Start, Vec<Case>) {
    let append = |length| Action::Write { slot: 0, tag: 5, length };
    let before = || {
        let opens = [open_append("f", 0), open("f", 1), open("g", 2)];
        [&opens[..], &[append(700), append(60)]].concat()
    };
    // The end is at 10,260.
    let over = |offset, length| vec![write_at(1, 6, offset, length)];
    let place = |mode, offset, length| vec![allocate(1, mode, offset, length)];
    let store = Action::StoreMapped { slot: 1, tag: 7, offset: 9600, length: 300 };
    let move_to = |from, to, offset| Action::Relink {
        from,
        from_offset: offset,
        to,
        to_offset: offset,
        length: 2068,
    };
    let copy = |to_offset, length| {
        vec![Action::CopyRange { from: 2, from_offset: 0, to: 1, to_offset, length }]
    };
    let calls = vec![
        ("over", over(9600, 300)),
        ("over-last", over(10_210, 20)),
        ("over-both", over(9400, 840)),
        ("over-to-end", over(10_200, 60)),
        ("over-block", over(8192, 2068)),
        ("over-and-beyond", over(10_000, 500)),
        ("punch", place(PUNCH, 9600, 400)),
        ("zero", place(ZERO, 9600, 400)),
        ("zero-keep", place(ZERO | KEEP, 8192, 8192)),
        ("collapse", place(COLLAPSE, 4096, 4096)),
        ("insert", place(INSERT, 8192, 4096)),
        ("allocate", place(0, 8192, 20_000)),
        ("allocate-keep", place(KEEP, 8192, 20_000)),
        ("truncate-into", vec![truncate("f", 10_000), truncate("f", 10_200)]),
        ("truncate-before", vec![truncate("f", 9000)]),
        ("truncate-up", vec![truncate("f", 11_000)]),
        ("store", vec![store.clone(), Action::Sync { slot: 1, data_only: true }]),
        ("store-over", [vec![store], over(9700, 100)].concat()),
        ("copy-over", copy(9600, 300)),
        ("relink-over", vec![move_to(2, 1, 8192)]),
        ("relink-away", vec![move_to(1, 2, 8192)]),
        ("close", vec![close(0), close(1), open("f", 0)]),
        ("rewrite", [over(8192, 2068), vec![rewrite("f")]].concat()),
        ("rename", vec![rename("f", "g")]),
        ("attributes", vec![xattr("f", "user.x", 1, 30), Action::SyncAll]),
        ("remove", vec![unlink("f")]),
    ];
    // Then it goes on.
    let more = || [append(200), write_at(1, 8, 9650, 200)];
    let case = |(name, calls): (&str, Vec<Action>)| Case {
        name: name.into(),
        before: before(),
        calls: [&calls[..], &more()[..]].concat(),
    };
    let build = [filled("f", 1, &[(0, 9500)]), filled("g", 2, &[(0, 10_260)])].concat();
    (Start { name: "tail", build, full: false }, calls.into_iter().map(case).collect())
}

/// A volume without room: what needs some fails and changes nothing; what needs little works.
fn full_volume() -> (Start, Vec<Case>) {
    let mut build = filled("f", 1, &[(0, 9000)]);
    build.extend([file("fill"), open("fill", 0)]);
    // Each step takes what is left of its size; those that no longer fit fail and change nothing.
    let mut offset = 0;
    for step in [MIB, 256 << 10, 64 << 10, 16 << 10, 4096] {
        for _ in 0..24 {
            build.push(allocate(0, 0, offset, step));
            offset += step;
        }
    }
    build.push(close(0));
    let opened = || vec![open("f", 0)];
    let case = |name: &str, before, calls| Case { name: name.into(), before, calls };
    let cases = vec![
        case("overwrite", opened(), vec![write_at(0, 2, 100, 8000)]),
        case("truncate", vec![], vec![truncate("f", 10)]),
        case("remove", vec![], vec![unlink("f")]),
        case("remove-filling", vec![], vec![unlink("fill")]),
    ];
    (Start { name: "full", build, full: true }, cases)
}

/// A chunk with a large file and the beginning of another one, whose rest lies in a second chunk:
/// when the large file goes, what is left in the first moves to the second.
fn crowded() -> (Start, Vec<Case>) {
    let mut build = vec![file("a"), open("a", 0), allocate(0, 0, 0, 500 << 12), close(0)];
    build.extend([file("b"), open("b", 0), allocate(0, 0, 0, 100 << 12)]);
    build.extend([write_at(0, 2, 100, 9000), write_at(0, 3, 20_480, 7000), close(0)]);
    let case = |name: &str, before, calls| Case { name: name.into(), before, calls };
    let opened = || vec![open("b", 0)];
    let cases = vec![
        case("remove", vec![], vec![unlink("a")]),
        case("truncate", vec![], vec![truncate("a", 100)]),
        case("remove-beside-open", opened(), vec![unlink("a"), write_at(0, 4, 50, 5000)]),
        case(
            "remove-beside-mapped",
            vec![open("b", 0), Action::Map { slot: 0, offset: 0, length: 8192 }],
            vec![unlink("a"), close(0)],
        ),
    ];
    (Start { name: "crowded", build, full: false }, cases)
}

/// A file of one chunk that lies scattered, its second half before its first: a mapping rewrites it
/// into one whole chunk first; so does the last close after a mapping that could not wait.
fn scattered() -> (Start, Vec<Case>) {
    let mut build = filled("f", 1, &[(MIB, MIB), (0, MIB)]);
    build.extend(filled("g", 2, &[(2 * MIB - 4096, 4096)]));
    let map = Action::Map { slot: 0, offset: 0, length: 8192 };
    let case = |name: &str, before, calls| Case { name: name.into(), before, calls };
    let fill = |slot| [write_at(slot, 3, MIB, MIB - 4096), write_at(slot, 4, 0, MIB)];
    let cases = vec![
        case("map-leaf", vec![open("f", 0)], vec![map.clone(), write_at(0, 5, MIB, 6000)]),
        case("mapped-leaf", [vec![open("g", 0), map], fill(0).into()].concat(), vec![close(0)]),
        case("rewrite-leaf", vec![open("f", 0)], vec![rewrite("f"), write_at(0, 5, MIB, 6000)]),
    ];
    (Start { name: "scattered", build, full: false }, cases)
}

/// Two files that have grown side by side, no two blocks of one together: an overwrite of them goes
/// to several places, listed in one record; a whole block is replaced.
fn apart() -> (Start, Vec<Case>) {
    let mut build = vec![file("f"), open("f", 0), file("g"), open("g", 1)];
    let blocks = (0..5).flat_map(|block| [0, 1].map(|slot| write_at(slot, 1, block << 12, 4096)));
    build.extend(blocks.chain([close(0), close(1)]));
    let before = || vec![open("f", 0), open("g", 1)];
    let case = |name: &str, calls| Case { name: name.into(), before: before(), calls };
    let over = |tag| write_at(0, tag, 100, 4096);
    let whole = |slot, tag| write_at(slot, tag, 4096, 4096);
    let next = |offset, tag| write_at(0, tag, offset, 4096);
    let cases = vec![
        case("overwrite-two", vec![over(2), over(3)]),
        case("overwrite-three", vec![write_at(0, 2, 3000, 6000)]),
        case("overwrite-five", vec![write_at(0, 2, 50, 16_384), write_at(0, 3, 8000, 300)]),
        case("overwrite-and-punch", vec![over(2), allocate(0, PUNCH, 4096, 4096), over(3)]),
        case("overwrite-and-append", vec![over(2), write_at(0, 3, 20_480, 100), over(4)]),
        case("overwrite-and-rewrite", vec![over(2), rewrite("f"), over(3)]),
        case("overwrite-and-remove", vec![over(2), unlink("f"), close(0)]),
        case("replace", vec![whole(0, 2)]),
        case("replace-twice", vec![whole(0, 2), whole(0, 3)]),
        case("replace-in-turns", vec![whole(0, 2), whole(1, 3), whole(0, 4)]),
        case("overwrite-and-replace", vec![over(2), whole(0, 3), whole(1, 4), over(5)]),
        case("replace-three", vec![whole(0, 2), next(8192, 3), next(12_288, 4)]),
        case("replace-and-append", vec![whole(0, 2), write_at(0, 3, 20_480, 100)]),
        case("append-and-replace", vec![write_at(0, 2, 20_480, 100), whole(0, 3)]),
        case("replace-and-punch", vec![whole(0, 2), allocate(0, PUNCH, 4096, 4096), whole(1, 3)]),
        case("replace-and-remove", vec![whole(0, 2), unlink("f"), close(0), whole(1, 3)]),
        case("overwrite-from-two", vec![write_parts(0, 2, 100, 4096, 2), over(3)]),
        case("replace-from-two", vec![write_parts(0, 2, 4096, 4096, 2), whole(0, 3)]),
        case("replace-and-grow", vec![whole(0, 2), write_at(0, 3, 20_480, 9000), whole(1, 4)]),
    ];
    (Start { name: "apart", build, full: false }, cases)
}

/// Rewriting and compaction on request, between calls on the same files.
fn in_pieces() -> (Start, Vec<Case>) {
    let append = Action::Write { slot: 1, tag: 5, length: 700 };
    let case = |name: &str, calls| Case { name: name.into(), before: pairs::opened(), calls };
    let over = || write_at(0, 6, 4096, 4096);
    let cases = vec![
        case("compact", vec![Action::Compact, write_at(0, 6, 3000, 5000), Action::Compact]),
        case("compact-appended", vec![append.clone(), Action::Compact, append.clone()]),
        case("compact-and-remove", vec![Action::Compact, unlink("rest"), Action::Compact]),
        case("rewrite", vec![rewrite("a"), over(), rewrite("a")]),
        case("rewrite-appended", vec![append.clone(), rewrite("a"), append]),
        case("rewrite-unlinked", vec![unlink("a"), rewrite("a"), rewrite("b")]),
        case("rewrite-compact", vec![rewrite("a"), Action::Compact, rewrite("b")]),
    ];
    (pairs::start_in_pieces(), cases)
}

/// All starts with their cases.
#[must_use]
pub fn all() -> Vec<(Start, Vec<Case>)> {
    let mut all = Vec::new();
    for (start, size) in data_starts() {
        let calls = data_calls(size).into_iter();
        let mut cases: Vec<Case> =
            calls.map(|(name, before, calls)| Case { name, before, calls }).collect();
        if start.name == "leaf" {
            cases.extend(leaf_calls());
        }
        let classes: &[u64] = match start.name {
            "leaf" if !is_long() => &IN_LEAF,
            "tree" | "sparse" | "leaf" => &SIZE_CLASSES,
            _ => &[],
        };
        cases.extend(sized_calls(size, classes));
        if start.name == "small" {
            cases.extend(lazy_calls());
        }
        all.push((start, cases));
    }
    let calls = name_calls().into_iter().chain(rename_calls());
    let cases = calls.map(|(name, calls)| Case { name: name.into(), before: vec![], calls });
    all.push((name_start(), cases.chain(calls_at_once()).collect()));
    all.push(two_files());
    all.push(two_leaves());
    all.push(tails());
    all.extend(directories());
    all.push(crowded());
    all.push(scattered());
    all.push(apart());
    all.push(in_pieces());
    all.push(full_volume());
    all
}
