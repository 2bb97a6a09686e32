//! The memory beneath a volume is full, or another file fills it: nothing is damaged, calls say
//! `ENOSPC`, removing files works and gives memory back; with more memory all goes on. And a volume
//! takes memory when it needs it, not before.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use crate::group::Group;
use crate::support::{Mounted, TestDir, can_mount, compiled, shell, solera};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

const MIB: u64 = 1 << 20;

/// A small file system in memory, at a directory of a place's.
struct Small(PathBuf);

impl Small {
    /// `None`, and it says so, if this test may not mount.
    fn new(place: &TestDir, options: &str) -> Option<Self> {
        let at = place.path("small");
        fs::create_dir(&at).unwrap();
        let options = std::ffi::CString::new(options).unwrap();
        let flags = MountFlags::empty();
        if rustix::mount::mount("none", &at, "tmpfs", flags, options.as_c_str()).is_ok() {
            return Some(Self(at));
        }
        eprintln!("mounting a tmpfs is not permitted: nothing tested");
        None
    }

    fn resize(&self, options: &str) {
        let options = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount_remount(&self.0, MountFlags::empty(), options.as_c_str()).unwrap();
    }

    fn volume(&self) -> String {
        self.0.join("v.pm").to_str().unwrap().to_owned()
    }

