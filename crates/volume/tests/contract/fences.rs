//! What each operation costs in fences and flushed lines: the part of its price that no CPU lowers.
//!
//! The limits are exact where nothing is to be allocated. Whoever raises one says why in the
//! commit.

use pmem::{Region, UserIn, UserOut, costs::CostCounter};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{
    Desc, EntryName, FileSystem, FileSystemExt, IoOffset, Kind, LockKind, LockOwner, Locks,
    NewNode, Node, OpenFlags, RecordLock, Removes, RenameFlags, SetAttr, Synced,
};
use volume::{AttachOptions, FormatOptions, Mode, Volume, attach_region, format_region};

/// A volume whose fences and flushes are counted.
struct Counted {
    volume: Arc<Volume>,
    counts: Arc<CostCounter>,
}

impl Counted {
    fn new(mode: Mode) -> Self {
        let counts = CostCounter::new();
        let region = Region::in_memory(vec![0; 64 << 20], Some(counts.clone()));
        format_region(&region, &FormatOptions::default()).expect("format");
        let options = AttachOptions { mode, ..AttachOptions::default() };
        Self { volume: attach_region(region, &options).expect("attach"), counts }
    }

    /// Fences and flushed lines of a call. The same call has run before: what is lazy, or allocated
    /// once for many, is there.
    fn cost<T>(&self, call: impl FnOnce(&Volume) -> Result<T, Errno>) -> (u64, u64) {
        let now = || {
            let CostCounter { fences, flushed_lines, .. } = &*self.counts;
            (fences.load(Ordering::Relaxed), flushed_lines.load(Ordering::Relaxed))
        };
        let before = now();
        call(&self.volume).expect("a call");
        let after = now();
        (after.0 - before.0, after.1 - before.1)
    }

    fn file(&self, name: &[u8]) -> (Node, Desc) {
        let node = self.volume.create(self.volume.root(), name, &NEW).expect("create");
        (node, self.volume.open(node.into(), OpenFlags(libc::O_RDWR), None).expect("open"))
    }
}

const NEW: NewNode<'_> =
    NewNode { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };

fn append(desc: Desc, length: usize) -> impl FnOnce(&Volume) -> Result<usize, Errno> {
    move |volume| volume.write(desc, &[UserIn::new(&vec![7; length])], IoOffset::POSITION)
}

fn overwrite(desc: Desc, at: u64, length: usize) -> impl FnOnce(&Volume) -> Result<usize, Errno> {
    move |volume| volume.write(desc, &[UserIn::new(&vec![8; length])], IoOffset::offset(at))
}

#[test]
fn an_append_takes_two_fences_a_short_one_takes_one_and_an_overwrite_no_more() {
    for (mode, fences) in [(Mode::Strict, 2), (Mode::Sync, 2), (Mode::Posix, 1)] {
        let counted = Counted::new(mode);
        let (_, desc) = counted.file(b"f");
        counted.cost(append(desc, 4096));
        let (append_fences, lines) = counted.cost(append(desc, 4096));
        assert_eq!(append_fences, fences, "{mode}: bytes and words; size");
        assert!(lines <= 2, "{mode}: the word's line and the commit line, not {lines}");
        counted.cost(append(desc, 128));
        assert_eq!(counted.cost(append(desc, 128)).0, 1, "{mode}, small");
        assert_eq!(counted.cost(append(desc, 1025)).0, 1, "{mode}, less than a page");
        // The first one behind an append may take its slot's sum back.
        counted.cost(overwrite(desc, 0, 1));
        // Strict: the record with the new bytes, then the bytes in place. Else in place.
        let wanted = if mode == Mode::Strict { 2 } else { 1 };
        for (at, length) in [(0, 4096), (64, 64), (100, 24), (100, 4096), (0, 8192)] {
            let (fences, _) = counted.cost(overwrite(desc, at, length));
            assert!(fences <= wanted, "{mode}: {length} at {at}");
        }
        // Posix: the size. Else nothing is lazy but times.
        let wanted = u64::from(mode == Mode::Posix);
        counted.cost(append(desc, 4096));
        assert_eq!(counted.cost(|volume| volume.sync(Synced::Data(desc))).0, wanted, "{mode}");
    }
}

#[test]
fn names_take_two_fences_and_transactions_three() {
    let counted = Counted::new(Mode::Strict);
    let root = counted.volume.root();
    counted.file(b"other");
    let made = counted.cost(|volume| volume.create(root, b"a", &NEW));
    assert_eq!(made.0, 2, "the inode and its entry; the word that makes them exist");
    let lines = "the entry's, its hash's and the word's line, and the parent's commit line";
    assert!(made.1 <= 4, "{lines}, not {}", made.1);
    let renamed = counted.cost(|volume| {
        volume.rename(
            &EntryName::new(root, b"a"),
            &EntryName::new(root, b"b"),
            RenameFlags::default(),
        )
    });
    assert!(renamed.0 <= 2, "{renamed:?}");
    let removed = counted.cost(|volume| volume.remove(&EntryName::new(root, b"b"), Removes::Name));
    assert!(removed.0 <= 1 && removed.1 <= 2, "{removed:?}");
    let directory = NewNode { kind: Kind::Directory, ..NEW };
    assert!(counted.cost(|volume| volume.create(root, b"d", &directory)).0 <= 3);
}

