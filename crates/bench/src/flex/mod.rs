//! `solera bench flex`: the explicit library beside the memory's own limit, libpmemlog, and the
//! system calls that a program would make instead.

mod pmemlog;
mod workers;

use std::time::Instant;

use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use pmem::Class;
use serde_json::json;
use solera_bench::FlexBenchArgs;

use crate::harness::scratch::ScratchDirectory;
use crate::harness::statistics::median_and_spread;
use workers::Worker;

/// One thing that is measured, by its name in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Workload {
    LimitLine,
    LimitPage,
    Append(usize),
    Puts,
    TwoThreads,
    PmemLog(usize),
    WriteSync(usize),
    FileAppend,
    FileOverwrite,
    OverwriteSync,
    Persist,
    Msync,
}

impl Workload {
    const ALL: [Self; 15] = [
        Self::LimitLine,
        Self::LimitPage,
        Self::Append(SMALL),
        Self::PmemLog(SMALL),
        Self::WriteSync(SMALL),
        Self::Append(LARGE),
        Self::PmemLog(LARGE),
        Self::WriteSync(LARGE),
        Self::Puts,
        Self::TwoThreads,
        Self::FileAppend,
        Self::FileOverwrite,
        Self::OverwriteSync,
        Self::Persist,
        Self::Msync,
    ];

    fn name(self) -> String {
        match self {
            Self::LimitLine => "a line streamed and fenced".to_owned(),
            Self::LimitPage => "4 KiB streamed and fenced".to_owned(),
            Self::Append(bytes) => format!("log, append {bytes} B"),
            Self::Puts => "log, 16 puts of 48 B and a commit, a record".to_owned(),
            Self::TwoThreads => "log, append 48 B by two threads, an append".to_owned(),
            Self::PmemLog(bytes) => format!("libpmemlog, append {bytes} B"),
            Self::WriteSync(bytes) => format!("write {bytes} B + fdatasync"),
            Self::FileAppend => "file, append 4 KiB, steps of 2 MiB".to_owned(),
            Self::FileOverwrite => "file, overwrite 4 KiB".to_owned(),
            Self::OverwriteSync => "pwrite 4 KiB + fdatasync".to_owned(),
            Self::Persist => "file, store and persist 64 B".to_owned(),
            Self::Msync => "store 64 B and msync its page".to_owned(),
        }
    }
}

/// Payload bytes of the log's rows: a record is a line, or 4 KiB.
const SMALL: usize = 48;
const LARGE: usize = 4080;

/// A target: the first takes at most so many times what the second takes.
const TARGETS: [(Workload, Workload, f64); 13] = [
    (Workload::Append(SMALL), Workload::LimitLine, 1.35),
    (Workload::Append(SMALL), Workload::PmemLog(SMALL), 1.0 / 2.5),
    (Workload::Append(SMALL), Workload::WriteSync(SMALL), 0.2),
    (Workload::Append(LARGE), Workload::LimitPage, 1.15),
    (Workload::Append(LARGE), Workload::PmemLog(LARGE), 1.0 / 1.4),
    (Workload::Append(LARGE), Workload::WriteSync(LARGE), 1.0 / 6.0),
    (Workload::Puts, Workload::Append(SMALL), 0.6),
    (Workload::TwoThreads, Workload::Append(SMALL), 1.0 / 1.3),
    (Workload::FileAppend, Workload::LimitPage, 1.2),
    (Workload::FileAppend, Workload::WriteSync(LARGE), 0.2),
    (Workload::FileOverwrite, Workload::LimitPage, 1.2),
    (Workload::FileOverwrite, Workload::OverwriteSync, 1.0 / 3.0),
    (Workload::Persist, Workload::Msync, 0.5),
];

