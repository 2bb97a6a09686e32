//! `bench micro --counts`: what each call costs the engine in stores, flushed lines and fences, and
//! in instructions where the kernel lets them be counted. The volume lies in this process's memory,
//! with a counting hook on its region (whose own instructions count too); no time is taken. What a
//! call costs through the preload library, to the instruction: `crates/preload/tests/costs.txt`.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use console::failure::Failure;
use console::output;
use pmem::Region;
use pmem::costs::CostCounter;
use rustix::io::Errno;
use serde_json::{Value, json};
use solera_bench::MicroArgs;
use vfs::{
    Desc, EntryName, FileSystem, FileSystemExt, IoOffset, Kind, LockKind, LockOwner, Locks,
    NewNode, Node, OpenFlags, RecordLock, Removes, RenameFlags, Synced, UserIn, UserOut,
};
use volume::{AttachOptions, FormatOptions, Volume};

use crate::worker::row::{BLOCK_BYTES, LONGEST_BYTES, Random, Row, offset, scattered_bytes};

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
    /// `None`: the kernel does not say.
    instructions: Option<f64>,
}

/// The instructions that this thread executes in its own code.
struct Instructions(Option<OwnedFd>);

impl Instructions {
    fn new() -> Self {
        // `struct perf_event_attr`, its first version: type (hardware), size, which (instructions),
        // and as the sixth word the flags: exclude_kernel, exclude_hv.
        let mut wanted = [0_u64; 8];
        wanted[0] = 64 << 32;
        wanted[1] = 1;
        wanted[5] = 1 << 5 | 1 << 6;
        // SAFETY: reads the structure, which says its length; gives a new descriptor or fails.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, wanted.as_ptr(), 0, -1, -1, 0) };
        // SAFETY: no other owner has the new descriptor.
        Self(
            i32::try_from(fd)
                .ok()
                .filter(|fd| *fd >= 0)
                .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
        )
    }

    fn read(&self) -> Option<u64> {
        let mut count = [0; 8];
        let read = rustix::io::read(self.0.as_ref()?, &mut count).ok()?;
        (read == count.len()).then(|| u64::from_ne_bytes(count)).filter(|count| *count > 0)
    }
}

/// The state that the calls work on.
struct Testbed {
    volume: Arc<Volume>,
    file: Node,
    large: Desc,
    appended: Desc,
    scattered: Desc,
    buffer: Vec<u8>,
    instructions: Instructions,
}

/// Counts every row.
pub fn measure(args: &MicroArgs) -> Result<Vec<Counted>, Failure> {
    let counts = CostCounter::new();
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
        let mut testbed = Testbed::make(volume)?;
        // What never reaches the engine has nothing to count, and a list has no single call.
        let counted = |row: &Row| !matches!(row, Row::ForeignRead | Row::List);
        let rows = Row::ALL.into_iter().filter(counted);
        rows.map(|row| testbed.count(row, &counts)).collect::<Result<_, Errno>>()
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
                    "instructions": counted.instructions,
                })
            })
            .collect();
        return output::emit_json(&Value::Array(rows));
    }
    let head = ["per call", "stores", "flushed lines", "streamed bytes", "fences", "instructions"];
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|counted| {
            let figures =
                [counted.stores, counted.flushed_lines, counted.streamed_bytes, counted.fences];
            let mut line = vec![counted.row.name().to_owned()];
            line.extend(figures.iter().map(|figure| format!("{figure:.2}")));
            let instructions = counted.instructions.map(|count| format!("{count:.0}"));
            line.push(instructions.unwrap_or_else(|| "-".to_owned()));
            line
        })
        .collect();
    output::emit(output::table(&head, &rows).as_bytes())
}

impl Testbed {
    fn make(volume: Arc<Volume>) -> Result<Self, Errno> {
        let file = volume.create(volume.root(), b"large", &new_file())?;
        let large = volume.open(file.into(), OpenFlags(libc::O_RDWR), None)?;
        let piece = vec![0x5A; 1 << 20];
        for start in (0..FILE_BYTES).step_by(piece.len()) {
            volume.write(large, &[UserIn::new(&piece)], IoOffset::offset(start))?;
        }
        let node = volume.create(volume.root(), b"appended", &new_file())?;
        let appended =
            volume.open(node.into(), OpenFlags(libc::O_WRONLY | libc::O_APPEND), None)?;
        // Every other block is a hole.
        let file_of_pieces = volume.create(volume.root(), b"scattered", &new_file())?;
        let size = scattered_bytes(FILE_BYTES);
        volume.truncate(file_of_pieces, size)?;
        let scattered = volume.open(file_of_pieces.into(), OpenFlags(libc::O_RDWR), None)?;
        for at in (0..size).step_by(2 * BLOCK_BYTES) {
            volume.write(scattered, &[UserIn::new(&piece[..BLOCK_BYTES])], IoOffset::offset(at))?;
        }
        let mut deep = volume.root();
        for name in [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"] {
            let directory = NewNode { kind: Kind::Directory, mode: 0o700, ..new_file() };
            deep = volume.create(deep, name, &directory)?;
        }
        volume.create(deep, b"small", &new_file())?;
        volume.create(volume.root(), b"one", &new_file())?;
        Ok(Self {
            volume,
            file,
            large,
            appended,
            scattered,
            buffer: vec![0xA5; LONGEST_BYTES],
            instructions: Instructions::new(),
        })
    }

