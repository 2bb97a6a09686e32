//! One start in one setting: its image, the runs on it, and the images that crashes leave.

use crate::cases::Start;
use crate::content::PAGE;
use crate::engine::Engine;
use crate::model::Model;
use crate::oracle::{free_space, remove_all};
use crate::states::{LINE, Line, Overlay, mix};
use crate::workload::{Action, System, short};
use pmem::trace::Trace;
use pmem::{Class, Hook, Region};
use rustix::fs::MemfdFlags;
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use vfs::FileSystemExt;
use volume::{AttachOptions, FormatOptions, Mode, Volume, attach_region, format_region};

/// Bytes of an explored volume.
pub const VOLUME_SIZE: u64 = 24 << 20;
/// Tells a volume that one thread is its only user.
static ONE_THREAD: AtomicU8 = AtomicU8::new(1);

/// How the process under test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Setting {
    pub mode: Mode,
    pub class: Class,
}

/// What the region holds where only volatile words lie, after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volatile {
    /// What it held before the run.
    Before,
    /// What it held when the call began, or when it had returned.
    Live,
    /// Anything.
    Garbage,
}

/// An image to start from, and the model that agrees with it.
pub struct Image {
    file: OwnedFd,
    /// The image's bytes.
    pub base: Vec<u8>,
    /// Where pages of it are that hold more than zeros: looked for once, not for each copy.
    written: Vec<Range<usize>>,
    /// What the image holds.
    pub model: Model,
    /// Free bytes of an empty volume.
    pub free_when_empty: u64,
    /// The start's name.
    pub name: &'static str,
    /// Of the start.
    pub full: bool,
}

/// A trace, and where volatile words changed.
#[derive(Default)]
pub struct Recorder {
    /// What is persistent.
    pub trace: Trace,
    volatile: Mutex<BTreeSet<u64>>,
}

impl Hook for Recorder {
    fn store(&self, off: u64, bytes: &[u8], streamed: bool, at: &'static Location<'static>) {
        self.trace.store(off, bytes, streamed, at);
    }

    fn flush(&self, off: u64, at: &'static Location<'static>) {
        self.trace.flush(off, at);
    }

    fn fence(&self, at: &'static Location<'static>) {
        self.trace.fence(at);
    }

    fn shared(&self, off: u64) {
        let mut volatile = self.volatile.lock().unwrap_or_else(PoisonError::into_inner);
        volatile.insert(off / LINE * LINE);
    }
}

/// Where a region's bytes can be read and stored without its help.
#[derive(Clone, Copy)]
pub struct Window {
    base: u64,
}

impl Window {
    /// Of a region that is about to be attached and outlives the window's use.
    #[must_use]
    pub fn of(region: &Region) -> Self {
        Self { base: region.base() as u64 }
    }

    /// Stores bytes as a program does through a mapping: the recorder hears of it.
    pub fn poke(&self, recorder: &Recorder, off: u64, bytes: &[u8]) -> std::io::Result<()> {
        recorder.store(off, bytes, false, Location::caller());
        let memory = std::fs::OpenOptions::new().write(true).open("/proc/self/mem")?;
        memory.write_all_at(bytes, self.base + off)
    }

    /// The lines that hold volatile words, as they are now.
    pub fn volatile_lines(&self, recorder: &Recorder) -> std::io::Result<Overlay> {
        let memory = std::fs::File::open("/proc/self/mem")?;
        let lines = recorder.volatile.lock().unwrap_or_else(PoisonError::into_inner);
        let mut overlay = Overlay::new();
        for &line in lines.iter() {
            let mut bytes = [0; LINE as usize];
            memory.read_exact_at(&mut bytes, self.base + line)?;
            overlay.push((line, bytes));
        }
        Ok(overlay)
    }
}

/// This thread runs on one processor while this lives.
pub struct Pinned {
    before: rustix::thread::CpuSet,
    /// What [`os::set_processors`] had said.
    said: usize,
}

