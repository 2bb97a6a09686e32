//! Three processes with two threads each change and read the same files, some of them with the
//! cache, some without, or with one of their own because they do not see the others' directory:
//! `cache_coherence.c` says how, and what it compares. One seed of 39, which the commit chooses;
//! with `SOLERA_TEST_LONG` all, and more of each.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::support::{TestDir, can_change_user, can_mount, compiled, solera};

/// How a process has the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    With,
    Without,
    /// In a mount name space in which the directory of the others' cache is not to be seen.
    Apart,
    /// Through a mount, which has a cache.
    Mounted,
}
use Who::{Apart, Mounted, With, Without};

/// A run of `cache_coherence.c`.
struct Run<'p> {
    place: &'p TestDir,
    volume: String,
    program: String,
    cache: String,
}

impl Run<'_> {
    fn start(&self, who: Who, process: usize, what: [&str; 3]) -> Child {
        let [kind, seed, amount] = what;
        let (process, shared) = (process.to_string(), self.place.text(&format!("shared-{seed}")));
        let at = if who == Mounted { &*self.place.text("mnt") } else { "/several" };
        let mut command = Command::new("timeout");
        command.arg("150");
        if who == Apart {
            let lines = "mount -t tmpfs tmpfs \"$1\" && cache=$1 solera=$2 volume=$5 && shift && \
                         \"$@\" && \"$solera\" cache status --json --cache-dir \"$cache\" \
                         \"$volume\"";
            command.args(["unshare", "-m", "sh", "-c", lines, "sh", &self.cache]);
        }
        if who != Mounted {
            let own = env!("CARGO_BIN_EXE_solera");
            command.args([own, "run", "--volume", &self.volume, "--at", at]);
        }
        if matches!(who, With | Apart) {
            // So little that segments are evicted all the time.
            command.args(["--cache", "16M", "--cache-dir", &self.cache]);
        }
        if who != Mounted {
            command.arg("--");
        }
        command.arg(&self.program).args([kind, at, &shared, &process, seed, amount]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    }

    /// Three processes at once; gives what each has printed.
    fn all(&self, who: [Who; 3], what: [&str; 3]) -> [String; 3] {
        let mut process = 0;
        let started = who.map(|who| {
            process += 1;
            self.start(who, process - 1, what)
        });
        let ended = started.map(|child| child.wait_with_output().expect("it ends"));
        let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said: Vec<String> = ended.iter().map(|output| told(&output.stderr)).collect();
        assert!(ended.iter().all(|output| output.status.success()), "{what:?}: {said:#?}");
        ended.map(|output| told(&output.stdout))
    }

    fn hits(&self) -> u64 {
        let status =
            solera(["cache", "status", "--json", "--cache-dir", &self.cache, &self.volume]);
        status.json()["hits"].as_u64().expect("a number")
    }
}

/// Runs of one kind, with these seeds, on volumes of their own.
fn several(kind: &str, who: [Who; 3], seeds: std::ops::Range<u64>, amount: u64, hits_min: u64) {
    for seed in seeds {
        let place = TestDir::new();
        let program = compiled("cli/tests/run/cache_coherence.c", &["-O2"]);
        let cache = place.text("cache");
        fs::create_dir(&cache).expect("a directory");
        let run = Run { place: &place, volume: place.volume("256M"), program, cache };
        let mounted = who.contains(&Mounted).then(|| {
            let options = ["--cache", "16M", "--cache-dir", &run.cache];
            crate::support::Mounted::again(&place, run.volume.clone(), &options)
        });
        let said = run.all(who, [kind, &seed.to_string(), &amount.to_string()]);
        if kind == "turns" {
            // Of each kind some.
            let count = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
            assert!(said[0].lines().all(|line| count(line) >= Some(amount / 750)), "{}", said[0]);
        }
        let hits = run.hits();
        assert!(hits >= hits_min, "{kind}, {seed}: hardly anything came from the cache: {hits}");
        for (_, said) in who.into_iter().zip(&said).filter(|(who, _)| *who == Apart) {
            let status = said.find('{').map(|at| &said[at..]).unwrap_or_default();
            let status: serde_json::Value = serde_json::from_str(status).expect("a status");
            assert!(status["hits"].as_u64() >= Some(hits_min / 4), "{status}");
        }
        if let Some(mounted) = mounted {
            mounted.unmount();
        }
        solera(["fsck", &run.volume]).ok();
    }
}

fn seeds() -> std::ops::Range<u64> {
    if rotation::all() {
        return 1..40;
    }
    let seed = 1 + u64::from(rotation::turn("cache_coherence", 39));
    seed..seed + 1
}

/// Of operations, seconds, or hits.
fn amount(short: u64, long: u64) -> u64 {
    if rotation::all() { long } else { short }
}

#[test]
fn in_turns_each_reads_what_the_model_says() {
    several("turns", [With, With, Without], seeds(), amount(10_000, 30_000), amount(300, 1_000));
}

#[test]
fn at_once_no_word_goes_backwards() {
    several("words", [With, With, Without], seeds(), amount(4, 12), amount(300, 1_000));
}

/// Another container, say: it makes a cache of its own, and a process without sees both.
#[test]
fn who_does_not_see_the_directory_reads_the_same() {
    if !can_change_user() {
        return;
    }
    several("turns", [With, Apart, Without], seeds(), amount(5_000, 15_000), amount(60, 200));
    several("words", [Apart, With, With], seeds(), amount(4, 6), amount(60, 200));
}

#[test]
fn the_mount_reads_the_same() {
    if !can_mount() {
        return;
    }
    several("unmapped", [With, Without, Mounted], seeds(), amount(4, 8), amount(300, 1_000));
}
