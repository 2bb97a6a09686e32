//! What stores of a volume need goes by the memory that it lies in now, not by that in which it was
//! made.

use crate::common::{Place, get, put};
use pmem::{Class, Policy, class_of};
use std::path::PathBuf;
use vfs::Attached;
use volume::{AttachOptions, FsckOptions, SnapshotOptions, attach, fsck, info, snapshot};

/// A file on the disk of the build directory, removed afterwards with its anchor.
struct OnDisk(PathBuf);

impl OnDisk {
    fn new(name: &str) -> Self {
        let name = format!("policy-{name}-{}", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        // What is not there need not go.
        let _ = std::fs::remove_file(&self.0);
        let mut anchor = self.0.clone().into_os_string();
        anchor.push(".solera");
        let _ = std::fs::remove_dir_all(anchor);
    }
}

#[test]
fn in_memory_stores_are_plain_wherever_the_volume_is_moved_to() {
    let place = Place::of_size("policy", 64 << 20);
    let volume = place.attach();
    assert_eq!((volume.class().0, volume.policy()), (Class::Volatile, Policy::Plain));
    put(&volume, "before", &[1; 9000]);
    volume.grow(128 << 20).expect("grown");
    assert_eq!(volume.policy(), Policy::Plain, "what was added, too");
    volume.detach().expect("detached");
    assert_eq!(info(place.path()).expect("info").policy, "plain");
    let forced = AttachOptions { class: Some(Class::CacheLine), ..AttachOptions::default() };
    let volume = attach(place.path(), &forced).expect("attached");
    assert_eq!(volume.policy(), Policy::Flushed);
    volume.detach().expect("detached");
}

#[test]
fn a_copy_elsewhere_is_flushed() {
    let place = Place::of_size("policy-copy", 64 << 20);
    let volume = place.attach();
    put(&volume, "file", &[2; 9000]);
    // Copied by the system, while nobody has it, and by a snapshot, while it is in use.
    let (plain, shot) = (OnDisk::new("copied"), OnDisk::new("shot"));
    let made = SnapshotOptions { force: false, keep_uuid: false };
    snapshot(place.path(), &shot.0, made, &mut |_, _| {}).expect("copied");
    volume.detach().expect("detached");
    std::fs::copy(place.path(), &plain.0).expect("copied");
    if class_of(&plain.0).is_ok_and(|class| class == Class::Volatile) {
        return println!("skipped: the build directory lies in memory: nothing tested");
    }
    for copy in [&plain, &shot] {
        for class in [Class::Page, Class::Volatile] {
            let options = AttachOptions { class: Some(class), ..AttachOptions::default() };
            let volume = attach(&copy.0, &options).expect("attached");
            assert_eq!((volume.class().0, volume.policy()), (class, Policy::Flushed));
            assert_eq!(get(&volume, "file").expect("read"), [2; 9000]);
            put(&volume, &format!("in {class}"), &[3; 100]);
            volume.detach().expect("detached");
        }
        let found = fsck(&copy.0, &FsckOptions::default(), &mut |_, _| {}).expect("checked");
        assert_eq!(found.faults, []);
    }
    // And back.
    std::fs::copy(&plain.0, place.path()).expect("copied");
    let volume = place.attach();
    assert_eq!(volume.policy(), Policy::Plain);
    assert_eq!(get(&volume, "in page").expect("read"), [3; 100]);
    volume.detach().expect("detached");
}
