//! A worker process: makes its working set, then measures the rows that it is told.
//!
//! Protocol: it writes `ready`, then for each row's name on standard input the nanoseconds per call
//! on standard output: on the clock, and of the processors. A failure is told on standard error and
//! ends it.

pub mod calls;
mod memory;
pub mod peer;
pub mod row;

use std::ffi::{CStr, CString};
use std::io::{self, BufRead, Error, Result, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use console::failure::{Failure, Outcome};
use solera_bench::WorkerArgs;

use memory::Memory;
use row::{BLOCK_BYTES, FILES, LISTED, LONGEST_BYTES, Random, Row, offset, scattered_bytes};

/// Nanoseconds.
#[derive(Clone, Copy)]
pub struct Elapsed {
    /// On the clock.
    pub clock: f64,
    /// Of the processors.
    pub cpu: f64,
}

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
        Box::new(Files::make(&args.place, args.size, args.few).map_err(failed)?)
    };
    answer("ready").map_err(failed)?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(failed)?;
        let row = Row::from_name(&line)
            .ok_or_else(|| Failure::new(asked(), format!("there is no row `{line}`"), ""))?;
        let time = time(measured.as_mut(), row, args)
            .map_err(|error| Failure::new(format!("{}, {line}", asked()), error, ""))?;
        answer(&format!("{:.3} {:.3}", time.clock, time.cpu)).map_err(failed)?;
    }
    Ok(0)
}

fn answer(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// What one run took, a call, after an untimed run of an eighth of its length.
fn time(measured: &mut dyn Measured, row: Row, args: &WorkerArgs) -> Result<Elapsed> {
    let size = args.size;
    let calls = if args.few { row.calls_beneath(size) } else { row.calls(size) };
    run_calls(measured, row, calls / 8, size)?;
    let took = run_calls(measured, row, calls, size)?;
    Ok(Elapsed { clock: took.clock / calls as f64, cpu: took.cpu / calls as f64 })
}

fn run_calls(measured: &mut dyn Measured, row: Row, calls: u64, size: u64) -> Result<Elapsed> {
    measured.begin(row)?;
    let mut random = Random::new();
    let (begun, used) = (Instant::now(), processor_time());
    for call in 0..calls {
        measured.call(row, call, offset(row, call, &mut random, size))?;
    }
    let took = Elapsed { clock: begun.elapsed().as_nanos() as f64, cpu: processor_time() - used };
    measured.end(row)?;
    Ok(took)
}

/// Nanoseconds that this process has had of the processors.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
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
    scattered: i32,
    /// Eight directories down.
    deep_path: CString,
    /// Two names that one file has in turn.
    renamed: [CString; 2],
    /// A directory of many names, open, and its path.
    many: calls::Listing,
    /// Open, until a row ends.
    open: Vec<i32>,
    /// Their names until they are unlinked.
    names: Vec<CString>,
    buffer: Vec<u8>,
}

impl Files {
    fn make(dir: &Path, size: u64, few: bool) -> Result<Self> {
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
        let mut deep = dir.to_owned();
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            deep.push(name);
            std::fs::create_dir_all(&deep)?;
        }
        let deep_path = CString::new(deep.join("small").as_os_str().as_bytes())?;
        let renamed = [path("one")?, path("two")?];
        for made in [&deep_path, &renamed[0]] {
            calls::close(calls::open(made, libc::O_RDWR | libc::O_CREAT)?)?;
        }
        let many = dir.join("many");
        std::fs::create_dir_all(&many)?;
        for index in 0..if few { 0 } else { LISTED } {
            let name = CString::new(format!("{}/name{index:06}", many.display()))?;
            calls::close(calls::open(&name, libc::O_RDWR | libc::O_CREAT)?)?;
        }
        Ok(Self {
            large,
            foreign,
            small_path,
            new_path: path("new")?,
            appended: -1,
            scattered: Self::scatter(&path("scattered")?, scattered_bytes(size))?,
            deep_path,
            renamed,
            many: calls::Listing::open(&path("many")?)?,
            open: Vec::new(),
            names: (0..FILES)
                .map(|n| path(&format!("name{n}")))
                .collect::<std::result::Result<_, _>>()?,
            buffer: vec![0xA5; LONGEST_BYTES],
        })
    }

    /// A file of which every other block is a hole.
    fn scatter(path: &CStr, size: u64) -> Result<i32> {
        let fd = calls::open(path, libc::O_RDWR | libc::O_CREAT)?;
        calls::resize(fd, size)?;
        for at in (0..size).step_by(2 * BLOCK_BYTES) {
            calls::pwrite(fd, &[0x5A; BLOCK_BYTES], at)?;
        }
        Ok(fd)
    }

    /// Files to be unlinked.
    fn make_names(&self) -> Result<()> {
        for name in &self.names {
            let fd = calls::open(name, libc::O_WRONLY | libc::O_CREAT)?;
            calls::write(fd, &self.buffer[..16 << 10])?;
            calls::close(fd)?;
        }
        Ok(())
    }

    fn create_close_unlink(path: &CStr) -> Result<()> {
        calls::close(calls::open(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?)?;
        calls::unlink(path)
    }
}

