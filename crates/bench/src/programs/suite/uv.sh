# uv: installs a package of many files, which lies outside, into an environment, and into another from its cache.
files=$(of 300 4000 20000)
export UV_CACHE_DIR=$DIR/cache UV_NO_CONFIG=1 UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never
input() {
    python3 - "$INPUT" "$files" <<'PYTHON'
import sys
import zipfile

place, files = sys.argv[1], int(sys.argv[2])
names = [f"demo/p{number // 100}/m{number}.py" for number in range(files)]
with zipfile.ZipFile(f"{place}/demo-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
    for number, name in enumerate(names):
        wheel.writestr(name, f"VALUE = {number}\n" * (number * 37 % 400 + 1))
    about = "demo-1.0.dist-info"
    wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    listed = [*names, f"{about}/METADATA", f"{about}/WHEEL", f"{about}/RECORD"]
    wheel.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in listed))
PYTHON
}
turn() {
    local environment
    for environment in one two; do uv venv -q --python /usr/bin/python3 "$DIR/$environment"; done
    timed "uv pip install, a file" "$files" \
        uv pip install -q --no-index --python "$DIR/one/bin/python" "$INPUT/demo-1.0-py3-none-any.whl"
    timed "uv pip install from the cache, a file" "$files" \
        uv pip install -q --no-index --python "$DIR/two/bin/python" "$INPUT/demo-1.0-py3-none-any.whl"
}
