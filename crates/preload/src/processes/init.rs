//! Attaches the volume before the program's own code runs, or takes over what the image before this
//! one had; or puts that off until a call needs the volume, where the image before this one held
//! nothing of it. (Most children of a shell or of `make` need none.)
//!
//! The first program of `solera run` attaches at once: so the command fails if it cannot, and the
//! volume is in use as long as the program runs.
//!
//! The environment (`solera run` sets it) says what to do: `SOLERA_VOLUME`, `SOLERA_AT`,
//! `SOLERA_MODE`, `SOLERA_READ_ONLY`, `SOLERA_MOUNTED`, `SOLERA_REPORT`, `SOLERA_STRICT_SUPPORT`,
//! `SOLERA_GUARD`, `SOLERA_CACHE`, `SOLERA_KERNEL_AIO`, `SOLERA_BYPASS`, and after an exec
//! `SOLERA_RESUME` and its kin; for several volumes `SOLERA_VOLUME_2` and so on. Without
//! `SOLERA_VOLUME` nothing is served, nor in a program that is named in `SOLERA_BYPASS`. If a
//! volume cannot be attached, the program does not run: message, exit code 125.

use std::ffi::{CString, OsStr, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use once_cell::race::OnceBox;
use os::InternalFd;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat};
use vfs::composite::{Composite, MEMBERS_MAX, SEPARATOR};
use vfs::{Errno, variable};
use volume::{AttachOptions, Volume};

use crate::descriptors::{handover, special_files};
use crate::entry::attachment::{self, ATTACHING};
use crate::entry::fdtable;
use crate::entry::limit;
use crate::entry::process::{Cwd, Listed, Process, Seen, Texts, VolumeView};
use crate::entry::report;
use crate::entry::thread::{self, here};
use crate::files::caching;
use crate::files::kernel_aio;
use crate::paths::credentials;
use crate::paths::cwd;
use crate::paths::mount;

use crate::processes::host_program;
use crate::processes::lifecycle;
use crate::processes::supply;
use crate::runtime::{code, environment, objects, relocation};
use crate::signals::signal;

/// Begins to serve the volume that the environment names. Inside.
pub fn begin(volume: &[u8]) -> Option<&'static Process> {
    if is_bypassed() {
        step_aside(volume);
        return None;
    }
    let begun = obey_variables().and_then(|()| {
        signal::start();
        limit::learn();
        special_files::begin();
        let asked = VolumeRequest::all(volume)?;
        let process: &'static Process = Box::leak(Box::new(record(&asked)));
        let asked = ASKED.get_or_init(|| Box::new(asked));
        attachment::mark_page();
        if let Some(home) = inherits_nothing(asked) {
            process.home.store(home, Ordering::Relaxed);
            enter_inherited_directory(process);
        } else {
            attach(process, asked, true)?;
            inherit(process);
        }
        forget_handover();
        Ok(process)
    });
    match begun {
        Ok(process) => {
            attachment::publish(process);
            Some(process)
        }
        Err(message) => end(&message),
    }
}

fn end(message: &str) -> ! {
    tell(message);
    lifecycle::exit_now(lifecycle::EXIT_WITHOUT_VOLUME)
}

/// What was asked for at the start.
static ASKED: OnceBox<Vec<VolumeRequest>> = OnceBox::new();

/// Whether this image is one that may begin late, for all that can be said before anything else.
pub fn may_begin_late() -> bool {
    environment::is_there(handover::LATE.as_bytes())
}

/// Whether the image before this one held nothing of the volume, and this one may attach it at the
/// first call that needs it. It says so itself: another one that comes between, and does not know
/// of this library, may have got descriptors of ours.
///
/// Not one that asks for more than a volume, nor one that may lie in the volume itself. Gives what
/// it says of its home.
fn inherits_nothing(asked: &[VolumeRequest]) -> Option<u32> {
    let said = text(handover::LATE)?;
    let (process, home) = said.split_once(':')?;
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let nothing = process.parse() == Ok(own) && asked.iter().all(|asked| asked.token.is_none());
    home.parse().ok().filter(|_| nothing && may_be_late(asked))
}

/// Whether an image may attach late that asks for what this one asks for.
fn may_be_late(asked: &[VolumeRequest]) -> bool {
    const MORE: [&str; 5] =
        [supply::VARIABLE, vfs::keeper::REQUIRED, "SOLERA_CACHE", "SOLERA_DDMAP", "SOLERA_SPLIT"];
    MORE.iter().all(|name| environment::value(name.as_bytes()).is_none())
        && asked.iter().all(|asked| asked.mounted.is_none())
        // An engine that is the program's own is to find that this one has the volume attached.
        && !code::has_own_engine()
}

