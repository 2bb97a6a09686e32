//! Touching a freshly mapped file takes one page fault for each 2 MiB and a few besides, on a
//! volume of any age. With `SOLERA_TEST_LONG`: a file of 1 GiB on a volume of 8 GiB after the whole
//! life of the literature.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{TestDir, compiled, solera};

/// A tmpfs of huge pages that goes when the test ends; `None` where it cannot be mounted.
struct HugePages(PathBuf);

impl HugePages {
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).expect("a directory to mount on");
        let options = ["-t", "tmpfs", "-o", "huge=always,size=90%", "none"];
        let mount = Command::new("mount").args(options).arg(at).output().ok()?;
        mount.status.success().then(|| Self(at.to_path_buf()))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// How often the kernel had no huge page for a file.
fn fallbacks() -> String {
    let all = std::fs::read_to_string("/proc/vmstat").expect("/proc/vmstat");
    all.lines().filter(|line| line.starts_with("thp_file_fallback")).collect()
}

/// Memory that can be had, in MiB.
fn available_mib() -> u64 {
    let all = std::fs::read_to_string("/proc/meminfo").expect("/proc/meminfo");
    let line = all.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let number = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    number.expect("a number of kB") >> 10
}

#[test]
fn a_mapped_file_takes_one_fault_for_each_chunk_on_an_aged_volume() {
    let long = std::env::var_os("SOLERA_TEST_LONG").is_some();
    let (size, churn, utilisation, mib) =
        if long { ("8G", "38.5", "0.8", 1024) } else { ("1G", "4", "0.7", 192) };
    let denied = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
        .is_ok_and(|text| text.contains("[deny]"));
    if denied || available_mib() < if long { 9 << 10 } else { 2 << 10 } {
        eprintln!("skipped: huge pages are denied here, or too little memory is free");
        return;
    }
    let place = TestDir::new();
    let Some(pages) = HugePages::mount(&place.path("huge")) else {
        eprintln!("skipped: no tmpfs can be mounted here");
        return;
    };
    let program = compiled("preload/tests/c/faults.c", &[]);
    let volume = pages.0.join("v.pm");
    let volume = volume.to_str().expect("our own names are UTF-8");
    solera(["format", "--size", size, volume]).ok();
    let before = fallbacks();
    let aged = solera(["age", "--json", "--churn", churn, "--utilisation", utilisation, volume]);
    let aged = aged.json();
    let at = place.prefix();
    let said =
        solera(["run", "--volume", volume, "--at", &at, "--", &program, &at, &mib.to_string()]);
    let said = said.ok();
    eprintln!("{said}aligned_free_pct {}", aged["aligned_free_pct"]);
    assert_eq!(said.lines().count(), 3, "{said}");
    if fallbacks() != before {
        eprintln!("skipped: the machine's memory lies in pieces");
        return;
    }
    for line in said.lines() {
        let (what, count) = line.split_once(' ').expect("a word and a number");
        let count: u64 = count.parse().expect("a number");
        assert!(count <= mib / 2 + 8, "{what}: {count} faults for {mib} MiB");
    }
    solera(["fsck", volume]).ok();
}
