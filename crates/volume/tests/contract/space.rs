//! Space and soundness, from outside: what `info`, `fsck` and `trim` say of a volume that is in
//! use, full, crashed or damaged. None of them ever changes a byte that they look at.

use crate::common::{Place, child, get, new_file, put, role};
use rustix::io::Errno;
use vfs::{
    Attached, EntryName, FileSystem, FileSystemExt, IoOffset, Node, OpenFlags, Removes, UserIn,
};
use volume::{FsckOptions, FsckReport, Info, Volume, fsck, info};

const MIB: u64 = 1 << 20;

fn check(place: &Place) -> FsckReport {
    fsck(place.path(), &FsckOptions::default(), &mut |_, _| {}).expect("checked")
}

/// `info`, after a look at its sums.
fn look(place: &Place) -> Info {
    let info = info(place.path()).expect("looked at");
    let parts = [info.data_bytes, info.hole_bytes, info.free_aligned_bytes, info.metadata_bytes];
    assert_eq!(parts.iter().sum::<u64>(), info.size_bytes);
    assert_eq!(info.free_bytes, info.hole_bytes + info.free_aligned_bytes);
    info
}

fn file(volume: &Volume, dir: Node, name: &str) -> Result<Node, Errno> {
    volume.create(dir, name.as_bytes(), &new_file())
}

fn write(volume: &Volume, node: Node, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
    let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None)?;
    let written = volume.write(desc, &[UserIn::new(bytes)], IoOffset::offset(offset));
    volume.close(desc)?;
    written
}

#[test]
fn info_of_a_volume_in_use_is_that_of_its_processes() {
    let place = Place::formatted("in-use");
    let empty = look(&place);
    assert!(empty.clean && empty.attached.is_empty());
    let volume = place.attach();
    put(&volume, "a", &vec![1; 3 * MIB as usize]);
    let seen = look(&place);
    assert_eq!(seen.attached.len(), 1);
    assert_eq!(seen.attached[0].pid, std::process::id());
    assert_eq!(seen.inodes_used, 2);
    assert_eq!(seen.data_bytes, 3 * MIB);
    assert!(!seen.clean);
    assert_eq!(volume.info().expect("own look").free_bytes, seen.free_bytes);
    volume.detach().expect("detached");
    let after = look(&place);
    assert_eq!(after.free_bytes, seen.free_bytes);
    assert!(after.clean && after.attached.is_empty());
}

#[test]
fn fsck_finds_a_volume_sound_while_others_change_it() {
    if role("busy") {
        let volume = Place::of_parent().attach();
        let root = volume.root();
        for round in 0..3000_u32 {
            let name = format!("{}-{}", std::process::id(), round % 20);
            let _ = volume.remove(&EntryName::new(root, name.as_bytes()), Removes::Name);
            let node = file(&volume, root, &name).expect("created");
            write(&volume, node, 0, &vec![1; round as usize % 9000]).expect("written");
        }
        return;
    }
    let place = Place::formatted("busy");
    let name = "fsck_finds_a_volume_sound_while_others_change_it";
    let mut children: Vec<_> = (0..2).map(|_| child(name, "busy", &place)).collect();
    let volume = place.attach();
    let mut checks = 0;
    while children.iter_mut().any(|child| child.try_wait().expect("asked").is_none()) {
        let report = check(&place);
        assert_eq!(report.faults, []);
        checks += 1;
    }
    assert!(checks > 0 && children.iter_mut().all(|child| child.wait().expect("ended").success()));
    volume.detach().expect("detached");
    assert_eq!(check(&place).faults, []);
}

#[test]
fn a_crashed_volume_is_looked_at_and_checked_without_being_changed() {
    let place = Place::formatted("crashed");
    let volume = place.attach();
    put(&volume, "a", &vec![1; 100_000]);
    let crashed = Place::new("crashed-copy");
    std::fs::copy(place.path(), crashed.path()).expect("copied");
    let before = std::fs::read(crashed.path()).expect("read");
    let seen = look(&crashed);
    assert!(!seen.clean);
    assert_eq!(seen.free_bytes, look(&place).free_bytes);
    let report = check(&crashed);
    assert_eq!((report.files, report.directories), (1, 1));
    assert_eq!(report.faults, []);
    assert!(before == std::fs::read(crashed.path()).expect("read"), "a look has changed it");
    let volume = crashed.attach();
    assert_eq!(get(&volume, "a").expect("read").len(), 100_000);
    assert_eq!(look(&crashed).free_bytes, seen.free_bytes);
}

