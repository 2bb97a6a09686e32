//! `solera age`: does to a file system in minutes what years of use do, and measures the result.
//!
//! A trace of creates, deletes, appends and overwrites is drawn from a profile, or read from a
//! file, and carried out on a volume or in any mounted directory; then the share of huge pages is
//! measured. Space is reserved as `fallocate` does; bytes are written only where the profile is
//! about writing them.

mod consent;
mod measure;
mod picture;
mod profile;
mod target;
mod trace;

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use console::failure::{Failure, Outcome};
use console::file;
use console::output::{self, Progress};
use console::size;
use console::size::percent;
use rustix::io::Errno;
use serde_json::{Value, json};
use solera_bench::AgeArgs;
use volume::Kept;

use measure::{Measures, NEW_FILE};
use profile::{BLOCK, Event, Generator, Plan};
use target::Target;

/// Files of at least this many bytes can hold huge pages.
const LARGE: u64 = 2 << 20;
/// Events between two looks at the progress.
const STRIDE: u64 = 256;

/// What was done to the target.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    creates: u64,
    deletes: u64,
    appends: u64,
    overwrites: u64,
    /// Events that found no space; their files do not exist later on.
    refused: u64,
    allocated_bytes: u64,
}

/// Carries out the events, and knows which files live.
struct Run<'t> {
    target: &'t mut dyn Target,
    asked: String,
    /// Sizes of the files by number; `None`: not there (any more).
    sizes: Vec<Option<u64>>,
    counts: Counts,
    used: u64,
    /// Bytes freed since the target's journal was last written, and the bytes at which it is.
    freed: u64,
    write_journal_at: u64,
    data: Vec<u8>,
}

/// Ages the target, measures, prints.
pub fn run(args: &AgeArgs) -> Outcome {
    let asked = format!("age {}", args.target.display());
    for file in [&args.write_trace, &args.picture].into_iter().flatten() {
        file::check(format!("write {}", file.display()), file)?;
    }
    if volume::is_in_anchor(&args.target) {
        return Err(Failure::new(asked, Kept::Anchor, "name another directory"));
    }
    if !args.yes {
        consent::check(args)?;
    }
    let trace = args.replay.as_deref().map(trace::Reader::open).transpose()?;
    let mut target = target::open(&args.target, args.compaction)?;
    let capacity = match args.capacity {
        Some(bytes) => bytes,
        None => target.capacity().map_err(|errno| target.failure(&asked, errno))?,
    };
    let made = target.make_directories(&profile::directories());
    made.map_err(|errno| target.failure(&asked, errno))?;
    let begun = Instant::now();
    let mut run = Run {
        target: &mut *target,
        asked: asked.clone(),
        sizes: Vec::new(),
        counts: Counts::default(),
        used: 0,
        freed: 0,
        write_journal_at: (capacity / 100).max(BLOCK),
        data: vec![0x5A; 1 << 20],
    };
    let plan = plan(args, capacity);
    match trace {
        Some(trace) => run.replay(trace)?,
        None => run.generate(&plan, args.write_trace.as_deref())?,
    }
    let (counts, used, sizes) = (run.counts, run.used, run.sizes);
    let took = begun.elapsed();
    if let Some(path) = &args.picture {
        let free = target.free_space().map_err(|errno| target.failure(&asked, errno))?;
        let name = args.target.file_name().unwrap_or_default().to_string_lossy();
        picture::write(path, &name, free.as_deref())?;
    }
    let large: Vec<(u64, u64)> = (0..)
        .zip(&sizes)
        .filter_map(|(number, size)| size.filter(|size| *size >= LARGE).map(|size| (number, size)))
        .collect();
    let mut progress = Progress::new("measuring");
    let measures = measure::measure(&mut *target, &large, sizes.len() as u64, &mut |done, of| {
        progress.update(done, of);
    });
    drop(progress);
    let measures = measures.map_err(|errno| target.failure(&asked, errno))?;
    let moved = target.moved_bytes();
    let live = sizes.iter().flatten().count() as u64;
    let result = Result { plan, counts, used, live, took, measures, moved };
    if args.json {
        output::emit_json(&result.to_json(args))?;
    } else {
        output::emit(result.to_text().as_bytes())?;
    }
    Ok(0)
}

