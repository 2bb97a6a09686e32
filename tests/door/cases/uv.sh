# Programs that make their system calls without the C library (crates on rustix): uv and ruff, of these
# versions, with project, environment and cache below the directory.
needs python3
tools=$HERE/../../target/door-tools
[ -x "$tools/bin/ruff" ] || python3 -m pip install -q --disable-pip-version-check --no-deps --target "$tools" \
    --break-system-packages uv==0.13.9 ruff==0.17.6 >/dev/null 2>&1 ||
    python3 -m pip install -q --disable-pip-version-check --no-deps --target "$tools" uv==0.13.9 ruff==0.17.6 \
        >/dev/null 2>&1 || skip "uv and ruff cannot be fetched"
export PATH="$tools/bin:$PATH" HOME="$AT" UV_CACHE_DIR="$AT/cache" UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
export UV_OFFLINE=1 UV_PYTHON TMPDIR=$SCRATCH
UV_PYTHON=$(command -v python3)
said "a project" srun sh -c 'cd "$0" && uv init -q --name demo --no-workspace project && ls project' "$AT"
said "an environment" srun sh -c 'cd "$0/project" && uv venv -q && .venv/bin/python -c "import sys; print(sys.prefix)"' "$AT"
# A wheel of one file, which uv unpacks, links from its cache, and records.
python3 - "$SCRATCH/demo_one-1.0-py3-none-any.whl" <<'P'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.writestr("demo_one.py", "value = 7\n")
    wheel.writestr("demo_one-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo-one\nVersion: 1.0\n")
    wheel.writestr("demo_one-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("demo_one-1.0.dist-info/RECORD", "demo_one.py,,\n")
P
said "a package" srun sh -c 'cd "$0/project" && uv pip install -q "$1" && .venv/bin/python -c "import demo_one; print(demo_one.value)"' \
    "$AT" "$SCRATCH/demo_one-1.0-py3-none-any.whl"
said "what is there" srun sh -c 'cd "$0/project" && uv pip list 2>/dev/null; find . -path ./.git -prune -o -type f -print | sort | grep -v pyc' "$AT"
said "a check" srun sh -c 'cd "$0/project" && printf "import os\ndef f( a,b ):\n  return a\n" >m.py && ruff check --output-format concise m.py; ruff format -q m.py; cat m.py' "$AT"
said "removed" srun sh -c 'cd "$0/project" && uv pip uninstall -q demo-one; .venv/bin/python -c "import demo_one" 2>&1 | tail -n 1; uv cache clean -q; ls "$0"' "$AT"
