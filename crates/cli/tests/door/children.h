// Operations that begin other programs. Each waits for its child.

static void do_popen(void) {
    static char bytes[LARGEST];
    FILE *to = popen(text(1), words[0]);
    say_result(to ? 0 : -1);
    if (!to)
        return;
    if (*words[0] == 'w')
        fputs(text(2), to);
    else
        say_bytes(bytes, fread(bytes, 1, sizeof bytes, to));
    say_result(pclose(to));
}

static void do_system(void) {
    say_result(system(text(0)));
}

// A program whose standard input and output are files; its other numbers are inherited.
static void do_spawn(void) {
    extern char **environ;
    char *arguments[] = {words[0], *words[3] ? words[3] : NULL, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (strcmp(words[1], "-"))
        posix_spawn_file_actions_addopen(&actions, 0, words[1], O_RDONLY, 0);
    if (strcmp(words[2], "-"))
        posix_spawn_file_actions_addopen(&actions, 1, words[2], O_WRONLY | O_CREAT | O_APPEND,
                                         0644);
    pid_t child;
    int status = 0, failed = posix_spawnp(&child, words[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    say(" %d", failed);
    if (!failed && waitpid(child, &status, 0) == child)
        say(" %x", status);
}

static void do_wordexp(void) {
    wordexp_t found;
    int got = wordexp(text(0), &found, 0);
    say(" %d", got);
    if (got)
        return;
    for (size_t at = 0; at < found.we_wordc; at++)
        say(" %s", found.we_wordv[at]);
    wordfree(&found);
}
