# Programs that a preloaded library cannot serve are refused before they start, with the reason: no
# program may run that would silently see another directory.
only_on_a_volume
needs gcc
refused() {
    local what=$1 code=0
    shift
    "$@" >out 2>err </dev/null || code=$?
    # By the shell's code for what cannot be executed, whoever would have started it.
    [ "$code" = 126 ] || { cat err; fail "$what was not refused: exit $code"; }
    same "$(wc -c <out)" 0 "what $what wrote"
    grep -qi "$what" err || { cat err; fail "the message does not say '$what'"; }
}
echo '#include <stdio.h>
int main(void) { puts("ran"); return 0; }' >hello.c
if gcc -static -o static hello.c 2>/dev/null; then
    # A host runs it; without one it is refused where it has to do with the volume.
    same "$(srun ./static)" ran "a static program"
    gcc -static-pie -fPIE -o static-pie hello.c
    same "$(srun ./static-pie)" ran "a static program that is position-independent"
    mkdir alone
    cp "$(dirname "$SOLERA")"/libsolera_preload.so alone/
    # Nor is there a mount for it.
    export SOLERA_PRELOAD=$PWD/alone/libsolera_preload.so SOLERA_KEEPER=
    srun touch "$AT/file"
    same "$(srun bash -c './static; echo after')" "$(printf 'ran\nafter')" "from a shell, off the volume"
    refused static srun bash -c "./static $AT/file"
    srun cp static "$AT/static"
    refused static srun bash -c "$AT/static $AT/file"
    refused static srun bash -c "./static-pie $AT/file"
    unset SOLERA_PRELOAD SOLERA_KEEPER
else
    echo "there is no static C library"
fi
# Go makes its system calls itself, in a static program and in one that is linked to the C library.
if command -v go >/dev/null; then
    export GO111MODULE=off GOFLAGS= GOPATH=$SCRATCH/go HOME=${HOME:-$SCRATCH}
    printf 'package main\nfunc main() { println("ran") }\n' >hello.go
    CGO_ENABLED=0 go build -o gostatic hello.go
    same "$(srun ./gostatic 2>&1)" ran "a static Go program"
    # Beside the C library it is served (tests/door/cases/go.sh): with the usual links, stripped of what
    # can be, and linked by gcc.
    printf 'package main\nimport ("net"; "os")\nfunc main() { net.LookupHost("localhost"); b, err := os.ReadFile(os.Args[1]); if err != nil { panic(err) }; os.Stdout.Write(b) }\n' >hello.go
    echo there >"$SCRATCH/there"
    srun cp "$SCRATCH/there" "$AT/there"
    for way in "" "-s -w -buildid=" "-linkmode=external -buildid="; do
        CGO_ENABLED=1 go build -ldflags="$way" -o gocgo hello.go
        ldd gocgo >ldd.log
        grep -q libc.so ldd.log || fail "a Go program with cgo is not linked to the C library"
        same "$(srun ./gocgo "$AT/there")" there "a file of the volume, to Go"
        same "$(srun bash -c "./gocgo $AT/there")" there "a file of the volume, to Go, from a shell"
        srun cp gocgo "$AT/gocgo"
        same "$(srun bash -c "$AT/gocgo $AT/there")" there "a file of the volume, to Go on the volume"
    done
else
    echo "there is no go: skipped its part"
fi
