//! The VFS of SQLite on volumes: by the library's own engine and by that of `solera run`, beside
//! SQLite's own programs that know nothing of it, through names of each kind.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::sqlite_volume::{CAPI, SqliteVolume, python, times};
use crate::support::{Mounted, Ran, can_mount, compiled, solera};

const WORK: &str = "
CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB, c TEXT);
CREATE INDEX i ON t(c);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2000)
  INSERT INTO t SELECT x, zeroblob(x % 97 * 60), 'row ' || (x * 7919 % 2003) FROM n;
BEGIN; DELETE FROM t WHERE a % 3 = 0; UPDATE t SET c = c || ' again' WHERE a % 5 = 0; COMMIT;
BEGIN; DELETE FROM t; ROLLBACK;
SAVEPOINT s; UPDATE t SET b = NULL; ROLLBACK TO s; RELEASE s;
";
const ASK: &str = "SELECT count(*), sum(length(b)), min(c), max(c) FROM t; PRAGMA integrity_check;";
/// What is asked gives this.
const SAID: &str = "1334|3797280|row 1|row 999 again\nok\n";

/// What workers work on.
impl SqliteVolume {
    fn worker(&self) -> String {
        let (include, search) = (format!("-I{CAPI}/include"), format!("-L{}", self.library));
        let options =
            [&*include, &search, "-Wl,--no-as-needed", "-lsolera", "-lsqlite3", "-ldl", "-lm"];
        compiled("sqlite/tests/c/worker.c", &options)
    }

    /// An empty database for workers.
    fn prepare(&self, file: &str, journal: &str) {
        let script = format!(
            "PRAGMA auto_vacuum = incremental; PRAGMA journal_mode = {journal};
             CREATE TABLE t(a INTEGER PRIMARY KEY, id, n, b); CREATE TABLE c(n);
             INSERT INTO c VALUES (0);"
        );
        self.shell(&self.uri(file), &script);
    }

    /// The database is whole, and the count is of the rows, by both VFSs.
    fn check(&self, file: &str) {
        let ask = "PRAGMA integrity_check; SELECT n - (SELECT count(*) FROM t) FROM c;";
        assert_eq!(self.shell(&self.uri(file), ask), "ok\n0\n", "{file}");
        assert_eq!(self.own_shell(file, ask), "ok\n0\n", "{file} by unix");
    }
}

fn start(command: &mut Command, arguments: &[&str]) -> Child {
    command.args(arguments).stdout(Stdio::piped()).spawn().expect("a worker")
}

#[test]
fn every_journal_mode_works_and_others_read_what_it_wrote() {
    let Some(sqlite) = SqliteVolume::new() else { return };
    let journals = ["delete", "truncate", "persist", "memory", "wal"];
    for journal in journals {
        for (number, setting) in [
            "",
            "PRAGMA locking_mode = exclusive;",
            "PRAGMA mmap_size = 268435456; PRAGMA page_size = 512; PRAGMA synchronous = extra;",
            "PRAGMA page_size = 65536; PRAGMA auto_vacuum = full; PRAGMA cache_size = 3;",
        ]
        .into_iter()
        .enumerate()
        {
            let file = format!("{journal}-{number}.db");
            let script = format!(
                "{setting} PRAGMA journal_mode = {journal}; {WORK} PRAGMA wal_checkpoint;
                 VACUUM; {ASK}"
            );
            let said = sqlite.shell(&sqlite.uri(&file), &script);
            assert!(said.ends_with(SAID), "{file}: {said}");
            assert_eq!(sqlite.own_shell(&file, ASK), SAID, "{file} by unix");
            // And back.
            sqlite.own_shell(&file, "UPDATE t SET c = c || '!' WHERE a = 1;");
            let ask = format!("UPDATE t SET c = 'row 1' WHERE c = 'row 1907!'; {ASK}");
            let said = sqlite.shell(&sqlite.uri(&file), &ask);
            assert!(
                said.starts_with("1334|3797280|") && said.ends_with("\nok\n"),
                "{file}: {said}"
            );
        }
    }
    if can_mount() {
        let mounted = Mounted::again(&sqlite.place, sqlite.volume.clone(), &[]);
        for journal in &journals[..4] {
            let path = format!("{}/{journal}-0.db", mounted.at);
            let ask = "SELECT count(*) FROM t; PRAGMA integrity_check;";
            let found = Ran::of(sqlite.alone("sqlite3").args(["-batch", &path, ask])).ok();
            assert_eq!(found, "1334\nok\n", "{journal} through the mount");
        }
        mounted.end();
    }
    sqlite.end();
}

