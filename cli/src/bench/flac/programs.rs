//! Unmodified programs under `solera run`, with the cache and without. The file is warm: the worker
//! stays attached, so eras do not end with programs.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::ground;
use super::rows::{AtMost, Peer, Rows};
use super::worker::{Bench, FILE};
use crate::failure::Failure;

/// Times a program: nanoseconds of its run, with its start.
fn time(bench: &Bench, cached: bool, line: &[String]) -> Result<f64, Failure> {
    let asked = format!("run {}", line[0]);
    let own = std::env::current_exe().map_err(|error| Failure::io(&*asked, &error))?;
    let mut command = Command::new(own);
    command.arg("run").arg("--volume").arg(ground::volume(&bench.directory));
    command.args(["--at", &at()]);
    if cached {
        command.arg("--cache").arg(bench.budget().to_string());
        command.arg("--cache-dir").arg(ground::cache(&bench.directory));
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
    Ok(took)
}

/// Where the programs find the volume: nothing else is there.
fn at() -> String {
    format!("/solera-bench-flac-{}", std::process::id())
}

/// All programs.
pub fn all(bench: &Bench, rows: &mut Rows) -> Result<(), Failure> {
    let file = format!("{}/{FILE}", at());
    let out: PathBuf = bench.directory.join("out");
    let out = out.display().to_string();
    let lines: [(&str, Vec<&str>); 3] = [
        ("grep", vec!["grep", "-c", "needle", &file]),
        ("tar", vec!["tar", "-cPf", &out, &file]),
        ("cp", vec!["cp", &file, &out]),
    ];
    for (name, line) in lines {
        let line: Vec<String> = line.into_iter().map(str::to_owned).collect();
        let alone = Box::new(|_: &mut [u8]| time(bench, false, &line));
        let peers = vec![Peer::new("without --cache", AtMost::Shown, alone)];
        rows.measure(&format!("program: {name}"), Box::new(|_| time(bench, true, &line)), peers)?;
    }
    Ok(())
}
