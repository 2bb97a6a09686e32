//! The second engine under many hands: threads of one process with one log, and processes of all
//! three modes on the same files, killed in the middle of it or leaving.
//!
//! Every actor appends numbered records to a file of all and to one of its own, and overwrites its
//! block of a third with the number of the round; it notes what returned in memory outside. After
//! recovery each record is whole, and in its actor's order; none that was noted is missing; a block
//! of a `strict` process is of one round.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{Random, TestDir, compile, library};

const BLOCK: usize = 2560 * 8;
const ACTORS: usize = 12;

struct SharedFiles {
    _place: TestDir,
    program: PathBuf,
    directory: PathBuf,
    notes: PathBuf,
}

/// A process: its actors, from the first to behind the last, and its mode.
#[derive(Clone, Copy)]
struct Actors(usize, usize, &'static str);

impl SharedFiles {
    /// `base`: where its directory is to be, if not on a tmpfs.
    fn new(name: &str, base: Option<&Path>) -> Self {
        let place = TestDir::new(&format!("side-by-side-{name}"));
        let (program, notes) = (place.0.join("acts"), place.0.join("notes"));
        compile("acts.c", &program, &["-O1"]);
        let directory = base.unwrap_or(&place.0).join("files");
        // Of a ground before this one.
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::write(&notes, [0; 4096]).expect("the notes");
        std::fs::write(directory.join("blocks"), vec![0; ACTORS * BLOCK]).expect("the blocks");
        Self { _place: place, program, directory, notes }
    }

    /// Starts a process, and waits until its actors are at it.
    fn start(&self, actors: Actors, microseconds: u64) -> Child {
        let Actors(first, end, mode) = actors;
        let mut child = Command::new(&self.program)
            .args([&self.directory, &self.notes])
            .args([first, end - first].map(|number| number.to_string()))
            .arg(microseconds.to_string())
            .env("LD_PRELOAD", library())
            .env("SOLERA_SPLIT", &self.directory)
            .env("SOLERA_MODE", mode)
            .env("SOLERA_EMULATE", "1")
            .env("SOLERA_SPLIT_PATIENCE", "0")
            // So small that it is begun anew all the time.
            .env("SOLERA_SPLIT_LOG", "4096")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let output = child.stdout.as_mut().expect("its output");
        output.read_exact(&mut [0]).expect("its actors begin");
        child
    }

    /// What an actor has noted: of the file of all, of its own and of its block.
    fn noted(&self, actor: usize) -> [u64; 3] {
        let bytes = std::fs::read(&self.notes).expect("the notes");
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a word"));
        [0, 8, 16].map(|at| word(actor * 24 + at))
    }

    /// The numbers of each actor's records, as they stand in a file.
    fn records(&self, name: &str) -> BTreeMap<usize, Vec<u64>> {
        let bytes = std::fs::read(self.directory.join(name)).expect("a file");
        assert_eq!(bytes.len() % 128, 0, "{name}: a record is torn");
        let mut found = BTreeMap::<_, Vec<u64>>::new();
        for (at, record) in bytes.chunks_exact(128).enumerate() {
            let words = std::str::from_utf8(record).ok().and_then(|text| {
                let (actor, number) = text.strip_suffix('\n')?.split_once(' ')?;
                Some((actor.parse().ok()?, number.parse().ok()?))
            });
            let Some((actor, number)) = words else { panic!("{name}: record {at} is {record:?}") };
            found.entry(actor).or_default().push(number);
        }
        found
    }

    /// Judges what is there of some actors, all of whose processes have ended. `missing`: rounds
    /// that were under way when one was killed.
    fn judge(&self, actors: Actors, missing: &BTreeMap<usize, Vec<u64>>, told: &str) {
        self.judge_as(actors, missing, told, actors.2 == "strict");
    }

    /// As above; `whole`: so are blocks.
    fn judge_as(
        &self,
        actors: Actors,
        missing: &BTreeMap<usize, Vec<u64>>,
        told: &str,
        whole: bool,
    ) {
        let together = self.records("together");
        let blocks = File::open(self.directory.join("blocks")).expect("the blocks");
        let Actors(first, end, mode) = actors;
        for actor in first..end {
            let [noted_together, noted_alone, noted_block] = self.noted(actor);
            let alone = self.records(&format!("alone-{actor}"));
            assert!(alone.keys().all(|&only| only == actor), "{told}: {:?}", alone.keys());
            for (found, noted) in [(&together, noted_together), (&alone, noted_alone)] {
                let numbers = found.get(&actor).map_or(&[][..], Vec::as_slice);
                let told = format!("{told}, {mode}, actor {actor}, {noted} noted");
                assert!(numbers.is_sorted_by(|a, b| a < b), "{told}: not in order: {numbers:?}");
                let last = numbers.last().copied().unwrap_or_default();
                assert!(last == noted || last == noted + 1, "{told}: the last is {last}");
                let none = Vec::new();
                let may_miss = missing.get(&actor).unwrap_or(&none);
                let lost: Vec<u64> = (2..=noted)
                    .filter(|at| numbers.binary_search(at).is_err() && !may_miss.contains(at))
                    .collect();
                assert!(lost.is_empty(), "{told}: lost {lost:?}");
            }
            let mut block = vec![0; BLOCK];
            blocks.read_exact_at(&mut block, (actor * BLOCK) as u64).expect("a block");
            let words = || {
                let words = block.chunks_exact(8);
                words.map(|word| u64::from_le_bytes(word.try_into().expect("a word")))
            };
            let (least, most) = (words().min().unwrap_or(0), words().max().unwrap_or(0));
            let told =
                format!("{told}, {mode}, block {actor}: {least} to {most}, {noted_block} noted");
            assert!(!whole || least == most, "{told}: torn");
            assert!(least >= noted_block && most <= noted_block + 1, "{told}");
        }
    }

    fn recover(&self) {
        split::recover(&self.directory).expect("recover");
        assert_eq!(split::recover(&self.directory).expect("again"), split::Recovered::default());
        crate::support::only_the_table_is_left(&self.directory);
    }

    /// The rounds that these actors' process leaves undecided: each of them goes on two later.
    fn undecided(&self, actors: Actors, missing: &mut BTreeMap<usize, Vec<u64>>) {
        for actor in actors.0..actors.1 {
            let noted = self.noted(actor);
            let (least, most) = (noted[2].min(noted[1]), noted[0]);
            missing.entry(actor).or_default().extend(least + 1..=most + 1);
        }
    }
}

fn rounds(short: u64) -> u64 {
    if rotation::all() { short * 20 } else { short }
}

fn kill(mut child: Child) {
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
}

fn pause(random: &mut Random) {
    // What is done until then is another thing each time; what must hold is the same.
    std::thread::sleep(Duration::from_micros(random.below(4000)));
}

/// The threads of a process share its log, which is full all the time, and die together.
#[test]
fn threads_are_killed() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for mode in ["posix", "sync", "strict"] {
        let ground = SharedFiles::new(&format!("killed-{mode}"), None);
        let (actors, mut missing) = (Actors(0, 4, mode), BTreeMap::new());
        for round in 0..rounds(8) {
            let child = ground.start(actors, 0);
            pause(&mut random);
            kill(child);
            ground.recover();
            ground.judge(actors, &missing, &format!("round {round}"));
            ground.undecided(actors, &mut missing);
        }
    }
}

