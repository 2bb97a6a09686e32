// Operations on streams and on the descriptors beneath them.

static void do_fopen(void) {
    size_t at = slot();
    if (streams[at]) {
        say(" open");
        return;
    }
    streams[at] = fopen(words[1], text(2));
    say_result(streams[at] ? fileno(streams[at]) : -1);
}

static void do_fdopen(void) {
    size_t at = slot(), from = count(1) % NUMBERS;
    if (streams[at] || numbers[from] < 0) {
        say(" no");
        return;
    }
    streams[at] = fdopen(numbers[from], text(2));
    say_result(streams[at] ? fileno(streams[at]) : -1);
    if (streams[at])
        numbers[from] = -1;
}

static void do_freopen(void) {
    size_t at = slot();
    if (!stream())
        return;
    FILE *old = streams[at];
    streams[at] = freopen(strcmp(words[1], "-") ? words[1] : NULL, text(2), old);
    say_result(streams[at] ? fileno(streams[at]) : -1);
    if (streams[at])
        say(streams[at] == old ? " same" : " another");
}

static void do_fclose(void) {
    if (!stream())
        return;
    say_result(fclose(streams[slot()]));
    streams[slot()] = NULL;
}

static void do_fread(void) {
    static char bytes[LARGEST];
    FILE *from = byte_stream();
    if (!from)
        return;
    size_t size = count(2) ? count(2) : 1;
    size_t read = fread(bytes, size, count(1) / size, from);
    say_result((long)read);
    say_bytes(bytes, read * size);
}

static void do_fwrite(void) {
    FILE *to = byte_stream();
    if (to)
        say_result((long)fwrite(pattern(count(1), number(2)), 1, count(1), to));
}

static void do_fputs(void) {
    FILE *to = byte_stream();
    if (to)
        say_result(fputs(text(1), to) < 0 ? -1 : 0);
}

static void do_fgetc(void) {
    FILE *from = byte_stream();
    if (from)
        say_result(fgetc(from));
}

static void do_fputc(void) {
    FILE *to = byte_stream();
    if (to)
        say_result(fputc((int)number(1), to));
}

// Whether a stream is being written to: what is pushed back there, glibc takes for written, with
// whatever its memory has before it.
static int is_written(FILE *stream) {
    if (__fwriting(stream))
        say(" written");
    return __fwriting(stream);
}

static void do_ungetc(void) {
    FILE *from = byte_stream();
    if (from && !is_written(from))
        say_result(ungetc((int)number(1), from));
}

static void do_fgets(void) {
    static char line[LARGEST + 1];
    FILE *from = byte_stream();
    if (!from)
        return;
    char *got = fgets(line, (int)count(1) + 1, from);
    say_result(got ? 0 : -1);
    if (got)
        say_bytes(line, strlen(line));
}

static void do_getline(void) {
    FILE *from = byte_stream();
    if (!from)
        return;
    char *line = NULL;
    size_t size = 0;
    ssize_t length = getdelim(&line, &size, number(1) ? (int)number(1) : '\n', from);
    say_result(length);
    if (length > 0)
        say_bytes(line, (size_t)length);
    free(line);
}

static void do_fseek(void) {
    if (stream())
        say_result(fseek(streams[slot()], number(1), whence(2)));
}

static void do_fseeko(void) {
    if (stream())
        say_result(fseeko(streams[slot()], number(1), whence(2)));
}

static void do_ftell(void) {
    if (stream())
        say_result(ftell(streams[slot()]));
}

static void do_rewind(void) {
    if (!stream())
        return;
    rewind(streams[slot()]);
    say_result(errno ? -1 : 0);
}

static void do_fgetpos(void) {
    if (!stream())
        return;
    int got = fgetpos(streams[slot()], &positions[number(1) & 1]);
    position_set[number(1) & 1] = got == 0;
    say_result(got);
}

static void do_fsetpos(void) {
    if (!position_set[number(1) & 1])
        say(" none");
    else if (stream())
        say_result(fsetpos(streams[slot()], &positions[number(1) & 1]));
}

static void do_setvbuf(void) {
    if (!stream())
        return;
    int how = *words[1] == 'n' ? _IONBF : *words[1] == 'l' ? _IOLBF : _IOFBF;
    size_t size = count(2) > sizeof *buffers ? sizeof *buffers : count(2);
    say_result(setvbuf(streams[slot()], size ? buffers[slot()] : NULL, how, size));
}

