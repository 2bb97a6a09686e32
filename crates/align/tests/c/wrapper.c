// An allocator that knows its own blocks: each has a mark before it, and `free` of any other ends
// the program. Its memory is shared and never zero, and its `posix_memalign` calls `malloc` by its
// name. With -DWITHOUT_ALIGNMENT it has no function that aligns. Linked into a program, or preloaded.
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct mark {
    uint64_t mark;
    size_t usable;
    char *mapped;
    size_t length;
};

static const uint64_t MARK = 0x736f6c6572610001;

static struct mark *mark_of(void *block) {
    // The compiler would know what `malloc` gives.
    __asm__("" : "+r"(block));
    struct mark *mark = (struct mark *)block - 1;
    if (mark->mark != MARK) {
        static const char said[] = "a block of another allocator\n";
        write(2, said, sizeof said - 1);
        abort();
    }
    return mark;
}

void *malloc(size_t size) {
    size_t length = size + sizeof(struct mark);
    if (size > PTRDIFF_MAX - 4096) {
        errno = ENOMEM;
        return NULL;
    }
    char *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        errno = ENOMEM;
        return NULL;
    }
    *(struct mark *)mapped = (struct mark){MARK, size, mapped, length};
    char *block = mapped + sizeof(struct mark);
    memset(block, 0xa5, size);
    return block;
}

void free(void *block) {
    if (block) {
        struct mark *mark = mark_of(block);
        munmap(mark->mapped, mark->length);
    }
}

size_t malloc_usable_size(void *block) {
    return block ? mark_of(block)->usable : 0;
}

void *calloc(size_t count, size_t each) {
    size_t size;
    if (__builtin_mul_overflow(count, each, &size)) {
        errno = ENOMEM;
        return NULL;
    }
    // Not seen as calloc by the compiler.
    void *(*volatile get)(size_t) = malloc;
    void *block = get(size);
    return block ? memset(block, 0, size) : NULL;
}

void *realloc(void *old, size_t size) {
    void *block = malloc(size);
    if (old && block) {
        size_t had = mark_of(old)->usable;
        memcpy(block, old, had < size ? had : size);
        free(old);
    }
    return block;
}

#ifndef WITHOUT_ALIGNMENT
int posix_memalign(void **to, size_t alignment, size_t size) {
    if (alignment < sizeof(void *) || alignment & (alignment - 1)) {
        return EINVAL;
    }
    if (size > PTRDIFF_MAX - 4096 - alignment) {
        return ENOMEM;
    }
    char *whole = malloc(size + alignment + sizeof(struct mark));
    if (!whole) {
        return ENOMEM;
    }
    uintptr_t first = (uintptr_t)whole + sizeof(struct mark);
    char *block = (char *)((first + alignment - 1) & -alignment);
    struct mark mark = *mark_of(whole);
    mark.usable = size;
    ((struct mark *)block)[-1] = mark;
    *to = block;
    return 0;
}

void *memalign(size_t alignment, size_t size) {
    void *block = NULL;
    errno = posix_memalign(&block, alignment, size);
    return block;
}

void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

void *valloc(size_t size) {
    return memalign(4096, size);
}

void *pvalloc(size_t size) {
    return memalign(4096, size > SIZE_MAX - 4096 ? size : (size + 4095) & -(size_t)4096);
}
#endif