/// What the lists of mounts tell of the volumes, if that is known without attaching them (but of
/// damage, which is met by whatever attaches).
pub fn foretold() -> Option<Vec<Listed>> {
    let asked = ASKED.get().filter(|asked| may_be_late(asked))?;
    let listed = |one: &VolumeRequest| {
        let changes = || accessat(CWD, one.path(), Access::WRITE_OK, AtFlags::EACCESS).is_ok();
        Some(Listed {
            source: one.volume.clone(),
            prefix: one.at.clone(),
            device: volume::device_of(one.path()).ok()?,
            read_only: one.read_only || !changes(),
        })
    };
    asked.iter().map(listed).collect()
}

/// Attaches the volume of a process that has none yet: an image that has inherited nothing, or a
/// forked child that has held nothing since. While all places are taken it waits: most processes
/// end soon. A volume that cannot be attached ends the process, as at the start: no call can say
/// why.
pub fn attach_late(process: &'static Process) {
    relocation::finish();
    let _turn = ATTACHING.lock();
    if process.fs.is_attached() {
        return;
    }
    let mut waits = 0;
    // By what the parent had; if nobody has it attached by now, anew.
    while let Some(known) = process.fs.known() {
        here().open();
        match known.0.fork_unprepared(&mut Vec::new()) {
            Ok(()) => return process.fs.attached(known.0),
            Err(Errno::USERS) if waits < WAITS_MAX => {
                waits += 1;
                std::thread::sleep(WAIT);
            }
            Err(_) => break,
        }
    }
    let Some(asked) = ASKED.get() else { return };
    if let Err(message) = attach(process, asked, false) {
        end(&message);
    }
    for fd in process.internal_numbers() {
        fdtable::hide(fd);
    }
}

/// How long a process waits for a place in the volume, and how often.
const WAIT: Duration = Duration::from_millis(5);
const WAITS_MAX: u32 = 6_000;

/// Whether a new image of this process could attach what this one has not attached: it has the
/// rights, and the path still leads there.
pub fn can_begin_late(process: &Process) -> bool {
    let is_there = |asked: &VolumeRequest, view: &VolumeView| {
        let access =
            if asked.read_only { Access::READ_OK } else { Access::READ_OK | Access::WRITE_OK };
        let flags = AtFlags::EACCESS;
        let known = view.seen.get().map(|seen| seen.texts.file);
        let found = rustix::fs::stat(asked.path()).map(|stat| (stat.st_dev, stat.st_ino));
        found.is_ok_and(|found| known.is_none_or(|known| known == found))
            && accessat(CWD, asked.path(), access, flags).is_ok()
    };
    let asked = ASKED.get().map_or(&[][..], Vec::as_slice);
    may_be_late(asked)
        && asked.iter().zip(process.volumes()).all(|(asked, view)| is_there(asked, view))
}

/// Reads the variables that ask for more than a volume. An unknown value is refused.
fn obey_variables() -> Result<(), String> {
    if std::env::var_os("SOLERA_STRICT_SUPPORT").is_some_and(|value| !value.is_empty()) {
        report::be_strict();
    }
    if variable::is("SOLERA_KERNEL_AIO", "allow", &[])? {
        kernel_aio::allow();
    }
    volume::check_simulated()
}

/// Whether the environment asks for anything.
pub fn is_asked() -> bool {
    ["SOLERA_VOLUME", "SOLERA_SPLIT"].iter().any(|name| std::env::var_os(name).is_some())
}

/// Whether this program is named in `SOLERA_BYPASS`: by what it was called as, or by its
/// executable, whole if the name has a slash.
pub fn is_bypassed() -> bool {
    let Some(names) = std::env::var_os("SOLERA_BYPASS") else { return false };
    let own =
        || std::fs::read_link("/proc/self/exe").ok().map(|path| path.into_os_string().into_vec());
    let Some(path) = host_program::file().or_else(own) else { return false };
    variable::names_program(names.as_bytes(), &path, environment::called_as())
}

/// A volume that the environment asks for. The variables of another than the first have its number
/// behind their names: `SOLERA_VOLUME_2`.
struct VolumeRequest {
    volume: Vec<u8>,
    at: Vec<u8>,
    mode: volume::Mode,
    numa: volume::Numa,
    read_only: bool,
    /// [`mount::VARIABLE`].
    mounted: Option<String>,
    /// The engine's token, after an exec.
    token: Option<String>,
}

