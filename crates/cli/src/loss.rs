//! What of a domain's volume cannot be had: how much of which file, and which node had it. One line
//! for a file, however many pages that are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use console::failure::Failure;
use console::size;
use ddmap::{Directory, Location, PAGE, Standing};
use serde_json::{Value, json};
use volume::LostData;

use crate::domains;

/// Why pages cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// The node that had them has lost them, or is gone.
    Lost(u16),
    /// The node that has them does not answer.
    Away(u16),
    /// It is not known which node had them.
    Unknown,
}

impl Cause {
    fn node(self) -> Option<u16> {
        match self {
            Self::Lost(node) | Self::Away(node) => Some(node),
            Self::Unknown => None,
        }
    }
}

/// Bytes of a file, or of no file.
#[derive(Default)]
pub struct Loss(BTreeMap<Cause, u64>);

impl Loss {
    /// Pages that were lost with these nodes.
    pub fn of_pages(pages: impl Iterator<Item = Option<u16>>) -> Self {
        let mut loss = Self::default();
        for node in pages {
            *loss.0.entry(node.map_or(Cause::Unknown, Cause::Lost)).or_default() += PAGE;
        }
        loss
    }

    /// For people, as of a file.
    pub fn text(&self) -> String {
        let part = |(why, bytes): (&Cause, &u64)| {
            let bytes = size::show(*bytes);
            match why {
                Cause::Lost(node) => format!("{bytes} lost with node {node}"),
                Cause::Away(node) => format!("{bytes} with node {node}, which does not answer"),
                Cause::Unknown => format!("{bytes} lost"),
            }
        };
        self.0.iter().map(part).collect::<Vec<_>>().join(", ")
    }

    /// Whether it is nothing.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// For programs: a value a node.
    pub fn to_json(&self, file: Option<&str>) -> Vec<Value> {
        let one = |(why, bytes): (&Cause, &u64)| {
            json!({
                "file": file,
                "bytes": bytes,
                "node": why.node(),
                "away": matches!(why, Cause::Away(_)),
            })
        };
        self.0.iter().map(one).collect()
    }
}

/// What cannot be had of each file, of the volume whose region has this path. `None`: it is of no
/// domain.
pub fn by_file(region: &Path, lost: &[LostData]) -> Result<Option<Vec<Loss>>, Failure> {
    let Some((store, volume)) = domains::of_region(region) else { return Ok(None) };
    let path = store.volume(&volume).join(Directory::NAME);
    let directory = Directory::open(&path).map_err(|error| {
        let asked = format!("see what of {volume} is lost");
        Failure::new(asked, format!("its directory: {error}"), "")
    })?;
    let gone = store.members().into_iter().filter(|one| one.2 == Standing::Gone);
    let gone: BTreeSet<u16> = gone.map(|one| one.0.number()).collect();
    let why = |page| match directory.get(page) {
        Ok(Location::Lost(Some(node), _)) => Cause::Lost(node.number()),
        Ok(Location::Held(node, _, other)) => {
            // Both had it: it is lost if both are gone.
            let mut both = [Some(node), other].into_iter().flatten();
            match both.find(|node| !gone.contains(&node.number())) {
                Some(node) => Cause::Away(node.number()),
                None => Cause::Lost(node.number()),
            }
        }
        _ => Cause::Unknown,
    };
    let of = |data: &LostData| {
        let mut loss = Loss::default();
        for page in pages(data) {
            *loss.0.entry(why(page)).or_default() += PAGE;
        }
        loss
    };
    Ok(Some(lost.iter().map(of).collect()))
}

/// The pages of the region that a file has lost.
pub fn pages(lost: &LostData) -> impl Iterator<Item = u64> {
    lost.runs.iter().flat_map(|(at, length)| at / PAGE..(at + length).div_ceil(PAGE))
}

#[cfg(test)]
mod tests {
    use super::Loss;

    #[test]
    fn a_loss_is_one_line() {
        let nodes = [Some(3), None, Some(3), Some(4)];
        let loss = Loss::of_pages(nodes.into_iter());
        let text = "8.00 KiB lost with node 3, 4.00 KiB lost with node 4, 4.00 KiB lost";
        assert_eq!(loss.text(), text);
        assert_eq!(loss.to_json(Some("/a"))[0]["node"], 3);
    }
}
