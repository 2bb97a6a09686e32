//! Traces as files: the same life for every file system.
//!
//! Text, one event a line: `+ DIRECTORY SIZE`, `a FILE BYTES`, `o FILE OFFSET BYTES`, `- FILE`;
//! files are numbered by their creation, directories by their place in
//! [`directories`](super::profile::directories). The first line names the format and what the trace
//! was drawn from.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use console::failure::Failure;
use console::file;

use super::profile::Event;

/// What the first line begins with.
const MAGIC: &str = "solera-trace 1";

/// Writes a trace.
pub struct Writer(BufWriter<File>);

impl Writer {
    /// Makes the file; `origin` is kept in its first line, for people.
    pub fn create(path: &Path, origin: &str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| trace_failure("write", path, &error);
        let file = file::create(format!("write the trace {}", path.display()), path)?;
        let mut out = BufWriter::new(file);
        writeln!(out, "{MAGIC} {origin}").map_err(failed)?;
        Ok(Self(out))
    }

    /// Adds an event.
    pub fn add(&mut self, event: Event) -> std::io::Result<()> {
        let out = &mut self.0;
        match event {
            Event::Create { dir, size } => writeln!(out, "+ {dir} {size}"),
            Event::Append { file, bytes } => writeln!(out, "a {file} {bytes}"),
            Event::Overwrite { file, offset, bytes } => writeln!(out, "o {file} {offset} {bytes}"),
            Event::Delete { file } => writeln!(out, "- {file}"),
        }
    }

    /// Whether all of it was written.
    pub fn finish(mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Reads a trace.
pub struct Reader {
    lines: std::io::Lines<BufReader<File>>,
    /// Bytes read so far, and in all.
    done: u64,
    total: u64,
    number: u64,
    name: String,
    /// Files created so far: no event may name a later one.
    created: u64,
    directories: usize,
}

impl Reader {
    /// Opens a trace; refuses what is not one.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| trace_failure("read", path, &error);
        let file = file::open(format!("read the trace {}", path.display()), path)?;
        let total = file.metadata().map_err(failed)?.len();
        let mut lines = BufReader::new(file).lines();
        let directories = super::profile::directories().len();
        let name = path.display().to_string();
        let head = lines.next().transpose().map_err(failed)?.unwrap_or_default();
        if head != MAGIC && !head.starts_with(&format!("{MAGIC} ")) {
            let found = format!("its first line is not \"{MAGIC} ...\"");
            let advice = "make one with `solera age --write-trace`";
            return Err(Failure::new(format!("read the trace {name}"), found, advice));
        }
        Ok(Self {
            lines,
            done: head.len() as u64 + 1,
            total,
            number: 1,
            name,
            created: 0,
            directories,
        })
    }

    /// How far it is, in thousandths.
    pub fn progress(&self) -> u64 {
        (self.done * 1000 / self.total.max(1)).min(1000)
    }

    fn parse(&mut self, line: &str) -> Option<Event> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let event = match kind {
            "+" => Event::Create { dir: u16::try_from(number()?).ok()?, size: number()? },
            "a" => Event::Append { file: number()?, bytes: number()? },
            "o" => Event::Overwrite { file: number()?, offset: number()?, bytes: number()? },
            "-" => Event::Delete { file: number()? },
            _ => return None,
        };
        let known = match event {
            Event::Create { dir, .. } => {
                self.created += 1;
                usize::from(dir) < self.directories
            }
            Event::Append { file, .. } | Event::Overwrite { file, .. } | Event::Delete { file } => {
                file < self.created
            }
        };
        (known && words.next().is_none()).then_some(event)
    }
}

impl Iterator for Reader {
    type Item = Result<Event, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.lines.next()?;
        self.number += 1;
        let line = match line {
            Ok(line) => line,
            Err(error) => return Some(Err(trace_failure("read", Path::new(&self.name), &error))),
        };
        self.done += line.len() as u64 + 1;
        let event = self.parse(&line).ok_or_else(|| {
            let asked = format!("read the trace {}", self.name);
            let found = format!("line {} is no event: {line:?}", self.number);
            Failure::new(asked, found, "make it anew with `solera age --write-trace`")
        });
        Some(event)
    }
}

fn trace_failure(verb: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::io(format!("{verb} the trace {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let path = std::env::temp_dir().join(format!("solera-trace-{}", std::process::id()));
        let events = [
            Event::Create { dir: 3, size: 4097 },
            Event::Append { file: 0, bytes: 4096 },
            Event::Overwrite { file: 0, offset: 8, bytes: 16 },
            Event::Delete { file: 0 },
        ];
        let mut writer = Writer::create(&path, "a test").unwrap();
        for event in events {
            writer.add(event).unwrap();
        }
        writer.finish().unwrap();
        let read: Vec<Event> = Reader::open(&path).unwrap().map(Result::unwrap).collect();
        assert_eq!(read, events);
        for bad in ["x 1", "+ 1", "+ 70000 1", "- 4", "- -1", "a 0 1 2", ""] {
            std::fs::write(&path, format!("{MAGIC}\n+ 0 5\n{bad}\n")).unwrap();
            let mut reader = Reader::open(&path).unwrap();
            assert!(reader.next().unwrap().is_ok());
            assert!(reader.next().unwrap().is_err(), "{bad:?}");
        }
        std::fs::write(&path, "something else\n").unwrap();
        assert!(Reader::open(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
