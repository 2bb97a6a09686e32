//! A process is killed at each store, flush, fence and change of a shared word inside a call, while
//! another process stays attached.
//!
//! The survivor must find each call done or not done (in the modes `sync` and `posix` the data of
//! the call in flight may be torn), everything that returned in place, all space accounted for, and
//! must be able to go on. Death differs from power failure: in every mode a call that returned
//! stands.
//!
//! The test executes itself as what forks the processes that die. `SOLERA_DEATH=mode/start/case`
//! runs only what begins so, at all points; `SOLERA_DEATH_POINTS=n` kills at no more than so many
//! of each case. Else one point in 8 of each case, others at each commit; with `SOLERA_TEST_LONG`
//! all, and every start in every mode.

use explorer::cases::{self, Case, Start};
use explorer::engine::Engine;
use explorer::image::Pinned;
use explorer::model::Model;
use explorer::oracle::{Call, exercise, free_space, remove_all};
use explorer::workload::{Action, System};
use pmem::Hook;
use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vfs::Attached;
use volume::{AttachOptions, FormatOptions, Mode, Volume};

const VOLUME_SIZE: u64 = 32 << 20;
/// A trial that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(2);
/// In the environment of what forks: the region's path.
const SERVES: &str = "SOLERA_TEST_SERVES";
/// Of the points of a case one in so many is died at: it costs more than any other test here.
const ONE_IN: u64 = 8;

/// Counts what happens and ends the process at one point.
struct Killer {
    count: AtomicU64,
    /// The point to die at; 0: not armed.
    at: AtomicU64,
}

impl Killer {
    fn step(&self) {
        let at = self.at.load(Ordering::Relaxed);
        if at != 0 && self.count.fetch_add(1, Ordering::Relaxed) + 1 == at {
            let me = rustix::process::getpid();
            let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
            loop {
                std::thread::park();
            }
        }
    }
}

impl Hook for Killer {
    fn store(&self, _: u64, _: &[u8], _: bool, _: &'static Location<'static>) {
        self.step();
    }

    fn flush(&self, _: u64, _: &'static Location<'static>) {
        self.step();
    }

    fn fence(&self, _: &'static Location<'static>) {
        self.step();
    }

    fn shared(&self, _: u64) {
        self.step();
    }
}

/// The process that dies: `die MODE START CASE POINT`. It tells each call that returned by a dot,
/// and if it lives to the end how many points there were. `visit` attaches and leaves.
fn child(
    path: &Path,
    arguments: &[&str],
    starts: &[(Start, Vec<Case>)],
    mut out: &File,
) -> Result<(), String> {
    let killer = Arc::new(Killer { count: AtomicU64::new(0), at: AtomicU64::new(0) });
    let mut options = AttachOptions { hook: Some(killer.clone()), ..AttachOptions::default() };
    if arguments[0] == "visit" {
        return volume::attach(path, &options).map(drop).map_err(|error| error.to_string());
    }
    options.mode = arguments[1].parse()?;
    let number = |index: usize| arguments[index].parse::<u64>().map_err(|error| error.to_string());
    let (start, case, point) = (number(2)?, number(3)?, number(4)?);
    // An operation record, and what it keeps, is its processor's: the same points again.
    let _pinned = Pinned::to(case as usize);
    let case = &starts[start as usize].1[case as usize];
    let volume = volume::attach(path, &options).map_err(|error| error.to_string())?;
    let mut engine = Engine::new(volume);
    // A program's store through its mapping is one of the points, too.
    let memory = std::fs::OpenOptions::new().write(true).open(path);
    engine.store_through(memory.map_err(|error| error.to_string())?, killer.clone());
    for action in &case.before {
        let _ = engine.apply(action);
    }
    let mut tell = |text: &str| out.write_all(text.as_bytes()).map_err(|error| error.to_string());
    killer.at.store(point, Ordering::Relaxed);
    for action in &case.calls {
        let _ = engine.apply(action);
        tell(".")?;
    }
    killer.at.store(0, Ordering::Relaxed);
    tell(&format!("={}", killer.count.load(Ordering::Relaxed)))?;
    engine.close_all().map_err(|errno| format!("closing: {errno:?}"))
}

