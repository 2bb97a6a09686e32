//! `solera domain repair`: a volume's directory, anew where it says nothing that is true.
//!
//! The directory is the truth. Where one of its words is damaged, or names a node that has not got
//! the page, or the file is gone, what nodes claim says where the page is. What is in the host's
//! page file is the page: it came whole, and is a hole before the host's word says that it has
//! left. Else the latest version that a holder keeps is, if it is later than the host's word: a
//! page leaves in the version behind that (`protocol/mod.rs`, invariant 5). A page of zeros is
//! kept by nobody: its word says so (invariant 4). Another one that was touched, and that nobody
//! claims, is lost: it is listed, and never shown as zeros.

use crate::control::connections::Links;
use crate::control::transport::Carrier;
use crate::paging::attachment::wire;
use crate::protocol::messages::{Answer, KeptPage, Request};
use crate::protocol::{DamagedPlace, Flags, Location, NodeId, State, Version};
use crate::shared_memory::directory::Directory;
use crate::shared_memory::error::DomainError;
use crate::shared_memory::store::{Standing, Store};
use crate::shared_memory::table::Table;
use crate::shared_memory::view::SharedRegion;
use crate::wire::Hello;
use std::collections::HashMap;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

/// What was found, and done.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RepairReport {
    /// Pages that were looked at.
    pub looked_at: u64,
    /// Pages whose place is known again.
    pub found: u64,
    /// Pages that nobody has, also those that were known to be lost; and the node that had them,
    /// if that is known.
    pub lost: Vec<(u64, Option<u16>)>,
    /// Nodes that did not answer: what the directory places there is left as it is.
    pub silent: Vec<u16>,
}

/// What is known of a page besides the directory.
#[derive(Clone, Copy, Default, Debug)]
struct Claims {
    /// It is in the host's page file, in this version.
    here: Option<Version>,
    /// The latest that a holder keeps, or that two do, if it can be the page.
    kept: Option<(NodeId, Version, Option<NodeId>)>,
    /// The nodes at which the directory places it say that they have not got it: the first one, and
    /// the second one, which may be none.
    denied: [bool; 2],
    /// It is known that somebody has touched it.
    touched: bool,
    /// It is zeros since this version, and nobody has it.
    empty: Option<Version>,
}

/// Where a page is, if the directory is wrong.
fn decide(
    here: NodeId,
    place: Result<Location, DamagedPlace>,
    claims: &Claims,
) -> Option<Location> {
    let latest = match (claims.here, claims.kept) {
        // What was on its way when the node died may have arrived.
        (Some(own), Some((_, kept, _))) if !own.is_later_than(kept) => {
            Some((here, kept.later(1), None))
        }
        (Some(own), _) => Some((here, own, None)),
        (None, kept) => kept,
    };
    let or_lost = |owner: Option<NodeId>, known: Version| {
        let found = latest.map(|(node, version, other)| Location::Held(node, version, other));
        found.or(claims.empty.map(Location::Void)).unwrap_or(Location::Lost(owner, known))
    };
    match place {
        // A file that is new, or a word that was zeroed.
        Ok(Location::Void(version)) if version == Version::default() => {
            (latest.is_some() || claims.touched).then(|| or_lost(None, version.later(1)))
        }
        Ok(Location::Void(_)) => None,
        Ok(Location::Held(owner, version, _)) if owner == here => {
            claims.here.is_none().then(|| or_lost(Some(owner), version))
        }
        Ok(Location::Held(owner, version, other)) => match (claims.denied, other) {
            ([false, false], _) | ([false, _], None) => None,
            ([true, false], Some(other)) => Some(Location::Held(other, version, None)),
            ([false, true], Some(_)) => Some(Location::Held(owner, version, None)),
            _ => Some(or_lost(Some(owner), version)),
        },
        Ok(lost @ Location::Lost(owner, version)) => {
            Some(or_lost(owner, version)).filter(|right| *right != lost)
        }
        Err(_) if !claims.touched && latest.is_none() => Some(Location::Void(Version::default())),
        Err(_) => Some(or_lost(None, Version::default().later(1))),
    }
}

/// What holders keep: of each page the latest, and each node's own.
struct HeldRegion {
    latest: HashMap<u64, (NodeId, Version, Option<NodeId>)>,
    all: HashMap<(u64, NodeId), Version>,
    silent: Vec<NodeId>,
    /// The nodes that the domain has, or had.
    known: Vec<NodeId>,
}

impl HeldRegion {
    /// What the directory says; a word that names a node of no domain fits its check by chance.
    fn checked(&self, page: u64, place: Location) -> Result<Location, DamagedPlace> {
        let is_known = |node: Option<NodeId>| node.is_none_or(|node| self.known.contains(&node));
        match place {
            Location::Held(owner, _, other) if !is_known(Some(owner)) || !is_known(other) => {
                Err(DamagedPlace(place.word(page)))
            }
            place => Ok(place),
        }
    }
}

