// Loads libraries and calls `number` of each, which it says, with the library's own file name.
//
//   loads LIBRARY...
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words) {
    for (int i = 1; i < count; i++) {
        void *library = dlopen(words[i], RTLD_NOW);
        int (*number)(void) = library ? (int (*)(void))dlsym(library, "number") : NULL;
        Dl_info info;
        if (number == NULL || !dladdr(number, &info)) {
            printf("%s\n", dlerror());
            return 1;
        }
        if (dlopen(words[i], RTLD_NOW) != library) {
            puts("loaded twice");
        }
        printf("%d %s\n", number(), info.dli_fname);
    }
    return 0;
}
