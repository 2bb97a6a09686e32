/*
 * solera.h: files as memory, a write-ahead log with one fence, and buffers for reads without a copy.
 *
 * Link with `pkg-config --cflags --libs solera`. All functions may be called by any thread at once; a
 * close, and any other call on what it closes, may not. No function is a cancellation point.
 *
 * Errors are -1 (of pointers: NULL), errno, and a sentence for a person: solera_error(). Besides what
 * stands at a function: EINVAL for a handle that is NULL, closed or of another kind, a NULL where bytes
 * are asked for, a negative offset, and a length beyond SSIZE_MAX; ESTALE in a child of fork(), whose
 * handles are its parent's; EFAULT for bytes that cannot be accessed (paths, options and places for
 * results must be there); EIO for memory that is damaged, and for good once a write to the medium has
 * failed.
 * Whatever fails has changed nothing, unless the function says otherwise.
 *
 * What a fence promises depends on the memory: solera_place_class().
 */
#ifndef SOLERA_H
#define SOLERA_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Another process has cut the file: what was to be accessed is not there any more. Only where whole pages
   are gone: in the page of the new end, and in what the file grows by in one step, nothing shows. */
#ifndef ETRUNCATED
#define ETRUNCATED ENODATA
#endif

typedef struct solera_place solera_place;
typedef struct solera_file solera_file;
typedef struct solera_log solera_log;
typedef struct solera_buffer solera_buffer;

/* What this thread has streamed to a file: for solera_wait(). */
typedef struct solera_ticket {
    uint64_t thread;
    uint64_t file;
} solera_ticket;

/* ---- places ------------------------------------------------------------------------------------- */

/* Flag: take an ordinary disk, too, where each wait is for the medium. */
#define SOLERA_PAGE 1u

/* What a fence promises, best first. */
#define SOLERA_CLASS_BYTE 0       /* a store is durable behind a fence: the platform flushes caches */
#define SOLERA_CLASS_CACHE_LINE 1 /* a line that is streamed or flushed is durable behind a fence */
#define SOLERA_CLASS_VOLATILE 2   /* it outlives processes, not a reboot */
#define SOLERA_CLASS_PAGE 3       /* an ordinary disk: a fence is fdatasync() */

/* Opens the directory `where`, or the root of a volume by its file or device. A directory may be one of a
   mounted volume, or of one that `solera run` shows. EOPNOTSUPP: an ordinary disk, without SOLERA_PAGE;
   ENOTDIR: neither. EBUSY: another copy of this library, in this process, has the volume; ENOEXEC:
   `solera run` is of another version. */
int solera_open_place(const char *where, unsigned flags, solera_place **place);

/* Closes a place. Its files and logs stay open. */
int solera_close_place(solera_place *place);

/* The class of a place, SOLERA_CLASS_*; `why`, unless it is NULL, is set to a sentence that stays until
   the place is closed. */
int solera_place_class(const solera_place *place, const char **why);

/* Returns when all that this thread has streamed or flushed to files of the place is durable. In class
   page: syncfs(), so not of files on other file systems that are mounted or linked below the place. */
int solera_fence(solera_place *place);

/* ---- files -------------------------------------------------------------------------------------- */

#define SOLERA_CREATE 1u    /* make it, if it is not there */
#define SOLERA_EXCLUSIVE 2u /* with SOLERA_CREATE: it must not be there (EEXIST) */
#define SOLERA_READONLY 4u

/* Begin with SOLERA_OPTIONS; 0 is the default of each. */
struct solera_options {
    size_t struct_size; /* sizeof(struct solera_options) */
    uint64_t size;      /* bytes that it may grow to, at most 64 TiB; 0: 64 GiB. Takes so much address space */
    uint64_t step;      /* bytes that it grows by, rounded up to 4 KiB; 0: 2 MiB */
    unsigned flags;     /* SOLERA_CREATE, ... */
    mode_t mode;        /* of a file that is made; 0: 0600 */
};
#define SOLERA_OPTIONS {sizeof(struct solera_options), 0, 0, 0, 0}

