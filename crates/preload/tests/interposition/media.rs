//! Memory that cannot be read, under an unmodified program: `EIO` for what lies there, and for
//! nothing else; the check names the file.

use std::path::Path;

use crate::support::{PREFIX, TestDir, compile, format, library, text};

#[test]
fn lost_memory_is_an_error_of_what_lies_in_it() {
    let place = TestDir::new("media");
    let program = place.0.join("media");
    compile("media.c", &program, &["-O1"]);
    format(&place.volume());
    let output = std::process::Command::new(&program)
        .args([Path::new(PREFIX), &place.volume()])
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("LD_PRELOAD", library())
        .output()
        .expect("the program runs");
    let said = text(&output);
    let answers: Vec<&str> =
        said.lines().filter_map(|line| line.split_once(' ')).map(|l| l.1).collect();
    let expected = [
        "size > 200 * MIB = 1",
        "unlink(\"spare\") = 0",
        "ftruncate(region, stat.st_size - 8 * MIB) = 0",
        "lost > 0 && last > lost = 1",
        "others = 0",
        "pread(fd, page, 1, lost) = -1 EIO",
        "pread(fd, page, PAGE, sound) = 4096",
        "lseek(fd, lost, SEEK_SET) == lost = 1",
        "read(fd, page, 10) = -1 EIO",
        "pwrite(fd, \"y\", 1, lost + 100) = -1 EIO",
        "pwrite(fd, mib, PAGE, lost) == PAGE || errno == EIO = 1",
        "map: works",
        "signal_of(map) == SIGBUS = 1",
        "munmap(map, PAGE) = 0",
        "signal_of(map) = 0",
        "map[5] = 120",
        "close(fd) = 0",
        "other: [as before]",
        "other: [changed]",
        "AGAIN(mkdir(\"d\", 0755)) = 0",
        "AGAIN(rename(\"other\", \"d/other\")) = 0",
        "new: [made afterwards]",
        "AGAIN(write(fd, mib, MIB)) == MIB = 1",
        "fsync(fd) = 0",
        "unlink(\"d/other\") = 0",
    ];
    for (expected, found) in expected.iter().zip(&answers) {
        assert_eq!(expected, found, "{said}");
    }
    assert_eq!(answers.len(), expected.len(), "{said}");
    let options = volume::FsckOptions { read_data: true, ..Default::default() };
    let report = volume::fsck(&place.volume(), &options, &mut |_, _| {}).expect("fsck");
    let found: Vec<(&str, &str)> =
        report.faults.iter().map(|fault| (fault.code, fault.place.as_str())).collect();
    // Lost pages that were free are told as well, if the free map knows of them.
    let named: Vec<_> = found.iter().filter(|(_, place)| !place.starts_with("block ")).collect();
    // One line, however many runs of its blocks are lost.
    assert_eq!(named, [&("region-truncated", "the region"), &("media", "/large")], "{found:?}");
}
