//! Programs on stdio, made from a seed: what the C library gives on a volume must be what it gives
//! on tmpfs.
//!
//! A program is a script of `stdio.c`, one operation a line; a seed stands for it.

use crate::faces::{Face, Faces, MODES as PROMISES};
use crate::generated::Family;
use crate::random::Random;
use crate::support::compiled;

/// Names that there are at the start, and some that there are not.
const FILES: [&str; 10] = ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "l0", "d0/a", "d0/new"];
const ANY: [&str; 14] = [
    "f0",
    "f1",
    "f3",
    "f5",
    "l0",
    "l2",
    "d0",
    "l1",
    "d0/d1",
    "d0/b9",
    "missing/x",
    "f0/x",
    "l1/a",
    "d0/../f1",
];
const MODES: [&str; 20] = [
    "r",
    "r+",
    "w",
    "w+",
    "a",
    "a+",
    "rb+",
    "wx",
    "w+x",
    "re",
    "r+e",
    "ab+",
    "r,ccs=UTF-8",
    "r+,ccs=UTF-8",
    "w+,ccs=UTF-8",
    "rm",
    "r+",
    "w+",
    "a+",
    "r+",
];
const TEXTS: [&str; 8] = [
    "x",
    "line\\n",
    "two\\slines\\nof\\stext\\n",
    "no\\send",
    "12\\s34\\sfive\\n",
    "äöü\\s€\\n",
    "\\n",
    "a\\slonger\\sline\\sthat\\sis\\swritten\\sat\\sonce,\\swith\\scommas\\n",
];
const SHELL: [&str; 14] = [
    "echo\\shello",
    "head\\s-n1",
    "head\\s-c\\s7",
    "wc\\s-c",
    "cat\\sf3",
    "echo\\smore\\s>>f5",
    "sort\\sf3\\s-o\\sf6",
    "read\\sx;\\secho\\s$x",
    "tail\\s-n\\s2\\sf0",
    "cat\\s<f4\\s|\\swc\\s-l",
    "echo\\serror\\s>&2",
    "exit\\s3",
    "pwd",
    "ls\\sd0",
];

/// A script and what its generator remembers of it.
struct Script<'a> {
    random: &'a mut Random,
    lines: Vec<String>,
    /// Slots of streams that are probably open.
    open: Vec<u64>,
}

