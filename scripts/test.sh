#!/usr/bin/env bash
# Everything that must pass, stage by stage; each stage's output is kept in target/test-logs. Goes on
# after a failed stage, so that one run shows all that is wrong. At the end it says what each stage
# took, on the clock and of the processors. The last line is "N passed, N failed, N skipped"; the exit
# code is 0 only if nothing failed. Whatever happens, nothing stays behind (scripts/enclosure.sh).
#
# What is sampled runs by rotation (scripts/rotation.py): in each commit another part, in the long run all.
set -uo pipefail
cd "$(dirname "$0")/.."
[ -n "${ENCLOSED:-}" ] || exec scripts/enclosure.sh scripts/test.sh

export RUST_BACKTRACE=0
logs=target/test-logs
mkdir -p "$logs"
rm -f "$logs"/*.ended "$logs"/*.log
# One seed for all of the run, whatever is committed meanwhile.
SOLERA_ROTATION=${SOLERA_ROTATION-$(scripts/rotation.py)}
export SOLERA_ROTATION
long=${SOLERA_TEST_LONG:-}
passed=0 failed=0 skipped=0 seconds=()
# What takes so many seconds hangs.
if [ -n "$long" ]; then late=14400; else late=1500; fi

# What is built with the faults that can be put in, once for all its programs (those of the explorer
# want it): the explorer, in the stage `explorer`, and the programs that look for the faults.
INJECT=solera-explorer/inject,solera-flac/inject

# Adds up "N passed; N failed; N ignored" of cargo and "N passed, N failed, N skipped" of scripts.
add_up() {
    awk '
        function before(word,   found) {
            if (!match($0, "[0-9]+ " word)) return 0
            found = substr($0, RSTART, RLENGTH)
            return found + 0
        }
        /^test result: / || /^[0-9]+ passed, [0-9]+ failed/ {
            p += before("passed"); f += before("failed"); s += before("ignored") + before("skipped")
        }
        END { print p + 0, f + 0, s + 0 }' "$1"
}

# What a log says of its failures: each failed test with its output, wherever it stands in the log;
# the end of the log if there is no such place.
what_failed() {
    local found
    found=$(sed -n -e '/^---- .* ----$/,/^failures:$/p' -e '/^test .*FAILED$/p' -e '/^test result: FAILED/p' \
        -e '/^error/,+8p' -e '/^FAILED/{/: not ended/!p}' \
        -e '/has been running for over/p' -e '/^FAILED.*: not ended/,$p' -e '/^\(strict\|sync\|posix\)\/.*: /p' "$1" | head -n 200)
    if [ -n "$found" ]; then
        printf '%s\n' "$found"
    else
        tail -n 60 "$1"
    fi
}

# measured NAME COMMAND...: runs it; leaves its exit code, and what it took in seconds, on the clock and
# of the processors.
measured() {
    local name=$1 begun=$SECONDS code fields
    shift
    "$@" > "$logs/$name.log" 2>&1 < /dev/null
    code=$?
    read -ra fields < "/proc/$BASHPID/stat"
    echo "$code $((SECONDS - begun)) $(((fields[15] + fields[16]) / $(getconf CLK_TCK)))" > "$logs/$name.ended"
}

# beside NAME COMMAND...: begins a stage that mostly waits, or keeps one processor busy; `joined` ends it.
# In a group of its own, so that all of it ends if this is interrupted. With `behind=OTHER` it begins when
# that one, itself beside others, has ended.
declare -A begun
beside() {
    set -m
    in_turn "${behind:-}" "$@" &
    set +m
    begun[$1]=$!
}

# in_turn OTHER NAME COMMAND...
in_turn() {
    until [ -z "$1" ] || [ -e "$logs/$1.ended" ] || ! kill -0 "${begun[$1]}" 2> /dev/null; do sleep 0.2; done
    shift
    measured "$@"
}
trap 'for group in $(jobs -p); do kill -- "-$group"; done 2> /dev/null' EXIT
trap 'exit 130' INT TERM HUP

# ended NAME: waits for what `beside` began, so long as may be; then its log says what it was at. It
# looks, since bash's `wait` once came back while the job went on.
ended() {
    local group=${begun[$1]} end=$((SECONDS + late))
    until [ -e "$logs/$1.ended" ] || ! kill -0 "$group" 2> /dev/null; do
        if [ "$SECONDS" -ge "$end" ]; then
            {
                echo "FAILED $1: not ended $late s after all before it had; what ran:"
                ps -eo pgid,pid,ppid,stat,etimes,wchan:24,args --width 200 |
                    awk -v group="$group" 'NR == 1 || $1 == group'
            } >> "$logs/$1.log"
            kill -KILL -- "-$group"
            break
        fi
        sleep 0.2
    done
    wait "$group" 2> /dev/null
}

# stage NAME COMMAND...: runs it; a stage that counts no tests is a test itself.
stage() {
    printf '== %s\n' "$1"
    beside "$@"
    ended "$1"
    judge "$1"
}

# joined NAME: waits for what `beside` began.
joined() {
    printf '== %s (beside others)\n' "$1"
    ended "$1"
    judge "$1"
}

# judge NAME: what came out of a stage.
judge() {
    local name=$1 log="$logs/$1.log" code took ticks p f s
    read -r code took ticks < <(cat "$logs/$name.ended" 2> /dev/null || echo "137 0 0")
    # What skips itself says so in its output.
    [ "$code" -ne 77 ] || code=0
    read -r p f s < <(add_up "$log")
    [ $((p + f + s)) -gt 0 ] || p=$((code == 0))
    # A stage that failed before its tests could fail (it did not build, say) counts as one failure.
    [ "$code" -eq 0 ] || [ "$f" -gt 0 ] || f=1
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    seconds+=("$(printf '%-18s %5d s, %5d s of the processors' "$name" "$took" "$ticks")")
    if [ "$code" -eq 0 ]; then
        printf '   ok: %d passed, %d skipped, %d s\n' "$p" "$s" "$took"
        # What the crash explorer went through.
        grep -ohE '[a-z, ]+: [0-9]+ workloads, .*' "$log" | sed 's/^ */   /'
    else
        printf '   FAILED: %d passed, %d failed, %d s (%s):\n' "$p" "$f" "$took" "$log"
        what_failed "$log" | sed 's/^/   | /'
    fi
    # What was skipped, and why.
    grep -E '^ *skipped[: ]' "$log" | sort -u | sed 's/^ */   /'
}

