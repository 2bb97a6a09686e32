# Python's multiprocessing, mmap, zipfile and subprocess, with checks of our own.
python=$(command -v /usr/bin/python3 || command -v python3)
srun "$python" "$HERE/cases/python_more_checks.py" "$AT" || fail "the checks"