#[test]
fn what_changes_nothing_durable_takes_none() {
    let counted = Counted::new(Mode::Strict);
    let root = counted.volume.root();
    let (node, desc) = counted.file(b"f");
    counted.cost(append(desc, 4096));
    let lock = |kind| RecordLock { kind, start: 0, end: 9, pid: 0 };
    let nothing = [
        counted.cost(|volume| volume.lookup(root, b"f")),
        counted.cost(|volume| volume.attributes(node)),
        counted.cost(|volume| {
            volume.open(node.into(), OpenFlags(0), None).and_then(|desc| volume.close(desc))
        }),
        counted.cost(|volume| {
            let mut bytes = [0; 64];
            volume.read(desc, &mut [UserOut::new(&mut bytes)], IoOffset::offset(0))
        }),
        counted.cost(|volume| {
            volume.record_lock(desc, LockOwner::Process, &lock(LockKind::Write), false)?;
            volume.record_lock(desc, LockOwner::Process, &lock(LockKind::Unlock), false)
        }),
        counted.cost(|volume| volume.sync(Synced::File(desc))),
    ];
    assert_eq!(nothing, [(0, 0); 6]);
}

/// Times come from a clock that stands still for milliseconds: what a sync has committed is often
/// what it would commit again, and then it only looks.
#[test]
fn a_sync_takes_none_while_the_clock_stands_still() {
    for mode in [Mode::Posix, Mode::Sync, Mode::Strict] {
        let counted = Counted::new(mode);
        let (node, desc) = counted.file(b"f");
        counted.cost(append(desc, 4096));
        let time = || counted.volume.attributes(node).expect("attributes").mtime;
        let (mut stood, mut moved) = (0, 0);
        while stood < 50 || moved < 2 {
            counted.cost(overwrite(desc, 0, 512));
            counted.cost(|volume| volume.sync(Synced::File(desc)));
            let before = time();
            if stood >= 50 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            counted.cost(overwrite(desc, 512, 512));
            let same = time() == before;
            let fences = counted.cost(|volume| volume.sync(Synced::File(desc))).0;
            assert_eq!(fences == 0, same, "{mode}: {fences} fences, times the same: {same}");
            *(if same { &mut stood } else { &mut moved }) += 1;
            // A mode of its own moves the change time apart from the contents'.
            let change = SetAttr { mode: Some(0o600 + stood % 8), ..SetAttr::default() };
            counted.cost(|volume| volume.set_attr(node, &change));
        }
    }
}

#[test]
fn attributes_of_a_file_take_two_and_what_comes_then_one_more_at_most() {
    for mode in [Mode::Strict, Mode::Sync, Mode::Posix] {
        let counted = Counted::new(mode);
        let root = counted.volume.root();
        counted.file(b"other");
        let (node, desc) = counted.file(b"f");
        counted.cost(append(desc, 1000));
        let changed = |node, mode| {
            let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
            counted.cost(|volume| volume.set_attr(node, &change)).0
        };
        assert_eq!(changed(node, 0o600), 2, "{mode}");
        assert_eq!(changed(node, 0o640), 2, "{mode}: by the same lane");
        let (from, to) = (EntryName::new(root, b"f"), EntryName::new(root, b"g"));
        let moved = counted.cost(|volume| volume.rename(&from, &to, RenameFlags::new(0)));
        // Of a file whose size is lazy it waits for locks, and for its record to be void.
        assert_eq!(moved.0, if mode == Mode::Posix { 3 } else { 2 }, "{mode}: a rename");
        assert_eq!(counted.cost(append(desc, 100)).0, 1, "{mode}: an append to its last block");
        assert_eq!(changed(node, 0o600), 2, "{mode}");
        if mode == Mode::Strict {
            assert_eq!(counted.cost(overwrite(desc, 0, 600)).0, 2, "an overwrite");
            assert_eq!(changed(node, 0o644), 2, "behind an overwrite");
        }
        assert_eq!(changed(root, 0o700), 3, "{mode}: of a directory");
        assert_eq!(changed(node, 0o400), 2, "{mode}");
        counted.cost(|volume| volume.close(desc));
        let removed = counted.cost(|volume| volume.remove(&to, Removes::Name)).0;
        assert!(removed <= 2, "{mode}: its record is void before it is free: {removed}");
    }
}
