//! The profiles of years of use: distributions, and the trace drawn from them.
//!
//! The default profile is the one of the literature (Agrawal et al., "A five-year study of
//! file-system metadata", as Geriatrix draws it): file sizes, ages and directory depths by
//! histogram. A file system is filled to the wanted utilisation by random draws, `K` files; then
//! each tick creates or deletes one: a fair coin with a weak pull towards `K`. Creates draw a size;
//! deletes take a file at random from the age bucket that is furthest above its ideal share. Ages
//! are relative to the time that has passed.
//!
//! A trace depends on its [`Plan`] alone, never on the target: the generator is a portable one
//! (PCG) and draws integers only.

use std::collections::VecDeque;

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use solera_bench::{Profile, Sizes};

/// Blocks of a file system, by which utilisation is counted.
pub const BLOCK: u64 = 4096;

/// Sizes in bytes, with their shares of the number of files.
type Histogram = &'static [(u64, u32)];

/// Sizes of Agrawal et al.: half of the files are at most 2 KiB; half of the bytes lie in files of
/// 2 MiB and more.
const AGRAWAL: Histogram = &[
    (8, 1),
    (32, 7),
    (128, 16),
    (512, 40),
    (2 << 10, 50),
    (8 << 10, 46),
    (32 << 10, 35),
    (128 << 10, 20),
    (512 << 10, 10),
    (2 << 20, 4),
    (8 << 20, 1),
];

/// Sizes of a high-performance computing site: most bytes in large files, some small ones beside
/// them.
const HPC: Histogram = &[
    (2 << 10, 20),
    (32 << 10, 20),
    (512 << 10, 20),
    (2 << 20, 15),
    (8 << 20, 12),
    (32 << 20, 6),
    (128 << 20, 1),
];

/// Small files only: mail, packages, source trees.
const SMALL: Histogram =
    &[(128, 16), (512, 40), (2 << 10, 50), (8 << 10, 46), (32 << 10, 35), (128 << 10, 8)];

/// Ages: upper bounds in hundredths of an hour, with their shares of the number of files.
const AGES: [(u64, u64); 10] = [
    (1_074, 1),
    (3_100, 2),
    (8_598, 8),
    (24_000, 20),
    (68_787, 44),
    (194_559, 75),
    (550_298, 144),
    (1_576_800, 146),
    (4_402_390, 23),
    (12_264_000, 1),
];

/// Directory depths from 1 on: share of the files, directories beside each other there.
const DEPTHS: [(u32, u32); 15] = [
    (1, 1),
    (2, 5),
    (14, 13),
    (15, 19),
    (23, 30),
    (24, 36),
    (42, 32),
    (22, 26),
    (15, 22),
    (12, 17),
    (7, 8),
    (4, 5),
    (3, 2),
    (2, 1),
    (1, 1),
];

/// Files that grow side by side in the profile of appends.
const WRITERS: usize = 64;
/// Bytes of an append there.
const APPEND: u64 = 4096;
/// Tables of the database profile.
const TABLES: u64 = 8;
/// Bytes of an overwrite of a table.
const PAGE: u64 = 8 << 10;
/// Bytes of an append to the log of a database.
const LOGGED: u64 = 16 << 10;
/// Bytes at which a log is closed and the next begun.
const LOG: u64 = 16 << 20;

/// What a trace is drawn from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    pub profile: Profile,
    pub sizes: Sizes,
    /// Bytes of the file system that is to be aged.
    pub capacity: u64,
    /// Parts of it that files fill, in thousandths.
    pub utilisation: u64,
    /// Creates and deletes for each file that lives in the end, in tenths.
    pub churn: u64,
    pub seed: u64,
}

/// One step of a trace. Files are numbered by their creation, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A file of `size` bytes in directory `dir`.
    Create { dir: u16, size: u64 },
    /// `bytes` more at its end.
    Append { file: u64, bytes: u64 },
    /// `bytes` anew at `offset`.
    Overwrite { file: u64, offset: u64, bytes: u64 },
    /// It is removed.
    Delete { file: u64 },
}

/// The directories that files lie in, each behind its parents. All of one depth have the first of
/// the depth above as their parent.
pub fn directories() -> Vec<String> {
    let mut paths = Vec::new();
    let mut parent = String::new();
    for (depth, (_, siblings)) in DEPTHS.iter().enumerate() {
        let name = |sibling| format!("{parent}{}-{sibling}", depth + 1);
        paths.extend((0..*siblings).map(name));
        parent = name(0) + "/";
    }
    paths
}

