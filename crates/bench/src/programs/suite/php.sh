# PHP: requests of one process that each insert a row into SQLite (WAL, synchronous=FULL), as a web application
# does, and that each write and read a file of a session, by a name for a moment.
requests=$(of 200 5000 50000)
turn() {
    timed "php sqlite, a request" "$requests" php "$SRC/requests.php" sqlite "$DIR" "$requests"
    timed "php session, a request" "$requests" php "$SRC/requests.php" session "$DIR" "$requests"
}
