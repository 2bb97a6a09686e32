#!/usr/bin/env bash
# Runs a command so that nothing of it stays behind, whether it passes, fails or is interrupted. As root
# it gets a /dev/shm, a /tmp, a /run, mounts and processes of its own (namespaces), which end with it; so
# nothing that others do on this machine counts as the command's, either. In its /run stands what stands in
# the machine's, but for the product's own, /run/solera. Where that cannot be, it gets a TMPDIR and a
# SOLERA_TEST_DIR of its own; at the end its processes are killed, known by a variable of their environment,
# and what has come to /dev/shm and /tmp under names of ours is removed.
#
# usage: scripts/enclosure.sh COMMAND...     (which finds ENCLOSED in its environment)
set -uo pipefail

# inside COMMAND...: the first process of the namespaces.
inside() {
    local entry name
    mount -t tmpfs -o "$(findmnt -nro OPTIONS /dev/shm | tail -n 1)" tmpfs /dev/shm &&
        mkdir "$ENCLOSED/run" && mount --rbind /run "$ENCLOSED/run" &&
        mount -t tmpfs -o mode=755 tmpfs /run || exit 1
    for entry in "$ENCLOSED"/run/* "$ENCLOSED"/run/.[!.]*; do
        name=/run/${entry##*/}
        if [ "$name" = /run/solera ]; then
            continue
        elif [ -L "$entry" ]; then
            cp -a "$entry" "$name"
        elif [ -d "$entry" ]; then
            mkdir -p "$name" && mount --rbind "$entry" "$name"
        elif [ -e "$entry" ]; then
            : > "$name" && mount --bind "$entry" "$name"
        fi || exit 1
    done
    umount -l "$ENCLOSED/run" && mount --bind "$ENCLOSED/tmp" /tmp || exit 1
    exec "$@"
}
if [ "${1:-}" = --inside ]; then inside "${@:2}"; fi

cd "$(dirname "$0")/.." || exit 1
mkdir -p target
scratch=$(mktemp -d "$PWD/target/enclosure.XXXXXX") || exit 1
export ENCLOSED=$scratch
mkdir -m 1777 "$scratch/tmp"
child='' spaces=''

# The product's own, by user; and what its tests and scripts make.
ours() { find /dev/shm /tmp -mindepth 1 -maxdepth 1 -user "$(id -u)" \( -name 'solera*' -o -name 'sc.*' \); }
before=$(ours)

# enclosed: the processes that have our mark.
enclosed() { grep -lazxF "ENCLOSED=$scratch" /proc/[0-9]*/environ | grep -o '[0-9]*'; }

# leave: ends what runs, and removes what is left.
leave() {
    trap '' INT TERM HUP
    export -n ENCLOSED
    local pid left
    [ -z "$child" ] || kill -KILL -- "-$child"
    if [ -z "$spaces" ]; then
        for pid in $(enclosed); do kill -KILL "$pid"; done
        comm -13 <(sort <<< "$before") <(ours | sort) | while read -r left; do rm -rf "$left"; done
    fi
    # With the first process all others of its namespace end, and then its mounts.
    wait
    for _ in $(seq 100); do
        [ -n "$(enclosed)" ] || break
        sleep 0.1
    done
    rm -rf --one-file-system "$scratch"
} 2> /dev/null
trap leave EXIT
trap 'exit 130' INT TERM HUP

own=(unshare --mount --pid --fork --kill-child --mount-proc --propagation private)
# A process group of its own, so that an interrupt from the terminal comes here first; and so that it
# does not begin with signals ignored, as what bash runs in the background otherwise does.
set -m
if [ "$(id -u)" = 0 ] && mountpoint -q /dev/shm && "${own[@]}" true 2> /dev/null; then
    spaces=yes
    "${own[@]}" "$PWD/scripts/enclosure.sh" --inside "$@" < /dev/null &
else
    shm=$scratch/shm
    if [ -w /dev/shm ]; then shm=$(mktemp -d /dev/shm/solera-test.XXXXXX); else mkdir "$shm"; fi
    TMPDIR=$scratch/tmp SOLERA_TEST_DIR=$shm "$@" < /dev/null &
fi
child=$!
set +m
wait "$child"
code=$?
child=
exit $code
