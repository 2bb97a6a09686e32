//! Unmodified programs under `solera run`, with the cache and without. The file is warm: the worker
//! stays attached, so eras do not end with programs.

use std::process::{Command, Stdio};
use std::time::Instant;

use console::failure::Failure;
use emulation::Model;
use serde_json::Value;

use super::rows::{Peer, Rows, Work};
use super::testbed;
use super::worker::{Bench, FILE};
use crate::harness::bound::Bound;
use crate::harness::executable;

/// How a program is run.
#[derive(Clone, Copy)]
enum Setup {
    Alone,
    Cached,
    /// What it reads is mapped.
    Attached,
    /// Alone, and what it writes goes to memory as fast as DRAM.
    FastWrites(Model),
}

/// Times a program: nanoseconds of its run, with its start.
fn time(bench: &Bench, way: Setup, line: &[&str]) -> Result<f64, Failure> {
    run(bench, way, line).map(|(took, _)| took)
}

/// Runs a program: nanoseconds of that, with its start, and what it said.
fn run(bench: &Bench, way: Setup, line: &[&str]) -> Result<(f64, Vec<u8>), Failure> {
    let asked = format!("run {}", line[0]);
    let own = executable::solera().map_err(|error| Failure::io(&*asked, &error))?;
    let mut command = Command::new(own);
    command.arg("run").arg("--volume").arg(testbed::volume(&bench.directory));
    command.args(["--at", &at()]);
    if matches!(way, Setup::Cached | Setup::Attached) {
        command.arg("--cache").arg(bench.budget().to_string());
        command.arg("--cache-dir").arg(testbed::cache(&bench.directory));
    }
    match way {
        Setup::Attached => _ = command.args(["--attach", "--align"]),
        // As `SOLERA_MEMORY` takes it: reads, and writes of no latency.
        Setup::FastWrites(model) => _ = command.env("SOLERA_MEMORY", model.with_fast_writes()),
        Setup::Alone | Setup::Cached => {}
    }
    command.arg("--").args(line).env("LC_ALL", "C").env_remove("LD_PRELOAD");
    // To /dev/null `grep` would stop at the first match.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let ran = command.output().map_err(|error| Failure::io(&*asked, &error))?;
    let took = begun.elapsed().as_nanos() as f64;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(Failure::new(asked, format!("{}: {}", ran.status, said.trim()), ""));
    }
    Ok((took, ran.stdout))
}

/// Nanoseconds that fio needs for all of the file by such reads, as it says itself: its start takes
/// longer than they do.
fn fio(bench: &Bench, way: Setup, order: &str, block: &str) -> Result<f64, Failure> {
    let (file, order) = (format!("--filename={}/{FILE}", at()), format!("--rw={order}"));
    let block = format!("--bs={block}");
    let mut line = vec!["fio", "--name=read", "--readonly", "--thread", "--ioengine=psync"];
    line.extend([&*file, &*order, &*block, "--invalidate=0", "--loops=4"]);
    line.extend(["--randrepeat=1", "--output-format=json"]);
    let (_, said) = run(bench, way, &line)?;
    let failed = |found: String| Failure::new("run fio", found, "");
    let said: Value = serde_json::from_slice(&said).map_err(|error| failed(error.to_string()))?;
    match said["jobs"][0]["read"]["bw_bytes"].as_f64() {
        Some(speed) if speed > 0.0 => Ok(bench.size as f64 / speed * 1e9),
        _ => Err(failed("it does not say how fast it read".to_owned())),
    }
}

/// The reads of fio: random and in order, from a page to 16 MiB.
fn reads_by_fio(bench: &Bench, rows: &mut Rows) -> Result<(), Failure> {
    if Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_err() {
        rows.skip("reads by fio: there is no fio".into());
        return Ok(());
    }
    for (order, called) in [("randread", "random"), ("read", "in order")] {
        for block in ["4k", "256k", "16m"] {
            let by = |way| -> Work<'_> { Box::new(move |_| fio(bench, way, order, block)) };
            let mut peers = vec![Peer::new("without --cache", Bound::Shown, by(Setup::Alone))];
            if block.ends_with('m') {
                let attached = by(Setup::Attached);
                peers.push(Peer::new("with --attach --align", Bound::Shown, attached));
            }
            let name = format!("program: fio, {called}, {block}");
            rows.measure(&name, by(Setup::Cached), peers)?;
        }
    }
    Ok(())
}

