// A Go program without C, which a host serves: one word of the command line for each check. All that it
// prints is the same on every file system.
package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var dir string

func must(err error) {
	if err != nil {
		panic(err)
	}
}

//go:noinline
func deep(n int, a [16]int) int {
	if n == 0 {
		return a[3]
	}
	a[n%16]++
	return deep(n-1, a) + a[(n+1)%16] - a[(n+1)%16]
}

// deep recursion with a system call at every depth: the stack's end is met with calls.
//
//go:noinline
func deepCalls(n int, f *os.File, b []byte) int {
	var pad [40]byte
	pad[n%40] = byte(n)
	k, err := f.ReadAt(b, int64(n%100))
	if err != nil || k != len(b) {
		panic(fmt.Sprint(n, k, err))
	}
	if b[0] != byte(n%100) {
		panic("wrong byte")
	}
	if n == 0 {
		return int(pad[0])
	}
	return deepCalls(n-1, f, b) + int(pad[(n+1)%40])
}

func many(count int) {
	var wg sync.WaitGroup
	var sum atomic.Int64
	name := filepath.Join(dir, "many")
	must(os.WriteFile(name, bytes.Repeat([]byte{1}, 4096), 0644))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	must(err)
	for i := 0; i < count; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var b [8]byte
			n, err := f.ReadAt(b[:], int64(i%4000))
			if err == nil {
				sum.Add(int64(n))
			}
			time.Sleep(time.Millisecond)
		}()
	}
	wg.Wait()
	fmt.Println("many", sum.Load())
}

// threads: goroutines locked to threads that end, so that threads come and go.
func threads(count int) {
	var wg sync.WaitGroup
	for i := 0; i < count; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			runtime.LockOSThread() // ends with the goroutine
			name := filepath.Join(dir, "t"+strconv.Itoa(i%16))
			must(os.WriteFile(name+"-"+strconv.Itoa(i), []byte("x"), 0644))
			must(os.Remove(name + "-" + strconv.Itoa(i)))
		}()
		if i%64 == 63 {
			wg.Wait()
		}
	}
	wg.Wait()
	fmt.Println("threads", count)
}

func signals() {
	c := make(chan os.Signal, 1000)
	signal.Notify(c, syscall.SIGUSR1, syscall.SIGCHLD, syscall.SIGWINCH)
	var got atomic.Int64
	go func() {
		for range c {
			got.Add(1)
		}
	}()
	stop := make(chan bool)
	var wg sync.WaitGroup
	for i := 0; i < 4; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			name := filepath.Join(dir, "sig"+strconv.Itoa(i))
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				data := bytes.Repeat([]byte{byte(n)}, 1+rand.Intn(20000))
				must(os.WriteFile(name, data, 0644))
				back, err := os.ReadFile(name)
				must(err)
				if !bytes.Equal(data, back) {
					panic("differs")
				}
				must(os.Rename(name, name+"x"))
				must(os.Remove(name + "x"))
			}
		}()
	}
	for i := 0; i < 1500; i++ {
		syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		if i%10 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	wg.Wait()
	fmt.Println("signals", got.Load() > 0)
}

// ends: threads end while goroutines take stacks of the same size and look at them: nothing of a thread
// that ends may be written to its stack, which the runtime has given away by then.
func ends(count int) {
	var wrong atomic.Int64
	var stop atomic.Bool
	var looks, wg sync.WaitGroup
	for w := 0; w < 3; w++ {
		looks.Add(1)
		go func() {
			defer looks.Done()
			for n := 1; !stop.Load(); n++ {
				var own sync.WaitGroup
				for k := 0; k < 4; k++ {
					own.Add(1)
					go func() { defer own.Done(); look(n*1000003, &wrong) }()
				}
				own.Wait()
			}
		}()
	}
	for i := 0; i < count; i++ {
		wg.Add(1)
		go func() { defer wg.Done(); runtime.LockOSThread() }()
		if i%128 == 127 {
			wg.Wait()
		}
	}
	wg.Wait()
	stop.Store(true)
	looks.Wait()
	fmt.Println("words that changed:", wrong.Load())
}