skip() {
    printf '== %s\n   skipped: %s\n' "$1" "$2"
    skipped=$((skipped + 1))
}

# some PARTS NAME...: those of the names that run at this commit; one at least.
some() {
    local chosen
    chosen=$(scripts/rotation.py "$@")
    echo "${chosen:-$(scripts/rotation.py deal 1 "at least" "${@:2}")}"
}

# What is there, now and when all has ended: names in the folders that everybody writes to, and mounts.
# The JVM's own and notes of blkid's and ip's are no concern. Where these folders are not this run's own
# (it is the first process of its namespace otherwise), only what has names of ours.
ours=()
[ $$ -eq 1 ] || ours=(-user "$(id -u)" '(' -name 'solera*' -o -name 'sc.*' ')')
present() {
    find /dev/shm /tmp /run -mindepth 1 -maxdepth 1 ! -name 'hsperfdata_*' ! -path /run/blkid ! -path /run/netns \
        "${ours[@]}"
    find /run/netns -mindepth 1 2> /dev/null
    awk '{ print "mounted: " $5 }' /proc/self/mountinfo
}

# leftovers: fails if there is more than `before`, but for the product's own anchors, which it removes.
leftovers() {
    local anchor left
    # What ends by itself may take some seconds.
    for _ in $(seq 50); do
        for anchor in /dev/shm/solera-[0-9]* /tmp/solera-[0-9]* /run/solera; do
            [[ ${anchor##*/} =~ ^solera(-[0-9]+)?$ ]] && ! grep -qxF "$anchor" <<< "$before" || continue
            rm -rf --one-file-system "$anchor"
        done
        left=$(comm -13 <(sort <<< "$before") <(present | sort))
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    printf 'left behind: %s\n' "${left//$'\n'/$'\nleft behind: '}"
    [ $$ -ne 1 ] || ps -eo pid,ppid,etimes,args --width 160
    return 1
} 2> /dev/null
before=$(present)

# What needs no build goes on beside it.
beside format cargo fmt --all --check
behind=format beside style scripts/style.sh
behind=style beside layers scripts/layers.py
behind=layers beside crates scripts/crates.py --check
behind=crates beside links scripts/links.py
behind=links beside words scripts/words.py
behind=words beside dependencies scripts/deny.sh ${long:+--always}
# The tests with it: so that one crate's wait for another leaves no processor idle. One profile for
# everything: what is tested is what is used, and it is built once.
stage build scripts/units.py --build
for name in format style layers crates links words dependencies; do joined "$name"; done
# Beside the tests, for it builds nothing that they use; before the other stages that ask cargo.
beside lint cargo clippy --release --workspace --features "$INJECT" --all-targets -- -D warnings
# These suites wait for clocks and files, and some are a single program that is long; so do programs.
# Each kind beside what keeps all processors busy, one after another.
waiting=(lint machine-crashes)
# Boots an emulated machine some times, which keeps one processor busy for a minute or two.
beside machine-crashes tests/vm/run
if [ -x tests/conformance/run ]; then
    beside conformance tests/conformance/run
    waiting+=(conformance)
    # The engine over a directory of the kernel's, beside that directory without it: some of it is in the short run
    # of the above, too.
    if [ -n "$long" ]; then
        behind=conformance beside conformance-split env FACES=split tests/conformance/run
        waiting+=(conformance-split)
    fi
fi
if [ -x tests/programs/run ]; then
    # On a volume; without one, over kernel file systems; by a cache that is smaller than what they read; by the kernel,
    # over a mount, as containers have it. In the short run some of them.
    cases=(tests/programs/cases/*.sh)
    cases=("${cases[@]##*/}")
    cases=("${cases[@]%.sh}")
    over=(git sqlite-wal sqlite-processes leveldb lmdb build)
    [ -z "$long" ] || over+=(perl python archives bash coreutils fio tar rsync redis sqlite-delete)
    if [ -n "$long" ]; then
        cached=("${cases[@]}") overlaid=("${cases[@]}")
    else
        cached=(git leveldb lmdb) overlaid=(coreutils lmdb sqlite-wal)
    fi
    # programs NAME BEHIND PARTS VARIABLES... -- CASE...: a stage of those of the cases that run at this commit.
    programs() {
        local name=$1 first=$2 parts=$3 variables=() chosen
        shift 3
        while [ "$1" != -- ]; do variables+=("$1"); shift; done
        shift
        mapfile -t chosen < <(some "$parts" "${@/#/$name }")
        behind=$first beside "$name" env "${variables[@]}" tests/programs/run "${chosen[@]#"$name "}"
        waiting+=("$name")
    }
    programs programs machine-crashes 2 -- "${cases[@]}"
    programs split-programs programs 3 SPLIT=tmpfs -- "${over[@]}"
    programs split-programs-xfs split-programs 2 SPLIT=exchange -- git leveldb
    programs cached-programs split-programs-xfs 3 CACHE=16M -- "${cached[@]}"
    programs attached-programs cached-programs 3 CACHE=64M ATTACH=1 -- "${cached[@]}"
    programs overlay-programs attached-programs 3 OVERLAY=1 -- "${overlaid[@]}"
fi
if [ -x tests/door/run ]; then
    # What stands before the C library: in the short run a quarter.
    cases=(tests/door/cases/*.sh)
    cases=("${cases[@]##*/}")
    mapfile -t chosen < <(some 4 "${cases[@]/#/door }")
    chosen=("${chosen[@]#door }")
    behind=overlay-programs LIMIT=${long:+900} beside door tests/door/run "${chosen[@]%.sh}"
    waiting+=(door)
fi
if [ -x tests/ddmap/run ]; then
    # It waits for patience to end, mostly. In the long run all of it, and programs on a domain.
    if [ -n "$long" ]; then
        beside ddmap tests/ddmap/run
        behind=overlay-programs beside ddmap-programs env DDMAP=64M tests/programs/run
        # With a part of what they store on the host.
        behind=ddmap-programs beside ddmap-half env DDMAP=half tests/programs/run
        behind=conformance-split beside conformance-local env FACES=ddmap LOCAL=10% tests/conformance/run fsx sessions posix
        behind=conformance-local beside conformance-copies env FACES=ddmap COPIES=2 LOCAL=10% tests/conformance/run fsx sessions posix
        waiting+=(ddmap ddmap-programs ddmap-half conformance-local conformance-copies)
    else
        behind=machine-crashes beside ddmap tests/ddmap/run --short
        waiting+=(ddmap)
    fi
fi
# Commands as the documentation shows them, typed.
behind=machine-crashes beside pages tests/pages/run
waiting+=(pages)
if [ -x tests/sqlite/run ]; then
    # SQLite's own suite by our VFS, on tmpfs and on a volume: in the short run, what touches a VFS.
    if [ -n "$long" ]; then suites=(full veryquick); else suites=(ci ci); fi
    stage sqlite-vfs crates/capi/link.sh target/release/libsolera.a target/release
    behind=conformance beside sqlite tests/sqlite/run -j 2 --set "${suites[0]}"
    behind=sqlite beside sqlite-volume tests/sqlite/run -j 2 --volume --set "${suites[1]}"
    waiting+=(sqlite sqlite-volume)
fi
stage units scripts/units.py --built
# Of the whole workspace, so that nothing is built with other features.
stage explorer cargo test --release --workspace --features "$INJECT" --test crash -- --nocapture
stage injected-bugs cargo test --release --workspace --features "$INJECT" --test bugs
for name in "${waiting[@]}"; do joined "$name"; done
# Behind the suites, which build fsx.
if [ -n "$long" ]; then
    stage rusqlite env -C crates/sqlite/rusqlite cargo run --release -- "$PWD/target/release/solera_vfs.so" "$PWD/target/rusqlite.db"
    stage machine-programs tests/vm/run programs
    stage machine-nfs tests/vm/run nfs
    stage machine-swap tests/vm/run swap
    stage explorer-cached env -u SOLERA_TEST_LONG SOLERA_TEST_CACHE=1 \
        cargo test --release --workspace --features "$INJECT" --test crash campaigns
    stage hazards scripts/hazards.py -n 100
    stage go-suites tests/go/run
    stage door-libraries scripts/door-libraries.sh target/door-libraries --test
    # Of those whose calls that are cancellation points are made at one place.
    for build in target/door-libraries/libc6_2.4[1-9]*; do
        [ -e "$build/ld.so" ] || continue
        version=${build#*_}
        stage "instructions-${version%_*}" env SOLERA_C_LIBRARY="$PWD/$build" scripts/units.py --built instructions
    done
    stage door-roots scripts/door-roots.sh target/door-roots
    stage packages make --no-print-directory test-deb
    stage tarball make --no-print-directory tarball
    stage containers tests/containers/run
    # In it the short run: what it shows is that nothing is missing.
    stage bare env -u ENCLOSED -u SOLERA_ROTATION scripts/test-bare.sh
fi
stage leftovers leftovers

echo "== all: $SECONDS s"
printf '   %s\n' "${seconds[@]}"
[ -n "$long" ] || echo "   what is sampled was chosen by SOLERA_ROTATION=$SOLERA_ROTATION"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
