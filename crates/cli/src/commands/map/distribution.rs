//! Where the pages of a file lie that is on a volume of a domain, as the volume's directory says.

use std::path::Path;

use console::failure::Failure;
use console::output;
use console::runs::Run;
use console::size;
use console::size::percent;
use ddmap::{Directory, Location, PAGE};
use serde_json::{Value, json};

use crate::domains;

/// Where a page's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Holder {
    /// A node has them.
    Node(u16),
    /// They are zeros, which no node has: nobody has stored anything, or zeros have left.
    Nowhere,
    /// The only node that had them is gone.
    Lost,
    /// The directory's word is damaged.
    Unknown,
}

impl Holder {
    fn word(self) -> &'static str {
        match self {
            Self::Node(_) => "node",
            Self::Nowhere => "nowhere",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

/// A part of an extent whose pages lie together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    run: Run,
    written: bool,
    on: Holder,
}

/// Where the pages of a file lie.
pub struct Distribution {
    /// The number of the volume's host.
    here: u16,
    parts: Vec<Segment>,
}

impl Distribution {
    /// Asks the directory of the volume whose region has this path. `None`: it is of no domain.
    pub fn find(region: &Path, runs: &[(Run, bool)]) -> Result<Option<Self>, Failure> {
        let Some((store, volume)) = domains::of_region(region) else { return Ok(None) };
        let asked = format!("map a file of {volume}");
        let gone = || Failure::new(&asked, "its node is gone", "");
        let here = store.about()?.ok_or_else(gone)?.node;
        let path = store.volume(&volume).join(Directory::NAME);
        let directory = Directory::open(&path)
            .map_err(|error| Failure::new(&asked, format!("its directory: {error}"), ""))?;
        let on = |page| match directory.get(page) {
            Ok(Location::Held(node, ..)) => Holder::Node(node.number()),
            Ok(Location::Void(_)) => Holder::Nowhere,
            Ok(Location::Lost(..)) => Holder::Lost,
            Err(_) => Holder::Unknown,
        };
        let parts = runs.iter().flat_map(|(run, written)| split(run, *written, on)).collect();
        Ok(Some(Self { here, parts }))
    }

    /// Bytes by where they are, nodes first.
    fn sums(&self) -> Vec<(Holder, u64)> {
        let mut sums = std::collections::BTreeMap::from([(Holder::Node(self.here), 0)]);
        for part in &self.parts {
            *sums.entry(part.on).or_default() += part.run.length;
        }
        sums.into_iter().collect()
    }

    fn name(&self, on: Holder) -> String {
        match on {
            Holder::Node(node) if node == self.here => format!("node {node} (here)"),
            Holder::Node(node) => format!("node {node}"),
            other => other.word().to_owned(),
        }
    }

    /// For programs: what `map` says of each volume stands beside it.
    pub fn add_to(&self, value: &mut Value) {
        let node = |on| if let Holder::Node(node) = on { Some(node) } else { None };
        let part = |part: &Segment| {
            json!({
                "file_offset": part.run.offset,
                "place": part.run.place,
                "length": part.run.length,
                "on": part.on.word(),
                "node": node(part.on),
            })
        };
        let sum = |(on, bytes): (Holder, u64)| {
            json!({
                "on": on.word(),
                "node": node(on),
                "here": on == Holder::Node(self.here),
                "bytes": bytes,
            })
        };
        value["pages"] = self.parts.iter().map(part).collect();
        value["places"] = self.sums().into_iter().map(sum).collect();
    }

    /// For people; `length`: of the file.
    pub fn to_text(&self, length: u64, extents: usize) -> String {
        let row = |part: &Segment| {
            vec![
                format!("{:#x}", part.run.offset),
                format!("{:#x}", part.run.place),
                size::show(part.run.length),
                self.name(part.on),
                if part.written { "" } else { "unwritten" }.to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = self.parts.iter().map(row).collect();
        let sums = self.sums();
        let all: u64 = sums.iter().map(|one| one.1).sum();
        let sum = |(on, bytes): &(Holder, u64)| {
            let share = format!("{:.0} %", percent(*bytes, all));
            vec![self.name(*on), bytes.to_string(), size::show(*bytes), share]
        };
        let total = vec!["all".to_owned(), all.to_string(), size::show(all), String::new()];
        let sums: Vec<Vec<String>> = sums.iter().map(sum).chain([total]).collect();
        let mut text = String::new();
        if !rows.is_empty() {
            let head = ["in the file", "in the region", "length", "pages on", ""];
            text = output::table(&head, &rows) + "\n";
        }
        text += &output::table(&["pages on", "bytes", "", ""], &sums);
        text + &format!("{} in {extents} extents\n", size::show(length))
    }
}

/// The parts of an extent whose pages lie together.
fn split(run: &Run, written: bool, on: impl Fn(u64) -> Holder) -> Vec<Segment> {
    let mut parts: Vec<Segment> = Vec::new();
    let (mut at, end) = (run.place, run.place + run.length);
    while at < end {
        let next = ((at / PAGE + 1) * PAGE).min(end);
        let found = on(at / PAGE);
        match parts.last_mut() {
            Some(last) if last.on == found => last.run.length += next - at,
            _ => {
                let offset = run.offset + (at - run.place);
                let run = Run { offset, place: at, length: next - at };
                parts.push(Segment { run, written, on: found });
            }
        }
        at = next;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_split_where_its_pages_lie_elsewhere() {
        let run = Run { offset: 3 * PAGE, place: 10 * PAGE, length: 5 * PAGE + 100 };
        let on = |page| match page {
            ..12 => Holder::Node(1),
            12 => Holder::Nowhere,
            13..15 => Holder::Node(2),
            _ => Holder::Lost,
        };
        let parts = split(&run, true, on);
        let seen: Vec<_> =
            parts.iter().map(|p| (p.run.offset, p.run.place, p.run.length, p.on)).collect();
        let expected = [
            (3 * PAGE, 10 * PAGE, 2 * PAGE, Holder::Node(1)),
            (5 * PAGE, 12 * PAGE, PAGE, Holder::Nowhere),
            (6 * PAGE, 13 * PAGE, 2 * PAGE, Holder::Node(2)),
            (8 * PAGE, 15 * PAGE, 100, Holder::Lost),
        ];
        assert_eq!(seen, expected);
        let placed = Distribution { here: 3, parts };
        let sums = [
            (Holder::Node(1), 2 * PAGE),
            (Holder::Node(2), 2 * PAGE),
            (Holder::Node(3), 0),
            (Holder::Nowhere, PAGE),
            (Holder::Lost, 100),
        ];
        assert_eq!(placed.sums(), sums);
    }
}
