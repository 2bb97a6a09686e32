//! What a test program leaves: nothing, however it ends.
//!
//! A shell in a session of its own reads from a pipe which directories the program has made. The
//! pipe ends with the program, also one that is killed. Then the shell kills what still uses one of
//! the directories, unmounts what is mounted below, and removes them. A program that ends by itself
//! waits for it. Whatever was still there beside files is named on the standard error.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};

/// `uses` prints the processes that name a directory in their arguments or their environment, or
/// map something below it.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
uses() {
    # The arguments do not have it: grep would find itself.
    echo "$1/" | grep -lsFf - /proc/[0-9]*/cmdline /proc/[0-9]*/environ /proc/[0-9]*/maps |
        cut -d/ -f3 | sort -u
}
directories=
while read -r directory; do directories="$directories $directory"; done
for directory in $directories; do
    tries=100
    while processes=$(uses "$directory"); test -n "$processes" && test $tries -gt 0; do
        for process in $processes; do
            line=$(cat "/proc/$process/cmdline" 2> /dev/null | tr '\0' ' ' | cut -c 1-200)
            test -n "$line" && echo "cleanup: ends process $process: $line" >&2
            kill -KILL "$process" 2> /dev/null
        done
        tries=$((tries - 1))
        sleep 0.05
    done
    while mount=$(cut -d' ' -f2 /proc/self/mounts | grep -F "$directory/" | tail -n 1)
        test -n "$mount"
    do
        echo "cleanup: unmounts $mount" >&2
        umount -l "$mount" || break
    done
    rmdir "$directory" 2> /dev/null || rm -rf "$directory"
done
"#;

/// The shell that cleans up.
static CLEANER: LazyLock<Mutex<Child>> = LazyLock::new(|| {
    let mut shell = Command::new("setsid");
    shell.args(["sh", "-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null());
    let child = shell.current_dir("/").spawn().expect("setsid and sh");
    // SAFETY: a function without arguments, which unwinds never.
    assert_eq!(unsafe { libc::atexit(clean) }, 0);
    Mutex::new(child)
});

/// Ends the pipe, and waits until all is gone.
extern "C" fn clean() {
    if let Ok(mut cleaner) = CLEANER.lock() {
        drop(cleaner.stdin.take());
        // It may have been killed.
        let _ = cleaner.wait();
    }
}

/// This directory, which has no spaces in its name, goes at the latest with the test program.
pub fn goes_at_the_end(directory: &Path) {
    let mut cleaner = CLEANER.lock().expect("nobody has panicked with it");
    let pipe = cleaner.stdin.as_mut().expect("it is open until the end");
    writeln!(pipe, "{}", directory.display()).expect("the shell reads");
}

/// The directory in memory of this test program.
pub fn program_directory() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = PathBuf::from(format!("/dev/shm/solera-cli-{}", std::process::id()));
        goes_at_the_end(&path);
        std::fs::create_dir(&path).expect("/dev/shm takes a directory");
        super::open_to_all(&path);
        path
    });
    &DIRECTORY
}

/// Unmounts what is mounted below a directory: its removal would not stop there.
pub fn unmount_below(directory: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
    let below: Vec<&Path> = places.filter(|place| place.starts_with(directory)).collect();
    for place in below.into_iter().rev() {
        // Somebody else may have been faster.
        let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A number that no other call in this program gets.
pub fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
