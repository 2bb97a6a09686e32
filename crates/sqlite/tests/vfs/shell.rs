//! The extension in SQLite's own shell and in Python: whatever a script does with the VFS, it does
//! with `unix`, and says the same.

use crate::directory::{BOTH, TestDir, is_there, said};

/// Rows, some larger than a page, some removed, one changed; what is printed last says whether the
/// database is whole.
const WORK: &str = "
CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB, c TEXT);
CREATE INDEX i ON t(c);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2000)
  INSERT INTO t SELECT x, zeroblob(x % 97 * 60), 'row ' || (x * 7919 % 2003) FROM n;
BEGIN; DELETE FROM t WHERE a % 3 = 0; UPDATE t SET c = c || ' again' WHERE a % 5 = 0; COMMIT;
BEGIN; DELETE FROM t; ROLLBACK;
SAVEPOINT s; UPDATE t SET b = NULL; ROLLBACK TO s; RELEASE s;
SELECT count(*), sum(length(b)), min(c), max(c) FROM t;
PRAGMA integrity_check;
";

/// The same script with both VFSs, on a database of its own each.
fn both_say(place: &TestDir, name: &str, uri: &str, script: &str) -> String {
    let [unix, solera] = BOTH.map(|vfs| {
        let uri = format!("file:{vfs}-{name}.db?vfs={vfs}{uri}");
        said(&mut place.shell(&uri, &script.replace("{vfs}", vfs)))
    });
    assert_eq!(unix, solera, "{name}");
    solera
}

#[test]
fn it_loads_and_is_none_elses_default() {
    let place = TestDir::new();
    let loaded = said(&mut place.shell("file:x.db?vfs=solera", ".vfsname"));
    assert_eq!(loaded, "solera/unix\n");
    assert_eq!(said(&mut place.shell("file:x.db", ".vfsname")), "unix\n");
}

#[test]
fn every_journal_mode_does_what_it_does_with_unix() {
    let place = TestDir::new();
    for journal in ["delete", "truncate", "persist", "memory", "off", "wal"] {
        let settings = [
            "",
            "PRAGMA locking_mode = exclusive;",
            "PRAGMA mmap_size = 268435456;",
            "PRAGMA page_size = 512; PRAGMA synchronous = extra;",
            "PRAGMA page_size = 65536; PRAGMA auto_vacuum = full;",
            "PRAGMA cache_size = 3; PRAGMA journal_size_limit = 5000;
             PRAGMA wal_autocheckpoint = 3;",
            "PRAGMA temp_store = file; PRAGMA synchronous = off; PRAGMA cell_size_check = on;",
        ];
        for (number, setting) in settings.into_iter().enumerate() {
            // A rollback without a journal is undefined.
            let work = if journal == "off" { &WORK.replace("ROLLBACK;", "COMMIT;") } else { WORK };
            let script = format!(
                "{setting} PRAGMA journal_mode = {journal}; {work} PRAGMA wal_checkpoint(truncate);
                 VACUUM; PRAGMA integrity_check; PRAGMA page_count; PRAGMA optimize;"
            );
            let name = format!("{journal}-{number}");
            // A quarter of them, by rotation; in the long run all.
            if !rotation::chosen(&format!("journal mode {name}"), 4) {
                continue;
            }
            let text = both_say(&place, &name, "", &script);
            assert!(text.contains("\nok\n"), "{name}: {text}");
            let [unix, solera] =
                BOTH.map(|vfs| std::fs::metadata(place.path(&format!("{vfs}-{name}.db"))));
            assert_eq!(unix.expect("a database").len(), solera.expect("a database").len());
        }
    }
}

/// A database that one VFS wrote is read by the other, in the middle of a log.
#[test]
fn the_files_are_those_of_unix() {
    let place = TestDir::new();
    for (first, second) in [("unix", "solera"), ("solera", "unix")] {
        let uri = |vfs: &str| format!("file:{first}-first.db?vfs={vfs}");
        let script = format!("PRAGMA journal_mode = wal; {WORK}");
        let mut wrote = place.shell(&uri(first), &script);
        // The log stays: the process is killed.
        let killed = wrote.arg(".system kill -9 $PPID").output().expect("the shell");
        assert_eq!(killed.status.code(), None);
        let log = std::fs::metadata(place.path(&format!("{first}-first.db-wal")));
        assert!(log.is_ok(), "the log is there");
        let read =
            said(&mut place.shell(&uri(second), "PRAGMA integrity_check; SELECT count(*) FROM t;"));
        assert_eq!(read, "ok\n1334\n");
    }
}

