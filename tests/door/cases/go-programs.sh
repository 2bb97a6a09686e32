# Real programs of Go without C, from the module proxy, by a host: restic (a backup, checked, restored,
# thinned), age, bbolt's own command, and rclone (copied, changed, synchronised, checked, encrypted).
[ -n "${SOLERA_TEST_LONG:-}" ] || skip "only in make test-long: it builds for minutes"
needs go
export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0 GOBIN=$SCRATCH GOCACHE=${GOPROGRAMS_CACHE:-$HERE/../../target/door-go}
got() { go install "$1" 2>>errors || skip "$1 cannot be had: $(tail -n 1 errors)"; }
got filippo.io/age/cmd/...@v1.2.1
got go.etcd.io/bbolt/cmd/bbolt@v1.4.3
got github.com/restic/restic/cmd/restic@v0.18.1
go version -m age restic bbolt | awk '$1 == "mod" { print $2, $3 }'
# rclone with what it does to local files, without its fifty clouds.
mkdir source && cat >source/main.go <<'END'
package main

import (
	_ "github.com/rclone/rclone/backend/crypt"
	_ "github.com/rclone/rclone/backend/local"
	"github.com/rclone/rclone/cmd"
	_ "github.com/rclone/rclone/cmd/check"
	_ "github.com/rclone/rclone/cmd/copy"
	_ "github.com/rclone/rclone/cmd/cryptcheck"
	_ "github.com/rclone/rclone/cmd/hashsum"
	_ "github.com/rclone/rclone/cmd/lsf"
	_ "github.com/rclone/rclone/cmd/move"
	_ "github.com/rclone/rclone/cmd/obscure"
	_ "github.com/rclone/rclone/cmd/sync"
)

func main() { cmd.Main() }
END
printf 'module programs\n\ngo 1.25\n\nrequire github.com/rclone/rclone v1.71.1\n' >source/go.mod
(cd source && go build -o ../rclone .) 2>>errors || skip "rclone cannot be had: $(tail -n 1 errors)"
go version -m rclone | awk '$2 == "github.com/rclone/rclone" { print $2, $3 }'

cat >all <<'END'
set -u
bin=$1 at=$2
mkdir "$at" && cd "$at" || exit
export RESTIC_PASSWORD=word RESTIC_REPOSITORY=$at/store RESTIC_CACHE_DIR=$at/cache HOME=$at
mkdir data data/a data/b
for i in $(seq 200); do seq "$i" $((i * 7)) >"data/a/$i"; done
head -c 3000000 "$bin/age" >data/b/large
ln data/b/large data/b/second; ln -s large data/b/link; chmod 600 data/a/7; mkfifo data/b/pipe
sum() { (cd "$1" && tar c --sort=name --mtime=@0 . | sha256sum); }
restic() { "$bin/restic" -q "$@" || echo "restic $1: $?"; }
restic init
restic backup data
echo more >>data/a/7; rm data/a/8
restic backup data
restic check --read-data
restic restore latest --target restored
sum data; sum "restored$at/data" 2>/dev/null || sum restored/data
restic forget --keep-last 1 --prune
restic check
"$bin/restic" -q ls latest | wc -l
"$bin/age-keygen" -o key 2>/dev/null
"$bin/age" -r "$(sed -n 's/^# public key: //p' key)" -o large.age data/b/large && "$bin/age" -d -i key large.age | cmp - data/b/large && echo decrypted
"$bin/bbolt" bench -count 2000 -batch-size 100 -path "$at/bolt" -work >/dev/null 2>&1; echo "bbolt: $?"
"$bin/bbolt" check "$at/bolt"; "$bin/bbolt" buckets "$at/bolt"
END
cat >copies <<'END'
set -u
bin=$1 at=$2
mkdir "$at" && cd "$at" || exit
export RCLONE_CONFIG=$at/config HOME=$at TMPDIR=$at
touch config
mkdir -p data/a data/b/c data/empty
for i in $(seq 300); do seq "$i" $((i * 7)) >"data/a/$i"; done
head -c 20000000 "$bin/rclone" >data/b/large; ln -s ../a/7 data/b/link; : >data/b/c/nothing
find data -type f -exec touch -d '2024-05-06 07:08:09.123456789' {} +
# What it says has the time in front.
rclone() { "$bin/rclone" -q "$@" 2>errors || echo "rclone $1: $?"; sed 's,^[0-9/]* [0-9:]* ,,' errors >&2; }
# Names, sizes, times and bytes.
told() { rclone lsf -R --format pst --time-format RFC3339 "$1" | LC_ALL=C sort | grep -v '/;' | sha256sum; }
rclone copy --links --transfers 8 --multi-thread-cutoff 1M --create-empty-src-dirs data copied
rclone check --links data copied; told data; told copied
echo more >>data/a/7; rm data/a/8; mv data/a/9 data/b/nine; chmod 600 data/a/10
rclone sync --links --track-renames --backup-dir "$at/before" data copied
rclone check --links data copied; rclone lsf -R before
key=$("$bin/rclone" obscure word)
hidden=":crypt,remote=$at/hidden,password=$key:"
rclone copy data/a "$hidden"; rclone check data/a "$hidden"; rclone cryptcheck data/a "$hidden"
find hidden -type f | wc -l
rclone move "$hidden" shown; rclone hashsum sha256 shown | LC_ALL=C sort | sha256sum; find hidden -type f | wc -l
END
said "all" srun bash ./all "$SCRATCH" "$AT/programs"
said "copies" srun bash ./copies "$SCRATCH" "$AT/copies"
# A writer that is killed at any moment leaves a database that is right.
for round in 1 2 3; do
    # shellcheck disable=SC2016
    said "killed, $round" srun bash -c '"$1/bbolt" bench -count 200000 -batch-size 20 -path "$2" -work >/dev/null 2>&1 & sleep "0.$3"; { kill -9 $!; wait $!; } 2>/dev/null; echo $?; "$1/bbolt" check "$2"' sh "$SCRATCH" "$AT/killed-$round" $((round * 3))
done
