//! `solera doctor`: looks at what volumes and their programs need of this machine, and at what is
//! here of them; one line each, with what to do.
//!
//! It changes nothing and attaches nothing. What may wait for a process that stands still (a mount,
//! a node) is asked for a limited time. Nothing of what it tells is secret: no names of files on
//! volumes, no contents, no keys, no environment, no addresses.

mod kernel;
mod machine;
mod places;

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use console::failure::Outcome;
use console::output;
use serde_json::{Value, json};

/// See what works on this machine, what does not, and what to do about it.
///
/// One line for each thing that volumes and their programs need or can use: kernel, CPU, memory,
/// the C library and its patched text, FUSE, userfaultfd, huge pages, limits; then the mounts,
/// volumes, caches and domains that are here. Nothing is changed, and nothing is attached.
#[derive(Args)]
#[command(after_help = "\
Each line begins with a word:
  ok        it works, or there is none and none is needed
  less      programs run, but without something: what, and what to do
  broken    programs do not run, or a volume, mount or domain is of no use

Of a volume that is named everything but the data is checked, as by `solera fsck`, unless a process
uses it. Volumes that are not named are those that are mounted, those that /etc/solera/*.conf
names, and those that lie in /dev/shm or on a DAX mount, not deeper.

Exit code: 0 if nothing is broken, 1 if something is, 2 for a wrong command line.

With --json it is what a report of a bug should have. It names paths of volumes, mounts and caches,
and nothing that lies on them; no keys, no environment, no addresses.

Examples:
  solera doctor
  solera doctor /dev/shm/v.pm
  solera doctor --json | jq '.findings[] | select(.state != \"ok\")'")]
pub struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Volumes to look at closely: files or devices, or DOMAIN/VOLUME.
    #[arg(value_name = "VOLUME")]
    pub volumes: Vec<PathBuf>,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It works.
    Works,
    /// Programs run without it.
    Less,
    /// What is needed does not work.
    Broken,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Works => "ok",
            Self::Less => "less",
            Self::Broken => "broken",
        }
    }
}

/// A line of the report.
#[derive(Debug)]
struct Finding {
    state: State,
    /// What was looked at: one of a few words.
    subject: &'static str,
    found: String,
    /// What to do. Empty: nothing.
    advice: String,
    /// The same for programs.
    values: Value,
}

impl Finding {
    fn new(state: State, subject: &'static str, found: impl Into<String>) -> Self {
        Self { state, subject, found: found.into(), advice: String::new(), values: Value::Null }
    }

    fn works(subject: &'static str, found: impl Into<String>) -> Self {
        Self::new(State::Works, subject, found)
    }

    fn less(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..Self::new(State::Less, subject, found) }
    }

    fn broken(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..Self::new(State::Broken, subject, found) }
    }

    fn with(self, values: Value) -> Self {
        Self { values, ..self }
    }

    fn to_text(&self) -> String {
        let word = output::heading(&format!("{:<7}", self.state.word()));
        let advice = if self.advice.is_empty() { "" } else { "; " };
        format!("{word} {:<12} {}{advice}{}\n", self.subject, one_line(&self.found), self.advice)
    }

    fn to_json(&self) -> Value {
        json!({
            "state": self.state.word(),
            "subject": self.subject,
            "found": self.found,
            "advice": if self.advice.is_empty() { None } else { Some(&self.advice) },
            "values": self.values,
        })
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How long an answer of another process is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a thread of its own gives; `None`: not in time. The thread ends with the command.
fn in_time<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(ask()));
    told.recv_timeout(PATIENCE).ok()
}

/// Looks at everything, and prints it.
pub fn run(args: &DoctorArgs) -> Outcome {
    let mut all = machine::look();
    all.extend(kernel::look());
    all.extend(places::look(&args.volumes));
    let broken = all.iter().filter(|finding| finding.state == State::Broken).count();
    if args.json {
        let findings: Vec<Value> = all.iter().map(Finding::to_json).collect();
        output::emit_json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "ok": broken == 0,
            "findings": findings,
        }))?;
    } else {
        let lines: String = all.iter().map(Finding::to_text).collect();
        let verdict = match broken {
            0 => "all that is needed works".to_owned(),
            1 => "1 thing that is needed does not work".to_owned(),
            count => format!("{count} things that are needed do not work"),
        };
        output::emit(format!("{lines}{verdict}\n").as_bytes())?;
    }
    Ok(u8::from(broken > 0))
}
