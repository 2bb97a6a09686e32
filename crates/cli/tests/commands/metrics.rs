//! `solera metrics`: what a monitor is told is what `solera info` says.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{Ran, TestDir, command, solera};

/// The values of a text, by what stands before them.
fn value(text: &str, sample: &str) -> Option<u64> {
    let found = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    found.map(|value| value.parse().unwrap())
}

fn of(text: &str, name: &str, volume: &str) -> Option<u64> {
    value(text, &format!("solera_volume_{name}{{volume=\"{volume}\"}}"))
}

/// Ends it as a service manager does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let ended = self.0.wait().unwrap();
        assert!(ended.success(), "{ended}");
    }
}

/// What Prometheus asks of names and texts beside the format (`promtool check metrics`).
fn is_conventional(text: &str) {
    let (mut family, mut kind, mut seen) = ("", "", Vec::new());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        if line.starts_with('#') {
            let (what, name) = (words.nth(1).unwrap(), words.next().unwrap());
            let said = words.next().unwrap_or_default();
            match what {
                "HELP" => {
                    assert!(!seen.contains(&name), "{name} comes twice");
                    assert!(said.ends_with('.') && said.len() > 8, "{line}");
                    seen.push(name);
                    family = name;
                }
                "TYPE" => {
                    assert_eq!(name, family, "{line}");
                    kind = said;
                    assert!(matches!(said, "gauge" | "counter"), "{line}");
                    assert_eq!(name.ends_with("_total"), said == "counter", "{line}");
                }
                _ => panic!("{line}"),
            }
            let letters = |letter: char| letter.is_ascii_lowercase() || letter == '_';
            assert!(name.chars().all(letters) && !name.contains("__"), "{line}");
            // Base units, in full; no kind of metric in its name.
            for word in name.split('_') {
                let wrong = ["ms", "us", "ns", "kb", "mb", "kib", "mib", "bits", "milliseconds"];
                assert!(!wrong.contains(&word), "{line}");
                assert!(!["gauge", "counter", "count", "sum", "bucket"].contains(&word), "{line}");
            }
            continue;
        }
        assert!(!kind.is_empty() && line.starts_with(family), "{line} is not of {family}");
        let name = line.split(['{', ' ']).next().unwrap();
        assert_eq!(name, family, "{line}");
        assert!(line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() >= 0.0, "{line}");
        assert!(!seen.contains(&line), "{line} comes twice");
        seen.push(line);
    }
    assert!(text.ends_with('\n') && seen.len() > 30, "{text}");
}

/// Prometheus's own tool says so, where it is installed.
fn is_checked(text: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = promtool.stdout(Stdio::piped()).spawn() else {
        println!("skipped: promtool is not installed (Debian's package prometheus has it)");
        return;
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let ended = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.is_empty(), "{said}\n{text}");
}

/// Whoever knows the format finds nothing wrong: by Debian's parser of Prometheus's own client.
fn is_read(text: &str) {
    is_checked(text);
    let lines = "import sys\nfrom prometheus_client.parser import text_string_to_metric_families\n\
                 found = list(text_string_to_metric_families(sys.stdin.read()))\n\
                 assert len(found) > 15, found\n\
                 assert all(family.documentation and family.samples for family in found\n\
                 \x20          if family.name != 'solera_volume_beneath_free_bytes'), found\n";
    let mut python = Command::new("/usr/bin/python3")
        .args(["-c", lines])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let read = python.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&read.stderr);
    if said.contains("No module named") {
        println!("skipped: python3-prometheus-client is not installed");
        return;
    }
    assert!(read.status.success(), "{said}\n{text}");
}

#[test]
fn values_are_those_of_info() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.prefix();
    // A program has it open, and a lock in it, until its input ends.
    let mut program = command()
        .args(["run", "--volume", &volume, "--at", &at, "--", "python3", "-uc"])
        .arg(format!(
            "import fcntl, sys\nfile = open('{at}/f', 'w')\nfile.write('x' * 9999)\nfile.flush()\n\
             fcntl.flock(file, fcntl.LOCK_EX)\nprint('there')\nsys.stdin.read()"
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "there\n");
    let text = solera(["metrics", &volume]).ok();
    let info = solera(["info", "--json", &volume]).json();
    for name in [
        "size_bytes",
        "data_bytes",
        "metadata_bytes",
        "hole_bytes",
        "free_aligned_bytes",
        "free_bytes",
        "available_bytes",
        "allocated_bytes",
        "missing_bytes",
    ] {
        assert_eq!(of(&text, name, &volume), info[name].as_u64(), "{name}");
    }
    let parts = ["data_bytes", "metadata_bytes", "hole_bytes", "free_aligned_bytes"];
    let sum: u64 = parts.iter().map(|name| of(&text, name, &volume).unwrap()).sum();
    assert_eq!(sum, 64 << 20);
    assert_eq!(of(&text, "inodes", &volume), Some(2));
    assert_eq!(of(&text, "file_locks", &volume), Some(1));
    assert_eq!(of(&text, "open_files", &volume), info["runtime"]["open_files"].as_u64());
    assert!(of(&text, "open_files", &volume) >= Some(1));
    assert!(of(&text, "processes", &volume) >= Some(1));
    assert_eq!(of(&text, "clean", &volume), Some(0));
    assert_eq!(of(&text, "up", &volume), Some(1));
    is_read(&text);
    is_conventional(&text);
    drop(program.stdin.take());
    program.wait().unwrap();
    let text = solera(["metrics", &volume]).ok();
    assert_eq!(of(&text, "processes", &volume), Some(0));
    assert_eq!(of(&text, "clean", &volume), Some(1));
    is_read(&text);
}