//go:noinline
func look(seed int, wrong *atomic.Int64) {
	var pad [1300]int
	for i := range pad {
		pad[i] = seed + i
	}
	for r := 0; r < 3; r++ {
		for i := range pad {
			if pad[i] != seed+i {
				wrong.Add(1)
				return
			}
		}
	}
}

// alive: many threads at once, which all end: they leave no mappings.
func alive(count, rounds int) {
	maps := func() int {
		text, err := os.ReadFile("/proc/self/maps")
		must(err)
		return bytes.Count(text, []byte("\n"))
	}
	first := 0
	for r := 0; r < rounds; r++ {
		var ready, done sync.WaitGroup
		end := make(chan bool)
		for i := 0; i < count; i++ {
			ready.Add(1)
			done.Add(1)
			go func() {
				defer done.Done()
				runtime.LockOSThread()
				syscall.Getppid()
				ready.Done()
				<-end
			}()
		}
		ready.Wait()
		close(end)
		done.Wait()
		if r == 0 {
			time.Sleep(200 * time.Millisecond)
			first = maps()
		}
	}
	time.Sleep(200 * time.Millisecond)
	fmt.Println("no more mappings:", maps() < first+count/2)
}

// traced: a child that asks to be traced stops at its exec, and not before.
func traced() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	must(cmd.Start())
	var status syscall.WaitStatus
	_, err := syscall.Wait4(cmd.Process.Pid, &status, 0, nil)
	fmt.Println("stopped:", status.Stopped(), status.StopSignal(), err)
	must(cmd.Process.Kill())
	for !status.Signaled() {
		if _, err = syscall.Wait4(cmd.Process.Pid, &status, 0, nil); err != nil {
			break
		}
	}
	fmt.Println("ended:", status.Signaled(), err)
}

// quit: what a program says of itself at SIGQUIT, while it reads and waits.
func quit() {
	cmd := exec.Command(os.Args[0], dir, "wait")
	cmd.Env = append(os.Environ(), "GOTRACEBACK=all")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	must(err)
	must(cmd.Start())
	out.Read(make([]byte, 1))
	time.Sleep(100 * time.Millisecond)
	must(cmd.Process.Signal(syscall.SIGQUIT))
	err = cmd.Wait()
	text := said.String()
	fmt.Println("quit:", err, strings.Contains(text, "SIGQUIT"), strings.Contains(text, "main.waits"),
		"unknown:", strings.Contains(text, "unknown pc"), "twice:", strings.Contains(text, "panic during panic"))
}

//go:noinline
func waits() {
	fmt.Println("waits")
	for {
		time.Sleep(time.Hour)
	}
}

// profiled: samples taken in system calls have the functions that made them.
func profiled() {
	name := filepath.Join(dir, "profiled")
	must(os.WriteFile(name, make([]byte, 4096), 0644))
	var out bytes.Buffer
	must(pprof.StartCPUProfile(&out))
	stop := time.Now().Add(time.Second)
	for time.Now().Before(stop) {
		calls(name)
	}
	pprof.StopCPUProfile()
	must(os.WriteFile(os.Getenv("PROFILE"), out.Bytes(), 0644))
}

//go:noinline
func calls(name string) {
	for i := 0; i < 100; i++ {
		_, err := os.ReadFile(name)
		must(err)
	}
}

func children(count int) {
	var wg sync.WaitGroup
	var good atomic.Int64
	sem := make(chan bool, 8)
	for i := 0; i < count; i++ {
		wg.Add(1)
		sem <- true
		go func() {
			defer func() { <-sem; wg.Done() }()
			switch i % 4 {
			case 0:
				out, err := exec.Command("/bin/echo", "hi").Output()
				if err == nil && string(out) == "hi\n" {
					good.Add(1)
				} else {
					fmt.Println(i, string(out), err)
				}
			case 1:
				out, err := exec.Command(os.Args[0], dir, "child", strconv.Itoa(i)).CombinedOutput()
				if err == nil && strings.TrimSpace(string(out)) == "child "+strconv.Itoa(i) {
					good.Add(1)
				} else {
					fmt.Println(i, string(out), err)
				}
			case 2:
				_, err := exec.Command("/nonexistent/xx").Output()
				if err != nil && strings.Contains(err.Error(), "no such file") {
					good.Add(1)
				} else {
					fmt.Println(i, err)
				}
			case 3:
				cmd := exec.Command("cat")
				cmd.Dir = dir
				cmd.Stdin = strings.NewReader("through")
				out, err := cmd.Output()
				if err == nil && string(out) == "through" {
					good.Add(1)
				} else {
					fmt.Println(i, string(out), err)
				}
			}
		}()
	}
	wg.Wait()
	fmt.Println("children", good.Load())
}

