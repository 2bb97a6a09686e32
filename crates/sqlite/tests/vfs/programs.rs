//! C programs that have SQLite linked and the VFS registered.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::directory::{BOTH, TestDir, is_there, said, times};

#[test]
fn a_program_registers_it_and_bytes_go_by_its_windows() {
    for first in ["0", "64", "none"] {
        let Some(place) = TestDir::for_programs() else { return };
        let mut program = place.command(place.compile("static"));
        print!("{}", said(program.env("SOLERA_SQLITE_AFTER", first)));
    }
}

#[test]
fn both_vfs_in_one_process_keep_each_others_locks() {
    let Some(place) = TestDir::for_programs() else { return };
    print!("{}", said(&mut place.command(place.compile("locks"))));
}

#[test]
fn a_file_that_is_cut_is_an_error_of_sqlite() {
    let Some(place) = TestDir::for_programs() else { return };
    print!("{}", said(&mut place.command(place.compile("cut"))));
}

/// An empty database for workers.
fn prepare(place: &TestDir, name: &str, journal: &str) {
    let script = format!(
        "PRAGMA page_size = {}; PRAGMA auto_vacuum = incremental; PRAGMA journal_mode = {journal};
         CREATE TABLE t(a INTEGER PRIMARY KEY, id, n, b); CREATE TABLE c(n);
         INSERT INTO c VALUES (0);",
        if name.contains("small") { 1024 } else { 4096 }
    );
    said(&mut place.shell(&format!("file:{name}?vfs=unix"), &script));
}

fn start(place: &TestDir, worker: &Path, arguments: &[&str]) -> Child {
    place.command(worker).args(arguments).stdout(Stdio::piped()).spawn().expect("a worker")
}

/// The database is whole, and the count is of the rows, by both VFSs.
fn check(place: &TestDir, name: &str) {
    for vfs in BOTH {
        let ask = "PRAGMA integrity_check; SELECT n - (SELECT count(*) FROM t) FROM c;";
        let found = said(&mut place.shell(&format!("file:{name}?vfs={vfs}"), ask));
        assert_eq!(found, "ok\n0\n", "{name} by {vfs}");
    }
}

#[test]
fn processes_and_threads_of_both_vfs_work_on_one_database() {
    let Some(place) = TestDir::for_programs() else { return };
    let worker = place.compile("worker");
    let each = times(300, 5000).to_string();
    for (name, journal) in
        [("wal.db", "wal"), ("small.db", "wal"), ("delete.db", "delete"), ("small2.db", "truncate")]
    {
        // Half of them, by rotation; in the long run all.
        if !rotation::chosen(&format!("processes and threads on {name}"), 2) {
            continue;
        }
        prepare(&place, name, journal);
        let children: Vec<Child> = [("solera", "1"), ("solera", "2"), ("unix", "3")]
            .into_iter()
            .map(|(vfs, id)| start(&place, &worker, &[vfs, name, id, "2", &each]))
            .collect();
        for child in children {
            let output = child.wait_with_output().expect("a worker");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        check(&place, name);
    }
}

#[test]
fn what_was_committed_outlives_a_killed_writer() {
    let Some(place) = TestDir::for_programs() else { return };
    let worker = place.compile("worker");
    for (journal, name) in
        [("wal", "killed-wal.db"), ("delete", "killed.db"), ("persist", "small.db")]
    {
        // Half of them, by rotation; in the long run all.
        if !rotation::chosen(&format!("a killed writer of {name}"), 2) {
            continue;
        }
        prepare(&place, name, journal);
        for round in 0..times(12, 200) {
            let id = (round + 1).to_string();
            let mut child = start(&place, &worker, &["solera", name, &id, "1", "1000000"]);
            std::thread::sleep(Duration::from_millis(15 + (round as u64 * 37) % 60));
            child.kill().expect("killed");
            let mut text = String::new();
            child.stdout.take().expect("its output").read_to_string(&mut text).expect("lines");
            child.wait().expect("it has ended");
            let last = text.lines().last().unwrap_or("-1").to_owned();
            check(&place, name);
            // Every seventh row is removed now and then.
            let ask = format!(
                "SELECT count(*) FROM (WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL
                 SELECT x + 1 FROM n WHERE x < {last})
                 SELECT x FROM n WHERE x <= {last} AND x % 7 <> 3 EXCEPT
                 SELECT n FROM t WHERE id = {id}00);"
            );
            let missing = said(&mut place.shell(&format!("file:{name}?vfs=solera"), &ask));
            assert_eq!(missing, "0\n", "{name}, round {round}: {last} were committed");
        }
    }
}

#[test]
fn the_header_is_clean_c99_and_cpp11() {
    let Some(place) = TestDir::for_programs() else { return };
    let text = "#include <sqlite3.h>\n#include <solera_sqlite.h>\n#include <solera_sqlite.h>\n\
                int main(void) { return solera_sqlite_register(1); }\n";
    std::fs::write(place.0.join("header.c"), text).expect("a source");
    for compiler in [&["cc", "-std=c99"][..], &["c++", "-x", "c++", "-std=c++11"]] {
        if !is_there(compiler[0]) {
            continue;
        }
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../capi/include");
        let mut command = place.command(compiler[0]);
        command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-pedantic", "-Werror", include]);
        said(command.args([
            "header.c",
            "-o",
            "header",
            "-x",
            "none",
            "-L.",
            "-lsolera",
            "-lsqlite3",
        ]));
        said(&mut place.command(place.0.join("header")));
    }
}
