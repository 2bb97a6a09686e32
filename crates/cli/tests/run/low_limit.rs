//! Under a soft limit of descriptors below the hard one, as most systems set it (1024), the
//! library's own stand beyond it.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::support::{Ran, TestDir, built, solera};

/// A forked child gets an open description of the region of its own. The kernel puts nothing at a
/// number beyond the limit: so it had its parent's, and when that ended in order the region's byte
/// was given back for both. From then on nobody could attach: "another volume in use".
#[test]
fn a_daemon_outlives_its_parent_and_others_attach() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let daemons = [
        "f.write('y'); f.flush(); tell(); time.sleep(60)",
        "tell(); os.set_inheritable(f.fileno(), True); os.execvp('sleep', ['sleep', '60'])",
    ];
    for daemon in daemons {
        let program = format!(
            "import os, sys, time\n\
             def tell(): print(os.getpid(), flush=True)\n\
             f = open('{at}/f', 'w')\n\
             if os.fork() == 0:\n    {daemon}\n    os._exit(0)\n\
             time.sleep(0.3)\nf.write('x')\n"
        );
        for limit in ["--nofile=1024:4096", "--nofile=1024:1024"] {
            let mut parent = Command::new("prlimit");
            parent.arg(limit).arg(built("solera")).env_remove("LD_PRELOAD");
            parent.args(["run", "--volume", &volume, "--at", &at, "--", "python3", "-c", &program]);
            let mut parent = parent.stdout(Stdio::piped()).spawn().expect("it starts");
            assert!(parent.wait().expect("it ends").success());
            let mut said = [0; 16];
            let out = parent.stdout.as_mut().expect("a pipe");
            let length = out.read(&mut said).expect("its number");
            let child = std::str::from_utf8(&said[..length]).expect("a number").trim().to_owned();
            let listed = solera(["ls", &volume]);
            let used = solera(["info", "--json", &volume]).json();
            Ran::of(Command::new("kill").args(["-9", &child])).ok();
            assert_eq!(listed.ok(), "f\n", "{limit} {daemon}");
            let pids: Vec<String> = used["attached"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|one| one["pid"].to_string())
                .collect();
            assert!(pids.contains(&child), "{limit} {daemon}: {child} is not among {pids:?}");
        }
    }
    solera(["fsck", &volume]).ok();
}
