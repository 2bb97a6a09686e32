//! `solera mount`: serves a volume to the kernel, so that every program sees it at a directory.
//!
//! In the background unless asked otherwise: a child process attaches and mounts, says through a
//! pipe how that went, and serves; the command ends with its result. The child is forked before
//! anything is attached, since an attachment belongs to one process, and before any thread is
//! there.
//!
//! The process ends when any user or process unmounts the directory. On SIGTERM, SIGINT and (in the
//! background) SIGHUP it unmounts by itself, also when the mount is in use: what is open there then
//! gives `ENOTCONN`.

mod arguments;
mod background;
mod options;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use console::failure::{Failure, Outcome, describe};
use console::output;
use fuse::MountOptions;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vfs::mounts::{self, Mount};
use vfs::{Attached, FileSystemExt};
use volume::{AttachOptions, Volume};

use self::options::MountSettings;
pub use self::options::{is_helper, of_helper};
use crate::commands::cache;
pub use arguments::MountArgs;

/// What users may do by `fusermount3`.
const FUSE_TABLE: &str = "/etc/fuse.conf";

/// How long a signalled process serves what is still open before it leaves.
const PATIENCE: Duration = Duration::from_millis(500);

/// Mounts a volume.
pub fn run(args: &MountArgs) -> Outcome {
    let mut given = MountSettings::default();
    for list in &args.options {
        given.add(list, args.sloppy)?;
    }
    given.class.force();
    given.mount.read_only |= args.read_only;
    if args.cache.cache.is_some() {
        given.cache = args.cache.clone();
    }
    if let Some(mode) = &args.mode {
        given.mode = mode.parse().unwrap_or_default();
    }
    let asked = format!("mount {} at {}", args.volume.display(), args.directory.display());
    let volume = find_volume(&asked, &args.volume)?;
    let at = find_directory(&asked, &args.directory)?;
    if volume.starts_with(&at) {
        let advice = "choose another directory";
        return Err(Failure::new(asked, "the volume's file lies below it", advice));
    }
    if given.fake {
        return Ok(0);
    }
    let closed = closed_to_others(&at, given.others);
    given.mount.allow_other = closed.is_none() && given.others != Some(false);
    let work = MountRequest { asked, volume, at, given, closed };
    if args.foreground {
        return output::busy("attaching", || work.start(false)).and_then(ActiveMount::serve);
    }
    background::run(|| work.start(true), ActiveMount::serve)
}

/// The message for a mount that is closed to other users without a request. What root mounts is
/// open to every user, as the kernel's own file systems are; what another user mounts is closed.
fn closed_to_others(at: &Path, asked: Option<bool>) -> Option<String> {
    if asked.is_some() || rustix::process::geteuid().is_root() {
        return None;
    }
    let table = fs::read_to_string(FUSE_TABLE).unwrap_or_default();
    let permitted = table.lines().any(|line| line.trim() == "user_allow_other");
    let advice = if permitted {
        "-o allow_other opens it to others".to_owned()
    } else {
        format!(
            "for others, root must mount it, or add the line user_allow_other to {FUSE_TABLE}; \
             then -o allow_other opens it"
        )
    };
    Some(format!("{}: only you can use this mount; {advice}", at.display()))
}

/// The volume's absolute path.
fn find_volume(asked: &str, path: &Path) -> Result<PathBuf, Failure> {
    let advice = "check the path, or make a volume with `solera format`";
    path.canonicalize().map_err(|error| Failure::new(asked, plain(&error), advice))
}

fn plain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => describe(Errno::from_raw_os_error(number)),
        None => error.to_string(),
    }
}

/// The directory's absolute path. A mount there whose process has died is taken away, if nothing
/// else would go with it.
fn find_directory(asked: &str, path: &Path) -> Result<PathBuf, Failure> {
    let fail = |found: String, advice: &str| Failure::new(asked, found, advice);
    if let Some(dead) = super::umount::dead_mount(path) {
        if dead.bears_others().unwrap_or(true) {
            let found = "a mount whose process has died is there, and another one in it";
            let advice =
                "unmount that one first; `solera umount --lazy` takes both out of the tree";
            return Err(fail(found.to_owned(), advice));
        }
        fuse::unmount(&dead, true).map_err(|errno| {
            let found = format!("a mount whose process has died is there ({})", describe(errno));
            fail(found, "take it away as its owner: `solera umount --lazy`")
        })?;
    }
    let at = path.canonicalize().map_err(|error| {
        fail(format!("{}: {}", path.display(), plain(&error)), "make the directory first")
    })?;
    let meta = at.metadata().map_err(|error| fail(plain(&error), ""))?;
    if !meta.is_dir() {
        return Err(fail("that is not a directory".into(), "give a directory"));
    }
    if volume::is_in_anchor(&at) {
        return Err(fail(volume::Kept::Anchor.to_string(), "choose another directory"));
    }
    let listed = mounts::at(&at).map_err(|error| fail(plain(&error), ""))?;
    if let Some(other) = listed {
        let found = format!("{} is mounted there already", other.volume.display());
        return Err(fail(found, "`solera umount` it first, or choose another directory"));
    }
    let above = at.parent().and_then(|parent| parent.metadata().ok());
    if above.is_none_or(|above| above.dev() != meta.dev()) {
        let found = "another file system is mounted there already".into();
        return Err(fail(found, "choose a directory that is not a mount point"));
    }
    Ok(at)
}

