//! A program in Rust whose database lies in memory by solera's VFS.
//!
//! usage: cargo run --release -- /usr/lib/solera_vfs.so DATABASE
//!
//! DATABASE is a path in a directory (`/mnt/pm/my.db`), or on a volume (`/dev/shm/v.pm:/my.db`).

use rusqlite::{Connection, OpenFlags, Result};

/// Makes the VFS known to this program's SQLite: it stays, whatever becomes of the connection.
fn load(extension: &str) -> Result<()> {
    let connection = Connection::open_in_memory()?;
    // SAFETY: the file is solera's extension, whose entry does as SQLite says.
    unsafe {
        connection.load_extension_enable()?;
        connection.load_extension(extension, Some("sqlite3_soleravfs_init"))
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, extension, path] = &arguments[..] else {
        eprintln!("usage: solera-rusqlite-example EXTENSION DATABASE");
        std::process::exit(2);
    };
    load(extension)?;
    let mut database = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), "solera")?;
    database.pragma_update(None, "journal_mode", "wal")?;
    database.pragma_update(None, "synchronous", "full")?;
    database.execute("CREATE TABLE IF NOT EXISTS visits (at TEXT)", ())?;
    // One fence a transaction, where the kernel's file systems would sync.
    let transaction = database.transaction()?;
    transaction.execute("INSERT INTO visits VALUES (datetime())", ())?;
    transaction.commit()?;
    let visits: i64 = database.query_row("SELECT count(*) FROM visits", (), |row| row.get(0))?;
    println!("{visits} visits");
    Ok(())
}
