# Programs without glibc's dynamic linker, which a host runs: musl's, static and dynamic; glibc's, static and
# static-pie; Rust's for musl; busybox; a script of it; a program with a dynamic linker of its own.
needs gcc
# Another user finds the way to the directory.
chmod 711 "${AT%/*}"
checks="files threads detached processes again signals mappings robust cancel clocks users beside names stacks"
# check KIND NAME: one of musl_checks.c's, in a directory of its own.
check() {
    srun mkdir "$AT/$1.$2"
    said "$1: $2" srun timeout -k 5 60 "./$1/musl_checks" "$2" "$AT/$1.$2"
}
# built KIND COMPILER...: builds it. (The name is the same, which programs tell.)
built() {
    local kind=$1
    shift
    mkdir -p "$kind"
    command -v "$1" >/dev/null && "$@" -std=gnu17 -O1 -w -pthread -o "$kind/musl_checks" "$HERE/cases/musl_checks.c" 2>"$kind.errors" ||
        { echo "skipped: $kind: $(tail -n 1 "$kind.errors")" >&2; return 1; }
}
for kind in "musl-static musl-gcc -static" "musl-dynamic musl-gcc" "glibc-static gcc -static" "static-pie gcc -static-pie"; do
    # shellcheck disable=SC2086 # words
    built $kind || continue
    for name in $checks; do check "${kind%% *}" "$name"; done
done
# Code on the stack; a large stack, many bytes of arguments; more threads at once than the host keeps stacks for.
cat >nested.c <<'END'
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static char path[4096];
static int ends[2];
static int apply(int (*f)(int), int n) { int s = 0; for (int i = 0; i < n; i++) s += f(i); return s; }
static void *idle(void *x) { char c; access(path, F_OK); read(ends[0], &c, 1); return x; }
static void *work(void *x) { return access(path, F_OK) ? 0 : path; }
static int maps(void) { FILE *f = fopen("/proc/self/maps", "r"); int n = 0; char l[512]; while (fgets(l, sizeof l, f)) n++; fclose(f); return n; }
int main(int c, char **v) {
    int k = c;
    int add(int x) { return x + k; }
    printf("nested %d, arguments %zu\n", apply(add, 10), strlen(v[2]));
    volatile char *deep = __builtin_alloca(6 << 20);
    for (int i = 0; i < 6 << 20; i += 4096) deep[i] = 1;
    strcpy(path, v[1]);
    pipe(ends);
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 65536);
    pthread_t t;
    int made = 0, right = 0;
    for (int i = 0; i < 300; i++) made += !pthread_create(&t, &a, idle, 0);
    int before = maps();
    for (int i = 0; i < 1000; i++) {
        void *gives;
        if (pthread_create(&t, &a, work, 0)) break;
        pthread_join(t, &gives);
        right += gives != 0;
    }
    printf("threads %d %d, mappings grow: %d\n", made, right, maps() > before + 500);
    fflush(stdout);
    _exit(0);
}
END
sed -i '1i #include <fcntl.h>' nested.c
long=$(head -c 120000 /dev/zero | tr '\0' x)
for compiler in gcc musl-gcc; do
    command -v $compiler >/dev/null && $compiler -static -O0 -w -pthread -o nested nested.c 2>/dev/null || continue
    said "stack and threads: $compiler" srun timeout -k 5 60 ./nested "$AT" "$long"
