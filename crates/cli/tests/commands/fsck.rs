//! `solera fsck` and `solera snapshot` as people use them: exit codes, what is printed, volumes in
//! use.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use crate::support::{TestDir, command, shell, solera};

/// Damages the direct words of the inode whose file begins with `mark`: its only block is lost.
fn damage_map_of(volume: &str, block_of_data: u64) {
    let file = File::options().read(true).write(true).open(volume).expect("it opens");
    let size = file.metadata().expect("its size").len();
    let mut page = [0; 4096];
    for at in (0..size).step_by(4096) {
        file.read_exact_at(&mut page, at).expect("it is read");
        for inode in (0..4096).step_by(512) {
            let word = u64::from_le_bytes(page[inode + 128..][..8].try_into().expect("8 bytes"));
            let tagged = page[inode..inode + 2] == [0x49, 0x4E];
            if tagged && word & ((1 << 40) - 1) == block_of_data {
                file.write_all_at(&[0x77; 8], at + inode as u64 + 128).expect("it is written");
                return;
            }
        }
    }
    panic!("no inode names block {block_of_data}");
}

/// The block in which these bytes begin.
fn block_of(volume: &str, bytes: &[u8]) -> u64 {
    let file = File::open(volume).expect("it opens");
    let size = file.metadata().expect("its size").len();
    let mut start = vec![0; bytes.len()];
    let found = (0..size).step_by(4096).find(|at| {
        file.read_exact_at(&mut start, *at).expect("it is read");
        start == bytes
    });
    found.expect("the data") / 4096
}

#[test]
fn a_damaged_file_is_named_refused_and_given_up_when_asked() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    shell(
        &volume,
        &place.prefix(),
        &format!("cd {}; echo one marked file > a; echo b > b", place.prefix()),
    )
    .ok();
    solera(["fsck", &volume]).ok();
    damage_map_of(&volume, block_of(&volume, b"one marked file"));
    let checked = solera(["fsck", &volume]).ended_with(4);
    assert!(checked.out.contains("map-word at /a: "), "{}", checked.out);
    assert!(checked.out.contains("--salvage"), "{}", checked.out);
    // Nothing that needs a decision is done without one.
    let repaired = solera(["fsck", "--repair", &volume]).ended_with(4);
    assert!(repaired.out.contains("map-word at /a: "), "{}", repaired.out);
    assert_eq!(solera(["cat", &format!("{volume}:/b")]).ok(), "b\n");
    solera(["cat", &format!("{volume}:/a")]).refused(1, &["fsck"]);
    let given_up = solera(["fsck", "-y", "--json", &volume]).ended_with(1);
    let told: serde_json::Value = serde_json::from_str(&given_up.out).expect("JSON");
    assert_eq!(told["clean"], true);
    assert_eq!(told["mended"][0]["place"], "/a");
    solera(["fsck", "-n", &volume]).ok();
    shell(&volume, &place.prefix(), &format!("echo again > {}/a", place.prefix())).ok();
    assert_eq!(solera(["cat", &format!("{volume}:/a")]).ok(), "again\n");
}

#[test]
fn a_lost_end_of_the_memory_is_told_file_by_file() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    std::fs::write(place.path("small"), "kept").expect("written");
    solera(["cp", &place.text("small"), &format!("{volume}:/small")]).ok();
    // It takes all that is left, and so the end.
    let fill = format!("head -c 100M /dev/zero | tr '\\0' x > {}/large; true", place.prefix());
    shell(&volume, &place.prefix(), &fill).ok();
    let file = File::options().write(true).open(&volume).expect("it opens");
    file.set_len(60 << 20).expect("it is cut");
    let checked = solera(["fsck", &volume]).ended_with(4);
    assert!(checked.out.contains("region-truncated"), "{}", checked.out);
    assert!(checked.out.contains("media at /large: "), "{}", checked.out);
    assert!(!checked.out.contains("/small"), "{}", checked.out);
    file.set_len(64 << 20).expect("it is extended");
    assert_eq!(solera(["cat", &format!("{volume}:/small")]).ok(), "kept");
}

#[test]
fn a_volume_in_use_is_checked_and_copied_without_false_alarms() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.prefix();
    let busy = format!(
        "cd {at}; n=0; while :; do n=$((n+1)); mkdir -p d$((n%5)); echo $n > d$((n%5))/f$n; \
         mv d$((n%5))/f$n f$((n%20)); [ $((n%7)) = 0 ] && rm -r d$((n%5)); done"
    );
    let mut program = command()
        .args(["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", &busy])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let started = |name: &str| solera(["ls", &volume]).out.contains(name);
    while !started("f19") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let copy = place.text("copy.pm");
    for _ in 0..8 {
        let checked = solera(["fsck", "--json", &volume]).json();
        assert_eq!(checked["clean"], true, "{checked}");
        assert!(checked["pause_seconds"].as_f64().is_some());
        let copied = solera(["snapshot", "--force", "--json", &volume, &copy]).json();
        assert!(copied["pause_seconds"].as_f64().is_some());
        solera(["fsck", &copy]).ok();
    }
    solera(["fsck", "--repair", &volume]).refused(8, &["attached"]);
    program.kill().expect("killed");
    program.wait().expect("waited");
    solera(["snapshot", &volume, &copy]).refused(1, &["--force"]);
    solera(["fsck"]).ended_with(16);
    solera(["fsck", "-n", "-y", &volume]).ended_with(16);
}

/// Eight damaged bytes in the older slot of the state line left a volume that nothing mended: every
/// attach wrote the other slot, and found the damage again.
#[test]
fn a_damaged_slot_of_the_state_line_is_mended_by_the_next_use() {
    let place = TestDir::new();
    let at = place.prefix();
    for slots in [&[0][..], &[1], &[0, 1]] {
        let volume = place.volume("64M");
        shell(&volume, &at, &format!("echo kept > {at}/file")).ok();
        for slot in slots {
            let file = File::options().write(true).open(&volume).unwrap();
            file.write_all_at(b"XXXXXXXX", 8192 + slot * 32 + 24).unwrap();
        }
        solera(["fsck", &volume]).ended_with(4);
        shell(&volume, &at, &format!("echo more >> {at}/file")).ok();
        // Beside another process, too: it reads the line again.
        let both = format!("text=$(cat {at}/file); [ \"$text\" = \"$(cat {at}/file)\" ]");
        shell(&volume, &at, &both).ok();
        solera(["fsck", &volume]).ok();
        assert_eq!(solera(["cat", &format!("{volume}:/file")]).ok(), "kept\nmore\n");
        solera(["rm", &volume]).ok();
    }
}
