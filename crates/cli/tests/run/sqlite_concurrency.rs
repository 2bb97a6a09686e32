//! One SQLite database at once for everybody who can use it: processes with the VFS `solera`,
//! unmodified ones under `solera run`, both VFSs in one process there, and, with a rollback
//! journal, SQLite's own through a mount. Some stay, some are started again and again, one is
//! killed now and then. What they do, and what must be true at each moment, is in
//! `sqlite_concurrency.py`. For a quarter of the time those that stay are away: then the last
//! process takes the log with it, and one that is killed leaves it to others. At the end each kind
//! of access must find the database whole, with what was acknowledged and nothing else.
//!
//! Two seconds for each journal, with `SOLERA_TEST_LONG` sixty; longer, until everybody has
//! committed something and enough were killed.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::sqlite_volume::{SqliteVolume, python, times};
use crate::support::{Mounted, Ran, can_mount};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/sqlite_concurrency.py");
const FILE: &str = "mixed.db";
const TICK: Duration = Duration::from_millis(3);
/// Whoever has come to nothing, or to no end, in this time hangs.
const HANGS: Duration = Duration::from_mins(10);
/// What a process has told last that has the right to write.
const INSIDE: [&str; 3] = ["begun", "savepoint", "commit"];

/// A transaction as `sqlite_concurrency.py` makes them, for SQLite's shell; `WHO` is a number.
const SHELLS: &str = "
BEGIN IMMEDIATE;
UPDATE accounts SET balance = balance - 7 WHERE id = WHO;
UPDATE accounts SET balance = balance + 7 WHERE id = 50 + abs(random()) % 50;
SAVEPOINT s; DELETE FROM items; UPDATE accounts SET balance = 0; ROLLBACK TO s; RELEASE s;
INSERT INTO items(mark, size, body) VALUES
  (12345678, 1000, substr(replace(hex(zeroblob(126)), '00', '12345678'), 1, 1000));
UPDATE tally SET items = items + 1, size = size + 1000;
INSERT INTO log SELECT WHO, coalesce(max(seq), 0) + 1, abs(random()) % 1000 FROM log
  WHERE who = WHO;
COMMIT;
SELECT 'done ' || seq || ' ' || value FROM log WHERE who = WHO ORDER BY seq DESC LIMIT 1;
";

/// A way to the database.
#[derive(Clone)]
struct Access {
    /// Whether `solera run` starts the process.
    is_run: bool,
    /// What SQLite calls the VFS of the open database.
    vfs: &'static str,
    name: String,
}

enum Ends {
    /// It works until all is over.
    Stays,
    /// It ends after so many rounds, and is started again.
    Returns(u32),
    /// SQLite's shell with five transactions, again and again.
    Shell,
    /// It is killed, and started again.
    Killed,
}

struct Participant {
    label: &'static str,
    /// The number of its first thread.
    who: u32,
    /// What the threads go by; each start takes the next.
    turns: Vec<Vec<Access>>,
    ends: Ends,
    child: Option<Child>,
    starts: u32,
    kill_at: Instant,
    kills: u32,
    kills_inside: u32,
}

/// A database that all work on.
struct Mixed<'a> {
    sqlite: &'a SqliteVolume,
    python: &'static str,
    journal: &'static str,
    told: PathBuf,
    random: u64,
}

impl Participant {
    fn new(label: &'static str, who: u32, turns: &[&[&Access]], ends: Ends) -> Self {
        let turns = turns.iter().map(|turn| turn.iter().copied().cloned().collect()).collect();
        let kill_at = Instant::now();
        let (child, starts, kills, kills_inside) = (None, 0, 0, 0);
        Self { label, who, turns, ends, child, starts, kill_at, kills, kills_inside }
    }

