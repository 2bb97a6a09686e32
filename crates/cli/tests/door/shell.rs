//! Shell scripts made from a seed, run by bash and by dash with the programs of coreutils and their
//! like: what they say and leave on a volume must be as on tmpfs.
//!
//! A script is a list of statements that do not depend on each other, so that each can be left out.

use crate::faces::{Face, Faces, MODES};
use crate::generated::Family;
use crate::random::Random;
use crate::stdio::program;

const FILES: [&str; 7] = ["a", "b", "c", "n", "d/x", "d/y", "new"];
/// Programs that read what they inherit, a part of it or all.
const READERS: [&str; 9] = [
    "head -n 1",
    "head -c 5",
    "tail -c 9",
    "dd bs=3 count=2 2>&-",
    "sed -n '2{p;q}'",
    "wc -c",
    "sort -r",
    "cut -c 2-4",
    "IFS= read -r l; echo \"<$l>\"",
];

/// One statement.
fn statement(random: &mut Random) -> String {
    let (f, g) = (random.any(&FILES), random.any(&FILES));
    let (reader, other) = (random.any(&READERS), random.any(&READERS));
    let n = random.below(40);
    match random.below(5) {
        0 => redirection(random, f, g, n),
        1 => format!("{{ {reader}; {other}; cat; }} <{f}"),
        2 => shared_descriptor(random, f, g, n),
        3 => files(random, f, g, n),
        _ => processes(random, f, g, n),
    }
}

fn redirection(random: &mut Random, f: &str, g: &str, n: u64) -> String {
    match random.below(12) {
        0 => format!("echo {n} >{f}; echo more >>{f}; cat {f}"),
        1 => format!("{{ echo out; echo error >&2; sh -c 'echo child'; }} >{f} 2>&1"),
        2 => format!("cat <<TEXT >{f}\nline $(({n} * 2))\n$(head -n 1 {g})\nTEXT"),
        3 => format!("cat <<'TEXT' >>{f}\nas $it is {n}\nTEXT"),
        4 => format!("(echo sub {n}; cd d && echo in >here; exit 3) >{f}; echo $?"),
        5 => format!("set -C; echo no >{f}; echo $?; echo yes >|{f}; set +C"),
        6 => format!("{{ echo one; }} 2>&1 >{f} | cat"),
        7 => format!("{{ printf '%s\\n' first second, third; cat {g}; }} >{f} && wc -c <{f}"),
        8 => format!("echo closed >&-; cat <&- ; echo $? >&2 2>>{f}"),
        9 => format!("for i in 1 2 3; do echo $i {n}; ls {f}; done >{g} 2>&1"),
        10 => format!(": >{f}; echo {n} 1<>{f}; echo x >>{f}; cat {f}"),
        _ => format!("if cat; then echo $?; fi <{f} >{g}; cat {g} missing {n} 2>&1"),
    }
}

fn shared_descriptor(random: &mut Random, f: &str, g: &str, n: u64) -> String {
    match random.below(11) {
        0 => format!("exec 3<>{f}; read -r x <&3; echo \"$x {n}\" >&3; cat <&3; exec 3>&-"),
        1 => format!("exec 4>>{f}; echo a >&4; sh -c 'echo b >&4'; (echo c) >&4; exec 4>&-"),
        2 => format!("exec 5<{f}; while read -r x <&5; do echo \"[$x]\"; head -c 2 <&5; done"),
        3 => format!("while read -r x; do echo \"$x\"; read -r y; done <{f} >{g}; cat {g}"),
        4 => format!("exec 6>{f}; echo one >&6; dd bs=1 seek={n} count=0 >&6 2>&-; echo two >&6"),
        5 => format!("{{ echo first, long enough; echo second | cat; echo third {n}; }} >{f}"),
        6 => format!("{{ dd bs=1 skip={n} count=4 2>&-; echo; dd bs=5 count=1 2>&-; }} <{f} >{g}"),
        7 => format!("exec 7<{f} 8<&7; head -c 3 <&7; head -c 3 <&8; exec 7<&- 8<&-"),
        8 => format!("(echo a; (echo b; echo c >&2) 2>&1; printf d{n}) >{f}; cat {f}"),
        9 => format!("exec 9>{f}; (echo p >&9) & wait; echo q >&9; cat {f}; exec 9>&-"),
        _ => format!("{{ read -r a; read -r b; echo \"$b $a {n}\"; tail -n 1; }} <{f}"),
    }
}

