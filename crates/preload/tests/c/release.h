// Which Linux this is: newer ones know flags that older ones refuse.
#include <stdio.h>
#include <sys/utsname.h>

static int newer_than(int major, int minor) {
    struct utsname is;
    int has[2];
    uname(&is);
    sscanf(is.release, "%d.%d", &has[0], &has[1]);
    return has[0] > major || has[0] == major && has[1] >= minor;
}
