//! The programs: what each is called, needs, and runs.
//!
//! What runs is a shell script each (`suite/`), which tells rows; drivers of ours are compiled for
//! the run from sources that this program carries in it. Of what is not installed it is known which
//! Debian package has it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use console::failure::Failure;
use console::preload::program;

/// A command, a header (`.h`), or a path (`*` stands for a part of it), and its Debian package, or
/// the command that installs it, of what Debian does not have.
type Need = (&'static str, &'static str);

const CC: Need = ("cc", "gcc");
const CXX: Need = ("c++", "g++");
const LIBC: Need = ("stdio.h", "libc6-dev");
/// Where commands are that no user's PATH need have.
const SYSTEM: [&str; 2] = ["/usr/sbin", "/sbin"];
const INCLUDE: &str = "/usr/include";

/// A program of ours, and what it is linked with.
pub struct Driver {
    pub source: &'static str,
    pub libraries: &'static [&'static str],
}

const SQLITE: Driver = Driver { source: "sqlite.c", libraries: &["-lsqlite3"] };
const TPCC: Driver = Driver { source: "tpcc.c", libraries: &["-lsqlite3"] };
const THREADS: Driver = Driver { source: "threads.c", libraries: &["-pthread"] };
const LEVELDB: Driver = Driver { source: "leveldb.cc", libraries: &["-lleveldb"] };
const LMDB: Driver = Driver { source: "lmdb_mixes.cc", libraries: &["-llmdb", "-pthread"] };
const ROCKSDB: Driver =
    Driver { source: "rocksdb_mixes.cc", libraries: &["-lrocksdb", "-pthread"] };

impl Driver {
    /// What it is called when it is compiled.
    pub fn name(&self) -> &'static str {
        self.source.split('.').next().unwrap_or(self.source)
    }

    pub fn compiler(&self) -> &'static str {
        let is_c = Path::new(self.source).extension() == Some(OsStr::new("c"));
        if is_c { CC.0 } else { CXX.0 }
    }
}

pub struct Program {
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// The script, and what it is told.
    pub script: &'static str,
    pub variant: &'static str,
    needs: &'static [Need],
    pub driver: Option<Driver>,
    /// Of what the script starts, what sees no volume: clients of servers.
    pub outside: &'static [&'static str],
}

const SQLITE_NEEDS: &[Need] = &[CC, LIBC, ("sqlite3.h", "libsqlite3-dev")];
const FIO_NEEDS: &[Need] = &[("fio", "fio")];
const REDIS_NEEDS: &[Need] =
    &[("redis-check-rdb", "redis-tools"), ("redis-benchmark", "redis-tools")];
const REDIS_CLIENTS: &[&str] = &["redis-cli", "redis-benchmark"];

const NONE: Program = Program {
    name: "",
    title: "",
    script: "",
    variant: "",
    needs: &[],
    driver: None,
    outside: &[],
};

