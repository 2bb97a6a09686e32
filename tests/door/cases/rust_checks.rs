//! What rust-tools.sh builds: files without a name (tempfile) and a store (fjall).

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

fn temporary(at: &Path) {
    let mut file = tempfile::tempfile_in(at).unwrap();
    file.write_all(b"without a name").unwrap();
    file.seek(SeekFrom::Start(8)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    println!("tempfile: {text}");
    let mut named = tempfile::NamedTempFile::new_in(at).unwrap();
    write!(named, "{}", "x".repeat(100_000)).unwrap();
    println!("named: {}", fs::metadata(named.path()).unwrap().len());
    named.persist(at.join("kept")).unwrap();
    let again = tempfile::NamedTempFile::new_in(at).unwrap();
    println!(
        "noclobber: {:?}",
        again.persist_noclobber(at.join("kept")).map_err(|e| e.error.kind()).err()
    );
    let dir = tempfile::Builder::new().prefix("d-").tempdir_in(at).unwrap();
    for i in 0..50 {
        fs::write(dir.path().join(i.to_string()), vec![b'y'; i * 1000]).unwrap();
    }
    println!("in a directory: {}", fs::read_dir(dir.path()).unwrap().count());
    dir.close().unwrap();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let at = at.to_owned();
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let mut file = tempfile::NamedTempFile::new_in(&at).unwrap();
                    file.write_all(b"z").unwrap();
                    file.as_file().sync_all().unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut names: Vec<_> = fs::read_dir(at).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    println!("left: {names:?}");
}

fn database(at: &Path) -> fjall::Result<()> {
    for round in 0..3_u32 {
        let db = fjall::Database::builder(at.join("db")).open()?;
        let items = db.keyspace("items", fjall::KeyspaceCreateOptions::default)?;
        println!("found {}", items.iter().count());
        std::thread::scope(|scope| {
            for part in 0..4_u32 {
                let items = items.clone();
                scope.spawn(move || {
                    for i in 0..1500_u32 {
                        items
                            .insert(
                                (round * 10_000 + part * 2000 + i).to_be_bytes(),
                                format!("{round} {part} {i}").repeat(20),
                            )
                            .unwrap();
                    }
                });
            }
        });
        let mut batch = db.batch();
        for i in 0..100_u32 {
            batch.remove(&items, (round * 10_000 + i).to_be_bytes());
        }
        batch.commit()?;
        items.rotate_memtable_and_wait()?;
        db.persist(fjall::PersistMode::SyncAll)?;
        let sum: usize = items
            .iter()
            .map(|kv| kv.into_inner().map_or(0, |(key, value)| key.len() + value.len()))
            .sum();
        println!(
            "round {round}: {} {sum} {:?}",
            items.iter().count(),
            items.get((round * 10_000 + 500).to_be_bytes())?.map(|v| v.len())
        );
    }
    Ok(())
}

fn main() {
    let at = std::env::args().nth(1).unwrap();
    let at = Path::new(&at);
    fs::create_dir_all(at.join("tmp")).unwrap();
    temporary(&at.join("tmp"));
    if let Err(error) = database(at) {
        println!("{error:?}");
    }
    let out = std::process::Command::new("sh")
        .arg("-c")
        .arg("cat; pwd | wc -l")
        .current_dir(at)
        .stdin(fs::File::open(at.join("tmp/kept")).unwrap())
        .output()
        .unwrap();
    println!("{} {}", out.status, out.stdout.len());
    println!(
        "{:?}",
        std::process::Command::new(at.join("absent")).spawn().map_err(|e| e.kind()).err()
    );
    println!("{}", std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy());
    let panicked = std::panic::catch_unwind(|| fs::read(at.join("none")).unwrap());
    println!("{}", panicked.is_err());
    fs::copy(at.join("tmp/kept"), at.join("copy")).unwrap();
    println!("{}", fs::read(at.join("copy")).unwrap().len());
    fs::remove_dir_all(at.join("tmp")).unwrap();
}
