//! The second engine: a process dies inside a call, at each store into what it staged, its records,
//! its log and its windows, at each flush, fence and system call: so at every step of a staged
//! write, of a log write and of a relink. `solera recover` then finds what must hold in each mode.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::mounted::Mounted;
use crate::support::{TestDir, compile, library};
use crate::walk::{Point, Walk};
use crate::{one_of, some_of, text};

const CALLS: [&str; 6] = ["append", "overwrite", "over-staged", "fsync", "close", "end"];
/// Points of each call that are tried by default.
const POINTS: usize = 24;

struct SplitProgram {
    program: PathBuf,
    directory: PathBuf,
    mode: &'static str,
}

impl SplitProgram {
    /// A victim before its call.
    fn victim(&self, call: &str) -> Result<Walk, String> {
        // The first has none to remove.
        let _ = std::fs::remove_dir_all(&self.directory);
        std::fs::create_dir_all(&self.directory).map_err(text)?;
        let mut walk = Walk::start(&mut self.command(call), &self.directory).map_err(text)?;
        if walk.reach_mark().map_err(text)? { Ok(walk) } else { Err("it ended".to_owned()) }
    }

    fn command(&self, call: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(&self.directory)
            .arg(call)
            .env("LD_PRELOAD", library())
            .env("SOLERA_SPLIT", &self.directory)
            .env("SOLERA_MODE", self.mode)
            .env("SOLERA_SPLIT_PATIENCE", "0")
            .env("SOLERA_SPLIT_LOG", "65536")
            .env("SOLERA_EMULATE", "1");
        command
    }

    /// The next process, which recovers what the victim left, at its first instruction.
    fn recoverer(&self) -> Result<Walk, String> {
        Walk::start(&mut self.command("look"), &self.directory).map_err(text)
    }

    /// A process dies inside its call, then its recoverer dies at a point of that: what the next
    /// one makes of it.
    fn trial_of_recovery(&self, call: &str, death: &Point, point: &Point) -> Result<(), String> {
        let mut walk = self.victim(call)?;
        let returned = !walk.reach_point(death).map_err(text)?;
        walk.kill().map_err(text)?;
        let mut recoverer = self.recoverer()?;
        recoverer.reach_point(point).map_err(text)?;
        recoverer.kill().map_err(text)?;
        split::recover(&self.directory).map_err(|refused| refused.to_string())?;
        let again = split::recover(&self.directory).map_err(|refused| refused.to_string())?;
        if again != split::Recovered::default() {
            return Err(format!("again: {again:?}"));
        }
        let found = std::fs::read(self.directory.join("f")).map_err(text)?;
        judge(&found, self.mode, call, returned)
    }

    /// A process dies inside its overwrite, then another one that lives all the time writes to the
    /// same place: that stays. `false`: it had returned before, since it took another way beside
    /// the other.
    fn trial_of_a_later_one(
        &self,
        mode: &str,
        patience: &str,
        death: &Point,
    ) -> Result<bool, String> {
        let mut walk = self.victim("over-synced")?;
        let mut command = self.command("later");
        command.env("SOLERA_MODE", mode).env("SOLERA_SPLIT_PATIENCE", patience);
        let mut later =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(text)?;
        later.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).map_err(text)?;
        let reached = walk.reach_point(death).map_err(text)?;
        walk.kill().map_err(text)?;
        later.stdin.as_mut().expect("a pipe").write_all(&[0]).map_err(text)?;
        let status = later.wait().map_err(text)?;
        if !status.success() {
            return Err(format!("who comes later: {status}"));
        }
        split::recover(&self.directory).map_err(|refused| refused.to_string())?;
        let found = std::fs::read(self.directory.join("f")).map_err(text)?;
        let mut wanted = states("close").0;
        wanted[1000..4000].fill(b'Z');
        let place = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        if found == wanted {
            Ok(reached)
        } else {
            Err(format!("{} bytes, wrong from {place:?}", found.len()))
        }
    }

    /// What is there after recovery, which is repeated.
    fn recovered(&self) -> Result<Vec<u8>, String> {
        let recovered = split::recover(&self.directory).map_err(|refused| refused.to_string())?;
        if (recovered.processes, recovered.gone) != (1, 0) {
            return Err(format!("{recovered:?}"));
        }
        let again = split::recover(&self.directory).map_err(|refused| refused.to_string())?;
        if again != split::Recovered::default() {
            return Err(format!("again: {again:?}"));
        }
        std::fs::read(self.directory.join("f")).map_err(text)
    }

    /// One death, at a point or (`None`) after the call.
    fn trial(&self, call: &str, point: Option<&Point>) -> Result<(), String> {
        let mut walk = self.victim(call)?;
        let returned = match point {
            Some(point) => !walk.reach_point(point).map_err(text)?,
            None => walk.reach_mark().map_err(text)?,
        };
        walk.kill().map_err(text)?;
        judge(&self.recovered()?, self.mode, call, returned)
    }
}

/// What was there before the call, and after it.
fn states(call: &str) -> (Vec<u8>, Vec<u8>) {
    let before: Vec<u8> = (b'a'..=b'f').flat_map(|letter| [letter; 3000]).collect();
    let mut after = before.clone();
    match call {
        "append" => after.extend([b'A'; 5000]),
        "overwrite" => after[1000..4000].fill(b'B'),
        "over-staged" => after[15000..17000].fill(b'C'),
        _ => {}
    }
    (before, after)
}

