//! The second engine: programs on a kernel file system, with and without it.
//!
//! Each C program runs on a directory of the kernel's and, preloaded, on another one beside it: their
//! outputs must be the same, in every mode, on tmpfs and (as root, where loop devices can be had) on
//! ext4, on XFS by clone and on XFS by exchange.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::{Place, compile, library, text};

/// Programs of the volume's tests that say nothing of what differs here: numbers in use, hidden names.
const PROGRAMS: [&str; 15] = [
    "beneath", "files", "streams", "mapping", "sparse", "splice", "sockets", "threads", "messages",
    "moving", "buffers", "limits", "forks", "signals", "hurried",
];

fn run(program: &Path, directory: &Path, mode: Option<&str>) -> Output {
    std::fs::create_dir_all(directory).expect("a directory");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", "env"]);
    if let Some(mode) = mode {
        let mut preload = std::ffi::OsString::from("LD_PRELOAD=");
        preload.push(library());
        let mut place = std::ffi::OsString::from("SOLERA_SPLIT=");
        place.push(directory);
        command.args(["SOLERA_EMULATE=1", "SOLERA_SPLIT_PATIENCE=0"]);
        command.arg(format!("SOLERA_MODE={mode}")).arg(place).arg(preload);
    }
    command.arg(program).arg(directory).output().expect("the program runs")
}

/// Compares the outputs of `programs` in `ground`.
fn compare(ground: &Path, programs: &[&str], modes: &[&str]) {
    for name in programs {
        let program = ground.join(name);
        compile(&format!("{name}.c"), &program, &["-O0", "-g"]);
        let plain = ground.join(format!("{name}-plain"));
        let expected = text(&run(&program, &plain, None)).replace(&*plain.to_string_lossy(), "@");
        assert!(!expected.is_empty(), "{name} says nothing");
        for mode in modes {
            let served = ground.join(format!("{name}-{mode}"));
            let found = text(&run(&program, &served, Some(mode)));
            let found = found.replace(&*served.to_string_lossy(), "@");
            for (expected, found) in expected.lines().zip(found.lines()) {
                assert_eq!(expected, found, "{name}, {mode}: expected (left), found (right)");
            }
            assert_eq!(expected.lines().count(), found.lines().count(), "{name}, {mode}");
            left_in_order(&served);
        }
    }
}

/// Nothing staged is left, nor any file of a process that ended: some are killed by a signal.
fn left_in_order(directory: &Path) {
    let recovered = split::recover(directory).expect("recover");
    assert_eq!((recovered.runs, recovered.gone), (0, 0), "{}", directory.display());
    let home = directory.join(split::HOME_NAME);
    let left: Vec<_> = std::fs::read_dir(&home)
        .expect("the hidden directory")
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|name| name != "records" && name != "alive")
        .collect();
    assert!(left.is_empty(), "left in {}: {left:?}", home.display());
}

/// A file system in a file, mounted.
struct Mounted {
    at: PathBuf,
    place: Place,
}

impl Mounted {
    /// `None`: not as this user, or not with these tools.
    fn new(kind: &str) -> Option<Self> {
        let place = Place::new(&format!("beneath-{kind}"));
        let (image, at) = (place.0.join("image"), place.0.join("mounted"));
        std::fs::create_dir_all(&at).expect("a directory");
        let file = std::fs::File::create(&image).expect("an image");
        file.set_len(400 << 20).expect("its size");
        let made = match kind {
            "ext4" => succeeds(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image)),
            _ => {
                succeeds(Command::new("mkfs.xfs").args(["-q", "-f", "-m", "reflink=1"]).arg(&image))
            }
        };
        // What `mkfs.xfs -i exchange=1` sets, for those that do not know it: bit 6.
        let set = kind != "exchange" || {
            let get = Command::new("xfs_db")
                .args(["-c", "sb 0", "-c", "p features_incompat"])
                .arg(&image)
                .output();
            let found = get.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            let number = found.ok().and_then(|text| {
                let text = text.rsplit("0x").next()?.trim().to_owned();
                u64::from_str_radix(&text, 16).ok()
            });
            number.is_some_and(|number| {
                let write = format!("write -d features_incompat {:#x}", number | 1 << 6);
                succeeds(
                    Command::new("xfs_db").args(["-x", "-c", "sb 0", "-c", &write]).arg(&image),
                )
            })
        };
        let mounted = made
            && set
            && succeeds(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at));
        mounted.then_some(Self { at, place })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        assert!(
            succeeds(Command::new("umount").arg(&self.at)),
            "{} is in use",
            self.place.0.display()
        );
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn programs_on_tmpfs() {
    let place = Place::new("beneath-tmpfs");
    compare(&place.0, &PROGRAMS, &["posix", "sync", "strict"]);
}

