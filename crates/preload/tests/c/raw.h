// System calls by an instruction of the program's own, outside the C library.
#ifndef RAW_H
#define RAW_H
#include <sys/syscall.h>

__attribute__((always_inline)) static inline long raw6(long number, long a, long b, long c, long d, long e, long f) {
    long answer;
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    asm volatile("syscall"
                 : "=a"(answer)
                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return answer;
}
#define RAW(number, a, b, c, d, e, f, ...) \
    raw6(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define raw(...) RAW(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#endif
