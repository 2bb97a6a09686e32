//! A worker process: makes its working set, then measures the rows that it is told.
//!
//! Protocol: it writes `ready`, then for each row's name on standard input the nanoseconds per call
//! on standard output. A failure is told on standard error and ends it.

use std::ffi::{CStr, CString};
use std::io::{self, BufRead, Error, Result, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use crate::args::WorkerArgs;
use crate::bench::calls;
use crate::bench::memory::Memory;
use crate::bench::row::{BLOCK_BYTES, Random, Row, offset};
use crate::failure::{Failure, Outcome};

/// What can be measured.
pub trait Measured {
    /// Before the clock runs; the row's state is as new.
    fn begin(&mut self, row: Row) -> Result<()>;
    /// One call, number `call` of the row.
    fn call(&mut self, row: Row, call: u64, offset: u64) -> Result<()>;
    /// After the clock has stopped.
    fn end(&mut self, row: Row) -> Result<()>;
}

/// Serves rows until standard input ends.
pub fn run(args: &WorkerArgs) -> Outcome {
    let asked = || format!("measure in {}", args.place.display());
    let failed = |error: Error| Failure::new(asked(), error, "");
    let mut measured: Box<dyn Measured> = if args.memory {
        Box::new(Memory::open(&args.place).map_err(|error| Failure::new(asked(), error, ""))?)
    } else {
        Box::new(Files::make(&args.place, args.size).map_err(failed)?)
    };
    answer("ready").map_err(failed)?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(failed)?;
        let row = Row::from_name(&line)
            .ok_or_else(|| Failure::new(asked(), format!("there is no row `{line}`"), ""))?;
        let time = time(measured.as_mut(), row, args.size)
            .map_err(|error| Failure::new(format!("{}, {line}", asked()), error, ""))?;
        answer(&format!("{time:.3}")).map_err(failed)?;
    }
    Ok(0)
}

fn answer(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Nanoseconds per call of one run, after an untimed run of an eighth of its length.
fn time(measured: &mut dyn Measured, row: Row, size: u64) -> Result<f64> {
    let calls = row.calls(size);
    run_calls(measured, row, calls / 8, size)?;
    let took = run_calls(measured, row, calls, size)?;
    Ok(took / calls as f64)
}

fn run_calls(measured: &mut dyn Measured, row: Row, calls: u64, size: u64) -> Result<f64> {
    measured.begin(row)?;
    let mut random = Random::new();
    let begun = Instant::now();
    for call in 0..calls {
        measured.call(row, call, offset(row, call, &mut random, size))?;
    }
    let took = begun.elapsed();
    measured.end(row)?;
    Ok(took.as_nanos() as f64)
}

/// Files in a directory, by system calls or what stands in their place.
struct Files {
    /// Read and overwritten.
    large: i32,
    /// Opened and asked about.
    small_path: CString,
    /// On no volume.
    foreign: i32,
    /// Made and unlinked, or appended to.
    new_path: CString,
    appended: i32,
    buffer: Vec<u8>,
}

impl Files {
    fn make(dir: &Path, size: u64) -> Result<Self> {
        let path = |name: &str| CString::new(dir.join(name).as_os_str().as_bytes());
        let large = calls::open(&path("large")?, libc::O_RDWR | libc::O_CREAT)?;
        let piece = vec![0x5A; 1 << 20];
        for start in (0..size).step_by(piece.len()) {
            calls::pwrite(large, &piece, start)?;
        }
        let small_path = path("small")?;
        let small = calls::open(&small_path, libc::O_RDWR | libc::O_CREAT)?;
        calls::write(small, &piece[..BLOCK_BYTES])?;
        calls::close(small)?;
        let foreign = calls::open(c"/dev/zero", libc::O_RDONLY)?;
        let buffer = vec![0xA5; BLOCK_BYTES];
        Ok(Self { large, foreign, small_path, new_path: path("new")?, appended: -1, buffer })
    }

    fn create_close_unlink(path: &CStr) -> Result<()> {
        calls::close(calls::open(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?)?;
        calls::unlink(path)
    }
}

impl Measured for Files {
    fn begin(&mut self, row: Row) -> Result<()> {
        match row {
            Row::ReadSequential | Row::OverwriteSequential => calls::rewind(self.large),
            Row::Append4K | Row::Append128 | Row::Append64 => {
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
                self.appended = calls::open(&self.new_path, flags)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn call(&mut self, row: Row, _call: u64, offset: u64) -> Result<()> {
        match row {
            Row::ReadSequential => calls::read(self.large, &mut self.buffer),
            Row::ReadRandom => calls::pread(self.large, &mut self.buffer, offset),
            Row::OverwriteSequential => calls::write(self.large, &self.buffer),
            Row::OverwriteRandom => calls::pwrite(self.large, &self.buffer, offset),
            Row::Append4K | Row::Append128 | Row::Append64 => {
                calls::write(self.appended, &self.buffer[..row.bytes()])
            }
            Row::OpenClose => calls::close(calls::open(&self.small_path, libc::O_RDWR)?),
            Row::CreateCloseUnlink => Self::create_close_unlink(&self.new_path),
            Row::Stat => calls::stat(&self.small_path).map(drop),
            Row::RecordLock => {
                calls::lock(self.large, libc::F_WRLCK, offset, BLOCK_BYTES as u64)?;
                calls::lock(self.large, libc::F_UNLCK, offset, BLOCK_BYTES as u64)
            }
            Row::ForeignRead => calls::read(self.foreign, &mut self.buffer[..1]),
        }
    }

    fn end(&mut self, row: Row) -> Result<()> {
        if matches!(row, Row::Append4K | Row::Append128 | Row::Append64) {
            calls::empty(self.appended)?;
            calls::close(self.appended)?;
            calls::unlink(&self.new_path)?;
        }
        Ok(())
    }
}