fn judge(found: &[u8], mode: &str, call: &str, returned: bool) -> Result<(), String> {
    let (before, after) = states(call);
    let may_tear = mode != "strict" && matches!(call, "overwrite" | "over-staged");
    let torn = found.len() == after.len()
        && found.iter().zip(before.iter().zip(&after)).all(|(it, (b, a))| it == b || it == a);
    let whole = found == after || !returned && found == before;
    if whole || may_tear && !returned && torn {
        return Ok(());
    }
    let place = found.iter().zip(&after).position(|(found, after)| found != after);
    Err(format!("{} bytes, not as after from {place:?} on; returned: {returned}", found.len()))
}

/// Every call in one mode, in a directory.
fn deaths_in(place: &Path, what: &str, mode: &'static str, points_max: usize) {
    let program = place.join("staged");
    compile("staged.c", &program, &["-O1"]);
    let ground = SplitProgram { program, directory: place.join("files"), mode };
    let mut failures = Vec::new();
    for call in CALLS {
        let points = ground.victim(call).and_then(|mut walk| {
            let points = walk.points().map_err(text)?;
            walk.kill().map_err(text)?;
            judge(&ground.recovered()?, mode, call, true).map(|()| points)
        });
        let points = points.unwrap_or_else(|error| panic!("{mode}, {call}, alone: {error}"));
        assert!(points.len() > 5, "{mode}, {call}: only {} points", points.len());
        let chosen = some_of(&format!("{what}/{mode}/{call}"), points.len(), points_max);
        for at in chosen.iter().copied().map(Some).chain([None]) {
            if let Err(error) = ground.trial(call, at.map(|at| &points[at])) {
                failures.push(format!("{call}@{at:?}: {error}; {:?}", at.map(|at| points[at])));
            }
        }
        eprintln!("{mode}, {call}: {} deaths of {} points", chosen.len() + 1, points.len());
    }
    assert!(failures.is_empty(), "{mode}: {}", failures.join("\n"));
}

#[test]
fn deaths_beneath_in_posix_mode() {
    deaths_in(&TestDir::new("deaths-beneath-posix").0, "tmpfs", "posix", POINTS);
}

#[test]
fn deaths_beneath_in_sync_mode() {
    deaths_in(&TestDir::new("deaths-beneath-sync").0, "tmpfs", "sync", POINTS);
}

#[test]
fn deaths_beneath_in_strict_mode() {
    deaths_in(&TestDir::new("deaths-beneath-strict").0, "tmpfs", "strict", POINTS);
}

/// Where blocks are exchanged, and where they are cloned.
#[test]
fn deaths_beneath_on_xfs() {
    for kind in ["exchange", "clone"] {
        let Some(mounted) = Mounted::new(kind) else {
            println!("skipped: {kind}: such an XFS cannot be made and mounted here");
            continue;
        };
        for mode in one_of(kind, &["posix", "strict"]) {
            deaths_in(&mounted.at, kind, mode, POINTS / 2);
        }
    }
}

/// The recovering process dies too, at each step; another one finds what both have left.
#[test]
fn deaths_inside_recovery() {
    let place = TestDir::new("deaths-beneath-recovery");
    let program = place.0.join("staged");
    compile("staged.c", &program, &["-O1"]);
    let mut failures = Vec::new();
    let cases = [("posix", "fsync"), ("sync", "append"), ("strict", "overwrite"), ("sync", "end")];
    // Of each the recoverer's way is walked by single instructions, all of it.
    for &(mode, call) in one_of("recovery-beneath", &cases) {
        let ground =
            SplitProgram { program: program.clone(), directory: place.0.join("files"), mode };
        let mut walk = ground.victim(call).expect("a victim");
        let deaths = walk.points().expect("its points");
        walk.kill().expect("it is killed");
        // One that dies late in its call leaves most; the recoverer's way depends on it.
        let death = &deaths[deaths.len() * 3 / 5];
        let mut walk = ground.victim(call).expect("a victim");
        walk.reach_point(death).expect("its death");
        walk.kill().expect("it is killed");
        let mut recoverer = ground.recoverer().expect("a recoverer");
        let points = recoverer.points().expect("its points");
        assert!(points.len() > 20, "{mode}, {call}: only {} points", points.len());
        let chosen = some_of(&format!("recovery/{mode}/{call}"), points.len(), 20);
        for &at in &chosen {
            if let Err(error) = ground.trial_of_recovery(call, death, &points[at]) {
                failures.push(format!("{mode}, {call}@{at}: {error}; {:?}", points[at]));
            }
        }
        eprintln!("{mode}, {call}: {} of {} points of a recovery", chosen.len(), points.len());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Nothing that a dead process was at is put over what another one wrote since.
#[test]
fn a_dead_overwrite_is_finished_before_a_later_one() {
    let place = TestDir::new("deaths-beneath-later");
    let program = place.0.join("staged");
    compile("staged.c", &program, &["-O1"]);
    let ground = SplitProgram { program, directory: place.0.join("files"), mode: "strict" };
    let mut walk = ground.victim("over-synced").expect("a victim");
    let points = walk.points().expect("its points");
    walk.kill().expect("it is killed");
    let mut failures = Vec::new();
    for (mode, patience) in [("strict", "0"), ("sync", "0"), ("posix", "0"), ("posix", "100")] {
        let chosen = some_of(&format!("later/{mode}/{patience}"), points.len(), 20);
        let mut reached = 0;
        for &at in &chosen {
            match ground.trial_of_a_later_one(mode, patience, &points[at]) {
                Ok(inside) => reached += usize::from(inside),
                Err(error) => {
                    failures.push(format!("{mode}, {patience}@{at}: {error}; {:?}", points[at]));
                }
            }
        }
        eprintln!("{mode}, {patience}: {reached} deaths of {} points", points.len());
        assert!(
            reached * 2 >= chosen.len() || !failures.is_empty(),
            "{mode}, {patience}: only {reached} of {} points were reached",
            chosen.len()
        );
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
