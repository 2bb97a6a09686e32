//! The preload library where another user may not read it. `solera run` said "it is not at ..." of
//! one that lay below root's closed home; the loader says nothing of one whose mode is closed, and
//! the program ran without its volume.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::support::{TestDir, as_user, can_change_user, shell};

#[test]
fn a_library_that_is_closed_is_not_a_missing_one() {
    if !can_change_user() {
        return;
    }
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o666)).unwrap();
    shell(&volume, &at, &format!("echo x > {at}/f")).ok();
    let theirs = place.for_everyone();
    let library = place.text("for-everyone/libsolera_preload.so");
    let said = |library: Option<&str>| {
        let mut command = as_user(4321, "", &theirs);
        if let Some(library) = library {
            command.env("SOLERA_PRELOAD", library);
        }
        let file = format!("{at}/f");
        let output = command
            .args(["run", "--volume", &volume, "--at", &at, "--", "cat", &file])
            .output()
            .expect("setpriv starts");
        let all = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&all).into_owned())
    };
    assert_eq!(said(None), (Some(0), "x\n".to_owned()));
    // Below a closed directory, by its path and through symbolic links.
    let closed = place.text("closed");
    fs::create_dir_all(format!("{closed}/deep")).unwrap();
    fs::copy(&library, format!("{closed}/deep/lib.so")).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let (link, file_link) = (place.text("link"), place.text("lib.so"));
    symlink("closed/deep", &link).unwrap();
    symlink(format!("{link}/lib.so"), &file_link).unwrap();
    for path in [format!("{closed}/deep/lib.so"), format!("{link}/lib.so"), file_link] {
        let (code, text) = said(Some(&path));
        assert_eq!(code, Some(125), "{text}");
        let why = format!("user 4321 may not enter {closed} (mode 0700), through which {path}");
        assert!(text.contains(&why) && text.contains("SOLERA_PRELOAD"), "{text}");
    }
    // There, and not to be read.
    fs::set_permissions(&library, fs::Permissions::from_mode(0o711)).unwrap();
    let (code, text) = said(None);
    assert_eq!(code, Some(125), "{text}");
    let why = format!("{library} is there, but user 4321 may not read it (mode 0711)");
    assert!(text.contains(&why), "{text}");
    // Not there.
    fs::remove_file(&library).unwrap();
    let (code, text) = said(None);
    assert_eq!(code, Some(125), "{text}");
    assert!(text.contains(&format!("it is not at {library} nor at")), "{text}");
}