fn plan(args: &AgeArgs, capacity: u64) -> Plan {
    Plan {
        profile: args.profile,
        sizes: args.sizes,
        capacity,
        utilisation: (args.utilisation * 1000.0).round() as u64,
        churn: (args.churn * 10.0).round() as u64,
        seed: args.seed,
    }
}

impl Run<'_> {
    fn generate(&mut self, plan: &Plan, keep: Option<&Path>) -> std::result::Result<(), Failure> {
        let origin = format!(
            "profile={:?} sizes={:?} capacity={} utilisation={} churn={} seed={}",
            plan.profile,
            plan.sizes,
            plan.capacity,
            plan.utilisation as f64 / 1000.0,
            plan.churn as f64 / 10.0,
            plan.seed
        );
        let mut writer = match keep {
            Some(path) => Some(trace::Writer::create(path, &origin)?),
            None => None,
        };
        let failed = |error: std::io::Error| Failure::io("write the trace", &error);
        let mut generator = Generator::new(plan);
        let mut progress = Progress::new("ageing");
        let mut events = 0;
        while let Some(event) = generator.next() {
            if let Some(writer) = &mut writer {
                writer.add(event).map_err(failed)?;
            }
            self.play(event)?;
            events += 1;
            if events % STRIDE == 0 {
                progress.update(generator.progress(), 1000);
            }
        }
        writer.map_or(Ok(()), trace::Writer::finish).map_err(failed)
    }

    fn replay(&mut self, mut reader: trace::Reader) -> std::result::Result<(), Failure> {
        let mut progress = Progress::new("ageing");
        let mut events = 0;
        while let Some(event) = reader.next() {
            self.play(event?)?;
            events += 1;
            if events % STRIDE == 0 {
                progress.update(reader.progress(), 1000);
            }
        }
        Ok(())
    }

    /// One event. An event that finds no space is left out, and counted.
    fn play(&mut self, event: Event) -> std::result::Result<(), Failure> {
        match self.carry_out(event) {
            Ok(()) => {}
            Err(Errno::NOSPC) => self.counts.refused += 1,
            Err(errno) => return Err(self.target.failure(&self.asked, errno)),
        }
        if self.freed >= self.write_journal_at {
            self.freed = 0;
            self.target.write_journal().map_err(|errno| self.target.failure(&self.asked, errno))?;
        }
        Ok(())
    }

    fn carry_out(&mut self, event: Event) -> std::result::Result<(), Errno> {
        match event {
            Event::Create { dir, size } => {
                let number = self.sizes.len() as u64;
                self.sizes.push(None);
                self.target.create(number, dir, size)?;
                self.sizes[number as usize] = Some(size);
                self.counts.creates += 1;
                self.grow(0, size);
            }
            Event::Append { file, bytes } => {
                let Some(size) = self.size_of(file) else { return Ok(()) };
                let mut left = bytes;
                while left > 0 {
                    let piece = left.min(self.data.len() as u64);
                    self.target.write(file, None, &self.data[..piece as usize])?;
                    left -= piece;
                }
                self.sizes[file as usize] = Some(size + bytes);
                self.counts.appends += 1;
                self.grow(size, size + bytes);
            }
            Event::Overwrite { file, offset, bytes } => {
                let Some(size) = self.size_of(file) else { return Ok(()) };
                let bytes = bytes.min(self.data.len() as u64).min(size.saturating_sub(offset));
                self.target.write(file, Some(offset), &self.data[..bytes as usize])?;
                self.counts.overwrites += 1;
            }
            Event::Delete { file } => {
                let Some(size) = self.size_of(file) else { return Ok(()) };
                self.target.remove(file)?;
                self.sizes[file as usize] = None;
                self.counts.deletes += 1;
                self.freed += size;
                self.used -= size.div_ceil(BLOCK) * BLOCK;
            }
        }
        Ok(())
    }

    fn size_of(&self, file: u64) -> Option<u64> {
        self.sizes.get(file as usize).copied().flatten()
    }

    fn grow(&mut self, from: u64, to: u64) {
        let blocks = (to.div_ceil(BLOCK) - from.div_ceil(BLOCK)) * BLOCK;
        self.used += blocks;
        self.counts.allocated_bytes += blocks;
    }
}