/* Opens a file of a place; `path` is below it, without `..`. `options` NULL: it must be there. While it
   is open for writing the file is longer than its contents, by zeros, up to a step. One process may
   append to a file at a time. (On a volume the length is exact, and any number may append.) */
int solera_open(solera_place *place, const char *path, const struct solera_options *options,
                solera_file **file);

/* Cuts the file to its length, and closes it; also if it fails. What is not waited for is not durable. */
int solera_close(solera_file *file);

/* The length, in bytes. */
off_t solera_length(solera_file *file);

/* 1: the length that was found at opening is exact; 0: it may end in zeros that nobody wrote, because a
   writer ended without closing. */
int solera_length_is_exact(solera_file *file);

/* Streams bytes behind the end; gives how many: all. Durable after solera_wait() with the ticket (which
   may be NULL), or solera_fence(), by the same thread. ENOSPC; EFBIG beyond `size`; ETRUNCATED. */
ssize_t solera_append(solera_file *file, const void *bytes, size_t count, solera_ticket *ticket);

/* Streams bytes to an offset; what lies between the end and there is zeros. Not atomic: a crash, or an
   error, may leave a part. Else as solera_append(). */
ssize_t solera_pwrite(solera_file *file, const void *bytes, size_t count, off_t offset,
                      solera_ticket *ticket);

/* As solera_pwrite(), durable and whole, or not at all. ENOTSUP: the file is on no volume, or the program
   is run in another mode than `strict`. */
ssize_t solera_pwrite_atomic(solera_file *file, const void *bytes, size_t count, off_t offset);

/* Copies bytes; gives how many, fewer at the end. ETRUNCATED. */
ssize_t solera_pread(solera_file *file, void *to, size_t count, off_t offset);

/* The memory itself: it stays where it is while the file is open. EINVAL beyond the end. A load where
   another process has cut the file is a SIGBUS, as of any mapping; on a volume it gives zeros. ENODEV: a
   volume whose memory has large pages only. */
void *solera_view(solera_file *file, off_t offset, size_t count);

/* Returns when stores of any thread to these bytes of a view, which happened before, are durable. Class
   page: fdatasync(). */
int solera_persist(solera_file *file, const void *at, size_t count);

/* Starts writing them back: durable after solera_fence() by the same thread. */
int solera_flush(solera_file *file, const void *at, size_t count);

/* Returns when what the ticket stands for is durable. EINVAL: another thread's, or another file's. */
int solera_wait(solera_file *file, solera_ticket ticket);

/* Makes the length exact, and durable. */
int solera_sync_len(solera_file *file);

/* Makes the file `length` bytes long: longer by zeros. Durable after solera_sync_len(). */
int solera_truncate(solera_file *file, off_t length);

/* ---- logs --------------------------------------------------------------------------------------- */

/* Begin with SOLERA_LOG_OPTIONS; 0 is the default of each. */
struct solera_log_options {
    size_t struct_size; /* sizeof(struct solera_log_options) */
    uint64_t capacity;  /* bytes of the ring of a log that is made: 4 KiB to 64 TiB; 0: 64 MiB */
    int readonly;       /* follow it, while another process may write to it */
    int create;         /* make it, if it is not there */
    mode_t mode;        /* of a log that is made; 0: 0600 */
};
#define SOLERA_LOG_OPTIONS {sizeof(struct solera_log_options), 0, 0, 0, 0}

/* As a position to read from: the oldest record. */
#define SOLERA_OLDEST UINT64_MAX

/* Opens a log of a place. EBUSY: another process writes to it; EUCLEAN: it is none, or, to be written, a
   record is damaged that was committed. */
int solera_log_open(solera_place *place, const char *path, const struct solera_log_options *options,
                    solera_log **log);

/* Closes it. What was put and not committed is not durable. */
int solera_log_close(solera_log *log);

/* Appends a record of 1 byte or more, durably; sets `*position`, unless it is NULL, to its position.
   EINVAL: 0 bytes; EMSGSIZE: more than a quarter of the capacity; ENOSPC: trim it first; EBADF: it is
   open for reading. EFAULT leaves a gap that readers skip. */
int solera_log_append(solera_log *log, const void *bytes, size_t count, uint64_t *position);

