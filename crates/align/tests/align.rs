//! `libsolera_align.so` over glibc's allocator and over those that programs preload: jemalloc,
//! tcmalloc, mimalloc. A program in C checks what each function promises (`c/blocks.c`). How
//! requests fail is compared with the allocator alone.

#[path = "../../preload/tests/support/sweeper.rs"]
mod sweeper;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Allocators that are preloaded, and their packages.
const ALLOCATORS: [(&str, &str); 3] = [
    ("libjemalloc.so.2", "libjemalloc2"),
    ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    ("libmimalloc.so.2", "libmimalloc2.0"),
];

/// A directory of a test's own.
struct TestDir(PathBuf);

impl TestDir {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let base = std::env::var_os("SOLERA_TEST_DIR").unwrap_or_else(|| "/dev/shm".into());
        sweeper::start(Path::new(&base), "solera-align");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = Path::new(&base).join(format!("solera-align-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a directory");
        Self(place)
    }

    /// Compiles a program or a library; warnings are errors.
    fn compile(&self, compiler: &str, name: &str, sources: &[&str], options: &[&str]) -> PathBuf {
        let to = self.0.join(name);
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
        let done = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-O2", "-pthread"])
            // What is wrong with requests that must fail, the test knows itself.
            .args(["-Wno-use-after-free", "-Wno-alloc-size-larger-than", "-fno-builtin"])
            .arg("-D_GNU_SOURCE")
            .args(options)
            .args(["-o".as_ref(), to.as_os_str()])
            .args(sources.iter().map(|source| directory.join(source)))
            .output()
            .expect("a compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        to
    }

    /// The program in C, which is compiled once for all tests.
    fn blocks(&self) -> PathBuf {
        // Removed with all that is named by this process (`sweeper`).
        static COMPILED: OnceLock<(TestDir, PathBuf)> = OnceLock::new();
        let (_, made) = COMPILED.get_or_init(|| {
            let place = Self::new();
            let made = place.compile("cc", "blocks", &["blocks.c"], &[]);
            (place, made)
        });
        let to = self.0.join("blocks");
        std::fs::hard_link(made, &to).expect("a name of it");
        to
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The library under test: beside this binary, or one directory up.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this binary's path");
    let beside = own.parent().expect("its directory");
    [beside.to_path_buf(), beside.join("..")]
        .iter()
        .map(|place| place.join("libsolera_align.so"))
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok())
        .expect("libsolera_align.so is built before its tests")
}

/// The allocators that are installed; says which are not.
fn allocators() -> impl Iterator<Item = PathBuf> {
    ALLOCATORS.iter().filter_map(|(name, package)| {
        let path = Path::new("/usr/lib/x86_64-linux-gnu").join(name);
        let is_there = path.exists();
        if !is_there {
            println!("skipped: there is no {package} (scripts/setup.sh --tests)");
        }
        is_there.then_some(path)
    })
}

/// Runs a program with these libraries, in this order.
fn run(program: &Path, words: &[&str], preloaded: &[&Path]) -> Output {
    let preloaded: Vec<&str> = preloaded.iter().filter_map(|path| path.to_str()).collect();
    Command::new("timeout")
        .args(["-k", "5", "300", "env"])
        .arg(format!("LD_PRELOAD={}", preloaded.join(":")))
        .arg(program)
        .args(words)
        .output()
        .expect("the program runs")
}

#[track_caller]
fn text(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}:\n{said}{errors}", output.status);
    said
}

/// All checks, and failures as without the library.
#[track_caller]
fn check(program: &Path, allocator: Option<&Path>) {
    let library = library();
    let behind = allocator.as_slice();
    let alone = text(&run(program, &["any", "failing"], behind));
    let all = [&[&*library], behind].concat();
    let found = text(&run(program, &["aligned"], &all));
    assert!(found.lines().count() > 100, "{found}");
    assert_eq!(found, alone, "{allocator:?}");
}

#[test]
fn glibc() {
    check(&TestDir::new().blocks(), None);
}

#[test]
fn preloaded_allocators() {
    let place = TestDir::new();
    let program = place.blocks();
    for allocator in allocators() {
        check(&program, Some(&allocator));
    }
}

/// Such a program has a symbol `free` without a definition.
#[test]
fn a_program_that_is_linked_to_a_fixed_address() {
    let place = TestDir::new();
    let options = ["-no-pie", "-fno-pie"];
    let program = place.compile("cc", "fixed", &["blocks.c"], &options);
    text(&run(&program, &["aligned"], &[&library()]));
}

/// Memory that is shared with a file, or locked, keeps what is in it: `calloc` fills it.
#[test]
fn memory_that_cannot_be_given_back_is_filled_with_zeros() {
    let place = TestDir::new();
    let program = place.blocks();
    text(&run(&program, &["aligned", "locked"], &[&library()]));
    let wrapper = place.compile("cc", "wrapper.so", &["wrapper.c"], &["-shared", "-fPIC"]);
    text(&run(&program, &["aligned", "short"], &[&library(), &wrapper]));
}

/// glibc asks the kernel for blocks above a threshold, which alignment must not keep too low.
#[test]
fn what_comes_and_goes_stays_in_memory_and_what_is_not_touched_takes_none() {
    let place = TestDir::new();
    text(&run(&place.blocks(), &["aligned", "faults"], &[&library()]));
}

/// The program by which figures are taken.
#[test]
fn costs_can_be_measured() {
    let place = TestDir::new();
    let program = place.compile("cc", "cost", &["cost.c"], &[]);
    let said = text(&run(&program, &["one"], &[&library()]));
    assert!(said.starts_with("one ") && said.contains(" us, "), "{said}");
}

/// An allocator may be in front, in the program's own file, or may not align: it gets no block that
/// is not its own, and is asked for nothing that it has not.
#[test]
fn an_allocator_that_cannot_be_asked_is_left_alone() {
    let place = TestDir::new();
    let library = library();
    let few = ["-shared", "-fPIC", "-DWITHOUT_ALIGNMENT"];
    let wrapper = place.compile("cc", "few.so", &["wrapper.c"], &few);
    text(&run(&place.blocks(), &["few", "short"], &[&library, &wrapper]));
    for option in ["-UWITHOUT_ALIGNMENT", "-DWITHOUT_ALIGNMENT"] {
        let sources = ["blocks.c", "wrapper.c"];
        let program = place.compile("cc", "linked", &sources, &[option]);
        text(&run(&program, &["few", "short"], &[&library]));
    }
}

#[test]
fn where_the_limit_of_memory_forbids_alignment_there_is_a_block_all_the_same() {
    let place = TestDir::new();
    text(&run(&place.blocks(), &["aligned", "limit"], &[&library()]));
}

/// The allocators that are preloaded have an `operator new` of their own, which asks no `malloc`.
#[test]
fn new_and_delete() {
    if Command::new("g++").arg("--version").output().is_err() {
        println!("skipped: there is no g++ (scripts/setup.sh --tests)");
        return;
    }
    let place = TestDir::new();
    let program = place.compile("g++", "new", &["new.cpp"], &["-std=c++17"]);
    let library = library();
    assert_eq!(text(&run(&program, &["aligned"], &[&library])), "done\n");
    for allocator in allocators() {
        assert_eq!(text(&run(&program, &["any"], &[&library, &allocator])), "done\n");
    }
}
