// stdio: every opening mode, buffering, standard streams redirected, temporary names.
#include "say.h"
#include <stdio_ext.h>

static void modes(void) {
    const char *all[] = {"r", "r+", "w", "w+", "a", "a+", "wx", "re", "rb", "r+b", "q"};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
        put("f", "old text\n");
        FILE *stream = fopen("f", all[at]);
        fprintf(results, "mode %s: %s\n", all[at], stream ? "opened" : strerrorname_np(errno));
        if (!stream)
            continue;
        SAY(ftell(stream));
        SAY(fputs("new", stream));
        clearerr(stream);
        SAY(fseek(stream, 0, SEEK_SET));
        char line[32] = {0};
        WORKS(fgets(line, sizeof line, stream) ? 0 : -1);
        SAY_TEXT(line);
        SAY(fclose(stream));
        SHOW("f");
    }
    WORKS(fopen("none", "r") ? 0 : -1);
    WORKS(fopen("none/x", "w") ? 0 : -1);
    WORKS(fopen(".", "w") ? 0 : -1);
}

static void buffers(void) {
    FILE *stream = fopen("big", "w+");
    for (int at = 0; at < 20000; at++)
        fprintf(stream, "%d\n", at);
    SAY(ftell(stream));
    rewind(stream);
    long sum = 0;
    for (int value; fscanf(stream, "%d", &value) == 1;)
        sum += value;
    SAY(sum);
    SAY(feof(stream));
    SAY(fseek(stream, -6, SEEK_END));
    char *line = NULL;
    size_t room = 0;
    SAY(getline(&line, &room, stream));
    SAY_TEXT(line);
    SAY(ungetc('x', stream));
    SAY(getc(stream));
    SAY(fseeko(stream, 10, SEEK_SET));
    SAY(fputs("HERE", stream));
    SAY(fflush(stream));
    SAY(fileno(stream) > 2);
    struct stat info;
    SAY(fstat(fileno(stream), &info));
    SAY(info.st_size);
    SAY(setvbuf(stream, NULL, _IONBF, 0));
    SAY(fputc('!', stream));
    char bytes[8] = {0};
    SAY(pread(fileno(stream), bytes, 7, 10));
    SAY_TEXT(bytes);
    SAY(fclose(stream));
    int fd = open("big", O_RDONLY);
    WORKS(fdopen(fd, "w") ? 0 : -1);
    stream = fdopen(fd, "r");
    SAY(fread(bytes, 1, 5, stream));
    SAY(fileno(stream) - fd);
    SAY(fclose(stream));
    SAY(fcntl(fd, F_GETFD));
}

static void standard(void) {
    fflush(stdout);
    int saved = dup(1);
    int fd = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 1);
    close(fd);
    printf("to the file %d\n", 1);
    fflush(stdout);
    dup2(saved, 1);
    SHOW("out");
    WORKS(freopen("again", "w", stdout) ? 0 : -1);
    puts("by freopen");
    fflush(stdout);
    SHOW("again");
    dup2(saved, 1);
    close(saved);
    WORKS(freopen("err", "w", stderr) ? 0 : -1);
    errno = ENOENT;
    perror("said");
    fflush(stderr);
    SHOW("err");
    put("in", "first\nsecond\n");
    WORKS(freopen("in", "r", stdin) ? 0 : -1);
    char line[32];
    WORKS(fgets(line, sizeof line, stdin) ? 0 : -1);
    SAY_TEXT(line);
    FILE *stream = fopen("in", "r");
    stream = freopen("out", "r", stream);
    WORKS(stream && fgets(line, sizeof line, stream) ? 0 : -1);
    SAY_TEXT(line);
    fclose(stream);
}

static void temporary(void) {
    char name[] = "tmpXXXXXX", wrong[] = "tmpXXX", suffix[] = "tXXXXXX.txt", dir[] = "dXXXXXX";
    int fd = mkstemp(name);
    SAY(fd > 0);
    struct stat info;
    SAY(fstat(fd, &info));
    SAY(info.st_mode);
    SAY(mkstemp(wrong));
    SAY(mkstemps(suffix, 4) > 0);
    SAY_TEXT(suffix + 7);
    WORKS(mkdtemp(dir) ? 0 : -1);
    SAY(stat(dir, &info));
    SAY(info.st_mode);
    char flags[] = "oXXXXXX";
    fd = mkostemp(flags, O_CLOEXEC | O_APPEND);
    SAY(fcntl(fd, F_GETFD));
    SAY(fcntl(fd, F_GETFL) & O_APPEND);
}

int main(int argc, char **argv) {
    enter(argc, argv);
    modes();
    buffers();
    standard();
    temporary();
    return 0;
}