impl VolumeRequest {
    /// What is asked for, of which `volume` is the first.
    fn all(volume: &[u8]) -> Result<Vec<Self>, String> {
        let tokens = text(handover::RESUME).unwrap_or_default();
        let mut tokens = tokens.split(SEPARATOR).filter(|token| !token.is_empty());
        let mut all = vec![Self::one(volume.to_vec(), "", tokens.next())?];
        while let number = ["_", &(all.len() + 1).to_string()].concat()
            && let Some(volume) = std::env::var_os(["SOLERA_VOLUME", &number].concat())
        {
            all.push(Self::one(volume.into_vec(), &number, tokens.next())?);
        }
        Ok(all)
    }

    fn one(volume: Vec<u8>, number: &str, token: Option<&str>) -> Result<Self, String> {
        let name = |name: &str| [name, number].concat();
        let at = std::env::var_os(name("SOLERA_AT"))
            .map(OsStringExt::into_vec)
            .filter(|prefix| prefix.first() == Some(&b'/') && prefix.len() > 1)
            .ok_or_else(|| {
                let name = name("SOLERA_AT");
                format!("{name} is not an absolute path below /: run programs with `solera run`")
            })?;
        let read_only = std::env::var_os(name("SOLERA_READ_ONLY"));
        Ok(Self {
            volume,
            at,
            mode: variable::parsed("SOLERA_MODE")?.unwrap_or_default(),
            numa: variable::parsed("SOLERA_NUMA")?.unwrap_or_default(),
            read_only: read_only.is_some_and(|set| !set.is_empty()),
            mounted: text(&name(mount::VARIABLE)),
            token: token.map(str::to_owned),
        })
    }

    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.volume))
    }

    /// The device number of the mount that the prefix is.
    fn mount(&self, lost: Option<&Volume>) -> Option<u64> {
        mount::device((&self.volume, &self.at, self.mounted.as_deref()), lost)
    }
}

