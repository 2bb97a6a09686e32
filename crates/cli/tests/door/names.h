// Operations on names, directories and trees. A file system may name the entries of a directory in
// any order: what is said is sorted.

static void do_truncate(void) {
    say_result(truncate(words[0], number(1)));
}

static void do_rename(void) {
    say_result(rename(words[0], words[1]));
}

static void do_unlink(void) {
    say_result(unlink(words[0]));
}

static void do_remove(void) {
    say_result(remove(words[0]));
}

static void do_link(void) {
    say_result(link(words[0], words[1]));
}

static void do_symlink(void) {
    say_result(symlink(words[0], words[1]));
}

static void do_mkdir(void) {
    say_result(mkdir(words[0], 0755));
}

static void do_chdir(void) {
    say_result(strcmp(words[0], "up") ? chdir(words[0]) : fchdir(beginning));
}

static void do_stat(void) {
    struct stat info;
    int got = number(1) & 1 ? lstat(words[0], &info) : stat(words[0], &info);
    say_result(got);
    if (got == 0 && !S_ISDIR(info.st_mode))
        say(" size %ld links %ld mode %o", (long)info.st_size, (long)info.st_nlink, info.st_mode);
}

static void do_getcwd(void) {
    char own[PATH_MAX], *made = NULL;
    switch (number(0) % 4) {
    case 0: made = getcwd(NULL, 0); break;
    case 1: made = get_current_dir_name(); break;
    case 2: say_result(getcwd(own, 3) ? 0 : -1); return;
    default: say(" %s", getcwd(own, sizeof own) ? own : "none"); return;
    }
    say_result(made ? 0 : -1);
    say(" %s", made ? made : "none");
    free(made);
}

static void do_realpath(void) {
    char into[PATH_MAX] = "";
    char *made = number(1) & 1 ? canonicalize_file_name(words[0]) : realpath(words[0], into);
    say_result(made ? 0 : -1);
    if (made)
        say(" %s", made);
    else if (errno != ELOOP)
        say(" at %s", into);
    if (number(1) & 1)
        free(made);
}

static void say_entries(DIR *of, int limit) {
    for (struct dirent *entry; limit-- && (entry = readdir(of));)
        gather("%s:%d", entry->d_name, entry->d_type);
    say_gathered();
}

// Reads some entries, marks its position, reads the others twice, then all again.
static void do_directory(void) {
    int from = number(1) & 1 ? open(words[0], O_RDONLY | O_DIRECTORY) : -1;
    DIR *of = number(1) & 1 ? (from < 0 ? NULL : fdopendir(from)) : opendir(words[0]);
    say_result(of ? dirfd(of) : -1);
    if (!of)
        return;
    struct stat one, other;
    say(" %d", fstat(dirfd(of), &one) == 0 && stat(words[0], &other) == 0 &&
        one.st_ino == other.st_ino && one.st_dev == other.st_dev);
    for (long before = number(2); before > 0 && readdir(of); before--)
        continue;
    long mark = telldir(of);
    char *kept[400];
    int first = 0, same = 1, second = 0;
    for (struct dirent *entry; first < 400 && (entry = readdir(of));)
        kept[first++] = strdup(entry->d_name);
    seekdir(of, mark);
    for (struct dirent *entry; second < 400 && (entry = readdir(of)); second++)
        same &= second < first && !strcmp(kept[second], entry->d_name);
    say(" %d left, %s, end %s", first, same && first == second ? "again" : "OTHERS",
        telldir(of) == mark && first ? "NOT MOVED" : "moved");
    while (first > 0)
        free(kept[--first]);
    rewinddir(of);
    say_entries(of, 400);
    say_result(closedir(of));
}

static int no_dots(const struct dirent *entry) {
    return *entry->d_name != '.';
}

static void do_scandir(void) {
    struct dirent **list = NULL;
    int found = scandir(words[0], &list, number(1) & 1 ? no_dots : NULL,
                        number(1) & 2 ? versionsort : alphasort);
    say_result(found);
    for (int at = 0; at < found; at++) {
        say(" %s", list[at]->d_name);
        free(list[at]);
    }
    free(list);
}

static void do_glob(void) {
    static const int flags[] = {0, GLOB_MARK, GLOB_ONLYDIR, GLOB_BRACE | GLOB_NOCHECK, GLOB_PERIOD};
    glob_t found = {0};
    int got = glob(words[0], flags[count(1) % 5], NULL, &found);
    say(" %d %zu", got, got ? 0 : found.gl_pathc);
    for (size_t at = 0; !got && at < found.gl_pathc; at++)
        say(" %s", found.gl_pathv[at]);
    globfree(&found);
}

static const char *size_of(const struct stat *info) {
    static char made[24];
    snprintf(made, sizeof made, "%ld", S_ISREG(info->st_mode) ? (long)info->st_size : -1);
    return made;
}