/// What forks the processes that die: an exec for each death would take longer than all the rest.
/// It attaches nothing. Its standard input is a socket. Of each line that comes there it makes a
/// process; when that has ended, `!`, its status and a line's end go there behind what it told.
fn serve(path: &Path) -> Result<(), String> {
    let starts = cases::all();
    let out = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let mut out = File::from(out);
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        // SAFETY: the only other thread is that of the harness, which waits for this one: the one
        // lock that it might hold now, that of the standard output, is not taken in the child.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let arguments: Vec<&str> = line.split(' ').collect();
            let failed = child(path, &arguments, &starts, &out).err();
            if let Some(text) = &failed {
                eprintln!("{text}");
            }
            std::process::exit(i32::from(failed.is_some()));
        }
        let mut status = 0;
        // SAFETY: `status` is an integer of this function.
        if pid < 0 || unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {
            return Err(std::io::Error::last_os_error().to_string());
        }
        writeln!(out, "!{status}").map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A process that runs [`serve`].
struct Server {
    process: Child,
    socket: BufReader<UnixStream>,
}

impl Server {
    fn start(path: &Path) -> std::io::Result<Self> {
        let (here, there) = UnixStream::pair()?;
        let process = Command::new(std::env::current_exe()?)
            .args(["--exact", TEST, "--nocapture"])
            .env(SERVES, path)
            .stdin(OwnedFd::from(there))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { process, socket: BufReader::new(here) })
    }

    /// What a process of these arguments told, and how it ended.
    fn run(&mut self, arguments: &[String]) -> std::io::Result<(String, ExitStatus)> {
        self.socket.get_mut().write_all(format!("{}\n", arguments.join(" ")).as_bytes())?;
        let mut line = String::new();
        self.socket.read_line(&mut line)?;
        let ended = line.trim_end().rsplit_once('!');
        let ended = ended.and_then(|(text, status)| Some((text, status.parse().ok()?)));
        let (text, status) = ended.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        Ok((text.to_owned(), ExitStatus::from_raw(status)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.socket.get_mut().shutdown(Shutdown::Both);
        let _ = self.process.wait();
    }
}

/// The process that stays.
struct Survivor {
    server: RefCell<Server>,
    volume: Arc<Volume>,
    free_when_empty: u64,
    trials: u64,
    watch: Arc<Mutex<(String, Instant)>>,
    // Behind those that use it: fields are dropped in this order.
    _region: RegionFile,
}

/// A volume's file in memory, gone with its anchor when nobody uses it any more.
struct RegionFile(PathBuf);

impl Drop for RegionFile {
    fn drop(&mut self) {
        let mut anchor = self.0.clone().into_os_string();
        anchor.push(".solera");
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir_all(anchor);
    }
}

/// What a dying process told.
struct Told {
    returned: usize,
    points: Option<u64>,
}

impl Survivor {
    fn new() -> Result<Self, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("solera-death-{}-{number}.pm", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        let format = FormatOptions { size: Some(VOLUME_SIZE), seed: Some(1), ..Default::default() };
        let region = RegionFile(path.clone());
        volume::format(&path, &format).map_err(|error| error.to_string())?;
        let options = AttachOptions::default();
        let volume = volume::attach(&path, &options).map_err(|error| error.to_string())?;
        let free_when_empty = free_space(&volume)?;
        let server = RefCell::new(Server::start(&path).map_err(|error| error.to_string())?);
        let watch = Arc::new(Mutex::new((String::new(), Instant::now())));
        let watched = Arc::downgrade(&watch);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let Some(watch) = watched.upgrade() else { return };
                let Ok(doing) = watch.lock() else { return };
                if doing.1.elapsed() > PATIENCE {
                    eprintln!("{} hangs", doing.0);
                    std::process::abort();
                }
            }
        });
        Ok(Self { server, volume, free_when_empty, trials: 0, watch, _region: region })
    }

    fn run_child(&self, arguments: &[String]) -> Result<Told, String> {
        let ran = self.server.borrow_mut().run(arguments);
        let (text, status) = ran.map_err(|error| format!("what forks: {error}"))?;
        let (dots, points) = text.split_once('=').unwrap_or((&text, ""));
        if status.signal() != Some(9) && !status.success() {
            return Err(format!("the dying process failed otherwise (told above): {status}"));
        }
        Ok(Told { returned: dots.len(), points: points.parse().ok() })
    }

    fn visit(&self) -> Result<(), String> {
        self.run_child(&["visit".to_owned()]).map(drop)
    }

    /// Builds the start; gives its model.
    fn build(&self, start: &Start) -> Result<Model, String> {
        let mut model = Model::default();
        let mut engine = Engine::new(self.volume.clone());
        for action in &start.build {
            let (expected, found) = (model.apply(action), engine.apply(action));
            if expected != found {
                return Err(format!("building: {action:?}: {found:?}, not {expected:?}"));
            }
        }
        engine.close_all().map_err(|errno| format!("closing: {errno:?}"))?;
        model.close_all();
        Ok(model)
    }

    /// One death (or none, if the point is never reached); gives the number of points if it lived.
    fn trial(
        &mut self,
        mode: Mode,
        (start_index, start): (usize, &Start),
        (case_index, case): (usize, &Case),
        point: u64,
    ) -> Result<Option<u64>, String> {
        self.trials += 1;
        if let Ok(mut doing) = self.watch.lock() {
            *doing = (format!("{mode}/{}/{}@{point}", start.name, case.name), Instant::now());
        }
        let mut model = self.build(start)?;
        let numbers = [start_index.to_string(), case_index.to_string(), point.to_string()];
        let arguments = [vec!["die".to_owned(), mode.to_string()], numbers.to_vec()].concat();
        let told = self.run_child(&arguments)?;
        if self.trials.is_multiple_of(2) {
            self.visit()?;
        }
        for action in case.before.iter().chain(&case.calls[..told.returned]) {
            let _ = model.apply(action);
        }
        let bare = |model: &Model| {
            let mut model = model.clone();
            model.close_all();
            model
        };
        let before = bare(&model);
        let next = case.calls.get(told.returned);
        if let Some(action) = next {
            let _ = model.apply(action);
        }
        let call = Call {
            before: &before,
            after: &bare(&model),
            action: next.unwrap_or(&Action::SyncAll),
            // What `posix` puts off is lost by power failures only.
            mode: if mode == Mode::Posix { Mode::Sync } else { mode },
            latest: vfs::Nanos::MAX,
        };
        self.check(&call, next.is_none())?;
        Ok(told.points)
    }

    fn check(&self, call: &Call<'_>, returned: bool) -> Result<(), String> {
        let mut engine = Engine::new(self.volume.clone());
        call.check(&engine, returned)?;
        exercise(&mut engine)?;
        call.check(&engine, returned).map_err(|text| format!("after using it: {text}"))?;
        self.visit()?;
        remove_all(&engine)?;
        let left = free_space(&self.volume)?;
        if left != self.free_when_empty {
            let lost = self.free_when_empty.abs_diff(left);
            return Err(format!("emptied, {lost} bytes are not free, or free that never were"));
        }
        Ok(())
    }

    fn kill_everywhere(
        &mut self,
        mode: Mode,
        start: (usize, &Start),
        case: (usize, &Case),
    ) -> Result<(), (u64, String)> {
        let points = self.trial(mode, start, case, u64::MAX).map_err(|text| (0, text))?;
        let points = points.ok_or((0, "it did not live to the end".to_owned()))?;
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let most = std::env::var("SOLERA_DEATH_POINTS").ok().and_then(|text| text.parse().ok());
        let stride = match most {
            Some(most) => points.div_ceil(most).max(1),
            None if rotation::all() || is_set("SOLERA_DEATH") => 1,
            None => ONE_IN,
        };
        // Another phase for each case, so that together they meet every kind of point.
        let id = format!("death/{mode}/{}/{}", start.1.name, case.1.name);
        let first = 1 + u64::from(rotation::turn(&id, stride as u32));
        for point in (first..=points).step_by(stride as usize) {
            self.trial(mode, start, case, point).map_err(|text| (point, text))?;
        }
        Ok(())
    }
}

