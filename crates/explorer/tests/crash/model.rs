//! Random action sequences: the volume, the model and a kernel file system must give the same
//! results and the same errors, and hold the same contents at the end.
//!
//! Actions that tmpfs lacks (collapse, insert, zero range, relink) run on the volume and the model
//! only. `SOLERA_SEED=n` draws other sequences, `SOLERA_CASES=n` another number. Each commit has
//! one of four seeds; with `SOLERA_TEST_LONG` 40 times as many sequences are drawn.

use explorer::engine::Engine;
use explorer::kernel::Kernel;
use explorer::model::Model;
use explorer::oracle::{check_volume, free_space, remove_all};
use explorer::workload::{Action, Outcome, System, Value};
use pmem::Region;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vfs::{Kind, Whence};
use volume::{
    AttachOptions, FormatOptions, Mode, Volume, VolumeError, attach_region, format_region,
};

/// What symbolic links point to: a file that nothing can change, so that no path leads through
/// them.
const TARGET: &str = "/proc/version";

/// Directories and files, three levels deep, and a name as long as names may be.
fn path() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c", "d", "e"]).prop_map(str::to_owned),
        1 => (0..12_u32).prop_map(|n| format!("file-{n}")),
        1 => (0..3_u32).prop_map(|n| format!("{n}{}", "x".repeat(254))),
    ];
    prop_oneof![
        4 => name.clone(),
        3 => ("[de]", name.clone()).prop_map(|(dir, name)| format!("{dir}/{name}")),
        1 => ("[de]", "[de]", name).prop_map(|(one, two, name)| format!("{one}/{two}/{name}")),
    ]
}

fn slot() -> impl Strategy<Value = usize> {
    0..4_usize
}

/// Offsets and sizes around the borders that matter.
fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..3000_u64,
        3 => 0..40_000_u64,
        2 => (0..16_u64).prop_map(|blocks| blocks * 4096),
        1 => prop::sample::select(vec![2_u64 << 20, (2 << 20) + 100, 5 << 20, 1 << 30]),
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..3000_u64, 3 => 0..40_000_u64, 2 => (0..9_u64).prop_map(|n| n * 4096)]
}

fn name_action() -> impl Strategy<Value = Action> {
    let (once, both, left) = (libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE, libc::RENAME_WHITEOUT);
    let flags = prop::sample::select(vec![0, 0, 0, once, both, left, left | once]);
    let kinds = [Kind::File, Kind::File, Kind::Directory, Kind::Directory, Kind::Fifo];
    let kind = prop::sample::select(kinds.to_vec());
    let slashes = prop::sample::select(vec![0, 60, 100, 2000]);
    prop_oneof![
        4 => (path(), kind).prop_map(|(path, kind)| Action::Create { path, kind, mode: 0o751 }),
        1 => (path(), slashes).prop_map(|(path, slashes)| {
            Action::Symlink { path, target: format!("{}{TARGET}", "/".repeat(slashes)) }
        }),
        1 => (slot(), any::<bool>()).prop_map(|(slot, exclusive)| {
            Action::Temporary { dir: String::new(), slot, exclusive }
        }),
        2 => (path(), path()).prop_map(|(from, to)| Action::Link { from, to }),
        1 => (slot(), path()).prop_map(|(slot, to)| Action::LinkOpen { slot, to }),
        3 => path().prop_map(|path| Action::Unlink { path }),
        2 => path().prop_map(|path| Action::RemoveDir { path }),
        4 => (path(), path(), flags).prop_map(|(from, to, flags)| {
            Action::Rename { from, to, flags }
        }),
    ]
}

