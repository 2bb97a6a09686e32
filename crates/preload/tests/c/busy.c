// A program that runs from a file keeps that file from being written to: who opens it for writing or
// truncates it gets ETXTBSY, until the last process that runs it has ended or executes another.
#include "say.h"

static pid_t start(const char *path, const char *argument) {
    int ends[2];
    pipe(ends);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execl(path, path, "run", argument, NULL);
        _exit(99);
    }
    close(ends[1]);
    char byte;
    // It says that it runs.
    SAY(read(ends[0], &byte, 1));
    close(ends[0]);
    return child;
}

static int end(pid_t child, int how) {
    int status = -1;
    kill(child, how);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static char self[PATH_MAX];

static void copy(const char *from, const char *to) {
    char bytes[65536];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    for (ssize_t count; (count = read(in, bytes, sizeof bytes)) > 0;)
        write(out, bytes, count);
    close(in);
    close(out);
}

static void wait_here(void) {
    write(1, "r", 1);
    for (;;)
        pause();
}

static void try_all(const char *path) {
    struct stat status;
    int fd;
    WORKS(fd = open(path, O_RDONLY));
    close(fd);
    WORKS(fd = open(path, O_WRONLY));
    close(fd);
    WORKS(fd = open(path, O_RDWR | O_APPEND));
    close(fd);
    WORKS(fd = open(path, O_RDONLY | O_TRUNC));
    close(fd);
    WORKS(fd = open(path, O_RDWR | O_CREAT, 0755));
    close(fd);
    WORKS(fd = open(path, O_PATH));
    close(fd);
    SAY(stat(path, &status));
    SAY(truncate(path, status.st_size));
    SAY(access(path, W_OK));
    SAY(chmod(path, 0755));
    if (status.st_size == 0)
        copy(self, path);
}

// What the copies do.
static int run(char **arguments) {
    if (!strcmp(arguments[2], "fork")) {
        // The child goes on with the file, this process ends.
        if (fork() == 0) {
            char text[32];
            snprintf(text, sizeof text, "%d", getpid());
            put("child", text);
            wait_here();
        }
        _exit(0);
    }
    if (!strcmp(arguments[2], "other"))
        execl("./second", "./second", "run", "wait", NULL);
    if (!strcmp(arguments[2], "outside"))
        execl("/bin/sh", "sh", "-c", "printf r; exec sleep 100", NULL);
    wait_here();
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2)
        return run(argv);
    readlink("/proc/self/exe", self, sizeof self);
    enter(argc, argv);
    copy(self, "first");
    copy(self, "second");
    try_all("first");

    pid_t child = start("./first", "wait");
    try_all("first");
    try_all("second");
    // A name is not the file.
    SAY(link("first", "name"));
    try_all("name");
    SAY(unlink("first"));
    copy(self, "first");
    SAY(rename("second", "first"));
    copy(self, "second");
    try_all("first");
    SAY(end(child, SIGKILL));
    try_all("name");

    child = start("./name", "other");
    try_all("name");
    try_all("second");
    SAY(end(child, SIGTERM));
    child = start("./name", "outside");
    try_all("name");
    SAY(end(child, SIGTERM));

    // Two processes, of which the first ends.
    int ends[2];
    pipe(ends);
    fflush(NULL);
    pid_t parent = fork();
    if (parent == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execl("./name", "./name", "run", "fork", NULL);
        _exit(99);
    }
    close(ends[1]);
    int status;
    SAY(waitpid(parent, &status, 0) == parent);
    char byte, text[32] = "";
    SAY(read(ends[0], &byte, 1));
    try_all("name");
    int fd = open("child", O_RDONLY);
    SAY(read(fd, text, 31) > 0);
    close(fd);
    SAY(kill(atoi(text), SIGKILL));
    // It is not ours to wait for.
    while (read(ends[0], &byte, 1) != 0) {}
    for (fd = -1; fd < 0; fd = open("name", O_WRONLY))
        usleep(1000);
    close(fd);
    try_all("name");
    // What is open for writing is not executed, by whomever.
    copy(self, "third");
    fd = open("third", O_WRONLY | O_CLOEXEC);
    pid_t late = fork();
    if (late == 0) {
        execl("./third", "./third", "run", "wait", NULL);
        _exit(errno == ETXTBSY ? 7 : 8);
    }
    waitpid(late, &status, 0);
    SAY(WEXITSTATUS(status));
    close(fd);
    child = start("./third", "wait");
    SAY(end(child, SIGTERM));
    // A script is read, not executed.
    put("script", "#!/bin/sh\nprintf r\nexec sleep 100\n");
    SAY(chmod("script", 0755));
    child = start("./script", "wait");
    try_all("script");
    SAY(end(child, SIGTERM));
    return 0;
}
