// A Go program beside C: files, directories, goroutines that block, children, signals, a mapping.
package main

// int twice(int value) { return 2 * value; }
import "C"

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
)

func check(what string, err error) {
	if err != nil {
		fmt.Println(what, err)
	}
}

func files(at string) {
	name := filepath.Join(at, "file")
	check("write", os.WriteFile(name, []byte("some text"), 0640))
	data, err := os.ReadFile(name)
	fmt.Println(string(data), err)
	file, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	check("open", err)
	fmt.Fprint(file, ", and more")
	check("truncate", file.Truncate(12))
	check("lock", syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
	_, err = file.Seek(3, io.SeekStart)
	check("seek", err)
	rest, err := io.ReadAll(file)
	fmt.Println(string(rest), err)
	mapped, err := syscall.Mmap(int(file.Fd()), 0, 12, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check("map", err)
	mapped[0] = 'S'
	check("unmap", syscall.Munmap(mapped))
	file.Close()
	data, _ = os.ReadFile(name)
	fmt.Println(string(data))
	check("rename", os.Rename(name, name+"-2"))
	_, err = os.Stat(name)
	fmt.Println(os.IsNotExist(err))
	check("directories", os.MkdirAll(filepath.Join(at, "a/b/c"), 0755))
	check("link", os.Symlink("file-2", filepath.Join(at, "link")))
	entries, err := os.ReadDir(at)
	for _, entry := range entries {
		fmt.Println(entry.Name(), entry.IsDir())
	}
	check("list", err)
	check("remove", os.RemoveAll(filepath.Join(at, "a")))
}

func routines(at string) {
	var all sync.WaitGroup
	var wrong atomic.Int64
	reader, writer := io.Pipe()
	go func() { io.Copy(io.Discard, reader) }()
	for one := 0; one < 16; one++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for round := 0; round < 100; round++ {
				name := filepath.Join(at, fmt.Sprintf("of-%d-%d", one, round))
				if os.WriteFile(name, []byte(name), 0600) != nil {
					wrong.Add(1)
				}
				data, err := os.ReadFile(name)
				if err != nil || string(data) != name || os.Remove(name) != nil {
					wrong.Add(1)
				}
				fmt.Fprintln(writer, name)
			}
		}()
	}
	all.Wait()
	fmt.Println("wrong:", wrong.Load())
}

func children(at string) {
	for round := 0; round < 20; round++ {
		out, err := exec.Command("cat", filepath.Join(at, "file-2")).CombinedOutput()
		if string(out) != "Some text, a" || err != nil {
			fmt.Println(string(out), err)
		}
	}
	command := exec.Command("sh", "-c", "pwd | sed s,.*/,,; ls; exit 3")
	command.Dir = at
	out, err := command.CombinedOutput()
	fmt.Println(string(out), err)
}

func signals(at string) {
	come := make(chan os.Signal, 1)
	signal.Notify(come, syscall.SIGUSR1, syscall.SIGSYS)
	for _, one := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGSYS} {
		check("kill", syscall.Kill(syscall.Getpid(), one))
		fmt.Println(<-come)
	}
	data, err := os.ReadFile(filepath.Join(at, "link"))
	fmt.Println(string(data), err)
}

func main() {
	at := os.Args[1]
	fmt.Println(C.twice(21))
	files(at)
	routines(at)
	children(at)
	signals(at)
	names, _ := filepath.Glob(filepath.Join(at, "*"))
	sort.Strings(names)
	for _, name := range names {
		fmt.Println(filepath.Base(name))
	}
}