fn attribute_action() -> impl Strategy<Value = Action> {
    let xattr =
        || prop::sample::select(vec!["user.a", "user.b", "user.long-name"]).prop_map(str::to_owned);
    let flags = prop::sample::select(vec![0, 0, libc::XATTR_CREATE, libc::XATTR_REPLACE]);
    let set = (path(), xattr(), 0..700_u64, any::<u16>(), flags);
    let room = prop::sample::select(vec![0_usize, 100, 1000]);
    prop_oneof![
        (path(), 0..0o777_u32).prop_map(|(path, mode)| Action::SetMode { path, mode }),
        (path(), 0..9_u32).prop_map(|(path, uid)| Action::SetOwner { path, uid, gid: uid + 1 }),
        (path(), any::<i32>()).prop_map(|(path, time)| {
            Action::SetTimes { path, atime: i64::from(time) * 99, mtime: i64::from(time) }
        }),
        set.prop_map(|(path, name, length, tag, flags)| {
            Action::SetXattr { path, name, tag: u32::from(tag), length, flags: flags as u32 }
        }),
        (path(), xattr()).prop_map(|(path, name)| Action::RemoveXattr { path, name }),
        (path(), xattr(), room)
            .prop_map(|(path, name, room)| { Action::GetXattr { path, name, room } }),
        path().prop_map(|path| Action::ListXattr { path }),
    ]
}

fn look_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        path().prop_map(|path| Action::Stat { path }),
        path().prop_map(|path| Action::ReadLink { path }),
        path().prop_map(|path| Action::ReadDir { path }),
        slot().prop_map(|slot| Action::StatOpen { slot }),
    ]
}

fn open_action() -> impl Strategy<Value = Action> {
    let accesses = [libc::O_RDWR, libc::O_RDWR, libc::O_RDWR, libc::O_RDONLY, libc::O_WRONLY];
    let access = prop::sample::select(accesses.to_vec());
    let more = prop::sample::select(vec![0, 0, 0, libc::O_APPEND, libc::O_TRUNC]);
    prop_oneof![
        4 => (path(), slot(), access, more).prop_map(|(path, slot, access, more)| {
            Action::Open { path, slot, flags: access | more }
        }),
        1 => slot().prop_map(|slot| Action::Close { slot }),
    ]
}

fn data_action() -> impl Strategy<Value = Action> {
    let whences = [Whence::Set, Whence::Current, Whence::End, Whence::Data, Whence::Hole];
    let whence = prop::sample::select(whences.to_vec());
    let punch = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
    let mode = prop::sample::select(vec![0, libc::FALLOC_FL_KEEP_SIZE, punch]);
    let copy = (slot(), amount(), slot(), amount(), length());
    prop_oneof![
        4 => (slot(), any::<u16>(), length()).prop_map(|(slot, tag, length)| {
            Action::Write { slot, tag: u32::from(tag), length }
        }),
        4 => (slot(), any::<u16>(), amount(), length()).prop_map(|(slot, tag, offset, length)| {
            Action::WriteAt { slot, tag: u32::from(tag), offset, length }
        }),
        2 => (slot(), length()).prop_map(|(slot, length)| Action::Read { slot, length }),
        2 => (slot(), amount(), length()).prop_map(|(slot, offset, length)| {
            Action::ReadAt { slot, offset, length }
        }),
        2 => (slot(), -5000..50_000_i64, whence).prop_map(|(slot, offset, whence)| {
            Action::Seek { slot, offset, whence }
        }),
        1 => (path(), amount()).prop_map(|(path, size)| Action::Truncate { path, size }),
        2 => (slot(), amount()).prop_map(|(slot, size)| Action::TruncateOpen { slot, size }),
        3 => (slot(), mode, amount(), length()).prop_map(|(slot, mode, offset, length)| {
            Action::Allocate { slot, mode: mode as u32, offset, length }
        }),
        2 => copy.prop_map(|(from, from_offset, to, to_offset, length)| {
            Action::CopyRange { from, from_offset, to, to_offset, length }
        }),
        1 => (slot(), any::<bool>()).prop_map(|(slot, data_only)| Action::Sync { slot, data_only }),
        1 => Just(Action::SyncAll),
    ]
}

/// Actions that every kernel file system knows.
fn common_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => name_action(),
        2 => attribute_action(),
        1 => look_action(),
        4 => open_action(),
        6 => data_action(),
    ]
}