/* The same, of one record in several pieces. */
int solera_log_appendv(solera_log *log, const struct iovec *pieces, int count, uint64_t *position);

/* The same, but the record is not durable yet. */
int solera_log_put(solera_log *log, const void *bytes, size_t count, uint64_t *position);

/* Makes all records durable up to the one at `position`, whoever put them. */
int solera_log_commit(solera_log *log, uint64_t position);

/* Copies the first durable record at `*position` or behind it, and moves `*position` behind it; gives
   its length; 0: there is none yet. EMSGSIZE: it is longer than `count`. ESTALE: it is trimmed, and
   `*position` is now that of the oldest record. EUCLEAN: it is damaged. */
ssize_t solera_log_read(solera_log *log, uint64_t *position, void *to, size_t count);

/* As solera_log_read(), without a copy: the record stays where it is until it is trimmed. Gives 1; 0:
   there is none yet. EPERM: the log is open for reading, and its writer may trim it at any time. */
int solera_log_next(solera_log *log, uint64_t *position, const void **record, size_t *count);

/* Says that nothing before the record at `position` is needed any more. */
int solera_log_trim(solera_log *log, uint64_t position);

/* ---- buffers ------------------------------------------------------------------------------------ */

/* Memory to read files into, of which the program says that nothing pins its pages: no io_uring buffer, no
   RDMA, no device. Under `solera run --cache` a read of a cached file maps whole pages of 2 MiB into it,
   and copies the rest; elsewhere it is memory. No switch is needed, and no file of solera_open(): read(),
   pread(), readv() and preadv() do it.

       solera_buffer *buffer = solera_buffer_alloc(count);
       char *data = solera_buffer_slide(buffer, offset);
       ssize_t got = pread(fd, data, count, offset);

   A read maps the part of it that is whole pages of the file, from a multiple of 2 MiB to a multiple of
   2 MiB, if the address is congruent to the offset modulo 2 MiB: so slide it by the offset for each read.
   Whatever was mapped or copied, the buffer keeps what the read found there, whoever changes the file
   then; it may be stored to, and stores are the program's own; what a read does not cover stays.

   A program maps, unmaps, moves and protects nothing in it. A child of fork() has a copy, as of all
   memory, and its handle, which it frees for itself. Its first store to each 4 KiB that are mapped takes
   longer (a copy of them, by a page fault): before changing most of it call solera_buffer_fault(). */

/* Makes a buffer for reads of up to `size` bytes, 1 or more, from any offset on. It takes up to 4 MiB more
   of address space, and memory where it is used. NULL: EINVAL for 0; ENOMEM. */
solera_buffer *solera_buffer_alloc(size_t size);

/* Where it begins: as solera_buffer_slide() of offset 0. */
void *solera_buffer_base(solera_buffer *buffer);

/* Where the data from `offset` on starts: at the base, moved by the offset modulo 2 MiB. From there there
   is room for `size` bytes. Nothing is moved: to read at another offset, slide by that one. */
void *solera_buffer_slide(solera_buffer *buffer, off_t offset);

/* Makes all of it the program's own memory, with the bytes that it has, in one go: stores cost no page
   fault behind it. No thread may use the buffer meanwhile. ENOMEM: a part may have been made so. */
int solera_buffer_fault(solera_buffer *buffer);

/* Gives up what is mapped into it: before it is used for something else. What it holds is not known then.
   ENOMEM. */
int solera_buffer_detach(solera_buffer *buffer);

/* Frees it, with the memory that is mapped into it. NULL, or what is freed already, is nothing. */
void solera_buffer_free(solera_buffer *buffer);

/* ---- what all need ----------------------------------------------------------------------------- */

/* For a program's own handler of SIGBUS and SIGSEGV that it sets after opening a file: 1 if the signal
   was of a guarded access, which goes on with an error; the handler returns then. 0: it was not. */
int solera_sigbus(int signal, void *siginfo, void *context);

/* What this thread's last failed call asked, what it found, and what to do; "" before there is one. It
   stays until the thread's next failed call. */
const char *solera_error(void);

#ifdef __cplusplus
}
#endif

#endif