func network() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	name := filepath.Join(dir, "net")
	data := make([]byte, 3<<20)
	rand.New(rand.NewSource(1)).Read(data)
	must(os.WriteFile(name, data, 0644))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				f, err := os.Open(name)
				must(err)
				io.Copy(c, f) // sendfile
				f.Close()
				c.Close()
			}()
		}
	}()
	var wg sync.WaitGroup
	var good atomic.Int64
	for i := 0; i < 20; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, err := net.Dial("tcp", l.Addr().String())
			must(err)
			to := filepath.Join(dir, "to"+strconv.Itoa(i%8)+"-"+strconv.Itoa(i))
			f, err := os.Create(to)
			must(err)
			_, err = io.Copy(f, c) // splice
			must(err)
			must(f.Close())
			back, err := os.ReadFile(to)
			must(err)
			if bytes.Equal(back, data) {
				good.Add(1)
			}
			must(os.Remove(to))
		}()
	}
	wg.Wait()
	l.Close()
	fmt.Println("network", good.Load())
}

func faults() {
	debug.SetPanicOnFault(true)
	name := filepath.Join(dir, "map")
	f, err := os.Create(name)
	must(err)
	must(f.Truncate(8192))
	m, err := syscall.Mmap(int(f.Fd()), 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	m[5000] = 7
	must(f.Truncate(4096))
	try := func(what string, g func()) {
		defer func() { e := recover(); fmt.Println(what, e != nil) }()
		g()
	}
	try("fault in hole", func() { m[5000]++ })
	try("nil", func() { var p *int; *p = 1 })
	try("within", func() { m[100]++ })
	must(f.Truncate(8192))
	fmt.Println("zeroed", m[5000])
	must(syscall.Munmap(m))
	_, err = syscall.Write(int(f.Fd()), (*[1 << 20]byte)(nil)[:0:0])
	fmt.Println("write", err)
	_, _, e := syscall.Syscall(syscall.SYS_WRITE, f.Fd(), 16, 100)
	fmt.Println("efault", e)
	_, _, e = syscall.Syscall(syscall.SYS_READ, f.Fd(), 16, 100)
	fmt.Println("efault", e)
	_, _, e = syscall.Syscall(syscall.SYS_OPEN, 16, 0, 0)
	fmt.Println("efault", e)
}

func main() {
	dir = os.Args[1]
	for _, what := range os.Args[2:] {
		switch what {
		case "child":
			fmt.Println("child", os.Args[3])
			return
		case "deep":
			fmt.Println("deep", deep(300000, [16]int{3: 5}))
			name := filepath.Join(dir, "deep")
			data := make([]byte, 300)
			for i := range data {
				data[i] = byte(i)
			}
			must(os.WriteFile(name, data, 0644))
			f, err := os.Open(name)
			must(err)
			var wg sync.WaitGroup
			for i := 0; i < 50; i++ {
				wg.Add(1)
				go func() { defer wg.Done(); deepCalls(500+i, f, make([]byte, 16)) }()
			}
			wg.Wait()
			fmt.Println("deep calls", deepCalls(20000, f, make([]byte, 16)))
		case "many":
			many(20000)
		case "threads":
			threads(1000)
		case "signals":
			signals()
		case "children":
			children(60)
		case "network":
			network()
		case "faults":
			faults()
		case "ends":
			ends(20000)
		case "alive":
			alive(700, 8)
		case "traced":
			traced()
		case "quit":
			quit()
		case "wait":
			waits()
		case "profiled":
			profiled()
		}
	}
}