/// Where the programs find the volume: nothing else is there.
fn at() -> String {
    format!("/solera-bench-flac-{}", std::process::id())
}

/// As a program that loads what it computes with: all of a file eight times, by long reads into one
/// buffer, and a look at each byte.
const LOADER: &str = "
import sys
buffer = bytearray(16 << 20)
view = memoryview(buffer)
for epoch in range(8):
    with open(sys.argv[1], 'rb', buffering=0) as file:
        while file.readinto(view):
            assert buffer.find(b'\\xff') < 0
";

/// A database with a transaction for each row.
const INSERTS: &str = "
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute('pragma journal_mode=wal')
base.execute('create table if not exists t (a, b)')
for row in range(1000):
    base.execute('insert into t values (?, ?)', (row, 'x' * 500))
";

/// All programs that read.
pub fn all(bench: &Bench, rows: &mut Rows) -> Result<(), Failure> {
    let file = format!("{}/{FILE}", at());
    let out = outside(bench);
    let lines: [(&str, Vec<&str>); 5] = [
        ("grep", vec!["grep", "-c", "needle", &file]),
        ("tar", vec!["tar", "-cPf", &out, &file]),
        ("tar -b 8192", vec!["tar", "-b", "8192", "-cPf", &out, &file]),
        ("cp", vec!["cp", &file, &out]),
        ("sort", vec!["sort", "-o", &out, &file]),
    ];
    for (name, line) in lines {
        let alone = Box::new(|_: &mut [u8]| time(bench, Setup::Alone, &line));
        let peers = vec![Peer::new("without --cache", Bound::Shown, alone)];
        let own = Box::new(|_: &mut [u8]| time(bench, Setup::Cached, &line));
        rows.measure(&format!("program: {name}"), own, peers)?;
    }
    let line = ["python3", "-c", LOADER, &file];
    let alone = Box::new(|_: &mut [u8]| time(bench, Setup::Alone, &line));
    let cached = Box::new(|_: &mut [u8]| time(bench, Setup::Cached, &line));
    let peers = vec![
        Peer::new("without --cache", Bound::Shown, alone),
        Peer::new("without --attach --align", Bound::Shown, cached),
    ];
    let own = Box::new(|_: &mut [u8]| time(bench, Setup::Attached, &line));
    rows.measure("program: a loader, attached", own, peers)?;
    reads_by_fio(bench, rows)
}

/// Programs that write, beside the same where writes take no longer than in DRAM: what a cache
/// could win that keeps what is written, at most.
pub fn writing(bench: &Bench, rows: &mut Rows) -> Result<(), Failure> {
    let (out, copy) = (outside(bench), format!("{}/copy", at()));
    let (into, base) = (at(), format!("{}/base", at()));
    let archive = format!("{out}.tar");
    let packed = Command::new("tar").args(["-cPf", &archive, &out]).status();
    if !packed.is_ok_and(|status| status.success()) {
        rows.skip("programs that write: there is no tar".into());
        return Ok(());
    }
    let model = rows.model;
    let transform = "--transform=s,.*/,,";
    for (name, line) in [
        ("cp", vec!["cp", &out, &copy]),
        ("tar -x", vec!["tar", "-xPf", &archive, transform, "-C", &into]),
        ("sqlite, a transaction a row", vec!["python3", "-c", INSERTS, &base]),
    ] {
        let fast = Box::new(|_: &mut [u8]| time(bench, Setup::FastWrites(model), &line));
        let peers = vec![Peer::new("writes to DRAM", Bound::Shown, fast)];
        let own = Box::new(|_: &mut [u8]| time(bench, Setup::Alone, &line));
        rows.measure(&format!("writing: {name}"), own, peers)?;
    }
    Ok(())
}

/// A file on tmpfs.
fn outside(bench: &Bench) -> String {
    bench.directory.join("out").display().to_string()
}
