//! What is measured: each worker has its own file, and does one thing many times.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use console::failure::Failure;
use flex::{Create, FileOptions, Log, LogOptions, Place};
use pmem::{OpenOptions, Purpose, Region};
use rustix::io::Errno;
use rustix::mm::MsyncFlags;

use super::pmemlog::PmemLog;
use super::{LARGE, SMALL, Workload};

/// Bytes that rows range over, and that a log has.
const RANGE: u64 = 64 << 20;
const PAGE: u64 = 4096;
/// Calls of a round: of 64 bytes, and of 4 KiB.
const SMALL_CALLS: usize = 100_000;
const LARGE_CALLS: usize = 8192;

/// See [`What`].
pub enum Worker {
    Limit { region: Region, bytes: usize, calls: usize },
    Append { log: Log, bytes: usize },
    Puts { log: Log },
    TwoThreads { log: Log },
    PmemLog { log: PmemLog, bytes: usize },
    WriteSync { file: File, bytes: usize },
    FileAppend { file: flex::File },
    FileOverwrite { file: flex::File },
    OverwriteSync { file: File },
    Persist { file: flex::File },
    Msync { region: Region },
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new("measure", error, "")
}

fn calls_of(bytes: usize) -> usize {
    if bytes > SMALL { LARGE_CALLS } else { SMALL_CALLS }
}

impl Worker {
    /// Makes what is measured; `None`: it cannot be had here.
    pub fn new(
        workload: Workload,
        directory: &Path,
        place: &Place,
    ) -> Result<Option<Self>, Failure> {
        let name = format!("{workload:?}").replace(['(', ')'], "-");
        let path = directory.join(&name);
        let log = || {
            let options = LogOptions { capacity: RANGE, create: true, ..LogOptions::default() };
            let log = place.log(name.as_ref(), &options).map_err(failed)?;
            // A lap touches the memory.
            while log.append(&[0x5A; LARGE]).is_ok() {}
            log.trim(log.committed()).map_err(failed)?;
            Ok::<_, Failure>(log)
        };
        let file = |length: u64| {
            let options =
                FileOptions { size: 2 * RANGE, create: Create::New, ..FileOptions::default() };
            let file = place.file(name.as_ref(), &options).map_err(failed)?;
            file.truncate(length).map_err(failed)?;
            Ok::<_, Failure>(file)
        };
        let region = || {
            let options = OpenOptions { purpose: Purpose::File, ..OpenOptions::default() };
            let region =
                Region::create_with(&path, RANGE, 0o600, true, &options).map_err(failed)?;
            region.populate(0, RANGE).map_err(failed)?;
            Ok::<_, Failure>(region)
        };
        let plain = || {
            let options = File::options().read(true).write(true).create_new(true).open(&path);
            options.map_err(failed)
        };
        Ok(Some(match workload {
            Workload::LimitLine => Self::Limit { region: region()?, bytes: 64, calls: SMALL_CALLS },
            Workload::LimitPage => {
                Self::Limit { region: region()?, bytes: 4096, calls: LARGE_CALLS }
            }
            Workload::Append(bytes) => Self::Append { log: log()?, bytes },
            Workload::Puts => Self::Puts { log: log()? },
            Workload::TwoThreads => Self::TwoThreads { log: log()? },
            Workload::PmemLog(bytes) => {
                let Some(log) = PmemLog::create(&path, RANGE as usize) else { return Ok(None) };
                Self::PmemLog { log, bytes }
            }
            Workload::WriteSync(bytes) => Self::WriteSync { file: plain()?, bytes },
            Workload::FileAppend => Self::FileAppend { file: file(0)? },
            Workload::FileOverwrite => Self::FileOverwrite { file: file(RANGE)? },
            Workload::OverwriteSync => {
                let file = plain()?;
                file.write_all_at(&vec![1; RANGE as usize], 0).map_err(failed)?;
                Self::OverwriteSync { file }
            }
            Workload::Persist => Self::Persist { file: file(RANGE)? },
            Workload::Msync => Self::Msync { region: region()? },
        }))
    }

    /// Before a round: what it appends to is empty.
    pub fn prepare(&mut self) -> Result<(), Failure> {
        match self {
            Self::Append { log, .. } | Self::Puts { log } | Self::TwoThreads { log } => {
                log.trim(log.committed()).map_err(failed)
            }
            Self::PmemLog { log, .. } => {
                log.rewind();
                Ok(())
            }
            Self::WriteSync { file, .. } => file.set_len(0).map_err(failed),
            Self::FileAppend { file } => file.truncate(0).map_err(failed),
            _ => Ok(()),
        }
    }