/// For a bypassed program: leaves the volume in order, which the image before it had. Inherited
/// numbers of ours become the mount's, if there is one; else they stay placeholders, which fail
/// loudly.
fn step_aside(path: &[u8]) {
    supply::take_over(None);
    let asked = if text(handover::RESUME).is_some() { VolumeRequest::all(path).ok() } else { None };
    let Some(asked) = asked else {
        forget_handover();
        return;
    };
    if asked.iter().any(|asked| asked.mount(None).is_some()) {
        let process = record(&asked);
        if attach(&process, &asked, true).is_ok() {
            inherit(&process);
            for (fd, desc) in fdtable::all() {
                // A number that the mount does not give stays a placeholder.
                let _ = mount::give(&process, fd, desc);
            }
            // A detach that fails is a death: the next attacher cleans up.
            let _ = process.fs.detach();
        }
    } else {
        for token in asked.iter().filter_map(|asked| asked.token.as_deref()) {
            if let Ok(volume) = volume::resume(token) {
                // As above.
                let _ = volume.leave();
            }
        }
    }
    forget_handover();
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A record of this process, which has attached nothing.
fn record(asked: &[VolumeRequest]) -> Process {
    let environment = environment::settings()
        .iter()
        .map(|variable| variable.to_bytes().to_vec())
        .filter(|variable| {
            let passing = [
                handover::HELD,
                handover::CWD,
                handover::LATE,
                handover::RESUME,
                handover::PROGRAM,
                supply::VARIABLE,
                host_program::VARIABLE,
                host_program::CALLED,
                host_program::TRACED,
                vfs::keeper::REQUIRED,
            ];
            !passing.iter().any(|name| variable.starts_with(name.as_bytes()))
        })
        .collect();
    let report = std::env::var_os("SOLERA_REPORT").map(OsStringExt::into_vec);
    let mut views =
        asked.iter().map(|asked| VolumeView::new(asked.volume.clone(), asked.at.clone()));
    let first = views.next().unwrap_or_else(|| VolumeView::new(Vec::new(), Vec::new()));
    Process::new(
        (first, views.collect()),
        library_path(),
        environment,
        report,
        credentials::learn(),
    )
}

/// Attaches what is asked for. `resumes`: as the image before this one had it, if there was one.
/// Nothing here may reach for the engine by the record.
fn attach(process: &Process, asked: &[VolumeRequest], resumes: bool) -> Result<(), String> {
    let guarded = !variable::is("SOLERA_GUARD", "off", &["on"])?;
    let (mut volumes, mut seen) = (Vec::<Arc<Volume>>::new(), Vec::new());
    for asked in asked {
        let attached = attach_one(asked, resumes);
        if attached.is_err() {
            // Where that fails, the next one to attach cleans up.
            for volume in &volumes {
                let _ = Volume::leave(volume);
            }
        }
        let (volume, one) = attached?;
        volumes.push(volume);
        seen.push(one);
    }
    let mut internal: Vec<c_int> =
        volumes.iter().flat_map(|volume| volume.internal_descriptors()).collect();
    let in_flight = volumes.iter().any(|volume| volume.anything_in_flight());
    let engines = caching::over(&volumes, guarded, &mut internal)?;
    let engine = engine_of(engines)?;
    for (number, one) in seen.iter_mut().enumerate() {
        one.tree.root = one.tree.root.of_member(number);
    }
    for (number, volume) in volumes.iter().enumerate() {
        if guarded && volume.guard().is_err() {
            report::about(number);
            report::fell_back("(attach)", "no-protection-key");
        }
    }
    if let Some(home) = process.home.load(Ordering::Relaxed).checked_sub(1) {
        for volume in &volumes {
            volume.inherit_home(home);
        }
    }
    engine.on_privileged_change(credentials::before_write);
    process.attached(engine, seen, &internal);
    let program = if resumes { text(handover::PROGRAM) } else { None };
    if let Some(node) = program.and_then(|said| handover::take_program(process, &said)) {
        process.program.set(node);
    }
    IN_FLIGHT.store(in_flight, Ordering::Relaxed);
    Ok(())
}

/// The engine of the one volume, or what stands for several.
fn engine_of(engines: Vec<Arc<dyn vfs::Engine>>) -> Result<Arc<dyn vfs::Engine>, String> {
    if let [one] = &engines[..] {
        return Ok(Arc::clone(one));
    }
    let count = engines.len();
    let several = Composite::new(engines);
    let several = several
        .ok_or_else(|| format!("{count} volumes are asked for, {MEMBERS_MAX} is the most"))?;
    Ok(Arc::new(several))
}

/// Attaches one volume, and says how it is seen.
fn attach_one(asked: &VolumeRequest, resumes: bool) -> Result<(Arc<Volume>, Seen), String> {
    let (volume, is_lost) = take_over_or_attach(asked, resumes)?;
    volume.set_numa(asked.numa);
    volume.may_run_exclusively(thread::single());
    let mount = asked.mount(is_lost.then_some(&*volume));
    let anchor = volume.anchor().ok_or("the volume has no anchor directory")?;
    let anchor = volume
        .inherited_anchor()
        .map_or_else(|| open_anchor(anchor), |fd| Ok(Arc::new(InternalFd::in_place(fd))))
        .map_err(|errno| {
            format!("anchor directory {}: {errno}; it must be readable", anchor.display())
        })?;
    volume.lend_anchor(Arc::clone(&anchor));
    let seen = Seen::new(&*volume, asked.at.clone(), anchor, mount, texts(&volume, asked))
        .map_err(|errno| format!("the volume does not answer: {errno}"))?;
    Ok((volume, seen))
}

/// What other libraries are told of it.
fn texts(volume: &Volume, asked: &VolumeRequest) -> Texts {
    let text = |text: Vec<u8>| CString::new(text).unwrap_or_default();
    let ((class, reason), mode) = (volume.class(), volume.mode());
    Texts {
        prefix: text(asked.at.clone()),
        class: text(class.to_string().into_bytes()),
        reason: text(reason.into()),
        durable: mode != volume::Mode::Posix,
        atomic: mode == volume::Mode::Strict,
        file: volume.volume_identity().file,
    }
}

/// The pager of a region whose pages may be elsewhere, by what the command has said of it.
fn find_pager(path: &std::path::Path) -> Result<Option<Arc<dyn pmem::Pager>>, String> {
    let asked = std::env::var("SOLERA_DDMAP").unwrap_or_default();
    let wishes = ddmap::PagerOptions::parse(&asked)?;
    let found = ddmap::pager_of(path, wishes).map_err(|error| error.to_string())?;
    let is_region = path.file_name() == Some(ddmap::REGION.as_ref());
    if found.is_none() && is_region && !asked.is_empty() {
        // An image that takes over has the region: without a pager it would see zeros.
        return Err("it is a domain's, and its node's store cannot be entered: this process has \
                    become another user, or has got another root"
            .to_owned());
    }
    Ok(found.map(|pager| pager as Arc<dyn pmem::Pager>))
}

/// The attachment of the image before this one, or a new one; and whether the volume's path leads
/// to it no more.
fn take_over_or_attach(
    asked: &VolumeRequest,
    resumes: bool,
) -> Result<(Arc<Volume>, bool), String> {
    let (path, read_only) = (asked.path(), asked.read_only);
    volume::find_pagers_by(find_pager);
    let token = asked.token.as_deref().filter(|_| resumes);
    let not_resumed = match token.map(volume::resume) {
        Some(Ok(volume)) => {
            RESUMED.store(true, Ordering::Relaxed);
            let lost = volume.lost_name();
            if let Some(told) = &lost {
                tell(told);
            }
            return Ok((volume, lost.is_some()));
        }
        Some(Err(error)) if error.kind() == volume::ErrorKind::Truncated => {
            return Err(error.to_string());
        }
        other => other.and_then(Result::err),
    };
    // This may be inside the program's first `malloc`, which a new thread would ask for memory.
    let alone = true;
    let options = AttachOptions { mode: asked.mode, read_only, alone, ..AttachOptions::default() };
    let mut attached = volume::attach_permitted(path, &options);
    let mut waits = if resumes { WAITS_MAX } else { 0 };
    while waits < WAITS_MAX
        && attached.as_ref().err().is_some_and(|error| error.errno() == Errno::USERS)
    {
        waits += 1;
        std::thread::sleep(WAIT);
        attached = volume::attach_permitted(path, &options);
    }
    let volume = attached.map_err(|error| {
        // What could not be taken over is in this process's name still.
        let is_own = error.kind() == volume::ErrorKind::InUse;
        not_resumed.filter(|_| is_own).unwrap_or(error).to_string()
    })?;
    if let Err(found) = mount::check(&volume, asked.mounted.as_deref()) {
        // Where that fails, the next one to attach cleans up.
        let _ = volume.leave();
        return Err(format!("cannot attach {}: {found}", path.display()));
    }
    if let Some(why) = volume.unchangeable().filter(|_| !read_only && resumes) {
        // A caller that asked for read-only is not told, nor is it said again by each child.
        tell(&format!("{} can only be read, every change gives EROFS: {why}", path.display()));
    }
    Ok((volume, false))
}

/// A line on standard error.
pub fn tell(message: &str) {
    let line = format!("solera: {message}\n");
    // There is no other place to report to.
    let _ = rustix::io::write(fdtable::borrow(2), line.as_bytes());
}

/// This image took over the one before it.
static RESUMED: AtomicBool = AtomicBool::new(false);

/// A descriptor was in flight at the start: it may have come to this process.
static IN_FLIGHT: AtomicBool = AtomicBool::new(false);

/// Opens the anchor directory at a high number.
fn open_anchor(path: &std::path::Path) -> rustix::io::Result<Arc<InternalFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Arc::new(InternalFd::new(rustix::fs::open(path, flags, Mode::empty())?)))
}

