//! The process that measures one model: it attaches the volume once, and lays the cache over that.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use console::failure::{Failure, Outcome};
use console::output;
use flac::{CHUNK, Cached, Options, Spawn, VolumeId};
use solera_bench::FlacWorkerArgs;
use vfs::{Desc, EntryName, FileSystem, IoOffset, Kind, NewNode, Open, OpenFlags, UserIn, UserOut};
use volume::{AttachOptions, FormatOptions, Volume};

use super::reads::{self, Copies, Source};
use super::rows::{Peer, Rows};
use super::{attachment, programs, testbed, writes};
use crate::harness::bound::Bound;
use crate::worker::row::Random;

/// The name of the file that is read.
pub const FILE: &str = "file";
/// The most that a cache may add to the start of a process, in microseconds.
const START_US: f64 = 100.0;

/// Both sides: the engine, and the cache over it.
pub struct Bench {
    pub directory: PathBuf,
    pub size: u64,
    volume: Arc<Volume>,
    cache: Cached,
    /// The same cache, as a program's under `--attach`, if the kernel can do that.
    attaching: Option<Cached>,
    /// The same, filled ahead of readers.
    ahead: Cached,
    whose: VolumeId,
    file: Desc,
}

/// Measures all rows and prints JSON.
pub fn run(args: &FlacWorkerArgs) -> Outcome {
    let mut rows = Rows::new(args.memory, args.repeat, args.size as usize);
    let path = testbed::volume(&args.place);
    volume::format(&path, &FormatOptions { force: true, ..FormatOptions::default() })?;
    starts(args, &mut rows)?;
    let contents = contents(args.size);
    let bench = Bench::open(args, &contents)?;
    let mut copies = Copies::make(&args.place, &contents, &mut rows)?;
    drop(contents);
    reads::hits(&bench, &mut copies, &mut rows)?;
    attachment::all(&bench, &copies, &mut rows)?;
    reads::patterns(&bench, &copies, &mut rows)?;
    programs::all(&bench, &mut rows)?;
    programs::writing(&bench, &mut rows)?;
    reads::misses(&bench, &copies, &mut rows)?;
    writes::all(&bench, &mut rows)?;
    output::emit_json(&rows.into_json())?;
    Ok(0)
}

/// Lines of letters: what `grep` takes for a text.
fn contents(size: u64) -> Vec<u8> {
    let mut random = Random::new();
    let mut bytes = Vec::with_capacity(size as usize);
    bytes.extend_from_slice(b"needle\n");
    while (bytes.len() as u64) < size {
        let letter = if bytes.len() % 64 == 63 { b'\n' } else { b'a' + random.below(13) as u8 };
        bytes.push(letter);
    }
    bytes
}

fn attach(args: &FlacWorkerArgs) -> Result<Arc<Volume>, Failure> {
    Ok(volume::attach(&testbed::volume(&args.place), &AttachOptions::default())?)
}

fn lay_over(
    args: &FlacWorkerArgs,
    volume: &Arc<Volume>,
    (attach, ahead): (Option<u64>, Option<Spawn>),
) -> Result<(Cached, VolumeId), Failure> {
    let (uuid, owner) =
        volume.uuid_and_owner().map_err(|errno| Failure::errno("look at the volume", errno))?;
    let whose = VolumeId { uuid, owner };
    let place = Some(testbed::cache(&args.place));
    let options = Options {
        budget: budget(args.size),
        place,
        whose: whose.clone(),
        attach,
        ahead,
        told: |_, _| {},
    };
    let cache = Cached::over(Arc::clone(volume) as _, &options)
        .map_err(|found| Failure::new("make a cache", found, ""))?;
    Ok((cache, whose))
}

/// Room for all files.
const fn budget(size: u64) -> u64 {
    4 * size
}