/// What is to be done.
struct MountRequest {
    asked: String,
    volume: PathBuf,
    at: PathBuf,
    given: MountSettings,
    /// The message that only some users can use it, for when it is there.
    closed: Option<String>,
}

/// A mount that can be served.
struct ActiveMount {
    volume: Arc<Volume>,
    /// What is served: the volume, or a cache over it.
    engine: Arc<dyn vfs::Engine>,
    device: std::os::fd::OwnedFd,
    at: PathBuf,
    /// As the kernel lists it, if it does.
    mount: Option<Mount>,
    signals: Signals,
    /// The volume, if it can be written although the mount is read-only: files that others removed
    /// while they were open here are freed at the end.
    tidy: Option<PathBuf>,
}

impl MountRequest {
    fn start(self, background: bool) -> Result<ActiveMount, Failure> {
        let mut options: MountOptions = self.given.mount.clone();
        // A user that may only read the volume gets it read-only, like a write-protected disk.
        let writable = access(&self.volume, Access::WRITE_OK).is_ok();
        if !writable && access(&self.volume, Access::READ_OK).is_ok() && !options.read_only {
            output::tell(format!("{} may only be read: mounting read-only", self.volume.display()));
            options.read_only = true;
        }
        let tidy = options.read_only && writable && !pmem::needs_class(&self.volume);
        if tidy {
            // Recovers first, as the kernel's file systems do.
            volume::detach_dead(&self.volume)?;
        }
        let volume = volume::attach(
            &self.volume,
            &AttachOptions {
                mode: self.given.mode,
                read_only: options.read_only,
                ..AttachOptions::default()
            },
        )?;
        if volume.statistics().is_ok_and(|stat| stat.read_only) {
            options.read_only = true;
        }
        let leave = |failure| {
            // Only the first failure is reported.
            let _ = volume.leave();
            failure
        };
        let engine = cache::over(&volume, &self.given.cache).map_err(&leave)?;
        // A signal that comes from now on unmounts.
        let mut watched = vec![SIGTERM, SIGINT];
        if background {
            watched.push(SIGHUP);
        }
        let signals = Signals::new(watched)
            .map_err(|error| leave(Failure::new(&self.asked, plain(&error), "")))?;
        let fuse::Made { device, said } = fuse::mount(&self.volume, &self.at, &options)
            .map_err(|found| leave(Failure::new(&self.asked, found, "")))?;
        for line in said.lines() {
            output::tell(format!("{}: {line}", self.at.display()));
        }
        if let Some(closed) = self.closed {
            output::tell(closed);
        }
        let mount = mounts::at(&self.at).ok().flatten();
        let tidy = tidy.then_some(self.volume);
        Ok(ActiveMount { volume, engine, device, at: self.at, mount, signals, tidy })
    }
}

impl ActiveMount {
    /// Serves until the mount is gone, then leaves the volume in order.
    fn serve(self) -> Outcome {
        let Self { volume, engine, device, at, mount, mut signals, tidy } = self;
        let handle = signals.handle();
        let shared = Arc::clone(&volume);
        let watcher = std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                end_by_signal(&shared, mount.as_ref());
            }
        });
        let served = fuse::serve(engine, &volume.volume_identity(), device);
        handle.close();
        let _ = watcher.join();
        let asked = format!("serve {}", at.display());
        volume.leave().map_err(|errno| Failure::errno(&asked, errno))?;
        if let Some(path) = tidy {
            volume::detach_dead(&path)?;
        }
        served.map_err(|errno| Failure::errno(&asked, errno))?;
        Ok(0)
    }
}

/// Unmounts. If the mount is in use, it goes out of the tree at once, and this process with it. One
/// that another mount lies over stays there, dead: what lies over it is not this process's.
fn end_by_signal(volume: &Volume, mount: Option<&Mount>) {
    if let Some(mount) = mount {
        // What was stored through mappings is written back while the mount is still served.
        if let Ok(root) = fs::File::open(&mount.at) {
            let _ = rustix::fs::syncfs(&root);
        }
        if fuse::unmount(mount, false).is_ok() {
            return;
        }
        // If it was taken away already, nothing is left to do.
        let _ = fuse::unmount(mount, true);
    }
    std::thread::sleep(PATIENCE);
    // Threads that serve may be inside calls. The next process that attaches recovers what they
    // leave undone.
    let _ = volume.detach();
    std::process::exit(0);
}