    fn count(&mut self, row: Row, counts: &CostCounter) -> Result<Counted, Errno> {
        let mut random = Random::new();
        for call in 0..CALLS {
            self.call(row, call, offset(row, call, &mut random, FILE_BYTES))?;
        }
        let figures =
            [&counts.stores, &counts.flushed_lines, &counts.streamed_bytes, &counts.fences];
        for figure in figures {
            figure.store(0, Ordering::Relaxed);
        }
        let before = self.instructions.read();
        for call in 0..CALLS {
            self.call(row, call, offset(row, call, &mut random, FILE_BYTES))?;
        }
        let after = self.instructions.read();
        let instructions =
            before.zip(after).map(|(before, after)| (after - before) as f64 / CALLS as f64);
        let [stores, flushed_lines, streamed_bytes, fences] =
            figures.map(|figure| figure.load(Ordering::Relaxed) as f64 / CALLS as f64);
        Ok(Counted { row, stores, flushed_lines, streamed_bytes, fences, instructions })
    }

    fn call(&mut self, row: Row, call: u64, offset: u64) -> Result<(), Errno> {
        let volume = &self.volume;
        let buffer = &mut self.buffer[..row.bytes()];
        match row {
            Row::ReadSequential | Row::ReadRandom | Row::Read64K | Row::Read2M => volume
                .read(self.large, &mut [UserOut::new(buffer)], IoOffset::offset(offset))
                .map(drop),
            Row::OverwriteSequential | Row::OverwriteRandom => {
                volume.write(self.large, &[UserIn::new(buffer)], IoOffset::offset(offset)).map(drop)
            }
            Row::OverwriteScattered => volume
                .write(self.scattered, &[UserIn::new(buffer)], IoOffset::offset(offset))
                .map(drop),
            Row::Append4K | Row::Append128 | Row::Append64 => {
                volume.write(self.appended, &[UserIn::new(buffer)], IoOffset::POSITION).map(drop)
            }
            Row::AppendSync => {
                volume.write(self.appended, &[UserIn::new(buffer)], IoOffset::POSITION)?;
                volume.sync(Synced::File(self.appended))
            }
            Row::Rename => {
                let names: [&[u8]; 2] = [b"one", b"two"];
                let [from, to] = [call % 2, 1 - call % 2].map(|at| names[at as usize]);
                let root = volume.root();
                volume.rename(
                    &EntryName::new(root, from),
                    &EntryName::new(root, to),
                    RenameFlags::new(0),
                )
            }
            Row::StatDeep => {
                let mut node = volume.root();
                for name in [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"] {
                    node = volume.lookup(node, name)?;
                }
                volume.attributes(volume.lookup(node, b"small")?).map(drop)
            }
            Row::OpenClose => {
                volume.close(volume.open(self.file.into(), OpenFlags(libc::O_RDWR), None)?)
            }
            Row::CreateCloseUnlink => {
                let node = volume.create(volume.root(), b"new", &new_file())?;
                volume.close(volume.open(node.into(), OpenFlags(libc::O_RDWR), None)?)?;
                volume.remove(&EntryName::new(volume.root(), b"new"), Removes::Name)
            }
            Row::Stat => volume.attributes(volume.lookup(volume.root(), b"large")?).map(drop),
            Row::RecordLock => {
                let end = offset + BLOCK_BYTES as u64 - 1;
                let set = |kind| {
                    let lock = RecordLock { kind, start: offset, end, pid: 0 };
                    volume.record_lock(self.large, LockOwner::Process, &lock, false)
                };
                set(LockKind::Write)?;
                set(LockKind::Unlock)
            }
            // And the rows that only file systems of the kernel have.
            Row::ForeignRead
            | Row::List
            | Row::Open
            | Row::Close
            | Row::Unlink
            | Row::OverwriteSync10
            | Row::AppendSync10
            | Row::AppendSync100
            | Row::AppendSync1000 => Ok(()),
        }
    }
}

fn new_file() -> NewNode<'static> {
    NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" }
}
