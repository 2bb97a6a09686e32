//! Runs the steps of programs in places, in turns, and keeps what they tell.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use console::failure::Failure;

use super::backend::Backend;
use super::process_group::ProcessGroups;
use super::suite::{Driver, Program};
use super::testbed::Testbed;

/// What `timeout` says when it has ended a program.
const TOO_LONG: i32 = 124;
/// Of what a failing program has said, the last lines are told.
const LINES_TOLD: usize = 20;

/// How much is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    Quick,
    Usual,
    Full,
}

impl Scale {
    pub fn name(self) -> &'static str {
        self.of("quick", "usual", "full")
    }

    /// The one that is meant.
    pub fn of<T>(self, quick: T, usual: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Usual => usual,
            Self::Full => full,
        }
    }

    /// Seconds that a step of a program may take; what takes longer hangs, on a busy machine too.
    fn limit(self) -> u32 {
        self.of(300, 900, 7200)
    }
}

/// A program that did not do what it was to do.
pub struct Failed {
    /// Empty: outside of all places.
    pub backend: String,
    pub command: String,
    pub found: String,
}

/// A row of a program, and its times in each place, in nanoseconds.
pub struct Row {
    pub name: String,
    pub times: Vec<Vec<f64>>,
    /// The share of a turn's time that was spent in file calls, in each place, where that was
    /// looked at: of all of the turn, what is timed for the row and the rest. What several threads
    /// or processes spend at once adds up.
    pub in_file_calls: Vec<Option<f64>>,
}

/// What was found of a program.
pub struct Measured {
    pub program: &'static Program,
    /// What runs in each place.
    pub commands: Vec<String>,
    pub rows: Vec<Row>,
    pub failed: Vec<Failed>,
}

pub struct Runner<'g> {
    pub testbed: &'g Testbed,
    pub children: Arc<ProcessGroups>,
    pub scale: Scale,
    pub repeat: u32,
}

/// What a step gives: its output, or how it failed. The outer failure ends the whole run.
type Step = Result<Result<String, Failed>, Failure>;

