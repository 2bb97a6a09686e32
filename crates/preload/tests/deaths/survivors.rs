//! The survivors: three processes that work in one directory through the preload library, and what
//! must be true of the volume when another process has died.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{PREFIX, TestDir, compile, library};

pub const WORKERS: usize = 3;
/// Steps of one round (`STEPS` of the C program): each kind of call once.
pub const ROUND: u64 = 23;
/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long a slot may stay that a dead parent prepared for a child: a second, on a machine that is
/// not busy.
const CHILD_PATIENCE: Duration = Duration::from_mins(1);
const VOLUME_SIZE: u64 = 64 << 20;

/// What a survivor can be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Pause,
    Work,
    /// Makes the directory and the files in it.
    Build,
    /// Says in which state the call of this case is, when everything else is as it must be.
    Look(usize),
    /// Closes what it has open.
    Close,
    /// Removes all there is.
    Clean,
    End,
}

impl Order {
    fn word(self) -> u64 {
        match self {
            Self::Pause => 0,
            Self::Work => 1,
            Self::Build => 2,
            Self::Look(case) => 3 | (case as u64) << 8,
            Self::Close => 4,
            Self::Clean => 5,
            Self::End => 6,
        }
    }
}

/// The volume's space and what of its tables is in use, with only the survivors on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SpaceUse {
    free_bytes: u64,
    inodes: u64,
    runtime: volume::RuntimeUse,
}

/// Memory whose stores need nothing but their order, and memory that is flushed.
pub const CLASSES: [&str; 2] = ["volatile", "cache-line"];

pub struct World {
    pub place: TestDir,
    pub mode: &'static str,
    /// What its processes take the memory for: whether they flush and fence, or store plainly.
    pub class: &'static str,
    program: PathBuf,
    shared: File,
    shared_path: PathBuf,
    workers: Vec<Child>,
    wanted: u64,
    empty: Option<SpaceUse>,
    /// Longest that survivors took for a round after a death.
    pub pause_max: Duration,
    pub deaths: u64,
}

impl World {
    /// In one of the classes, by rotation.
    pub fn new(name: &str, mode: &'static str) -> Self {
        let turn = rotation::turn(&format!("deaths/class/{name}"), CLASSES.len() as u32);
        Self::of_class(name, mode, CLASSES[turn as usize])
    }