    fn whom(&self) -> impl Iterator<Item = u32> + use<> {
        self.who..self.who + u32::try_from(self.turns[0].len()).expect("a few")
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether those that stay are to be away.
struct Calm {
    is_now: bool,
    since: Instant,
    /// What each of them had done by then.
    done: usize,
    /// How often it was calm.
    times: u32,
}

impl Mixed<'_> {
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn told(&self, who: u32) -> String {
        fs::read_to_string(self.told.join(who.to_string())).unwrap_or_default()
    }

    /// How many lines begin with this word.
    fn count(&self, who: u32, what: &str) -> usize {
        self.told(who).lines().filter(|line| line.split(' ').next() == Some(what)).count()
    }

    fn is_inside(&self, who: u32) -> bool {
        let told = self.told(who);
        let last = told.lines().last().and_then(|line| line.split(' ').next());
        last.is_some_and(|last| INSIDE.contains(&last))
    }

    fn errors(&self, label: &str) -> PathBuf {
        self.told.join(format!("errors of {label}"))
    }

    fn program(&self, access: &Access, program: &str) -> Command {
        let sqlite = self.sqlite;
        let mut command = if access.is_run { sqlite.run(program) } else { sqlite.alone(program) };
        command.stdin(Stdio::null());
        command
    }

    fn start(&mut self, participant: &mut Participant) {
        let turn = &participant.turns[participant.starts as usize % participant.turns.len()];
        let mut command;
        let mut output = Stdio::null();
        if matches!(participant.ends, Ends::Shell) {
            let who = participant.who.to_string();
            let told = File::options().append(true).create(true).open(self.told.join(&who));
            output = told.expect("a file of ours").into();
            let script = SHELLS.replace("WHO", &who).repeat(5);
            command = self.program(&turn[0], "sqlite3");
            // Why none is automatic: `HAS_FAULTS` in the other program.
            let wait = ".timeout 600000";
            let settings = "PRAGMA wal_autocheckpoint = 0;";
            command.args(["-bail", "-batch", &turn[0].name, wait, ".vfsname", settings, &script]);
        } else {
            let count = if let Ends::Returns(count) = participant.ends { count } else { 0 };
            let seed = format!("{}-{}", self.journal, participant.starts);
            command = self.program(&turn[0], self.python);
            command.args([PROGRAM, "work", self.journal, &seed, &count.to_string()]);
            command.arg(&self.told).arg(&self.sqlite.library);
            for (who, access) in participant.whom().zip(turn) {
                command.args([&*who.to_string(), access.vfs, &access.name]);
            }
        }
        let errors = File::create(self.errors(participant.label)).expect("a file of ours");
        let child = command.stdout(output).stderr(errors).spawn().expect("a process");
        participant.child = Some(child);
        participant.starts += 1;
        participant.kill_at = Instant::now() + Duration::from_millis(20 + self.below(500));
    }

    /// Whether it runs no more; if so, that it ended well.
    #[track_caller]
    fn has_ended(&self, participant: &mut Participant) -> bool {
        let child = participant.child.as_mut().expect("it was started");
        let Some(status) = child.try_wait().expect("a child of ours") else { return false };
        participant.child = None;
        let label = participant.label;
        let said = fs::read_to_string(self.errors(label)).unwrap_or_default();
        assert!(status.success(), "{}: {label}: {status}: {said}", self.journal);
        true
    }

    /// Kills it: one of four times whatever it does, else while it has the right to write.
    fn kill(&self, participant: &mut Participant) {
        let has_begun = self.is_inside(participant.who);
        if Instant::now() < participant.kill_at || !(has_begun || participant.starts % 4 == 1) {
            return;
        }
        let mut child = participant.child.take().expect("it was started");
        child.kill().expect("killed");
        child.wait().expect("it has ended");
        participant.kills += 1;
        participant.kills_inside += u32::from(self.is_inside(participant.who));
    }

    /// Starts what does not run, and kills what is to be killed. Where it is calm, those that
    /// stay are away.
    fn tend(&mut self, participant: &mut Participant, is_calm: bool) {
        let stays = matches!(participant.ends, Ends::Stays);
        let is_killed = matches!(participant.ends, Ends::Killed);
        let stop = self.told.join(format!("stop-{}", participant.who));
        let is_told = stays && stop.exists();
        if participant.child.is_some() && self.has_ended(participant) {
            let goes_on = is_killed || stays && !is_told;
            assert!(!goes_on, "{}: {} has ended", self.journal, participant.label);
        }
        if participant.child.is_some() && is_killed {
            self.kill(participant);
        }
        if stays && is_calm && !is_told {
            File::create(&stop).expect("a file of ours");
        }
        // Whoever was told to end does before it is told to go on.
        if participant.child.is_none() && !(stays && is_calm) {
            let _ = fs::remove_file(&stop);
            self.start(participant);
        }
    }

    /// Whether it has done enough for the test to say something of it.
    fn has_done_enough(&self, participant: &Participant) -> bool {
        let is_killed = matches!(participant.ends, Ends::Killed);
        let kills = u32::try_from(times(4, 40)).expect("a few");
        participant.whom().all(|who| self.count(who, "done") >= times(10, 100))
            && (!is_killed || participant.kills >= kills && participant.kills_inside >= kills / 2)
    }

    /// Begins to be calm when those that stay have worked, and ends when they are away, also on a
    /// machine that others use. Neither before its time.
    fn go_on(&self, calm: &mut Calm, cycle: Duration, participants: &[Participant]) {
        let lasts = if calm.is_now { cycle / 4 } else { cycle * 3 / 4 };
        if calm.since.elapsed() < lasts {
            return;
        }
        let stay = || participants.iter().filter(|each| matches!(each.ends, Ends::Stays));
        let done = stay().flat_map(Participant::whom).map(|who| self.count(who, "done")).min();
        let done = done.unwrap_or(usize::MAX);
        let is_over = if calm.is_now {
            stay().all(|each| each.child.is_none())
        } else {
            done >= calm.done.saturating_add(5)
        };
        if is_over {
            let times = calm.times + u32::from(calm.is_now);
            *calm = Calm { is_now: !calm.is_now, since: Instant::now(), done, times };
        }
    }

    fn work(&mut self, participants: &mut [Participant]) {
        let lasts = Duration::from_secs(times(2, 60) as u64);
        let mut begun = Instant::now();
        let mut due = begun + lasts;
        let cycle = lasts / u32::try_from(times(1, 8)).expect("a few");
        let mut calm = Calm { is_now: false, since: begun, done: 0, times: 0 };
        loop {
            self.go_on(&mut calm, cycle, participants);
            for participant in &mut *participants {
                self.tend(participant, calm.is_now);
            }
            if Instant::now() >= due && calm.times > 0 {
                let all = participants.iter();
                let late: Vec<_> = all.filter(|each| !self.has_done_enough(each)).collect();
                if late.is_empty() {
                    break;
                }
                let late: Vec<_> = late.iter().map(|each| self.summary(each)).collect();
                assert!(begun.elapsed() < lasts + HANGS, "{}: too little: {late:#?}", self.journal);
                due += Duration::from_millis(500);
            }
            sleep(TICK);
        }
        File::create(self.told.join("stop")).expect("a file of ours");
        begun = Instant::now();
        for participant in participants {
            while participant.child.is_some() && !self.has_ended(participant) {
                let summary = self.summary(participant);
                assert!(begun.elapsed() < HANGS, "{}: does not end: {summary}", self.journal);
                sleep(TICK);
            }
            eprintln!("{}: {}", self.journal, self.summary(participant));
        }
    }

    fn summary(&self, participant: &Participant) -> String {
        let Participant { label, starts, kills, kills_inside, .. } = participant;
        let sum = |what: &str| participant.whom().map(|who| self.count(who, what)).sum::<usize>();
        let commits: Vec<_> = participant.whom().map(|who| self.count(who, "done")).collect();
        let mut said = format!("{label}: {commits:?} commits, {starts} starts, ");
        let _ = write!(said, "{kills} kills ({kills_inside} in transactions)");
        for what in ["again", "undone", "busy", "look", "checkpoint", "vacuum", "reopen"] {
            let _ = write!(said, ", {what} {}", sum(what));
        }
        said
    }

    /// All is as it must be, by each way to the database.
    fn check(&self, ways: &[Access]) {
        for access in ways {
            let mut check = self.program(access, self.python);
            check.args([Path::new(PROGRAM), Path::new("check"), &self.told]);
            Ran::of(check.args([&*self.sqlite.library, access.vfs, &access.name])).ok();
        }
        let ask = "PRAGMA integrity_check; SELECT sum(balance) FROM accounts;";
        assert_eq!(self.sqlite.shell(&self.sqlite.uri(FILE), ask), "ok\n100000\n");
        assert_eq!(self.sqlite.own_shell(FILE, ask), "ok\n100000\n");
    }
}

fn participants(own: &Access, run: &Access, both: &Access, mounts: &[Access]) -> Vec<Participant> {
    let alone = [[own], [run], [both]];
    let mut victims: Vec<&[&Access]> = alone.iter().map(|access| &access[..]).collect();
    let mut all = vec![
        Participant::new("solera", 1, &[&[own]], Ends::Stays),
        Participant::new("solera, two threads", 2, &[&[own, own]], Ends::Stays),
        Participant::new("unix under solera run", 4, &[&[run]], Ends::Stays),
        Participant::new("both under solera run", 5, &[&[both, run]], Ends::Stays),
        Participant::new("sqlite3 under solera run", 7, &[&[run]], Ends::Shell),
        Participant::new("short ones", 8, &[&[own], &[own], &[both]], Ends::Returns(20)),
    ];
    let by_mount: Vec<[&Access; 1]> = mounts.iter().map(|access| [access]).collect();
    if let [unix, solera] = &by_mount[..] {
        all.push(Participant::new("unix by the mount", 10, &[unix], Ends::Stays));
        all.push(Participant::new("sqlite3 by the mount", 11, &[unix], Ends::Shell));
        all.push(Participant::new("short ones by it", 12, &[unix, solera], Ends::Returns(20)));
        victims.push(unix);
    }
    all.push(Participant::new("killed", 9, &victims, Ends::Killed));
    all
}

fn everybody_works_on_one_database(journal: &'static str) {
    let Some(sqlite) = SqliteVolume::new() else { return };
    let Some(python) = python() else { return };
    let told = sqlite.place.path("told");
    fs::create_dir(&told).expect("a directory");
    let mut mixed = Mixed { sqlite: &sqlite, python, journal, told, random: 0x5eed };
    let mounted = (journal != "wal" && can_mount())
        .then(|| Mounted::again(&sqlite.place, sqlite.volume.clone(), &[]));
    let access = |is_run, vfs, name| Access { is_run, vfs, name };
    let shown = format!("{}/{FILE}", sqlite.prefix);
    let own = access(false, "solera", sqlite.uri(FILE));
    let run = access(true, "unix", shown.clone());
    let both = access(true, "solera/unix", format!("file:{shown}?vfs=solera"));
    let mut mounts = Vec::new();
    if let Some(mounted) = &mounted {
        let name = format!("{}/{FILE}", mounted.at);
        mounts.push(access(false, "unix", name.clone()));
        mounts.push(access(false, "solera", format!("file:{name}?vfs=solera")));
    }
    let mut make = sqlite.alone(python);
    make.args([PROGRAM, "make", journal, &sqlite.library, own.vfs, &own.name]);
    Ran::of(&mut make).ok();
    let mut participants = participants(&own, &run, &both, &mounts);
    mixed.work(&mut participants);
    for participant in &participants {
        if matches!(participant.ends, Ends::Shell) {
            let by_unix = mixed.count(participant.who, "unix");
            assert_eq!(by_unix, participant.starts as usize, "{}", participant.label);
        }
    }
    mixed.check(&[&[own, run, both], &mounts[..]].concat());
    drop(participants);
    if let Some(mounted) = mounted {
        mounted.end();
    }
    sqlite.end();
}

#[test]
fn by_a_log() {
    everybody_works_on_one_database("wal");
}

#[test]
fn by_rollback_journals() {
    everybody_works_on_one_database("rollback");
}