/// Each name leads to the same database, and journals lie beside it.
#[test]
fn a_database_has_names_of_three_kinds() {
    let Some(sqlite) = SqliteVolume::new() else { return };
    let make = "PRAGMA journal_mode = persist; CREATE TABLE n(x); INSERT INTO n VALUES (1);";
    sqlite.shell(&sqlite.uri("my.db"), make);
    let whole = format!("file:{}:/my.db?vfs=solera", sqlite.volume);
    assert_eq!(sqlite.shell(&whole, "INSERT INTO n VALUES (2); SELECT sum(x) FROM n;"), "3\n");
    // Two databases in one transaction: its super-journal lies on the volume, too.
    let attach = format!(
        "ATTACH '{}' AS other; CREATE TABLE other.m(x); BEGIN; INSERT INTO n VALUES (3);
         INSERT INTO other.m VALUES (4); COMMIT; SELECT (SELECT sum(x) FROM n) + x FROM m;
         VACUUM INTO 'file:{}:/copy.db?vfs=solera';",
        sqlite.uri("other.db"),
        sqlite.volume
    );
    assert_eq!(sqlite.shell(&sqlite.uri("my.db"), &attach), "10\n");
    assert_eq!(sqlite.own_shell("copy.db", "SELECT sum(x) FROM n"), "6\n");
    // A link's journal is its target's.
    Ran::of(sqlite.run("ln").args(["-s", "my.db", &format!("{}/link.db", sqlite.prefix)])).ok();
    assert_eq!(sqlite.shell(&sqlite.uri("link.db"), "DELETE FROM n WHERE x = 3; VACUUM;"), "");
    let named = ".databases";
    assert!(sqlite.shell(&sqlite.uri("link.db"), named).contains(":/my.db r/w"));
    assert!(sqlite.shell(&whole, named).contains(&format!("{}:/my.db r/w", sqlite.volume)));
    // Under `solera run` these names are the path by which the volume is shown.
    let load = format!(".load {}/solera_vfs", sqlite.library);
    for name in [sqlite.uri("my.db"), whole, format!("file:{}/my.db?vfs=solera", sqlite.prefix)] {
        let open = format!(".open {name}");
        let arguments = ["-batch", ":memory:", &load, &open, "SELECT sum(x) FROM n;", named];
        let said = Ran::of(sqlite.run("sqlite3").args(arguments)).ok();
        let expected = format!("3\nmain: {}/my.db r/w\n", sqlite.prefix);
        assert_eq!(said, expected, "{name}");
    }
    if can_mount() {
        let mounted = Mounted::again(&sqlite.place, sqlite.volume.clone(), &[]);
        let name = format!("file:{}/my.db?vfs=solera", mounted.at);
        let said = sqlite.shell(&name, "INSERT INTO n VALUES (5); SELECT sum(x) FROM n;");
        assert!(said.starts_with("8\n"), "{said}");
        assert!(sqlite.shell(&name, named).contains(&format!("{}:/my.db", sqlite.volume)));
        // One engine under `solera run`, by this name too.
        let open = format!(".open {name}");
        let arguments = ["-batch", ":memory:", &load, &open, "SELECT sum(x) FROM n;", named];
        let said = Ran::of(sqlite.run("sqlite3").args(arguments)).ok();
        assert!(said.starts_with("8\nmain: /") && said.contains("/my.db r/w"), "{said}");
        assert!(!said.contains(":/my.db"), "{said}");
        let path = format!("{}/my.db", mounted.at);
        let through =
            Ran::of(sqlite.alone("sqlite3").args(["-batch", &path, "SELECT sum(x) FROM n"]));
        assert_eq!(through.ok(), "8\n");
        mounted.end();
    }
    let listed = solera(["ls", &format!("{}:/", sqlite.volume)]).ok();
    assert_eq!(listed, "copy.db\nlink.db\nmy.db\nother.db\n");
    sqlite.end();
}

