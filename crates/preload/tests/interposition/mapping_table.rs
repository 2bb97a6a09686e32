//! The table of mappings against a list that is searched from end to end, by random changes; and
//! with many mappings, where whatever walked all of them for each call would not end.

#[allow(dead_code)] // What only the library itself asks for.
#[path = "../../src/entry/maptable.rs"]
mod maptable;
use crate::support::Random;
use maptable::{Mapping, Mappings, PAGE, any, any_gap};
use vfs::{Desc, Node};

/// Pages of the address space of the random changes.
const PAGES: u64 = 60;
/// Where it begins.
const BASE: usize = 1 << 30;

fn desc(index: u32) -> Desc {
    Desc::new(index, 7)
}

/// Two descriptions for each file.
fn node(desc: Desc) -> Node {
    Node { ino: u64::from(desc.index() / 2), generation: 1 }
}

fn mapping(start: usize, end: usize, desc: Desc, offset: u64) -> Mapping {
    Mapping {
        start,
        end,
        desc,
        node: node(desc),
        offset,
        prot: libc::PROT_READ,
        shared: true,
        may_write: true,
        empty: Vec::new(),
        zeros: false,
        unit: PAGE,
        own: Vec::new(),
    }
}

/// What a page shows, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Page {
    desc: Desc,
    offset: u64,
    prot: i32,
    is_empty: bool,
    /// A mapping begins with it.
    begins: bool,
}

/// Page by page what the table says of mappings.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Model(Vec<Option<Page>>);

fn at(page: usize) -> usize {
    BASE + page * PAGE
}

impl Model {
    /// The same of a table.
    fn of(maps: &Mappings) -> Self {
        let mut pages = vec![None; PAGES as usize];
        for map in maps.within(0, usize::MAX) {
            for page in (map.start..map.end).step_by(PAGE) {
                let before = pages[(page - BASE) / PAGE].replace(Page {
                    desc: map.desc,
                    offset: map.offset_of(page),
                    prot: map.prot,
                    is_empty: map.empty_at(page).is_some(),
                    begins: page == map.start,
                });
                assert_eq!(before, None, "mappings overlap at {page:x}");
            }
            let inside = |part: &(usize, usize)| map.start <= part.0 && part.0 < part.1;
            assert!(map.empty.iter().all(inside) && map.empty.iter().all(|part| part.1 <= map.end));
            assert!(map.empty.windows(2).all(|two| two[0].1 < two[1].0), "{:?}", map.empty);
        }
        Self(pages)
    }

    /// A mapping begins at `page`, if one goes on there.
    fn split(&mut self, page: usize) {
        if let Some(Some(page)) = self.0.get_mut(page) {
            page.begins = true;
        }
    }

    fn cut(&mut self, from: usize, to: usize) {
        if from < to {
            self.split(to);
            self.0[from..to].fill(None);
        }
    }

    fn add(&mut self, from: usize, to: usize, desc: Desc, offset: u64) {
        for page in from..to {
            let offset = offset + ((page - from) * PAGE) as u64;
            let (prot, begins) = (libc::PROT_READ, page == from);
            self.0[page] = Some(Page { desc, offset, prot, is_empty: false, begins });
        }
    }

    /// The mapping of a page: its first one, and one behind its last.
    fn around(&self, page: usize) -> Option<(usize, usize)> {
        self.0[page]?;
        let first = (0..=page).rfind(|&at| self.0[at].is_some_and(|page| page.begins))?;
        let goes_on = |at: &usize| self.0[*at].is_none_or(|page| page.begins);
        Some((first, (page + 1..self.0.len()).find(goes_on).unwrap_or(self.0.len())))
    }

    fn continues(&self, page: usize) -> bool {
        match (page.checked_sub(1).and_then(|before| self.0[before]), self.0[page]) {
            (Some(one), Some(next)) => {
                (next.desc, next.offset, next.prot)
                    == (one.desc, one.offset + PAGE as u64, one.prot)
            }
            _ => false,
        }
    }

    fn join(&mut self, from: usize, to: usize) {
        let touched = |page: usize| self.around(page).map(|(first, _)| first);
        let Some(first) = (from..to.max(from + 1)).find_map(touched) else { return };
        let mut page = first + 1;
        while let Some(found) = self.0.get(page) {
            if found.is_some_and(|found| found.begins) {
                if self.continues(page) {
                    self.0[page].as_mut().expect("it is mapped").begins = false;
                } else if page >= to {
                    return;
                }
            } else if found.is_none() && page >= to {
                return;
            }
            page += 1;
        }
    }

    fn holds(&self, desc: Desc) -> bool {
        self.0.iter().flatten().any(|page| page.desc == desc)
    }
}

