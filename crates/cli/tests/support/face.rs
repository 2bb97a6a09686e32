//! A program that waits for lines and answers each with one, started by one of the two faces.

// Each test binary uses a part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use crate::support::{command, compiled};

/// One that runs.
pub struct Face {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    signs: ChildStderr,
}

impl Face {
    fn new(mut command: Command, directory: &str) -> Self {
        command.arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().expect("its output"));
        let signs = child.stderr.take().expect("its signs");
        Self { child, to, from, signs }
    }

    pub fn ask(&mut self, line: &str) {
        let to = self.to.as_mut().expect("it has not ended");
        writeln!(to, "{line}").expect("the program takes lines");
    }

    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("the program answers");
        assert!(line.ends_with('\n'), "the program has died");
        line.trim_end().to_owned()
    }

    pub fn say(&mut self, line: &str) -> String {
        self.ask(line);
        self.answer()
    }

    /// The answer, which is a number.
    #[track_caller]
    pub fn number(&mut self) -> i64 {
        self.answer().parse().expect("a number")
    }

    #[track_caller]
    pub fn count(&mut self, line: &str) -> i64 {
        self.ask(line);
        self.number()
    }

    /// Waits until a handler of its has said that it ran.
    pub fn sign(&mut self) {
        self.signs_byte();
    }

    fn signs_byte(&mut self) -> u8 {
        let mut sign = [0];
        self.signs.read_exact(&mut sign).expect("a sign");
        sign[0]
    }

    pub fn pid(&self) -> i64 {
        self.child.id().into()
    }

    /// Ends it, and it ends well.
    pub fn end(mut self) {
        assert!(self.stop(), "it ends well");
    }

    /// Ends it; gives whether that went well.
    pub fn stop(&mut self) -> bool {
        drop(self.to.take());
        self.child.wait().expect("it ends").success()
    }
}

/// Compiles a program of `tests/mounts`.
pub fn program(name: &str) -> String {
    compiled(&format!("cli/tests/mounts/{name}.c"), &[])
}

/// One that is preloaded, and one that is not.
pub fn both(program: &str, at: &str) -> [Face; 2] {
    let mut preloaded = command();
    preloaded.args(["run", "--at", at, "--", program]);
    let mut preloaded = Face::new(preloaded, at);
    // `solera run` says which mount it takes.
    while preloaded.signs_byte() != b'\n' {}
    [preloaded, Face::new(Command::new(program), at)]
}
