//! Who removes what a test program leaves that ends without a word: killed, interrupted, aborted.
//!
//! A process of a session of its own waits until the pipe from the test program is closed. Then it
//! unmounts and removes what is named by the program's number.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Once a process: whose directories in `base` are named `NAME-PID-...`.
pub fn start(base: &Path, name: &str) {
    static SWEEPER: OnceLock<Child> = OnceLock::new();
    const SCRIPT: &str = r#"
        cat
        for try in 1 2 3 4 5; do
            cut -d' ' -f2 /proc/self/mounts | grep -F "$0-" | sort -r | xargs -r umount -l
            rm -rf "$0"-* && break
            sleep 1
        done"#;
    SWEEPER.get_or_init(|| {
        Command::new("setsid")
            .args(["sh", "-c", SCRIPT])
            .arg(base.join(format!("{name}-{}", std::process::id())))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("setsid runs a shell")
    });
}