impl Runner<'_> {
    /// Steps of a program, as `step` is called for them.
    pub fn steps(&self) -> u64 {
        let profiles = u64::from(self.testbed.profiles);
        (u64::from(self.repeat) + 2 + profiles) * self.testbed.backends.len() as u64
    }

    /// Measures a program in all places, in turns. `step` is told the place's name ahead of each.
    pub fn measure(
        &self,
        program: &'static Program,
        step: &mut dyn FnMut(&str),
    ) -> Result<Measured, Failure> {
        let backends = &self.testbed.backends;
        let commands =
            backends.iter().map(|backend| shown(program, Some(backend), "turn")).collect();
        let mut measured = Measured { program, commands, rows: Vec::new(), failed: Vec::new() };
        if let Err(failed) = self.ready(program)? {
            measured.failed.push(failed);
            return Ok(measured);
        }
        let mut works = vec![true; backends.len()];
        // The turn that prepares comes first; turn 1 warms up.
        for turn in 0..self.repeat + 2 {
            for (number, backend) in backends.iter().enumerate() {
                step(&backend.name);
                if !works[number] {
                    continue;
                }
                let told = match turn {
                    0 => self
                        .step(program, Some(backend), "prepare", turn, None)?
                        .map(|_| Vec::new()),
                    _ => self.turn(program, backend, turn)?,
                };
                match told {
                    Ok(rows) if turn > 1 => measured.keep(number, backends.len(), rows),
                    Ok(_) => {}
                    Err(failed) => {
                        works[number] = false;
                        measured.failed.push(failed);
                    }
                }
            }
        }
        if self.testbed.profiles {
            self.profile(&works, &mut measured, step)?;
        }
        for backend in backends {
            if let Err(failed) = self.step(program, Some(backend), "clean", 0, None)? {
                measured.failed.push(failed);
            }
        }
        let input = self.testbed.work.join("input").join(program.script);
        fs::remove_dir_all(input).map_err(|error| Failure::new("remove its input", error, ""))?;
        Ok(measured)
    }

    /// One more turn in each place that works, for the share of its time in file calls: of servers
    /// from their start to their end, in all of their processes; their clients do not count.
    fn profile(
        &self,
        works: &[bool],
        measured: &mut Measured,
        step: &mut dyn FnMut(&str),
    ) -> Result<(), Failure> {
        let program = measured.program;
        let file = self.testbed.work.join("profile.json");
        let mut shares = Vec::new();
        for (backend, works) in self.testbed.backends.iter().zip(works) {
            step(&backend.name);
            if !works {
                shares.push(None);
                continue;
            }
            let turn = self.repeat + 2;
            let turned = self.step(program, Some(backend), "turn", turn, Some(&file))?;
            shares.push(turned.as_ref().ok().and_then(|_| share(&file)));
            measured.failed.extend(turned.err());
        }
        for row in &mut measured.rows {
            row.in_file_calls.clone_from(&shares);
        }
        Ok(())
    }

    /// Compiles its driver, and makes what it reads.
    fn ready(&self, program: &Program) -> Step {
        if let Some(driver) = &program.driver
            && let Err(failed) = self.compile(driver)?
        {
            return Ok(Err(failed));
        }
        self.step(program, None, "input", 0, None)
    }

    fn compile(&self, driver: &Driver) -> Step {
        let (bin, src) = (self.testbed.work.join("bin"), self.testbed.work.join("src"));
        let to = bin.join(driver.name());
        if to.exists() {
            return Ok(Ok(String::new()));
        }
        let mut command = Command::new(driver.compiler());
        command.arg("-O2").arg("-o").arg(&to).arg(src.join(driver.source)).args(driver.libraries);
        let libraries = driver.libraries.join(" ");
        let shown = format!("{} -O2 {} {libraries}", driver.compiler(), driver.source);
        self.run(command, "", shown)
    }

    /// A turn, and the rows that it tells.
    fn turn(
        &self,
        program: &Program,
        backend: &Backend,
        turn: u32,
    ) -> Result<Result<Vec<(String, f64)>, Failed>, Failure> {
        Ok(self.step(program, Some(backend), "turn", turn, None)?.and_then(|text| {
            parse(&text).map_err(|found| Failed {
                backend: backend.name.clone(),
                command: shown(program, Some(backend), "turn"),
                found,
            })
        }))
    }

    /// `profile`: the file for a profile of it.
    fn step(
        &self,
        program: &Program,
        backend: Option<&Backend>,
        step: &str,
        turn: u32,
        profile: Option<&Path>,
    ) -> Step {
        let work = &self.testbed.work;
        let (before, library) = match (backend, profile) {
            (Some(backend), Some(file)) => backend.profiled(program.outside, file),
            (Some(backend), None) => backend.before(program.outside),
            (None, _) => (Vec::new(), None),
        };
        let limit: OsString = self.scale.limit().to_string().into();
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10".into(), limit]).args(before);
        command.arg("bash").arg(work.join("src/run.sh")).arg(step);
        command.env_remove("LD_PRELOAD").env_remove("SOLERA_PRELOAD");
        if let Some(library) = library {
            command.env("SOLERA_PRELOAD", library);
        }
        let directory =
            backend.map_or(work.join("nowhere"), |backend| backend.directory.join(program.name));
        command.env("SCRIPT", program.script).env("WAY", program.variant).env("WORK", work);
        command.env("SCALE", self.scale.name()).env("TURN", turn.to_string());
        command.env("PLACE", directory).current_dir("/");
        let name = backend.map_or("", |backend| backend.name.as_str());
        self.run(command, name, shown(program, backend, step))
    }

    /// Ages what lies there until files fill this part of `capacity`, by this command.
    pub fn age(&self, by: &Path, target: &Path, part: f64, capacity: u64) -> Result<(), Failure> {
        let churn = self.scale.of("1", "5", "38.5");
        let mut command = Command::new(by);
        command.args(["age", "--yes", "--seed", "1", "--json", "--churn", churn]);
        command.args(["--utilisation", &part.to_string(), "--capacity", &capacity.to_string()]);
        command.arg(target);
        let shown = format!("solera age {}", target.display());
        match self.run(command, "", shown)? {
            Ok(_) => Ok(()),
            Err(failed) => {
                let asked = format!("age {}", target.display());
                Err(Failure::new(asked, failed.found, "give a smaller --aged"))
            }
        }
    }

    fn run(&self, mut command: Command, backend: &str, shown: String) -> Step {
        let failed = |error: io::Error| Failure::new("keep what a program says", error, "");
        let (out, err) = (self.testbed.work.join("stdout"), self.testbed.work.join("stderr"));
        command.stdin(Stdio::null());
        command.stdout(File::create(&out).map_err(failed)?);
        command.stderr(File::create(&err).map_err(failed)?);
        let ended = self.children.run(&mut command);
        self.children.go_on()?;
        let said =
            |path: &Path| fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
        let found = match ended {
            Ok(status) if status.success() => return Ok(Ok(said(&out).map_err(failed)?)),
            Ok(status) => {
                let said = said(&err).map_err(failed)?;
                format!("{}\n{}", self.describe(status), last_lines(&said)).trim_end().to_owned()
            }
            Err(error) => {
                let name = command.get_program().to_string_lossy();
                format!("{name} cannot be started: {error}")
            }
        };
        Ok(Err(Failed { backend: backend.to_owned(), command: shown, found }))
    }

    fn describe(&self, status: ExitStatus) -> String {
        match (status.code(), status.signal()) {
            (Some(TOO_LONG), _) => format!("it took more than {} s", self.scale.limit()),
            (Some(code), _) => format!("exit code {code}"),
            (None, signal) => format!("killed by signal {}", signal.unwrap_or_default()),
        }
    }
}