impl Measured for Files {
    fn begin(&mut self, row: Row) -> Result<()> {
        match row {
            Row::ReadSequential
            | Row::OverwriteSequential
            | Row::OverwriteSync10
            | Row::Read64K
            | Row::Read2M => calls::rewind(self.large),
            Row::Close => {
                for _ in 0..FILES {
                    self.open.push(calls::open(&self.small_path, libc::O_RDWR)?);
                }
                Ok(())
            }
            Row::Unlink => self.make_names(),
            _ if row.appends() => {
                let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
                self.appended = calls::open(&self.new_path, flags)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn call(&mut self, row: Row, call: u64, offset: u64) -> Result<()> {
        let buffer = &mut self.buffer[..row.bytes()];
        let every = row.syncs_every();
        let syncs = every > 0 && call % every == every - 1;
        match row {
            Row::ReadSequential => calls::read(self.large, buffer),
            Row::ReadRandom | Row::Read64K | Row::Read2M => {
                calls::pread(self.large, buffer, offset)
            }
            Row::OverwriteSequential => calls::write(self.large, buffer),
            Row::OverwriteSync10 => {
                calls::write(self.large, buffer)?;
                if syncs { calls::sync(self.large) } else { Ok(()) }
            }
            Row::OverwriteRandom => calls::pwrite(self.large, buffer, offset),
            Row::OverwriteScattered => calls::pwrite(self.scattered, buffer, offset),
            Row::Append4K
            | Row::Append128
            | Row::Append64
            | Row::AppendSync
            | Row::AppendSync10
            | Row::AppendSync100
            | Row::AppendSync1000 => {
                calls::write(self.appended, buffer)?;
                if syncs { calls::sync(self.appended) } else { Ok(()) }
            }
            Row::Open => {
                self.open.push(calls::open(&self.small_path, libc::O_RDWR)?);
                Ok(())
            }
            Row::Close => self.open.pop().map_or(Ok(()), calls::close),
            Row::Unlink => calls::unlink(&self.names[call as usize % self.names.len()]),
            Row::OpenClose => calls::close(calls::open(&self.small_path, libc::O_RDWR)?),
            Row::CreateCloseUnlink => Self::create_close_unlink(&self.new_path),
            Row::Rename => {
                let [from, to] = [call % 2, 1 - call % 2].map(|at| &self.renamed[at as usize]);
                calls::rename(from, to)
            }
            Row::Stat => calls::stat(&self.small_path).map(drop),
            Row::StatDeep => calls::stat(&self.deep_path).map(drop),
            Row::List => self.many.next(),
            Row::RecordLock => {
                calls::lock(self.large, libc::F_WRLCK, offset, BLOCK_BYTES as u64)?;
                calls::lock(self.large, libc::F_UNLCK, offset, BLOCK_BYTES as u64)
            }
            Row::ForeignRead => calls::read(self.foreign, &mut [0]),
        }
    }

    fn end(&mut self, row: Row) -> Result<()> {
        if row == Row::Rename {
            // The next run begins with the first name again.
            let [one, two] = &self.renamed;
            return calls::rename(two, one).or_else(|_| calls::stat(one).map(drop));
        }
        for fd in self.open.drain(..) {
            calls::close(fd)?;
        }
        if row == Row::Unlink {
            // Those that the run did not come to.
            for name in &self.names {
                let _ = calls::unlink(name);
            }
        }
        if row.appends() {
            calls::empty(self.appended)?;
            calls::close(self.appended)?;
            calls::unlink(&self.new_path)?;
        }
        Ok(())
    }
}
