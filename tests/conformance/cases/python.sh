# Python's own tests of files, names, mappings, archives, databases and processes, with its temporary
# directory and its working directory on the volume. A Python that has all of them is preferred
# (Debian's has no test_sqlite3).
python=
for candidate in "$HOME"/.pyenv/versions/*/bin/python3 /usr/bin/python3 $(command -v python3 || true); do
    "$candidate" -c 'import test.test_os' 2>/dev/null || continue
    python=${python:-$candidate}
    if "$candidate" -c 'import test.test_sqlite3' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || skip "there is no Python with its tests (libpython3-testsuite)"
tests="test_subprocess test_io test_zipfile test_tarfile test_os test_posix test_posixpath test_shutil
    test_tempfile test_fileio test_file test_mmap test_glob test_pathlib test_sqlite3 test_dbm
    test_dbm_dumb test_dbm_gnu test_dbm_ndbm test_fcntl"
if ! "$python" -c 'import test.test_sqlite3' 2>/dev/null; then
    echo "$python has no test_sqlite3"
    tests=${tests/test_sqlite3 /}
fi
# It copies 2.5 GB.
# One decision for all faces: the first one, tmpfs, makes it.
if [ ! -e "$SHARED/large" ]; then
    awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo >"$SHARED/large"
fi
[ "$(cat "$SHARED/large")" -lt 14 ] || tests="$tests test_largefile"
# In the short run half of them, chosen by the commit: no suite takes more of the processors.
# shellcheck disable=SC2086 # They are words.
tests=$("$TESTS/../scripts/rotation.py" 2 $tests)
export TMPDIR=$AT/tmp
face mkdir "$AT/tmp"
"$python" --version
# Most of their time they sleep.
printf '%s\n' $tests |
    face xargs -P 4 -I '{}' bash -c 'mkdir "$3/{}" && cd "$3/{}" &&
        "$1" "$2/cases/python_tests.py" {} >"$4/{}.out" 2>"$4/{}.err" || true' \
        tests "$python" "$HERE" "$AT" "$PWD"
for test in $tests; do
    cat "$test.out" >>"$RESULTS"
    grep -q ' ' "$test.out" || { tail -n 20 "$test.err"; fail "$test ran nothing"; }
done
cat ./*.err
