// Executes a program, with the environment that it has.
#include <unistd.h>

extern char **environ;

int main(void) {
    char *arguments[] = {"/bin/true", NULL};
    execve(arguments[0], arguments, environ);
    return 1;
}