#[test]
fn a_full_volume_still_overwrites_truncates_and_unlinks() {
    let place = Place::formatted("full");
    let volume = place.attach();
    let root = volume.root();
    let first = file(&volume, root, "first").expect("created");
    write(&volume, first, 0, &vec![1; 300_000]).expect("written");
    let before = look(&place);
    let filler = file(&volume, root, "filler").expect("created");
    let mut end = 0;
    for piece in [MIB, 4096] {
        let bytes = vec![2; piece as usize];
        loop {
            let full = look(&place);
            match write(&volume, filler, end, &bytes) {
                Ok(written) => end += written as u64,
                Err(errno) => {
                    assert_eq!(errno, Errno::NOSPC);
                    assert_eq!(look(&place).free_bytes, full.free_bytes, "a failure took space");
                    assert_eq!(volume.attributes(filler).expect("attributes").size, end);
                    break;
                }
            }
        }
    }
    assert!(look(&place).free_bytes > 0, "the reserve is kept");
    for offset in [0, 5000, 4096 * 20] {
        assert_eq!(write(&volume, first, offset, &[3; 10_000]), Ok(10_000), "overwritten");
    }
    for index in 0.. {
        // Names need inodes, inodes need space: at some point there is none left either.
        match file(&volume, root, &format!("empty {index}")) {
            Ok(_) => {}
            Err(errno) => {
                assert_eq!(errno, Errno::NOSPC);
                break;
            }
        }
    }
    for index in 0.. {
        let name = format!("{index} {}", "long".repeat(50));
        if let Err(errno) = volume.link(first, root, name.as_bytes()) {
            assert_eq!(errno, Errno::NOSPC);
            break;
        }
    }
    assert_eq!(write(&volume, first, 100, &[4; 12_000]), Ok(12_000), "overwritten again");
    volume.truncate(first, 7777).expect("truncated");
    volume.truncate(filler, end / 2).expect("truncated");
    assert_eq!(check(&place).faults, []);
    let mut names = Vec::new();
    volume
        .read_dir(root, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .expect("listed");
    for name in names.iter().filter(|name| !name.starts_with(b".") && *name != b"first") {
        volume.remove(&EntryName::new(root, name), Removes::Name).expect("unlinked");
    }
    write(&volume, first, 0, &vec![1; 300_000]).expect("written");
    assert_eq!(look(&place).free_bytes, before.free_bytes);
    assert_eq!(look(&place).inodes_used, before.inodes_used);
    assert_eq!(check(&place).faults, []);
}

#[test]
fn trim_gives_the_memory_of_free_chunks_back() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::formatted("trim");
    let held = || std::fs::metadata(place.path()).expect("there").blocks() * 512;
    let volume = place.attach();
    put(&volume, "kept", &vec![1; 3 * MIB as usize]);
    let before = held();
    put(&volume, "dropped", &vec![2; 20 * MIB as usize]);
    volume.remove(&EntryName::new(volume.root(), b"dropped"), Removes::Name).expect("unlinked");
    assert!(held() >= before + 18 * MIB);
    let free = look(&place).free_bytes;
    let given = volume.trim().expect("trimmed");
    assert!(given >= 18 * MIB, "{given} bytes");
    assert!(held() <= before + MIB);
    assert_eq!(look(&place).free_bytes, free);
    assert_eq!(get(&volume, "kept").expect("read"), vec![1; 3 * MIB as usize]);
    put(&volume, "again", &vec![3; 20 * MIB as usize]);
    assert_eq!(get(&volume, "again").expect("read"), vec![3; 20 * MIB as usize]);
    assert_eq!(check(&place).faults, []);
}

#[test]
fn a_volume_grows_under_its_processes() {
    let place = Place::formatted("grow");
    let (first, second) = (place.attach(), place.attach());
    put(&first, "a", &[1; 5000]);
    let before = look(&place);
    first.grow(before.size_bytes + 64 * MIB).expect("grown");
    let after = look(&place);
    assert_eq!(after.size_bytes, before.size_bytes + 64 * MIB);
    assert_eq!(after.free_bytes, before.free_bytes + 64 * MIB);
    put(&second, "b", &vec![2; (before.free_bytes + 20 * MIB) as usize]);
    assert_eq!(check(&place).faults, []);
    first.detach().expect("detached");
    second.detach().expect("detached");
    assert_eq!(check(&place).faults, []);
    assert_eq!(look(&place).size_bytes, after.size_bytes);
}

#[test]
fn a_killed_process_leaves_nothing_allocated_behind() {
    if role("victim") {
        let volume = Place::of_parent().attach();
        let root = volume.root();
        for round in 0..u32::MAX {
            let name = format!("{}", round % 50);
            if let Ok(node) = volume.lookup(root, name.as_bytes()) {
                let _ = volume.truncate(node, u64::from(round) % 40_000);
                let _ = volume.remove(&EntryName::new(root, name.as_bytes()), Removes::Name);
            } else if let Ok(node) = file(&volume, root, &name) {
                let bytes = vec![1; (round as usize * 7919) % 100_000];
                let _ = write(&volume, node, u64::from(round) % 9000, &bytes);
            }
        }
    }
    let place = Place::formatted("victim");
    let name = "a_killed_process_leaves_nothing_allocated_behind";
    let volume = place.attach();
    put(&volume, "mine", &[1; 12_000]);
    for round in 0..25 {
        let mut victims: Vec<_> = (0..2).map(|_| child(name, "victim", &place)).collect();
        std::thread::sleep(std::time::Duration::from_millis(30 + round * 7 % 20));
        for victim in &mut victims {
            victim.kill().expect("killed");
            victim.wait().expect("ended");
        }
        let living = volume::detach_dead(place.path()).expect("recovered");
        assert_eq!(living.len(), 1, "only this process is left");
        assert_eq!(check(&place).faults, [], "round {round}");
        look(&place);
        assert_eq!(get(&volume, "mine").expect("read"), [1; 12_000]);
    }
    volume.detach().expect("detached");
    assert_eq!(check(&place).faults, []);
}
