//! A volume was removed while it was mounted (`rm -rf V V.solera`) and made anew under the same
//! name. The mount went on with the old one, `solera run` by that mount took the new one: under one
//! path programs saw two volumes, and nothing was said. A process that uses a mount asks it which
//! volume it serves.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Mounted, Ran, TestDir, can_mount, shell, solera};
use vfs::mounts;

/// A mounted volume with a file in it, whose file is another one by now.
fn replaced(place: &TestDir) -> Mounted {
    let mounted = Mounted::new(place, "64M", &[]);
    fs::write(mounted.path("old"), "old\n").unwrap();
    fs::remove_file(&mounted.volume).unwrap();
    fs::remove_dir_all(format!("{}.solera", mounted.volume)).unwrap();
    place.volume("64M");
    mounted
}

#[test]
fn a_program_does_not_see_another_volume_than_the_mount_serves() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = replaced(&place);
    let (volume, at) = (&mounted.volume, &mounted.at);
    let words = ["another file is there now", "umount"];
    let file = format!("{at}/new");
    let named: [&[&str]; 5] = [
        &["--at", at],
        &["--volume", volume],
        &["--volume", volume, "--at", at],
        &["--require", at],
        &[],
    ];
    for line in named {
        let line = [&["run"], line, &["--", "touch", &file]].concat();
        solera(line).refused(125, &words);
    }
    assert!(!fs::exists(&file).unwrap());
    assert_eq!(solera(["ls", volume]).ok(), "");
    // The new one by its own name, elsewhere; the old one as everybody sees it.
    shell(volume, &place.prefix(), &format!("echo new > {}/new", place.prefix())).ok();
    assert_eq!(fs::read(mounted.path("old")).unwrap(), b"old\n");
    assert!(!fs::exists(&file).unwrap());
    mounted.unmount();
    let again = Mounted::again(&place, volume.clone(), &[]);
    solera(["run", "--at", at, "--", "cat", &file]).ok();
    again.end();
}

/// The same name, and the same UUID: only the file is another.
#[test]
fn a_copy_in_its_place_is_another_volume_too() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let copy = place.text("copy");
    solera(["snapshot", "--keep-uuid", &mounted.volume, &copy]).ok();
    fs::remove_dir_all(format!("{}.solera", mounted.volume)).unwrap();
    fs::rename(&copy, &mounted.volume).unwrap();
    solera(["run", "--at", &mounted.at, "--", "true"]).refused(125, &["another file is there now"]);
    mounted.unmount();
}

/// A program that is not preloaded may stand between, or the volume be replaced just now: what
/// `solera run` has found is compared by each process that attaches by the environment.
#[test]
fn what_is_attached_later_is_compared_too() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = replaced(&place);
    let mut served = [0; 128];
    let length = rustix::fs::getxattr(&mounted.at, mounts::IDENTITY, &mut served[..]).unwrap();
    let library = Path::new(env!("CARGO_BIN_EXE_solera")).with_file_name("libsolera_preload.so");
    let mut cat = Command::new("cat");
    cat.arg(mounted.path("old"))
        .env("LD_PRELOAD", library)
        .env("SOLERA_VOLUME", &mounted.volume)
        .env("SOLERA_AT", &mounted.at)
        .env("SOLERA_MOUNTED", OsStr::from_bytes(&served[..length]));
    Ran::of(&mut cat).refused(125, &["the mount serves another volume"]);
    solera(["detach", &mounted.volume]).ok();
    mounted.unmount();
}

/// `defrag` by a path below the mount took the new volume as well, and `cp` held two files of the
/// two volumes for one.
#[test]
fn other_commands_ask_the_mount_too() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = replaced(&place);
    solera(["defrag", &mounted.at]).refused(1, &["another file is there now"]);
    let first = format!("{}:/first", mounted.volume);
    solera(["cp", "/etc/hostname", &first]).ok();
    // Both are the first file that was made on their volumes.
    solera(["cp", &format!("{}/old", mounted.at), &first]).ok();
    assert_eq!(solera(["cat", &first]).ok(), "old\n");
    mounted.unmount();
}