/// Which cases are worth a process each time: all on names, and on files one start of each kind.
fn wanted(mode: Mode, start: &Start, case: &Case) -> bool {
    let strict =
        ["names", "direct", "tree", "two", "bucket-full", "leaves", "pieces"].contains(&start.name);
    let leaf = start.name == "leaf" && case.name.contains("leaf");
    match mode {
        // The survivor's volume is shared by all trials: the full one is not built on it.
        _ if case.calls.len() > 10 || start.full => false,
        _ if rotation::all() => true,
        Mode::Strict => strict || leaf || start.name == "keep",
        Mode::Sync => start.name == "direct",
        Mode::Posix => start.name == "small",
    }
}

/// Survivors that work at once, each on a volume of its own: most of a trial is waiting.
const SURVIVORS: usize = 4;

/// Goes through the trials that are left until none is; gives deaths and failures.
fn one_survivor(trials: &Mutex<std::vec::IntoIter<Trial>>) -> Result<(u64, Vec<String>), String> {
    let mut survivor = Survivor::new()?;
    let starts = cases::all();
    let mut failures = Vec::new();
    loop {
        let next = trials.lock().map_err(|_| "a survivor panicked")?.next();
        let Some((mode, start, case)) = next else { break };
        let (start, case) = ((start, &starts[start].0), (case, &starts[start].1[case]));
        let outcome = survivor.kill_everywhere(mode, start, case);
        if let Err((point, text)) = outcome {
            failures.push(format!("{mode}/{}/{}@{point}: {text}", start.1.name, case.1.name));
            // What a failure leaves would fail every later trial.
            survivor.renew()?;
        }
    }
    survivor.end()?;
    Ok((survivor.trials, failures))
}

