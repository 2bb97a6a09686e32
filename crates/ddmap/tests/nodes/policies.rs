//! Which pages leave: the hit rates of made traces, through the words of a real node table and the
//! real choice, beside exact models of each policy.

use crate::control::preferences::Policy;
use crate::node::policy::Cold;
use crate::protocol::{Flags, State, Version, Word};
use crate::shared_memory::table::Table;
use crate::tests::support::dir::TestDir;
use std::collections::{BTreeSet, HashMap, VecDeque};

const PAGES: u64 = 16 << 10;
/// Pages that there is room for.
const ROOM: u64 = 4 << 10;

/// A fixed sequence in no order (xorshift64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Pages by how often they are wanted, as YCSB has it (0.99), in no order of their numbers.
fn zipf(count: usize) -> Vec<u64> {
    let mut sums = Vec::new();
    let mut sum = 0.0;
    for rank in 1..=PAGES as u32 {
        sum += 1.0 / f64::from(rank).powf(0.99);
        sums.push(sum);
    }
    let mut draw = Draw(88_172_645_463_325_252);
    std::iter::repeat_with(|| {
        let at = f64::from((draw.next() >> 32) as u32) / f64::from(u32::MAX) * sum;
        let rank = sums.partition_point(|upto| *upto < at) as u64 % PAGES;
        rank * 7919 % PAGES
    })
    .take(count)
    .collect()
}

/// A quarter of what fits is wanted all the time, while all the rest is read in order.
fn scan_and_hot(count: usize) -> Vec<u64> {
    let mut draw = Draw(0x9E37_79B9_7F4A_7C15);
    let hot = ROOM / 4;
    let rest = (hot..PAGES).cycle();
    rest.take(count / 2).flat_map(|page| [page, draw.next() % hot]).collect()
}

/// Pages in order, over and over.
fn turns(pages: u64, count: usize) -> Vec<u64> {
    (0..pages).cycle().take(count).collect()
}

/// Hits of 1000 accesses, by the exact policy.
fn exact(policy: Policy, trace: &[u64]) -> u64 {
    let (mut hits, mut order) = (0, BTreeSet::new());
    let mut known: HashMap<u64, (u64, u64)> = HashMap::new();
    for (time, page) in trace.iter().enumerate() {
        let time = time as u64;
        let old = known.get(page).copied();
        hits += u64::from(old.is_some());
        let new = match (policy, old) {
            (Policy::Fifo, Some(old)) => old,
            (Policy::Lfu, Some((count, _))) => (count + 1, time),
            _ => (0, time),
        };
        if let Some(old) = old {
            order.remove(&(old, *page));
        } else if known.len() as u64 == ROOM {
            let (_, leaves) = order.pop_first().unwrap();
            known.remove(&leaves);
        }
        order.insert((new, *page));
        known.insert(*page, new);
    }
    hits * 1000 / trace.len() as u64
}

/// What chooses a page that is to leave, at a time: it and its word.
trait Chooser {
    fn next(&mut self, table: &Table, policy: Policy, now: u16) -> (u64, Word);
}

impl Chooser for Cold {
    fn next(&mut self, table: &Table, policy: Policy, now: u16) -> (u64, Word) {
        loop {
            if let Some(found) = Cold::next(self, policy, |page| table.word(page)) {
                return found;
            }
            self.fill(policy, now, (0..PAGES).map(|page| (page, table.word(page))));
        }
    }
}

/// The rule before there were queues: the 64 coldest of the next 1024 pages.
#[derive(Default)]
struct Sampled {
    hand: u64,
    batch: VecDeque<(u64, Word)>,
}

impl Chooser for Sampled {
    fn next(&mut self, table: &Table, policy: Policy, now: u16) -> (u64, Word) {
        loop {
            if let Some((page, word)) = self.batch.pop_front() {
                if table.word(page) == word {
                    return (page, word);
                }
                continue;
            }
            let from = self.hand;
            let pages = (from..PAGES).chain(0..from).inspect(|page| self.hand = page + 1);
            let owned = pages.map(|page| (page, table.word(page)));
            let mut sample: Vec<_> =
                owned.filter(|one| one.1.state() == State::Owned).take(1024).collect();
            let coldness = |word| crate::node::policy::coldness(policy, word, now);
            sample.sort_by_key(|one| std::cmp::Reverse(coldness(one.1)));
            sample.truncate(64);
            self.batch = sample.into();
        }
    }
}

/// Hits of 1000 accesses, by the words of a node table.
fn by_words(policy: Policy, trace: &[u64], chooser: &mut dyn Chooser) -> u64 {
    let folder = TestDir::new();
    Table::create(folder.path(), PAGES).unwrap();
    let table = Table::attach(folder.path()).unwrap();
    let owned = Word::new(State::Owned, Flags::default(), Version::default());
    let (mut hits, mut came, mut here) = (0, 0, 0);
    for page in trace {
        // As `Capacity::tick` has it.
        let now = ((came / (ROOM / 256)) & 0xFFF) as u16;
        let word = table.word(*page);
        if word.state() == State::Owned {
            hits += 1;
            table.heat(*page, word, now);
            continue;
        }
        if here == ROOM {
            let (page, word) = chooser.next(&table, policy, now);
            assert!(table.turn(page, word, word.turned(State::Absent, word.version())));
            here -= 1;
        }
        assert!(table.turn(*page, word, owned.arrived(now)));
        (came, here) = (came + 1, here + 1);
    }
    hits * 1000 / trace.len() as u64
}

#[test]
fn each_policy_hits_as_often_as_its_exact_model() {
    let traces = [
        ("zipf", zipf(300_000)),
        ("scan and hot", scan_and_hot(200_000)),
        ("a loop that fits", turns(ROOM - 64, 100_000)),
        ("a loop that does not", turns(ROOM * 5 / 4, 100_000)),
    ];
    for (name, trace) in &traces {
        for policy in [Policy::Lru, Policy::Fifo, Policy::Lfu] {
            let exact = exact(policy, trace);
            let ours = by_words(policy, trace, &mut Cold::default());
            let sampled = by_words(policy, trace, &mut Sampled::default());
            println!("{name}, {policy:?}: exact {exact}, here {ours}, sampled {sampled}");
            let far = |hits: u64| hits.abs_diff(exact);
            // 5 % of the exact rate; where that is nearly nothing, 1 % of the accesses.
            assert!(far(ours) <= (exact / 20).max(10), "{name}, {policy:?}: {ours} of {exact}");
            assert!(far(ours) <= far(sampled) + 10, "{name}, {policy:?}: {ours}, {sampled}");
        }
    }
}

#[test]
fn pages_of_small_files_leave_last_and_what_stays_never() {
    let owned = |flags| Word::new(State::Owned, flags, Version::default()).arrived(1);
    let of = |page: u64| match page % 3 {
        0 => owned(Flags::default()),
        1 => owned(Flags::SMALL),
        _ => owned(Flags::STAYS),
    };
    let mut cold = Cold::default();
    cold.fill(Policy::Lru, 9, (0..90).map(|page| (page, of(page))));
    let left: Vec<u64> =
        std::iter::from_fn(|| cold.next(Policy::Lru, of)).map(|(page, _)| page).collect();
    assert!(left[..30].iter().all(|page| page % 3 == 0), "{left:?}");
    assert!(left[30..].iter().all(|page| page % 3 == 1), "{left:?}");
    assert_eq!(left.len(), 60);
}