/// What cannot be opened says why.
#[test]
fn what_cannot_be_opened_is_refused() {
    let Some(sqlite) = SqliteVolume::new() else { return };
    let text = sqlite.place.text("text");
    std::fs::write(&text, "no volume").expect("a file");
    let refused = |name: &str, script: &str| {
        let (load, open) =
            (format!(".load {}/solera_vfs", sqlite.library), format!(".open {name}"));
        let mut shell = sqlite.alone("sqlite3");
        let ran = Ran::of(shell.args(["-batch", ":memory:", ".log stderr", &load, &open, script]));
        format!("{}{}", ran.out, ran.err)
    };
    let said = refused(&format!("file:/my.db?vfs=solera&volume={text}"), "SELECT 1;");
    assert!(
        said.contains("solera: ") && said.contains("neither a directory nor a volume"),
        "{said}"
    );
    let said = refused("file:/my.db?vfs=solera&volume=/no/volume.pm", "SELECT 1;");
    assert!(said.contains("cannot find the volume /no/volume.pm"), "{said}");
    let said = refused(&format!("{}&mode=ro", sqlite.uri("none.db")), "SELECT * FROM t;");
    assert!(said.contains("unable to open"), "{said}");
    sqlite.shell(&sqlite.uri("my.db"), "CREATE TABLE t(x); INSERT INTO t VALUES (7);");
    Ran::of(sqlite.run("chmod").args(["640", &format!("{}/my.db", sqlite.prefix)])).ok();
    // Files beside it are as open as it is, whatever the umask says.
    let script = "PRAGMA journal_mode = wal; INSERT INTO t VALUES (8); DELETE FROM t WHERE x = 8;
                  SELECT 'asked';";
    let (load, open) =
        (format!(".load {}/solera_vfs", sqlite.library), format!(".open {}", sqlite.uri("my.db")));
    let list = format!(".system {} ls -l {}:/", env!("CARGO_BIN_EXE_solera"), sqlite.volume);
    let mut shell = sqlite.alone("sqlite3");
    let listed = Ran::of(shell.args(["-batch", ":memory:", &load, &open, script, &list])).ok();
    let modes = listed.lines().filter(|line| line.starts_with("-rw-r----- "));
    assert_eq!(modes.count(), 3, "{listed}");
    sqlite.shell(&sqlite.uri("my.db"), "PRAGMA journal_mode = delete;");
    let said =
        refused(&format!("{}&mode=ro", sqlite.uri("my.db")), "SELECT * FROM t; DELETE FROM t;");
    assert!(
        said.contains("7\n") && said.contains("attempt to write a readonly database"),
        "{said}"
    );
    sqlite.end();
}

#[test]
fn processes_of_every_kind_work_on_one_database() {
    let Some(sqlite) = SqliteVolume::new() else { return };
    let worker = &*sqlite.worker();
    let each = times(200, 3000).to_string();
    for journal in ["wal", "delete", "persist"] {
        let file = format!("{journal}.db");
        sqlite.prepare(&file, journal);
        let own = format!("{}:/{file}", sqlite.volume);
        let shown = format!("{}/{file}", sqlite.prefix);
        let mounted = (journal != "wal" && can_mount())
            .then(|| Mounted::again(&sqlite.place, sqlite.volume.clone(), &[]));
        let mut children = vec![
            start(&mut sqlite.alone(worker), &["solera", &own, "1", "2", &each]),
            start(&mut sqlite.alone(worker), &["solera", &own, "2", "1", &each]),
            start(&mut sqlite.run(worker), &["unix", &shown, "3", "1", &each]),
            // Both VFSs in one process.
            start(&mut sqlite.run(worker), &["both", &shown, "4", "2", &each]),
            start(&mut sqlite.run(worker), &["solera", &own, "5", "1", &each]),
        ];
        if let Some(mounted) = &mounted {
            let path = format!("{}/{file}", mounted.at);
            children.push(start(&mut sqlite.alone(worker), &["unix", &path, "6", "1", &each]));
        }
        for child in children {
            let output = child.wait_with_output().expect("a worker");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{file}: {}: {said}", output.status);
        }
        if let Some(mounted) = mounted {
            mounted.end();
        }
        sqlite.check(&file);
    }
    sqlite.end();
}

