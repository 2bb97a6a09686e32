//! `solera format --owner`: root makes a volume for another user.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use crate::support::{Ran, TestDir, solera};

const USER: u32 = 4321;

/// Whether there is a user to give things to.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("root is needed: nothing tested");
    }
    root
}

/// The command and its library where another user may run them.
fn copied(place: &TestDir) -> String {
    let built = std::path::Path::new(env!("CARGO_BIN_EXE_solera"));
    for name in ["solera", "libsolera_preload.so"] {
        crate::support::copy_program(built.with_file_name(name), place.path(name));
        fs::set_permissions(place.path(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    place.text("solera")
}

/// The command as a user without privileges.
fn as_user(program: &str, arguments: &[&str]) -> Ran {
    let ids = [format!("--reuid={USER}"), format!("--regid={USER}")];
    let mut command = Command::new("setpriv");
    command.args(ids).arg("--clear-groups").arg(program).args(arguments).env_remove("LD_PRELOAD");
    Ran::of(&mut command)
}

/// Formatted as root and handed over by chown, a volume had a root directory that its user could
/// not write.
#[test]
fn a_volume_made_for_a_user_is_that_users() {
    if !is_root() {
        return;
    }
    let place = TestDir::new();
    let program = copied(&place);
    fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o777)).unwrap();
    let (volume, at) = (place.text("v.pm"), place.prefix());
    let owner = format!("{USER}:{USER}");
    let format = ["format", "--size", "64M", "--owner", &owner, &volume];
    let given = || {
        for path in [volume.clone(), format!("{volume}.solera")] {
            let meta = fs::metadata(&path).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (USER, USER), "{path}");
        }
        let line =
            format!("cd {at} && mkdir a && echo x > a/f && chmod 700 . && stat -c '%u %g' .");
        let run = ["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", &line];
        assert_eq!(as_user(&program, &run).ok(), format!("{USER} {USER}\n"));
        as_user(&program, &["fsck", &volume]).ok();
    };
    solera(format).ok();
    given();
    // Again, over one that was root's.
    solera(["format", "--force", &volume]).ok();
    fs::remove_dir_all(format!("{volume}.solera")).unwrap();
    std::os::unix::fs::chown(&volume, Some(0), Some(0)).unwrap();
    solera(["ls", &volume]).ok();
    solera([&format[..1], &["--force"], &format[1..]].concat()).ok();
    given();
}

#[test]
fn half_of_it_may_be_said() {
    if !is_root() {
        return;
    }
    let place = TestDir::new();
    let made = |owner: &str| {
        let path = place.text(&format!("v{owner}.pm"));
        solera(["format", "--size", "64M", "--owner", owner, &path]).ok();
        let meta = fs::metadata(&path).unwrap();
        (meta.uid(), meta.gid())
    };
    assert_eq!(made("4321"), (4321, 0));
    assert_eq!(made(":4321"), (0, 4321));
    let nobody = made("nobody:");
    assert!(nobody.0 != 0 && nobody.1 != 0, "{nobody:?}: the group of its login");
}

/// Nothing is made for a user that does not exist, or by one that may not give files away.
#[test]
fn what_cannot_be_given_is_not_made() {
    let place = TestDir::new();
    let volume = place.text("v.pm");
    for (owner, word) in [
        ("no-such-user", "no user \"no-such-user\""),
        ("root:no-such-group", "no group \"no-such-group\""),
        ("", "names nobody"),
        (":", "names nobody"),
    ] {
        let format = ["format", "--size", "64M", "--owner", owner, &volume];
        solera(format).refused(1, &[word, "--owner USER"]);
        assert!(!place.path("v.pm").exists());
    }
    if !is_root() {
        return;
    }
    let program = copied(&place);
    fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o777)).unwrap();
    let told = ["only root", "--owner"];
    as_user(&program, &["format", "--size", "64M", "--owner", "root", &volume]).refused(1, &told);
    assert!(!place.path("v.pm").exists());
    // A file that is there keeps its size and what it holds.
    fs::write(&volume, "kept").unwrap();
    std::os::unix::fs::chown(&volume, Some(USER), Some(USER)).unwrap();
    let force = ["format", "--force", "--size", "64M", "--owner", "root", &volume];
    as_user(&program, &force).refused(1, &told);
    assert_eq!(fs::read(&volume).unwrap(), b"kept");
    // For itself it may.
    let own = format!("{USER}:{USER}");
    as_user(&program, &["format", "--force", "--size", "64M", "--owner", &own, &volume]).ok();
}