/// All that is printed.
struct Result {
    plan: Plan,
    counts: Counts,
    used: u64,
    live: u64,
    took: Duration,
    measures: Measures,
    moved: u64,
}

impl Result {
    fn to_json(&self, args: &AgeArgs) -> Value {
        let (plan, counts, measures) = (&self.plan, &self.counts, &self.measures);
        json!({
            "target": args.target.display().to_string(),
            "profile": format!("{:?}", plan.profile).to_lowercase(),
            "sizes": format!("{:?}", plan.sizes).to_lowercase(),
            "seed": plan.seed,
            "capacity_bytes": plan.capacity,
            "used_bytes": self.used,
            "files": self.live,
            "creates": counts.creates,
            "deletes": counts.deletes,
            "appends": counts.appends,
            "overwrites": counts.overwrites,
            "refused": counts.refused,
            "allocated_bytes": counts.allocated_bytes,
            "seconds": self.took.as_secs_f64(),
            "free_bytes": measures.free_bytes,
            "aligned_free_pct": measures.aligned_free_pct,
            "new_file_huge_pct": measures.new_file_huge_pct,
            "new_file_bytes": measures.new_file_bytes,
            "new_max_file_huge_pct": measures.new_max_file_huge_pct,
            "new_max_file_bytes": measures.new_max_file_bytes,
            "live_huge_pct": measures.live_huge_pct,
            "live_whole_chunk_bytes": measures.live_bytes,
            "moved_bytes": self.moved,
        })
    }

    fn to_text(&self) -> String {
        let (counts, measures) = (&self.counts, &self.measures);
        let mut text = format!(
            "{} files, {} ({:.1} % of {}); {} creates, {} deletes, {} appends, {} overwrites, \
             {} refused for want of space; {} allocated in {:.1?}\n",
            self.live,
            size::show(self.used),
            percent(self.used, self.plan.capacity),
            size::show(self.plan.capacity),
            counts.creates,
            counts.deletes,
            counts.appends,
            counts.overwrites,
            counts.refused,
            size::show(counts.allocated_bytes),
            self.took,
        );
        let row = |name: &str, value: Option<f64>| {
            let value = value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} %"));
            vec![name.to_owned(), value]
        };
        let new = match measures.new_file_bytes {
            NEW_FILE => "(b) of a new file of 512 MiB".to_owned(),
            less => format!("(b) of a new file of {}: 512 MiB do not fit", size::show(less)),
        };
        let large = format!("(c) of a new file of {}", size::show(measures.new_max_file_bytes));
        let rows = [
            row("(a) of the free space, in whole aligned 2 MiB", measures.aligned_free_pct),
            row(&new, measures.new_file_huge_pct),
            row(&large, measures.new_max_file_huge_pct),
            row("(d) of the live files of 2 MiB and more", measures.live_huge_pct),
        ];
        text.push_str(&output::table(&["can be huge pages", ""], &rows));
        if self.moved > 0 {
            let share = percent(self.moved, counts.allocated_bytes);
            let moved = size::show(self.moved);
            let _ = writeln!(text, "{moved} moved to keep chunks whole, {share:.2} % of the above");
        }
        text
    }
}