#[test]
fn what_was_committed_outlives_a_killed_writer() {
    let Some(sqlite) = SqliteVolume::new() else { return };
    let worker = &*sqlite.worker();
    for journal in ["wal", "delete", "persist"] {
        let file = format!("{journal}.db");
        sqlite.prepare(&file, journal);
        let own = format!("{}:/{file}", sqlite.volume);
        let mut committed = 0;
        for round in 0..times(10, 200) {
            let id = (round + 1).to_string();
            let arguments = ["solera", &own, &id, "1", "1000000"];
            // Another process has the volume meanwhile: it finds that the writer is dead.
            let beside = (round % 3 == 0)
                .then(|| start(&mut sqlite.alone(worker), &["solera", &own, "900", "1", "40"]));
            let mut child = start(&mut sqlite.alone(worker), &arguments);
            let mut said = BufReader::new(child.stdout.take().expect("its output"));
            let mut text = String::new();
            // As far as a slow machine comes, too, and then at any point.
            for _ in 0..12 + round * 7 % 30 {
                said.read_line(&mut text).expect("a line");
            }
            std::thread::sleep(Duration::from_millis((round as u64 * 37) % 60));
            child.kill().expect("killed");
            said.read_to_string(&mut text).expect("lines");
            child.wait().expect("it has ended");
            if let Some(beside) = beside {
                let output = beside.wait_with_output().expect("it ends");
                let said = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{file}, round {round}: {said}");
            }
            committed += text.lines().count();
            let last = text.lines().last().unwrap_or("-1").to_owned();
            // Every seventh row is removed now and then.
            let ask = format!(
                "SELECT count(*) FROM (WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL
                 SELECT x + 1 FROM n WHERE x < {last})
                 SELECT x FROM n WHERE x <= {last} AND x % 7 <> 3 EXCEPT
                 SELECT n FROM t WHERE id = {id}00);"
            );
            // The first to open it recovers it.
            let missing = if round % 2 == 0 {
                sqlite.shell(&sqlite.uri(&file), &ask)
            } else {
                sqlite.own_shell(&file, &ask)
            };
            assert_eq!(missing, "0\n", "{file}, round {round}: {last} were committed");
            sqlite.check(&file);
        }
        assert!(committed > 100, "{file}: {committed}");
    }
    sqlite.end();
}

const ENGINES: &str = r#"
import ctypes, os, sqlite3, subprocess, sys
order, where, volume, library, command = sys.argv[1:]
held = []
def by_library():
    solera = ctypes.CDLL(library + "/libsolera.so.0", use_errno=True)
    place = ctypes.c_void_p()
    assert solera.solera_open_place(where.encode(), 0, ctypes.byref(place)) == 0
    held.append(place)
def by_python():
    import solera
    held.append(solera.Place(where))
def by_vfs():
    db = sqlite3.connect(":memory:", uri=True)
    db.enable_load_extension(True)
    db.load_extension(library + "/solera_vfs")
    db = sqlite3.connect(f"file:/my.db?vfs=solera&volume={volume}", uri=True)
    db.execute("PRAGMA journal_mode = wal")
    db.execute("CREATE TABLE IF NOT EXISTS t(x)")
    db.execute("INSERT INTO t VALUES (1)")
    db.commit()
    held.append(db)
for way in order:
    {"l": by_library, "p": by_python, "v": by_vfs}[way]()
said = subprocess.run([command, "info", "--json", volume], capture_output=True, text=True,
                      env={"PATH": os.environ["PATH"]}).stdout
assert said.count('"pid": %d,' % os.getpid()) == 1, said
"#;

#[test]
fn a_process_has_one_engine_whatever_uses_it() {
    let Some(sqlite) = SqliteVolume::new() else { return };
    let Some(python) = python() else { return };
    let script = sqlite.place.text("engines.py");
    std::fs::write(&script, ENGINES).expect("a script");
    let command = env!("CARGO_BIN_EXE_solera");
    for order in ["lpv", "vpl", "pvl", "vlv", "v"] {
        let alone = [&script, order, &sqlite.volume, &sqlite.volume, &sqlite.library, command];
        let mut process = sqlite.alone(python);
        Ran::of(process.env("PYTHONPATH", CAPI).args(alone)).ok();
        let run = [&script, order, &sqlite.prefix, &sqlite.volume, &sqlite.library, command];
        let mut process = sqlite.run(python);
        Ran::of(process.env("PYTHONPATH", CAPI).args(run)).ok();
    }
    let rows = sqlite.shell(&sqlite.uri("my.db"), "SELECT count(*) FROM t;");
    assert_eq!(rows, "12\n");
    sqlite.end();
}
