// A program of 32 bits that needs no C library of 32 bits: built with -m32 -nostdlib -static.
//
// foreign cat FILE | say TEXT | append FILE TEXT | line | pwd | exit CODE | kill SIGNAL | wait FILE |
//         run PROGRAM [ARGUMENT...]
// Each ends with 0, or with the number of the error.

enum { EXIT = 1, READ = 3, WRITE = 4, OPEN = 5, EXECVE = 11, GETPID = 20, KILL = 37, GETCWD = 183,
       NANOSLEEP = 162, ACCESS = 33 };
enum { RDONLY = 0, WRONLY = 1, CREAT = 0100, APPEND = 02000 };

static long call(long number, long a, long b, long c)
{
    long answer;
    __asm__ volatile("int $0x80" : "=a"(answer) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return answer;
}

static void leave(long answer)
{
    call(EXIT, answer < 0 ? -answer : 0, 0, 0);
}

static long length(const char *text)
{
    long at = 0;
    while (text[at])
        at++;
    return at;
}

static long number(const char *text)
{
    long value = 0;
    for (; *text; text++)
        value = value * 10 + (*text - '0');
    return value;
}

static void say(long fd, const char *text)
{
    static char line[4096];
    long end = length(text);
    for (long at = 0; at < end; at++)
        line[at] = text[at];
    line[end] = '\n';
    long done = call(WRITE, fd, (long)line, end + 1);
    if (done < 0)
        leave(done);
}

static void pass(long fd, long until)
{
    static char bytes[4096];
    for (;;) {
        long got = call(READ, fd, (long)bytes, until ? 1 : sizeof bytes);
        if (got < 0)
            leave(got);
        if (got == 0)
            return;
        call(WRITE, 1, (long)bytes, got);
        if (until && bytes[0] == until)
            return;
    }
}

static int is(const char *one, const char *other)
{
    while (*one && *one == *other)
        one++, other++;
    return *one == *other;
}

__attribute__((used)) static void begin(long *stack)
{
    char **argv = (char **)(stack + 1), **envp = argv + stack[0] + 1;
    static char path[4096];
    const char *what = argv[1];
    long answer = 0;
    if (is(what, "cat")) {
        answer = call(OPEN, (long)argv[2], RDONLY, 0);
        if (answer >= 0)
            pass(answer, 0);
    } else if (is(what, "say")) {
        say(1, argv[2]);
    } else if (is(what, "append")) {
        answer = call(OPEN, (long)argv[2], WRONLY | CREAT | APPEND, 0644);
        if (answer >= 0)
            say(answer, argv[3]);
    } else if (is(what, "line")) {
        pass(0, '\n');
    } else if (is(what, "pwd")) {
        answer = call(GETCWD, (long)path, sizeof path, 0);
        if (answer >= 0)
            say(1, path);
    } else if (is(what, "exit")) {
        call(EXIT, number(argv[2]), 0, 0);
    } else if (is(what, "kill")) {
        call(KILL, call(GETPID, 0, 0, 0), number(argv[2]), 0);
    } else if (is(what, "wait")) {
        long moment[2] = {0, 10000000};
        while (call(ACCESS, (long)argv[2], 0, 0) < 0)
            call(NANOSLEEP, (long)moment, 0, 0);
    } else if (is(what, "run")) {
        answer = call(EXECVE, (long)argv[2], (long)(argv + 2), (long)envp);
    } else {
        call(EXIT, 99, 0, 0);
    }
    leave(answer);
}

__asm__(".globl _start\n_start: mov %esp, %eax\n push %eax\n call begin\n");