fn files(random: &mut Random, f: &str, g: &str, n: u64) -> String {
    match random.below(21) {
        0 => format!("sort -o {f} {f} {g}; cat {f}"),
        1 => format!("sed -i 's/[a-l]/{n}/; $d' {f}; cat {f}"),
        2 => format!("head -n 3 {f} | tee out d/t | tr a-z A-Z; mv out {g}"),
        3 => format!("echo {n} | tee -a {f} >>{g}; tail -n 2 {f} {g}"),
        4 => format!("t=$(mktemp m.XXXXXX) && echo {n} >$t && mv $t {f}; stat -c '%s %a %h' {f}"),
        5 => format!("t=$(mktemp -d k.XXXXXX) && echo {n} >$t/in && rm -r dd; mv $t dd; ls dd"),
        6 => format!("find . -type f -size -{n} -newer missing; find . -name '[a-m]*' | sort"),
        7 => "find . -type f -print0 | sort -z | xargs -0 -n 2 wc -c".to_owned(),
        8 => format!("cp -a d e{n}; rm -r d/no e{n}/x; ls -R e{n}"),
        9 => format!("ln -f {f} {g}; stat -c %h {f} {g}; ln -sf {f} s; cat s"),
        10 => {
            format!(
                "truncate -s {n}00 {f}; wc -c {f}; truncate -s -7 {f}; od -c {f} >out; \
                 tail -n 3 out"
            )
        }
        11 => format!("dd if={f} of={g} bs=7 skip=1 seek=2 count=9 conv=notrunc 2>&-; cmp {f} {g}"),
        12 => format!(
            "split -b {}k {g} sp.; cat sp.* 2>&- | cmp -s - {g}; echo $?; \
             rm -f sp.*",
            1 + n % 3
        ),
        13 => format!("tac {f} 2>&- | paste -d, - {g} 2>&- | uniq -c | tail -n 5"),
        14 => {
            format!("diff {f} {g} >d/diff; echo $?; patch -sf {f} d/diff 2>&-; head -n 4 {f}")
        }
        15 => "mkdir -p ex; tar cf - d | tar xf - -C ex && tar cf t.tar --sort=name --mtime=@0 \
             d; tar tf t.tar"
            .to_owned(),
        16 => format!("cat {f} >>{f}; echo $?; cat {f} {g} >new2; mv new2 {f}; md5sum {f}"),
        17 => format!("install -m 640 {f} d/inst; stat -c '%a %s' d/inst; rm -f {g}; ls"),
        18 => {
            format!(
                "tail -n +2 {f} 2>&- | tail -c {n}; comm -12 {f} {g} 2>&-; \
                 csplit -s {f} 2 2>&1; ls"
            )
        }
        19 => format!("mkdir -p p/q/r; echo {n} >p/q/f; rmdir p/q; (cd p/q && pwd -P | tail -c 4)"),
        _ => format!(
            "gzip -kf {f}; zcat {f}.gz 2>&- | cmp -s - {f}; echo $?; rm -f {f}.gz; \
                 awk 'END{{print NR > \"nr\"}}' {f}"
        ),
    }
}