#[test]
fn uris_mean_what_they_mean() {
    let place = TestDir::new();
    let name = "uri";
    both_say(&place, name, "", &format!("PRAGMA journal_mode = wal; {WORK}"));
    let count = "SELECT count(*), sum(length(b)) FROM t; PRAGMA integrity_check;";
    for uri in
        ["&mode=ro", "&mode=rw", "&immutable=1", "&nolock=1&mode=ro", "&psow=0", "&cache=shared"]
    {
        // A database with a log is not opened without locks.
        let first = if uri.contains("nolock") { "PRAGMA journal_mode = delete;" } else { "" };
        both_say(&place, name, "", first);
        assert!(both_say(&place, name, uri, count).ends_with("ok\n"), "{uri}");
    }
    let write = "UPDATE t SET c = 'x';";
    for (name, uri, script, why) in [
        ("uri", "&mode=ro", write, "readonly"),
        ("uri", "&immutable=1", write, "readonly"),
        ("missing", "&mode=rw", write, "unable to open"),
        ("missing", "&mode=ro", write, "unable to open"),
    ] {
        for vfs in BOTH {
            let uri = format!("file:{vfs}-{name}.db?vfs={vfs}{uri}");
            let output = place.shell(&uri, script).output().expect("the shell");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(errors.contains(why), "{uri}: {errors}");
        }
    }
}

#[test]
fn copies_are_made_and_temporary_files_come_and_go() {
    let place = TestDir::new();
    let script = format!(
        "PRAGMA journal_mode = wal; PRAGMA temp_store = file; PRAGMA cache_size = 5; {WORK}
         CREATE TEMP TABLE s AS SELECT * FROM t; UPDATE s SET b = randomblob(3000);
         SELECT count(*) FROM s; SELECT count(DISTINCT c) FROM (SELECT c FROM t ORDER BY b, c);
         ATTACH 'file:{{vfs}}-other.db?vfs={{vfs}}' AS other;
         PRAGMA other.journal_mode = delete;
         BEGIN; CREATE TABLE other.u AS SELECT * FROM t; UPDATE t SET c = 'both'; COMMIT;
         SELECT count(*) FROM other.u; PRAGMA other.integrity_check;
         VACUUM INTO 'file:{{vfs}}-into.db?vfs={{vfs}}';
         ATTACH 'file:{{vfs}}-into.db?vfs={{vfs}}' AS copy; SELECT count(*) FROM copy.t;"
    );
    both_say(&place, "copies", "", &script);
    let [unix, solera] = BOTH.map(|vfs| {
        let mut shell = place.shell(&format!("file:{vfs}-copies.db?vfs={vfs}"), "SELECT 1;");
        shell.args([&format!(".backup {vfs}-backup.db"), &format!(".restore {vfs}-into.db")]);
        said(shell.args(["SELECT count(*) FROM t; PRAGMA integrity_check;"]))
    });
    assert_eq!((unix.as_str(), solera.as_str()), ("1\n1334\nok\n", "1\n1334\nok\n"));
    let left: Vec<String> = std::fs::read_dir(&place.0)
        .expect("the directory")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains("etilqs") || name.ends_with("-journal"))
        .collect();
    assert_eq!(left, [""; 0], "temporary files and journals are gone");
}

/// A sparse database: its pages end above 4 GiB, and new ones come behind them.
#[test]
fn a_database_is_larger_than_4_gib() {
    const PAGES: u64 = 5 << 14; // of 64 KiB: 5 GiB
    let place = TestDir::new();
    for limit in ["unlimited", "6000000"] {
        for journal in ["wal", "delete"] {
            let name = format!("large-{limit}-{journal}.db");
            // Half of them, by rotation; in the long run all.
            if !rotation::chosen(&name, 2) {
                continue;
            }
            let script = format!(
                "PRAGMA page_size = 65536; PRAGMA journal_mode = {journal}; CREATE TABLE t(a, b);"
            );
            said(&mut place.shell(&format!("file:{name}?vfs=unix"), &script));
            let path = place.path(&name);
            let mut header = std::fs::read(&path).expect("a database");
            header[28..32].copy_from_slice(&(PAGES as u32).to_be_bytes());
            std::fs::write(&path, &header).expect("write");
            let file = std::fs::File::options().write(true).open(&path).expect("that database");
            file.set_len(PAGES << 16).expect("sparse");
            let work =
                "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 40)
                INSERT INTO t SELECT x, randomblob(60000) FROM n; UPDATE t SET a = a + 1;
                PRAGMA wal_checkpoint; UPDATE t SET a = a - 1;
                SELECT sum(a), sum(length(b)) FROM t;";
            let mut shell = place.command("sh");
            let limited = format!(
                "ulimit -v {limit}; exec sqlite3 -batch :memory: '.load ./solera_vfs' \
                '.open file:{name}?vfs=solera' \"$1\""
            );
            let wrote = said(shell.args(["-c", &limited, "sh", work]));
            assert!(wrote.ends_with("820|2400000\n"), "{wrote}");
            let ask = "SELECT sum(a), sum(length(b)) FROM t; PRAGMA page_count;";
            let read = said(&mut place.shell(&format!("file:{name}?vfs=unix"), ask));
            assert_eq!(read, format!("820|2400000\n{}\n", PAGES + 40), "{name}");
        }
    }
}

