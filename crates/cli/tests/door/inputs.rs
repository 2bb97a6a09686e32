//! Small programs that once differed from tmpfs, and what stands between a program and its C
//! library: plugins, allocators, sanitizers, calls before any constructor.
//!
//! The C programs say what must hold. On volumes and split directories one mode runs, by rotation;
//! in the long run all.

use std::path::Path;

use crate::faces::{Face, Faces, MODES};
use crate::support::{Ran, compiled, once, source};

const PROGRAM: &str = "cli/tests/door/seen.c";
/// Where Debian has libraries of others; elsewhere they are looked for by the loader's name.
const LIBRARIES: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// The faces of this run.
fn faces() -> Vec<Face> {
    let is_on = |face: &Face| match face {
        Face::Volume(mode) | Face::Split(mode) => {
            rotation::all() || MODES[rotation::turn("inputs", 3) as usize] == *mode
        }
        _ => true,
    };
    let all = MODES.into_iter().flat_map(|mode| [Face::Volume(mode), Face::Split(mode)]);
    all.chain([Face::Mount]).filter(is_on).collect()
}

/// Runs the line that `line` gives for a new directory, on tmpfs and on each face.
fn same(what: &str, line: impl Fn(&str) -> Vec<String>) {
    compare(what, line, |what, differences| {
        assert!(differences.is_empty(), "{what}: {}", differences.join("\n"));
    });
}

/// The same of what is known to differ: it is printed.
fn same_or_known(what: &str, line: impl Fn(&str) -> Vec<String>) {
    compare(what, line, |what, differences| {
        for difference in differences {
            eprintln!("known: {what}: {difference}");
        }
    });
}

fn compare(what: &str, line: impl Fn(&str) -> Vec<String>, judge: impl Fn(&str, &[String])) {
    for face in faces() {
        let Some(faces) = Faces::new(face) else { continue };
        let run = |face: Face| {
            let name = Faces::next_name();
            let directory = format!("{}/{name}", faces.root(face));
            let words = line(&directory);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let ran = Ran::of(&mut faces.command(face, &words));
            (faces.masked(face, &ran).replace(&name, "DIRECTORY"), ran)
        };
        let ((expected, _), (found, ran)) = (run(Face::Tmpfs), run(face));
        assert!(!expected.contains("exit code"), "{what} on tmpfs: {expected}");
        let differences = if expected == found {
            Vec::new()
        } else {
            vec![format!("expected\n{expected}found\n{found}it said\n{}", ran.err)]
        };
        judge(&format!("{what} on {face}"), &differences);
    }
}

fn words<const COUNT: usize>(words: [&str; COUNT]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// A case of `seen.c`.
fn seen(case: &str) {
    let program = compiled(PROGRAM, &[]);
    same(case, |directory| words([&program, case, directory]));
}

#[test]
fn a_relative_seek_counts_from_behind_what_was_written() {
    seen("relative_seek");
}

#[test]
fn freopen_gives_the_stream_that_it_was_given() {
    seen("reopened");
}

#[test]
fn standard_streams_share_a_position_with_their_numbers() {
    seen("standard_streams");
}

#[test]
fn a_stream_sees_what_was_appended_by_a_number() {
    seen("behind_append");
}

#[test]
fn nftw_changes_to_the_directory_of_each_object() {
    seen("walk");
}

#[test]
fn getcwd_finds_paths_of_any_length() {
    seen("long_path");
}

#[test]
fn utimensat_without_a_path_is_futimens() {
    seen("no_path");
}

#[test]
fn functions_of_the_own_handle_of_the_c_library() {
    seen("own_handle");
}

#[test]
fn stdio_in_a_handler_on_a_small_stack() {
    seen("small_stack");
}

#[test]
fn plugins_see_what_the_program_sees() {
    let host = compiled("cli/tests/door/plugin.c", &[]);
    let plugin = compiled("cli/tests/door/plugin.c", &["-DPLUGIN", "-shared", "-fPIC"]);
    for how in ["global", "local", "deep", "own"] {
        same(&format!("a plugin, {how}"), |directory| words([&host, how, &plugin, directory]));
    }
}

#[test]
fn calls_before_any_constructor() {
    let program = compiled(PROGRAM, &["-DEARLY"]);
    for case in ["memory", "relative_seek"] {
        same(&format!(".preinit_array, {case}"), |directory| words([&program, case, directory]));
    }
}

/// The library in front of the project's, and behind it.
#[test]
fn allocators_in_both_orders() {
    let program = compiled(PROGRAM, &[]);
    let own = "LD_PRELOAD=\"$1${LD_PRELOAD:+:$LD_PRELOAD}\"; shift; exec \"$@\"";
    let ours = "LD_PRELOAD=\"${LD_PRELOAD:+$LD_PRELOAD:}$1\"; shift; exec \"$@\"";
    for name in ["libtcmalloc_minimal.so.4", "libjemalloc.so.2", "libmimalloc.so.2"] {
        let paths = LIBRARIES.map(|directory| Path::new(directory).join(name));
        let Some(library) = paths.iter().find(|path| path.exists()) else {
            eprintln!("skipped: there is no {name}");
            continue;
        };
        let library = library.to_str().expect("UTF-8");
        for (order, script) in [("first", own), ("last", ours)] {
            let script = format!("export LD_PRELOAD; {script}");
            for case in ["memory", "standard_streams"] {
                same(&format!("{name} {order}, {case}"), |directory| {
                    words(["sh", "-c", &script, "sh", library, &program, case, directory])
                });
            }
        }
    }
}

/// A program with a sanitizer; `None`, and it says so, where this compiler has none.
fn sanitized(compiler: &str, kind: &str) -> Option<String> {
    let options = ["-g", "-O1", "-w", "-std=gnu17", "-D_GNU_SOURCE", "-pthread"];
    let directory = once(&format!("{compiler} {kind}"), |directory| {
        let mut line = std::process::Command::new(compiler);
        line.args(options).arg(format!("-fsanitize={kind}")).arg("-o");
        let built = line.args([directory.join("seen"), source(PROGRAM)]).output();
        if !built.is_ok_and(|built| built.status.success()) {
            eprintln!("skipped: there is no {compiler} with -fsanitize={kind}");
        }
    });
    let program = directory.join("seen");
    program.exists().then(|| program.to_str().expect("our own names are UTF-8").to_owned())
}

#[test]
fn sanitizers_of_two_compilers() {
    for compiler in ["gcc", "clang"] {
        for kind in ["address", "thread", "undefined", "leak"] {
            let Some(program) = sanitized(compiler, kind) else { continue };
            for case in ["memory", "relative_seek"] {
                // The program does not free what it opens; that is not what is asked.
                let quiet = ["env", "ASAN_OPTIONS=detect_leaks=0", "LSAN_OPTIONS=exitcode=0"];
                // A runtime in a library of its own must come first in the list of libraries.
                same_or_known(&format!("{compiler} -fsanitize={kind}, {case}"), |directory| {
                    [words(quiet), words([&program, case, directory])].concat()
                });
            }
        }
    }
}