/// On a mounted file system, whose relinks are by `backend`.
fn on(kind: &str, backend: &str) {
    let Some(mounted) = Mounted::new(kind) else {
        eprintln!("skipped: {kind} cannot be made and mounted here");
        return;
    };
    let programs = ["beneath", "files", "streams", "mapping", "threads", "splice"];
    compare(&mounted.at, &programs, &["posix", "strict"]);
    let home = mounted.at.join("beneath-posix").join(split::HOME_NAME);
    let records = std::fs::read(home.join("records")).expect("the records");
    let number = u64::from_le_bytes(records[24..32].try_into().expect("a word"));
    let found = ["none", "exchange", "clone", "copy"][number as usize];
    assert_eq!(found, backend, "how {kind} relinks");
}

#[test]
fn programs_on_ext4() {
    on("ext4", "copy");
}

#[test]
fn programs_on_xfs_by_clone() {
    on("clone", "clone");
}

#[test]
fn programs_on_xfs_by_exchange() {
    on("exchange", "exchange");
}

/// Kills a program that appends, after so many of its calls returned.
fn kill(directory: &Path, program: &Path, mode: &str, calls: usize) {
    let mut child = Command::new(program)
        .arg(directory)
        .env("LD_PRELOAD", library())
        .env("SOLERA_SPLIT", directory)
        .env("SOLERA_MODE", mode)
        .env("SOLERA_EMULATE", "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut told = vec![0; calls];
    let mut output = child.stdout.take().expect("its output");
    std::io::Read::read_exact(&mut output, &mut told).expect("it goes on");
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
}

/// As above; then the file is looked at.
fn kill_after(directory: &Path, program: &Path, mode: &str, calls: usize) {
    kill(directory, program, mode, calls);
    let recovered = split::recover(directory).expect("recover");
    assert_eq!((recovered.processes, recovered.gone), (1, 0), "{mode}, {calls} calls");
    assert_eq!(split::recover(directory).expect("again"), split::Recovered::default());
    let bytes = std::fs::read(directory.join("killed")).expect("the file");
    assert!(bytes.len() >= calls * 100, "{mode}: {calls} calls returned, {} bytes", bytes.len());
    assert_eq!(bytes.len() % 100, 0, "{mode}: an append is there whole or not at all");
    for (at, record) in bytes.chunks_exact(100).enumerate().skip(1) {
        assert_eq!(record, format!("{at:099}\n").as_bytes(), "{mode}: record {at}");
    }
    let first: usize = String::from_utf8_lossy(&bytes[..99]).parse().expect("a whole first record");
    assert!(calls < 3 || first >= (calls - 3) / 3 * 3 + 2, "{mode}: the last overwrite, {first}");
    left_in_order(directory);
}

#[test]
fn returned_writes_survive_a_kill() {
    let place = Place::new("beneath-killed");
    let program = place.0.join("killed");
    compile("killed.c", &program, &["-O1"]);
    for mode in ["posix", "sync", "strict"] {
        // Also around an `fsync`.
        for calls in [1, 2, 7, 39, 40, 41, 300] {
            let directory = place.0.join(format!("{mode}-{calls}"));
            std::fs::create_dir_all(&directory).expect("a directory");
            kill_after(&directory, &program, mode, calls);
        }
    }
}

/// After a power cut the records are what the kernel had written back: nothing is moved by them.
#[test]
fn records_of_another_boot_are_not_believed() {
    use std::os::unix::fs::FileExt;
    let place = Place::new("beneath-boot");
    let program = place.0.join("killed");
    compile("killed.c", &program, &["-O1"]);
    let directory = place.0.join("files");
    std::fs::create_dir_all(&directory).expect("a directory");
    kill(&directory, &program, "posix", 30);
    let home = directory.join(split::HOME_NAME);
    let staged = std::fs::read_dir(&home).expect("the hidden directory").filter(|entry| {
        entry.as_ref().is_ok_and(|it| it.file_name().to_string_lossy().starts_with("stage."))
    });
    assert!(staged.count() > 0, "nothing was staged");
    let file = directory.join("killed");
    // What a power cut would leave: the file as it was synced, the table from before.
    std::fs::write(&file, "synced").expect("the file");
    let table = home.join("records");
    let table = std::fs::File::options().read(true).write(true).open(table).expect("the table");
    let mut boot = [0; 8];
    table.read_exact_at(&mut boot, 32).expect("its boot");
    assert_ne!(boot, [0; 8], "the table says in which boot it was begun");
    table.write_all_at(&[1; 8], 32).expect("another boot");
    let recovered = split::recover(&directory).expect("recover");
    assert_eq!(recovered, split::Recovered::default());
    assert_eq!(std::fs::read(&file).expect("the file"), b"synced");
    let mut now = [0; 8];
    table.read_exact_at(&mut now, 32).expect("its boot");
    assert_eq!(now, boot);
    left_in_order(&directory);
}

/// Every slot has a dead process: whoever comes next recovers one to have its place.
#[test]
fn slots_of_dead_processes_are_taken() {
    use std::os::unix::fs::FileExt;
    let place = Place::new("beneath-slots");
    let program = place.0.join("killed");
    compile("killed.c", &program, &["-O1"]);
    let directory = place.0.join("files");
    std::fs::create_dir_all(&directory).expect("a directory");
    kill(&directory, &program, "posix", 7);
    let table = directory.join(split::HOME_NAME).join("records");
    let table = std::fs::File::options().write(true).open(table).expect("the table");
    table.write_all_at(&[1; 256 * 8], 64).expect("the slots");
    let recovered = split::recover(&directory).expect("recover");
    assert_eq!((recovered.processes, recovered.gone), (256, 0));
    assert!(std::fs::metadata(directory.join("killed")).expect("the file").len() >= 700);
    left_in_order(&directory);
}

/// Runs `body` on a thread whose rights are those of the owner of all in `directory`, not root's.
fn as_nobody<T>(directory: &Path, body: impl FnOnce() -> T) -> T {
    const NOBODY: u32 = 65_534;
    // SAFETY: no pointers; the call, by its number, changes this thread only.
    unsafe {
        if libc::geteuid() == 0 {
            let owner = format!("{NOBODY}:{NOBODY}");
            assert!(succeeds(Command::new("chown").arg("-R").arg(owner).arg(directory)));
            assert_eq!(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
        }
    }
    body()
}

/// One file that cannot be written does not keep the others from being recovered, nor from starting.
#[test]
fn a_file_without_rights_is_recovered() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("beneath-rights");
    let program = place.0.join("killed");
    compile("killed.c", &program, &["-O1"]);
    let directory = place.0.join("files");
    std::fs::create_dir_all(&directory).expect("a directory");
    kill(&directory, &program, "posix", 7);
    let file = directory.join("killed");
    let read_only = std::fs::Permissions::from_mode(0o444);
    std::fs::set_permissions(&file, read_only).expect("its rights");
    let body = || {
        let recovered = split::recover(&directory).expect("recover");
        left_in_order(&directory);
        recovered
    };
    let recovered = std::thread::scope(|scope| {
        scope.spawn(|| as_nobody(&directory, body)).join().expect("a thread")
    });
    assert_eq!((recovered.processes, recovered.gone), (1, 0));
    let found = std::fs::metadata(&file).expect("the file");
    assert!(found.len() >= 700 && found.permissions().mode() & 0o777 == 0o444);
}
