//! `solera run` where the volume is mounted: nothing is said about volumes, and what cannot be
//! preloaded works as well.

use std::fs;

use crate::support::{Mounted, Ran, TestDir, can_mount, compiled, solera};

fn bash(script: &str, arguments: &[&str]) -> Ran {
    solera(["run", "--", "bash", "-c", script].iter().chain(arguments))
}

/// The working directory is the kernel's as well, for every question.
#[test]
fn the_working_directory_is_real() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let outside = place.text("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(place.path("outside/file"), "outside\n").unwrap();
    let script = "set -e; cd $1; mkdir -p a/b; echo in > a/file; pwd; cd a/b; env -i /bin/pwd
        readlink /proc/self/cwd; readlink /proc/$$/cwd; cat ../file; realpath ../file
        cat ../../../outside/file; cd ../../..; pwd; cat mnt/a/file
        ln -s $1/a $2/to-volume; ln -s $2 $1/to-outside; ln -s ../../outside/file $1/a/over
        cat $2/to-volume/file $1/to-outside/file $1/a/over
        cd $2/to-volume; /bin/pwd -P; echo more >> file; cat file; cd $1/to-outside; /bin/pwd -P
        exec 5< $1/a/file; cat /proc/self/fd/5; readlink /proc/self/fd/5
        stat -c '%d %i' $1/a/file | cmp - <(LD_PRELOAD= stat -c '%d %i' $1/a/file) && echo same";
    let said = bash(script, &["sh", &mounted.at, &outside]).ok();
    let (at, root) = (&mounted.at, outside.trim_end_matches("/outside"));
    let expected = format!(
        "{at}\n{at}/a/b\n{at}/a/b\n{at}/a/b\nin\n{at}/a/file\noutside\n{root}\nin\n\
         in\noutside\noutside\n{at}/a\nin\nmore\n{outside}\nin\nmore\n{at}/a/file\nsame\n"
    );
    assert_eq!(said, expected);
    mounted.end();
}

/// By another path the kernel serves it: the same files.
#[test]
fn bind_mounts_lead_to_the_same_files() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let bound = place.text("bound");
    fs::create_dir(&bound).unwrap();
    let script = "set -e; mkdir $1/sub; mount --bind $1/sub $2; trap 'cd /; umount $2' EXIT
        echo one > $1/sub/f; cat $2/f; echo two >> $2/f; cat $1/sub/f; cd $2; echo three >> f
        pwd; cat $1/sub/f; cmp <(stat -c '%d %i' f) <(stat -c '%d %i' $1/sub/f) && echo same";
    let at = ["--at", &mounted.at, "--", "bash", "-c", script, "sh", &mounted.at, &bound];
    let said = solera([&["run"][..], &at].concat()).ok();
    assert_eq!(said, format!("one\none\ntwo\n{bound}\none\ntwo\nthree\nsame\n"));
    mounted.end();
}

/// A static program inherits open file descriptions, not just files: positions are shared.
#[test]
fn programs_that_cannot_be_preloaded_inherit_descriptors() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let program = compiled("cli/tests/support/static.c", &["-static"]);
    let script = "set -e; cd $1; { echo a; $2 say b; echo c; $2 say d; $2 say e; echo f; } > out
        cat out; { read x; echo -$x; $2 line; read x; echo -$x; $2 rest; } < out
        echo tail >> out; $2 say end >> out; tail -n 2 out; $2 pwd
        exec 7<> out; $2 line <&7; read -u 7 x; echo =$x; $2 seek 7; rm out; $2 rest <&7 | tail -n 1
        cp $2 mine; ./mine say from-the-volume; printf '#!%s/mine\\n' $1 > script; chmod +x script
        ./script; cp /bin/ls own-ls; ./own-ls -d /proc/self/exe; readlink /proc/self/exe
        $2 say piped | cat; (cd /; $2 pwd); flock out2 $2 say locked; ls -A";
    let said = bash(script, &["sh", &mounted.at, &program]).ok();
    let at = &mounted.at;
    let readlink = fs::canonicalize("/bin/readlink").unwrap().display().to_string();
    let expected = format!(
        "a\nb\nc\nd\ne\nf\n-a\nb\n-c\nd\ne\nf\ntail\nend\n{at}\na\n=b\nend\nfrom-the-volume\n\
         ./script\n/proc/self/exe\n{readlink}\npiped\n/\nlocked\nmine\nout2\nown-ls\nscript\n"
    );
    assert_eq!(said, expected);
    // The program itself.
    let own = mounted.path("mine").display().to_string();
    assert_eq!(solera(["run", "--", &own, "say", "x"]).ok(), "x\n");
    mounted.end();
}