    /// Uses up what is left.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("other")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::mount_change(&self.0, MountPropagationFlags::PRIVATE);
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn starved() -> String {
    compiled("cli/tests/run/full_memory.c", &[])
}

/// A check that finds no fault, and tells what is missing.
#[track_caller]
fn is_sound(volume: &str, lacks: bool) {
    let said = solera(["fsck", volume]).ok();
    assert!(said.contains(": clean\n"), "{said}");
    assert_eq!(said.contains("could not supply"), lacks, "{said}");
    let found = solera(["fsck", "--json", "--read-data", volume]).json();
    assert_eq!(found["missing_bytes"].as_u64().unwrap() > 0, lacks, "{found}");
}

/// A volume of 256 MiB was made on a tmpfs of 64 MiB and filled: `fsck` then named up to 51 faults
/// that were none, `--repair` failed half-way, `rm` and `trim` gave EROFS, and only more memory
/// helped.
#[test]
fn a_full_file_system_beneath_is_no_damage() {
    let place = TestDir::new();
    let program = starved();
    let Some(small) = Small::new(&place, "size=40M") else { return };
    let (volume, at) = (small.volume(), place.prefix());
    for mode in ["posix", "sync", "strict"] {
        let _ = fs::remove_file(&volume);
        small.resize("size=40M");
        let made = solera(["format", "--force", "--size", "256M", &volume]).ended_with(0);
        assert!(made.err.contains("has 3") && made.err.contains("more"), "{}", made.err);
        let run = ["run", "--volume", &volume, "--at", &at, "--mode", mode, "--"];
        let said = solera([&run[..], &[&program, &at, mode]].concat()).ok();
        assert!(said.ends_with("fine\n"), "{mode}: {said}");
        is_sound(&volume, true);
        let line =
            format!("cp {at}/old {at}/copy$0; echo hallo > {at}/x; rm {at}/again && ls {at}");
        let said = solera([&run[..], &["sh", "-c", &line]].concat()).ok();
        assert!(said.contains("old\n") && !said.contains("again\n"), "{said}");
        let trimmed = solera(["trim", "--json", &volume]).json();
        assert!(trimmed["trimmed_bytes"].as_u64().unwrap() >= 4 * MIB, "{mode}: {trimmed}");
        is_sound(&volume, true);
        small.resize("size=400M");
        let said = solera(
            [&run[..], &["sh", "-c", &format!("head -c 50M /dev/zero > {at}/more")]].concat(),
        );
        said.ok();
        solera(["fsck", "--repair", &volume]).ok();
        is_sound(&volume, false);
    }
}

/// As above, by the other ways onto a volume.
#[test]
fn the_mount_and_the_command_say_so_too() {
    let place = TestDir::new();
    let program = starved();
    if !can_mount() {
        return;
    }
    let Some(small) = Small::new(&place, "size=40M") else { return };
    let volume = small.volume();
    solera(["format", "--size", "256M", &volume]).ended_with(0);
    let mounted = Mounted::again(&place, volume.clone(), &[]);
    let output =
        std::process::Command::new(&program).args([&mounted.at, "strict"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.ends_with("fine\n"), "{said}");
    mounted.end();
    let large = place.text("large");
    fs::write(&large, vec![7; 6 << 20]).unwrap();
    let mut refused = 0;
    for number in 0..12 {
        let ran = solera(["cp", &large, &format!("{volume}:/large{number}")]);
        if ran.code != 0 {
            assert!(!ran.err.contains("`solera grow`"), "{}", ran.err);
            ran.refused(1, &["No space left on device", "the file system beneath"]);
            refused += 1;
        }
    }
    assert!(refused > 2);
    is_sound(&volume, true);
}

/// `cp` and `age` advised to grow a volume that had room, but no memory for it.
#[test]
fn growing_is_no_advice_where_memory_is_lacking() {
    let place = TestDir::new();
    let Some(small) = Small::new(&place, "size=40M") else { return };
    let volume = small.volume();
    solera(["format", "--size", "256M", &volume]).ended_with(0);
    small.fill();
    // A few pages may be left that the volume has had before.
    let (file, copied) = (format!("{volume}:/file"), place.text("copied"));
    fs::write(&copied, vec![7; 16 << 20]).unwrap();
    for line in [&["age", "--yes", &volume][..], &["cp", &copied, &file]] {
        let ran = solera(line);
        assert!(!ran.err.contains("`solera grow`"), "{}", ran.err);
        ran.refused(1, &["No space left on device", "the file system beneath"]);
    }
    // Where the volume itself is full, it is one.
    small.resize("size=400M");
    let large = place.text("large");
    fs::write(&large, vec![7; 300 << 20]).unwrap();
    solera(["cp", &large, &file]).refused(1, &["`solera grow`"]);
}

/// Another file takes the memory while the volume is in use.
#[test]
fn another_file_takes_the_memory() {
    let place = TestDir::new();
    let program = starved();
    let Some(small) = Small::new(&place, "size=24M") else { return };
    let (volume, at) = (small.volume(), place.prefix());
    solera(["format", "--size", "64M", &volume]).ended_with(0);
    let other = small.0.join("other");
    let line = format!(
        "head -c 5M /dev/zero > {at}/first; head -c 100M /dev/zero > {}; {program} {at} strict; \
         head -c 3M /dev/zero > {at}/second; ls {at}",
        other.display()
    );
    let ran = shell(&volume, &at, &line);
    assert!(ran.out.contains("ENOSPC") || ran.out.contains("No space left"), "{}", ran.out);
    is_sound(&volume, true);
    shell(&volume, &at, &format!("rm {at}/first && head -c 3M /dev/zero > {at}/third")).ok();
    fs::remove_file(other).unwrap();
    shell(&volume, &at, &format!("rm -r {at}/*; {program} {at} strict")).ok();
    solera(["fsck", &volume]).ok();
}

/// Pages in the middle of what is in use have no memory (a sparse copy of a volume), and there is
/// none for them: what meets one in the middle of a call is taken back, and nothing is marked as
/// damaged.
#[test]
fn holes_in_what_is_in_use_are_no_damage() {
    let place = TestDir::new();
    let program = starved();
    let Some(small) = Small::new(&place, "size=64M") else { return };
    let (volume, at) = (small.volume(), place.prefix());
    solera(["format", "--size", "32M", &volume]).ended_with(0);
    let line = format!(
        "mkdir {at}/d; for i in $(seq 300); do echo $i > {at}/d/f$i; done; rm {at}/d/f1*; \
         head -c 3M /dev/urandom > {at}/random; head -c 3M /dev/zero > {at}/zeros"
    );
    shell(&volume, &at, &line).ok();
    let info = solera(["info", "--json", &volume]).json();
    let number = |name: &str| info[name].as_u64().unwrap();
    let pool = number("size_bytes") - (number("size_bytes") - (2 * MIB)) / (2 * MIB) * (2 * MIB);
    // As `cp --sparse=always` would have made it.
    let file = fs::File::options().read(true).write(true).open(&volume).unwrap();
    let (mut page, mut punched) = (vec![0; 4096], 0);
    for offset in (pool..number("size_bytes")).step_by(4096) {
        file.read_exact_at(&mut page, offset).unwrap();
        if page.iter().all(|&byte| byte == 0) {
            let flags =
                rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, offset, 4096).unwrap();
            punched += 1;
        }
    }
    assert!(punched > 1000, "{punched}");
    small.fill();
    is_sound(&volume, true);
    for mode in ["posix", "sync", "strict"] {
        let line = format!(
            "cd {at}; for i in $(seq 60); do \
             echo $i > new$i; mkdir dir$i; mv d/f2$i d/a_long_name_instead_of_it_$i; \
             head -c 70000 /dev/urandom >> random; \
             dd if=/dev/urandom of=zeros bs=4k seek=$i count=3 conv=notrunc; done; \
             rm -f d/f3* new*; rmdir dir*; ls d | head -1"
        );
        let run = ["run", "--volume", &volume, "--at", &at, "--mode", mode, "--", "sh", "-c"];
        let ran = solera([&run[..], &[line.as_str()]].concat());
        assert!(ran.err.contains("No space left on device"), "{mode}: {}", ran.err);
        for word in ["Read-only", "Input/output error", "Bus error"] {
            assert!(!ran.err.contains(word), "{mode}: {}", ran.err);
        }
        is_sound(&volume, true);
    }
    fs::remove_file(small.0.join("other")).unwrap();
    shell(&volume, &at, &format!("rm -r {at}/*; {program} {at} strict")).ok();
    is_sound(&volume, false);
}

/// At a control group's limit the kernel ends the process, or refuses the memory; neither is
/// damage.
#[test]
fn a_control_group_at_its_limit_damages_nothing() {
    let place = TestDir::new();
    let program = starved();
    let Some(group) = Group::new(64 * MIB) else { return };
    let (volume, at) = (place.volume("256M"), place.prefix());
    let solera_itself = env!("CARGO_BIN_EXE_solera");
    let line = format!(
        "{} && exec {solera_itself} run --volume {volume} --at {at} -- \
         {program} {at} strict",
        group.entry()
    );
    let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let killed = output.status.signal() == Some(9) || output.status.code() == Some(137);
    assert!(killed || output.status.success() && said.ends_with("fine\n"), "{output:?}");
    is_sound(&volume, false);
    shell(&volume, &at, &format!("rm -r {at}/* && echo more > {at}/more")).ok();
    let trimmed = solera(["trim", "--json", &volume]).json();
    assert!(trimmed["trimmed_bytes"].as_u64().unwrap() > 16 * MIB, "{trimmed}");
    is_sound(&volume, false);
}

/// `--reserve` takes all of the memory at once; where there is too little, nothing is left behind.
#[test]
fn reserving_takes_all_or_nothing() {
    let place = TestDir::new();
    let Some(small) = Small::new(&place, "size=64M") else { return };
    let volume = small.volume();
    let too_much = ["format", "--reserve", "--size", "128M", &volume];
    solera(too_much).refused(1, &["reserving", "No space left", "smaller --size"]);
    assert_eq!(fs::read_dir(&small.0).unwrap().count(), 0, "nothing is left behind");
    fs::write(&volume, b"").unwrap();
    solera(too_much).refused(1, &["reserving"]);
    assert_eq!(fs::metadata(&volume).unwrap().len(), 0, "as it was");
    let made = solera(["format", "--reserve", "--size", "48M", &volume]).ended_with(0);
    assert_eq!(made.err, "");
    assert_eq!(fs::metadata(&volume).unwrap().blocks() * 512, 48 * MIB);
    small.fill();
    let info = solera(["info", "--json", &volume]).json();
    assert_eq!(info["available_bytes"], info["free_bytes"]);
    assert_eq!(info["missing_bytes"], 0);
    let at = place.prefix();
    shell(&volume, &at, &format!("head -c 40M /dev/urandom > {at}/all")).ok();
    is_sound(&volume, false);
}

/// What `info`, `df` and `statvfs` call free was what the volume had, not what could be had.
#[test]
fn what_is_said_to_be_free_can_be_had() {
    let place = TestDir::new();
    let Some(small) = Small::new(&place, "size=64M") else { return };
    let (volume, at) = (small.volume(), place.prefix());
    solera(["format", "--size", "256M", &volume]).ended_with(0);
    for step in 0..3 {
        let info = solera(["info", "--json", &volume]).json();
        let number = |name: &str| info[name].as_u64().unwrap();
        assert_eq!(number("available_bytes"), number("free_bytes") - number("missing_bytes"));
        let (size, allocated) = (number("size_bytes"), number("allocated_bytes"));
        assert_eq!(number("missing_bytes"), size - allocated - number("beneath_free_bytes"));
        assert!(number("available_bytes") <= 64 * MIB, "{info}");
        let df = solera(["df", "--json", &volume]).json();
        assert_eq!(df[0]["available_bytes"], info["available_bytes"]);
        let said = shell(&volume, &at, &format!("df --output=avail -B1 {at} | tail -1")).ok();
        let available: u64 = said.trim().parse().unwrap();
        assert!(available <= number("available_bytes"), "{said} {info}");
        let wanted = 18 * MIB;
        let line = format!("head -c {wanted} /dev/zero > {at}/f{step}");
        assert_eq!(shell(&volume, &at, &line).code == 0, available >= wanted, "{step} {said}");
    }
    is_sound(&volume, true);
}

/// A volume of 1 TiB in a sparse file took 2.1 GiB when it was made, and more when it was used.
#[test]
fn a_tebibyte_takes_memory_as_it_is_used() {
    let place = TestDir::new();
    let (volume, at) = (place.text("v.pm"), place.prefix());
    let taken = || fs::metadata(&volume).unwrap().blocks() * 512;
    solera(["format", "--size", "1T", &volume]).ended_with(0);
    assert!(taken() < 24 * MIB, "{}", taken());
    shell(
        &volume,
        &at,
        &format!("echo hallo > {at}/file; mkdir {at}/d; head -c 3M /dev/zero > {at}/d/x"),
    )
    .ok();
    let after = taken();
    assert!(after < 36 * MIB, "{after}");
    solera(["fsck", &volume]).ok();
    solera(["info", &volume]).ok();
    solera(["df", &volume]).ok();
    assert_eq!(taken(), after, "to look takes nothing");
    shell(&volume, &at, &format!("echo again > {at}/file; kill -9 $$"));
    solera(["fsck", &volume]).ok();
    solera(["info", &volume]).ok();
    assert_eq!(shell(&volume, &at, &format!("cat {at}/file")).ok(), "again\n");
    assert!(taken() < after + 4 * MIB, "{} {after}", taken());
    let copy = place.text("copy.pm");
    solera(["snapshot", &volume, &copy]).ok();
    assert!(fs::metadata(&copy).unwrap().blocks() * 512 < 36 * MIB);
    shell(&volume, &at, &format!("rm -r {at}/d {at}/file")).ok();
    solera(["trim", &volume]).ok();
    assert!(taken() < 24 * MIB, "{}", taken());
    solera(["grow", "--size", "2T", &volume]).ended_with(0);
    assert_eq!(shell(&volume, &at, &format!("echo more > {at}/f; cat {at}/f")).ok(), "more\n");
    assert!(taken() < 32 * MIB, "{}", taken());
    solera(["fsck", &volume]).ok();
}