/// Draws one trace.
pub struct Generator {
    plan: Plan,
    random: Pcg64,
    /// Blocks in use by the files that live.
    used: u64,
    /// Files created so far.
    created: u64,
    /// The files that live after the filling: the number that the coin is pulled to.
    wanted: u64,
    /// Creates and deletes so far, and when to stop; `None` while filling.
    ticks: u64,
    last_tick: Option<u64>,
    ages: Ages,
    /// Sizes of files by number, in blocks.
    blocks: Vec<u32>,
    growing: GrowingFiles,
}

impl Generator {
    pub fn new(plan: &Plan) -> Self {
        let seed = plan.seed ^ (plan.profile as u64) << 56;
        Self {
            plan: *plan,
            random: Pcg64::seed_from_u64(seed),
            used: 0,
            created: 0,
            wanted: 0,
            ticks: 0,
            last_tick: None,
            ages: Ages::new(),
            blocks: Vec::new(),
            growing: GrowingFiles::default(),
        }
    }

    /// How far it is, in thousandths. (The filling is one part in 20.)
    pub fn progress(&self) -> u64 {
        match self.last_tick {
            None => self.used * BLOCK * 50 / self.goal().max(1),
            Some(last) => 50 + 950 * self.ticks.saturating_sub(self.wanted) / last.max(1),
        }
        .min(1000)
    }

    /// Bytes that the files are to fill.
    fn goal(&self) -> u64 {
        self.plan.capacity / 1000 * self.plan.utilisation
    }

    /// A number below `bound`, evenly drawn (to 2^-32).
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.random.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    fn draw(&mut self, histogram: Histogram) -> u64 {
        let total: u32 = histogram.iter().map(|(_, share)| share).sum();
        let mut at = self.below(u64::from(total)) as u32;
        for (size, share) in histogram {
            if at < *share {
                return *size;
            }
            at -= share;
        }
        histogram[0].0
    }

    fn draw_size(&mut self) -> u64 {
        let histogram = match self.plan.profile {
            Profile::Hpc => HPC,
            Profile::Small => SMALL,
            Profile::Agrawal | Profile::Appends | Profile::Database => AGRAWAL,
        };
        let size = self.draw(histogram);
        match self.plan.sizes {
            Sizes::Exact => size,
            Sizes::Prop => (size * (768 + self.below(768)) / 1024).max(1),
        }
    }

    fn draw_directory(&mut self) -> u16 {
        let total: u32 = DEPTHS.iter().map(|(share, _)| share).sum();
        let mut at = self.below(u64::from(total)) as u32;
        let mut first = 0;
        for (share, siblings) in DEPTHS {
            if at < share {
                return (first + self.below(u64::from(siblings)) as u32) as u16;
            }
            at -= share;
            first += siblings;
        }
        0
    }

    fn create(&mut self, size: u64) -> Event {
        let dir = self.draw_directory();
        let blocks = size.div_ceil(BLOCK);
        self.used += blocks;
        self.blocks.push(blocks as u32);
        self.ages.add(self.created, self.ticks);
        self.created += 1;
        self.ticks += 1;
        Event::Create { dir, size }
    }

    fn delete(&mut self, file: u64) -> Event {
        self.used -= u64::from(self.blocks[file as usize]);
        self.ticks += 1;
        Event::Delete { file }
    }

    fn append(&mut self, file: u64, bytes: u64) -> Event {
        self.used += bytes / BLOCK;
        self.blocks[file as usize] += (bytes / BLOCK) as u32;
        Event::Append { file, bytes }
    }

    /// The coin: towards the wanted number of files by up to a tenth of its own weight for each
    /// percent that is missing or too many. Where few files hold nearly everything their bytes
    /// count instead.
    fn next_is_create(&mut self) -> bool {
        let (live, wanted) = match self.plan.profile {
            Profile::Hpc => (self.used, self.goal() / BLOCK),
            _ => (self.ages.live, self.wanted),
        };
        let (live, wanted) = (live as i64, wanted.max(1) as i64);
        let pull = ((wanted - live) * 10_000 / wanted).clamp(-500, 500);
        (self.below(1000) as i64) < 500 + pull
    }

    fn next_of_files(&mut self) -> Option<Event> {
        let Some(last) = self.last_tick else {
            if self.used * BLOCK < self.goal() {
                let size = self.draw_size();
                return Some(self.create(size));
            }
            self.begin_churn();
            return self.next_of_files();
        };
        if self.ticks - self.wanted >= last {
            return None;
        }
        if self.next_is_create() {
            let size = self.draw_size();
            return Some(self.create(size));
        }
        let at = self.random.next_u64();
        if let Some(file) = self.ages.take(self.ticks, at) {
            return Some(self.delete(file));
        }
        let size = self.draw_size();
        Some(self.create(size))
    }

