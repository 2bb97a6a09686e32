//! The shared library and the extension, linked once for all tests of an archive.
//!
//! They lie in the directory that Cargo keeps for tests, by the time at which the archive was made,
//! so a link is made again only for another archive. Tests of another crate have this file, too.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// What `link.sh` makes.
const FILES: [&str; 3] = ["libsolera.so.0", "libsolera.so", "solera_vfs.so"];

/// The archive, which was built with this test: the newest one beside it.
pub fn archive() -> PathBuf {
    let own = std::env::current_exe().expect("this binary's path");
    let beside = std::fs::read_dir(own.parent().expect("its directory")).expect("its neighbours");
    let archives = beside.filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_it =
            path.extension()? == "a" && path.file_name()?.to_str()?.starts_with("libsolera-");
        is_it.then(|| (path.metadata().and_then(|meta| meta.modified()).ok(), path))
    });
    archives.max().expect("libsolera.a is built before its tests").1
}

/// Makes the library's files visible in a directory.
pub fn show_in(directory: &Path) {
    static LINKED: OnceLock<PathBuf> = OnceLock::new();
    let linked = LINKED.get_or_init(link);
    for file in FILES {
        let at = directory.join(file);
        std::os::unix::fs::symlink(linked.join(file), at).expect("a symbolic link");
    }
}

/// The directory of the linked files. Two test programs may make it at once: one of them does.
fn link() -> PathBuf {
    let archive = archive();
    let made = archive.metadata().and_then(|found| found.modified()).expect("its time");
    let made = made.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos();
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let linked = base.join(format!("libsolera-{made}"));
    if linked.exists() {
        return linked;
    }
    // Those of other archives.
    for entry in std::fs::read_dir(base).expect("Cargo's directory").flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("libsolera-") && entry.path() != linked {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let own = base.join(format!("linking-{}", std::process::id()));
    std::fs::create_dir(&own).expect("a directory");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi/link.sh");
    let done = Command::new(script).args([&archive, &own]).output().expect("a linker");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    if std::fs::rename(&own, &linked).is_err() {
        assert!(linked.exists(), "it was made by another program");
        let _ = std::fs::remove_dir_all(own);
    }
    linked
}
