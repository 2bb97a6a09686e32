# bbolt, a store in Go: puts of 100 bytes, each a commit. The program is linked statically: it makes its system
# calls itself.
input() {
    GO111MODULE=off GOPATH=/usr/share/gocode GOFLAGS='' GOCACHE=$WORK/go CGO_ENABLED=0 \
        go build -o "$BIN/bolt" "$SRC/go_bolt.go"
}
turn() { "$BIN/bolt" "$DIR"; }
