// A static program whose call is stepped. Who traces this program brings it to any instruction of the
// call, kills it there or sends a signal; commands come on standard input, and what became of the call is
// told at marks: `int3`, with a text in rax. Usage: guest_steps DIRECTORY.
//
// A command: the letter of a call, and by which code it is made: s, an instruction that traps; g, a
// function as Go has it, which is patched. The mark "victim" stands before the call, "returned" behind it,
// and then one that begins with "outcome". What is done before the call was acknowledged: it must be there
// whatever comes.
#include "raw.h"
#include "say.h"
#include <pthread.h>

#define MARK(text) asm volatile("int3" : : "a"(text) : "memory")

// Go's `Syscall6`: its bytes, and the padding behind it. The number is in rax, arguments in rbx, rcx, rdi,
// rsi, r8, r9.
asm(".balign 64\n"
    "as_go: .byte 0x49, 0x89, 0xf2, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xce, 0x48, 0x89, 0xdf, 0x0f, 0x05\n"
    ".byte 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x76, 0x15, 0x48, 0xf7, 0xd8, 0x48, 0x89, 0xc1\n"
    ".byte 0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, 0x48, 0xc7, 0xc3, 0x00, 0x00, 0x00, 0x00\n"
    ".byte 0xc3, 0x48, 0x89, 0xd3, 0x48, 0xc7, 0xc1, 0x00, 0x00, 0x00, 0x00, 0xc3\n"
    ".byte 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc\n"
    // So much is looked at.
    ".balign 64, 0xcc\n .fill 64, 1, 0xcc\n");

static long by_go(long number, long a, long b, long c, long d) {
    long error, first = a;
    // Its function changes what a caller has to keep there, and has no frame: below the red zone.
    asm volatile("lea -128(%%rsp), %%rsp; xor %%r8d, %%r8d; xor %%r9d, %%r9d; call as_go; lea 128(%%rsp), %%rsp"
                 : "+a"(number), "+b"(first), "=c"(error), "+D"(c), "+S"(d)
                 : "2"(b)
                 : "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm15", "memory", "cc");
    return number == -1 ? -error : number;
}

static int is_go;

static long made(long number, long a, long b, long c, long d) {
    return is_go ? by_go(number, a, b, c, d) : raw(number, a, b, c, d);
}

static volatile int handled, wrong;

// Calls of a handler, which the library serves.
static void handle(int number) {
    int before = errno;
    char byte = 0;
    (void)number;
    int fd = open("other", O_RDWR | O_CREAT, 0600);
    int good = fd >= 0 && pwrite(fd, "x", 1, 0) == 1 && pread(fd, &byte, 1, 0) == 1 && byte == 'x';
    if (!good || close(fd) != 0 || unlink("other") != 0)
        wrong++;
    handled++;
    errno = before;
}

static void filled(const char *name, const char *text) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0)
        MARK("outcome: not prepared");
}

// The first bytes of a file; "none" if there is no such file.
static const char *bytes_of(const char *name, char *to, size_t size) {
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        return "none";
    ssize_t length = read(fd, to, size - 1);
    close(fd);
    to[length < 0 ? 0 : length] = 0;
    return to;
}

static volatile int thread_ran;

static void *thread(void *unused) {
    int fd = open("threads", O_WRONLY | O_CREAT, 0600);
    thread_ran = pwrite(fd, "it ran", 6, 0) == 6 && close(fd) == 0;
    return unused;
}

// It ends by instructions after this mark, in the C library and the host.
static void *ending(void *unused) {
    thread_ran = 1;
    MARK("victim");
    return unused;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    static char stack[64 << 10];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, NULL);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, NULL);
    for (char letters[2]; read(0, letters, 2) == 2;) {
        is_go = letters[1] == 'g';
        handled = wrong = thread_ran = 0;
        filled("file", "contents");
        filled("old", "it is old");
        filled("new", "it is new");
        filled("gone", "it is there");
        unlink("made"), unlink("threads");
        int fd = open("file", O_RDWR);
        long value = 0;
        pthread_t other;
        if (letters[0] != 'e')
            MARK("victim");
        switch (letters[0]) {
        case 'w':
            value = made(SYS_pwrite64, fd, (long)"word", 4, 0);
            break;
        case 'o':
            value = made(SYS_open, (long)"made", O_RDWR | O_CREAT, 0600, 0) >= 0;
            break;
        case 'r':
            value = made(SYS_rename, (long)"old", (long)"new", 0, 0);
            break;
        case 'u':
            value = made(SYS_unlink, (long)"gone", 0, 0, 0);
            break;
        case 't':
            value = pthread_create(&other, NULL, thread, NULL);
            break;
        case 'e':
            value = pthread_create(&other, NULL, ending, NULL);
        }
        if (letters[0] == 't' || letters[0] == 'e')
            pthread_join(other, NULL);
        if (letters[0] != 'e')
            MARK("returned");
        static char text[400], all[5][20];
        snprintf(text, sizeof text, "outcome: value %ld, thread %d, handled %d, wrong %d, %s, %s, %s, %s, %s, %s", value,
                 thread_ran, handled, wrong, bytes_of("file", all[0], 20), bytes_of("old", all[1], 20),
                 bytes_of("new", all[2], 20), bytes_of("gone", all[3], 20), bytes_of("threads", all[4], 20),
                 access("made", F_OK) == 0 ? "made" : "none");
        close(fd);
        // What the call has opened.
        if (letters[0] == 'o')
            close(fd + 1);
        MARK(text);
    }
    return 0;
}
