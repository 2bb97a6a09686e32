// What the operations of a script share: how they say a result, and what they work on.
#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <locale.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>
#include <wordexp.h>

enum { STREAMS = 11, STANDARD = 8, NUMBERS = 4, WORDS = 8, LARGEST = 20000 };

// Streams of slots 0 to 7, then standard input, output and error.
static FILE *streams[STREAMS];
static char buffers[STREAMS][8192];
static fpos_t positions[2];
static int position_set[2];
// Descriptors that the script opened itself; -1: none.
static int numbers[NUMBERS] = {-1, -1, -1, -1};
// The words of the line that runs; absent ones are empty.
static char *words[WORDS];
// A copy of the standard output, above all numbers that a script meets.
static int results = 1;
// The directory that the script begins in, above them, too.
static int beginning = -1;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    static char text[16384];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (length > (int)sizeof text - 1)
        length = sizeof text - 1;
    if (write(results, text, (size_t)length) < 0)
        _exit(98);
}

// A result; the error only where there is one, and not that of an earlier call.
static void say_result(long result) {
    int error = errno;
    if (result == -1)
        say(" %ld %s", result, error ? strerrorname_np(error) : "");
    else
        say(" %ld", result);
}

static void say_bytes(const char *bytes, size_t length) {
    uint64_t sum = 14695981039346656037u;
    for (size_t at = 0; at < length; at++)
        sum = (sum ^ (unsigned char)bytes[at]) * 1099511628211u;
    say(" [%zu:", length);
    for (size_t at = 0; at < length && at < 60; at++) {
        unsigned char byte = (unsigned char)bytes[at];
        if (byte > ' ' && byte < 127 && byte != '\\')
            say("%c", byte);
        else
            say("\\%02x", byte);
    }
    if (length > 60)
        say(" %016lx", (unsigned long)sum);
    say("]");
}

static long number(int word) {
    return strtol(words[word], NULL, 0);
}

// A size or count that the program has memory for.
static size_t count(int word) {
    long wanted = number(word);
    return wanted < 0 ? 0 : wanted > LARGEST ? LARGEST : (size_t)wanted;
}

static size_t slot(void) {
    return (size_t)number(0) % STREAMS;
}

// The open stream of the first word; NULL, and says so.
static FILE *stream(void) {
    FILE *found = streams[slot()];
    if (!found)
        say(" closed");
    return found;
}

// The same, unless it is one of wide characters: bytes of it are undefined.
static FILE *byte_stream(void) {
    FILE *found = stream();
    if (found && fwide(found, 0) > 0) {
        say(" wide");
        return NULL;
    }
    return found;
}

static FILE *wide_stream(void) {
    FILE *found = stream();
    if (found && fwide(found, 0) < 0) {
        say(" bytes");
        return NULL;
    }
    return found;
}

// A word as text: \n is a line's end, \s a space, \e nothing.
static char *text(int word) {
    static char made[2][4096];
    static int turn;
    char *to = made[turn ^= 1], *start = to;
    for (const char *from = words[word]; *from && to < start + 4000; from++) {
        if (*from != '\\') {
            *to++ = *from;
            continue;
        }
        from++;
        if (*from == 'n' || *from == 's')
            *to++ = *from == 'n' ? '\n' : ' ';
    }
    *to = 0;
    return start;
}

// So many bytes by a number: lines of digits and letters.
static char *pattern(size_t length, long seed) {
    static const char letters[] = "0123456789abcdefghijklmnop";
    static char made[LARGEST + 1];
    for (size_t at = 0; at < length; at++)
        made[at] = at % 37 == 36 ? '\n' : letters[(at * 7 + (size_t)seed) % 26];
    made[length] = 0;
    return made;
}

static int whence(int word) {
    const char *name = words[word];
    return *name == 's' ? SEEK_SET : *name == 'c' ? SEEK_CUR : *name == 'e' ? SEEK_END : 77;
}

static int open_flags(const char *letters) {
    int flags = strchr(letters, 'r') ? O_RDONLY : strchr(letters, 'w') ? O_WRONLY : O_RDWR;
    flags |= strchr(letters, 'c') ? O_CREAT : 0;
    flags |= strchr(letters, 't') ? O_TRUNC : 0;
    flags |= strchr(letters, 'a') ? O_APPEND : 0;
    return flags | (strchr(letters, 'd') ? O_DIRECTORY : 0);
}

static int compare_text(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

// Texts that come in an order of the file system's own.
static char *gathered[400];
static int gathered_count;

static void gather(const char *format, ...) {
    va_list list;
    va_start(list, format);
    char *made = NULL;
    if (gathered_count < 400 && vasprintf(&made, format, list) >= 0)
        gathered[gathered_count++] = made;
    va_end(list);
}

static void say_gathered(void) {
    qsort(gathered, (size_t)gathered_count, sizeof *gathered, compare_text);
    for (int at = 0; at < gathered_count; at++) {
        say(" %s", gathered[at]);
        free(gathered[at]);
    }
    gathered_count = 0;
}
