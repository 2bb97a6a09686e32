//! Processes that a signal to this one ends.
//!
//! Each program runs in a process group of its own, so that all that it has started ends with it.
//! SIGINT, SIGTERM and SIGHUP are waited for by a thread: it tells the groups to end, and kills
//! them when they do not. Whoever waits for a program then learns of it, and removes what was made.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use console::failure::Failure;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long a group has to end when it is told to.
const GRACE_STEPS: u32 = 250;
const STEP: Duration = Duration::from_millis(20);

/// The groups that run now.
pub struct ProcessGroups {
    stopped: AtomicBool,
    groups: Mutex<Vec<Pid>>,
}

impl ProcessGroups {
    /// Begins to wait for signals.
    pub fn watch() -> Result<Arc<Self>, Failure> {
        let children =
            Arc::new(Self { stopped: AtomicBool::new(false), groups: Mutex::new(Vec::new()) });
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Failure::new("watch for signals", error, ""))?;
        let watched = Arc::clone(&children);
        std::thread::spawn(move || {
            for _ in signals.forever() {
                watched.stop();
            }
        });
        Ok(children)
    }

    /// Fails after a signal.
    pub fn go_on(&self) -> Result<(), Failure> {
        if self.stopped.load(Ordering::SeqCst) {
            return Err(Failure::new("measure", "interrupted", "").code(130));
        }
        Ok(())
    }

    /// Runs a program to its end, and ends what it has left running. After a signal that fails, as
    /// it does when the program cannot be started.
    pub fn run(&self, command: &mut Command) -> io::Result<ExitStatus> {
        let interrupted = || io::Error::from(io::ErrorKind::Interrupted);
        let (mut child, group) = {
            let mut groups = self.groups();
            if self.stopped.load(Ordering::SeqCst) {
                return Err(interrupted());
            }
            let child = command.process_group(0).spawn()?;
            let group = Pid::from_child(&child);
            groups.push(group);
            (child, group)
        };
        // It stays a zombie for now: no other process or group gets its number.
        while let Err(Errno::INTR) =
            waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        {}
        {
            let mut groups = self.groups();
            // There may be nobody left in it.
            let _ = kill_process_group(group, Signal::KILL);
            groups.retain(|other| *other != group);
        }
        let status = child.wait()?;
        if self.stopped.load(Ordering::SeqCst) { Err(interrupted()) } else { Ok(status) }
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.tell(Signal::TERM);
        for _ in 0..GRACE_STEPS {
            if self.groups().is_empty() {
                return;
            }
            std::thread::sleep(STEP);
        }
        self.tell(Signal::KILL);
    }

    fn tell(&self, signal: Signal) {
        for group in self.groups().iter() {
            // One that has just ended needs no signal.
            let _ = kill_process_group(*group, signal);
        }
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
