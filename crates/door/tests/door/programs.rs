//! Programs of this machine, armed by a library that is preloaded: they do what they do otherwise,
//! and what the handler serves comes by. What starts other programs hands it on to them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use door::cache::Cache;
use door::image::Image;

use crate::libraries::{self, Scratch};

fn armer() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().and_then(Path::parent).unwrap();
    let path = folder.join("examples/libarmer.so");
    assert!(path.exists(), "{} is not built: cargo build --examples", path.display());
    path
}

const SCRIPT: &str = r#"
set -e
for i in 1 2 3; do echo "line $i" >> out; (echo sub $i); done
cat out | sort -r | tee sorted | wc -l
mkdir -p a/b; cp out a/b/copy; mv a/b/copy a/c; ln -s c a/link; readlink a/link; ls -1 a
tar cf x.tar a; tar tf x.tar | sort; find . -name '*.tar'; stat -c %s out
while read -r line; do echo "$line."; done < sorted
trap 'echo trapped' USR1; kill -USR1 $$; ( exit 3 ) || echo "code $?"
echo done
"#;

const PYTHON: &str = r"
import os, subprocess, threading, tempfile, mmap, glob, select, signal, socket
results = []
def work(n):
    with open(f't{n}', 'w+b') as f:
        f.write(b'x' * 100000); f.flush(); f.seek(0)
        m = mmap.mmap(f.fileno(), 0); results.append(m[:].count(b'x')); m.close()
threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(results) == [100000] * 16, len(glob.glob('t*')))
print(subprocess.run(['echo', 'child'], capture_output=True).stdout, os.system('exit 4') >> 8)
pid = os.fork()
if pid == 0: os._exit(5)
print(os.waitpid(pid, 0)[1] >> 8)
a, b = socket.socketpair(); a.send(b'hello')
print(select.select([b], [], [], 1)[0] == [b], b.recv(9))
signal.signal(signal.SIGALRM, lambda *_: print('alarm')); signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
try: open('/nonexistent')
except FileNotFoundError as e: print(e.errno)
import ctypes, sqlite3; print(sqlite3.connect('db').execute('select 6*7').fetchone())
";

const C: &str = r#"
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>
int main(void) {
    FILE *f = fopen("w", "w+"); fwprintf(f, L"%d wide\n", 7); rewind(f);
    wchar_t line[32]; fgetws(line, 32, f); fclose(f); printf("%ls", line);
    char *paths[] = { "a", 0 }; FTS *t = fts_open(paths, FTS_PHYSICAL, 0); int n = 0;
    while (fts_read(t)) n++; printf("%d\n", n); return 0;
}
"#;

/// Runs a program in a folder of its own, and in a way.
fn run(how: Option<&Path>, line: &[&str], name: &str) -> Output {
    let scratch = Scratch::new(name);
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).current_dir(&scratch.0);
    if let Some(how) = how {
        command.env("LD_PRELOAD", armer()).env("SOLERA_DOOR_ARM", how);
    }
    command.output().unwrap()
}

#[test]
fn programs_do_the_same() {
    let folder = Scratch::new("patched");
    let cache = Cache::named(&folder.0, &[]);
    for path in libraries::host() {
        let image = Image::make(&std::fs::read(path).unwrap(), &door::wanted).unwrap();
        cache.install(&image).unwrap();
    }
    let source = folder.0.join("program.c");
    std::fs::write(&source, C).unwrap();
    let compile =
        format!("mkdir -p a/b && cc -o p {} && ./p && touch a/b/c && ./p", source.display());
    let lines: [&[&str]; 6] = [
        &["bash", "-c", SCRIPT],
        &["dash", "-c", SCRIPT],
        &["python3", "-c", PYTHON],
        &["sh", "-c", &compile],
        &[
            "perl",
            "-e",
            "print `echo hi`; opendir D, '/'; print scalar(readdir D) ? 1 : 0; fork; wait",
        ],
        &["sh", "-c", "yes | head -n 100000 | gzip | gzip -d | md5sum; date -u -d @0; id -u"],
    ];
    for (at, line) in lines.iter().enumerate() {
        if !Command::new(line[0]).arg("-c").arg("0").output().is_ok_and(|_| true) {
            println!("left out: there is no {}", line[0]);
            continue;
        }
        let own = run(None, line, &format!("own{at}"));
        let text = String::from_utf8_lossy(&own.stderr).into_owned();
        assert!(own.status.success(), "{line:?}: {text}");
        for how in [&*folder.0, Path::new("memory")] {
            let armed = run(Some(how), line, &format!("armed{at}"));
            let said = String::from_utf8_lossy(&armed.stdout).into_owned();
            let errors = String::from_utf8_lossy(&armed.stderr);
            assert_eq!(armed.status, own.status, "{line:?}: {said}\n{errors}");
            assert_eq!(said, String::from_utf8_lossy(&own.stdout), "{line:?}\n{errors}");
        }
    }
    // What is served reaches the program, by the C library's own functions.
    let line = ["env", "SOLERA_DOOR_SERVE=1", "/bin/pwd", "-P"];
    let served = run(Some(&folder.0), &line, "served");
    assert_eq!(served.stdout, b"/served/by/the/handler\n");
    // What cannot be armed is not run.
    let refused = run(Some(&folder.0.join("nothing")), &["/bin/echo", "ran"], "refused");
    assert_eq!((refused.status.code(), refused.stdout), (Some(125), Vec::new()));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("there is none"));
}
