# Rust's tools and crates, of which many make system calls by `rustix` or `linux-raw-sys`: uutils' coreutils,
# ripgrep, fd and bat (Debian's, or those of DOOR_COREUTILS and PATH), tempfile and fjall (a key-value store),
# linked with glibc and for musl.
[ -n "${SOLERA_TEST_LONG:-}" ] || skip "only in make test-long: it builds for a minute"
needs cargo
tools=$HERE/../../target/door-tools/rust
mkdir -p kv/src
cat >kv/Cargo.toml <<'END'
[package]
name = "kv"
version = "0.1.0"
edition = "2021"
[dependencies]
fjall = "=3.1.13"
tempfile = "=3.27.0"
[profile.dev]
debug = 0
[workspace]
END
cp "$HERE/cases/rust_checks.rs" kv/src/main.rs
# build TARGET: once for all runs; the first time it may take minutes, so with a limit.
build() {
    [ -x "$tools/$1/debug/kv" ] && [ "$tools/$1/debug/kv" -nt "$HERE/cases/rust_checks.rs" ] && return
    timeout 150 cargo build -q --manifest-path kv/Cargo.toml --target-dir "$tools" --target "$1" >"$1.errors" 2>&1 ||
        { echo "skipped: $1: $(grep -m 1 error "$1.errors" || echo it takes too long to build)" >&2; return 1; }
}
for target in x86_64-unknown-linux-gnu x86_64-unknown-linux-musl; do
    build $target || continue
    said "crates: $target" srun sh -c 'mkdir "$0/$1"; exec "$2/$1/debug/kv" "$0/$1" 2>/dev/null' "$AT" $target "$tools"
    # (One that the dynamic linker starts is executed from memory there, and called so.)
    [ $target = x86_64-unknown-linux-gnu ] ||
        said "a copy: $target" srun sh -c 'mkdir "$0/c$1"; cp "$2/$1/debug/kv" "$0/kv"; exec "$0/kv" "$0/c$1" 2>/dev/null' "$AT" $target "$tools"
done
cat >core <<'END'
cd "$1"; set -u
u() { "$CU" "$@" || echo "$1: $?"; }
u mkdir -p a/b/c d; for i in 1 2 3; do seq $((i*1000)) >a/$i; done
u touch -d 2001-02-03 a/1; stat -c '%Y %s' a/1
u cp -r a e; diff -r a e && echo same; u cp -a a pp; stat -c %Y pp/1; u cp a/2 rf; cmp rf a/2
u mv e f; u ls f; u mv f/1 f/x; u ls -R f; u ln -s a/1 l; u ln a/1 h; stat -c '%h %F' l h
u cat a/1 a/2 | sha256sum; u cat <a/3 >cat3; cmp cat3 a/3; u cat a/3 | u cat >cat4; cmp cat4 a/3 && echo ok
echo tee | u tee t1 t2; u tee -a t1 <a/1 >/dev/null; wc -l <t1
u install -m 600 -D a/1 i/j/k; stat -c '%a %s' i/j/k; u rm nope 2>/dev/null; u rm -f nope; u mkdir a 2>/dev/null
u dd if=a/3 of=dd bs=100 count=7 skip=2 seek=1 2>/dev/null; sha256sum dd; u truncate -s 1M tr; stat -c %s tr; u wc -l a/3
u sort -rn a/3 | u head -n 3; u tail -n 2 a/3; u cp a/1 a/2 nodir 2>/dev/null; u ln -sf b l; readlink l; u cp --backup=numbered a/2 h
u ls; u rm -r a f; u ls; u cp rf "$OUT/out"; cmp "$OUT/out" rf; u mv "$OUT/out" back; u ls back "$OUT"
END
mkdir out
CU=${DOOR_COREUTILS:-$(command -v coreutils || :)}
if [ -n "$CU" ]; then
    export CU OUT=$PWD/out
    said coreutils srun sh -c 'mkdir "$0/core" && exec bash ./core "$0/core"' "$AT"
else
    echo "skipped: there is no coreutils (rust-coreutils)" >&2
fi
cat >find <<'END'
cd "$1"; mkdir -p src/sub .hidden .git; for i in $(seq 200); do printf 'fn f%d() { let needle_%d = %d; }\n' $i $i $i >src/f$i.rs; done
cp src/f1.rs src/sub; echo needle_1 >.hidden/x; echo sub/ >.gitignore
if command -v rg >/dev/null; then
    rg -n --sort path needle_1 | head -n 5; rg -c needle . | sort | sha256sum; rg -l --hidden --no-ignore needle_1 . | sort | wc -l
    rg --mmap needle_77 src; rg --no-mmap needle_77 src; rg --files | wc -l; rg -j 8 'needle_\d5' | sort | sha256sum; rg zzz; echo $?
fi
if command -v fdfind >/dev/null; then
    fdfind -e rs | wc -l; fdfind -H -I . | sort | sha256sum; fdfind f19 -x wc -c {} | sort; fdfind -t d | sort
fi
if command -v batcat >/dev/null; then
    export BAT_CONFIG_PATH=$PWD/none; batcat --cache-dir >/dev/null 2>&1; batcat -p --color always src/f1.rs | sha256sum; batcat -n src/f2.rs src/f3.rs
fi
END
said "to look for files" srun sh -c 'mkdir "$0/find" && HOME=$0 exec bash ./find "$0/find"' "$AT"