/// All that can be asked of a table.
fn compare(maps: &Mappings, model: &Model, (from, to): (usize, usize)) {
    for (page, (found, expected)) in Model::of(maps).0.iter().zip(&model.0).enumerate() {
        assert_eq!(found, expected, "page {page}, after {from}..{to}");
    }
    let held: Vec<Desc> = maps.descriptions().collect();
    let expected: Vec<Desc> = (0..8).map(desc).filter(|desc| model.holds(*desc)).collect();
    assert_eq!(held, expected);
    assert!((0..8).map(desc).all(|desc| maps.holds(desc) == model.holds(desc)));
    let pages = || model.0.iter().flatten();
    assert_eq!((maps.is_empty(), any()), (pages().next().is_none(), pages().next().is_some()));
    assert_eq!(any_gap(), pages().any(|page| page.is_empty));
    for (page, expected) in model.0.iter().enumerate() {
        let found = maps.at(at(page) + 123);
        assert_eq!(found, expected.map(|page| (page.desc, page.offset + 123)));
        let bounds = maps.find(at(page)).map(|map| (map.start, map.end));
        assert_eq!(bounds, model.around(page).map(|(first, last)| (at(first), at(last))));
    }
    let (start, end) = (at(from), at(to));
    let inside = |page: &usize| model.0[*page].is_some();
    if from < to {
        assert_eq!(maps.touches(start, end), (from..to).any(|page| inside(&page)));
    }
    let free: usize = maps.around(start, end).iter().map(|part| part.1 - part.0).sum();
    assert_eq!(free, (from..to).filter(|page| !inside(page)).count() * PAGE);
    for ino in 0..4 {
        let (file, size) = (Node { ino, generation: 1 }, (from * PAGE) as u64);
        let all = || maps.within(0, usize::MAX).filter(|map| map.node == file);
        let behind = all().filter(|map| map.offset_of(map.end) > size);
        let mut found: Vec<usize> = maps.of_file(file, size).collect();
        found.sort_unstable();
        assert_eq!(found, behind.map(|map| map.start).collect::<Vec<_>>());
    }
}

/// One test: the numbers that are asked without a lock are the process's.
#[test]
fn random_changes_do_what_they_do_to_a_list_of_pages() {
    let (mut maps, mut random) = (Mappings::default(), Random(0x5EED));
    let mut model = Model::of(&maps);
    for round in 0..40_000 {
        let from = random.below(PAGES) as usize;
        let to = (from + random.below(if round % 7 == 0 { PAGES } else { 6 }) as usize).min(60);
        match random.below(8) {
            // Often such that neighbours continue each other.
            0..3 if from < to => {
                let desc = desc(random.below(8) as u32);
                let offset = (from as u64 + random.below(8) / 7) * PAGE as u64;
                let before: Vec<Desc> = maps.descriptions().collect();
                let freed = maps.cut(at(from), at(to));
                model.cut(from, to);
                let mut gone = freed.clone();
                gone.sort_unstable();
                gone.dedup();
                let expected = before.into_iter().filter(|desc| !model.holds(*desc));
                assert_eq!(gone, expected.collect::<Vec<_>>());
                maps.add(mapping(at(from), at(to), desc, offset));
                model.add(from, to, desc, offset);
            }
            3 => {
                maps.cut(at(from), at(to));
                model.cut(from, to);
            }
            4 => {
                maps.split(at(from));
                model.split(from);
            }
            5 => {
                maps.join(at(from), at(to));
                model.join(from, to);
            }
            6 => {
                let is_empty = random.below(2) == 0;
                for mut map in maps.within_mut(at(from), at(to)) {
                    let (first, last) = (map.start.max(at(from)), map.end.min(at(to)));
                    map.note(first, last, is_empty);
                }
                for page in model.0[from..to].iter_mut().flatten() {
                    page.is_empty = is_empty;
                }
            }
            _ => {
                let found = maps.find_mut(at(from));
                let bounds = model.around(from);
                assert_eq!(found.is_some(), bounds.is_some());
                let prot = [libc::PROT_READ, libc::PROT_NONE][random.below(2) as usize];
                if let (Some(mut map), Some((first, last))) = (found, bounds) {
                    map.prot = prot;
                    model.0[first..last].iter_mut().flatten().for_each(|page| page.prot = prot);
                }
            }
        }
        compare(&maps, &model, (from, to));
    }
    maps.cut(0, usize::MAX);
    compare(&maps, &Model(vec![None; PAGES as usize]), (0, 0));
    many();
}

/// Mappings of one page, of two files in turns.
fn many() {
    const MANY: usize = 1 << 18;
    let mut maps = Mappings::default();
    let page = |index: usize| at(index * 7 % MANY);
    for index in 0..MANY {
        maps.add(mapping(page(index), page(index) + PAGE, desc(index as u32 % 2 * 2), 0));
    }
    for index in 0..MANY {
        let at = page(index);
        assert!(maps.holds(desc(0)) && maps.touches(at, at + PAGE) && !maps.touches(0, BASE));
        maps.find_mut(at).expect("it is there").note(at, at + PAGE, index % 3 > 0);
        maps.split(at);
        maps.join(at, at + PAGE);
        assert_eq!(maps.find(at + 1).map(|map| (map.start, map.end)), Some((at, at + PAGE)));
        assert_eq!(maps.of_file(node(desc(0)), PAGE as u64).next(), None);
        assert_eq!(maps.around(at, at + PAGE), []);
    }
    assert!(any() && any_gap());
    for index in 0..MANY {
        let freed = maps.cut(page(index), page(index) + PAGE);
        assert_eq!(freed.is_empty(), index + 2 < MANY);
    }
    assert!(maps.is_empty() && !any() && !any_gap());
}