/// Record locks, `flock` and fifos between a preloaded program and one that is not.
#[test]
fn both_faces_meet() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let compiled = |options: &[&str]| compiled("cli/tests/support/static.c", options);
    let (alone, linked) = (compiled(&["-static"]), compiled(&[]));
    // Each holds what the other asks for; waiting ends when it is given up.
    let script = "cd $1; touch f; mkfifo go
        for pair in \"$2 $3\" \"$3 $2\"; do set -- $1 $2 $3 $pair
            for kind in posix ofd flock; do
                $4 hold $kind f > go & read x < go; echo $x $kind
                $5 try $kind f; kill -TERM $!; wait $!; $5 wait $kind f
                $4 hold $kind f 1 > go & read x < go; $5 wait $kind f; wait
            done
            $4 say through-the-fifo > go & read x < go; echo $x; wait
        done";
    let said = bash(script, &["sh", &mounted.at, &alone, &linked]).ok();
    let once =
        ["posix", "ofd", "flock"].map(|kind| format!("held {kind}\nbusy\ngot\ngot\n")).concat()
            + "through-the-fifo\n";
    assert_eq!(said, [once.as_str(), once.as_str()].concat());
    mounted.end();
}

/// A library found nothing beside itself (`$ORIGIN`), since it was loaded from a copy in memory:
/// half of the packages of a Python environment on the volume could not be imported.
#[test]
fn libraries_are_loaded_from_the_mount() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let loads = compiled("cli/tests/mounts/libraries.c", &[]);
    // `outer` needs `inner`, which lies beside it.
    let make = "set -e; cd $0; L='-shared -fPIC -Wl,--enable-new-dtags,-rpath,$ORIGIN'
        mkdir -p sub; cd sub; echo \"int number(void) { return $1; }\" | cc $L -xc - -o new
        mv new libinner.so; echo 'int number(void); int again(void) { return number(); }' |
        cc $L -xc - -xnone libinner.so -o libouter.so";
    let made = |number: &str| {
        let arguments = ["run", "--", "sh", "-c", make, &mounted.at, number];
        solera(arguments).ok();
    };
    made("1");
    let (at, outer) = (&mounted.at, format!("{}/sub/libouter.so", mounted.at));
    let inner = format!("{at}/sub/libinner.so");
    let head = ["run", "--report", "--"];
    let ran = solera(head.iter().chain(&[&*loads, &outer, &inner])).ended_with(0);
    assert_eq!(ran.out, format!("1 {inner}\n1 {inner}\n"), "{}", ran.err);
    assert!(!ran.err.contains("library-copied-to-memory"), "{}", ran.err);
    let link = place.text("link");
    let script = "ln -s $1/sub $3; cd $1/sub; $2 ./libouter.so; cd ..; $2 $3/libouter.so";
    let said = bash(script, &["sh", at, &loads, &link]).ok();
    assert_eq!(said, format!("1 {at}/sub/./libinner.so\n1 {link}/libinner.so\n"));
    made("2");
    let said = solera(["run", "--", &loads, &outer]).ok();
    assert_eq!(said, format!("2 {inner}\n"), "another file by now");
    // The program sees the volume at another place than the mount's: it has the library from there.
    let (volume, prefix) = (&mounted.volume, place.prefix());
    let other = ["run", "--report", "--volume", volume, "--at", &prefix, "--", &loads];
    let ran = solera(other.iter().chain(&[&*format!("{prefix}/sub/libouter.so")])).ended_with(0);
    assert_eq!(ran.out, format!("2 {prefix}/sub/libinner.so\n"), "{}", ran.err);
    // The mount forbids it, and then there is none: the linker reads the volume itself.
    mounted.unmount();
    let forbidding = Mounted::again(&place, volume.clone(), &["-o", "noexec"]);
    for mount in [Some(forbidding), None] {
        let outer = format!("{prefix}/sub/libouter.so");
        let ran = solera(other.iter().chain(&[&*outer])).ended_with(0);
        assert_eq!(ran.out, format!("2 {prefix}/sub/libinner.so\n"), "{}", ran.err);
        if let Some(mount) = mount {
            mount.end();
        }
    }
}
