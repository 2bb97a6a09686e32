//! The C ABI: what the header declares is what the library exports, and what it says is so.

mod library;

use library::archive;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// A directory of a test's own, with the library in it.
struct TestDir(PathBuf);

impl TestDir {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let base = std::env::var_os("SOLERA_TEST_DIR").unwrap_or_else(|| "/dev/shm".into());
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("solera-capi-{}-{number}", std::process::id());
        let place = Self(Path::new(&base).join(name));
        std::fs::create_dir_all(place.0.join("data")).expect("a directory");
        library::show_in(&place.0);
        place
    }

    /// Compiles a program; warnings are errors.
    fn compile(&self, compiler: &[&str], source: &str, linked: &[&str]) -> PathBuf {
        let program = self.0.join("program");
        let done = Command::new(compiler[0])
            .args(&compiler[1..])
            .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread", "-I"])
            .arg(Path::new(CRATE).join("include"))
            .args(["-o".as_ref(), program.as_os_str()])
            .arg(Path::new(CRATE).join("tests/c").join(source))
            .arg(format!("-L{}", self.0.display()))
            .args(linked)
            .output()
            .expect("a C compiler, cc");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        program
    }

    fn run(&self, program: &Path) -> String {
        let done = Command::new(program)
            .arg(self.0.join("data"))
            .env("LD_LIBRARY_PATH", &self.0)
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{:?}:\n{said}{errors}", done.status);
        said
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const C99: &[&str] = &["cc", "-std=gnu99", "-O1"];

#[test]
fn header_version_script_and_library_have_the_same_functions() {
    let place = TestDir::new();
    let names = |text: &str, before: &str, after: char| -> BTreeSet<String> {
        let pieces = text.split(before).skip(1);
        let names = pieces.filter_map(|piece| piece.split_once(after).map(|(name, _)| name));
        let is_name =
            |name: &&str| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase());
        names.filter(is_name).map(|name| format!("solera_{name}")).collect()
    };
    let read = |path: &str| std::fs::read_to_string(Path::new(CRATE).join(path)).expect("a file");
    let header = read("include/solera.h") + &read("include/solera_sqlite.h");
    // A declaration begins a line; what is mentioned in a comment does not.
    let declared: String = header
        .split("/*")
        .map(|piece| piece.split_once("*/").map_or(piece, |(_, code)| code))
        .collect();
    // What stands in the header itself is no function of the library.
    let (inline, declared): (Vec<&str>, Vec<&str>) =
        declared.lines().partition(|line| line.starts_with("static inline "));
    assert_eq!(inline.len(), 1, "{inline:?}");
    // Nor is a call of one.
    let begins = |line: &&str| !line.starts_with(' ');
    let declared: Vec<&str> = declared.into_iter().filter(begins).collect();
    let declared = names(&declared.join("\n"), "solera_", '(');
    assert!(declared.len() > 25, "{declared:?}");
    assert_eq!(declared, names(&read("solera.map"), "solera_", ';'));
    let exported = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(place.0.join("libsolera.so.0"))
        .output()
        .expect("nm");
    let exported = String::from_utf8_lossy(&exported.stdout).into_owned();
    let (versions, functions): (Vec<&str>, Vec<&str>) = exported
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .partition(|name| !name.contains("@@"));
    assert_eq!(versions, ["SOLERA_0.1"]);
    let exported: BTreeSet<String> =
        functions.iter().map(|name| name.replace("@@SOLERA_0.1", "")).collect();
    assert_eq!(declared, exported);
}

#[test]
fn the_header_is_clean_c99_and_cpp11_for_the_shared_and_the_static_library() {
    let place = TestDir::new();
    std::fs::copy(archive(), place.0.join("libsolera.a")).expect("the archive");
    let strict: [&[&str]; 2] = [&["cc", "-std=c99"], &["c++", "-x", "c++", "-std=c++11"]];
    let mut expected = String::new();
    for compiler in strict {
        if Command::new(compiler[0]).arg("--version").output().is_err() {
            println!("skipped: there is no {} (scripts/setup.sh --tests)", compiler[0]);
            continue;
        }
        for linked in [&["-lsolera"][..], &["-l:libsolera.a", "-lm"]] {
            // Behind `-x c++` an archive would be taken for a source.
            let linked: Vec<&str> = ["-x", "none"].iter().chain(linked).copied().collect();
            let program = place.compile(compiler, "example.c", &linked);
            expected += "a record\n";
            assert_eq!(place.run(&program), expected);
        }
    }
}

#[test]
fn files_do_what_the_header_says() {
    let place = TestDir::new();
    print!("{}", place.run(&place.compile(C99, "files.c", &["-lsolera"])));
}

#[test]
fn logs_do_what_the_header_says() {
    let place = TestDir::new();
    print!("{}", place.run(&place.compile(C99, "logs.c", &["-lsolera"])));
}

/// Without a cache they are memory.
#[test]
fn buffers_do_what_the_header_says() {
    let place = TestDir::new();
    assert_eq!(place.run(&place.compile(C99, "buffers.c", &["-lsolera"])), "right\n");
}

#[test]
fn python_has_the_same_by_ctypes() {
    let place = TestDir::new();
    let done = Command::new("/usr/bin/python3")
        .arg(Path::new(CRATE).join("tests/python.py"))
        .arg(place.0.join("data"))
        .env("LD_LIBRARY_PATH", &place.0)
        .env("PYTHONPATH", CRATE)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Debian's python3");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(done.stdout, b"ok\n");
}
