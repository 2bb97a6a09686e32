# pnpm: installs a package of many files, which lies outside, into a project, and once more from its store.
files=$(of 300 4000 20000)
export CI=true XDG_CACHE_HOME=$DIR/cache XDG_DATA_HOME=$DIR/data XDG_STATE_HOME=$DIR/state
input() {
    mkdir "$INPUT/package" "$INPUT/project"
    tree "$INPUT/package/lib" "$files"
    echo '{ "name": "demo", "version": "1.0.0" }' >"$INPUT/package/package.json"
    tar -C "$INPUT" -czf "$INPUT/demo-1.0.0.tgz" package
    echo "{ \"name\": \"project\", \"dependencies\": { \"demo\": \"file:$INPUT/demo-1.0.0.tgz\" } }" \
        >"$INPUT/project/package.json"
}
turn() {
    cp -r "$INPUT/project" "$DIR/project"
    cd "$DIR/project"
    timed "pnpm install, a file" "$files" pnpm install --silent --offline --store-dir "$DIR/store"
    rm -r node_modules
    timed "pnpm install from the store, a file" "$files" pnpm install --silent --offline --store-dir "$DIR/store"
    cd /
}