fn ask_all(store: &Store, links: &Links, here: NodeId) -> HeldRegion {
    let (latest, all, silent) = (HashMap::new(), HashMap::new(), Vec::new());
    let mut kept = HeldRegion { latest, all, silent, known: vec![here] };
    for (node, _, standing, _) in store.members() {
        kept.known.push(node);
        if node == here || standing == Standing::Gone {
            continue;
        }
        let mut next = Some(0);
        while let Some(from) = next {
            let answer = links.ask(node, &Request::Claims { from }, PATIENCE);
            let Ok(Answer::Claims { claims, next: more }) = answer else {
                kept.silent.push(node);
                break;
            };
            for KeptPage { page, version, .. } in claims {
                kept.all.insert((page, node), version);
                let latest = kept.latest.entry(page).or_insert((node, version, None));
                if version.is_later_than(latest.1) {
                    *latest = (node, version, None);
                } else if version == latest.1 && node != latest.0 {
                    latest.2.get_or_insert(node);
                }
            }
            next = more.filter(|more| *more > from);
        }
    }
    kept
}

/// Compares the directory of a volume with what nodes claim, and mends it, if that is `wanted`.
/// No program may have the volume attached.
pub fn repair(store: &Store, volume: &str, wanted: bool) -> Result<RepairReport, DomainError> {
    let asked = format!("repair {volume}");
    let failed = |found: String| DomainError::new(&asked, found, "");
    let (Some(about), Some(node)) = (store.volume_about(volume)?, store.about()?) else {
        return Err(failed("this node is not the host of such a volume".to_owned()));
    };
    let here = NodeId::new(node.node).ok_or_else(|| failed("a bad number".to_owned()))?;
    let folder = store.volume(volume);
    let directory = folder.join(Directory::NAME);
    if !directory.exists() {
        if !wanted {
            return Err(failed("its directory is gone: leave --dry-run out".to_owned()));
        }
        let table = Table::attach(&folder).map_err(|error| failed(error.to_string()))?;
        let attached = table.processes();
        if attached.into_iter().any(|one| one != table.me() && !table.is_dead(one)) {
            let text = "its directory is gone, and the node has it still: start the node anew";
            return Err(failed(text.to_owned()));
        }
        drop(table);
        Directory::create(&directory, about.pages).map_err(|error| failed(error.to_string()))?;
    }
    let ground = SharedRegion::attach(&folder, store.open_room()?, here)
        .map_err(|error| failed(error.to_string()))?;
    // This one, and the node.
    let attached = ground.table.processes().into_iter().filter(|one| !ground.table.is_dead(*one));
    let others = attached.count().saturating_sub(2);
    if wanted && others > 0 {
        return Err(failed(format!("{others} processes have it attached: end them")));
    }
    let hello = Hello {
        node: here,
        process: u64::from(ground.table.me().slot),
        session: ground.table.life(),
        volume: about.uuid,
        term: about.term,
        store: 0,
    };
    let links = Links::new(store.clone(), hello, about.pages, wire(store, &asked)?);
    let kept = ask_all(store, &links, here);
    let mut repaired = RepairReport::default();
    repaired.hears_silent(&kept);
    let mut pages: Vec<u64> = ground.table.touched().collect();
    pages.extend(ground.directory_pages());
    // A holder may keep pages that the volume has not.
    pages.extend(kept.latest.keys().filter(|page| **page < ground.table.pages()));
    pages.sort_unstable();
    pages.dedup();
    repaired.looked_at = pages.len() as u64;
    let mut doubtful = Vec::new();
    for page in pages {
        look(&ground, page, &kept, wanted, (&mut repaired, Some(&mut doubtful)));
    }
    // One that left the host after its holder was asked is there by now.
    let kept = if doubtful.is_empty() { kept } else { ask_all(store, &links, here) };
    repaired.hears_silent(&kept);
    for page in doubtful {
        look(&ground, page, &kept, wanted, (&mut repaired, None));
    }
    Ok(repaired)
}

impl RepairReport {
    fn hears_silent(&mut self, kept: &HeldRegion) {
        self.silent.extend(kept.silent.iter().map(|node| node.number()));
        self.silent.sort_unstable();
        self.silent.dedup();
    }
}