/// Whether the contract leaves the action to the face (fifos, devices), Linux forbids it (the mode
/// of a link, the owner of anything unless root asks), or file systems differ in it (positions in
/// directories).
fn foreign(model: &mut Model, action: &Action) -> bool {
    let look = match action {
        Action::SetOwner { .. } => return !rustix::process::geteuid().is_root(),
        Action::Open { path, .. } | Action::SetMode { path, .. } => {
            Action::Stat { path: path.clone() }
        }
        Action::Seek { slot, .. } => Action::StatOpen { slot: *slot },
        _ => return false,
    };
    let Ok(Value::Stat(stat)) = model.apply(&look) else { return false };
    let kinds: &[Kind] = match action {
        Action::Open { .. } => &[Kind::Fifo, Kind::CharDevice],
        Action::SetMode { .. } => &[Kind::Symlink],
        _ => &[Kind::Directory],
    };
    kinds.iter().any(|kind| stat.kind == kind.d_type())
}

/// A fresh directory on tmpfs, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/dev/shm/solera-model-{}-{number}", std::process::id()));
        rustix::fs::mkdir(&path, rustix::fs::Mode::from_raw_mode(0o755)).expect("a directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn runner(cases: u32) -> TestRunner {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let long = rotation::all();
    let turn = if long { 1 } else { 1 + rotation::turn("model", 4) };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number("SOLERA_SEED").unwrap_or(turn.into()).to_le_bytes());
    let cases = if long { cases * 40 } else { cases };
    let cases = number("SOLERA_CASES").map_or(cases, |cases| cases as u32);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// All names, attributes and contents, by the actions that look.
fn compare_all(one: &mut dyn System, two: &mut dyn System) -> Result<(), String> {
    let mut left = vec![String::new()];
    while let Some(path) = left.pop() {
        let looks = [
            Action::Stat { path: path.clone() },
            Action::ListXattr { path: path.clone() },
            Action::ReadLink { path: path.clone() },
            Action::ReadDir { path: path.clone() },
        ];
        for look in &looks {
            let (a, b) = (one.apply(look), two.apply(look));
            same(look, &a, &b)?;
            if let Ok(Value::Entries(entries)) = a {
                left.extend(entries.iter().map(|(name, _)| {
                    let name = String::from_utf8_lossy(name);
                    if path.is_empty() { name.into_owned() } else { format!("{path}/{name}") }
                }));
            }
        }
        compare_content(one, two, &path)?;
    }
    Ok(())
}

fn compare_content(one: &mut dyn System, two: &mut dyn System, path: &str) -> Result<(), String> {
    let Ok(Value::Stat(stat)) = one.apply(&Action::Stat { path: path.into() }) else {
        return Ok(());
    };
    if stat.kind != Kind::File.d_type() {
        return Ok(());
    }
    let open = Action::Open { path: path.into(), slot: 7, flags: libc::O_RDONLY };
    same(&open, &one.apply(&open), &two.apply(&open))?;
    // The generator's offsets lie below 6 MiB, or around 1 GiB.
    for offset in [0, 2 << 20, 4 << 20, 1 << 30] {
        let read = Action::ReadAt { slot: 7, offset, length: (2 << 20) + 4096 };
        same(&read, &one.apply(&read), &two.apply(&read))?;
    }
    let close = Action::Close { slot: 7 };
    same(&close, &one.apply(&close), &two.apply(&close))
}

fn same(action: &Action, one: &Outcome, two: &Outcome) -> Result<(), String> {
    if one == two { Ok(()) } else { Err(format!("{action:?}: {one:?} against {two:?}")) }
}

/// Applies the actions to the model and to the others; compares the results one by one, and all
/// contents at the end.
fn run(
    model: &mut Model,
    others: &mut [&mut dyn System],
    actions: &[Action],
) -> Result<(), String> {
    for (number, action) in actions.iter().enumerate() {
        if foreign(model, action) {
            continue;
        }
        let expected = model.apply(action);
        for (which, other) in others.iter_mut().enumerate() {
            let found = other.apply(action);
            same(action, &expected, &found)
                .map_err(|text| format!("step {number}, system {which}: {text}"))?;
        }
    }
    for (which, other) in others.iter_mut().enumerate() {
        compare_all(model, *other).map_err(|text| format!("end, system {which}: {text}"))?;
    }
    Ok(())
}

fn prepare() {
    rustix::process::umask(rustix::fs::Mode::empty());
}

