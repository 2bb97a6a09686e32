// A library with system calls of every shape, whose results the test looks at.
typedef unsigned long word;
#define SHAPE(name, code) __asm__(".text\n.globl " #name "\n.type " #name ",@function\n.balign 32\n" #name ":\n.cfi_startproc\n" code "\n.cfi_endproc\n.size " #name ",.-" #name "\n")

SHAPE(constant, "mov $4,%eax\nsyscall\nret");
SHAPE(constant_high, "mov $262,%eax\nsyscall\nret");
SHAPE(constant_moved, "mov $5,%eax\nlea 0f(%rip),%r9\nmov %r9,%r8\nsyscall\n0: ret");
SHAPE(wide001, "mov %esi,%eax\nsyscall\ncmp $0xfffffffffffff001,%rax\njae 1f\nmov $1,%eax\nret\n1: mov $2,%eax\nret");
SHAPE(wide000, "mov %esi,%eax\nsyscall\ncmp $0xfffffffffffff000,%rax\nja 1f\nmov $1,%eax\nret\n1: mov $2,%eax\nret");
SHAPE(narrow001, "mov %esi,%eax\nsyscall\ncmp $0xfffff001,%eax\njae 1f\nmov $1,%eax\nret\n1: mov $2,%eax\nret");
SHAPE(narrow000, "mov %esi,%eax\nsyscall\ncmp $0xfffff000,%eax\nja 1f\nmov $1,%eax\nret\n1: mov $2,%eax\nret");
SHAPE(displaced_short, "nop\nmov %r8d,%eax\nsyscall\nret");
SHAPE(displaced_long, "sub $24,%rsp\n.cfi_adjust_cfa_offset 24\nmov %r8,16(%rsp)\nmov 16(%rsp),%rax\nsyscall\nadd $24,%rsp\n.cfi_adjust_cfa_offset -24\nret");
SHAPE(in_place, "mov $435,%eax\nsyscall\nret");
SHAPE(unwanted, "mov $39,%eax\nsyscall\nret");

word counter;