pub static ALL: [Program; 28] = [
    Program {
        name: "sqlite-wal-full",
        title: "SQLite, write-ahead log, synchronous=FULL: inserts",
        script: "sqlite",
        variant: "WAL FULL",
        needs: SQLITE_NEEDS,
        driver: Some(SQLITE),
        ..NONE
    },
    Program {
        name: "sqlite-wal-normal",
        title: "SQLite, write-ahead log, synchronous=NORMAL: inserts",
        script: "sqlite",
        variant: "WAL NORMAL",
        needs: SQLITE_NEEDS,
        driver: Some(SQLITE),
        ..NONE
    },
    Program {
        name: "sqlite-delete",
        title: "SQLite, rollback journal, synchronous=FULL: inserts",
        script: "sqlite",
        variant: "DELETE FULL",
        needs: SQLITE_NEEDS,
        driver: Some(SQLITE),
        ..NONE
    },
    Program {
        name: "sqlite-tpcc",
        title: "SQLite, much like TPC-C: new orders and payments",
        script: "tpcc",
        needs: SQLITE_NEEDS,
        driver: Some(TPCC),
        ..NONE
    },
    Program {
        name: "rocksdb",
        title: "RocksDB, db_bench",
        script: "rocksdb",
        needs: &[("db_bench", "rocksdb-tools")],
        ..NONE
    },
    Program {
        name: "leveldb",
        title: "LevelDB, as its db_bench does it",
        script: "leveldb",
        needs: &[CXX, ("leveldb/db.h", "libleveldb-dev")],
        driver: Some(LEVELDB),
        ..NONE
    },
    Program {
        name: "lmdb",
        title: "LMDB: fill, read, half updates",
        script: "lmdb",
        needs: &[CXX, ("lmdb.h", "liblmdb-dev")],
        driver: Some(LMDB),
        ..NONE
    },
    Program {
        name: "ycsb-rocksdb",
        title: "YCSB A to F on RocksDB",
        script: "ycsb",
        variant: "rocksdb",
        needs: &[CXX, ("rocksdb/db.h", "librocksdb-dev")],
        driver: Some(ROCKSDB),
        ..NONE
    },
    Program {
        name: "ycsb-lmdb",
        title: "YCSB A to F on LMDB, a sync with each update",
        script: "ycsb",
        variant: "lmdb",
        needs: &[CXX, ("lmdb.h", "liblmdb-dev")],
        driver: Some(LMDB),
        ..NONE
    },
    Program {
        name: "git",
        title: "git: clone, status, gc",
        script: "git",
        needs: &[("git", "git")],
        ..NONE
    },
    Program {
        name: "tar",
        title: "tar: unpack and pack small files",
        script: "tar",
        needs: &[("tar", "tar")],
        ..NONE
    },
    Program {
        name: "rsync",
        title: "rsync of small files",
        script: "rsync",
        needs: &[("rsync", "rsync")],
        ..NONE
    },
    Program {
        name: "make",
        title: "make of a small C tree",
        script: "make",
        needs: &[("make", "make"), CC, LIBC],
        ..NONE
    },
    Program {
        name: "python",
        title: "Python starts with many modules",
        script: "python",
        needs: &[("/usr/bin/python3", "python3")],
        ..NONE
    },
    Program {
        name: "threads",
        title: "Appends and reads by one thread and by two",
        script: "threads",
        needs: &[CC, LIBC],
        driver: Some(THREADS),
        ..NONE
    },
    Program {
        name: "uv",
        title: "uv: packages of Python into environments",
        script: "uv",
        needs: &[("uv", "pip install uv"), ("/usr/bin/python3", "python3")],
        ..NONE
    },
    Program {
        name: "pnpm",
        title: "pnpm: packages of Node into a project",
        script: "pnpm",
        needs: &[("pnpm", "npm install -g pnpm"), ("node", "nodejs")],
        ..NONE
    },
    Program {
        name: "bbolt",
        title: "bbolt, a store in Go: commits",
        script: "bolt",
        needs: &[
            ("go", "golang-go"),
            ("/usr/share/gocode/src/go.etcd.io/bbolt/db.go", "golang-github-coreos-bbolt-dev"),
        ],
        ..NONE
    },
    Program {
        name: "restic",
        title: "restic: backups of many files",
        script: "restic",
        needs: &[("restic", "restic")],
        ..NONE
    },
    Program {
        name: "php-sqlite",
        title: "PHP: requests that use SQLite and sessions",
        script: "php",
        needs: &[("php", "php-cli"), ("/usr/lib/php/*/pdo_sqlite.so", "php-sqlite3")],
        ..NONE
    },
    Program {
        name: "fio-varmail",
        title: "fio: a mail server",
        script: "fio",
        variant: "varmail",
        needs: FIO_NEEDS,
        ..NONE
    },
    Program {
        name: "fio-fileserver",
        title: "fio: a file server",
        script: "fio",
        variant: "fileserver",
        needs: FIO_NEEDS,
        ..NONE
    },
    Program {
        name: "fio-webserver",
        title: "fio: a web server",
        script: "fio",
        variant: "webserver",
        needs: FIO_NEEDS,
        ..NONE
    },
    Program {
        name: "fio-webproxy",
        title: "fio: a web proxy",
        script: "fio",
        variant: "webproxy",
        needs: FIO_NEEDS,
        ..NONE
    },
    Program {
        name: "redis-always",
        title: "redis, append-only file, synced always",
        script: "redis",
        variant: "always",
        needs: REDIS_NEEDS,
        outside: REDIS_CLIENTS,
        ..NONE
    },
    Program {
        name: "redis-everysec",
        title: "redis, append-only file, synced each second",
        script: "redis",
        variant: "everysec",
        needs: REDIS_NEEDS,
        outside: REDIS_CLIENTS,
        ..NONE
    },
    Program {
        name: "postgresql",
        title: "PostgreSQL, pgbench: TPC-B and select",
        script: "postgresql",
        needs: &[
            ("/usr/lib/postgresql/*/bin/postgres", "postgresql"),
            ("/usr/lib/postgresql/*/bin/pgbench", "postgresql"),
        ],
        outside: &["pgbench", "pg_isready"],
        ..NONE
    },
    Program {
        name: "mariadb",
        title: "MariaDB, sysbench: oltp_write_only and oltp_read_write",
        script: "mariadb",
        needs: &[
            ("mariadbd", "mariadb-server-core"),
            ("mariadb-install-db", "mariadb-server-core"),
            ("mariadb", "mariadb-client-core"),
            ("sysbench", "sysbench"),
        ],
        outside: &["mariadb", "sysbench"],
        ..NONE
    },
];