    pub fn of_class(name: &str, mode: &'static str, class: &'static str) -> Self {
        let place = TestDir::new(&format!("deaths-{name}"));
        let program = place.0.join("deaths");
        compile("deaths.c", &program, &["-O1", "-g"]);
        let options = volume::FormatOptions { size: Some(VOLUME_SIZE), ..Default::default() };
        volume::format(&place.volume(), &options).expect("format");
        let shared_path = place.0.join("shared");
        let shared = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&shared_path)
            .expect("a file to share");
        shared.set_len((4 * WORKERS * 8 + WORKERS * 4096) as u64).expect("its length");
        let mut world = Self {
            place,
            mode,
            class,
            program,
            shared,
            shared_path,
            workers: Vec::new(),
            wanted: 0,
            empty: None,
            pause_max: Duration::ZERO,
            deaths: 0,
        };
        world.workers = (0..WORKERS).map(|number| world.start_worker(number)).collect();
        world
    }

    /// A command of the C program, on the volume.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .arg(PREFIX)
            .env("SOLERA_VOLUME", self.place.volume())
            .env("SOLERA_AT", PREFIX)
            .env("SOLERA_MODE", self.mode)
            .env("SOLERA_CLASS", self.class)
            .env("LD_PRELOAD", library())
            .stdin(Stdio::null());
        command
    }

    pub fn cases(&self) -> Vec<String> {
        let output = Command::new(&self.program).arg("list").output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    fn start_worker(&self, number: usize) -> Child {
        let path = self.shared_path.to_str().expect("a path in UTF-8");
        self.command(&["survive", path, &number.to_string()]).spawn().expect("a survivor")
    }

    // ---- the shared memory, as in deaths.h
    // -------------------------------------------------------

    fn word(&self, array: usize, worker: usize) -> u64 {
        let mut bytes = [0; 8];
        let at = ((array * WORKERS + worker) * 8) as u64;
        self.shared.read_exact_at(&mut bytes, at).expect("the shared file");
        u64::from_le_bytes(bytes)
    }

    fn set_word(&self, array: usize, worker: usize, value: u64) {
        let at = ((array * WORKERS + worker) * 8) as u64;
        self.shared.write_all_at(&value.to_le_bytes(), at).expect("the shared file");
    }

    fn told(&self, worker: usize) -> String {
        let mut bytes = [0; 4096];
        let at = (4 * WORKERS * 8 + worker * 4096) as u64;
        self.shared.read_exact_at(&mut bytes, at).expect("the shared file");
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    fn done(&self, worker: usize) -> u64 {
        self.word(3, worker)
    }

    // ---- telling them what to do
    // -----------------------------------------------------------------

    /// Waits until `holds`, or fails if a survivor has failed or that takes too long.
    fn wait_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<(), String> {
        let begun = Instant::now();
        while !holds(self) {
            for number in 0..WORKERS {
                if let Some(status) = self.workers[number].try_wait().map_err(|e| e.to_string())? {
                    let told = self.told(number);
                    return Err(format!("{what}: survivor {number} ended ({status}): {told}"));
                }
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{what}: the survivors hang: {}", self.where_they_are()));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    fn where_they_are(&self) -> String {
        let tell = |number: usize| {
            let pid = self.workers[number].id();
            let syscall = std::fs::read_to_string(format!("/proc/{pid}/syscall"));
            format!(
                "{number}: begun {} done {} in {}",
                self.word(2, number),
                self.done(number),
                syscall.unwrap_or_default().trim()
            )
        };
        (0..WORKERS).map(tell).collect::<Vec<_>>().join("; ")
    }

    /// Gives an order; it is carried out (working: begun) when this returns.
    pub fn order(&mut self, workers: std::ops::Range<usize>, order: Order) -> Result<(), String> {
        self.wanted += 1;
        let word = self.wanted << 24 | order.word();
        for worker in workers.clone() {
            self.set_word(0, worker, word);
        }
        if order == Order::End {
            return Ok(());
        }
        self.wait_until(&format!("{order:?}"), |world| {
            workers.clone().all(|worker| world.word(1, worker) == word)
        })
    }

    pub fn all(&mut self, order: Order) -> Result<(), String> {
        self.order(0..WORKERS, order)
    }

    /// The directory is made anew.
    pub fn build(&mut self) -> Result<(), String> {
        for worker in 0..WORKERS {
            self.set_word(2, worker, 0);
            self.set_word(3, worker, 0);
        }
        self.order(0..1, Order::Build)
    }

    /// All work, and each has done a few steps.
    pub fn go(&mut self) -> Result<(), String> {
        self.all(Order::Work)?;
        self.wait_until("starting", |world| (0..WORKERS).all(|worker| world.done(worker) >= 2))
    }

    /// A process has just died: each of the others does a whole round.
    pub fn go_on(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        let before: Vec<u64> = (0..WORKERS).map(|worker| self.done(worker)).collect();
        self.wait_until("going on", |world| {
            (0..WORKERS).all(|worker| world.done(worker) > before[worker] + ROUND)
        })?;
        self.pause_max = self.pause_max.max(begun.elapsed());
        self.deaths += 1;
        Ok(())
    }

    /// How far each has come.
    pub fn progress(&self) -> Vec<u64> {
        (0..WORKERS).map(|worker| self.done(worker)).collect()
    }

    /// All survivors die at once, wherever they are, and are replaced.
    pub fn kill_all(&mut self) -> Result<(), String> {
        for worker in &mut self.workers {
            worker.kill().map_err(|error| error.to_string())?;
        }
        for worker in &mut self.workers {
            worker.wait().map_err(|error| error.to_string())?;
        }
        for worker in 0..WORKERS {
            self.replace(worker);
        }
        Ok(())
    }

    /// Kills a survivor, at whatever it is doing.
    pub fn kill(&mut self, worker: usize) -> Result<(), String> {
        self.workers[worker].kill().map_err(|error| error.to_string())?;
        let status = self.workers[worker].wait().map_err(|error| error.to_string())?;
        if status.signal() != Some(libc::SIGKILL) {
            return Err(format!("survivor {worker} ended ({status}): {}", self.told(worker)));
        }
        Ok(())
    }

    /// Another takes the place of one that was killed, and is told what that was told last.
    pub fn replace(&mut self, worker: usize) {
        self.workers[worker] = self.start_worker(worker);
    }

    // ---- what must be true
    // -----------------------------------------------------------------------

    /// In which state the call of a case is, when everything else is as it must be.
    pub fn look(&mut self, case: usize) -> Result<String, String> {
        self.all(Order::Pause)?;
        // Another one each time: the first to look may find the death.
        let judge = (self.deaths % WORKERS as u64) as usize;
        self.order(judge..judge + 1, Order::Look(case))?;
        Ok(self.told(judge))
    }

    /// Everything that the survivors were told is there, no lock is left, the check finds nothing;
    /// removed, everything is free. Gives the state of the call in which the victim died.
    pub fn judge(&mut self, case: usize) -> Result<String, String> {
        let state = self.look(case)?;
        let options = volume::FsckOptions::default();
        let report = volume::fsck(&self.place.volume(), &options, &mut |_, _| {})
            .map_err(|error| error.to_string())?;
        if !report.faults.is_empty() {
            return Err(format!("{state}, the check found {:?}", report.faults));
        }
        self.all(Order::Close)?;
        self.order(0..1, Order::Clean)?;
        let begun = Instant::now();
        while let Err(text) = self.check_use() {
            // A child that never came is given a second, and a process has to look for it.
            if begun.elapsed() > CHILD_PATIENCE {
                return Err(text);
            }
            std::thread::sleep(Duration::from_millis(50));
            volume::detach_dead(&self.place.volume()).map_err(|error| error.to_string())?;
        }
        Ok(state)
    }

    /// Nothing is in use that was not when all this began.
    fn check_use(&mut self) -> Result<(), String> {
        let info = volume::info(&self.place.volume()).map_err(|error| error.to_string())?;
        let found = SpaceUse {
            free_bytes: info.free_bytes,
            inodes: info.inodes_used,
            runtime: info.runtime.ok_or("nobody uses the volume")?,
        };
        let empty = *self.empty.get_or_insert(found);
        if found != empty {
            return Err(format!("something leaked: {found:?}, not {empty:?}"));
        }
        let mut pids: Vec<u32> = info.attached.iter().map(|attached| attached.pid).collect();
        let mut own: Vec<u32> = self.workers.iter().map(Child::id).collect();
        pids.sort_unstable();
        own.sort_unstable();
        if pids == own { Ok(()) } else { Err(format!("attached are {pids:?}, not {own:?}")) }
    }

    /// A new volume and new survivors: what a failure leaves would fail every later trial.
    pub fn renew(&mut self) {
        self.stop();
        self.empty = None;
        for worker in 0..WORKERS {
            self.set_word(0, worker, 0);
        }
        let options =
            volume::FormatOptions { size: Some(VOLUME_SIZE), force: true, ..Default::default() };
        volume::format(&self.place.volume(), &options).expect("format");
        self.workers = (0..WORKERS).map(|number| self.start_worker(number)).collect();
    }

    fn stop(&mut self) {
        for worker in &mut self.workers {
            // One that has ended is ended already.
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }

    /// They end, and leave everything in order.
    pub fn end(&mut self) -> Result<(), String> {
        self.all(Order::End)?;
        for worker in 0..WORKERS {
            let status = self.workers[worker].wait().map_err(|error| error.to_string())?;
            if !status.success() {
                return Err(format!("survivor {worker}: {status}: {}", self.told(worker)));
            }
        }
        self.workers.clear();
        crate::support::check_left_in_order(&self.place.volume());
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
    }
}
