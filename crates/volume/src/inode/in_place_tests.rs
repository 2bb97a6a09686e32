//! What is told of changes in place, in all orders of a reader's and a writer's steps.

use super::*;

fn of(first: u64, count: u64) -> Blocks {
    Blocks { first, count }
}

#[test]
fn blocks_meet_if_they_share_one() {
    let meet = |one: Blocks, other: Blocks| one.may_meet(other.packed().unwrap());
    for (one, other, meets) in [
        (of(5, 1), of(5, 1), true),
        (of(5, 1), of(6, 1), false),
        (of(5, 2), of(6, 1), true),
        (of(6, 1), of(5, 2), true),
        (of(7, 1), of(5, 2), false),
        (of(0, 65), of(64, 16), true),
        (of(0, 64), of(64, 16), false),
        (of(90, 1), of(64, 16), false),
        // Told modulo 2^20.
        (of((1 << 20) + 5, 1), of(5, 1), true),
        (of(0, 1), of((1 << 20) - 1, 2), true),
        (of((1 << 20) - 1, 2), of(0, 1), true),
    ] {
        assert_eq!(meet(one, other), meets, "{one:?} {other:?}");
    }
    assert_eq!(of(0, 17).packed(), None);
    assert_eq!(Blocks::of(BLOCK - 1, 2), of(0, 2));
    assert_eq!(Blocks::of(BLOCK, BLOCK), of(1, 1));
    assert_eq!(Blocks::of(BLOCK, 0), of(1, 1));
}

/// How many follow each other is told no further than there is room for.
#[test]
fn a_long_row_stays_one() {
    let (mut words, mut even) = ((0, 0), 6);
    for _ in 0..FOLLOWED_MAX + 3 {
        let (blocks_of, last) = told(even, words, of(1, 1).packed().unwrap());
        (words, even) = ((last, blocks_of), even + 2);
    }
    let passed = |known| Numbers { known, before: even, behind: even }.passed(words, of(1, 1));
    assert!(passed(even - FOLLOWED_MAX * 2));
    assert!(!passed(even - FOLLOWED_MAX * 2 - 2));
    assert!(!Numbers { known: 6, before: even, behind: even + 2 }.passed(words, of(1, 1)));
}

/// The words, what two blocks hold, and where the map says that they are.
#[derive(Clone, Copy, Default)]
struct Memory {
    number: u64,
    last: u64,
    blocks_of: u64,
    bytes: [u64; 2],
    map: u64,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// Of this block.
    InPlace(usize),
    /// The map's, and both blocks'.
    Other,
    /// Told as one of block 0, and taken back: another one under the same number.
    TakenBack,
    /// Told as one of block 1; its process dies before it changes that, and is recovered.
    Dies,
}

/// The memory after each store of a writer, as others see them.
struct Writer(Vec<Memory>);

impl Writer {
    fn now(&self) -> Memory {
        *self.0.last().unwrap()
    }

    fn store(&mut self, store: impl Fn(&mut Memory)) {
        let mut now = self.now();
        store(&mut now);
        self.0.push(now);
    }

    fn tell(&mut self, even: u64, block: usize) {
        let Memory { last, blocks_of, .. } = self.now();
        let packed = of(block as u64, 1).packed().unwrap();
        let (blocks_of, last) = told(even, (last, blocks_of), packed);
        self.store(|memory| memory.blocks_of = blocks_of);
        self.store(|memory| memory.last = last);
    }

    fn change(&mut self, change: Change, value: u64) {
        let even = self.now().number;
        self.store(|memory| memory.number = even + 1);
        match change {
            Change::InPlace(block) => {
                self.tell(even, block);
                self.store(|memory| memory.bytes[block] = value);
            }
            Change::TakenBack => {
                self.tell(even, 0);
                self.store(|memory| memory.last = 0);
                self.change_all(value);
            }
            Change::Other => self.change_all(value),
            Change::Dies => {
                self.tell(even, 1);
                self.store(|memory| memory.bytes[1] = value);
                self.store(|memory| memory.last = 0);
                self.store(|memory| memory.blocks_of = 0);
                return self.store(|memory| memory.number = even + 4);
            }
        }
        self.store(|memory| memory.number = even + 2);
    }

