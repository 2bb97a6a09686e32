// What go_calls.py times: a line for each kind of call, with the nanoseconds of one, the median of
// some rounds.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sort"
	"syscall"
	"time"
)

const rounds = 9

func timed(name string, count int, call func()) {
	var all []float64
	for round := 0; round < rounds; round++ {
		begun := time.Now()
		for at := 0; at < count; at++ {
			call()
		}
		all = append(all, float64(time.Since(begun).Nanoseconds())/float64(count))
	}
	sort.Float64s(all)
	fmt.Printf("%s\t%.1f\n", name, all[rounds/2])
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// A byte there and back over TCP, within this process.
func roundTrip() func() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() {
		server, err := listener.Accept()
		must(err)
		io.Copy(server, struct{ io.Reader }{server})
	}()
	client, err := net.Dial("tcp", listener.Addr().String())
	must(err)
	one := make([]byte, 1)
	return func() {
		_, err := client.Write(one)
		must(err)
		_, err = io.ReadFull(client, one)
		must(err)
	}
}

func main() {
	path, other := os.Args[1]+"/file", os.Args[1]+"/other"
	must(os.WriteFile(path, make([]byte, 1<<20), 0o644))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(err)
	page := make([]byte, 4096)
	timed("getppid, not served", 20000, func() { syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0) })
	timed("pread 4 KiB", 20000, func() { _, err := file.ReadAt(page, 4096); must(err) })
	timed("pwrite 4 KiB", 20000, func() { _, err := file.WriteAt(page, 4096); must(err) })
	timed("stat", 20000, func() {
		var stat syscall.Stat_t
		must(syscall.Stat(path, &stat))
	})
	timed("open, close", 10000, func() {
		fd, err := syscall.Open(path, syscall.O_RDONLY, 0)
		must(err)
		syscall.Close(fd)
	})
	timed("create, close, unlink", 5000, func() {
		fd, err := syscall.Open(other, syscall.O_CREAT|syscall.O_RDWR, 0o644)
		must(err)
		syscall.Close(fd)
		must(syscall.Unlink(other))
	})
	timed("a byte there and back over TCP", 5000, roundTrip())
	there, back := make(chan int), make(chan int)
	go func() {
		runtime.LockOSThread()
		for value := range there {
			back <- value
		}
	}()
	runtime.LockOSThread()
	timed("a value there and back, two locked threads", 5000, func() { there <- 1; <-back })
}
