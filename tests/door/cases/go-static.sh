# A Go program without C, which a host serves: threads that come and go, stacks, signals, children, faults,
# a debugger's child, and what the runtime says of itself.
needs go
cp "$HERE/cases/go_static.go" main.go
printf 'module checks\n\ngo 1.22\n' >go.mod
# Built once for both directories.
export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0 GOCACHE=${GO_STATIC_CACHE:-$HERE/../../target/door-go}
go build -o checks . 2>errors || skip "no Go program can be built: $(tail -n 1 errors)"
# checks VARIABLE=VALUE CHECK...: in the directory, for 60 s at most.
checks() {
    # shellcheck disable=SC2016 # The program's own environment.
    srun env "$1" timeout -k 5 60 sh -c 'mkdir -p "$1"; exec ./checks "$@"' sh "$AT/checks" "${@:2}"
}
# ended COMMAND...: the last line that it says, which is not a trace of thousands.
ended() { "$@" >ended 2>&1 || echo "exit code $?"; tail -n 1 ended; }
all="deep many threads signals children network"
# shellcheck disable=SC2086 # Words.
said "as it is" checks GOGC=100 $all
said "one processor" checks GOMAXPROCS=1 deep threads signals children
said "collecting" checks GOGC=1 threads children network
# Memory that is given away is not there any more.
said "threads end, their stacks unmapped" checks GODEBUG=efence=1 threads threads
said "threads end, their stacks used again" ended checks GOMAXPROCS=32 ends
said "threads that end leave nothing" checks GOGC=100 alive
said "traced" checks GOGC=100 traced
for round in 1 2; do
    said "SIGQUIT, $round" checks GOGC=100 quit
done
said "profile" checks "PROFILE=$SCRATCH/profile" profiled
# The functions that the calls' samples belong to.
go tool pprof -top -cum checks profile 2>&1 | grep -c -E 'main\.calls$' || :
# It ends with the runtime's trace.
checks GOGC=100 faults >faults 2>&1
echo "== faults, exit code $?"
sed '/^goroutine/,$d' faults