    /// One round; gives how many calls it was.
    pub fn work(&mut self) -> Result<usize, Failure> {
        match self {
            Self::Limit { region, bytes, calls } => limit(region, *bytes, *calls),
            Self::Append { log, bytes } => appends(log, *bytes, calls_of(*bytes)),
            Self::Puts { log } => puts(log),
            Self::TwoThreads { log } => two_threads(log),
            Self::PmemLog { log, bytes } => {
                let (payload, calls) = ([0x5A; LARGE], calls_of(*bytes));
                let all = (0..calls).all(|_| log.append(&payload[..*bytes]));
                if all { Ok(calls) } else { Err(failed("libpmemlog's log is full")) }
            }
            Self::WriteSync { file, bytes } => write_sync(file, *bytes),
            Self::FileAppend { file } => {
                for _ in 0..LARGE_CALLS {
                    let (_, ticket) = file.append(&[0x5A; 4096]).map_err(failed)?;
                    ticket.wait().map_err(failed)?;
                }
                Ok(LARGE_CALLS)
            }
            Self::FileOverwrite { file } => {
                for call in 0..LARGE_CALLS as u64 {
                    let ticket = file.write_at(call * PAGE % RANGE, &[0x5A; 4096]);
                    ticket.and_then(flex::Ticket::wait).map_err(failed)?;
                }
                Ok(LARGE_CALLS)
            }
            Self::OverwriteSync { file } => {
                for call in 0..LARGE_CALLS as u64 {
                    file.write_all_at(&[0x5A; 4096], call * PAGE % RANGE).map_err(failed)?;
                    rustix::fs::fdatasync(&*file).map_err(failed)?;
                }
                Ok(LARGE_CALLS)
            }
            Self::Persist { file } => persist(file),
            Self::Msync { region } => msync(region),
        }
    }
}

/// The same bytes as a log's, or a file's, one after another.
fn limit(region: &Region, bytes: usize, calls: usize) -> Result<usize, Failure> {
    let payload = [0x5A; 4096];
    for call in 0..calls {
        let at = (call * bytes) as u64 % RANGE;
        // PERSIST: this fence is what is measured.
        region.stream(at, &payload[..bytes]).map_err(|fault| failed(Errno::from(fault)))?.fence();
    }
    Ok(calls)
}

fn appends(log: &Log, bytes: usize, calls: usize) -> Result<usize, Failure> {
    let payload = [0x5A; LARGE];
    for _ in 0..calls {
        log.append(&payload[..bytes]).map_err(failed)?;
    }
    Ok(calls)
}

fn puts(log: &Log) -> Result<usize, Failure> {
    let payload = [0x5A; SMALL];
    for call in 1..=SMALL_CALLS {
        let position = log.put(&payload).map_err(failed)?;
        if call.is_multiple_of(16) {
            log.commit(position).map_err(failed)?;
        }
    }
    Ok(SMALL_CALLS)
}

fn two_threads(log: &Log) -> Result<usize, Failure> {
    let half = || appends(log, SMALL, SMALL_CALLS / 2);
    std::thread::scope(|scope| {
        let other = scope.spawn(half);
        half()?;
        other.join().unwrap_or_else(|_| Err(failed("a thread has failed")))
    })?;
    Ok(SMALL_CALLS)
}

fn write_sync(file: &mut File, bytes: usize) -> Result<usize, Failure> {
    let (payload, calls) = ([0x5A; LARGE], calls_of(bytes));
    for call in 0..calls {
        file.write_all_at(&payload[..bytes], (call * bytes) as u64).map_err(failed)?;
        rustix::fs::fdatasync(&*file).map_err(failed)?;
    }
    Ok(calls)
}

/// Where a call stores: pages in turn, another line of each.
fn spot(call: u64) -> u64 {
    (call * PAGE + call * 64 % PAGE) % RANGE
}

fn persist(file: &flex::File) -> Result<usize, Failure> {
    let base = file.view(0, RANGE).map_err(failed)?;
    for call in 0..LARGE_CALLS as u64 {
        let at = spot(call);
        // SAFETY: inside the view, whose bytes are this worker's.
        unsafe { base.add(at as usize).write_bytes(call as u8, 64) };
        file.persist(at, 64).map_err(failed)?;
    }
    Ok(LARGE_CALLS)
}

fn msync(region: &Region) -> Result<usize, Failure> {
    for call in 0..LARGE_CALLS as u64 {
        let at = spot(call);
        let page = region.base().wrapping_add((at - at % PAGE) as usize);
        // SAFETY: inside the region, whose bytes are this worker's.
        unsafe { region.base().add(at as usize).write_bytes(call as u8, 64) };
        // SAFETY: a page of the region.
        unsafe { rustix::mm::msync(page.cast(), PAGE as usize, MsyncFlags::SYNC) }
            .map_err(failed)?;
    }
    Ok(LARGE_CALLS)
}
