# Python starts, and imports many modules: first those without compiled files beside them, then with.
modules=$(of 50 500 2000)
input() {
    local module
    mkdir -p "$INPUT/many"
    for ((module = 0; module < modules; module++)); do
        printf 'import os\nclass C%d:\n    x = %d\n    def f(self): return self.x\n' "$module" "$module" \
            >"$INPUT/many/m$module.py"
        echo "from many import m$module"
    done >"$INPUT/start.py"
    : >"$INPUT/many/__init__.py"
}
turn() {
    cp -r "$INPUT" "$DIR/tree"
    unset PYTHONPYCACHEPREFIX PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME
    timed "python compiles, a module" "$modules" /usr/bin/python3 "$DIR/tree/start.py"
    timed "python start, a module" "$modules" /usr/bin/python3 "$DIR/tree/start.py"
}
