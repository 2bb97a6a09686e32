// fork, exec and spawn with descriptors, redirections and the working directory; locks between
// processes.
#include "say.h"
#include <spawn.h>
#include <sys/prctl.h>

extern char **environ;

static int child_status(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static void shared_position(void) {
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    pid_t pid = fork();
    if (pid == 0) {
        if (write(fd, "child ", 6) != 6)
            _exit(1);
        _exit(0);
    }
    SAY(child_status(pid));
    SAY(write(fd, "parent", 6));
    SHOW("f");
    close(fd);
}

static void inherited(void) {
    // A shell writes to number 9 that it inherits, and to its standard output.
    int fd = open("g", O_RDWR | O_CREAT | O_TRUNC, 0644);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd, 9);
        dup2(fd, 1);
        execl("/bin/sh", "sh", "-c", "echo one >&9; echo two; pwd >/dev/null; cat f", (char *)NULL);
        _exit(9);
    }
    SAY(child_status(pid));
    SHOW("g");
    SAY(lseek(fd, 0, SEEK_CUR));
    // Close-on-exec: gone in the new image.
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    pid = fork();
    if (pid == 0) {
        char script[64];
        snprintf(script, sizeof script, "echo x 2>/dev/null >&%d", fd);
        execlp("sh", "sh", "-c", script, (char *)NULL);
        _exit(9);
    }
    SAY(child_status(pid) != 0);
    close(fd);
    // An empty environment loses neither the volume nor the working directory.
    pid = fork();
    if (pid == 0) {
        char *none[] = {NULL};
        execle("/bin/sh", "sh", "-c", "echo there > h; cat h > i", (char *)NULL, none);
        _exit(9);
    }
    SAY(child_status(pid));
    SHOW("i");
    char *arguments[] = {"none", NULL};
    SAY(execv("./none", arguments));
    SAY(execv(".", arguments));
    SAY(execvp("no-such-program", arguments));
    put("j", "text");
    SAY(execv("./j", arguments));
}

static void from_here(void) {
    put("script", "#!/bin/sh\necho \"$0 $1\" > k\n");
    SAY(chmod("script", 0755));
    SAY(system("./script argument"));
    SHOW("k");
    SAY(system("exit 5"));
    SAY(system(NULL));
    SAY(system("echo system > l"));
    SHOW("l");
    FILE *stream = popen("cat l; pwd > m", "r");
    char line[64] = {0};
    WORKS(fgets(line, sizeof line, stream) ? 0 : -1);
    SAY_TEXT(line);
    SAY(pclose(stream));
    stream = popen("cat > n", "w");
    SAY(fputs("through a pipe", stream));
    SAY(pclose(stream));
    SHOW("n");
    SAY(system("cp /bin/true program && ./program"));
    // Scripts whose interpreter is a link, a copy, a script; and one elsewhere.
    SAY(system("ln -s /bin/sh shell && cp /bin/sh copied"));
    char text[PATH_MAX], *here = getcwd(NULL, 0);
    const char *interpreters[] = {"shell", "copied", "second"};
    for (int at = 0; at < 3; at++) {
        snprintf(text, sizeof text, "#!%s/%s\necho \"$1\" > q", here, interpreters[at]);
        put(at == 1 ? "second" : "first", text);
        SAY(chmod(at == 1 ? "second" : "first", 0755));
        SAY(system(at == 1 ? "./second two" : "./first one"));
        SAY(unlink("q"));
    }
    snprintf(text, sizeof text, "f=$(mktemp /tmp/solera-script.XXXXXX) && cp first $f && "
             "chmod 755 $f && sed -i s/second/shell/ $f && $f three; rm $f; cat q");
    SAY(system(text));
    SHOW("q");
    unlink("q");
}

static void spawned(void) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "o", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn_file_actions_addclose(&actions, 0);
    char *arguments[] = {"sh", "-c", "echo out; echo err >&2", NULL};
    pid_t pid;
    SAY(posix_spawnp(&pid, "sh", &actions, NULL, arguments, environ));
    SAY(child_status(pid));
    SHOW("o");
    SAY(posix_spawn(&pid, "/none", &actions, NULL, arguments, environ));
    posix_spawn_file_actions_addopen(&actions, 5, "none/none", O_RDONLY, 0);
    SAY(posix_spawnp(&pid, "sh", &actions, NULL, arguments, environ));
    posix_spawn_file_actions_destroy(&actions);
    posix_spawn_file_actions_init(&actions);
    mkdir("sub", 0755);
    posix_spawn_file_actions_addchdir_np(&actions, "sub");
    char *here[] = {"sh", "-c", "echo here > p", NULL};
    SAY(posix_spawnp(&pid, "sh", &actions, NULL, here, environ));
    SAY(child_status(pid));
    SHOW("sub/p");
    pid = vfork();
    if (pid == 0)
        _exit(3);
    SAY(child_status(pid));
}

