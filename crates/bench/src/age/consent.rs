//! Ageing anything but an empty volume must be agreed to: it writes many times what it leaves, and
//! leaves most of the capacity in use.

use console::attachment::AttachedVolume;
use console::failure::Failure;
use console::size;
use rustix::fs::statvfs;
use rustix::io::Errno;
use solera_bench::AgeArgs;
use vfs::{FileSystem, FileSystemExt};
use volume::Volume;

use super::plan;
use super::profile::{BLOCK, Event, Generator, Plan};
use super::trace;

/// The exit code where --yes is missing.
const CODE_USAGE: u8 = 2;

/// Capacities up to this are simulated event by event; larger ones are estimated from this.
const SAMPLE: u64 = 4 << 30;

/// Bytes that a trace leaves in use, and those that it allocates or writes on the way.
#[derive(Default)]
struct Weight {
    left: u64,
    written: u64,
}

impl Weight {
    fn add(&mut self, left: u64, written: u64) {
        self.left = self.left.saturating_add(left);
        self.written = self.written.saturating_add(written);
    }
}

/// Refuses, unless the target is an empty volume. Nothing is changed.
pub fn check(args: &AgeArgs) -> Result<(), Failure> {
    let asked = format!("age {}", args.target.display());
    let failed = |errno| Failure::errno(&asked, errno);
    let (capacity, what) = if args.target.is_dir() {
        let stat = statvfs(&args.target).map_err(failed)?;
        (stat.f_blocks * stat.f_frsize, "it is a directory, not a volume of its own")
    } else {
        let volume = AttachedVolume::attach_to_read(&args.target)?;
        if is_empty(&volume).map_err(failed)? {
            return Ok(());
        }
        let stat = volume.statistics().map_err(failed)?;
        (stat.blocks * stat.block_size, "there are files on this volume")
    };
    let plan = plan(args, args.capacity.unwrap_or(capacity));
    let weight = match &args.replay {
        Some(path) => weigh(trace::Reader::open(path)?)?,
        None => forecast(&plan)?,
    };
    let found = format!(
        "{what}; files would fill about {} of {} there, by writing {}; 95 % of what is free then \
         would be taken for a moment, to measure",
        size::show(weight.left),
        size::show(plan.capacity),
        size::show(weight.written),
    );
    Err(Failure::new(asked, found, "say --yes if that may be").code(CODE_USAGE))
}

/// Whether there is no file on a volume.
fn is_empty(volume: &Volume) -> Result<bool, Errno> {
    let mut is_empty = true;
    volume.read_dir(volume.root(), 0, &mut |entry| {
        is_empty = entry.name == b"." || entry.name == b"..";
        is_empty
    })?;
    Ok(is_empty)
}

/// What a plan will take: a large one in proportion to a smaller one.
fn forecast(plan: &Plan) -> Result<Weight, Failure> {
    let sample = Plan { capacity: plan.capacity.min(SAMPLE), ..*plan };
    let weight = weigh(Generator::new(&sample).map(Ok))?;
    let scaled = |bytes: u64| {
        let bytes =
            u128::from(bytes) * u128::from(plan.capacity) / u128::from(sample.capacity.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    };
    Ok(Weight { left: scaled(weight.left), written: scaled(weight.written) })
}

fn weigh(events: impl Iterator<Item = Result<Event, Failure>>) -> Result<Weight, Failure> {
    let mut weight = Weight::default();
    let mut sizes: Vec<u64> = Vec::new();
    let blocks = |bytes: u64| bytes.div_ceil(BLOCK).saturating_mul(BLOCK);
    for event in events {
        match event? {
            Event::Create { size, .. } => {
                sizes.push(size);
                weight.add(blocks(size), blocks(size));
            }
            Event::Append { file, bytes } => {
                let size = &mut sizes[file as usize];
                let grown = size.saturating_add(bytes);
                weight.add(blocks(grown) - blocks(*size), bytes);
                *size = grown;
            }
            Event::Overwrite { bytes, .. } => weight.add(0, bytes),
            Event::Delete { file } => {
                let freed = blocks(std::mem::take(&mut sizes[file as usize]));
                weight.left = weight.left.saturating_sub(freed);
            }
        }
    }
    Ok(weight)
}
