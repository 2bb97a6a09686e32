//! Pairs and triples: after one or two calls of a reduced set, each other one of the set. A call's
//! effect depends on the calls before it: two calls show most bugs that one does not.

use crate::cases::Start;
use crate::random::Random;
use crate::workload::Action;
use crate::workload::short::{
    allocate, close, dir, file, link, open, open_append, rename, rewrite, truncate, unlink,
    write_at, write_parts, xattr,
};

const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
const COLLAPSE: i32 = libc::FALLOC_FL_COLLAPSE_RANGE;
const INSERT: i32 = libc::FALLOC_FL_INSERT_RANGE;

/// One call of the set, with what it is called.
pub type Named = (&'static str, Action);

/// What pairs start from: `a` and `b` with data, a directory `d` with `d/c`, an empty one `e`.
#[must_use]
pub fn start() -> Start {
    let mut build = vec![dir("d"), dir("e")];
    for (path, length) in [("a", 9500), ("b", 5000), ("d/c", 100)] {
        build.extend([file(path), open(path, 0), write_at(0, length as u32, 0, length), close(0)]);
    }
    Start { name: "pairs", build, full: false }
}

/// The same files in pieces, in a chunk with next to nothing else in it, beside one that is fuller:
/// there is something to rewrite, and something to compact.
#[must_use]
pub fn start_in_pieces() -> Start {
    let map = |slot| Action::Map { slot, offset: 0, length: 4096 };
    let mut build = vec![dir("d"), dir("e"), file("large"), open("large", 0)];
    build.extend([allocate(0, 0, 0, 500 << 12), close(0)]);
    for (path, length) in [("a", 9500), ("b", 5000), ("d/c", 4200)] {
        let tag = length as u32;
        build.extend([file(path), open(path, 0), write_at(0, tag, 4096, length - 4096)]);
        build.extend([write_at(0, tag + 1, 0, 4096), close(0)]);
    }
    build.extend([file("rest"), open("rest", 3), allocate(3, 0, 0, 88 << 12)]);
    // Mapped files do not move: all stays where it is when the large file goes.
    build.extend([open("a", 0), open("b", 1), open("d/c", 2)]);
    build.extend((0..4).map(map));
    build.push(unlink("large"));
    build.extend((0..4).map(close));
    Start { name: "pieces", build, full: false }
}

/// Calls that move what files hold, and change nothing else: on [`start_in_pieces`].
#[must_use]
pub fn moving_calls() -> Vec<Named> {
    vec![("compact", Action::Compact), ("rewrite", rewrite("a"))]
}

/// A whole block that lies by itself is written: on [`start_in_pieces`].
#[must_use]
pub fn replacing_calls() -> Vec<Named> {
    vec![("replace", write_at(0, 65, 0, 4096))]
}

/// Open before the first call: `a` twice (once for appending), `b` once.
#[must_use]
pub fn opened() -> Vec<Action> {
    vec![open("a", 0), open_append("a", 1), open("b", 2)]
}

/// Calls on contents; small, unaligned, beyond the end, across blocks.
#[must_use]
pub fn data_calls() -> Vec<Named> {
    let append = |slot, length| Action::Write { slot, tag: 60 + slot as u32, length };
    let copy =
        Action::CopyRange { from: 0, from_offset: 100, to: 2, to_offset: 4000, length: 5000 };
    let relink =
        Action::Relink { from: 0, from_offset: 4096, to: 2, to_offset: 4096, length: 4096 };
    let store = Action::StoreMapped { slot: 0, tag: 70, offset: 4000, length: 200 };
    vec![
        ("append", append(1, 700)),
        ("append-block", append(1, 6000)),
        ("write-over", write_at(0, 61, 50, 300)),
        ("write-parts", write_parts(0, 66, 4000, 600, 3)),
        ("write-blocks", write_at(0, 62, 3000, 5000)),
        ("write-across-end", write_at(0, 63, 9000, 2000)),
        ("write-behind-end", write_at(0, 64, 14_000, 300)),
        ("truncate-down", truncate("a", 5001)),
        ("truncate-to-nothing", truncate("a", 0)),
        ("truncate-up", truncate("a", 13_000)),
        ("allocate", allocate(0, 0, 8000, 9000)),
        ("allocate-keep", allocate(0, KEEP, 8000, 20_000)),
        ("punch", allocate(0, PUNCH, 1000, 7192)),
        ("zero", allocate(0, ZERO, 3000, 9000)),
        ("collapse", allocate(0, COLLAPSE, 0, 4096)),
        ("insert", allocate(0, INSERT, 4096, 4096)),
        ("copy", copy),
        ("relink", relink),
        ("rewrite", rewrite("a")),
        ("store-mapped", store),
        ("sync", Action::Sync { slot: 2, data_only: true }),
        ("sync-a", Action::Sync { slot: 0, data_only: false }),
        ("close", close(0)),
    ]
}

/// Calls on names and attributes.
#[must_use]
pub fn name_calls() -> Vec<Named> {
    let exchange = |from: &str, to: &str| Action::Rename {
        from: from.into(),
        to: to.into(),
        flags: libc::RENAME_EXCHANGE,
    };
    let leaving = |from: &str, to: &str| Action::Rename {
        from: from.into(),
        to: to.into(),
        flags: libc::RENAME_WHITEOUT,
    };
    let temporary = Action::Temporary { dir: "d".into(), slot: 3, exclusive: false };
    vec![
        ("create", file("d/n")),
        ("create-beside", file("e/m")),
        ("mkdir", dir("d/n")),
        ("link", link("a", "d/n")),
        ("unlink", unlink("a")),
        ("unlink-closed", unlink("d/c")),
        ("rmdir", Action::RemoveDir { path: "e".into() }),
        ("rename", rename("a", "d/n")),
        ("rename-over", rename("a", "b")),
        ("rename-over-closed", rename("b", "d/c")),
        ("rename-back", rename("d/n", "a")),
        ("rename-dir", rename("d", "e/n")),
        ("rename-dir-over", rename("d", "e")),
        ("exchange", exchange("a", "d/c")),
        ("exchange-dirs", exchange("d", "e")),
        ("whiteout", leaving("a", "d/n")),
        ("mode", Action::SetMode { path: "a".into(), mode: 0o400 }),
        ("xattr", xattr("a", "user.x", 80, 200)),
        ("xattr-remove", Action::RemoveXattr { path: "a".into(), name: "user.x".into() }),
        ("temporary", temporary),
        ("link-open", Action::LinkOpen { slot: 3, to: "d/n".into() }),
    ]
}

/// All calls of the set.
#[must_use]
pub fn calls() -> Vec<Named> {
    [data_calls(), name_calls()].concat()
}

/// Whether the call is made atomic by a lane's record or images, which another lane's call may
/// meet.
#[must_use]
pub fn is_journaled(call: &str) -> bool {
    let names = [
        "write-over",
        "write-parts",
        "write-blocks",
        "allocate-keep",
        "insert",
        "relink",
        "mkdir",
        "link",
        "unlink",
        "rmdir",
        "rename",
        "rename-over",
        "rename-dir",
        "exchange",
        "exchange-dirs",
        "whiteout",
        "mode",
        "xattr",
    ];
    names.contains(&call)
}

/// All pairs, by number.
#[must_use]
pub fn pairs() -> Vec<[usize; 2]> {
    let count = calls().len();
    (0..count).flat_map(|one| (0..count).map(move |two| [one, two])).collect()
}

/// So many triples, drawn by `seed`.
#[must_use]
pub fn triples(seed: u64, count: usize) -> Vec<[usize; 3]> {
    let mut random = Random::new(seed);
    let all = calls().len() as u64;
    let mut one = || random.below(all) as usize;
    (0..count).map(|_| [one(), one(), one()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::settings;
    use crate::engine::Engine;
    use crate::image::Image;

    #[test]
    fn there_is_something_to_compact_and_something_to_rewrite() {
        let image = Image::new(&start_in_pieces()).expect("built");
        let attached = || image.attach(image.region(settings()[0])?, settings()[0]);
        let volume = attached().expect("attached");
        assert_eq!(volume.compact(), Ok(12 << 12), "all of the emptier chunk");
        drop(volume);
        let volume = attached().expect("attached");
        let node = Engine::new(volume.clone()).resolve("a").expect("found");
        assert_eq!(volume.rewrite(node, &mut |_, _| true), Ok(3 << 12));
    }
}