fn processes(random: &mut Random, f: &str, g: &str, n: u64) -> String {
    match random.below(11) {
        0 => format!(
            "rm -f q; for j in 1 2 3; do (for i in 1 2 3 4; do echo $j $i {n} >>q; done) & done; \
             wait; sort -o q q; cat q >{f}"
        ),
        1 => format!("(trap 'echo end >>{f}' EXIT; echo {n} >{f}; exit 4); echo $?; cat {f}"),
        2 => {
            format!("sh -c 'trap \"echo got >{f}; exit 5\" TERM; kill -TERM $$; echo no'; echo $?")
        }
        3 => format!(
            "cat {f} 2>&- | (read -r x; echo \"$x\"; cat) | sort >out; head -n 4 out; mv out {g}"
        ),
        4 => format!("(echo bg {n} >{f}; sh -c 'exit 6') & wait $!; echo $?; cat {f}"),
        5 => format!("f() {{ echo in f; cat; }}; f <{f} >{g} 2>&1; f <<<x; head -n 3 {g}"),
        6 => format!("x=$(cat {f} 2>&1; echo {n}); echo \"$x\" | md5sum; echo \"${{#x}}\" >{g}"),
        7 => {
            format!("ls d | xargs -I% sh -c 'echo % {n}; cat d/%' >out 2>&1; wc -l out; mv out {f}")
        }
        8 => format!("(exec >{f}; echo one; exec >{g}; echo two; exec cat <{f}); cat {g}"),
        9 => format!("sh -c 'exec 3>&1 >{f}; echo in {n}; echo out >&3'; env -i cat {f}"),
        _ => format!(
            "echo 'echo script {n} $1' >{f}; sh ./{f} x >{g}; . ./{f}; chmod +x {f}; cat {g}"
        ),
    }
}

/// The script of a seed; its first line says which shell.
fn script(seed: u64) -> Vec<String> {
    let mut random = Random::new(seed ^ 0x5e11);
    let mut lines = vec![
        "mkdir d; echo xx >d/x; seq 5 >d/y".to_owned(),
        "seq 100 130 >a; printf 'word %s\\n' k j a c >b; printf 'no end' >c".to_owned(),
        "seq 3000 | tr '\\n' ' ' >n".to_owned(),
    ];
    lines.extend((0..6 + random.below(14)).map(|_| statement(&mut random)));
    lines
}

fn run_by(shell: &str, faces: &Faces, face: Face, script: &[String]) -> String {
    let (name, file) = (Faces::next_name(), faces.beside("script"));
    std::fs::write(&file, script.join("\n")).expect("a script");
    let directory = format!("{}/{name}", faces.root(face));
    let around =
        "mkdir \"$1\" && cd \"$1\" && \"$2\" \"$3\" 2>&1; echo \"ended with $?\"; \"$4\" \"$1\"";
    let file = file.to_str().expect("our own names are UTF-8");
    let line = ["sh", "-c", around, "sh", &directory, shell, file, &program()];
    faces.run(face, &line).replace(&name, "DIRECTORY")
}

fn run_by_bash(faces: &Faces, face: Face, script: &[String]) -> String {
    run_by("bash", faces, face, script)
}

fn run_by_dash(faces: &Faces, face: Face, script: &[String]) -> String {
    run_by("dash", faces, face, script)
}

const BASH: Family = Family { name: "bash", script, run: run_by_bash };
const DASH: Family = Family { name: "dash", script, run: run_by_dash };

#[test]
fn generated_scripts_on_a_volume() {
    for mode in MODES {
        BASH.compare(Face::Volume(mode));
        DASH.compare(Face::Volume(mode));
    }
}

#[test]
fn generated_scripts_over_a_split_directory() {
    for mode in MODES {
        BASH.compare(Face::Split(mode));
        DASH.compare(Face::Split(mode));
    }
}

#[test]
fn generated_scripts_on_a_mount() {
    BASH.compare(Face::Mount);
    DASH.compare(Face::Mount);
}

#[test]
fn generated_scripts_are_the_same_twice_on_tmpfs() {
    BASH.compare(Face::Tmpfs);
    DASH.compare(Face::Tmpfs);
}