    fn begin_churn(&mut self) {
        self.wanted = self.created;
        self.last_tick = Some(self.created * self.plan.churn * 2 / 10);
    }

    /// Files grow in turns, up to sizes that are drawn; a full one is followed by a new one, and
    /// the oldest go as soon as the goal is reached.
    fn next_of_appends(&mut self) -> Option<Event> {
        if self.is_over() {
            return None;
        }
        if self.used * BLOCK > self.goal()
            && let Some(file) = self.growing.done.pop_front()
        {
            return Some(self.delete(file));
        }
        if self.growing.writers.len() < WRITERS {
            let most = self.draw(AGRAWAL).max(32 << 10) * (768 + self.below(768)) / 1024;
            self.growing.writers.push_back((self.created, most / APPEND));
            return Some(self.create(0));
        }
        let (file, left) = self.growing.writers.pop_front()?;
        if left > 1 {
            self.growing.writers.push_back((file, left - 1));
        } else {
            self.growing.done.push_back(file);
        }
        self.note_goal();
        Some(self.append(file, APPEND))
    }

    /// Tables that take most of the goal are overwritten at random; logs take the rest in turns.
    fn next_of_database(&mut self) -> Option<Event> {
        if self.is_over() {
            return None;
        }
        let table = self.goal() * 3 / 4 / TABLES / PAGE * PAGE;
        if self.created < TABLES {
            return Some(self.create(table));
        }
        self.note_goal();
        if self.used * BLOCK + LOG > self.goal()
            && let Some(file) = self.growing.done.pop_front()
        {
            return Some(self.delete(file));
        }
        if self.below(2) == 0 && table >= PAGE {
            let (file, page) = (self.below(TABLES), self.below(table / PAGE));
            return Some(Event::Overwrite { file, offset: page * PAGE, bytes: PAGE });
        }
        match self.growing.writers.pop_front() {
            None => {
                self.growing.writers.push_back((self.created, LOG / LOGGED));
                Some(self.create(0))
            }
            Some((file, left)) => {
                if left > 1 {
                    self.growing.writers.push_back((file, left - 1));
                } else {
                    self.growing.done.push_back(file);
                }
                Some(self.append(file, LOGGED))
            }
        }
    }

    /// The profiles that write bytes end when the goal has been written `churn` times.
    fn is_over(&mut self) -> bool {
        self.last_tick.is_some_and(|last| self.growing.steps >= last)
    }

    fn note_goal(&mut self) {
        self.growing.steps += 1;
        if self.last_tick.is_none() && self.used * BLOCK + LOG >= self.goal() {
            self.wanted = 0;
            self.growing.steps = 0;
            // All that appends write comes and goes; of a database a quarter does, the logs, to
            // which every second step adds.
            let step = if self.plan.profile == Profile::Appends { APPEND } else { LOGGED * 2 };
            self.last_tick = Some((self.goal() / step).max(1) * self.plan.churn / 10);
        }
    }
}

impl Iterator for Generator {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        match self.plan.profile {
            Profile::Agrawal | Profile::Hpc | Profile::Small => self.next_of_files(),
            Profile::Appends => self.next_of_appends(),
            Profile::Database => self.next_of_database(),
        }
    }
}

/// Files that grow, with the appends that are left, and those that have grown.
#[derive(Default)]
struct GrowingFiles {
    writers: VecDeque<(u64, u64)>,
    done: VecDeque<u64>,
    steps: u64,
}

/// A file in its age bucket: number, tick of its creation.
type AgedFile = (u64, u64);

/// The files that live, by age. In each bucket they stand in the order of their creation; taken
/// ones leave a gap that is passed over.
struct Ages {
    buckets: Vec<VecDeque<Option<AgedFile>>>,
    counts: [u64; AGES.len()],
    live: u64,
}

impl Ages {
    fn new() -> Self {
        let buckets = AGES.iter().map(|_| VecDeque::new()).collect();
        Self { buckets, counts: [0; AGES.len()], live: 0 }
    }

    fn add(&mut self, file: u64, tick: u64) {
        self.buckets[0].push_back(Some((file, tick)));
        self.counts[0] += 1;
        self.live += 1;
    }

    /// Moves on what has become too old for its bucket.
    fn grow_older(&mut self, now: u64) {
        let oldest = AGES[AGES.len() - 1].0;
        for (index, (bound, _)) in AGES[..AGES.len() - 1].iter().enumerate() {
            let border = now - (u128::from(now) * u128::from(*bound) / u128::from(oldest)) as u64;
            while let Some(first) = self.buckets[index].front().copied() {
                let Some(aged) = first else {
                    self.buckets[index].pop_front();
                    continue;
                };
                if aged.1 >= border {
                    break;
                }
                self.buckets[index].pop_front();
                self.buckets[index + 1].push_back(Some(aged));
                self.counts[index] -= 1;
                self.counts[index + 1] += 1;
            }
        }
    }