/// The file of this library, as the dynamic linker opened it.
fn library_path() -> Vec<u8> {
    objects::own_file().to_vec()
}

fn inherit(process: &Process) {
    for fd in process.internal_numbers() {
        fdtable::hide(fd);
    }
    let held = text(handover::HELD);
    if held.is_some() || IN_FLIGHT.load(Ordering::Relaxed) {
        let cwd = text(handover::CWD);
        let resumed = RESUMED.load(Ordering::Relaxed);
        // The old image's locks are this one's.
        process.record_locks.store(resumed, Ordering::Relaxed);
        handover::take_over(process, resumed, &held.unwrap_or_default(), cwd.as_deref());
    } else {
        // The image before this one held nothing, and this one cannot attach late.
        enter_inherited_directory(process);
    }
    if process.volumes().any(|seen| seen.mounted) && process.cwd().node.is_none() {
        cwd::entered_kernel_directory(process);
    }
    supply::take_over(Some(process));
}

/// The working directory that the image before this one had, if that is on the volume.
fn enter_inherited_directory(process: &Process) {
    if let Some(node) = text(handover::CWD).and_then(|said| handover::node(&said)) {
        process.set_cwd(Cwd { node: Some(node), path: Vec::new() });
    }
}

/// A child that slips past us (a raw `clone` and `execve`) must not take over this image's slot.
fn forget_handover() {
    const ALL: [&str; 5] =
        [handover::HELD, handover::CWD, handover::LATE, handover::RESUME, handover::PROGRAM];
    for name in ALL {
        environment::remove(name.as_bytes());
    }
}
