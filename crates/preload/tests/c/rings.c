// The kernel's asynchronous calls, begun by every name: prints what each gives, success as 0. The
// libraries, where they are installed, are loaded as plug-ins load theirs: into no common scope.
#include "say.h"
#include <dlfcn.h>
#include <sys/syscall.h>

typedef int Any();

static Any *find(const char *name, const char *library) {
    Any *found = dlsym(RTLD_DEFAULT, name);
    void *own = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    return found ? found : own ? dlsym(own, name) : NULL;
}

static void say(const char *name, int answer) {
    if (answer >= 0)
        fprintf(results, "%s 0\n", name);
    else
        fprintf(results, "%s %s\n", name, strerrorname_np(-answer));
    fflush(results);
}

static int by_number(long number, long first, void *second) {
    errno = 0;
    int answer = syscall(number, first, second);
    return answer < 0 ? -errno : answer;
}

int main(int argc, char **argv) {
    enter(argc, argv);
    void *context = NULL;
    char parameters[256] = {0}, ring[4096] = {0};
    say("SYS_io_setup", by_number(SYS_io_setup, 4, &context));
    say("SYS_io_uring_setup", by_number(SYS_io_uring_setup, 4, parameters));
    say("SYS_io_setup", by_number(SYS_io_setup, 0, NULL));
    const char *const aio[] = {"io_setup", "io_queue_init"};
    for (int at = 0; at < 2; at++) {
        Any *call = find(aio[at], "libaio.so.1");
        context = NULL;
        errno = 7;
        say(aio[at], call ? call(4, &context) : by_number(SYS_io_setup, 4, &context));
        say(aio[at], call ? call(-1, &context) : -EINVAL);
        SAY(call ? errno : 7);
    }
    memset(parameters, 0, sizeof parameters);
    Any *call = find("io_uring_setup", "liburing.so.2");
    int given = call ? call(4, parameters) : by_number(SYS_io_uring_setup, 4, parameters);
    say("io_uring_setup", given);
    int installed = dlopen("liburing.so.2", RTLD_LAZY | RTLD_LOCAL) != NULL;
    const char *const rings[] = {"io_uring_queue_init", "io_uring_queue_init_params"};
    for (int at = 0; at < 2; at++) {
        memset(parameters, 0, sizeof parameters);
        Any *init = find(rings[at], "liburing.so.2");
        void *last = at ? parameters : NULL;
        // The first takes flags: none.
        say(rings[at], init ? init(4, ring, last) : -ENOSYS);
        if (!installed)
            say("not installed", 0);
    }
    return 0;
}