/// A mode, and the numbers of a start and of one of its cases.
type Trial = (Mode, usize, usize);

fn survive() -> Result<String, String> {
    let filter = std::env::var("SOLERA_DEATH").unwrap_or_default();
    let mut trials = Vec::new();
    for mode in [Mode::Strict, Mode::Sync, Mode::Posix] {
        for (start_index, (start, cases)) in cases::all().iter().enumerate() {
            for (case_index, case) in cases.iter().enumerate() {
                let id = format!("{mode}/{}/{}", start.name, case.name);
                if wanted(mode, start, case) && id.starts_with(&filter) {
                    trials.push((mode, start_index, case_index));
                }
            }
        }
    }
    let trials = Mutex::new(trials.into_iter());
    let (mut deaths, mut failures) = (0, Vec::new());
    std::thread::scope(|scope| {
        let work = || scope.spawn(|| one_survivor(&trials));
        let workers: Vec<_> = (0..SURVIVORS).map(|_| work()).collect();
        for worker in workers {
            let (more, failed) = worker.join().map_err(|_| "a survivor panicked")??;
            deaths += more;
            failures.extend(failed);
        }
        Ok::<(), String>(())
    })?;
    let text = format!("{deaths} deaths, {} failures", failures.len());
    if failures.is_empty() { Ok(text) } else { Err(format!("{text}\n{}", failures.join("\n"))) }
}

impl Survivor {
    fn end(&self) -> Result<(), String> {
        self.volume.detach().map_err(|errno| format!("detaching: {errno:?}"))
    }

    fn renew(&mut self) -> Result<(), String> {
        let _ = self.end();
        let trials = self.trials;
        *self = Self::new()?;
        self.trials = trials;
        Ok(())
    }
}

const TEST: &str = "death::deaths_at_each_store_flush_fence_and_shared_word";

#[test]
fn deaths_at_each_store_flush_fence_and_shared_word() {
    if let Some(path) = std::env::var_os(SERVES) {
        return serve(Path::new(&path)).expect("it serves");
    }
    println!("{}", survive().unwrap_or_else(|text| panic!("{text}")));
}
