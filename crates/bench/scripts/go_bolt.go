// What go_calls.py times of bbolt: the nanoseconds of a commit that puts one value of 100 bytes, the
// median of some rounds.
package main

import (
	"fmt"
	"os"
	"sort"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	rounds  = 9
	commits = 400
	keys    = 5000
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	path := os.Args[1] + "/bolt"
	os.Remove(path)
	db, err := bolt.Open(path, 0o644, nil)
	must(err)
	bucket, value, count := []byte("bucket"), make([]byte, 100), 0
	put := func(tx *bolt.Tx) error {
		values, err := tx.CreateBucketIfNotExists(bucket)
		must(err)
		count++
		return values.Put([]byte(fmt.Sprintf("%08d", count*7919%keys)), value)
	}
	var all []float64
	for round := 0; round < rounds; round++ {
		begun := time.Now()
		for at := 0; at < commits; at++ {
			must(db.Update(put))
		}
		all = append(all, float64(time.Since(begun).Nanoseconds())/commits)
	}
	must(db.Close())
	sort.Float64s(all)
	fmt.Printf("bbolt, a commit\t%.1f\n", all[rounds/2])
}
