//! Copies of a volume while processes write to it: each is a volume as after a crash between two
//! calls.

use crate::common::{Place, child, get, new_file, put, role};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use vfs::{
    Attached, EntryName, FileSystem, FileSystemExt, Fill, IoOffset, Mapped, Maps, OpenFlags,
    RenameFlags, UserIn,
};
use volume::{
    AttachOptions, ErrorKind, FsckOptions, Mode, SnapshotOptions, Volume, attach, fsck, snapshot,
};

const NO: SnapshotOptions = SnapshotOptions { force: false, keep_uuid: false };
const FORCE: SnapshotOptions = SnapshotOptions { force: true, keep_uuid: false };
/// Bytes of a file that is overwritten by one call at a time.
const WHOLE: usize = 3 * 4096 + 100;
/// Files that a writer keeps.
const KEPT: u64 = 40;

/// A copy's file, removed afterwards.
struct Target(PathBuf);

impl Target {
    fn new(place: &Place, name: &str) -> Self {
        let mut path = place.path().to_owned().into_os_string();
        path.push(format!(".{name}"));
        Self(path.into())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // What is not there need not go.
        let _ = std::fs::remove_file(&self.0);
        let mut anchor = self.0.clone().into_os_string();
        anchor.push(".solera");
        let _ = std::fs::remove_dir_all(anchor);
    }
}

fn bytes_of(number: u64) -> Vec<u8> {
    format!("[{number}]").into_bytes().repeat(1 + (number * 97 % 2000) as usize)
}

/// A process that does not outlive the test.
struct Writer(std::process::Child);

