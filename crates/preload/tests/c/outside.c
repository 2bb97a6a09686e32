// Symlinks on another file system that lead into the directory of the test.
#include "say.h"
#include <ftw.h>
#include <sys/inotify.h>

static char base[4096], out[4096];

static const char *in(const char *name) {
    static char path[4][8192];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[0], "%s/%s", base, name);
    return path[next];
}

// A path on the other file system.
static const char *at(const char *name) {
    static char path[4][8192];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[0], "%s/%s", out, name);
    return path[next];
}

static void content_of(int line, const char *path) {
    char text[64] = "";
    fprintf(results, "%d:\n", line);
    int fd = open(path, O_RDONLY);
    SAY(fd == -1 ? -1 : 0);
    if (fd == -1)
        return;
    SAY(read(fd, text, sizeof text - 1));
    fprintf(results, "[%s]\n", text);
    SAY(close(fd));
}

#define content(path) content_of(__LINE__, path)

static void same_file(const char *one, const char *other) {
    struct stat a, b;
    SAY(stat(one, &a));
    SAY(stat(other, &b));
    SAY(a.st_ino == b.st_ino && a.st_dev == b.st_dev);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    strcpy(base, argv[1]);
    strcpy(out, "/tmp/solera-outside-XXXXXX");
    if (!mkdtemp(out))
        return 1;
    SAY(mkdir(in("d"), 0755));
    SAY(mkdir(in("d/sub"), 0755));
    FILE *file = fopen(in("d/f"), "w");
    fputs("hello", file);
    fclose(file);

    SAY(symlink(in("d"), at("link")));
    SAY(symlink(in("d/f"), at("file")));
    SAY(symlink("link", at("twice")));
    SAY(symlink(in("new"), at("dangling")));
    // The link itself is the other file system's, which tells of its changes.
    WORKS(inotify_add_watch(inotify_init(), at("link"), IN_ATTRIB | IN_DONT_FOLLOW));
    SAY(mkdir(at("plain"), 0755));
    SAY(symlink("../link/sub", at("plain/up")));
    SAY(symlink("round", at("round")));

    content(at("link/f"));
    content(at("file"));
    content(at("twice/f"));
    content(at("plain/up/../f"));
    content(at("link/nothing"));
    content(at("round"));
    content(at("nothing"));
    content(at("file/x"));
    same_file(at("file"), in("d/f"));
    same_file(at("twice/sub"), in("d/sub"));

    struct stat st;
    SAY(lstat(at("file"), &st));
    SAY(S_ISLNK(st.st_mode));
    SAY(lstat(at("link/f"), &st));
    SAY(S_ISREG(st.st_mode));
    SAY(access(at("link/f"), R_OK));
    SAY(access(at("link/g"), R_OK));

    int fd = open(at("dangling"), O_WRONLY | O_CREAT | O_EXCL, 0644);
    SAY(fd == -1 ? -1 : 0);
    fd = open(at("dangling"), O_WRONLY | O_CREAT, 0644);
    SAY(fd == -1 ? -1 : 0);
    SAY(write(fd, "made", 4));
    SAY(close(fd));
    content(in("new"));
    SAY(mkdir(at("link/made"), 0755));
    SAY(rename(at("link/f"), at("twice/g")));
    content(in("d/g"));
    SAY(link(at("link/g"), at("twice/h")));
    SAY(unlink(at("link/g")));
    SAY(truncate(at("link/h"), 2));
    content(in("d/h"));
    SAY(chmod(at("link/h"), 0600));
    SAY(setxattr(at("link/h"), "user.a", "b", 1, 0));
    SAY(getxattr(in("d/h"), "user.a", NULL, 0));
    // What ends in a link is the link, for calls that do not follow.
    SAY(unlink(at("file")));
    SAY(unlink(at("file")));
    SAY(rmdir(at("link/made")));
    SAY(rmdir(at("link")));

    SAY(chdir(at("link")));
    content("h");
    char cwd[4096];
    SAY(getcwd(cwd, sizeof cwd) && !strcmp(cwd, in("d")));
    SAY(chdir(out));
    content("link/h");
    content("plain/up/../h");
    SAY(chdir("plain/up"));
    SAY(getcwd(cwd, sizeof cwd) && !strcmp(cwd, in("d/sub")));
    SAY(chdir("/"));
    char *real = realpath(at("plain/up/../h"), NULL);
    SAY(real && !strcmp(real, in("d/h")));
    free(real);
    DIR *dir = opendir(at("twice"));
    int entries = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        entries++;
    SAY(entries);
    SAY(dir ? closedir(dir) : -1);
    int other = open(out, O_RDONLY | O_DIRECTORY);
    SAY(openat(other, "link/h", O_RDONLY) == -1 ? -1 : 0);
    SAY(openat(other, "link/none", O_RDONLY));
    SAY(faccessat(other, "plain/up", X_OK, 0));
    SAY(mkdirat(other, "link/later", 0755));
    file = fopen(at("link/later/x"), "w");
    SAY(file ? fputs("x", file) : -1);
    SAY(file ? fclose(file) : -1);
    content(in("d/later/x"));

    chdir("/");
    char command[8192];
    snprintf(command, sizeof command, "rm -r %s", out);
    SAY(system(command));
    content(in("d/h"));
    return 0;
}