// In a child: everything beyond the standard streams but `kept` is closed in one way or another,
// then a shell says what it still has. None of it may hurt what the volume needs to go on.
static void closing(int way, int kept) {
    pid_t pid = fork();
    if (pid == 0) {
        for (int fd = 3; way == 0 && fd < 2048; fd++)
            if (fd != kept)
                close(fd);
        if (way == 1) {
            close_range(3, kept - 1, 0);
            close_range(kept + 1, ~0U, 0);
        }
        if (way == 2) {
            close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
            fcntl(kept, F_SETFD, 0);
        }
        char script[128];
        snprintf(script, sizeof script, "echo kept >&%d; echo lost 2>/dev/null >&%d; echo new > r",
                 kept, kept + 1);
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(9);
    }
    SAY(child_status(pid));
    SHOW("r");
    unlink("r");
}

static void closed_in_the_child(void) {
    int kept = open("kept", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int lost = open("lost", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SAY(lost == kept + 1);
    for (int way = 0; way < 3; way++)
        closing(way, kept);
    SHOW("kept");
    SHOW("lost");
    // A pipe that is close-on-exec ends with the exec although a file's number lies beside it.
    int pipes[2];
    SAY(pipe2(pipes, O_CLOEXEC));
    pid_t pid = fork();
    if (pid == 0) {
        dup2(kept, 1);
        execl("/bin/sh", "sh", "-c", "exec sleep 0.2", (char *)NULL);
        _exit(9);
    }
    close(pipes[1]);
    char byte;
    SAY(read(pipes[0], &byte, 1));
    SAY(child_status(pid));
    // The numbers of the library's own are not there for the program.
    int seen = 0;
    struct stat stat;
    for (int fd = 200; fd < 2048; fd++)
        seen += fstat(fd, &stat) == 0 || fcntl(fd, F_GETFD) >= 0 || lseek(fd, 0, SEEK_CUR) >= 0;
    SAY(seen);
    close(pipes[0]);
    close(kept);
    close(lost);
}

// File actions on files of the volume, by relative paths, in every order.
static void file_actions(void) {
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int own = open("own", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int cloexec = open("cloexec", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    put("in", "from a file\n");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "in", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, own, 1);
    posix_spawn_file_actions_addclose(&actions, own);
    posix_spawn_file_actions_adddup2(&actions, cloexec, cloexec);
    posix_spawn_file_actions_adddup2(&actions, 1, 7);
    posix_spawn_file_actions_addopen(&actions, 8, "./late", O_RDWR | O_CREAT | O_EXCL, 0600);
    char script[128];
    snprintf(script, sizeof script, "cat; echo seven >&7; echo eight >&8; echo through >&%d; "
             "! echo closed 2>/dev/null >&%d", cloexec, own);
    char *arguments[] = {"sh", "-c", script, NULL};
    SAY(posix_spawn(&pid, "/bin/sh", &actions, NULL, arguments, environ));
    SAY(child_status(pid));
    SHOW("own");
    SHOW("cloexec");
    SHOW("late");
    // The file exists now: the action fails, and so does the spawn.
    SAY(posix_spawn(&pid, "/bin/sh", &actions, NULL, arguments, environ));
    posix_spawn_file_actions_destroy(&actions);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, 77, 1);
    SAY(posix_spawn(&pid, "/bin/sh", &actions, NULL, arguments, environ));
    posix_spawn_file_actions_destroy(&actions);
    // What is closed once more is no error; closing all loses nothing that is needed.
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, own);
    posix_spawn_file_actions_addclose(&actions, own);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    char *list[] = {"sh", "-c", "cat in > out", NULL};
    SAY(posix_spawn(&pid, "/bin/sh", &actions, NULL, list, environ));
    SAY(child_status(pid));
    SHOW("out");
    posix_spawn_file_actions_destroy(&actions);
    close(own);
    close(cloexec);
}

static struct flock range(short kind, off_t start, off_t length) {
    return (struct flock){.l_type = kind, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
}

static void locks(void) {
    int fd = open("q", O_RDWR | O_CREAT, 0644);
    struct flock lock = range(F_WRLCK, 10, 10);
    SAY(fcntl(fd, F_SETLK, &lock));
    pid_t pid = fork();
    if (pid == 0) {
        struct flock mine = range(F_RDLCK, 15, 1);
        SAY(fcntl(fd, F_GETLK, &mine));
        SAY(mine.l_type * 1000 + mine.l_start * 10 + mine.l_len);
        SAY(mine.l_pid == getppid());
        mine = range(F_WRLCK, 15, 1);
        SAY(fcntl(fd, F_SETLK, &mine));
        mine = range(F_WRLCK, 0, 10);
        SAY(fcntl(fd, F_SETLK, &mine));
        SAY(lockf(fd, F_TEST, 5));
        _exit(0);
    }
    SAY(child_status(pid));
    // Any close drops the process's locks.
    close(open("q", O_RDONLY));
    pid = fork();
    if (pid == 0) {
        struct flock mine = range(F_WRLCK, 0, 0);
        SAY(fcntl(fd, F_SETLK, &mine));
        _exit(0);
    }
    SAY(child_status(pid));
    int second = open("q", O_RDWR);
    SAY(flock(fd, LOCK_EX));
    SAY(flock(second, LOCK_SH | LOCK_NB));
    SAY(flock(fd, LOCK_SH));
    SAY(flock(second, LOCK_SH | LOCK_NB));
    SAY(flock(fd, LOCK_UN));
    SAY(flock(fd, LOCK_SH | LOCK_EX));
    lock = range(F_WRLCK, 0, 0);
    SAY(fcntl(fd, F_OFD_SETLK, &lock));
    SAY(fcntl(second, F_OFD_SETLK, &lock));
    lock.l_type = 77;
    SAY(fcntl(fd, F_SETLK, &lock));
    int reader = open("q", O_RDONLY);
    lock = range(F_WRLCK, 0, 1);
    SAY(fcntl(reader, F_SETLK, &lock));
    // Waiting for a lock that another process gives up.
    close(second);
    close(fd);
    fd = open("q", O_RDWR);
    int pipes[2], refused[2];
    if (pipe(pipes) != 0 || pipe(refused) != 0)
        return;
    pid = fork();
    if (pid == 0) {
        char told;
        struct flock mine = range(F_WRLCK, 0, 0);
        fcntl(fd, F_SETLKW, &mine);
        if (write(pipes[1], "x", 1) != 1 || read(refused[0], &told, 1) != 1)
            _exit(1);
        usleep(50000);
        _exit(0);
    }
    char byte;
    SAY(read(pipes[0], &byte, 1));
    lock = range(F_WRLCK, 0, 0);
    SAY(fcntl(fd, F_SETLK, &lock));
    SAY(write(refused[1], "x", 1));
    SAY(fcntl(fd, F_SETLKW, &lock));
    SAY(child_status(pid));
}

static void directories(void) {
    char path[PATH_MAX], *start = getcwd(NULL, 0);
    SAY(mkdir("deep", 0755));
    SAY(chdir("deep"));
    WORKS(getcwd(path, sizeof path) ? 0 : -1);
    SAY(strlen(path) - strlen(start));
    SAY_TEXT(path + strlen(start));
    SAY(mkdir("er", 0755));
    SAY(chdir("er/../er/."));
    SAY_TEXT(getcwd(path, sizeof path) + strlen(start));
    SAY(rename("../../deep", "../../shallow"));
    SAY_TEXT(getcwd(path, sizeof path) + strlen(start));
    SAY(getcwd(path, 3) ? 0 : -1);
    put("x", "x");
    WORKS(realpath("../er/./x", path) ? 0 : -1);
    SAY_TEXT(path + strlen(start));
    SAY(realpath("none", path) ? 0 : -1);
    int fd = open("..", O_RDONLY);
    SAY(fchdir(fd));
    SAY_TEXT(getcwd(path, sizeof path) + strlen(start));
    SAY(chdir("er/x"));
    SAY(chdir("none"));
    SAY(chdir(start));
    SAY(chdir("shallow/er") || unlink("x") || rmdir("../er"));
    SAY(open("new", O_RDWR | O_CREAT, 0644));
    SAY(getcwd(path, sizeof path) ? 0 : -1);
    SAY(chdir(start));
}

int main(int argc, char **argv) {
    enter(argc, argv);
    shared_position();
    inherited();
    from_here();
    spawned();
    closed_in_the_child();
    file_actions();
    locks();
    directories();
    return 0;
}
