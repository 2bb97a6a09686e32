//! What must not compile: the order of persistence is checked by the types.
//!
//! The compiler is asked about each case, with the library that this program is linked with; it
//! must say what stands beside the case, and no other error.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compile_fail");

/// The library, as it was built last.
fn library(built: &Path) -> PathBuf {
    let is_library = |path: &PathBuf| {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libpmem-") && path.extension().is_some_and(|end| end == "rlib")
    };
    let age = |path: &PathBuf| path.metadata().and_then(|found| found.modified());
    let files = std::fs::read_dir(built).unwrap().flatten().map(|entry| entry.path());
    let newest =
        files.filter(is_library).max_by_key(|path| age(path).unwrap_or(SystemTime::UNIX_EPOCH));
    newest.expect("libpmem-*.rlib beside this program")
}

/// What the compiler says of a case, if it refuses it.
fn refusal(case: &Path, built: &Path, library: &Path) -> Option<String> {
    let mut compiler = Command::new("rustc");
    compiler.args(["--edition=2024", "--crate-type=bin", "--emit=metadata=/dev/null"]);
    compiler.arg("-L").arg(format!("dependency={}", built.display()));
    compiler.arg("--extern").arg(format!("pmem={}", library.display())).arg(case);
    let output = compiler.output().expect("rustc");
    let said = String::from_utf8(output.stderr).expect("text");
    (!output.status.success()).then_some(said)
}

/// Lines that begin an error.
fn errors(text: &str) -> usize {
    let begins = |line: &&str| line.starts_with("error") && !line.contains("aborting due to");
    text.lines().filter(begins).count()
}

#[test]
fn wrong_orders_do_not_compile() {
    let program = std::env::current_exe().unwrap();
    let built = program.parent().unwrap();
    let library = library(built);
    let mut cases = 0;
    for entry in std::fs::read_dir(CASES).unwrap() {
        let case = entry.unwrap().path();
        if case.extension().is_none_or(|end| end != "rs") {
            continue;
        }
        cases += 1;
        let expected = std::fs::read_to_string(case.with_extension("stderr")).unwrap();
        let name = case.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap();
        let said = refusal(&case, built, &library);
        let said = said.unwrap_or_else(|| panic!("{} compiles", name.display()));
        let said = said.replace(case.to_str().unwrap(), name.to_str().unwrap());
        // All of it, in this order; between them stand places in the library.
        let mut lines = said.lines().map(str::trim_end);
        for line in expected.lines() {
            assert!(lines.any(|found| found == line), "{}: no {line:?} in {said}", name.display());
        }
        assert_eq!(errors(&said), errors(&expected), "{}: {said}", name.display());
    }
    assert_eq!(cases, 6);
}