/// Looks at a page. `doubtful` gets it where nobody seems to have it, and nothing is changed then.
fn look(
    ground: &SharedRegion,
    page: u64,
    kept: &HeldRegion,
    wanted: bool,
    (repaired, doubtful): (&mut RepairReport, Option<&mut Vec<u64>>),
) {
    let word = ground.table.word(page);
    let place = ground.place(page).and_then(|place| kept.checked(page, place));
    let claimed = matches!(word.state(), State::Busy | State::Leaving);
    if claimed && !ground.table.is_dead(word.claimant()) {
        // What becomes of it is decided there.
        return;
    }
    let in_file = (claimed || word.state().is_here()) && ground.is_in_file(page);
    let can_be =
        |kept: &(NodeId, Version, Option<NodeId>)| in_file || kept.1.is_later_than(word.version());
    let denied = place.map_or([false; 2], |place| {
        place.holders(ground.here()).map(|node| {
            node.is_some_and(|node| {
                let has = kept.all.get(&(page, node)) == Some(&place.version());
                !kept.silent.contains(&node) && !has
            })
        })
    });
    let claims = Claims {
        here: in_file.then_some(word.version()),
        kept: kept.latest.get(&page).copied().filter(can_be),
        denied,
        touched: word.version() != Version::default(),
        empty: word.flags().has(Flags::EMPTY).then(|| word.version()),
    };
    let number = |owner: Option<NodeId>| owner.map(NodeId::number);
    let Some(right) = decide(ground.here(), place, &claims) else {
        if let Ok(Location::Lost(owner, _)) = place {
            repaired.lost.push((page, number(owner)));
        }
        return;
    };
    match right {
        // A node that is silent may have it.
        Location::Lost(..) if !kept.silent.is_empty() => return,
        Location::Lost(..) if let Some(doubtful) = doubtful => return doubtful.push(page),
        Location::Lost(owner, _) => repaired.lost.push((page, number(owner))),
        _ => repaired.found += 1,
    }
    if wanted {
        // A page that was called lost is asked for again by the next touch.
        let turned = match right {
            Location::Held(node, version, _) if node == ground.here() => {
                word.turned(State::Owned, version)
            }
            Location::Void(version) => word.emptied(version),
            _ => word.turned(State::Absent, word.version()),
        };
        ground.set_place(page, right);
        ground.table.turn(page, word, turned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u32) -> Version {
        Version::new(number)
    }

    #[test]
    fn the_latest_claim_is_the_page_where_the_directory_is_wrong() {
        let [here, other, third] = [1, 2, 3].map(|number| NodeId::new(number).unwrap());
        let none = Claims::default();
        let kept = |node, number| Claims { kept: Some((node, version(number), None)), ..none };
        let denied = |one, two, claims| Claims { denied: [one, two], ..claims };
        let two = |node, number, other| Location::Held(node, version(number), Some(other));
        let held = |node, number| Location::Held(node, version(number), None);
        let lost = |node, number| Location::Lost(node, version(number));
        let damaged = || Err(DamagedPlace(7));
        let empty = |number| Claims { empty: Some(version(number)), touched: true, ..none };
        for (place, claims, right) in [
            // It is right.
            (Ok(held(here, 5)), Claims { here: Some(version(5)), ..none }, None),
            (Ok(held(other, 5)), kept(other, 5), None),
            (Ok(Location::Void(version(6))), kept(other, 5), None),
            (Ok(Location::Void(version(0))), none, None),
            (Ok(lost(None, 4)), none, None),
            // It is damaged, or new.
            (damaged(), kept(other, 5), Some(held(other, 5))),
            (damaged(), Claims { here: Some(version(6)), ..kept(other, 5) }, Some(held(here, 6))),
            (damaged(), Claims { here: Some(version(4)), ..kept(other, 5) }, Some(held(here, 6))),
            (damaged(), Claims { touched: true, ..none }, Some(lost(None, 1))),
            (damaged(), none, Some(Location::Void(version(0)))),
            (Ok(Location::Void(version(0))), kept(other, 5), Some(held(other, 5))),
            (Ok(Location::Void(version(0))), Claims { touched: true, ..none }, Some(lost(None, 1))),
            // The one that it names has not got it.
            (Ok(held(here, 5)), none, Some(lost(Some(here), 5))),
            (Ok(held(other, 5)), denied(true, false, none), Some(lost(Some(other), 5))),
            (Ok(held(other, 5)), denied(true, false, kept(third, 4)), Some(held(third, 4))),
            // Of two.
            (Ok(two(other, 5, third)), kept(other, 5), None),
            (Ok(two(other, 5, third)), denied(true, false, kept(third, 5)), Some(held(third, 5))),
            (Ok(two(other, 5, third)), denied(false, true, kept(other, 5)), Some(held(other, 5))),
            (Ok(two(other, 5, third)), denied(true, true, none), Some(lost(Some(other), 5))),
            (
                damaged(),
                Claims { kept: Some((other, version(5), Some(third))), ..none },
                Some(two(other, 5, third)),
            ),
            // Zeros: nobody has them.
            (Ok(Location::Void(version(0))), empty(5), Some(Location::Void(version(5)))),
            (damaged(), empty(5), Some(Location::Void(version(5)))),
            (Ok(Location::Void(version(5))), empty(5), None),
            (Ok(held(other, 4)), denied(true, false, empty(5)), Some(Location::Void(version(5)))),
            (Ok(lost(None, 5)), empty(5), Some(Location::Void(version(5)))),
            // It has come back.
            (Ok(lost(Some(other), 5)), kept(other, 5), Some(held(other, 5))),
            (Ok(lost(Some(other), 5)), none, None),
        ] {
            assert_eq!(decide(here, place, &claims), right, "{place:?}, {claims:?}");
        }
    }
}