impl Measured {
    fn keep(&mut self, backend: usize, backends: usize, told: Vec<(String, f64)>) {
        for (name, ns) in told {
            let known = self.rows.iter().position(|row| row.name == name);
            let at = known.unwrap_or_else(|| {
                let in_file_calls = vec![None; backends];
                self.rows.push(Row { name, times: vec![Vec::new(); backends], in_file_calls });
                self.rows.len() - 1
            });
            self.rows[at].times[backend].push(ns);
        }
    }
}

/// What a profile says of the share of its time in file calls.
fn share(file: &Path) -> Option<f64> {
    let profile: serde_json::Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    profile["share_of_wall"].as_f64()
}

/// A step as a person would type it.
fn shown(program: &Program, backend: Option<&Backend>, step: &str) -> String {
    let before = backend.map_or_else(String::new, |backend| backend.shown(program.outside));
    let before = if before.is_empty() { before } else { before + " " };
    let access = if program.variant.is_empty() { "" } else { " " };
    format!("{before}bash {}.sh{access}{} ({step})", program.script, program.variant)
}

/// Rows: a name, a tab, nanoseconds.
fn parse(text: &str) -> Result<Vec<(String, f64)>, String> {
    let row = |line: &str| {
        let (name, value) = line.split_once('\t')?;
        let ns = value.parse::<f64>().ok().filter(|ns| ns.is_finite() && *ns > 0.0)?;
        Some((name.to_owned(), ns))
    };
    let rows: Result<Vec<_>, String> = text
        .lines()
        .map(|line| row(line).ok_or_else(|| format!("it tells no row, but: {line}")))
        .collect();
    rows.and_then(|rows| if rows.is_empty() { Err("it tells nothing".into()) } else { Ok(rows) })
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_TOLD)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn rows_are_names_and_nanoseconds() {
        let rows = parse("untar, a file\t12.5\nx\t1\n").unwrap_or_default();
        assert_eq!(rows, [("untar, a file".to_owned(), 12.5), ("x".to_owned(), 1.0)]);
        for wrong in ["", "x 1", "x\t0", "x\t-1", "x\tnan", "x\tinf", "x\t1\nhello"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