/// On an ordinary disk, and where the class is named, all is the parent's.
#[test]
fn other_classes_of_memory_do_the_same() {
    let place = TestDir::new();
    for class in ["page", "cache-line", "byte"] {
        for journal in ["wal", "delete"] {
            let script =
                format!("PRAGMA journal_mode = {journal}; PRAGMA wal_autocheckpoint = 5; {WORK}");
            let mut shell = place.shell(&format!("file:{class}-{journal}.db?vfs=solera"), &script);
            shell.env("SOLERA_CLASS", class).env("SOLERA_SQLITE_AFTER", "64");
            assert!(said(&mut shell).ends_with("\nok\n"));
        }
    }
    let disk = TestDir::below(&std::env::temp_dir());
    let script = format!("PRAGMA journal_mode = wal; {WORK}");
    assert!(both_say(&disk, "disk", "", &script).ends_with("\nok\n"));
}

#[test]
fn python_loads_it() {
    const PROGRAM: &str = "
import sqlite3, sys
memory = sqlite3.connect(':memory:')
if not hasattr(memory, 'enable_load_extension'):
    sys.exit('skipped: this Python loads no extensions')
memory.enable_load_extension(True)
memory.load_extension('./solera_vfs')
database = sqlite3.connect('file:python.db?vfs=solera', uri=True)
database.execute('PRAGMA journal_mode = wal')
with database:
    database.execute('CREATE TABLE t(a, b)')
    database.executemany('INSERT INTO t VALUES (?, ?)', ((n, 'x' * n) for n in range(500)))
print(database.execute('SELECT sum(a), sum(length(b)) FROM t').fetchone())
print(database.execute('PRAGMA integrity_check').fetchone())
";
    if !is_there("/usr/bin/python3") {
        return;
    }
    let place = TestDir::new();
    let output = place.command("/usr/bin/python3").args(["-c", PROGRAM]).output().expect("Python");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.starts_with("skipped") {
        println!("{errors}");
        return;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "(124750, 124750)\n('ok',)\n", "{errors}");
}

/// The file system is full in the middle of a transaction: the same error, and the same rows after
/// it.
#[test]
fn a_full_file_system_is_what_it_is_to_unix() {
    const FILL: &str = "CREATE TABLE t(a, b);
        INSERT INTO t SELECT value, zeroblob(3000) FROM generate_series(1, 50);
        INSERT INTO t SELECT value, zeroblob(3000) FROM generate_series(1, 500);";
    const SCRIPT: &str = "mount -t tmpfs -o size=1m none full || exit 1
        for sql; do
            uri=file:full/x.db?vfs=$0
            sqlite3 -batch :memory: '.load ./solera_vfs' \".open $uri\" \"$sql\" 2>&1
        done
        rm full/x.db*; umount full; true";
    let place = TestDir::new();
    let mount = ["-m", "mount", "-t", "tmpfs", "none", "/mnt"];
    let can = place.command("unshare").args(mount).status();
    if !can.is_ok_and(|status| status.success()) {
        println!("skipped: no file system can be mounted here");
        return;
    }
    std::fs::create_dir(place.0.join("full")).expect("a directory");
    for journal in ["wal", "delete"] {
        let fill = format!("PRAGMA journal_mode = {journal}; {FILL}");
        let texts = BOTH.map(|vfs| {
            let mut shell = place.command("unshare");
            shell.args(["-m", "sh", "-c", SCRIPT, vfs, &fill]);
            said(shell.args(["SELECT count(*), sum(a) FROM t; PRAGMA integrity_check;"]))
        });
        assert_eq!(texts[0], texts[1], "{journal}");
        assert!(texts[1].contains("disk is full"), "{}", texts[1]);
        assert!(texts[1].ends_with("50|1275\nok\n"), "{}", texts[1]);
    }
}
