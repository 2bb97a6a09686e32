// Places that make a system call as compilers and musl have them, each called again and again, with registers
// around it that must stay: prints whether it answers as it should, and whether its first bytes have changed.
#include "say.h"
#include <sys/syscall.h>

enum { TIMES = 8 };

// long NAME(fd, offset, whence): lseek, with r8 = 7 and rbx = 9 around the call, and a vector register;
// -1000 if one of them is not kept. NAME_move: the move of the number.
#define PLACE(name, before, move, between) \
    __asm__(".text\n.globl " #name "\n" #name ":\n" \
            "push %rbx\nmov $9,%ebx\nmov $7,%r8d\nmov %rsp,%r10\nmovq %r10,%xmm3\n" \
            "mov %rdx,%r9\npush %r9\npush %r9\n" before "\n" #name "_move:\n" move "\n" between "\nsyscall\n" \
            "pop %r9\npop %r9\nmovq %xmm3,%r10\ncmp %rsp,%r10\njne 1f\n" \
            "cmp $9,%rbx\njne 1f\ncmp $7,%r8\njne 1f\npop %rbx\nret\n" \
            "1: mov $-1000,%rax\npop %rbx\nret\n"); \
    extern long name(long fd, long offset, long whence); \
    extern unsigned char name##_move[]

PLACE(bare, "", "mov $8,%eax", "");
PLACE(registers, "mov %rdi,%r9\nxor %edi,%edi", "mov $8,%eax", "mov %r9,%rdi\nmovslq %edx,%rdx");
PLACE(constants, "", "mov $8,%eax", "xor %edx,%edx\nmov $5,%esi\nmov $-1,%r10");
PLACE(memory, "xor %edx,%edx", "mov $8,%eax", "mov 8(%rsp),%rdx");
// Not to be changed: a jump stands between, the number is moved before another one, or is part of a distance.
PLACE(jumps, "", "mov $8,%eax", "jmp 2f\n2:");
PLACE(other, "mov $8,%r9d", "mov $9,%eax", "mov %r9,%rax");

// musl's.
__asm__(".text\n.globl given\ngiven:\nmov %rdi,%rax\nmov %r8,%r10\nmov %rsi,%rdi\nmov %r9,%r8\n"
        "mov %rdx,%rsi\ngiven_move:\nmov 8(%rsp),%r9\nmov %rcx,%rdx\nsyscall\nret\n");
extern long given(long number, long a, long b, long c, long d, long e, long f);
extern unsigned char given_move[];

static void tell(const char *name, const unsigned char *place, const unsigned char *before, int right) {
    fprintf(results, "%s: %s, %s\n", name, right ? "right" : "wrong", memcmp(place, before, 5) ? "patched" : "as it was");
    fflush(results);
}

static void look(const char *name, long (*place)(long, long, long), const unsigned char *move, int fd, long offset) {
    unsigned char before[5];
    int right = 1;
    memcpy(before, move, 5);
    for (int count = 0; count < TIMES; count++) {
        right &= lseek(fd, 3, SEEK_SET) == 3;
        right &= place(fd, offset, SEEK_SET) == offset && lseek(fd, 0, SEEK_CUR) == offset;
        right &= place(-1, offset, SEEK_SET) == -EBADF;
    }
    tell(name, move, before, right);
}

#define LOOK(name, offset) look(#name, name, name##_move, fd, offset)

int main(int argc, char **argv) {
    enter(argc, argv);
    put("file", "some bytes");
    int fd = open("file", O_RDWR), right = 1;
    LOOK(bare, 5);
    LOOK(registers, 6);
    LOOK(constants, 5);
    LOOK(memory, 4);
    LOOK(jumps, 5);
    LOOK(other, 5);
    unsigned char before[5];
    memcpy(before, given_move, 5);
    for (int count = 0; count < TIMES; count++) {
        char bytes[8] = "";
        right &= given(SYS_pread64, fd, (long)bytes, 5, 5, 0, 0) == 5 && memcmp(bytes, "bytes", 5) == 0;
        right &= given(SYS_lseek, fd, count, SEEK_SET, 0, 0, 0) == count;
        // Six arguments, the last on the stack.
        long at = given(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        right &= at > 0 && memcmp((void *)at, "some", 4) == 0 && given(SYS_munmap, at, 4096, 0, 0, 0, 0) == 0;
    }
    tell("given", given_move, before, right);
    return 0;
}
