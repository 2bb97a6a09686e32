# A Go program beside the C library (cgo): its runtime makes its system calls by itself, from stacks of its
# own, beside signals of its own.
needs go gcc
cp "$HERE/cases/go_checks.go" main.go
printf 'module checks\n\ngo 1.22\n' >go.mod
export GOFLAGS=-mod=mod GOCACHE=$SCRATCH/cache GOTOOLCHAIN=local CGO_ENABLED=1
go build -o checks . 2>errors || skip "no Go program beside C can be built: $(tail -n 1 errors)"
for round in 1 2 3; do
    said "round $round" srun sh -c 'mkdir "$1"; exec ./checks "$1"' sh "$AT/$round"
done
# Under the scheduler's own signals, one processor and several.
said "one processor" srun env GOMAXPROCS=1 sh -c 'mkdir "$1"; exec ./checks "$1"' sh "$AT/one"
said "collecting" srun env GOGC=1 sh -c 'mkdir "$1"; exec ./checks "$1"' sh "$AT/gc"