/// What a cache adds to the start of a process that nobody is attached beside.
fn starts(args: &FlacWorkerArgs, rows: &mut Rows) -> Result<(), Failure> {
    let alone = || {
        let begun = Instant::now();
        let volume = attach(args)?;
        let took = begun.elapsed();
        drop(volume);
        Ok(took.as_nanos() as f64)
    };
    let cached = || {
        let begun = Instant::now();
        let volume = attach(args)?;
        let cache = lay_over(args, &volume, (None, None))?;
        let took = begun.elapsed();
        drop((cache, volume));
        Ok(took.as_nanos() as f64)
    };
    for (name, found) in [("start, a new cache", false), ("start, a cache that is there", true)] {
        // Whoever was there before without the cache has made it void.
        let before = || if found { cached() } else { alone() };
        let own = Box::new(|_: &mut [u8]| before().and_then(|_| cached()));
        let peer = Box::new(|_: &mut [u8]| alone().and_then(|_| alone()));
        rows.measure(name, own, vec![Peer::new("attach", Bound::More(START_US), peer)])?;
    }
    Ok(())
}

impl Bench {
    fn open(args: &FlacWorkerArgs, contents: &[u8]) -> Result<Self, Failure> {
        let volume = attach(args)?;
        let (cache, whose) = lay_over(args, &volume, (None, None))?;
        // No descriptor of this process is a program's.
        let attaching = match flac::program::begin(|_| true) {
            Ok(()) => Some(lay_over(args, &volume, (Some(CHUNK), None))?.0),
            Err(_) => None,
        };
        let spawn: Spawn = |run| std::thread::Builder::new().spawn(run).is_ok();
        let ahead = lay_over(args, &volume, (None, Some(spawn)))?.0;
        let file = make(&*volume, FILE.as_bytes(), contents)?;
        let directory = args.place.clone();
        Ok(Self { directory, size: args.size, volume, cache, attaching, ahead, whose, file })
    }

    /// The engine without the cache.
    pub fn volume(&self) -> &dyn FileSystem {
        &*self.volume
    }

    /// The cache over it.
    pub fn cache(&self) -> &dyn FileSystem {
        &self.cache
    }

    /// The file, by the engine.
    pub fn engine(&self) -> Source<'_> {
        Source::Engine(self.volume(), self.file)
    }

    /// The file, by the cache that attaches.
    pub fn attaching(&self) -> Option<Source<'_>> {
        self.attaching.as_ref().map(|cache| Source::Engine(cache, self.file))
    }

    /// The file, by the cache that is filled ahead.
    pub fn ahead(&self) -> Source<'_> {
        Source::Engine(&self.ahead, self.file)
    }

    /// The file, by the cache.
    pub fn cached(&self) -> Source<'_> {
        Source::Engine(self.cache(), self.file)
    }

    pub fn budget(&self) -> u64 {
        budget(self.size)
    }

    /// Takes the file out of the cache.
    pub fn forget(&self) -> Result<(), Failure> {
        let (node, _) = self
            .volume
            .describe(self.file)
            .map_err(|errno| Failure::errno("look at the file", errno))?;
        let place = testbed::cache(&self.directory);
        flac::drop_file(&self.whose, Some(&place), node)
            .map(drop)
            .map_err(|found| Failure::new("empty the cache", found, ""))
    }

    /// Makes another file of the same size.
    pub fn file(&self, name: &[u8]) -> Result<Desc, Failure> {
        make(self.volume(), name, &vec![b'\n'; self.size as usize])
    }

    /// Reads a file by chunks.
    pub fn read_all(
        &self,
        fs: &dyn FileSystem,
        desc: Desc,
        buffer: &mut [u8],
    ) -> Result<(), Failure> {
        for chunk in 0..self.size / CHUNK {
            let into = &mut buffer[..CHUNK as usize];
            fs.read(desc, &mut [UserOut::new(into)], IoOffset::offset(chunk * CHUNK))
                .map_err(|errno| Failure::errno("read on the volume", errno))?;
        }
        Ok(())
    }
}

/// Makes a file in the root, open for reading and writing.
fn make(fs: &dyn FileSystem, name: &[u8], contents: &[u8]) -> Result<Desc, Failure> {
    let failed = |errno| Failure::errno("make a file on the volume", errno);
    let new = NewNode { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: b"" };
    let at = EntryName::new(fs.root(), name);
    let desc = fs.open(Open::New(&at, &new), OpenFlags(libc::O_RDWR), None).map_err(failed)?;
    for (chunk, bytes) in contents.chunks(CHUNK as usize).enumerate() {
        let at = IoOffset::offset(chunk as u64 * CHUNK);
        fs.write(desc, &[UserIn::new(bytes)], at).map_err(failed)?;
    }
    Ok(desc)
}
