//! `solera run --profile` and `--trace`: what the processes of a program have counted
//! (`libsolera_profile.so`), summed up.
//!
//! They count in one anonymous file of this command's, which they map; it is theirs by the path
//! /proc/PID/fd/N. So nothing is left behind, whatever ends, and no file system runs full.

mod arguments;
mod costs;
mod text;
mod totals;
mod trace;

use std::arch::x86_64::_rdtsc;
use std::ffi::OsString;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use console::failure::Failure;
use console::file;
use record::Map;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

pub use self::arguments::ProfileArg;
use self::costs::Costs;
use self::totals::Totals;
use super::report::Report;
use crate::commands::run::RunArgs;

/// Files that are told without a wish.
const FILES: usize = 20;

/// A profile that is being taken.
pub struct Profile {
    file: OwnedFd,
    map: Map,
    costs: Costs,
    begun: Moment,
}

/// One moment by both clocks.
#[derive(Clone, Copy)]
struct Moment {
    ticks: u64,
    at: Instant,
}

impl Moment {
    fn now() -> Self {
        // SAFETY: every x86-64 processor has it.
        Self { ticks: unsafe { _rdtsc() }, at: Instant::now() }
    }
}

/// What the command itself saw of the run.
pub struct Run {
    /// From the program's start to its end.
    pub wall_ns: u64,
    /// Of the processor's counter.
    pub ns_per_tick: f64,
    /// When the program began, by that counter.
    pub begun: u64,
    /// Page faults of it and of what it waited for: without and with input.
    pub faults: (u64, u64),
}

impl Profile {
    /// Makes ready for a program, if the command line asks for it. Measures what calls take here
    /// through the kernel.
    pub fn begin(args: &RunArgs) -> Result<Option<Self>, Failure> {
        let asked = &args.profile;
        if !asked.is_asked() {
            return Ok(None);
        }
        for (what, file) in [("profile", &asked.profile_file), ("trace", &asked.trace)] {
            if let Some(file) = file {
                file::check(to_write(what, file), file)?;
            }
        }
        let failed = |found: &dyn std::fmt::Display| Failure::new("keep a profile", found, "");
        let ring = asked.trace.as_ref().map_or(0, |_| asked.trace_max);
        let file = memfd_create(record::NAME, MemfdFlags::CLOEXEC)
            .and_then(|file| ftruncate(&file, record::bytes(ring) as u64).map(|()| file))
            .map_err(|error| failed(&error))?;
        let map =
            Map::begin(&file, ring).map_err(|_| failed(&"there is no address space for it"))?;
        let costs = if asked.is_told() { Costs::measured() } else { Costs::default() };
        Ok(Some(Self { file, map, costs, begun: Moment::now() }))
    }

    /// What the library reads.
    pub fn variables(&self, library: &Path) -> [(&'static str, OsString); 2] {
        let file = format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd());
        [("SOLERA_PROFILE", file.into()), ("SOLERA_PROFILE_LIBRARY", library.into())]
    }

    /// The program begins now.
    pub fn start(&mut self) {
        self.begun = Moment::now();
    }

    /// The program has ended: writes what was asked for. `report`: what was refused or served by a
    /// detour.
    pub fn end(&self, args: &RunArgs, report: &Report) -> Result<(), Failure> {
        let (begun, ended) = (self.begun, Moment::now());
        let wall_ns = ended.at.duration_since(begun.at).as_nanos() as u64;
        let ticks = ended.ticks.saturating_sub(begun.ticks).max(1);
        let run = Run {
            wall_ns,
            ns_per_tick: wall_ns as f64 / ticks as f64,
            begun: begun.ticks,
            faults: faults(),
        };
        let asked = &args.profile;
        if asked.is_told() {
            let sums = Totals::of(&self.map, &run, &self.costs, report);
            let top = asked.profile.unwrap_or(FILES);
            let text =
                if args.json { format!("{:#}\n", sums.json(top)) } else { text::of(&sums, top) };
            match &asked.profile_file {
                // If standard error is full or closed the profile is lost.
                None => drop(io::stderr().write_all(text.as_bytes())),
                Some(file) => file::write(to_write("profile", file), file, &text)?,
            }
        }
        if let Some(file) = &asked.trace {
            let text = trace::of(&self.map, &run);
            file::write(to_write("trace", file), file, &text)?;
        }
        Ok(())
    }
}

fn to_write(what: &str, file: &Path) -> String {
    format!("write the {what} {}", file.display())
}

/// Page faults of all processes that were waited for.
fn faults() -> (u64, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: there is room for the structure, of which all bytes are numbers.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    (usage.ru_minflt as u64, usage.ru_majflt as u64)
}