    fn change_all(&mut self, value: u64) {
        self.store(|memory| memory.map = value);
        self.store(|memory| memory.bytes[0] = value);
        self.store(|memory| memory.bytes[1] = value);
    }
}

/// All ways to make steps one behind the other, each before `end`: as long as `each`, which gets
/// those that are made, asks for a further one.
fn orders(steps: &mut Vec<usize>, end: usize, each: &mut impl FnMut(&[usize]) -> bool) {
    for at in steps.last().copied().unwrap_or(0)..end {
        steps.push(at);
        if each(steps) {
            orders(steps, end, each);
        }
        steps.pop();
    }
}

/// What the memory was for each row of changes of a writer.
fn histories() -> impl Iterator<Item = Vec<Memory>> {
    use Change::{Dies, InPlace, Other, TakenBack};
    let kinds = [InPlace(0), InPlace(1), Other, TakenBack, Dies];
    (0..125).map(move |row| {
        let mut writer = Writer(vec![Memory { number: 10, last: 4, ..Memory::default() }]);
        for (value, kind) in (1..).zip([row % 5, row / 5 % 5, row / 25]) {
            writer.change(kinds[kind], value);
        }
        writer.0
    })
}

/// A reader loads the number, the map, its blocks, the number, both words, the number.
#[test]
fn what_counts_was_so_at_one_moment() {
    let (mut counted, mut beside) = (0, 0);
    for all in histories() {
        for both in [0, 1] {
            orders(&mut vec![], all.len(), &mut |steps| {
                let made = steps.len();
                let at = |step: usize| all[steps[step]];
                if made < 5 + both {
                    return true;
                }
                let (before, behind) = (at(0).number, at(3 + both).number);
                if made < 7 + both {
                    return all[steps[made - 1]].number == behind;
                }
                let numbers = Numbers { known: before & !1, before, behind };
                let words = (at(4 + both).last, at(5 + both).blocks_of);
                if at(6 + both).number != behind || !numbers.passed(words, of(0, 1 + both as u64)) {
                    return false;
                }
                let (map, first, second) = (at(1).map, at(2).bytes[0], at(2 + both).bytes[1]);
                let stood = all[steps[0]..=steps[3 + both]].iter().any(|memory| {
                    let same = memory.map == map && memory.bytes[0] == first;
                    same && (both == 0 || memory.bytes[1] == second)
                });
                assert!(stood, "{numbers:?}");
                counted += 1;
                beside += u64::from(before != behind || before % 2 == 1);
                false
            });
        }
    }
    assert!(beside > 0 && counted > beside, "{counted}, {beside} of them beside a change");
}

/// The same of a reader that has known the map since an even number.
#[test]
fn what_is_known_of_the_map_counts_as_long_as_it_stands() {
    let mut since = 0;
    for all in histories() {
        orders(&mut vec![], all.len(), &mut |steps| {
            let number = |step: usize| all[steps[step]].number;
            match steps.len() {
                1 => return number(0) % 2 == 0,
                2..4 => return true,
                4 | 5 => return number(steps.len() - 1) >= number(3),
                _ => {}
            }
            let numbers = Numbers { known: number(0), before: number(1), behind: number(3) };
            let words = (all[steps[4]].last, all[steps[4]].blocks_of);
            if number(5) == number(3) && numbers.passed(words, of(0, 1)) {
                let known = all[steps[0]].map;
                assert!(all[steps[0]..=steps[2]].iter().all(|memory| memory.map == known));
                since += u64::from(number(3) > number(0) + 2);
            }
            false
        });
    }
    assert!(since > 0);
}