impl Pinned {
    /// On the `number`-th of the processors that it may use, counted round; `None` where that
    /// cannot be set.
    #[must_use]
    pub fn to(number: usize) -> Option<Self> {
        let before = rustix::thread::sched_getaffinity(None).ok()?;
        let all: Vec<usize> =
            (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| before.is_set(cpu)).collect();
        let mut one = rustix::thread::CpuSet::new();
        one.set(all[number % all.len().max(1)]);
        rustix::thread::sched_setaffinity(None, &one).ok()?;
        Some(Self { before, said: os::set_processors(1) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = rustix::thread::sched_setaffinity(None, &self.before);
        os::set_processors(self.said);
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Everything that may fail while a volume is made or attached, as text.
pub type Told<T> = Result<T, String>;

/// Writes and deletes files, so that free blocks hold bytes that must never be seen.
fn junk() -> Vec<Action> {
    let mut actions = vec![short::dir("junk"), short::file("junk/big"), short::open("junk/big", 0)];
    actions.push(short::write_at(0, 0xFFFF, 0, 600_000));
    actions.push(short::close(0));
    for n in 0..80 {
        let path = format!("junk/file-{n}");
        actions.extend([short::file(&path), short::open(&path, 0)]);
        actions.push(short::write_at(0, 0xFFFE, 0, 5000));
        actions.extend([short::close(0), short::xattr(&path, "user.junk", 0xFFFD, 100)]);
    }
    actions
}

/// A copy of an image in a file that several attach by its path; gone when this is dropped.
pub struct Placed {
    /// Where it is.
    pub path: PathBuf,
    /// The file: what is stored to it is stored to the memory that the others have mapped.
    pub file: std::fs::File,
}

impl Drop for Placed {
    fn drop(&mut self) {
        let mut anchor = self.path.clone().into_os_string();
        anchor.push(".solera");
        // Mappings that outlive this must not keep the memory.
        let _ = self.file.set_len(0);
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_dir_all(anchor);
    }
}

fn bytes_of(file: &OwnedFd) -> Told<Vec<u8>> {
    let mut bytes = vec![0; VOLUME_SIZE as usize];
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::io::pread(file, &mut bytes[done..], done as u64).map_err(told)?;
    }
    Ok(bytes)
}

/// The runs of pages that hold more than zeros.
fn written(bytes: &[u8]) -> Vec<Range<usize>> {
    const PAGE_BYTES: usize = PAGE as usize;
    static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    let pages: Vec<bool> =
        bytes.chunks(PAGE_BYTES).map(|page| *page != ZEROS[..page.len()]).collect();
    let mut runs = Vec::new();
    let mut at = 0;
    for run in pages.chunk_by(|one, two| one == two) {
        let end = bytes.len().min(at + run.len() * PAGE_BYTES);
        if run[0] {
            runs.push(at..end);
        }
        at = end;
    }
    runs
}

/// Gives back the memory of the pages that hold zeros, as if they had never been stored to: what
/// looks for the first hole finds one soon, and a view maps less.
fn punch_zeros(file: &OwnedFd, written: &[Range<usize>], length: usize) -> Told<()> {
    use rustix::fs::FallocateFlags;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let mut at = 0;
    for run in written.iter().cloned().chain(std::iter::once(length..length)) {
        if at < run.start {
            let (offset, length) = (at as u64, (run.start - at) as u64);
            rustix::fs::fallocate(file, flags, offset, length).map_err(told)?;
        }
        at = run.end;
    }
    Ok(())
}

impl Image {
    /// A copy of the image in a file of its own, and a region over it that stores to the file.
    pub fn copied(&self) -> Told<(OwnedFd, Region)> {
        let file = rustix::fs::memfd_create("copy", MemfdFlags::CLOEXEC).map_err(told)?;
        let mut done = 0;
        while done < self.base.len() {
            done += rustix::io::pwrite(&file, &self.base[done..], done as u64).map_err(told)?;
        }
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let options = pmem::OpenOptions { write: true, ..pmem::OpenOptions::default() };
        let region = Region::open(&path, &options).map_err(told)?;
        Ok((file, region))
    }

    /// A copy of the image in a file with a name.
    pub fn placed(&self) -> Told<Placed> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("solera-lab-{}-{number}.pm", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path).map_err(told)?;
        let placed = Placed { path, file };
        placed.file.set_len(self.base.len() as u64).map_err(told)?;
        for run in &self.written {
            placed.file.write_all_at(&self.base[run.clone()], run.start as u64).map_err(told)?;
        }
        Ok(placed)
    }

    /// The same with other bytes: that of `file`.
    pub fn with_image(&self, file: OwnedFd) -> Told<Self> {
        let (base, model) = (bytes_of(&file)?, self.model.clone());
        let written = written(&base);
        let Self { free_when_empty, name, full, .. } = *self;
        Ok(Self { file, base, written, model, free_when_empty, name, full })
    }

    /// Makes the image: a volume that held other things, then `start`, orderly detached.
    pub fn new(start: &Start) -> Told<Self> {
        let image = Self::sized(start, VOLUME_SIZE)?;
        punch_zeros(&image.file, &image.written, image.base.len())?;
        Ok(image)
    }

    /// As [`Image::new`], but the file keeps the memory that it was given: a format finds no holes
    /// to spare. The volume may be smaller than its file.
    pub fn sized(start: &Start, size: u64) -> Told<Self> {
        Self::formatted(start, size, FormatOptions::default())
    }

    /// A volume as builds before 0.2 made it: without room for what later ones keep.
    pub fn of_earlier(start: &Start) -> Told<Self> {
        let format = FormatOptions { runtime_slack: Some(0), ..FormatOptions::default() };
        Self::formatted(start, VOLUME_SIZE, format)
    }

    fn formatted(start: &Start, size: u64, format: FormatOptions) -> Told<Self> {
        // Which inodes and blocks a call takes is its processor's: the same ones in every image of
        // a start, or a replay finds its failure on other lines.
        let _pinned = Pinned::to(0);
        let file = rustix::fs::memfd_create("image", MemfdFlags::CLOEXEC).map_err(told)?;
        rustix::fs::ftruncate(&file, size).map_err(told)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let options = pmem::OpenOptions { write: true, ..pmem::OpenOptions::default() };
        let open = || Region::open(&path, &options).map_err(told);
        let format = FormatOptions { groups: Some(1), seed: Some(1), ..format };
        format_region(&open()?, &format).map_err(told)?;
        let volume = attach_region(open()?, &AttachOptions::default()).map_err(told)?;
        let free_when_empty = free_space(&volume)?;
        let mut engine = Engine::new(volume.clone());
        for action in junk() {
            engine.apply(&action).map_err(|errno| format!("{action:?}: {errno:?}"))?;
        }
        remove_all(&engine)?;
        if free_space(&volume)? != free_when_empty {
            return Err("removing everything does not free everything".into());
        }
        let mut model = Model::default();
        for action in &start.build {
            let found = engine.apply(action);
            // On a volume that is being filled the model learns what did not fit.
            if !(start.full && found == Err(rustix::io::Errno::NOSPC)) {
                let expected = model.apply(action);
                if found != expected {
                    return Err(format!("building: {action:?}: {found:?}, not {expected:?}"));
                }
            }
        }
        engine.close_all().map_err(told)?;
        model.close_all();
        drop(engine);
        drop(volume);
        rustix::fs::ftruncate(&file, VOLUME_SIZE).map_err(told)?;
        let base = bytes_of(&file)?;
        let written = written(&base);
        Ok(Self { file, base, written, model, free_when_empty, name: start.name, full: start.full })
    }

    /// A private region that starts as the image.
    pub fn region(&self, setting: Setting) -> Told<Region> {
        let file = rustix::io::dup(&self.file).map_err(told)?;
        let mut region = Region::private_view(file).map_err(told)?;
        region.set_class(setting.class);
        Ok(region)
    }

    /// A private region with the image that a crash left.
    pub fn crashed(&self, setting: Setting, overlay: &[(u64, Line)]) -> Told<Region> {
        let region = self.region(setting)?;
        for (line, bytes) in overlay {
            region.shared_write(*line, bytes).map_err(|fault| format!("{fault:?}"))?;
        }
        Ok(region)
    }

    /// Attaches a region, for one thread: after a crash this recovers it.
    pub fn attach(&self, region: Region, setting: Setting) -> Told<Arc<Volume>> {
        Self::attach_as(region, setting, true)
    }

    /// As [`Image::attach`], for several threads.
    pub fn attach_shared(&self, region: Region, setting: Setting) -> Told<Arc<Volume>> {
        Self::attach_as(region, setting, false)
    }

    fn attach_as(region: Region, setting: Setting, alone: bool) -> Told<Arc<Volume>> {
        let options = AttachOptions { mode: setting.mode, ..AttachOptions::default() };
        let volume = attach_region(region, &options).map_err(told)?;
        if alone {
            volume.may_run_exclusively(&ONE_THREAD);
        }
        match volume.statistics() {
            Ok(stat) if stat.read_only => {
                let found = crate::oracle::check_volume(&volume);
                Err(format!("recovery finds damage: {}", found.err().unwrap_or_default()))
            }
            Ok(_) => Ok(volume),
            Err(errno) => Err(format!("statistics give {errno:?}")),
        }
    }
}

/// The volatile lines of a crashed image, in the way that `kind` says.
#[must_use]
pub fn volatile_overlay(kind: Volatile, live: &[(u64, Line)]) -> Overlay {
    match kind {
        Volatile::Before => Overlay::new(),
        Volatile::Live => live.to_vec(),
        Volatile::Garbage => {
            let garbage = |line: u64| {
                let mut bytes = [0; LINE as usize];
                for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
                    word.copy_from_slice(&mix(line + index as u64).to_le_bytes());
                }
                bytes
            };
            live.iter().map(|&(line, _)| (line, garbage(line))).collect()
        }
    }
}