    /// Takes a file from the bucket that is furthest above its ideal share, the one that `draw`
    /// says.
    fn take(&mut self, now: u64, draw: u64) -> Option<u64> {
        self.grow_older(now);
        let total: u64 = AGES.iter().map(|(_, share)| share).sum();
        let above =
            |index: usize| (self.counts[index] * total) as i64 - (self.live * AGES[index].1) as i64;
        let bucket =
            (0..AGES.len()).filter(|&index| self.counts[index] > 0).max_by_key(|&i| above(i))?;
        let files = &mut self.buckets[bucket];
        if (files.len() as u64) > 2 * self.counts[bucket] + 16 {
            files.retain(Option::is_some);
        }
        let start = ((u128::from(draw) * files.len() as u128) >> 64) as usize;
        let at = (start..files.len()).chain(0..start).find(|&at| files[at].is_some())?;
        let (file, _) = files[at].take()?;
        self.counts[bucket] -= 1;
        self.live -= 1;
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    fn plan(profile: Profile) -> Plan {
        Plan {
            profile,
            sizes: Sizes::Prop,
            capacity: 256 << 20,
            utilisation: 700,
            churn: 40,
            seed: 1,
        }
    }

    /// Runs a trace without a target; gives blocks in use at the end, creates, deletes, and the
    /// most blocks ever in use.
    fn play(plan: &Plan) -> (u64, u64, u64, u64) {
        let (mut sizes, mut alive) = (Vec::new(), Vec::new());
        let (mut used, mut most, mut deletes) = (0, 0, 0);
        let all = directories().len();
        for event in Generator::new(plan) {
            match event {
                Event::Create { size, dir } => {
                    assert!(usize::from(dir) < all);
                    sizes.push(size);
                    alive.push(true);
                    used += size.div_ceil(BLOCK);
                }
                Event::Append { file, bytes } => {
                    assert!(alive[file as usize]);
                    used -= sizes[file as usize].div_ceil(BLOCK);
                    sizes[file as usize] += bytes;
                    used += sizes[file as usize].div_ceil(BLOCK);
                }
                Event::Overwrite { file, offset, bytes } => {
                    assert!(alive[file as usize] && offset + bytes <= sizes[file as usize]);
                }
                Event::Delete { file } => {
                    assert!(std::mem::take(&mut alive[file as usize]));
                    used -= sizes[file as usize].div_ceil(BLOCK);
                    deletes += 1;
                }
            }
            most = most.max(used);
        }
        (used, sizes.len() as u64, deletes, most)
    }

    #[test]
    fn every_profile_ends_about_as_full_as_was_asked() {
        for profile in Profile::value_variants() {
            let profile = *profile;
            let mut plan = plan(profile);
            if profile == Profile::Hpc {
                plan.capacity = 8 << 30;
            }
            let (used, creates, deletes, most) = play(&plan);
            let share = used * BLOCK * 1000 / plan.capacity;
            assert!((400..=1000).contains(&share), "{profile:?}: {share} of 1000 in use");
            assert!(creates > deletes && most * BLOCK <= plan.capacity * 2, "{profile:?}");
        }
    }

    #[test]
    fn the_churn_is_as_asked_and_the_seed_decides() {
        let plan = plan(Profile::Agrawal);
        let (_, creates, deletes, _) = play(&plan);
        let live = creates - deletes;
        assert!(deletes.abs_diff(live * 4) < live, "{deletes} deletes, {live} files live");
        let trace = |seed| Generator::new(&Plan { seed, ..plan }).take(1000).collect::<Vec<_>>();
        assert_eq!(trace(1), trace(1));
        assert_ne!(trace(1), trace(2));
    }

    #[test]
    fn sizes_follow_the_histogram() {
        let mut generator = Generator::new(&Plan { sizes: Sizes::Exact, ..plan(Profile::Agrawal) });
        let sizes: Vec<u64> = (0..23_000).map(|_| generator.draw_size()).collect();
        let small = sizes.iter().filter(|&&size| size <= 2048).count();
        assert!((11_000..11_900).contains(&small), "{small} of 23,000 up to 2 KiB: 114 of 230");
        let mean = sizes.iter().sum::<u64>() / sizes.len() as u64;
        assert!((95_000..125_000).contains(&mean), "mean {mean}");
    }
}