/// What this program carries: names and texts.
const FILES: [(&str, &str); 35] = [
    ("run.sh", include_str!("run.sh")),
    ("sqlite.sh", include_str!("sqlite.sh")),
    ("tpcc.sh", include_str!("tpcc.sh")),
    ("rocksdb.sh", include_str!("rocksdb.sh")),
    ("leveldb.sh", include_str!("leveldb.sh")),
    ("lmdb.sh", include_str!("lmdb.sh")),
    ("ycsb.sh", include_str!("ycsb.sh")),
    ("git.sh", include_str!("git.sh")),
    ("tar.sh", include_str!("tar.sh")),
    ("rsync.sh", include_str!("rsync.sh")),
    ("make.sh", include_str!("make.sh")),
    ("python.sh", include_str!("python.sh")),
    ("threads.sh", include_str!("threads.sh")),
    ("uv.sh", include_str!("uv.sh")),
    ("pnpm.sh", include_str!("pnpm.sh")),
    ("bolt.sh", include_str!("bolt.sh")),
    ("go_bolt.go", include_str!("../../../scripts/go_bolt.go")),
    ("restic.sh", include_str!("restic.sh")),
    ("php.sh", include_str!("php.sh")),
    ("requests.php", include_str!("requests.php")),
    ("fio.sh", include_str!("fio.sh")),
    ("varmail.fio", include_str!("varmail.fio")),
    ("fileserver.fio", include_str!("fileserver.fio")),
    ("webserver.fio", include_str!("webserver.fio")),
    ("webproxy.fio", include_str!("webproxy.fio")),
    ("redis.sh", include_str!("redis.sh")),
    ("postgresql.sh", include_str!("postgresql.sh")),
    ("mariadb.sh", include_str!("mariadb.sh")),
    ("sqlite.c", include_str!("../../../apps/sqlite.c")),
    ("tpcc.c", include_str!("../../../apps/tpcc.c")),
    ("threads.c", include_str!("../../../apps/threads.c")),
    ("leveldb.cc", include_str!("../../../apps/leveldb.cc")),
    ("lmdb_mixes.cc", include_str!("../../../apps/lmdb_mixes.cc")),
    ("rocksdb_mixes.cc", include_str!("../../../apps/rocksdb_mixes.cc")),
    ("stores.h", include_str!("../../../apps/stores.h")),
];

impl Program {
    /// The Debian packages that have what is missing here, and the commands that install the rest.
    pub fn missing(&self) -> Vec<&'static str> {
        let missing = self.needs.iter().filter(|(what, _)| !is_there(what));
        let mut packages: Vec<_> = missing.map(|(_, package)| *package).collect();
        packages.sort_unstable();
        packages.dedup();
        packages
    }

    /// The script that it runs.
    pub fn text(&self) -> &'static str {
        let name = format!("{}.sh", self.script);
        FILES.iter().find(|(file, _)| *file == name).map_or("", |(_, text)| text)
    }
}

