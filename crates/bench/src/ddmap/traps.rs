//! Touches of pages that are here: they take no message. Who serves them makes all the difference,
//! and whether processors sleep meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use console::failure::Failure;
use serde_json::json;

use super::fault_thread;
use super::rows::{Rows, Target};
use super::steps::{Bench, in_us, middle_and_tail};
use super::testbed::{FILE, Testbed, VolumeKind};

/// Touches of each kind in a round.
const COUNT: usize = 500;
/// How long a processor is left alone until it sleeps.
const REST: Duration = Duration::from_micros(300);

struct Trap {
    row: &'static str,
    stores: bool,
    busy: bool,
}

const TRAPS: [Trap; 4] = [
    Trap { row: "page here, not mapped, busy: p50", stores: false, busy: true },
    Trap { row: "page here, not mapped, idle: p50", stores: false, busy: false },
    Trap { row: "store to a protected page, busy: p50", stores: true, busy: true },
    Trap { row: "store to a protected page, idle: p50", stores: true, busy: false },
];

/// Keeps each processor from sleeping, and gives it to any thread that wants it.
struct Spinners {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spinners {
    fn new() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let spin = |_| {
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || {
                let least = libc::sched_param { sched_priority: 0 };
                // SAFETY: of this thread alone; the structure outlives the call.
                let set =
                    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const least) };
                while set == 0 && !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..std::thread::available_parallelism().map_or(1, usize::from)).map(spin);
        let threads = threads.collect();
        Self { ends, threads }
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It cannot fail.
            let _ = thread.join();
        }
    }
}

/// All of them, by a program and by a thread that serves.
pub fn measure(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Failure> {
    let mut program = bench.testbed().program(VolumeKind::Large(false))?;
    for Trap { row, stores, busy } in &TRAPS {
        let spinning = busy.then(Spinners::new);
        let (pause, least) = if *busy { (Duration::ZERO, 0.7) } else { (REST, 0.2) };
        let told = program.ask(&json!({
            "do": "trapped", "file": Testbed::at(FILE), "stores": stores, "count": COUNT,
            "pause_us": pause.as_micros() as u64,
        }))?;
        rows.add(row, "us", middle_and_tail(&mut in_us(&told))[0]);
        if bench.by_thread {
            match fault_thread::traps(*stores, COUNT, pause) {
                Ok(mut times) => {
                    let value = middle_and_tail(&mut times)[0];
                    rows.beside(row, "thread", Target::AtMost(least), value);
                }
                Err(error) => bench.without_thread(&error, rows)?,
            }
        }
        drop(spinning);
    }
    Ok(())
}
