# Go's standard library, built by a toolchain that lies in the directory, as its source, its cache and its
# temporary files do: some hundred packages, each by a compiler without C, which a host runs.
[ -n "${SOLERA_TEST_LONG:-}" ] || skip "only in make test-long: it builds for minutes"
needs go
export GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS=-trimpath GO111MODULE=off GOROOT= GOENV=off
root=$(go env GOROOT)
cat >build <<'END'
set -u
mkdir "$2" && cd "$2" && mkdir go cache tmp || exit
cp -r "$1/bin" "$1/pkg" "$1/src" "$1/go.env" "$1/VERSION" go/
export GOROOT=$2/go GOCACHE=$2/cache TMPDIR=$2/tmp HOME=$2 PATH=$2/go/bin:$PATH
go version
go build std; echo "built: $?"
# What it has built, package by package, by its sums; and nothing is left to build.
go list -export -f '{{.ImportPath}} {{.Stale}} {{.BuildID}}' std >packages; echo "listed: $?"
wc -l <packages; sed "s,$2,,g" packages | sha256sum
go build -v std; echo "again: $?"
go vet strings sort; echo "vetted: $?"
go test strings sort container/heap | sed 's/\t[0-9.]*s$//'
ls tmp | wc -l
END
said "std" srun bash ./build "$root" "$AT/std"
