//! A worker process of `bench sqlite`: one peer, which measures the rows that it is told.
//!
//! Protocol: for each row's name on standard input it writes the microseconds a call, on the clock
//! and of the processor. Databases are made by the row that needs them first. A failure is told on
//! standard error and ends it.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use console::failure::{Failure, Outcome};
use solera_bench::SqliteWorkerArgs;

use super::library::{Database, Result, Sqlite, Statement};
use super::null_vfs;
use super::{Variant, Workload};

/// Microseconds a call.
#[derive(Clone, Copy)]
pub struct Elapsed {
    /// On the clock.
    pub clock: f64,
    /// Of the processor.
    pub cpu: f64,
}

/// Serves rows until standard input ends.
pub fn run(args: &SqliteWorkerArgs) -> Outcome {
    let asked = format!("measure {}", args.who);
    let failed = |why: String| Failure::new(&asked, why, "");
    let variant =
        Variant::from_name(&args.who).ok_or_else(|| failed("there is no such peer".into()))?;
    let mut worker = Worker {
        sqlite: Sqlite::load()?,
        variant,
        args,
        loaded: false,
        filled: false,
        open: Vec::new(),
    };
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| failed(error.to_string()))?;
        let workload =
            Workload::from_name(&line).ok_or_else(|| failed(format!("no row `{line}`")))?;
        let took = worker.measure(workload).map_err(failed)?;
        answer(&format!("{:.4} {:.4}", took.clock, took.cpu))?;
    }
    Ok(0)
}

fn answer(text: &str) -> std::result::Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::io("answer the benchmark", &error))
}

struct Worker<'a> {
    sqlite: &'static Sqlite,
    variant: Variant,
    args: &'a SqliteWorkerArgs,
    /// Whether its VFS is known to SQLite.
    loaded: bool,
    /// Whether the table that is read is there.
    filled: bool,
    /// Statements of rows that insert.
    open: Vec<(Workload, Statement)>,
}

/// Runs something so often; gives what one took.
fn timed(calls: u64, mut call: impl FnMut() -> Result<()>) -> Result<Elapsed> {
    let (begun, used) = (Instant::now(), processor_time());
    for _ in 0..calls {
        call()?;
    }
    let (clock, cpu) = (begun.elapsed().as_nanos() as f64 / 1e3, processor_time() - used);
    Ok(Elapsed { clock: clock / calls as f64, cpu: cpu / calls as f64 })
}

/// Microseconds that this process has had of the processors.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// What stands for a path in a URI.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte) {
            text.push(byte.into());
        } else {
            // Text takes everything.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

impl Worker<'_> {
    fn vfs(&self) -> &'static CStr {
        match self.variant {
            Variant::Nothing => null_vfs::NAME,
            Variant::Unix | Variant::UnixOnVolume => c"unix",
            Variant::Solera | Variant::SoleraOnVolume => c"solera",
        }
    }

    /// Makes the VFS known to SQLite, the first time.
    fn load(&mut self) -> Result<()> {
        if !self.loaded {
            match self.variant {
                Variant::Nothing => null_vfs::register(self.sqlite)?,
                Variant::Unix | Variant::UnixOnVolume => {}
                Variant::Solera | Variant::SoleraOnVolume => {
                    self.sqlite.load_vfs(&self.args.extension)?;
                }
            }
            self.loaded = true;
        }
        Ok(())
    }

    fn database(&mut self, name: &str) -> Result<Database> {
        self.load()?;
        let path = self.args.place.join(name);
        let name = match &self.args.volume {
            None => path,
            Some(volume) => {
                PathBuf::from(format!("file:{}?volume={}", escaped(&path), escaped(volume)))
            }
        };
        Database::open(self.sqlite, &name, Some(self.vfs()))
    }

    fn measure(&mut self, workload: Workload) -> Result<Elapsed> {
        match workload {
            Workload::Wal | Workload::Exclusive | Workload::Delete => self.inserts(workload),
            Workload::Select => self.select(),
            Workload::First => timed(1, || {
                let database = self.database(SELECTED)?;
                database.prepare("select a from t limit 1")?.run()
            }),
        }
    }

    /// One transaction each.
    fn inserts(&mut self, workload: Workload) -> Result<Elapsed> {
        let known = self.open.iter().position(|(open, _)| *open == workload);
        let at = known.unwrap_or(self.open.len());
        if known.is_none() {
            let database = self.database(&format!("{}.db", workload.name()))?;
            if workload == Workload::Exclusive {
                database.execute("pragma locking_mode=exclusive")?;
            }
            database.set_journal(if workload == Workload::Delete { "delete" } else { "wal" })?;
            database.execute(
                "pragma synchronous=full; create table t(a integer primary key, b blob)",
            )?;
            let statement = database.prepare("insert into t(b) values (randomblob(100))")?;
            self.open.push((workload, statement));
        }
        let statement = &mut self.open[at].1;
        timed(self.args.inserts, || statement.run())
    }

    fn select(&mut self) -> Result<Elapsed> {
        if !self.filled {
            let fill = self.database(SELECTED)?;
            let rows = self.args.rows;
            fill.set_journal("off")?;
            fill.execute("pragma synchronous=off")?;
            fill.execute("create table t(a integer primary key, b blob)")?;
            fill.execute(&format!(
                "with recursive n(x) as (select 1 union all select x + 1 from n where x < {rows}) \
                 insert into t select x, randomblob(100) from n"
            ))?;
            fill.set_journal("wal")?;
            self.filled = true;
        }
        timed(1, || {
            let database = self.database(SELECTED)?;
            database.prepare("select sum(length(b)) from t")?.run()
        })
    }
}

/// The database that is read.
const SELECTED: &str = "select.db";
