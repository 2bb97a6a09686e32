// A library that a program loads, and the program: the plugin's own calls reach the directory,
// however its symbols are bound. Usage: plugin HOW PLUGIN DIRECTORY; the plugin is this file,
// compiled with -DPLUGIN. HOW is global, local, deep (RTLD_DEEPBIND) or own (a name space of its
// own, by dlmopen).
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef PLUGIN

// Writes what it sees to `said`: a stream of its own C library would have a buffer of its own.
void look(const char *directory, int given, int said) {
    char path[4096], text[20] = "";
    snprintf(path, sizeof path, "%s/file", directory);
    int file = open(path, O_RDONLY);
    dprintf(said, "open %d, read %zd", file >= 0, read(file, text, 5));
    dprintf(said, ", given: %zd", pread(given, text, 5, 0));
    FILE *stream = fopen(path, "r");
    dprintf(said, ", stream: %s", stream && fgets(text, 9, stream) ? text : "none");
    DIR *entries = opendir(directory);
    int count = 0;
    while (entries && readdir(entries))
        count++;
    struct stat info;
    dprintf(said, ", entries %d, stat %d", count, stat(path, &info));
    char *mapped = mmap(NULL, 5, PROT_READ, MAP_PRIVATE, given, 0);
    dprintf(said, ", mapped %.5s", mapped == MAP_FAILED ? "none" : mapped);
    snprintf(path, sizeof path, "%s/by-plugin", directory);
    file = open(path, O_WRONLY | O_CREAT, 0644);
    dprintf(said, ", written %zd, named %s\n", write(file, "new", 3), realpath(path, NULL));
}

#else

int main(int argc, char **argv) {
    char path[4096], text[9] = "";
    if (argc != 4 || mkdir(argv[3], 0755) != 0)
        return 99;
    snprintf(path, sizeof path, "%s/file", argv[3]);
    int file = open(path, O_RDWR | O_CREAT, 0644);
    if (write(file, "12345", 5) != 5)
        return 98;
    int flags = *argv[1] == 'g' ? RTLD_NOW | RTLD_GLOBAL : RTLD_NOW;
    flags |= *argv[1] == 'd' ? RTLD_DEEPBIND : 0;
    void *plugin = *argv[1] == 'o' ? dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW)
                                   : dlopen(argv[2], flags);
    if (!plugin) {
        printf("%s\n", dlerror());
        return 97;
    }
    void (*look)(const char *, int, int) = dlsym(plugin, "look");
    look(argv[3], file, 1);
    snprintf(path, sizeof path, "%s/by-plugin", argv[3]);
    file = open(path, O_RDONLY);
    printf("seen: %zd %s\n", read(file, text, 8), text);
    return 0;
}

#endif
