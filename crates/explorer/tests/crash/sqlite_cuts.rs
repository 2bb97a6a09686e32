//! No power cut takes away a transaction of SQLite that was committed, and none damages its
//! database: SQLite by the VFS `solera` on an explored volume, by a rollback journal of each kind
//! and by a write-ahead log. (The log's shared memory needs a mapping, which an explored volume
//! does not have: with exclusive locking there is none.)

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

use explorer::cases::Start;
use explorer::image::{Image, Setting};
use explorer::states::{Limits, Tracker};
use flex::volumes;
use pmem::Class;
use pmem::trace::{Event, Trace};
use volume::{Mode, Volume};

/// Transactions that are cut.
const COMMITS: i64 = 4;

type Callback =
    unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type Exec = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    Option<Callback>,
    *mut c_void,
    *mut *mut c_char,
) -> c_int;
type Open = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, *const c_char) -> c_int;

/// The system's SQLite, with the VFS in it.
struct Sqlite {
    open: Open,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
    exec: Exec,
    message: unsafe extern "C" fn(*mut c_void) -> *const c_char,
}

/// A function of a loaded library.
///
/// # Safety
///
/// `F` is the type of the function of that name.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: a loaded library; the caller's promise.
    unsafe {
        let at = libc::dlsym(library, name.as_ptr());
        assert!(!at.is_null(), "SQLite has no {}", name.to_string_lossy());
        std::mem::transmute_copy(&at)
    }
}

impl Sqlite {
    /// `None`: there is none here.
    fn load() -> Option<Self> {
        // SAFETY: SQLite's library, and its functions by their names and types.
        unsafe {
            let library = libc::dlopen(c"libsqlite3.so.0".as_ptr(), libc::RTLD_NOW);
            if library.is_null() {
                println!("skipped: there is no libsqlite3.so.0 (scripts/setup.sh --tests)");
                return None;
            }
            let calls = sqlite_vfs::Calls {
                size: size_of::<sqlite_vfs::Calls>(),
                libversion_number: function(library, c"sqlite3_libversion_number"),
                vfs_find: function(library, c"sqlite3_vfs_find"),
                vfs_register: function(library, c"sqlite3_vfs_register"),
                mprintf: function(library, c"sqlite3_mprintf"),
                log: None,
            };
            sqlite_vfs::attach(&calls, false).expect("the VFS");
            Some(Self {
                open: function(library, c"sqlite3_open_v2"),
                close: function(library, c"sqlite3_close"),
                exec: function(library, c"sqlite3_exec"),
                message: function(library, c"sqlite3_errmsg"),
            })
        }
    }
}

/// A database on a volume.
struct Database<'s> {
    sqlite: &'s Sqlite,
    it: *mut c_void,
    _names: Arc<dyn volumes::Names>,
}

impl<'s> Database<'s> {
    fn open(sqlite: &'s Sqlite, volume: &Arc<Volume>) -> Result<Self, String> {
        const READ_WRITE_CREATE: c_int = 6;
        let names = volumes::of_volume(Arc::clone(volume)).map_err(|error| error.to_string())?;
        sqlite_vfs::show(Path::new("explored"), &names);
        let mut it = std::ptr::null_mut();
        let (name, vfs) = (c"explored:/db", c"solera");
        // SAFETY: strings, and room for the database.
        let code =
            unsafe { (sqlite.open)(name.as_ptr(), &raw mut it, READ_WRITE_CREATE, vfs.as_ptr()) };
        let database = Self { sqlite, it, _names: names };
        if code == 0 { Ok(database) } else { Err(database.message()) }
    }

    fn message(&self) -> String {
        // SAFETY: an open database's text.
        unsafe { CStr::from_ptr((self.sqlite.message)(self.it)) }.to_string_lossy().into_owned()
    }

    /// Runs SQL; gives the values of its last row.
    fn run(&self, sql: &str) -> Result<Vec<String>, String> {
        unsafe extern "C" fn row(
            to: *mut c_void,
            count: c_int,
            values: *mut *mut c_char,
            _names: *mut *mut c_char,
        ) -> c_int {
            // SAFETY: what `exec` was given below, and so many texts.
            unsafe {
                let to = &mut *to.cast::<Vec<String>>();
                to.clear();
                for at in 0..count as usize {
                    let value = *values.add(at);
                    let is_null = value.is_null();
                    let text = if is_null { c"" } else { CStr::from_ptr(value) };
                    to.push(text.to_string_lossy().into_owned());
                }
            }
            0
        }
        let text = CString::new(sql).expect("SQL has no NUL");
        let mut values = Vec::<String>::new();
        // SAFETY: an open database, a text, and a function for rows with its argument.
        let code = unsafe {
            let to = (&raw mut values).cast();
            (self.sqlite.exec)(self.it, text.as_ptr(), Some(row), to, std::ptr::null_mut())
        };
        if code == 0 { Ok(values) } else { Err(format!("{sql}: {}", self.message())) }
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { (self.sqlite.close)(self.it) };
    }
}