/// Measures all rows and prints the tables.
pub fn run(args: &FlexBenchArgs) -> Outcome {
    let made =
        ScratchDirectory(args.place.join(format!("solera-bench-flex-{}", std::process::id())));
    std::fs::create_dir(&made.0)
        .map_err(|error| Failure::new(format!("make {}", made.0.display()), error, ""))?;
    let place = flex::Place::open(&made.0, true)
        .map_err(|error| Failure::new("measure there", error, "give another --place"))?;
    let (class, why) = place.class();
    if class == Class::Page {
        let advice = "give the directory of a tmpfs, or one with DAX, with --place";
        return Err(Failure::new("measure there", why, advice).code(2));
    }
    let mut measured = Vec::new();
    for workload in Workload::ALL {
        if let Some(worker) = Worker::new(workload, &made.0, &place)? {
            measured.push((workload, worker, Vec::new()));
        }
    }
    let mut progress = Progress::new("measuring");
    // Round 0 touches the memory.
    let rounds = u64::from(args.repeat) + 1;
    for round in 0..rounds {
        let count = measured.len() as u64;
        for (index, (_, worker, times)) in measured.iter_mut().enumerate() {
            worker.prepare()?;
            let begun = Instant::now();
            let calls = worker.work()?;
            if round > 0 {
                times.push(begun.elapsed().as_nanos() as f64 / calls as f64);
            }
            progress.update(round * count + index as u64 + 1, rounds * count);
        }
    }
    drop(progress);
    let times: Vec<(Workload, f64, f64)> = measured
        .iter()
        .map(|(workload, _, times)| {
            let (median, spread) = median_and_spread(times);
            (*workload, median, spread)
        })
        .collect();
    if args.json { print_json(args, class, &times) } else { print_text(args, class, why, &times) }
}

/// What a target reached.
fn reached(times: &[(Workload, f64, f64)], own: Workload, peer: Workload) -> Option<f64> {
    let of = |wanted| {
        times.iter().find(|(workload, ..)| *workload == wanted).map(|(_, median, _)| *median)
    };
    Some(of(own)? / of(peer)?)
}

fn print_json(args: &FlexBenchArgs, class: Class, times: &[(Workload, f64, f64)]) -> Outcome {
    let rows: Vec<_> = times
        .iter()
        .map(|(workload, median, spread)| {
            json!({ "row": workload.name(), "ns": median, "spread_percent": spread })
        })
        .collect();
    let targets: Vec<_> = TARGETS
        .iter()
        .map(|(own, peer, most)| {
            let reached = reached(times, *own, *peer);
            json!({
                "row": own.name(), "peer": peer.name(), "at_most": most, "reached": reached,
                "met": reached.map(|reached| reached <= *most),
            })
        })
        .collect();
    output::emit_json(&json!({
        "class": class.to_string(), "repeat": args.repeat, "rows": rows, "targets": targets,
    }))?;
    Ok(0)
}

fn print_text(
    args: &FlexBenchArgs,
    class: Class,
    why: &str,
    times: &[(Workload, f64, f64)],
) -> Outcome {
    let rows: Vec<Vec<String>> = times
        .iter()
        .map(|(workload, median, spread)| {
            vec![workload.name(), format!("{median:.0} ({spread:.0} %)")]
        })
        .collect();
    let targets: Vec<Vec<String>> = TARGETS
        .iter()
        .map(|(own, peer, most)| {
            let found = match reached(times, *own, *peer) {
                Some(ratio) if ratio <= *most => format!("{ratio:.2}, met"),
                Some(ratio) => format!("{ratio:.2}, missed"),
                None => "not measured".to_owned(),
            };
            vec![own.name(), peer.name(), format!("{most:.2}"), found]
        })
        .collect();
    let text = format!(
        "{}\n{}\nclass {class} ({why}), median of {}; x: time of the row over the other's\n",
        output::table(&["", "ns (spread)"], &rows),
        output::table(&["", "x", "at most", "reached"], &targets),
        args.repeat,
    );
    output::emit(text.as_bytes())?;
    Ok(0)
}
