//! `solera log`: what is in a log, and whether it is damaged.

use std::path::Path;
use std::process::Command;

use flex::{Log, LogOptions};

use crate::support::TestDir;

fn log(path: &Path, words: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_solera"))
        .arg("log")
        .args(words)
        .arg(path)
        .output()
        .expect("solera runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_a_log_holds_and_whether_it_is_damaged() {
    let dir = TestDir::new();
    let path = dir.path("log");
    let options = LogOptions { capacity: 8192, create: true, page: true, ..LogOptions::default() };
    let writer = Log::open(&path, &options).expect("a log");
    let first = writer.append(b"one\n").expect("appended");
    let second = writer.append(&[0xFF; 100]).expect("appended");

    let (code, said, _) = log(&path, &["info"]);
    assert!(code == 0 && said.contains("2 of 104 bytes"), "{said}");
    assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
    drop(writer);
    let (_, said, _) = log(&path, &["info", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&found["records"], &found["writer"]), (&2.into(), &serde_json::Value::Null));

    let (code, said, _) = log(&path, &["dump"]);
    let last = "\\xff".repeat(100);
    assert_eq!((code, said), (0, format!("{first} 4 one\\n\n{second} 100 {last}\n")));
    let (_, said, _) = log(&path, &["dump", "--json"]);
    let line: serde_json::Value =
        serde_json::from_str(said.lines().next().expect("a line")).expect("JSON");
    assert_eq!(line["bytes"], "6f6e650a");
    assert_eq!(log(&path, &["check"]).0, 0);

    // A byte of the second record.
    let mut bytes = std::fs::read(&path).expect("a file");
    bytes[4096 + second as usize + 30] ^= 1;
    std::fs::write(&path, &bytes).expect("a file");
    let (code, said, _) = log(&path, &["check"]);
    assert!(code == 1 && said.contains("damaged: the record at"), "{said}");
    let (code, said, _) = log(&path, &["dump"]);
    assert_eq!((code, said.lines().count()), (1, 1));

    std::fs::write(&path, b"no log").expect("a file");
    let (code, _, said) = log(&path, &["check"]);
    assert!(code == 1 && said.contains("cannot read the log"), "{said}");
}
