//! `solera keeper`: mounts volumes in a name space of mounts of its own, and gives that to programs
//! which no library can enter (`processes/keeper.rs` of the preload library asks for it).
//!
//! The keeper itself stays outside. It holds a descriptor of the name space while one of the
//! programs that asked for it lives, and for [`LINGER`] beyond that, so that the next program finds
//! the same mount. Then it lets go: the kernel keeps the name space for what those programs have
//! started and left behind, and unmounts when the last of them ends. Then this process ends.
//!
//! Signals that end others do not end it: those whom they end are its programs.

mod arguments;
mod name_space;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use console::failure::{Failure, Outcome, describe};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, accept_with,
    recv, send, sendmsg, sockopt,
};
use rustix::process::{PidfdFlags, Resource, Rlimit, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use vfs::keeper::READY;
use vfs::variable;
use volume::{AttachOptions, Volume};

use self::name_space::NameSpace;
use crate::commands::cache::{self, CacheArg};
pub use arguments::KeeperArgs;

/// How long the mount stays for the next program.
const LINGER: Duration = Duration::from_secs(2);

/// A volume that is to be mounted.
pub struct Place {
    pub volume: PathBuf,
    pub at: PathBuf,
    pub read_only: bool,
}

/// Serves until no program uses the mounts.
pub fn run(args: &KeeperArgs) -> Outcome {
    go_apart();
    let places: Vec<Place> = args
        .volumes
        .chunks_exact(3)
        .map(|one| Place {
            volume: one[0].clone(),
            at: one[1].clone(),
            read_only: one[2] == Path::new("ro"),
        })
        .collect();
    let listener = take_listener()?;
    match Mounts::make(&places) {
        Ok(mounts) => {
            mounts.serve(&listener);
            drop(listener);
            mounts.end()
        }
        Err(failure) => {
            tell_all(&listener, &failure.to_string());
            Err(failure)
        }
    }
}

/// Becomes no child of the program that has started it, which would find it when it waits, and
/// leaves behind what is that program's. Called while there is one thread.
fn go_apart() {
    // SAFETY: this process has one thread, so the child may do whatever it likes.
    match unsafe { libc::fork() } {
        0 | -1 => {}
        _ => exit(0),
    }
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = rustix::process::umask(Mode::from_raw_mode(0o022));
    // The program's limits are not the volume's; what cannot be raised stays.
    for resource in [Resource::Nofile, Resource::Fsize, Resource::Cpu, Resource::As, Resource::Data]
    {
        let maximum = rustix::process::getrlimit(resource).maximum;
        let _ = rustix::process::setrlimit(resource, Rlimit { current: maximum, maximum });
    }
    // SAFETY: ignored signals have no handler; the mask is this process's own.
    unsafe {
        for signal in [SIGHUP, SIGINT, SIGTERM, SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// The socket at standard input, at another number: what is mounted has three numbers of its own.
fn take_listener() -> Result<OwnedFd, Failure> {
    let failed = |errno| Failure::new("listen for programs", describe(errno), "");
    let listener = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).map_err(failed)?;
    if !sockopt::socket_acceptconn(&listener).unwrap_or(false) {
        let found = "standard input is no listening socket";
        return Err(Failure::new("listen for programs", found, "`solera run` starts keepers"));
    }
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
    }
    Ok(listener)
}

/// Tells those who ask, for a while, that there is no mount.
fn tell_all(listener: &OwnedFd, found: &str) {
    let end = Instant::now() + Duration::from_millis(200);
    while wait(&[listener.as_fd()], Some(end)).is_some() {
        if let Ok(asker) = accept_with(listener, SocketFlags::CLOEXEC) {
            let _ = send(&asker, found.as_bytes(), SendFlags::NOSIGNAL);
        }
    }
}

/// Waits until one of these can be read, or its other side has ended: which. `None`: `end` has
/// come.
fn wait(all: &[BorrowedFd<'_>], end: Option<Instant>) -> Option<Vec<bool>> {
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut polled: Vec<_> =
            all.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        match poll(&mut polled, left.as_ref()) {
            Ok(0) => return None,
            Ok(_) => return Some(polled.iter().map(|fd| !fd.revents().is_empty()).collect()),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// A program that uses the mounts, or is about to.
struct Program {
    /// Ends with it.
    process: OwnedFd,
    /// Until it is executed.
    asker: Option<OwnedFd>,
}

/// Mounted volumes.
struct Mounts {
    attached: Vec<Arc<Volume>>,
    names: NameSpace,
    servers: Vec<thread::JoinHandle<()>>,
    /// Ends with the servers.
    served: OwnedFd,
}

impl Mounts {
    fn make(places: &[Place]) -> Result<Self, Failure> {
        let mut volumes = Vec::new();
        let made = Self::make_all(places, &mut volumes);
        if made.is_err() {
            for volume in &volumes {
                // Only the first failure is told.
                let _ = Volume::leave(volume);
            }
        }
        made
    }

    fn make_all(places: &[Place], volumes: &mut Vec<Arc<Volume>>) -> Result<Self, Failure> {
        let told = |wrong: String| Failure::told(&wrong);
        let mode = variable::parsed("SOLERA_MODE").map_err(told)?.unwrap_or_default();
        let numa = variable::parsed("SOLERA_NUMA").map_err(told)?.unwrap_or_default();
        let cache = CacheArg {
            cache: variable::number("SOLERA_CACHE").map_err(told)?,
            cache_dir: std::env::var_os("SOLERA_CACHE_DIR").map(PathBuf::from),
        };
        let mut engines = Vec::new();
        for place in places {
            let read_only = place.read_only;
            let options = AttachOptions { mode, read_only, ..AttachOptions::default() };
            let volume = volume::attach(&place.volume, &options)?;
            volume.set_numa(numa);
            volumes.push(Arc::clone(&volume));
            engines.push((cache::over(&volume, &cache)?, volume.volume_identity()));
        }
        let (names, devices) = NameSpace::make(places)
            .map_err(|found| Failure::new("mount the volume for a program", found, ""))?;
        let (served, end) = rustix::pipe::pipe()
            .map_err(|errno| Failure::new("serve a mount", describe(errno), ""))?;
        let end = Arc::new(end);
        let servers = engines.into_iter().zip(devices).map(|((engine, identity), device)| {
            let end = Arc::clone(&end);
            thread::spawn(move || {
                // An error is told to the programs, by the kernel: `ENOTCONN`.
                let _ = fuse::serve(engine, &identity, device);
                drop(end);
            })
        });
        Ok(Self { attached: volumes.clone(), names, servers: servers.collect(), served })
    }

    /// Gives the name space to those who ask, until none of them has lived for a while.
    fn serve(&self, listener: &OwnedFd) {
        let mut programs: Vec<Program> = Vec::new();
        let mut end = Some(Instant::now() + LINGER);
        loop {
            let mut all = vec![self.served.as_fd(), listener.as_fd()];
            all.extend(programs.iter().map(|program| program.process.as_fd()));
            let askers = || programs.iter().filter_map(|program| program.asker.as_ref());
            all.extend(askers().map(AsFd::as_fd));
            let Some(ready) = wait(&all, end) else { return };
            if ready[0] {
                return;
            }
            let (ended, spoken) = ready[2..].split_at(programs.len());
            let (mut ended, mut spoken) = (ended.iter(), spoken.iter());
            programs.retain_mut(|program| {
                let has_ended = ended.next().is_some_and(|&ended| ended);
                let spoke = program.asker.is_some() && spoken.next().is_some_and(|&spoken| spoken);
                !(has_ended || spoke && program.has_failed())
            });
            if ready[1]
                && let Ok(asker) = accept_with(listener, SocketFlags::CLOEXEC)
            {
                programs.extend(self.answer(asker));
            }
            end = programs.is_empty().then(|| Instant::now() + LINGER);
        }
    }

    /// Gives it to one. `None`: how long that one lives cannot be told.
    fn answer(&self, asker: OwnedFd) -> Option<Program> {
        let own = rustix::process::geteuid();
        let from = sockopt::socket_peercred(&asker).ok()?;
        if from.uid != own {
            return None;
        }
        // It waits for the answer, so its number is still its own.
        let process = pidfd_open(from.pid, PidfdFlags::empty());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let both = [self.names.names.as_fd(), self.names.root.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&both));
        let text = [&[READY], self.names.stand_ins.as_slice()].concat();
        sendmsg(&asker, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL).ok()?;
        process.ok().map(|process| Program { process, asker: Some(asker) })
    }

    /// Lets go of the name space, and waits until the kernel has unmounted.
    fn end(self) -> Outcome {
        let Self { attached, names, servers, served: _served } = self;
        drop(names);
        for server in servers {
            // One that panicked has ended as well.
            let _ = server.join();
        }
        for volume in attached {
            volume.leave().map_err(|errno| Failure::errno("leave a mounted volume", errno))?;
        }
        Ok(0)
    }
}

impl Program {
    /// Whether the asker says that its exec has failed. Its end of the connection is closed by an
    /// exec.
    fn has_failed(&mut self) -> bool {
        let Some(asker) = self.asker.take() else { return false };
        let mut byte = [0];
        recv(&asker, &mut byte, RecvFlags::DONTWAIT).is_ok_and(|(length, _)| length > 0)
    }
}
