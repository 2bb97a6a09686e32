//! `make install`: what it puts there builds a program that runs.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::TestDir;

const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&stderr));
    said
}

fn is_there(command: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {command}")]).output();
    let is_there = found.is_ok_and(|found| found.status.success());
    if !is_there {
        println!("skipped: there is no {command} (scripts/setup.sh --tests)");
    }
    is_there
}

#[test]
fn a_program_is_built_by_pkg_config_and_nothing_stays_behind() {
    if !is_there("pkg-config") {
        return;
    }
    let dir = TestDir::new();
    let root = dir.path("root");
    let built = Path::new(env!("CARGO_BIN_EXE_solera")).parent().expect("its directory");
    let make = |target: &str| {
        done(Command::new("make").args(["-s", "-C", PROJECT, target]).args([
            format!("BUILT={}", built.display()),
            format!("DESTDIR={}", root.display()),
            "PREFIX=/usr".to_owned(),
        ]))
    };
    make("install");
    let flags = done(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "solera"])
            .env("PKG_CONFIG_SYSROOT_DIR", &root)
            .env("PKG_CONFIG_SYSTEM_INCLUDE_PATH", "/")
            .env("PKG_CONFIG_SYSTEM_LIBRARY_PATH", "/")
            .env("PKG_CONFIG_PATH", root.join("usr/lib/pkgconfig")),
    );
    let program = root.join("program");
    done(
        Command::new("cc")
            .arg(format!("{PROJECT}/crates/capi/tests/c/example.c"))
            .args(["-o".as_ref(), program.as_os_str()])
            .args(flags.split_whitespace()),
    );
    let said = done(Command::new(&program).arg(&root).env("LD_LIBRARY_PATH", root.join("usr/lib")));
    assert_eq!(said, "a record\n");
    let said = done(Command::new(root.join("usr/bin/solera")).arg("--version"));
    assert!(said.starts_with("solera "), "{said}");
    if is_there("sqlite3") {
        let load = format!(".load {}", root.join("usr/lib/solera_vfs").display());
        let said = done(Command::new("sqlite3").args([":memory:", &load, ".vfslist"]));
        assert!(said.contains("\"solera\""), "{said}");
    }
    if is_there("man") {
        let page = root.join("usr/share/man/man3/solera.3");
        let said = done(Command::new("man").arg("-l").arg(page));
        assert!(said.contains("one fence"), "{said}");
    }
    make("uninstall");
    let left = done(Command::new("find").arg(&root).args(["-mindepth", "2", "!", "-type", "d"]));
    assert_eq!(left, "");
}