static void do_fflush(void) {
    if (!strcmp(words[0], "all"))
        say_result(fflush(NULL));
    else if (stream())
        say_result(fflush(streams[slot()]));
}

static void do_state(void) {
    FILE *of = stream();
    if (!of)
        return;
    say(" eof %d error %d pending %zu", !!feof(of), !!ferror(of), __fpending(of));
    say(" reads %d writes %d lines %d wide %d", !!__freading(of), !!__fwriting(of), __flbf(of),
        fwide(of, 0));
}

static void do_clearerr(void) {
    if (stream())
        clearerr(streams[slot()]);
}

static void do_fpurge(void) {
    if (byte_stream())
        __fpurge(streams[slot()]);
}

static void do_fprintf(void) {
    FILE *to = byte_stream();
    if (!to)
        return;
    long value = number(2);
    switch (number(1) % 4) {
    case 0: say_result(fprintf(to, "%ld\n", value)); break;
    case 1: say_result(fprintf(to, "%0*ld|%-9s|", (int)(value % 300), value, "left")); break;
    case 2: say_result(fprintf(to, "%.3f %lc\n", (double)value / 7, (wint_t)L'ä')); break;
    default: say_result(fprintf(to, "%s", pattern(count(2), 3)));
    }
}

static void do_fscanf(void) {
    FILE *from = byte_stream();
    if (!from)
        return;
    char word[200] = "";
    long value = -77;
    switch (number(1) % 4) {
    case 0: say_result(fscanf(from, "%ld", &value)); break;
    case 1: say_result(fscanf(from, "%150s", word)); break;
    case 2: say_result(fscanf(from, "%[0-9a-f]%ld", word, &value)); break;
    default: say_result(fscanf(from, " %5c", word));
    }
    say(" %ld", value);
    say_bytes(word, strlen(word));
}

static void do_fwide(void) {
    if (stream())
        say(" %d", fwide(streams[slot()], (int)number(1)));
}

static void do_fgetwc(void) {
    FILE *from = wide_stream();
    if (from)
        say_result((int)fgetwc(from));
}

static void do_fputwc(void) {
    FILE *to = wide_stream();
    if (to)
        say_result((int)fputwc((wchar_t)number(1), to));
}

static void do_ungetwc(void) {
    FILE *from = wide_stream();
    if (from && !is_written(from))
        say_result((int)ungetwc((wint_t)number(1), from));
}

static void do_fputws(void) {
    FILE *to = wide_stream();
    static wchar_t wide[4100];
    if (to && mbstowcs(wide, text(1), 4096) != (size_t)-1)
        say_result(fputws(wide, to) < 0 ? -1 : 0);
}

static void do_fgetws(void) {
    FILE *from = wide_stream();
    static wchar_t wide[LARGEST + 1];
    if (!from)
        return;
    wchar_t *got = fgetws(wide, (int)count(1) + 1, from);
    say_result(got ? (long)wcslen(got) : -1);
    for (size_t at = 0; got && wide[at] && at < 40; at++)
        say(" %x", (unsigned)wide[at]);
}

static void do_fwprintf(void) {
    FILE *to = wide_stream();
    if (to)
        say_result(fwprintf(to, L"%ld ä %s\n", number(1), "text"));
}

static void do_fwscanf(void) {
    FILE *from = wide_stream();
    wchar_t word[100] = L"";
    if (!from)
        return;
    say_result(fwscanf(from, L"%90ls", word));
    say(" %zu %x", wcslen(word), (unsigned)*word);
}

static void do_setlocale(void) {
    say(" %s", setlocale(LC_ALL, words[0]) ? "set" : "none");
}

// Of the standard streams by the functions that have no stream as argument.
static void do_standard(void) {
    if (!streams[STANDARD] || !streams[STANDARD + 1] || !streams[STANDARD + 2] ||
        fwide(stdin, 0) > 0 || fwide(stdout, 0) > 0 || fwide(stderr, 0) > 0) {
        say(" closed or wide");
        return;
    }
    char word[100] = "";
    switch (number(0) % 5) {
    case 0: say_result(printf("%s %ld\n", "printf", number(1))); break;
    case 1: say_result(puts("puts") < 0 ? -1 : 0); break;
    case 2: say_result(getchar()); break;
    case 3: say_result(scanf("%90s", word)), say_bytes(word, strlen(word)); break;
    default: errno = ENOENT, perror("perror");
    }
}

