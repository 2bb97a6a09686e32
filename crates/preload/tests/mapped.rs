//! Mapped files: where there is little room, and how often the kernel is asked for pages.

mod support;

use std::path::Path;
use std::process::Command;

use rustix::mm::{Advice, MapFlags, ProtFlags};
use support::{PREFIX, Place, check_left_in_order, compile, format, library, run, text};

/// Runs a program on a fresh volume of 256 MiB; what it says.
fn said(name: &str) -> String {
    let place = Place::new(name);
    let program = place.0.join(name);
    compile(&format!("{name}.c"), &program, &["-O1", "-g"]);
    format(&place.volume());
    let said = text(&run(&program, Path::new(PREFIX), Some(&place.volume())));
    check_left_in_order(&place.volume());
    said
}

#[test]
fn a_full_volume_is_sigbus_at_the_touch_and_sparse_files_do_not_fill_it() {
    let said = said("full");
    // Without the line numbers.
    let found: Vec<&str> =
        said.lines().map(|line| line.split_once(' ').map_or(line, |(_, rest)| rest)).collect();
    let expected = [
        "ftruncate(beside, 8 * PAGE) = 0",
        "partly: works",
        "pwrite(beside, \"b\", 1, 4 * PAGE) = 1",
        "ftruncate(fd, size) = 0",
        "map: works",
        "blocks(fd) = 0",
        "failed = 0",
        "blocks(fd) <= 500 * 64 * 2 = 1",
        "ftruncate(fd, 0) = 0",
        "munmap(map, size) = 0",
        "unlink(\"sparse\") = 0",
        "ftruncate(fd, size) = 0",
        "map: works",
        "failed = 0",
        "blocks(fd) == 20 * MIB / 512 = 1",
        "ended = 702",
        "at > 200 * MIB && at < 256 * MIB = 1",
        "touch(map + size - PAGE, 0) = 702",
        "read(ends[0], map + size - PAGE, 1) = -1 EFAULT",
        "read(ends[0], &byte, 1) = 1",
        "reader: works",
        "touch(reader, 0) || reader[5 * PAGE] != 0 = 0",
        "touch(partly, 0) || partly[0] != 0 = 0",
        "touch(partly + 4 * PAGE, 0) || partly[4 * PAGE] != 'b' = 0",
        "touch(partly + 8 * PAGE, 0) = 702",
        "mprotect(reader, MIB, PROT_READ | PROT_WRITE) = 0",
        "touch(reader, 1) = 702",
        "fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB) = 0",
        "touch(reader, 1) = 702",
        "ftruncate(small, PAGE) = 0",
        "one: works",
        "touch(one, 1) = 702",
        "munmap(map, size) = 0",
        "munmap(reader, MIB) = 0",
        "close(fd) = 0",
        "unlink(\"grows\") = 0",
        "touch(one, 1) = 0",
        "pread(small, &byte, 1, 0) == 1 && byte == 'w' = 1",
    ];
    assert_eq!(found, expected);
}

/// Any process may shorten a mapped file: its mappers never see what others write where its blocks
/// were.
#[test]
fn a_file_that_another_process_shortens_shows_nobody_elses_bytes() {
    let place = Place::new("shortened");
    let program = place.0.join("shortened");
    compile("shortened.c", &program, &["-O1", "-g"]);
    format(&place.volume());
    let rounds = if std::env::var_os("SOLERA_TEST_LONG").is_some() { "400" } else { "12" };
    let output = Command::new("timeout")
        .args(["-k", "5", "300"])
        .arg(&program)
        .args([PREFIX, rounds])
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("LD_PRELOAD", library())
        .output()
        .expect("the program runs");
    let said = text(&output);
    let answers: Vec<&str> = said.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(answers, ["0", "0"], "{said}");
    check_left_in_order(&place.volume());
}

/// What a run of `mapped_random.c` says, in a directory or on a new volume.
fn random(program: &Path, place: &Place, seed: u64, steps: u64, on_volume: bool) -> String {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "300"]).arg(program);
    if on_volume {
        format(&place.volume());
        command.arg(PREFIX).env("SOLERA_VOLUME", place.volume()).env("SOLERA_AT", PREFIX);
        command.env("LD_PRELOAD", library());
    } else {
        command.arg(place.0.join("reference"));
    }
    text(&command.args([seed.to_string(), steps.to_string()]).output().expect("the program runs"))
}

/// Random calls on mapped files answer as on the kernel's file system, and show the same bytes and
/// signals.
#[test]
fn random_calls_answer_as_the_kernel_does() {
    let long = std::env::var_os("SOLERA_TEST_LONG").is_some();
    let (seeds, steps) = if long { (100, 20_000) } else { (4, 4_000) };
    for seed in 1..=seeds {
        let place = Place::new(&format!("mapped-random-{seed}"));
        let program = place.0.join("mapped_random");
        compile("mapped_random.c", &program, &["-O1", "-g"]);
        let expected = random(&program, &place, seed, steps, false);
        let found = random(&program, &place, seed, steps, true);
        assert!(expected.lines().count() as u64 > steps, "it says what it does");
        for (expected, found) in expected.lines().zip(found.lines()) {
            assert_eq!(expected, found, "seed {seed}: expected (left), found (right)");
        }
        assert_eq!(expected.lines().count(), found.lines().count(), "seed {seed}");
        check_left_in_order(&place.volume());
    }
}

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
    let place = Place::new("faults");
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
fn break_up(place: &Place, volume: &Path) {
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
    let place = Place::new("large-pages");
    let program = place.0.join("large_pages");
    compile("large_pages.c", &program, &["-O1", "-g"]);
    let Some(pages) = LargePages::mount(&place.0.join("huge"), 56) else {
        eprintln!("skipped: no pages for a hugetlbfs can be had here");
        return;
    };
    let volume = pages.at.join("v.pm");
    let options = volume::FormatOptions { size: Some(96 << 20), ..Default::default() };
    volume::format(&volume, &options).expect("format");
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