#[test]
fn model_agrees_with_the_kernel() {
    prepare();
    let actions = prop::collection::vec(common_action(), 1..120);
    let outcome = runner(75).run(&actions, |actions| {
        let scratch = Scratch::new();
        let mut kernel = Kernel::new(&scratch.0);
        run(&mut Model::default(), &mut [&mut kernel], &actions).map_err(TestCaseError::fail)
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// What kernel file systems on tmpfs lack: the other modes of `fallocate`, `relink`, `map`.
fn own_action() -> impl Strategy<Value = Action> {
    let mode = prop::sample::select(vec![
        libc::FALLOC_FL_ZERO_RANGE,
        libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
        libc::FALLOC_FL_COLLAPSE_RANGE,
        libc::FALLOC_FL_INSERT_RANGE,
    ]);
    let blocks = || (0..12_u64).prop_map(|blocks| blocks * 4096);
    let range = prop_oneof![(blocks(), blocks()), (amount(), length())];
    prop_oneof![
        2 => (slot(), mode, range).prop_map(|(slot, mode, (offset, length))| {
            Action::Allocate { slot, mode: mode as u32, offset, length }
        }),
        2 => (slot(), blocks(), slot(), blocks(), blocks()).prop_map(
            |(from, from_offset, to, to_offset, length)| Action::Relink {
                from,
                from_offset,
                to,
                to_offset,
                length,
            }
        ),
        1 => (slot(), blocks(), 1..4_u64).prop_map(|(slot, offset, blocks)| Action::Map {
            slot,
            offset,
            length: blocks * 4096,
        }),
        1 => Just(Action::Compact),
        1 => path().prop_map(|path| Action::Rewrite { path }),
    ]
}

/// A volume in private memory, attached, and its engine.
fn volume(mode: Mode) -> Result<(Arc<Volume>, Engine), TestCaseError> {
    let fail = |error: VolumeError| TestCaseError::fail(error.to_string());
    let region = Region::anonymous(64 << 20).map_err(|e| TestCaseError::fail(e.to_string()))?;
    let format = FormatOptions { seed: Some(1), ..FormatOptions::default() };
    format_region(&region, &format).map_err(fail)?;
    let options = AttachOptions { mode, ..AttachOptions::default() };
    let volume = attach_region(region, &options).map_err(fail)?;
    Ok((volume.clone(), Engine::new(volume)))
}

/// Afterwards the volume's check finds nothing, and all space is free once everything is removed.
fn sound(volume: &Volume, engine: &mut Engine, free_when_empty: u64) -> Result<(), String> {
    check_volume(volume)?;
    engine.close_all().map_err(|errno| format!("closing gives {errno:?}"))?;
    remove_all(engine)?;
    check_volume(volume)?;
    let free = free_space(volume)?;
    if free == free_when_empty { Ok(()) } else { Err(format!("{free} of {free_when_empty} free")) }
}

fn with_volume(actions: &[Action], mode: Mode, kernel: bool) -> Result<(), TestCaseError> {
    let (volume, mut engine) = volume(mode)?;
    let empty = free_space(&volume).map_err(TestCaseError::fail)?;
    let scratch = Scratch::new();
    let mut other = Kernel::new(&scratch.0);
    let mut systems: Vec<&mut dyn System> = vec![&mut engine];
    if kernel {
        systems.push(&mut other);
    }
    run(&mut Model::default(), &mut systems, actions)
        .and_then(|()| sound(&volume, &mut engine, empty))
        .map_err(TestCaseError::fail)
}

fn mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(vec![Mode::Strict, Mode::Sync, Mode::Posix])
}

#[test]
fn the_volume_agrees_with_the_kernel() {
    prepare();
    let actions = prop::collection::vec(common_action(), 1..120);
    let outcome =
        runner(150).run(&(actions, mode()), |(actions, mode)| with_volume(&actions, mode, true));
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn the_volume_agrees_with_the_model() {
    prepare();
    let action = prop_oneof![4 => common_action(), 2 => own_action(), 1 => open_action()];
    let actions = prop::collection::vec(action, 1..150);
    let outcome =
        runner(150).run(&(actions, mode()), |(actions, mode)| with_volume(&actions, mode, false));
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