// The number beneath a stream.
static int beneath(void) {
    FILE *of = stream();
    return of ? fileno(of) : -1;
}

static void read_number(int from, size_t length) {
    static char bytes[LARGEST];
    ssize_t got = read(from, bytes, length);
    say_result(got);
    if (got > 0)
        say_bytes(bytes, (size_t)got);
}

static void do_raw_read(void) {
    int from = beneath();
    if (from >= 0)
        read_number(from, count(1));
}

static void do_raw_write(void) {
    int to = beneath();
    if (to >= 0)
        say_result(write(to, text(1), strlen(text(1))));
}

static void do_raw_seek(void) {
    int of = beneath();
    if (of >= 0)
        say_result(lseek(of, number(1), whence(2)));
}

static void do_ftruncate(void) {
    int of = beneath();
    if (of >= 0)
        say_result(ftruncate(of, number(1)));
}

static void do_fstat(void) {
    struct stat info;
    int of = beneath(), got = of < 0 ? -1 : fstat(of, &info);
    if (of < 0)
        return;
    say_result(got);
    if (got == 0 && S_ISREG(info.st_mode))
        say(" size %ld links %ld mode %o block %ld", (long)info.st_size, (long)info.st_nlink,
            info.st_mode, (long)info.st_blksize);
}

static void do_tty(void) {
    int of = beneath();
    if (of < 0)
        return;
    char name[100];
    say(" %d", isatty(of));
    say_result(ttyname(of) ? 0 : -1);
    say(" %d", ttyname_r(of, name, sizeof name));
}

static void do_lockf(void) {
    int of = beneath();
    if (of >= 0)
        say_result(lockf(of, number(1) & 1 ? F_TLOCK : F_ULOCK, number(2)));
}

static void do_aio(void) {
    static char bytes[4096];
    int of = beneath();
    if (of < 0)
        return;
    struct aiocb block = {.aio_fildes = of, .aio_buf = bytes, .aio_nbytes = count(2) % 4096};
    block.aio_offset = number(3);
    const struct aiocb *list[] = {&block};
    int write = *words[1] == 'w';
    if (write)
        memcpy(bytes, pattern(block.aio_nbytes, 5), block.aio_nbytes);
    int begun = write ? aio_write(&block) : aio_read(&block);
    say_result(begun);
    while (begun == 0 && aio_error(&block) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    if (begun != 0)
        return;
    say(" %s", strerrorname_np(aio_error(&block)));
    ssize_t done = aio_return(&block);
    say(" %zd", done);
    if (!write && done > 0)
        say_bytes(bytes, (size_t)done);
}

// A stream's descriptor, copied to a slot of numbers.
static void do_dup(void) {
    int of = beneath();
    size_t at = count(1) % NUMBERS;
    if (of < 0)
        return;
    if (numbers[at] >= 0)
        close(numbers[at]);
    say_result(numbers[at] = dup(of));
}

static void do_open(void) {
    size_t at = count(0) % NUMBERS;
    if (numbers[at] >= 0)
        close(numbers[at]);
    say_result(numbers[at] = open(words[1], open_flags(words[2]), 0644));
}

static int opened(void) {
    int found = numbers[count(0) % NUMBERS];
    if (found < 0)
        say(" none");
    return found;
}

static void do_close(void) {
    if (opened() < 0)
        return;
    say_result(close(opened()));
    numbers[count(0) % NUMBERS] = -1;
}

static void do_dup2(void) {
    int of = opened(), to = (int)count(1) % 3;
    if (of >= 0)
        say_result(dup2(of, to));
}

static void do_write(void) {
    int to = opened();
    if (to >= 0)
        say_result(write(to, text(1), strlen(text(1))));
}

static void do_read(void) {
    int from = opened();
    if (from >= 0)
        read_number(from, count(1));
}

static void do_lseek(void) {
    int of = opened();
    if (of >= 0)
        say_result(lseek(of, number(1), whence(2)));
}

static void do_sendfile(void) {
    int to = opened(), from = numbers[count(1) % NUMBERS];
    if (to < 0 || from < 0)
        return;
    say_result(sendfile(to, from, NULL, count(2)));
}
