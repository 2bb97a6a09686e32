/* The header's own words, in C99 and in C++11: usage example DIRECTORY. */
#include <solera.h>
#include <stdio.h>

int main(int argc, char **argv) {
    solera_place *place;
    solera_log *log;
    struct solera_log_options options = SOLERA_LOG_OPTIONS;
    struct solera_options file_options = SOLERA_OPTIONS;
    uint64_t position = SOLERA_OLDEST;
    char record[64];
    ssize_t length;
    (void)file_options;
    options.create = 1;
    if (argc != 2 || solera_open_place(argv[1], SOLERA_PAGE, &place) != 0 ||
        solera_log_open(place, "example", &options, &log) != 0 ||
        solera_log_append(log, "a record", 8, NULL) != 0) {
        fprintf(stderr, "%s\n", solera_error());
        return 1;
    }
    while ((length = solera_log_read(log, &position, record, sizeof record)) > 0)
        printf("%.*s\n", (int)length, record);
    solera_log_close(log);
    solera_close_place(place);
    return 0;
}
