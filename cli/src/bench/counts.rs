//! `bench micro --counts`: what each call costs in stores, flushed lines and fences. The volume lies
//! in this process's memory, with a counting hook on its region; no time is taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pmem::Region;
use pmem::counts::Counts;
use rustix::io::Errno;
use serde_json::{Value, json};
use vfs::{
    Desc, FileSystem, Kind, LockKind, LockOwner, NewNode, Node, OpenFlags, RecordLock, UserIn,
    UserOut,
};
use volume::{AttachOptions, FormatOptions, Volume};

use crate::args::MicroArgs;
use crate::bench::row::{BLOCK_BYTES, Random, Row, offset};
use crate::failure::Failure;
use crate::output;

/// Calls that are counted; before them as many are made uncounted.
const CALLS: u64 = 256;

/// The file that is read and overwritten.
const FILE_BYTES: u64 = 16 << 20;

const REGION_BYTES: usize = 256 << 20;

/// Means over the calls of one row.
pub struct Counted {
    row: Row,
    stores: f64,
    flushed_lines: f64,
    streamed_bytes: f64,
    fences: f64,
}

/// The state that the calls work on.
struct Ground {
    volume: Arc<Volume>,
    file: Node,
    large: Desc,
    appended: Desc,
    buffer: Vec<u8>,
}

/// Counts every row.
pub fn measure(args: &MicroArgs) -> Result<Vec<Counted>, Failure> {
    let counts = Counts::new();
    let mut region = Region::in_memory(vec![0; REGION_BYTES], None);
    volume::format_region(&region, &FormatOptions::default())?;
    region.set_hook(counts.clone());
    let mode = args
        .mode
        .parse()
        .map_err(|error| Failure::new(format!("count in mode {}", args.mode), error, ""))?;
    let options = AttachOptions { mode, ..AttachOptions::default() };
    let volume = volume::attach_region(region, &options)?;
    let count = || {
        let mut ground = Ground::make(volume)?;
        // What never reaches the engine has nothing to count.
        let rows = Row::ALL.into_iter().filter(|row| *row != Row::ForeignRead);
        rows.map(|row| ground.count(row, &counts)).collect::<Result<_, Errno>>()
    };
    count().map_err(|errno| Failure::errno("count", errno))
}

/// Prints them.
pub fn print(rows: &[Counted], as_json: bool) -> Result<(), Failure> {
    if as_json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|counted| {
                json!({
                    "row": counted.row.name(),
                    "stores": counted.stores,
                    "flushed_lines": counted.flushed_lines,
                    "streamed_bytes": counted.streamed_bytes,
                    "fences": counted.fences,
                })
            })
            .collect();
        return output::emit_json(&Value::Array(rows));
    }
    let head = ["per call", "stores", "flushed lines", "streamed bytes", "fences"];
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|counted| {
            let figures =
                [counted.stores, counted.flushed_lines, counted.streamed_bytes, counted.fences];
            let mut line = vec![counted.row.name().to_owned()];
            line.extend(figures.iter().map(|figure| format!("{figure:.2}")));
            line
        })
        .collect();
    output::emit(output::table(&head, &rows).as_bytes())
}

impl Ground {
    fn make(volume: Arc<Volume>) -> Result<Self, Errno> {
        let file = volume.create(volume.root(), b"large", &new_file())?;
        let large = volume.open(file, OpenFlags(libc::O_RDWR))?;
        let piece = vec![0x5A; 1 << 20];
        for start in (0..FILE_BYTES).step_by(piece.len()) {
            volume.write_at(large, start, &[UserIn::new(&piece)])?;
        }
        let node = volume.create(volume.root(), b"appended", &new_file())?;
        let appended = volume.open(node, OpenFlags(libc::O_WRONLY | libc::O_APPEND))?;
        Ok(Self { volume, file, large, appended, buffer: vec![0xA5; BLOCK_BYTES] })
    }

    fn count(&mut self, row: Row, counts: &Counts) -> Result<Counted, Errno> {
        let mut random = Random::new();
        for call in 0..CALLS {
            self.call(row, offset(row, call, &mut random, FILE_BYTES))?;
        }
        let figures =
            [&counts.stores, &counts.flushed_lines, &counts.streamed_bytes, &counts.fences];
        for figure in figures {
            figure.store(0, Ordering::Relaxed);
        }
        for call in 0..CALLS {
            self.call(row, offset(row, call, &mut random, FILE_BYTES))?;
        }
        let [stores, flushed_lines, streamed_bytes, fences] =
            figures.map(|figure| figure.load(Ordering::Relaxed) as f64 / CALLS as f64);
        Ok(Counted { row, stores, flushed_lines, streamed_bytes, fences })
    }

    fn call(&mut self, row: Row, offset: u64) -> Result<(), Errno> {
        let volume = &self.volume;
        match row {
            Row::ReadSequential | Row::ReadRandom => {
                let mut out = [UserOut::new(&mut self.buffer)];
                volume.read_at(self.large, offset, &mut out).map(drop)
            }
            Row::OverwriteSequential | Row::OverwriteRandom => {
                volume.write_at(self.large, offset, &[UserIn::new(&self.buffer)]).map(drop)
            }
            Row::Append4K | Row::Append128 | Row::Append64 => {
                let data = [UserIn::new(&self.buffer[..row.bytes()])];
                volume.write(self.appended, &data).map(drop)
            }
            Row::OpenClose => volume.close(volume.open(self.file, OpenFlags(libc::O_RDWR))?),
            Row::CreateCloseUnlink => {
                let node = volume.create(volume.root(), b"new", &new_file())?;
                volume.close(volume.open(node, OpenFlags(libc::O_RDWR))?)?;
                volume.unlink(volume.root(), b"new")
            }
            Row::Stat => volume.attr(volume.lookup(volume.root(), b"large")?).map(drop),
            Row::RecordLock => {
                let end = offset + BLOCK_BYTES as u64 - 1;
                let set = |kind| {
                    let lock = RecordLock { kind, start: offset, end, pid: 0 };
                    volume.record_lock(self.large, LockOwner::Process, &lock, false)
                };
                set(LockKind::Write)?;
                set(LockKind::Unlock)
            }
            Row::ForeignRead => Ok(()),
        }
    }
}

fn new_file() -> NewNode<'static> {
    NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" }
}