impl Script<'_> {
    fn line(&mut self, line: String) {
        self.lines.push(line);
    }

    fn any(&mut self, of: &[&'static str]) -> &'static str {
        self.random.any(of)
    }

    /// A stream that is probably open, or now and then any.
    fn stream(&mut self) -> u64 {
        if self.random.below(12) == 0 || self.open.is_empty() {
            return self.random.below(11);
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        self.open[at]
    }

    fn offset(&mut self) -> (i64, &'static str) {
        let whence = self.any(&["set", "set", "cur", "cur", "cur", "end", "end"]);
        let offset = match self.random.below(8) {
            0 => 0,
            1 => 4096,
            2 => self.random.below(12_000) as i64,
            3 => -(self.random.below(300) as i64),
            _ => self.random.below(60) as i64 - 20,
        };
        (if whence == "set" { offset.abs() } else { offset }, whence)
    }

    fn length(&mut self) -> u64 {
        let limit = [3, 20, 100, 1000, 5000, 9000][self.random.below(6) as usize];
        self.random.below(limit)
    }

    fn opening(&mut self) {
        let (path, mode) = (self.any(&FILES), self.any(&MODES));
        match self.random.below(7) {
            0 => {
                let (slot, number) = (self.random.below(8), self.random.below(4));
                let flags = self.any(&["r", "x", "xc", "xct", "wca", "xca"]);
                self.line(format!("open {number} {path} {flags}"));
                self.line(format!("fdopen {slot} {number} {mode}"));
                self.open.push(slot);
            }
            1 | 2 => {
                let slot = self.stream();
                let path = if self.random.below(4) == 0 { "-" } else { path };
                self.line(format!("freopen {slot} {path} {mode}"));
            }
            3 => {
                let (slot, kind) = (self.random.below(8), self.random.below(6));
                self.line(format!("temporary {slot} {kind}"));
                self.open.push(slot);
            }
            _ => {
                let slot = self.random.below(8);
                self.line(format!("fopen {slot} {path} {mode}"));
                self.open.push(slot);
            }
        }
    }

    /// Bytes and positions of one stream.
    fn on_bytes(&mut self) {
        let stream = self.stream();
        let (length, (offset, whence)) = (self.length(), self.offset());
        let text = self.any(&TEXTS);
        let small = self.random.below(256);
        let line = match self.random.below(27) {
            0 | 1 => format!("fread {stream} {length} {}", 1 + small % 4),
            2 | 3 => format!("fwrite {stream} {length} {small}"),
            4..=6 => format!("fputs {stream} {text}"),
            7 | 8 => format!("fgetc {stream}"),
            9 => format!("fputc {stream} {small}"),
            10 | 11 => format!("ungetc {stream} {small}"),
            12 => format!("fgets {stream} {length}"),
            13 => format!("getline {stream} {}", [0, 0, 32, 48][small as usize % 4]),
            14..=17 => format!("fseek {stream} {offset} {whence}"),
            18 => format!("fseeko {stream} {offset} {whence}"),
            19 | 20 => format!("ftell {stream}"),
            21 => format!("rewind {stream}"),
            22 => format!("fgetpos {stream} {}", small % 2),
            23 => format!("fsetpos {stream} {}", small % 2),
            24 => format!("fprintf {stream} {small} {length}"),
            25 => format!("fscanf {stream} {small}"),
            _ => format!("standard {small} {length}"),
        };
        self.line(line);
    }

    fn on_state(&mut self) {
        let stream = self.stream();
        let (length, small) = (self.length(), self.random.below(100));
        let how = self.any(&["none", "line", "full"]);
        let line = match self.random.below(10) {
            0 | 1 => {
                format!("setvbuf {stream} {how} {}", [0, 1, 16, 300, 8192][small as usize % 5])
            }
            2 | 3 => format!("fflush {stream}"),
            4 => "fflush all".to_owned(),
            5 => format!("clearerr {stream}"),
            6 => format!("fpurge {stream}"),
            7 => {
                self.open.retain(|&open| open != stream);
                format!("fclose {stream}")
            }
            8 => format!("fstat {stream}"),
            _ => format!("tty {stream} {length}"),
        };
        self.line(line);
        self.line(format!("state {stream}"));
    }

    fn on_wide(&mut self) {
        let stream = self.stream();
        let (length, text) = (self.length(), self.any(&TEXTS));
        let code = [65, 228, 8364, 128_512, 10][self.random.below(5) as usize];
        let line = match self.random.below(9) {
            0 => format!("fwide {stream} {}", self.random.below(3) as i64 - 1),
            1 | 2 => format!("fgetwc {stream}"),
            3 => format!("fputwc {stream} {code}"),
            4 => format!("ungetwc {stream} {code}"),
            5 => format!("fputws {stream} {text}"),
            6 => format!("fgetws {stream} {length}"),
            7 => format!("fwprintf {stream} {length}"),
            _ => format!("fwscanf {stream}"),
        };
        self.line(line);
    }

    /// Descriptors beneath streams, or beside them.
    fn on_numbers(&mut self) {
        let (stream, number) = (self.stream(), self.random.below(4));
        let (length, (offset, whence)) = (self.length(), self.offset());
        let (text, path) = (self.any(&TEXTS), self.any(&FILES));
        let line = match self.random.below(16) {
            0 => format!("raw_read {stream} {length}"),
            1 => format!("raw_write {stream} {text}"),
            2 => format!("raw_seek {stream} {offset} {whence}"),
            3 => format!("ftruncate {stream} {length}"),
            4 => format!("dup {stream} {number}"),
            5 => format!(
                "aio {stream} {} {length} {}",
                ["r", "w"][number as usize % 2],
                offset.abs()
            ),
            6 => format!("lockf {stream} {number} {length}"),
            7 => format!("close {number}"),
            8 | 9 => {
                let to = self.random.below(3);
                self.line(format!("open {number} {path} {}", ["r", "xct", "wca"][to as usize]));
                self.open.push(8 + to);
                format!("dup2 {number} {to}")
            }
            10 => format!("write {number} {text}"),
            11 => format!("read {number} {length}"),
            12 => format!("lseek {number} {offset} {whence}"),
            13 => format!("sendfile {number} {} {length}", self.random.below(4)),
            14 => format!("truncate {path} {length}"),
            _ => format!("open {number} {path} xc"),
        };
        self.line(line);
    }

    fn on_names(&mut self) {
        let (one, other) = (self.any(&ANY), self.any(&ANY));
        let small = self.random.below(32);
        let line = match self.random.below(17) {
            0 => format!("rename {} {}", self.any(&FILES), self.any(&FILES)),
            1 => format!("unlink {}", self.any(&FILES)),
            2 => format!("remove {one}"),
            3 => format!("link {one} {}", self.any(&FILES)),
            4 => format!("symlink {one} {other}"),
            5 => format!("mkdir {other}"),
            6 => format!("chdir {}", ["d0", "up", ".", "l1", "missing"][small as usize % 5]),
            7 => format!("stat {one} {small}"),
            8 => format!("getcwd {small}"),
            9 | 10 => format!("realpath {one} {small}"),
            11 => {
                format!("directory {} {small} {}", ["d0", ".", "f0"][small as usize % 3], small % 5)
            }
            12 => format!("scandir {} {small}", ["d0", ".", "l1"][small as usize % 3]),
            13 => {
                let what = ["*", "f?", "d0/b*", "{f0,no}", "*/*/x", "m*", "l*/"];
                format!("glob {} {small}", self.any(&what))
            }
            14 => {
                format!("walk {} {} {small}", ["d0", ".", "missing"][small as usize % 3], small * 3)
            }
            15 => format!("fts {} {small} {}", ["d0", "l1", "."][small as usize % 3], small / 5),
            _ => format!("setlocale {}", ["C.UTF-8", "C"][small as usize % 2]),
        };
        self.line(line);
    }

    fn on_children(&mut self) {
        let (command, text) = (self.any(&SHELL), self.any(&TEXTS));
        let line = match self.random.below(9) {
            0 | 1 => format!("popen r {command}"),
            2 => {
                let into = ["cat\\s>>f5", "wc\\s-c", "head\\s-n1", "tee\\sf6", "cat\\s>&2"];
                format!("popen w {} {text}", self.any(&into))
            }
            3 | 4 => format!("system {command}"),
            5 => {
                let (program, from) = (self.any(&["cat", "wc", "head"]), self.any(&FILES));
                let (to, option) = (self.any(&["f5", "f6", "-"]), self.any(&["", "-n2"]));
                let option = if program == "head" { option } else { "" };
                format!("spawn {program} {from} {to} {option}")
            }
            6 => {
                format!("wordexp {}", self.any(&["f*", "$(cat\\sf3)", "~root\\sd0/*", "$((1+2))"]))
            }
            _ => {
                let how = self.any(&["exit", "_exit"]);
                self.line(format!("fork {how}"));
                for _ in 0..=self.random.below(3) {
                    self.on_bytes();
                }
                "end".to_owned()
            }
        };
        self.line(line);
    }
}

/// The script of a seed.
pub fn script(seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let length = 20 + random.below(60);
    let mut script = Script { random: &mut random, lines: Vec::new(), open: Vec::new() };
    if script.random.below(2) == 0 {
        script.line("setlocale C.UTF-8".to_owned());
    }
    for _ in 0..3 {
        script.opening();
    }
    for _ in 0..length {
        match script.random.below(40) {
            0..=3 => script.opening(),
            4..=22 => script.on_bytes(),
            23..=26 => script.on_state(),
            27..=28 => script.on_wide(),
            29..=33 => script.on_numbers(),
            34..=36 => script.on_names(),
            _ => script.on_children(),
        }
    }
    script.lines
}

/// Runs a script in a directory of its own.
fn run(faces: &Faces, face: Face, script: &[String]) -> String {
    let (name, file) = (Faces::next_name(), faces.beside("script"));
    std::fs::write(&file, script.join("\n")).expect("a script");
    let directory = format!("{}/{name}", faces.root(face));
    let program = program();
    let file = file.to_str().expect("our own names are UTF-8");
    faces.run(face, &[&program, &directory, file]).replace(&name, "DIRECTORY")
}

/// The program that runs scripts, and shows what a directory has.
pub fn program() -> String {
    compiled("cli/tests/door/stdio.c", &[])
}

const STDIO: Family = Family { name: "stdio", script, run };

#[test]
fn generated_programs_on_a_volume() {
    for mode in PROMISES {
        STDIO.compare(Face::Volume(mode));
    }
}

#[test]
fn generated_programs_over_a_split_directory() {
    for mode in PROMISES {
        STDIO.compare(Face::Split(mode));
    }
}

#[test]
fn generated_programs_on_a_mount() {
    STDIO.compare(Face::Mount);
}

#[test]
fn generated_programs_are_the_same_twice_on_tmpfs() {
    STDIO.compare(Face::Tmpfs);
}
