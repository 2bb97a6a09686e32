//! Other crates' logs beside `flex`'s, each append of 48 bytes durable: `cargo run --release
//! [DIRECTORY]` (default /dev/shm). Prints medians of seven rounds, which take turns.

use std::path::Path;
use std::time::Instant;

use flex::{Log, LogOptions};
use okaywal::{LogVoid, WriteAheadLog};

const CALLS: u32 = 20_000;
const ROUNDS: usize = 7;

fn timed(mut call: impl FnMut()) -> f64 {
    let begun = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let base = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".into());
    let place = Path::new(&base).join(format!("solera-peers-{}", std::process::id()));
    std::fs::create_dir(&place).expect("a directory");
    // A round is more than a lap.
    let options = LogOptions { capacity: 1 << 20, create: true, ..LogOptions::default() };
    let own = Log::open(&place.join("flex"), &options).expect("a log");
    let other = WriteAheadLog::recover(place.join("okaywal"), LogVoid).expect("a log of okaywal");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // Round 0 touches the memory.
    for round in 0..=ROUNDS {
        let own = timed(|| {
            while own.append(&[0x5A; 48]).is_err() {
                own.trim(own.committed()).expect("trimmed");
            }
        });
        let other = timed(|| {
            let mut entry = other.begin_entry().expect("an entry");
            entry.write_chunk(&[0x5A; 48]).expect("written");
            entry.commit().expect("committed");
        });
        if round > 0 {
            ours.push(own);
            theirs.push(other);
        }
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    println!("flex {ours:.0} ns, okaywal {theirs:.0} ns an append of 48 B: {:.3}", ours / theirs);
    drop(other);
    std::fs::remove_dir_all(&place).expect("its directory goes");
}
