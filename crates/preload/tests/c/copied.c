// A program that is not position-independent has copies of the dynamic linker's and the C library's
// variables, which are filled last of all: this library reads some of them before that.
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

extern void *__libc_stack_end;
extern char **environ;

int main(int count, char **arguments) {
    if (count != 2 || !__libc_stack_end || !environ)
        return 1;
    mkdir(arguments[1], 0777);
    FILE *file = chdir(arguments[1]) ? NULL : fopen("copied", "w");
    if (!file || fputs("text", file) < 0 || fclose(file))
        return 2;
    printf("access %d\n", access("copied", F_OK));
    return 0;
}
