//! Judges what a recovered volume holds, and whether it can be used.
//!
//! After a call has returned, its effect stands. While it runs: before or after, and nothing else;
//! but in the modes `sync` and `posix` the *data* of a call may be torn inside the call's own
//! range: each byte is the old or the new one, and bytes beyond the old end are the new ones,
//! whatever part of the growth is durable. In mode `posix` growth by writes is durable at `fsync`:
//! until then the size may be any that the file had since, and what lies below it is as it was
//! written. In no mode does a file ever show bytes that were not written to it: each write has data
//! of its own.

use crate::comparison::{compare, exactly, has_reserved, unexplained};
use crate::content::{Content, PAGE, fill};
use crate::engine::Engine;
use crate::model::{Model, Object, ObjectId};
use crate::workload::{Action, System, short};
use rustix::io::Errno;
use std::collections::BTreeSet;
use vfs::{EntryName, FileSystemExt, Kind, Node, Removes};
use volume::{FsckOptions, Mode, Volume};

/// The call during or after which power failed.
pub struct Call<'m> {
    /// The model before it; nothing open.
    pub before: &'m Model,
    /// The model after it; nothing open.
    pub after: &'m Model,
    /// What was called.
    pub action: &'m Action,
    /// The mode of the process.
    pub mode: Mode,
    /// When power failed, at the latest.
    pub latest: vfs::Nanos,
}

/// Whether the call moves bytes of files (and not names, sizes and maps alone).
pub(crate) fn moves_data(action: &Action) -> bool {
    match action {
        Action::Write { .. }
        | Action::WriteAt { .. }
        | Action::WriteParts { .. }
        | Action::CopyRange { .. } => true,
        Action::Allocate { mode, .. } => {
            let whole = libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE;
            mode & whole as u32 == 0
        }
        _ => false,
    }
}

impl Call<'_> {
    /// Compares what is there with what may be there.
    pub fn check(&self, engine: &Engine, returned: bool) -> Result<(), String> {
        let mut rule: &dyn Fn(ObjectId, &Object, &Content) -> Option<String> = &exactly;
        if self.mode == Mode::Posix {
            rule = &prefix;
        }
        let after = compare(engine, self.after, rule);
        if after.is_ok() || returned {
            let after = after.and_then(|()| {
                // A call may take them away before it does what it was made for.
                if returned { has_reserved(engine, self.after) } else { Ok(()) }
            });
            return after.map_err(|text| format!("after the call returned: {text}"));
        }
        let before = compare(engine, self.before, rule);
        if before.is_ok() {
            return Ok(());
        }
        if self.mode != Mode::Strict && moves_data(self.action) {
            let torn =
                |id: ObjectId, object: &Object, found: &Content| self.torn(id, object, found);
            return compare(engine, self.after, &torn).map_err(|text| format!("torn: {text}"));
        }
        let texts = (before.err().unwrap_or_default(), after.err().unwrap_or_default());
        Err(format!("neither before ({}) nor after ({})", texts.0, texts.1))
    }

    fn torn(&self, id: ObjectId, object: &Object, found: &Content) -> Option<String> {
        let old = self.before.objects().find(|(other, _)| *other == id)?.1;
        let (was, is) = (old.content()?, object.content()?);
        let mut sizes: BTreeSet<u64> = [was.size(), is.size()].into();
        if self.mode == Mode::Posix {
            sizes.extend(old.durable_sizes.iter().chain(&object.durable_sizes));
        }
        // A copy has the guarantees of a write for each of its pieces.
        let pieces = matches!(self.action, Action::CopyRange { .. });
        let between = was.size().min(is.size())..=was.size().max(is.size());
        if !(sizes.contains(&found.size()) || pieces && between.contains(&found.size())) {
            return Some(format!("size {} is none of {sizes:?}", found.size()));
        }
        differs_torn(object, was, is, found)
    }
}

/// Mode `posix`: the size is one that may be durable, and everything below it is as written.
pub(crate) fn prefix(_: ObjectId, object: &Object, found: &Content) -> Option<String> {
    let expected = object.content()?;
    if !object.durable_sizes.contains(&found.size()) {
        return Some(format!("size {} is none of {:?}", found.size(), object.durable_sizes));
    }
    let mut expected = expected.clone();
    expected.truncate(found.size().min(expected.size()));
    unexplained(object, &expected, found)
}

