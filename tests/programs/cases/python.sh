# Python's os, shutil, tempfile and sqlite3 with their results checked by Python itself.
python=$(command -v /usr/bin/python3 || command -v python3)
srun "$python" "$HERE/cases/python_checks.py" "$AT" || fail "the checks"