/// How a journal mode is set, also where a crash has left its files.
fn settings(journal: &str) -> String {
    let locking = if journal == "wal" { "PRAGMA locking_mode = exclusive; " } else { "" };
    format!(
        "{locking}PRAGMA journal_mode = {journal}; PRAGMA synchronous = full; \
             PRAGMA wal_autocheckpoint = 3; PRAGMA cache_size = 10;"
    )
}

/// Commits transactions, and cuts the power everywhere in them. Gives the number of images.
fn explore(sqlite: &Sqlite, image: &Image, journal: &str, setting: Setting) -> Result<u64, String> {
    let trace = Trace::new();
    let mut region = image.region(setting)?;
    region.set_hook(Arc::clone(&trace) as _);
    let volume = image.attach(region, setting)?;
    let database = Database::open(sqlite, &volume)?;
    database.run(&settings(journal))?;
    database.run(
        "CREATE TABLE t (n INTEGER PRIMARY KEY, filling BLOB); CREATE TABLE last (n);
                  INSERT INTO last VALUES (0)",
    )?;
    trace.mark("begun");
    for number in 1..=COMMITS {
        // Of more than a page, one that another transaction changes, and one that it removes.
        database.run(&format!(
            "BEGIN; INSERT INTO t VALUES ({number}, zeroblob({number} * 2500)); \
             UPDATE last SET n = {number}; DELETE FROM t WHERE n = {number} - 2; COMMIT"
        ))?;
        trace.mark("committed");
    }
    let events = trace.take();
    drop(database);
    let begun = events.iter().position(|event| *event == Event::Mark("begun".into()));
    let begun = begun.ok_or("the trace has no beginning")?;
    let mut tracker = Tracker::new(&image.base, &events, setting.class);
    tracker.skip(begun + 1);
    let (mut seen, mut count, mut wrong) = (HashSet::new(), 0, None);
    tracker.explore(begun + 1, &Limits::SPARSE, 1, &mut |state, committed| {
        if !seen.insert(state.hash()) {
            return true;
        }
        count += 1;
        let found = image
            .crashed(setting, &state.overlay())
            .and_then(|region| image.attach(region, setting))
            .and_then(|volume| judge(sqlite, &volume, journal, committed as i64));
        wrong = found.err().map(|text| format!("{journal}, {}: {text}", state.name));
        wrong.is_none()
    });
    wrong.map_or(Ok(count), Err)
}

/// What a database is after a crash, `committed` transactions having returned.
fn judge(
    sqlite: &Sqlite,
    volume: &Arc<Volume>,
    journal: &str,
    committed: i64,
) -> Result<(), String> {
    let database = Database::open(sqlite, volume)?;
    database.run(&settings(journal))?;
    let whole = database.run("PRAGMA integrity_check")?;
    if whole != ["ok"] {
        return Err(format!("{whole:?}"));
    }
    let last = database.run("SELECT n FROM last")?;
    let last =
        last.first().and_then(|last| last.parse::<i64>().ok()).ok_or("no number is there")?;
    if last != committed && last != committed + 1 {
        return Err(format!("{committed} were committed, {last} are there"));
    }
    // What a transaction has done it has done whole.
    let there = database.run("SELECT group_concat(n), sum(length(filling)) FROM t")?;
    let rows: Vec<i64> = ((last - 1).max(1)..=last).collect();
    let names: Vec<String> = rows.iter().map(i64::to_string).collect();
    let bytes: i64 = rows.iter().map(|n| n * 2500).sum();
    let bytes = if last == 0 { String::new() } else { bytes.to_string() };
    if there != [names.join(","), bytes] {
        return Err(format!("behind transaction {last} there is {there:?}"));
    }
    database.run("INSERT INTO t VALUES (100, 'more')").map(drop)
}

#[test]
fn what_was_committed_is_there_and_the_database_is_whole() {
    let Some(sqlite) = Sqlite::load() else { return };
    let start = Start { name: "sqlite", build: Vec::new(), full: false };
    let image = Image::new(&start).expect("a volume");
    // Another kind of journal at each commit; with `SOLERA_TEST_LONG` all.
    let journals = ["wal", "delete", "truncate", "persist"];
    let turn = rotation::turn("sqlite_cuts", journals.len() as u32) as usize;
    let journals = if rotation::all() { &journals[..] } else { &journals[turn..=turn] };
    for &journal in journals {
        for class in [Class::CacheLine, Class::Byte] {
            let setting = Setting { mode: Mode::Strict, class };
            let images = explore(&sqlite, &image, journal, setting);
            let images = images.unwrap_or_else(|wrong| panic!("{wrong}"));
            println!("{journal}, {class}: {images} images");
            assert!(images > 100, "{journal}, {class}: {images} images");
        }
        // Where calls that have returned are not durable, as the VFS believes, it shows.
        let setting = Setting { mode: Mode::Posix, class: Class::CacheLine };
        let lost = explore(&sqlite, &image, journal, setting);
        println!("{journal}, not durable: {lost:?}");
        assert!(lost.is_err(), "{journal}: nothing is lost though nothing is synced");
    }
}
