//! `solera door`: a library is patched, found again, and each of its sites run; what is no library,
//! or is not believed, is said.

use std::os::unix::fs::PermissionsExt;

use crate::support::{TestDir, solera};

#[test]
fn a_library_is_patched_shown_and_checked() {
    let dir = TestDir::new();
    let folder = dir.path("door");
    let words = |words: &[&str]| {
        let folder = ["--folder", folder.to_str().unwrap()];
        solera(["door"].iter().chain(words).chain(&folder))
    };
    let before = words(&["status", "--json"]).json();
    let libraries = before["libraries"].as_array().unwrap();
    assert!(libraries.len() >= 2, "{before}");
    assert!(libraries.iter().all(|one| one["patched"].is_null()), "{before}");
    assert!(words(&["status"]).ok().contains("no (`solera door prepare`)"));

    let made = words(&["prepare"]).ok();
    assert_eq!(made.lines().count(), 2, "{made}");
    assert!(!made.contains("there already"), "{made}");
    let again = words(&["prepare"]).ok();
    assert_eq!(again.matches("there already").count(), 2, "{again}");

    let after = words(&["status", "--json"]).json();
    for one in after["libraries"].as_array().unwrap().iter().filter(|one| !one["patched"].is_null())
    {
        assert!(one["coverage"]["patched"].as_u64().unwrap() > 20, "{one}");
        assert!(one["coverage"]["kinds"]["restorer"].as_u64() == Some(1), "{one}");
        assert!(one["patched"]["damaged"].is_null(), "{one}");
    }
    let said = words(&["status"]).ok();
    assert!(said.contains(" system calls; left: ") && said.contains("build-id"), "{said}");
    let said = words(&["check"]).ok();
    assert_eq!(said.matches("run once, all as the library's own").count(), 2, "{said}");

    // One that others may write is not believed, and what is made for the check is checked.
    for entry in std::fs::read_dir(&folder).unwrap() {
        let permissions = std::fs::Permissions::from_mode(0o646);
        std::fs::set_permissions(entry.unwrap().path(), permissions).unwrap();
    }
    let said = words(&["status"]).ok();
    assert!(said.contains("others than its owner may write it"), "{said}");
    assert!(words(&["check"]).ok().contains("of a file made for this run once"));
}

#[test]
fn what_is_no_library_is_refused() {
    let dir = TestDir::new();
    let file = dir.path("text");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    let file = file.to_str().unwrap();
    for verb in ["prepare", "check"] {
        let said = solera(["door", verb, file]).ended_with(1);
        assert!(said.err.contains("not a whole ELF file"), "{}", said.err);
        let said = solera(["door", verb, "/nonexistent"]).ended_with(1);
        assert!(said.err.contains("No such file"), "{}", said.err);
        // A program makes no system calls by itself.
        let said = solera(["door", verb, "/bin/true"]).ended_with(1);
        assert!(said.err.contains("name the C library"), "{}", said.err);
    }
    solera(["door"]).ended_with(2);
}
