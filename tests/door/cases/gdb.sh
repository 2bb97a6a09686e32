# gdb: breakpoints, `next`, a backtrace from within a read that is served, and the program's own end.
needs gdb g++
g++ -std=c++17 -g -O0 -pthread "$HERE/cases/checks.cc" -o checks || exit 1
cat >commands <<'GDB'
set pagination off
set confirm off
set debuginfod enabled off
set breakpoint pending on
break fill
run
printf "in fill: %d\n", $_any_caller_is("main", 5)
next
printf "behind the read: %s\n", buffer
finish
continue
GDB
said "breakpoints" srun gdb -q -batch -x commands --args ./checks "$AT" >out
grep -E '^(in fill|behind|Value returned|exit code|sum|\[Inferior 1 .*exited)' out | sed 's/process [0-9]*/process/'
srun rm -rf "$AT/checks" "$AT/copied"
printf 'set pagination off\nset confirm off\nset debuginfod enabled off\nbreak fill\nrun\n' >within
if [ -n "$RUN" ]; then
    # A store to the buffer from within the library: the kernel's own is not seen.
    printf 'watch *(char *)buffer\ncontinue\n' >>within
fi
cat >>within <<'GDB'
printf "a caller is fill: %d\n", $_caller_is("fill", 0) || $_any_caller_is("fill", 30)
printf "a caller is main: %d\n", $_any_caller_is("main", 30)
delete
continue
GDB
said "within" srun gdb -q -batch -x within --args ./checks "$AT" >out
grep -E '^(a caller|exit code|sum|\[Inferior 1 .*exited)' out | sed 's/process [0-9]*/process/'