/// A process leaves while its threads are in the middle of their calls.
#[test]
fn threads_are_left_behind() {
    let mut random = Random(0xC2B2_AE3D_27D4_EB4F);
    for mode in ["posix", "strict"] {
        let ground = SharedFiles::new(&format!("left-{mode}"), None);
        let (actors, mut missing) = (Actors(0, 4, mode), BTreeMap::new());
        for round in 0..rounds(8) {
            let mut child = ground.start(actors, 1 + random.below(3000));
            let status = child.wait().expect("it ends");
            assert!(status.success(), "{mode}: {status}");
            ground.recover();
            // From its exit handlers on the kernel writes, and is killed between two pages.
            ground.judge_as(actors, &missing, &format!("round {round}"), false);
            ground.undecided(actors, &mut missing);
        }
    }
}

/// As often as asked for, each time on new ground: files only grow.
fn three_modes(name: &str, base: Option<&Path>) {
    const AT_ONCE: u64 = 3;
    let mut random = Random(0x1656_67B1_9E37_79F9);
    for _ in 0..rounds(AT_ONCE) / AT_ONCE {
        three_modes_on(&SharedFiles::new(name, base), AT_ONCE, &mut random);
    }
}

/// Three processes in three modes: one after the other is killed and comes again, while the others
/// go on.
fn three_modes_on(ground: &SharedFiles, rounds: u64, random: &mut Random) {
    let all = [Actors(0, 2, "posix"), Actors(2, 4, "sync"), Actors(4, 6, "strict")];
    let mut missing = BTreeMap::new();
    for round in 0..rounds {
        let mut children = all.map(|actors| Some(ground.start(actors, 0)));
        for _ in 0..6 {
            let one = random.below(3) as usize;
            pause(random);
            kill(children[one].take().expect("it runs"));
            ground.undecided(all[one], &mut missing);
            children[one] = Some(ground.start(all[one], 0));
        }
        children.into_iter().flatten().for_each(kill);
        ground.recover();
        for actors in all {
            ground.judge(actors, &missing, &format!("round {round}"));
            ground.undecided(actors, &mut missing);
        }
    }
}

#[test]
fn three_modes_on_the_same_files() {
    three_modes("modes", None);
}

/// Where blocks are moved.
#[test]
fn three_modes_on_xfs() {
    for kind in ["exchange", "clone"] {
        let Some(mounted) = crate::support::mounted::Mounted::new(kind) else {
            println!("skipped: {kind}: such an XFS cannot be made and mounted here");
            continue;
        };
        three_modes(kind, Some(&mounted.at));
    }
}
