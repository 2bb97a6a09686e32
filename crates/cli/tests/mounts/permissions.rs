//! The users that may use a volume directly: those that may read and write its file, a group too,
//! at any time after its mode was changed; those that may only read it read it (`read_only.rs`).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use crate::support::{TestDir, as_user, can_change_user, shell, solera};

const GROUP: u32 = 4444;

#[test]
fn a_volume_becomes_a_groups_by_its_files_mode() {
    if !can_change_user() {
        return;
    }
    let place = TestDir::new();
    let theirs = place.for_everyone();
    // As another user, in one more group: the code, and the messages.
    let ran = |id: u32, group: u32, arguments: &[&str]| {
        let mut command = as_user(id, &group.to_string(), &theirs);
        let output = command.args(arguments).output().expect("setpriv starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
    };
    let (volume, at) = (place.volume("64M"), place.prefix());
    // Used by its owner alone, until now.
    shell(&volume, &at, &format!("umask 0; mkdir {at}/shared; echo root > {at}/shared/a")).ok();
    let run = |id, group, line: &str| {
        ran(id, group, &["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", line])
    };
    let look = format!("cat {at}/shared/a");
    assert_eq!(run(4321, GROUP, &look).0, 125);
    chown(&volume, None, Some(GROUP)).unwrap();
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o660)).unwrap();
    let (code, said) = run(4321, GROUP, &look);
    assert!(code == 125 && said.contains("its owner must use it once"), "{said}");
    solera(["ls", &volume]).ok();
    // Its members, one after another and at once; no other user.
    assert_eq!(run(4321, GROUP, &look), (0, "root\n".to_owned()));
    let line = format!("echo one > {at}/shared/b; chmod 664 {at}/shared/b; {look}");
    assert_eq!(run(4321, GROUP, &line), (0, "root\n".to_owned()));
    let nested = format!("umask 0; echo two > {at}/shared/c; cat {at}/shared/b {at}/shared/c");
    assert_eq!(run(4322, GROUP, &nested), (0, "one\ntwo\n".to_owned()));
    assert_eq!(run(4323, 4323, &look).0, 125);
    // One is killed in the middle of its work; the other, attached before and after, goes on.
    let kills = format!(
        "umask 0; exec 3> {at}/shared/held; (exec 4> {at}/shared/x; rm {at}/shared/x; kill -9 \
         $PPID; echo z >&4; kill -9 $(exec sh -c 'echo $PPID'))"
    );
    let beside =
        format!("for i in 1 2 3 4 5; do echo $i > {at}/shared/n$i; cat {at}/shared/a; done");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(4322, GROUP, &beside));
        for _ in 0..3 {
            assert_ne!(run(4321, GROUP, &kills).0, 0);
        }
        assert_eq!(other.join().unwrap(), (0, "root\n".repeat(5)));
    });
    assert_eq!(
        run(4322, GROUP, &format!("ls {at}/shared | tr '\\n' ' '")).1,
        "a b c held n1 n2 n3 n4 n5 "
    );
    solera(["fsck", &volume]).ok();
    // Inside, owners are kept and modes checked.
    assert_ne!(run(4322, GROUP, &format!("echo no > {at}/shared/b")).0, 0);
    let owner = shell(&volume, &at, &format!("stat -c %u:%g {at}/shared/b {at}/shared/c")).ok();
    assert_eq!(owner, "4321:4321\n4322:4322\n");
    // And back.
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o600)).unwrap();
    solera(["ls", &volume]).ok();
    assert_eq!(run(4321, GROUP, &look).0, 125);
    let anchor = fs::metadata(format!("{volume}.solera")).unwrap();
    assert_eq!((anchor.mode() & 0o777, anchor.gid()), (0o700, GROUP));
    // A user that may only read it reads it.
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o444)).unwrap();
    let (code, said) = run(4321, 4321, &look);
    assert!(code == 0 && said.starts_with("root\n"), "{said}");
    assert!(said.contains("can only be read, every change gives EROFS"), "{said}");
    let cat = ran(4321, 4321, &["cat", &format!("{volume}:/shared/a")]);
    assert_eq!(cat, (0, "root\n".to_owned()));
    solera(["fsck", &volume]).ok();
}