static int seen_by_ftw(const char *path, const struct stat *info, int type) {
    gather("%s,%d,%s", path, type, type == FTW_NS ? "" : size_of(info));
    return 0;
}

static int seen_by_nftw(const char *path, const struct stat *info, int type, struct FTW *where) {
    struct stat by_base;
    char at[PATH_MAX];
    int near = stat(path + where->base, &by_base) == 0 && by_base.st_ino == info->st_ino;
    gather("%s,%d,%s,%d,%d,%s", path, type, type == FTW_NS ? "" : size_of(info), where->level,
           near, getcwd(at, sizeof at) ? at : "");
    return 0;
}

static void do_walk(void) {
    // Where links are followed, which of two paths to a directory is taken depends on the order.
    int flags = FTW_PHYS | (int)(number(1) & (FTW_CHDIR | FTW_DEPTH));
    int got = nftw(words[0], seen_by_nftw, (int)number(2), flags);
    say_result(got);
    say_result(ftw("d0/d1", seen_by_ftw, 4));
    say_gathered();
}

static int by_name(const FTSENT **one, const FTSENT **other) {
    return strcmp((*one)->fts_name, (*other)->fts_name);
}

static void do_fts(void) {
    static const int flags[] = {FTS_PHYSICAL, FTS_PHYSICAL | FTS_NOCHDIR, FTS_LOGICAL,
                                FTS_PHYSICAL | FTS_SEEDOT, FTS_COMFOLLOW | FTS_PHYSICAL};
    char *roots[] = {words[0], NULL};
    FTS *walk = fts_open(roots, flags[count(1) % 5], by_name);
    say_result(walk ? 0 : -1);
    if (!walk)
        return;
    for (FTSENT *entry; (entry = fts_read(walk));) {
        say(" %s,%d,%d,%d", entry->fts_path, entry->fts_info, entry->fts_level, entry->fts_errno);
        say(",%d", access(entry->fts_accpath, F_OK));
        if (entry->fts_info == FTS_D && number(2) & 1)
            fts_set(walk, entry, FTS_SKIP);
        if (entry->fts_info == FTS_F)
            say(",%s", size_of(entry->fts_statp));
    }
    say_result(fts_close(walk));
}

// A file with a name that is chosen: what it is, written to and renamed; its stream stays.
static void do_temporary(void) {
    size_t at = slot();
    char name[] = "made-XXXXXX", with_end[] = "made-XXXXXX.end", *tried = NULL;
    char *(*name_of)(const char *, const char *);
    int made = -1;
    if (streams[at]) {
        say(" open");
        return;
    }
    switch (number(1) % 6) {
    case 0: made = mkstemp(name); break;
    case 1: made = mkostemp(name, O_APPEND); break;
    case 2: made = mkstemps(with_end, 4); break;
    case 3: say_result(mkdtemp(name) ? 0 : -1); break;
    case 4:
        // By its name: the linker warns of it.
        name_of = (char *(*)(const char *, const char *))dlsym(RTLD_DEFAULT, "tempnam");
        tried = name_of(".", "tried");
        say(" %d", tried && !strncmp(tried, "./tried", 7) && access(tried, F_OK));
        free(tried);
        return;
    default:
        streams[at] = tmpfile();
        say_result(streams[at] ? fileno(streams[at]) : -1);
        return;
    }
    const char *path = number(1) % 6 == 2 ? with_end : name;
    say_result(rename(path, made < 0 ? "made-directory" : "made"));
    if (made < 0)
        return;
    struct stat info;
    say(" %d mode %o", fstat(made, &info), info.st_mode);
    streams[at] = fdopen(made, number(1) % 6 == 1 ? "a+" : "w+");
}

// What a tree has at the end.
static void show(const char *path) {
    struct dirent **list = NULL;
    int found = scandir(path, &list, NULL, alphasort);
    for (int at = 0; at < found; at++) {
        char name[PATH_MAX], *entry = list[at]->d_name, target[200] = "";
        struct stat info;
        static char bytes[1 << 20];
        if (!strcmp(entry, ".") || !strcmp(entry, ".."))
            continue;
        // The second engine's own directory is not the program's.
        if (!strcmp(entry, ".solera-split"))
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry);
        if (lstat(name, &info) != 0) {
            say("%s: %s\n", name, strerrorname_np(errno));
            continue;
        }
        say("%s: mode %o", name, info.st_mode);
        if (S_ISREG(info.st_mode)) {
            int file = open(name, O_RDONLY);
            ssize_t length = read(file, bytes, sizeof bytes);
            close(file);
            say(" links %ld size %ld", (long)info.st_nlink, (long)info.st_size);
            say_bytes(bytes, length < 0 ? 0 : (size_t)length);
        }
        if (S_ISLNK(info.st_mode) && readlink(name, target, sizeof target - 1) > 0)
            say(" to %s", target);
        say("\n");
        if (S_ISDIR(info.st_mode))
            show(name);
    }
}
