//! Deadlines go by the monotonic clock: a clock that is set back a day delays nobody, and ends
//! nothing early. The wall clock is set for the whole machine, so this reads the sources.

use std::path::{Path, PathBuf};

fn sources(folder: &Path, to: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, to);
        } else if path.extension().is_some_and(|end| end == "rs") {
            to.push(path);
        }
    }
}

#[test]
fn no_deadline_goes_by_the_wall_clock() {
    let mut all = Vec::new();
    for crate_of in ["ddmap", "robust", "pmem"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_of).join("src");
        sources(&folder, &mut all);
    }
    assert!(all.len() > 80, "{} sources", all.len());
    let (mut monotonic, mut wall) = (0, Vec::new());
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        let reads = ["Instant::now()", "now_ns()", "Monotonic"];
        monotonic += reads.iter().map(|name| text.matches(name).count()).sum::<usize>();
        for name in ["SystemTime", "Realtime", "CLOCK_REALTIME", "gettimeofday", "CLOCK_TAI"] {
            if text.contains(name) {
                wall.push((path.clone(), name));
            }
        }
    }
    assert!(monotonic > 30, "{monotonic} places read the monotonic clock");
    assert!(wall.is_empty(), "{wall:?}");
}
