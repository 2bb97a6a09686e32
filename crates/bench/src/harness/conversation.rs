//! A worker process that is asked by lines, and answers each by a line.

use std::io::{BufRead, BufReader, Error, ErrorKind, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use console::failure::Failure;

/// It ends with this.
pub struct Conversation {
    name: &'static str,
    child: Child,
    /// `None`: it was told to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Conversation {
    /// Starts it. `name`: what it measures.
    pub fn start(name: &'static str, mut command: Command) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("start the worker for {name}"), error, "");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(ErrorKind::BrokenPipe.into()));
        };
        Ok(Self { name, child, input: Some(input), output: BufReader::new(output) })
    }

    /// Waits until it says that it is ready.
    pub fn await_ready(&mut self) -> Result<(), Failure> {
        match self.answer()?.as_str() {
            "ready" => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, line: &str) -> Result<String, Failure> {
        let told = self.input.as_mut().map(|input| writeln!(input, "{line}"));
        told.transpose().map_err(|error| self.lost(&error))?;
        self.answer()
    }

    /// Lets it end by itself.
    pub fn end(&mut self) -> Result<(), Failure> {
        drop(self.input.take());
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.lost(&Error::other(status.to_string()))),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// For an answer that is none.
    pub fn unexpected(&self, answer: &str) -> Failure {
        Failure::new(format!("measure {}", self.name), format!("it says `{answer}`"), "")
    }

    fn answer(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err(self.lost(&ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn lost(&self, error: &Error) -> Failure {
        let asked = format!("measure {}", self.name);
        Failure::new(asked, format!("its worker ended ({error})"), "see what it said above")
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // What it holds goes with the run; it may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