#[test]
fn a_volume_that_cannot_be_read_is_down_and_the_others_are_told() {
    let place = TestDir::new();
    let (volume, none) = (place.volume("64M"), place.text("none.pm"));
    let ran = solera(["metrics", &volume, &none]).ended_with(1);
    assert!(ran.err.contains("none.pm") && ran.err.contains("no such file"), "{}", ran.err);
    assert_eq!(of(&ran.out, "up", &volume), Some(1));
    assert_eq!(of(&ran.out, "up", &none), Some(0));
    assert_eq!(of(&ran.out, "size_bytes", &none), None);
    // Names as they may be.
    let odd = place.text("a \"b\" \\ c\nd.pm");
    solera(["format", "--size", "64M", "--label", "x\"y", &odd]).ok();
    let text = solera(["metrics", &odd]).ok();
    let shown = odd.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    assert_eq!(of(&text, "size_bytes", &shown), Some(64 << 20));
    assert!(text.contains("label=\"x\\\"y\""), "{text}");
    is_read(&text);
}

#[test]
fn monitors_are_answered_until_a_signal() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let mut child = command()
        .args(["metrics", "--listen", "127.0.0.1:0", &volume])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let running = Running(child);
    let at = line.trim().strip_prefix("metrics at http://").unwrap();
    let at = at.strip_suffix("/metrics").unwrap();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(at).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = get("/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("Content-Type: text/plain; version=0.0.4"), "{answer}");
    let text = answer.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(of(text, "up", &volume), Some(1));
    is_read(text);
    assert!(get("/").starts_with("HTTP/1.1 404"));
    // Each answer is of now.
    fs::remove_file(&volume).unwrap();
    assert_eq!(of(&get("/metrics"), "up", &volume), Some(0));
    solera(["format", "--size", "128M", &volume]).ok();
    assert_eq!(of(&get("/metrics"), "size_bytes", &volume), Some(128 << 20));
    // The port is taken, and no address is every one.
    solera(["metrics", "--listen", at, &volume]).refused(1, &["in use", "a free port"]);
    solera(["metrics", "--listen", "0.0.0.0:0", &volume])
        .refused(1, &["every address", "name one"]);
    drop(running);
}

#[test]
fn a_file_is_replaced_whole() {
    let place = TestDir::new();
    let (volume, file) = (place.volume("64M"), place.text("solera.prom"));
    assert_eq!(solera(["metrics", "--textfile", &file, &volume]).ok(), "");
    let text = fs::read_to_string(&file).unwrap();
    // What others leave of the memory beneath changes.
    let own = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.contains("beneath_free"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(own(&text), own(&solera(["metrics", &volume]).ok()));
    let child = command()
        .args(["metrics", "--textfile", &file, "--every", "1", &volume])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let running = Running(child);
    solera(["grow", "--size", "128M", &volume]).ok();
    let is_new = || {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# HELP") && text.ends_with('\n'), "{text}");
        of(&text, "size_bytes", &volume) == Some(128 << 20)
    };
    while !is_new() {
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(running);
    let names = fs::read_dir(place.path(".")).unwrap().flatten();
    let left = names.filter(|one| one.file_name().to_string_lossy().starts_with("solera.prom"));
    assert_eq!(left.count(), 1, "nothing beside it");
    let nowhere = place.text("no/where");
    solera(["metrics", "--textfile", &nowhere, &volume]).refused(1, &["No such file"]);
    Ran::of(command().args(["metrics", "--every", "1", &volume])).ended_with(2);
}

/// What the dashboard asks for is told: its names, and the labels that it shows.
#[test]
fn the_dashboard_knows_the_names() {
    let place = TestDir::new();
    let text = solera(["metrics", &place.volume("64M")]).ok();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana.json");
    let board: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let name_of = |asked: &str| {
        let of = asked.strip_prefix("label_values(")?.strip_suffix(")")?;
        let (name, label) = of.split_once(", ")?;
        assert!(text.contains(&format!("{name}{{{label}=\"")), "{asked}");
        Some(())
    };
    let variables = board["templating"]["list"].as_array().unwrap();
    let asked: Vec<_> = variables.iter().filter(|one| one["type"] == "query").collect();
    assert!(!asked.is_empty());
    for variable in asked {
        let query = variable["query"].as_str().unwrap();
        name_of(query).unwrap_or_else(|| panic!("{query}"));
    }
    let name = |one: &serde_json::Value| format!("${{{}}}", one["name"].as_str().unwrap());
    let known: Vec<String> = variables.iter().map(name).collect();
    let panels = board["panels"].as_array().unwrap();
    assert!(panels.len() > 4);
    for panel in panels {
        assert!(known.contains(&panel["datasource"]["uid"].as_str().unwrap().to_owned()));
        for target in panel["targets"].as_array().unwrap() {
            let asked = target["expr"].as_str().unwrap();
            // Labels that the legend names are there.
            let legend = target["legendFormat"].as_str().unwrap();
            for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
                let first = asked[asked.find("solera_").unwrap()..].split('{').next().unwrap();
                let told = text.lines().find(|line| line.starts_with(&format!("{first}{{")));
                assert!(told.is_none_or(|line| line.contains(&format!("{label}=\""))), "{legend}");
            }
            assert_eq!(asked.matches('(').count(), asked.matches(')').count(), "{asked}");
            assert!(
                asked.contains("_total") == asked.contains("rate(") || asked.contains("deaths")
            );
            let names =
                asked.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let names: Vec<_> = names.filter(|name| name.starts_with("solera_")).collect();
            assert!(!names.is_empty(), "{asked}");
            for name in names {
                assert!(text.contains(&format!("# TYPE {name} ")), "{asked}: {name}");
            }
        }
    }
}
