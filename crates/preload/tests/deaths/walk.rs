//! The way of a victim through its call, point by point, with what it starts on the way.
//!
//! The way has *parts*. Up to a call it is run; from the call on it goes by single instructions. A
//! new program goes from system call to system call until it maps the volume, then by instructions.

use std::io;
use std::path::Path;
use std::process::{ChildStdout, Command};

use libc::pid_t;

use crate::tracer::{Event, Kind, OneProcessor, Tracee};

/// How the victim is moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// From system call to system call, until it maps the volume.
    Calls,
    /// By single instructions.
    Steps,
}

/// A place to die at, to which another run of the same program can be brought at full speed.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    part: u32,
    /// Where the part goes by calls: which of them.
    call: u64,
    /// Else: the instruction, how often it has been come to in this part, and been repeated then.
    place: (u64, u64, u64),
    pub kind: Kind,
}

pub struct Walk {
    pub tracee: Tracee,
    pace: Pace,
    part: u32,
    calls: u64,
    /// It stands at a point that it has been counted for.
    at_point: bool,
    /// Those that it started, which go on by themselves.
    children: Vec<pid_t>,
    /// The walk goes on with the first child (or thread) that it starts, and this is what started
    /// it.
    follows: bool,
    parent: Option<Tracee>,
}

impl Walk {
    /// A process, stopped at its first instruction.
    pub fn start(command: &mut Command, volume: &Path) -> io::Result<Self> {
        // Children of a dead victim are this process's to wait for.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(Self::of(Tracee::start(command, volume)?.0))
    }

    /// The same of a process whose standard output is wanted.
    pub fn start_telling(
        command: &mut Command,
        volume: &Path,
        output: &mut Option<ChildStdout>,
    ) -> io::Result<Self> {
        let (tracee, child) = Tracee::start(command, volume)?;
        *output = child.stdout;
        Ok(Self::of(tracee))
    }

    fn of(tracee: Tracee) -> Self {
        Self {
            tracee,
            pace: Pace::Calls,
            part: 0,
            calls: 0,
            at_point: false,
            children: Vec::new(),
            follows: false,
            parent: None,
        }
    }

    /// From now on the way is that of the first child.
    pub fn follow_child(&mut self) {
        self.follows = true;
    }

    fn next_part(&mut self, pace: Pace) {
        self.pace = pace;
        self.part += 1;
        self.calls = 0;
        self.at_point = false;
        self.tracee.count_anew();
    }

    /// A child begins: it goes its way, or the walk goes on with it.
    fn meet(&mut self, pid: pid_t) -> io::Result<()> {
        let child = self.tracee.child(pid)?;
        if std::mem::take(&mut self.follows) {
            let mut parent = std::mem::replace(&mut self.tracee, child);
            parent.let_go()?;
            self.parent = Some(parent);
            self.next_part(Pace::Steps);
        } else {
            self.children.push(child.release(0)?);
        }
        Ok(())
    }

    /// Runs to the next breakpoint of its own, or the end; `false` if that came first.
    pub fn reach_mark(&mut self) -> io::Result<bool> {
        loop {
            match self.tracee.run()? {
                Event::Mark => break,
                Event::Child(pid) => self.meet(pid)?,
                Event::Ended => return Ok(false),
                _ => {}
            }
        }
        self.next_part(Pace::Steps);
        Ok(true)
    }

    /// All points from here to the end of the call, or its own.
    pub fn points(&mut self) -> io::Result<Vec<Point>> {
        let _together = OneProcessor::new(&self.tracee)?;
        let mut found = Vec::new();
        while let Some(kind) = self.reach_next_point()? {
            let place = self.tracee.place();
            found.push(Point { part: self.part, call: self.calls, place, kind });
        }
        Ok(found)
    }

    fn reach_next_point(&mut self) -> io::Result<Option<Kind>> {
        loop {
            let event = if self.pace == Pace::Calls {
                let Some(event) = self.tracee.run_by_calls()? else {
                    self.next_part(Pace::Steps);
                    continue;
                };
                event
            } else {
                self.tracee.step_to_point(std::mem::take(&mut self.at_point))?
            };
            match event {
                Event::Point(kind) => {
                    self.at_point = true;
                    return Ok(Some(kind));
                }
                Event::Call(_) => {
                    self.calls += 1;
                    return Ok(Some(Kind::Call));
                }
                Event::Child(pid) => self.meet(pid)?,
                Event::Executed => self.next_part(Pace::Calls),
                Event::Mark | Event::Ended => return Ok(None),
            }
        }
    }

    /// Goes on to a point of an earlier run; `false` if it came to the end of its call, or its own,
    /// before: it took another way, because others were there.
    pub fn reach_point(&mut self, point: &Point) -> io::Result<bool> {
        while self.part < point.part {
            if self.pace == Pace::Calls {
                match self.tracee.run_by_calls()? {
                    Some(Event::Call(_)) => {}
                    Some(_) => return Ok(false),
                    None => self.next_part(Pace::Steps),
                }
                continue;
            }
            match self.tracee.run()? {
                Event::Child(pid) => self.meet(pid)?,
                Event::Executed => self.next_part(Pace::Calls),
                _ => return Ok(false),
            }
        }
        if self.pace == Pace::Calls {
            while self.calls < point.call {
                match self.tracee.run_by_calls()? {
                    Some(Event::Call(_)) => self.calls += 1,
                    _ => return Ok(false),
                }
            }
            return Ok(true);
        }
        let children = &mut self.children;
        let event = self.tracee.run_to(point.place, &mut |child| {
            children.push(child.release(0)?);
            Ok(())
        })?;
        Ok(event.is_none())
    }

    /// Runs to the beginning of the child that is followed.
    pub fn reach_child(&mut self) -> io::Result<()> {
        while self.parent.is_none() {
            match self.tracee.run()? {
                Event::Child(pid) => self.meet(pid)?,
                _ => return Err(io::Error::other("it has started nobody")),
            }
        }
        Ok(())
    }

    /// The one that it is a thread of has come to its second breakpoint, and ends the process.
    pub fn end_beside(&mut self) -> io::Result<()> {
        let Some(mut main) = self.parent.take() else {
            return Err(io::Error::other("nobody is beside"));
        };
        if !main.collect()? {
            return Err(io::Error::other("it ended before it was to"));
        }
        main.let_go()?;
        self.tracee.wait_for_end()?;
        main.wait_for_end()
    }

    /// It is traced no more, and stopped.
    pub fn stop(self) -> io::Result<rustix::process::Pid> {
        let pid = self.tracee.release(libc::SIGSTOP)?;
        rustix::process::Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process"))
    }

    /// Kills it; what it started, or what started it, has ended when this returns.
    pub fn kill(&mut self) -> io::Result<()> {
        self.tracee.kill()?;
        if let Some(mut parent) = self.parent.take() {
            if !parent.collect()? {
                return Err(io::Error::other("the parent ended in its call"));
            }
            parent.kill()?;
        }
        for pid in self.children.drain(..) {
            let pid = rustix::process::Pid::from_raw(pid);
            // One that its parent has waited for is gone.
            let _ = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
        }
        Ok(())
    }
}
