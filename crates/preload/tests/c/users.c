// A process that attached as root becomes another user, who may not open the volume's file: it works
// on, forks, executes and leaves. Started by root.
#include "say.h"

static int status_of(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    SAY(mkdir("own", 0755));
    SAY(chown("own", 12345, 12345));
    put("roots", "for root only");
    SAY(chmod("roots", 0600));
    int before = open("roots", O_RDWR);
    SAY(setgroups(0, NULL) | setgid(12345) | setuid(12345));
    SAY(open("roots", O_RDONLY));
    SAY(read(before, (char[8]){0}, 8));
    SAY(open("new", O_RDWR | O_CREAT, 0644));
    SAY(chdir("own"));
    put("file", "by another user\n");
    SHOW("file");
    struct stat stat_of_it;
    SAY(stat("file", &stat_of_it));
    SAY(stat_of_it.st_uid);
    pid_t pid = fork();
    if (pid == 0) {
        put("by-fork", "x");
        _exit(0);
    }
    SAY(status_of(pid));
    SHOW("by-fork");
    // Descriptors and the working directory cross the exec.
    int out = open("out", O_RDWR | O_CREAT | O_TRUNC, 0644);
    pid = fork();
    if (pid == 0) {
        dup2(out, 1);
        execl("/bin/sh", "sh", "-c", "echo here; cat file; cd / && cd - >/dev/null && cat file; "
              "cat ../roots 2>/dev/null || echo denied; /bin/echo nested > nested", (char *)NULL);
        _exit(9);
    }
    SAY(status_of(pid));
    SHOW("out");
    SHOW("nested");
    SAY(system("mkdir deeper && cd deeper && echo deep > d && cat d > ../e"));
    SHOW("e");
    return 0;
}
