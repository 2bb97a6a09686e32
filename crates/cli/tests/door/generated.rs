//! What the families of generated programs share: which seeds run, how two runs are compared, and
//! how a script that differs loses what it does not need for that.
//!
//! Of 200 seeds a run takes one in 80 on each face, by rotation; `SOLERA_TEST_LONG` all.
//! `SOLERA_SEED=N` takes this one alone, on each face, and shortens its script if it differs.

use crate::faces::{Face, Faces};

/// How many programs of a family there are.
const SEEDS: u64 = 200;
/// Of so many one runs on a face at each commit.
const PARTS: u32 = 80;

/// A kind of generated programs.
pub struct Family {
    pub name: &'static str,
    /// The lines of a seed's script. Each subset of them must be a script, too.
    pub script: fn(u64) -> Vec<String>,
    /// Runs a script in a new directory on a face; gives what it said, with what it left there.
    pub run: fn(&Faces, Face, &[String]) -> String,
}

/// Where two outputs part: the line's number, and what both say there.
fn first_difference(expected: &str, found: &str) -> Option<String> {
    let (mut one, mut other) = (expected.lines(), found.lines());
    for number in 1.. {
        match (one.next(), other.next()) {
            (None, None) => return None,
            (left, right) if left == right => {}
            (left, right) => {
                let show = |line: Option<&str>| {
                    line.map_or("nothing".to_owned(), |line| line.chars().take(300).collect())
                };
                return Some(format!(
                    "line {number}\n  expected {}\n  found    {}",
                    show(left),
                    show(right)
                ));
            }
        }
    }
    None
}

impl Family {
    /// Where a script differs; both are run again: one that differs from itself shows nothing.
    fn difference(&self, faces: &Faces, script: &[String]) -> Option<String> {
        let expected = (self.run)(faces, Face::Tmpfs, script);
        let first = first_difference(&expected, &(self.run)(faces, faces.face, script))?;
        if faces.face == Face::Tmpfs {
            return Some(first);
        }
        let again = (self.run)(faces, Face::Tmpfs, script);
        if let Some(unlike) = first_difference(&expected, &again) {
            eprintln!("a script of {} differs from itself on tmpfs: {unlike}", self.name);
            return None;
        }
        first_difference(&expected, &(self.run)(faces, faces.face, script))
    }

    /// Leaves out lines, half of them first, then ever fewer, while it still differs.
    fn shrink(&self, faces: &Faces, mut script: Vec<String>) -> Vec<String> {
        let mut size = script.len() / 2;
        while size > 0 {
            let mut from = 0;
            while from < script.len() {
                let mut shorter = script.clone();
                shorter.drain(from..script.len().min(from + size));
                if self.difference(faces, &shorter).is_some() {
                    script = shorter;
                } else {
                    from += size;
                }
            }
            size /= 2;
        }
        script
    }

    /// Runs the seeds of a face: none may differ.
    #[track_caller]
    pub fn compare(&self, face: Face) {
        let Some(faces) = Faces::new(face) else { return };
        let asked = std::env::var("SOLERA_SEED").ok().and_then(|seed| seed.parse().ok());
        let seeds: Vec<u64> = match asked {
            Some(seed) => vec![seed],
            None => (1..=SEEDS)
                .filter(|seed| rotation::chosen(&format!("{}/{face}/{seed}", self.name), PARTS))
                .collect(),
        };
        let mut differ = Vec::new();
        for &seed in &seeds {
            let script = (self.script)(seed);
            let Some(mut said) = self.difference(&faces, &script) else { continue };
            // The first is enough to begin with, and it takes some hundred runs.
            if asked.is_some() || differ.is_empty() {
                let short = self.shrink(&faces, script);
                said = self.difference(&faces, &short).unwrap_or(said);
                said = format!("{said}\n{}\n", short.join("\n"));
            }
            differ.push(format!("seed {seed}, {said}"));
        }
        let what = format!("{} on {face}: {} of {} seeds", self.name, differ.len(), seeds.len());
        eprintln!("{what} differ from tmpfs");
        assert!(differ.is_empty(), "{what}: {}", differ.join("\n"));
    }
}