done
# Busybox: a shell that runs itself, and its tools.
cat >busy <<'END'
set -u
cd "$1"; echo one >a; echo two >>a; cat a | tr a-z A-Z | sort -r
cat <<E
here $((6*7)) $(basename "$PWD" | wc -l)
E
for i in 1 2 3 4 5 6 7 8 9 10; do echo "$i" >"f$i"; done
find . -type f -name 'f*' -exec cat {} \; | sort -n | tr '\n' ' '; echo
find . -type f -name 'f*' -exec cat {} + | wc -l; find . -name 'f1*' | sort | xargs grep -l 1
tar cf t.tar f1 f2 f3 a && mkdir x && tar xf t.tar -C x && ls x && tar tf t.tar; gzip -k a && gunzip -c a.gz
sed -i 's/one/ONE/' a && awk '{ s += length($0) } END { print s; print s > "awked" }' a && cat awked
awk 'BEGIN { while (("cat a" | getline l) > 0) print "got", l; system("echo from awk >>a") }'; cat a
cp -r x y && mv y z && rm -r x && ls z; ln -s a s && ln a h && readlink s && stat -c '%h %s %F' a
touch -d '2001-02-03 04:05:06' a && date -r a -u '+%F %T'; dd if=/dev/zero of=big bs=4k count=300 2>/dev/null; sha256sum big
trap 'echo trapped' USR1; kill -USR1 $$; (trap 'echo subshell ends' EXIT; exit 3); echo $?
sleep 0.1 & wait $!; echo waited $?; sleep 5 & p=$!; kill $p; wait $p; echo killed $?
{ echo to three >&3; } 3>fd3; cat fd3; exec 4<>fd4; echo by four >&4; exec 4>&-; cat fd4
while read -r l; do echo "- $l"; done <a; mkfifo ff; (echo through >ff) & cat ff; wait
printf 'echo script $# $1\n' >script; chmod +x script; ./script a b
printf '#!%s sh\necho named\n' "$BB" >sb; chmod +x sb; ./sb; "$BB" cp "$BB" bb; ./bb sh -c 'exec ./bb echo copied'
ash -c 'set -m; sleep 0.2 & jobs | wc -l; fg >/dev/null; echo fg $?'
seq 1 5000 >n; split -l 1000 n part.; cat part.* | cmp - n && tail -n 2 n; timeout 0.2 sleep 5; echo $?
flock fd3 echo locked; install -m 600 a inst; stat -c %a inst; rm -rf f* part.*; ls; nosuchprogram 2>/dev/null; echo $?
END
BB=$(command -v busybox) && file -L "$BB" 2>/dev/null | grep -q statically && export BB
if [ -n "${BB:-}" ]; then
    said busybox srun "$BB" sh -c 'mkdir "$1/busy"; exec "$BB" sh ./busy "$1/busy"' sh "$AT"
else
    echo "skipped: busybox: there is no static one" >&2
fi
# Rust for musl.
cat >main.rs <<'END'
use std::{env, fs, io::Write, process::{Command, Stdio}, sync::mpsc, thread};
fn main() {
    let at = env::args().nth(1).unwrap();
    let (sends, gets) = mpsc::channel();
    for i in 0..8 {
        let (at, sends) = (at.clone(), sends.clone());
        thread::spawn(move || {
            for turn in 0..100 {
                fs::write(format!("{at}/{i}"), format!("{turn}")).unwrap();
            }
            sends.send(fs::read_to_string(format!("{at}/{i}")).unwrap().len()).unwrap();
        });
    }
    drop(sends);
    println!("{}", gets.iter().sum::<usize>());
    let mut child = Command::new("sort").arg("-r").stdin(Stdio::piped()).stdout(fs::File::create(format!("{at}/sorted")).unwrap()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a\nb\n").unwrap();
    println!("{}", child.wait().unwrap());
    println!("{:?}", fs::read_to_string(format!("{at}/sorted")).unwrap());
    println!("{:?}", Command::new(format!("{at}/none")).spawn().map_err(|e| e.kind()).err());
    fs::create_dir_all(format!("{at}/a/b/c")).unwrap();
    fs::copy(format!("{at}/sorted"), format!("{at}/a/b/c/d")).unwrap();
    fs::remove_dir_all(format!("{at}/a")).unwrap();
    println!("{}", fs::read_dir(&at).unwrap().count());
    let file = fs::File::open(format!("{at}/0")).unwrap();
    file.lock().unwrap();
    println!("{}", env::current_exe().unwrap().ends_with("rust"));
    println!("{}", thread::spawn(|| { if true { panic!("ends") } }).join().is_err());
}
END
if rustc --target x86_64-unknown-linux-musl -O -o rust main.rs 2>rust.errors; then
    said "Rust" srun sh -c 'mkdir "$0/rust"; exec ./rust "$0/rust" 2>/dev/null' "$AT"
else
    echo "skipped: Rust: $(grep -m 1 error rust.errors)" >&2
fi
# A folder with a dynamic linker and C library of its own, as application images have.
linker=$(readlink -f /lib64/ld-linux-x86-64.so.2)
mkdir -p app/lib && cp "$linker" app/lib/ld-linux-x86-64.so.2 && cp "$(dirname "$linker")/libc.so.6" app/lib &&
    gcc -std=gnu17 -O1 -w -pthread -o app/musl_checks "$HERE/cases/musl_checks.c" -Wl,-rpath,'$ORIGIN/lib' \
        -Wl,-dynamic-linker,"$PWD/app/lib/ld-linux-x86-64.so.2" && for name in $checks; do check app "$name"; done
