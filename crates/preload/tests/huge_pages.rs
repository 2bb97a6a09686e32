//! Mapped files on huge pages: how often the kernel is asked for pages, and what there is where
//! memory has pages of 2 MiB only.
//!
//! Both look at the machine's free memory, which others that run beside them would take: so they
//! have a program of their own, which `scripts/units.py` runs alone.

mod support;

use std::path::Path;
use std::process::Command;

use rustix::mm::{Advice, MapFlags, ProtFlags};
use support::{PREFIX, TestDir, check_left_in_order, compile, run, text};

/// A tmpfs of huge pages that goes when the test ends; `None` where it cannot be mounted.
struct HugePages(std::path::PathBuf);

impl HugePages {
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).expect("a directory to mount on");
        let options = ["-t", "tmpfs", "-o", "huge=always,size=2G", "none"];
        let mount = Command::new("mount").args(options).arg(at).output().ok()?;
        mount.status.success().then(|| Self(at.to_path_buf()))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// One fault for each 2 MiB at most, and a few for what the program does besides: of files that
/// were written, allocated ahead and only made long; on a fresh volume, and on one whose space lies
/// in pieces.
#[test]
fn touching_a_mapped_file_takes_one_fault_for_each_chunk() {
    let place = TestDir::new("faults");
    let program = place.0.join("faults");
    compile("faults.c", &program, &["-O1"]);
    let Some(pages) = HugePages::mount(&place.0.join("huge")) else {
        eprintln!("skipped: no tmpfs can be mounted here");
        return;
    };
    let volume = pages.0.join("v.pm");
    let options = volume::FormatOptions { size: Some(1 << 30), ..Default::default() };
    volume::format(&volume, &options).expect("format");
    for state in ["fresh", "in pieces"] {
        let before = fallbacks();
        let said = text(&run(&program, Path::new(PREFIX), Some(&volume)));
        let counts: Vec<(&str, u64)> = said
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(what, count)| (what, count.parse().expect("a number")))
            .collect();
        assert_eq!(counts.len(), 3, "{said}");
        // Where the kernel found no huge page for the volume's file, there is none to be mapped.
        if fallbacks() == before {
            for (what, count) in counts {
                // 128 chunks.
                assert!(count <= 136, "{state}, {what}: {count} faults");
            }
        } else {
            eprintln!("skipped: the machine's memory lies in pieces, {state}: {counts:?}");
        }
        break_up(&place, &volume);
    }
    check_left_in_order(&volume);
}

/// How often the kernel had no huge page for a file.
fn fallbacks() -> String {
    let all = std::fs::read_to_string("/proc/vmstat").expect("/proc/vmstat");
    all.lines().filter(|line| line.starts_with("thp_file_fallback")).collect()
}

/// Fills much of the volume with files of 4 KiB to 300 KiB, and removes every other one.
fn break_up(place: &TestDir, volume: &Path) {
    let program = place.0.join("breaks");
    compile("breaks.c", &program, &["-O1"]);
    text(&run(&program, Path::new(PREFIX), Some(volume)));
}

/// A hugetlbfs that goes when the test ends, with the pages that were reserved for it.
struct LargePages {
    at: std::path::PathBuf,
    /// How many were reserved.
    more: u64,
}

/// The kernel's numbers of pages of 2 MiB.
const OF_2_MIB: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

fn pages(which: &str) -> Option<u64> {
    std::fs::read_to_string(format!("{OF_2_MIB}/{which}_hugepages")).ok()?.trim().parse().ok()
}

fn reserve(pages: u64) -> bool {
    std::fs::write(format!("{OF_2_MIB}/nr_hugepages"), pages.to_string()).is_ok()
}

/// Whether this process may have so many of them now.
fn can_be_had(pages: u64) -> bool {
    let len = (pages as usize) << 21;
    let (none, prot) = (std::ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
    let flags = MapFlags::SHARED | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
    // SAFETY: a new mapping, which goes at once.
    unsafe {
        let Ok(at) = rustix::mm::mmap_anonymous(none, len, prot, flags) else { return false };
        let all = rustix::mm::madvise(at, len, Advice::LinuxPopulateWrite);
        rustix::mm::munmap(at, len).is_ok() && all.is_ok()
    }
}

impl LargePages {
    /// `None` where so many pages of 2 MiB cannot be had.
    fn mount(at: &Path, wanted: u64) -> Option<Self> {
        std::fs::create_dir_all(at).expect("a directory to mount on");
        let before = pages("nr")?;
        if !reserve(before + wanted) {
            return None;
        }
        let more = pages("nr")?.saturating_sub(before);
        let made = Self { at: at.to_path_buf(), more };
        if pages("free")? < wanted || !can_be_had(wanted) {
            return None;
        }
        let options = format!("pagesize=2M,size={}M", 2 * wanted);
        let mount = ["-t", "hugetlbfs", "-o", options.as_str(), "none"];
        let mount = Command::new("mount").args(mount).arg(at).output().ok()?;
        mount.status.success().then_some(made)
    }
}

impl Drop for LargePages {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-q").arg(&self.at).status();
        if let Some(now) = pages("nr") {
            reserve(now.saturating_sub(self.more));
        }
    }
}

/// Shared mappings where memory has pages of 2 MiB only answer as others do, but for parts of such
/// a page.
#[test]
fn files_are_mapped_shared_by_large_pages() {
    let place = TestDir::new("large-pages");
    let program = place.0.join("large_pages");
    compile("large_pages.c", &program, &["-O1", "-g"]);
    let Some(pages) = LargePages::mount(&place.0.join("huge"), 56) else {
        eprintln!("skipped: no pages for a hugetlbfs can be had here");
        return;
    };
    let volume = pages.at.join("v.pm");
    let options = volume::FormatOptions { size: Some(96 << 20), ..Default::default() };
    volume::format(&volume, &options).expect("format");
    assert_eq!(volume::info(&volume).expect("info").policy, "plain", "a reboot empties it");
    let expected = text(&run(&program, &place.0.join("reference"), None));
    let found = text(&run(&program, Path::new(PREFIX), Some(&volume)));
    assert!(expected.lines().count() > 60, "it says what it does");
    for (expected, found) in expected.lines().zip(found.lines()) {
        assert_eq!(expected, found, "expected (left), found (right)");
    }
    assert_eq!(expected.lines().count(), found.lines().count());
    let parts = place.0.join("large_parts");
    compile("large_pages.c", &parts, &["-O1", "-g", "-DPARTS"]);
    let found = text(&run(&parts, Path::new(PREFIX), Some(&volume)));
    let answers: Vec<&str> =
        found.lines().filter_map(|line| line.rsplit_once(" = ")).map(|line| line.1).collect();
    let expected = [
        "-1 EINVAL",
        "0",
        "-1 EINVAL",
        "119",
        "-1 EINVAL",
        "119",
        "1",
        "122",
        "0",
        "0",
        "-1 EINVAL",
        "1",
        "119",
    ];
    assert_eq!(answers, expected, "{found}");
    check_left_in_order(&volume);
}
