//! Domains for tests: nodes are processes on loopback, and each test has a runtime directory of its
//! own, so that none meets another's nodes.

// Each test binary uses a part of this.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Ran, TestDir, command};

pub const MIB: u64 = 1 << 20;

/// A machine: its commands find nodes in the place's runtime directory.
pub struct Machine(pub TestDir);

impl Machine {
    pub fn new() -> Self {
        let place = TestDir::new();
        fs::create_dir(place.path("run")).expect("made");
        Self(place)
    }

    /// Three nodes of 16 MiB, with a volume `dm/v` of 40.
    pub fn domain_of_three(&self) -> Vec<Node> {
        let first = self.node("1", &[]);
        let join = first.address().to_owned();
        let mut nodes = vec![first];
        nodes.extend(["2", "3"].map(|store| self.node(store, &["--join", &join])));
        self.solera(&["format", "--ddmap", "dm/v", "--size", "40M"]).ok();
        nodes
    }

    pub fn command(&self, line: &[&str]) -> Command {
        self.on("run", line)
    }

    /// A command on another machine, which has a runtime directory of its own.
    pub fn on(&self, runtime: &str, line: &[&str]) -> Command {
        let mut command = command();
        command.env("XDG_RUNTIME_DIR", self.0.path(runtime)).current_dir(self.0.path("."));
        command.args(line);
        command
    }

    pub fn solera(&self, line: &[&str]) -> Ran {
        Ran::of(&mut self.command(line))
    }

    /// A node that is up.
    pub fn node(&self, store: &str, options: &[&str]) -> Node {
        self.node_on("run", store, options)
    }

    /// The same on another machine.
    pub fn node_on(&self, runtime: &str, store: &str, options: &[&str]) -> Node {
        Node::start(self.node_command(runtime, store, options))
    }

    /// The same where others of the domain have died just now: a node that is refused a number asks
    /// once more, as a user would.
    pub fn node_in_the_end(&self, runtime: &str, store: &str, options: &[&str]) -> Node {
        for _ in 0..10 {
            if let Some(node) = Node::try_start(&mut self.node_command(runtime, store, options)) {
                return node;
            }
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        self.node_on(runtime, store, options)
    }

    fn node_command(&self, runtime: &str, store: &str, options: &[&str]) -> Command {
        let store = self.0.text(store);
        let mut line = vec!["node", "--domain", "dm", "--store", &store];
        for (option, value) in [("--listen", "127.0.0.1:0"), ("--capacity", "16M")] {
            if !options.contains(&option) {
                line.extend([option, value]);
            }
        }
        self.on(runtime, &[&line[..], options].concat())
    }

    /// A node that does not start.
    #[track_caller]
    pub fn refuses(&self, (domain, store): (&str, &str), options: &[&str], words: &[&str]) {
        let store = self.0.text(store);
        let mut line = vec!["node", "--domain", domain, "--store", &store];
        for (option, value) in [("--listen", "127.0.0.1:0"), ("--capacity", "16M")] {
            if !options.contains(&option) {
                line.extend([option, value]);
            }
        }
        self.solera(&[&line[..], options].concat()).refused(1, words);
    }

    pub fn status(&self) -> Value {
        self.solera(&["domain", "status", "--json", "dm"]).json()
    }

    /// Random bytes in a file.
    pub fn file(&self, bytes: u64) -> String {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        let content: Vec<u8> = (0..bytes / 8).flat_map(|_| next()).collect();
        fs::write(self.0.path("file"), content).expect("written");
        self.0.text("file")
    }

    /// What `solera cat` gives is what the file has.
    #[track_caller]
    pub fn has_same(&self, place: &str, file: &str) {
        let output = self.command(&["cat", place]).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let same = output.stdout == fs::read(file).expect("read");
        assert!(same, "{place} has {} bytes, or others", output.stdout.len());
    }
}

/// A node that runs; it is killed with this.
pub struct Node {
    pub child: Child,
    /// What it said first.
    pub line: String,
}

impl Node {
    pub fn start(mut command: Command) -> Self {
        Self::try_start(&mut command).unwrap_or_else(|| panic!("{command:?} says nothing"))
    }

    /// `None`: it has ended, and says why on standard error.
    pub fn try_start(command: &mut Command) -> Option<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("it can be read");
        let node = Self { child, line };
        (!node.line.is_empty()).then_some(node)
    }

    pub fn address(&self) -> &str {
        let rest = self.line.split(" at ").nth(1).unwrap_or_default();
        rest.split(',').next().unwrap_or_default()
    }

    pub fn end(mut self, signal: Signal) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
        self.child.wait().expect("it ends")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