/// The first byte that is neither the old nor the new one, or beyond the old end not the new one.
fn differs_torn(object: &Object, was: &Content, is: &Content, found: &Content) -> Option<String> {
    let pages: BTreeSet<u64> =
        was.page_numbers().chain(is.page_numbers()).chain(found.page_numbers()).collect();
    for page in pages {
        let start = page * PAGE;
        let [old, new, now] = [was, is, found].map(|content| content.read(start, PAGE));
        for (index, &byte) in now.iter().enumerate() {
            let old_byte = old.get(index).copied();
            let new_byte = new.get(index).copied().unwrap_or(0);
            let at = start + index as u64;
            if byte != new_byte && Some(byte) != old_byte && !object.may_be(at, byte) {
                return Some(format!(
                    "byte at {at:#x} is {byte:#x}, neither old {old_byte:x?} nor new {new_byte:#x}"
                ));
            }
        }
    }
    None
}

fn expect(engine: &mut Engine, action: &Action) -> Result<(), String> {
    engine.apply(action).map(drop).map_err(|errno| format!("using it: {action:?}: {errno:?}"))
}

/// Makes, writes, renames, links and removes something: a recovered volume must take it.
pub fn exercise(engine: &mut Engine) -> Result<(), String> {
    let steps = [
        short::dir("zz"),
        short::file("zz/one"),
        short::open("zz/one", 7),
        short::write_at(7, 9001, 0, 10_000),
        short::write_at(7, 9002, 10_000, 3000),
        short::write_at(7, 9003, 4090, 100),
        short::rename("zz/one", "zz/two"),
        short::link("zz/two", "zz/three"),
        short::unlink("zz/two"),
        Action::Sync { slot: 7, data_only: false },
    ];
    steps.iter().try_for_each(|step| expect(engine, step))?;
    let mut expected = fill(9001, 10_000);
    expected.extend(fill(9002, 3000));
    expected[4090..4190].copy_from_slice(&fill(9003, 100));
    let found = engine.apply(&Action::ReadAt { slot: 7, offset: 0, length: 20_000 });
    if found != Ok(crate::workload::Value::Bytes(expected)) {
        return Err(format!("using it: read back {found:?}"));
    }
    let steps =
        [short::close(7), short::unlink("zz/three"), Action::RemoveDir { path: "zz".into() }];
    steps.iter().try_for_each(|step| expect(engine, step))
}

/// Removes everything below the root, each directory by its names.
pub fn remove_all(engine: &Engine) -> Result<(), String> {
    remove_in_order(engine, false)
}

/// Removes everything below the root, each directory in the order of its entries, the last ones
/// first.
pub fn remove_all_backwards(engine: &Engine) -> Result<(), String> {
    remove_in_order(engine, true)
}

fn remove_in_order(engine: &Engine, backwards: bool) -> Result<(), String> {
    fn below(engine: &Engine, dir: Node, backwards: bool) -> Result<(), (String, Errno)> {
        let fs = engine.file_system();
        let told = |name: &[u8]| {
            let name = String::from_utf8_lossy(name).into_owned();
            move |errno| (name, errno)
        };
        let mut entries = engine.entries_as_told(dir).map_err(told(b"."))?;
        if backwards {
            entries.reverse();
        } else {
            entries.sort();
        }
        for (name, kind) in entries {
            if kind == Kind::Directory.d_type() {
                below(engine, fs.lookup(dir, &name).map_err(told(&name))?, backwards)?;
                fs.remove(&EntryName::new(dir, &name), Removes::Directory).map_err(told(&name))?;
            } else {
                fs.remove(&EntryName::new(dir, &name), Removes::Name).map_err(told(&name))?;
            }
        }
        Ok(())
    }
    let root = engine.file_system().root();
    below(engine, root, backwards)
        .map_err(|(name, errno)| format!("removing \"{name}\": {errno:?}"))?;
    let list = engine.entries(root).map_err(|errno| format!("reading the root: {errno:?}"))?;
    if list.is_empty() { Ok(()) } else { Err(format!("{} names cannot be removed", list.len())) }
}

/// What the volume's own check finds.
pub fn check_volume(volume: &Volume) -> Result<(), String> {
    let report = volume.check(&FsckOptions::default());
    let report = report.map_err(|errno| format!("the check gives {errno:?}"))?;
    match report.faults.first() {
        None => Ok(()),
        Some(fault) => Err(format!(
            "the check finds {} faults, first {} at {}: {}",
            report.faults.len(),
            fault.code,
            fault.place,
            fault.meaning
        )),
    }
}

/// The sum of all space: its parts add up, and give the free bytes.
pub fn free_space(volume: &Volume) -> Result<u64, String> {
    let info = volume.info().map_err(|errno| format!("info gives {errno:?}"))?;
    let parts = [info.data_bytes, info.hole_bytes, info.free_aligned_bytes, info.metadata_bytes];
    if parts.iter().sum::<u64>() != info.size_bytes {
        return Err(format!("{parts:?} do not add up to {}", info.size_bytes));
    }
    Ok(info.free_bytes)
}
