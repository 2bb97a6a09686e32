//! `solera umount`: takes mounts of volumes away, and waits until the processes that served them
//! have left their volumes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use console::failure::{Failure, Outcome, describe};
use console::output;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use vfs::mounts::{self, Mount};

/// Unmount volumes, and wait until they are in order.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0 if all were unmounted (a message says if a volume is not in order yet; --lazy does not
wait), 1 if not.

Examples:
  solera umount /mnt/pm
  solera umount --lazy /mnt/pm      also while programs use it")]
pub struct UmountArgs {
    /// Take the mount out of the tree at once, also while programs use it; it ends when the last of
    /// them has closed its files.
    #[arg(short = 'l', long)]
    pub lazy: bool,
    /// Directories where volumes are mounted, or the volumes.
    #[arg(required = true, value_name = "DIRECTORY")]
    pub places: Vec<PathBuf>,
}

/// How long the serving process may take to write down what it has.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often a mount that is in use is tried to be taken away.
const BUSY_TRIES: u32 = 10;
const BUSY_STEP: Duration = Duration::from_millis(30);

/// Unmounts all that are named.
pub fn run(args: &UmountArgs) -> Outcome {
    let failures = args.places.iter().filter_map(|place| unmount(place, args.lazy).err());
    // The first is told by the caller, and decides about the code.
    let mut failures: Vec<Failure> = failures.collect();
    for failure in failures.drain(failures.len().min(1)..) {
        output::tell(failure);
    }
    failures.pop().map_or(Ok(0), Err)
}

fn unmount(place: &Path, lazy: bool) -> Result<(), Failure> {
    let asked = format!("unmount {}", place.display());
    let listed = mounts::list().map_err(|error| Failure::new(&asked, error, ""))?;
    let Some(mount) = find(&listed, place) else {
        let advice = "`findmnt -t fuse.solera` lists the mounts of volumes";
        return Err(Failure::new(&asked, "no volume is mounted there", advice));
    };
    let process = serving(&mount);
    take_away(&mount, lazy).map_err(|errno| match errno {
        Errno::BUSY => {
            let advice = "end what uses it (`fuser -vm` lists it), or say --lazy: the \
                          mount is then out of the tree at once, and ends when the last program \
                          has closed its files";
            Failure::new(&asked, "it is in use", advice)
        }
        Errno::PERM => Failure::new(
            &asked,
            describe(errno),
            "only root and the user that mounted it may do that",
        ),
        errno => Failure::errno(&asked, errno),
    })?;
    if let (Some(process), false) = (process, lazy)
        && wait_for(&process).is_err()
    {
        // Unmounted it is; there is nothing to do again.
        output::tell(format!(
            "{}: unmounted, but its process has not ended yet: the mount may still be there \
             for programs in other mount name spaces; the volume is in order once it has ended",
            place.display()
        ));
    }
    Ok(())
}

/// Unmounts. Waits for a process that uses the mount for a moment only (`df`, a desktop).
fn take_away(mount: &Mount, lazy: bool) -> Result<(), Errno> {
    for _ in 0..BUSY_TRIES {
        match fuse::unmount(mount, lazy) {
            Err(Errno::BUSY) => std::thread::sleep(BUSY_STEP),
            result => return result,
        }
    }
    fuse::unmount(mount, lazy)
}

/// The mount that is meant: by its directory, however it is written, or by its volume.
fn find(listed: &[Mount], place: &Path) -> Option<Mount> {
    let at = |path: &Path| listed.iter().rev().find(|mount| mount.at == path).cloned();
    let absolute = absolute_of_dead(place);
    let real = place.canonicalize().ok();
    absolute.as_deref().and_then(at).or_else(|| real.as_deref().and_then(at)).or_else(|| {
        let real = real?;
        listed.iter().rev().find(|mount| mount.is_of(&real)).cloned()
    })
}

/// A path whose last component may be a mount whose server has died.
fn absolute_of_dead(place: &Path) -> Option<PathBuf> {
    let parent = match place.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        parent => parent?,
    };
    Some(parent.canonicalize().ok()?.join(place.file_name()?))
}

/// The mount there, if its process has died. A dying server aborts requests, once for each of its
/// connections at most: so it is asked again, until it has died.
pub fn dead_mount(place: &Path) -> Option<Mount> {
    let at = absolute_of_dead(place)?;
    loop {
        match rustix::fs::stat(&at) {
            Err(Errno::CONNABORTED) => {}
            Err(Errno::NOTCONN) => return mounts::at(&at).ok()?,
            _ => return None,
        }
    }
}

/// The process that serves a mount.
fn serving(mount: &Mount) -> Option<std::os::fd::OwnedFd> {
    let name = String::from_utf8_lossy(fuse::PROCESS).into_owned();
    let mut value = [0_u8; 16];
    let length = rustix::fs::getxattr(&mount.at, name, &mut value[..]).ok()?;
    let pid = std::str::from_utf8(&value[..length]).ok()?.parse().ok()?;
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

fn wait_for(process: &std::os::fd::OwnedFd) -> Result<(), Errno> {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let mut asked = [PollFd::new(process, PollFlags::IN)];
    loop {
        match poll(&mut asked, Some(&patience)) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(Errno::TIMEDOUT),
            result => return result.map(|_| ()),
        }
    }
}