/// What installs what [`Program::missing`] names.
pub fn installation(missing: &[&str]) -> String {
    let (commands, packages): (Vec<&str>, Vec<&str>) =
        missing.iter().partition(|missing| missing.contains(' '));
    let packages = Some(packages.join(" ")).filter(|packages| !packages.is_empty());
    let packages = packages.map(|packages| format!("apt install {packages}"));
    let all: Vec<&str> = packages.as_deref().into_iter().chain(commands).collect();
    all.join("; ")
}

/// Writes all that it carries to a directory.
pub fn lay_out(to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    FILES.iter().try_for_each(|(name, text)| fs::write(to.join(name), text))
}

/// The programs of these names; all of them if there are none.
pub fn chosen(names: &[String]) -> Result<Vec<&'static Program>, Failure> {
    let fits = |name: &str, program: &Program| {
        program.name == name
            || program.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
    };
    if let Some(wrong) = names.iter().find(|name| !ALL.iter().any(|one| fits(name, one))) {
        let all: Vec<&str> = ALL.iter().map(|program| program.name).collect();
        let found = format!("there is no such program; there are {}", all.join(", "));
        return Err(Failure::new(format!("measure {wrong}"), found, "").code(2));
    }
    let all = ALL.iter();
    Ok(all
        .filter(|program| names.is_empty() || names.iter().any(|name| fits(name, program)))
        .collect())
}

fn is_there(what: &str) -> bool {
    if what.starts_with('/') {
        return matches(what);
    }
    if Path::new(what).extension() == Some(OsStr::new("h")) {
        return Path::new(INCLUDE).join(what).exists();
    }
    program::find(OsStr::new(what)).is_ok()
        || SYSTEM.iter().any(|dir| Path::new(dir).join(what).exists())
}

/// Whether a path is there, one of whose parts may be `*`.
fn matches(path: &str) -> bool {
    let Some((before, after)) = path.split_once("/*/") else { return Path::new(path).exists() };
    let entries = fs::read_dir(before).into_iter().flatten().flatten();
    let mut candidates = entries.map(|entry| -> PathBuf { entry.path().join(after) });
    candidates.any(|candidate| candidate.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_a_name_of_its_own_and_its_script() {
        for (number, program) in ALL.iter().enumerate() {
            assert!(program.text().contains("turn() {"), "{}", program.name);
            assert!(!ALL[..number].iter().any(|other| other.name == program.name));
            if let Some(driver) = &program.driver {
                assert!(FILES.iter().any(|(name, _)| *name == driver.source));
            }
        }
    }

    #[test]
    fn a_name_stands_for_itself_or_for_a_family() {
        let names = |asked: &str| -> Vec<&str> {
            let found = chosen(&[asked.to_owned()]).unwrap_or_default();
            found.iter().map(|program| program.name).collect()
        };
        assert_eq!(names("tar"), ["tar"]);
        assert_eq!(names("ycsb"), ["ycsb-rocksdb", "ycsb-lmdb"]);
        assert_eq!(names("rocksdb"), ["rocksdb"]);
        assert_eq!(names("sql"), Vec::<&str>::new());
    }

    #[test]
    fn what_is_missing_is_installed_by_its_own_command() {
        assert_eq!(installation(&["gcc", "libc6-dev"]), "apt install gcc libc6-dev");
        let mixed = ["npm install -g pnpm", "nodejs"];
        assert_eq!(installation(&mixed), "apt install nodejs; npm install -g pnpm");
        assert_eq!(installation(&["pip install uv"]), "pip install uv");
    }

    #[test]
    fn paths_with_a_star_are_looked_for() {
        assert!(is_there("/usr/*/sh") && !is_there("/usr/*/no such file"));
        assert!(is_there("sh") && !is_there("no-such-command") && !is_there("no/such.h"));
    }
}