impl Drop for Writer {
    fn drop(&mut self) {
        // One that has ended by itself need not be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes until it is killed: a file, a rename, its number into the log, one call over a whole
/// file.
fn write_for_ever(volume: &Volume, name: &str) {
    let root = volume.root();
    let log = volume.create(root, format!("{name}-log").as_bytes(), &new_file()).expect("made");
    let log =
        volume.open(log.into(), OpenFlags(libc::O_WRONLY | libc::O_APPEND), None).expect("opened");
    let whole = volume.create(root, format!("{name}-whole").as_bytes(), &new_file()).expect("made");
    let whole = volume.open(whole.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
    for number in 0_u64.. {
        let draft = format!("{name}-draft");
        put(volume, &draft, &bytes_of(number));
        let kept = format!("{name}-{}", number % KEPT);
        let (draft, kept) = (draft.as_bytes(), kept.as_bytes());
        volume
            .rename(&EntryName::new(root, draft), &EntryName::new(root, kept), RenameFlags::new(0))
            .expect("renamed");
        let bytes = [number as u8; WHOLE];
        assert_eq!(volume.write(whole, &[UserIn::new(&bytes)], IoOffset::offset(0)), Ok(WHOLE));
        let line = number.to_le_bytes();
        assert_eq!(volume.write(log, &[UserIn::new(&line)], IoOffset::POSITION), Ok(8));
    }
}

/// What one writer left in a copy belongs to one moment.
fn judge(copy: &Volume, name: &str) -> u64 {
    let log = get(copy, &format!("{name}-log")).expect("the log");
    let numbers: Vec<u64> =
        log.chunks(8).map(|line| u64::from_le_bytes(line.try_into().expect("whole"))).collect();
    assert!(numbers.iter().zip(0..).all(|(number, wanted)| *number == wanted), "{name}: a gap");
    let count = numbers.len() as u64;
    for slot in 0..KEPT.min(count) {
        // The last number that went there, or the next if its call was the last to return.
        let last = (0..count).rev().find(|number| number % KEPT == slot).expect("one");
        let found = get(copy, &format!("{name}-{slot}")).expect("kept");
        let next = count % KEPT == slot && found == bytes_of(count);
        assert!(found == bytes_of(last) || next, "{name}: file {slot} is not {last}, of {count}");
    }
    let whole: BTreeSet<u8> =
        get(copy, &format!("{name}-whole")).expect("the whole").into_iter().collect();
    let known = whole
        .first()
        .is_none_or(|byte| (count.saturating_sub(1)..=count).any(|number| number as u8 == *byte));
    assert!(whole.len() <= 1 && known, "{name}: {whole:?} after {count}");
    count
}

#[test]
fn copies_made_while_processes_write_are_whole() {
    let modes = [("strict", Mode::Strict), ("posix", Mode::Posix), ("sync", Mode::Sync)];
    for (name, mode) in modes {
        if role(name) {
            let options = AttachOptions { mode, ..AttachOptions::default() };
            let volume = attach(Place::of_parent().path(), &options).expect("attached");
            write_for_ever(&volume, name);
        }
    }
    let place = Place::formatted("snapshot");
    let volume = place.attach();
    put(&volume, "large", &vec![9; 20 << 20]);
    let test = "copies_made_while_processes_write_are_whole";
    let writers: Vec<_> = modes.iter().map(|(name, _)| Writer(child(test, name, &place))).collect();
    let logged = |name: &str| {
        let log = volume.lookup(volume.root(), format!("{name}-log").as_bytes())?;
        Ok::<_, Errno>(volume.attributes(log)?.size / 8)
    };
    while !modes.iter().all(|(name, _)| logged(name).is_ok_and(|count| count > 10)) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let target = Target::new(&place, "copy");
    for round in 0..6 {
        let before: Vec<u64> = modes.iter().map(|(name, _)| logged(name).expect("it")).collect();
        let report = snapshot(place.path(), &target.0, FORCE, &mut |_, _| {}).expect("copied");
        let after: Vec<u64> = modes.iter().map(|(name, _)| logged(name).expect("it")).collect();
        assert!(report.shared || report.bytes_in_pause < report.bytes / 2, "{report:?}");
        let checked = fsck(&target.0, &FsckOptions::default(), &mut |_, _| {}).expect("checked");
        assert_eq!(checked.faults, [], "copy {round}");
        let copy = attach(&target.0, &AttachOptions::default()).expect("attached");
        assert!(get(&copy, "large").expect("read").iter().all(|byte| *byte == 9));
        for (index, (name, _)) in modes.iter().enumerate() {
            let count = judge(&copy, name);
            let possible = before[index]..=after[index] + 1;
            assert!(possible.contains(&count), "{name}: {count} is none of {possible:?}");
        }
        put(&copy, "new", b"it can be written");
        copy.detach().expect("detached");
    }
    drop(writers);
}

#[test]
fn a_copy_of_a_volume_at_rest_is_the_volume() {
    let place = Place::formatted("at-rest");
    let volume = place.attach();
    for number in 0..300 {
        put(&volume, &format!("file {number}"), &bytes_of(number));
    }
    volume.detach().expect("detached");
    let target = Target::new(&place, "copy");
    snapshot(place.path(), &target.0, NO, &mut |_, _| {}).expect("copied");
    let (copy, volume) =
        (attach(&target.0, &AttachOptions::default()).expect("attached"), place.attach());
    for number in 0..300 {
        assert_eq!(get(&copy, &format!("file {number}")).expect("read"), bytes_of(number));
    }
    let (a, b) = (copy.statistics().expect("statistics"), volume.statistics().expect("statistics"));
    assert_eq!((a.blocks_free, a.blocks), (b.blocks_free, b.blocks));
}

#[test]
fn a_copy_is_a_volume_of_its_own_unless_it_is_to_be_the_same() {
    let place = Place::formatted("identity");
    let volume = place.attach();
    put(&volume, "a", b"one");
    let identity = |path: &std::path::Path| volume::info(path).expect("info").uuid;
    let target = Target::new(&place, "copy");
    snapshot(place.path(), &target.0, NO, &mut |_, _| {}).expect("copied");
    assert_ne!(identity(&target.0), identity(place.path()));
    // Both in use at once, and each its own device.
    let copy = attach(&target.0, &AttachOptions::default()).expect("attached");
    let device = |volume: &Volume| volume.statistics().expect("statistics").device;
    assert_ne!(device(&copy), device(&volume));
    put(&copy, "b", b"two");
    assert_eq!(get(&copy, "a").expect("read"), b"one");
    assert!(get(&volume, "b").is_err(), "what is made in the copy is not in the volume");
    copy.detach().expect("detached");
    drop(copy);
    let same = SnapshotOptions { force: true, keep_uuid: true };
    snapshot(place.path(), &target.0, same, &mut |_, _| {}).expect("copied");
    assert_eq!(identity(&target.0), identity(place.path()));
}

/// A program that stores through a mapping makes no call: such a file is copied in the pause, and
/// what was stored before is there. One that does not fit the mode of the rest: blocks beyond the
/// end.
#[test]
fn mapped_files_and_reserved_blocks_are_copied() {
    let place = Place::formatted("mapped");
    let volume = place.attach();
    let file = volume.create(volume.root(), b"mapped", &new_file()).expect("made");
    let desc = volume.open(file.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
    let bytes: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 4096) as u8).collect();
    volume.write(desc, &[UserIn::new(&bytes)], IoOffset::offset(0)).expect("written");
    volume.map(desc, (0, 4096), Mapped::Write, Fill::All).expect("mapped");
    put(&volume, "still", &vec![7; 100_000]);
    let reserved = volume.lookup(volume.root(), b"still").expect("there");
    let reserved = volume.open(reserved.into(), OpenFlags(libc::O_RDWR), None).expect("opened");
    volume.allocate(reserved, libc::FALLOC_FL_KEEP_SIZE as u32, 0, 8 << 20).expect("reserved");
    let target = Target::new(&place, "copy");
    let report = snapshot(place.path(), &target.0, NO, &mut |_, _| {}).expect("copied");
    let reserved = 8 << 20;
    assert!(report.shared || report.bytes_in_pause >= bytes.len() as u64, "{report:?}");
    assert!(report.shared || report.bytes_in_pause < report.bytes - reserved / 2, "{report:?}");
    let copy = attach(&target.0, &AttachOptions::default()).expect("attached");
    assert_eq!(get(&copy, "mapped").expect("read"), bytes);
    assert_eq!(get(&copy, "still").expect("read"), vec![7; 100_000]);
    let checked = fsck(&target.0, &FsckOptions::default(), &mut |_, _| {}).expect("checked");
    assert_eq!(checked.faults, []);
}

#[test]
fn what_is_there_is_not_replaced() {
    let place = Place::formatted("refused");
    put(&place.attach(), "a", b"one");
    let target = Target::new(&place, "copy");
    std::fs::write(&target.0, b"precious").expect("written");
    let refused = |options, wanted| {
        let error = snapshot(place.path(), &target.0, options, &mut |_, _| {}).err();
        assert_eq!(error.expect("refused").kind(), wanted);
    };
    refused(NO, ErrorKind::Exists);
    assert_eq!(std::fs::read(&target.0).expect("read"), b"precious");
    snapshot(place.path(), &target.0, FORCE, &mut |_, _| {}).expect("replaced");
    let copy = attach(&target.0, &AttachOptions::default()).expect("attached");
    assert_eq!(get(&copy, "a").expect("read"), b"one");
    refused(FORCE, ErrorKind::InUse);
    let itself = snapshot(place.path(), place.path(), FORCE, &mut |_, _| {});
    assert_eq!(itself.expect_err("refused").kind(), ErrorKind::Invalid);
    let nowhere = place.path().join("no/such/directory");
    assert!(snapshot(place.path(), &nowhere, NO, &mut |_, _| {}).is_err());
    let left = std::fs::read_dir(place.path().parent().expect("a directory")).expect("listed");
    let mine = format!("solera-test-{}-refused", std::process::id());
    for entry in left {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        assert!(!(name.starts_with(&mine) && name.ends_with(".partial")), "{name} is left");
    }
}
