# Node's tools that make system calls by their own instructions: pnpm (Rust), vite with rolldown (Rust), bun
# (Zig and Rust), and node itself; of these versions, with project, store and cache below the directory.
[ -n "${SOLERA_TEST_LONG:-}" ] || skip "only in make test-long: it fetches 150 MB"
needs node npm
tools=$HERE/../../target/door-tools/node
[ -x "$tools/node_modules/.bin/vite" ] || npm install -s --no-audit --no-fund --no-progress --prefix "$tools" \
    pnpm@12.21.0 bun@1.4.4 vite@8.3.8 >/dev/null 2>&1 || skip "pnpm, bun and vite cannot be fetched"
# The script of bun's package moves the native program into place, where npm runs it.
mkdir bin
ln -s "$tools/node_modules/@pnpm/exe.linux-x64/pnpm" "$tools/node_modules/.bin/vite" bin
for bun in "$tools/node_modules/@oven/bun-linux-x64/bin/bun" "$tools/node_modules/bun/bin/bun.exe"; do
    [ ! -x "$bun" ] || ln -sf "$bun" bin/bun
done
export PATH="$PWD/bin:$PATH" HOME="$AT" XDG_CACHE_HOME="$AT/cache" XDG_DATA_HOME="$AT/data" XDG_STATE_HOME="$AT/state"
export BUN_INSTALL_CACHE_DIR="$AT/bun-cache" CI=1 NO_COLOR=1 DO_NOT_TRACK=1 npm_config_cache="$AT/npm-cache"
export pnpm_config_store_dir="$AT/store" npm_config_store_dir="$AT/store"
[ "$(HOME=$PWD XDG_CACHE_HOME=$PWD XDG_STATE_HOME=$PWD XDG_DATA_HOME=$PWD pnpm --version 2>/dev/null)" = 12.21.0 ] || skip "pnpm does not run"
[ "$(HOME=$PWD bun --version 2>/dev/null)" = 1.4.4 ] || skip "bun does not run"
# Without the lines that have times in them.
timeless() { grep -v -i -E ' in [0-9.]+ ?m?s|\[[0-9.]+m?s\]|[0-9.]+ms|progress' || :; }
export -f timeless
# Packages from here: only the tools come by the network.
mkdir one two
echo '{"name":"one","version":"1.0.0","main":"index.js","bin":{"one":"cli.js"}}' >one/package.json
echo 'module.exports = (a) => a + 1;' >one/index.js
printf '#!/usr/bin/env node\nconsole.log("cli", require("./index.js")(41));\n' >one/cli.js
chmod +x one/cli.js
echo '{"name":"two","version":"2.0.0","main":"index.js"}' >two/package.json
for i in $(seq 40); do echo "exports.v$i = $i;" >two/file$i.js; done
echo 'exports.sum = 0; for (let i = 1; i <= 40; i++) exports.sum += require("./file" + i)["v" + i];' >two/index.js
tar -czf one-1.0.0.tgz --transform 's/^one/package/' one && tar -czf two-2.0.0.tgz --transform 's/^two/package/' two || exit 1
cat >run.ts <<'END'
import { Database } from "bun:sqlite";
import { appendFileSync, readFileSync, readdirSync, cpSync, rmSync, statSync } from "node:fs";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import one from "one";
const db = new Database("my.db");
db.run("pragma journal_mode = wal");
db.run("create table t(a integer primary key, b text)");
const put = db.prepare("insert into t(b) values (?)");
db.transaction(() => { for (let i = 0; i < 2000; i++) put.run("row " + i); })();
console.log(db.query("select count(*) n, sum(length(b)) s from t").get(), db.query("pragma integrity_check").get());
db.close();
console.log(await Bun.write("big.txt", "x".repeat(3_000_000)), (await Bun.file("big.txt").text()).length);
await Bun.write("copy.txt", Bun.file("big.txt"));
console.log(statSync("copy.txt").size, one(1));
for (let i = 0; i < 100; i++) appendFileSync("log", i + "\n");
console.log(readFileSync("log", "utf8").length);
const dir = await mkdtemp("tmp-");
await Promise.all(Array.from({ length: 200 }, (_, i) => writeFile(`${dir}/${i}`, "y".repeat(i))));
let sum = 0;
for (const name of readdirSync(dir)) sum += (await readFile(`${dir}/${name}`)).length;
console.log(sum);
cpSync(dir, "copied", { recursive: true });
console.log(readdirSync("copied").length);
rmSync(dir, { recursive: true });
console.log(Bun.spawnSync(["sh", "-c", "cat log | tail -n 1; pwd | wc -l"]).stdout.toString());
console.log(await Bun.$`ls copied | wc -l`.text());
console.log(new Bun.CryptoHasher("sha256").update(await Bun.file("copy.txt").arrayBuffer()).digest("hex"));
const writer = Bun.file("written").writer();
for (let i = 0; i < 1000; i++) writer.write("line " + i + "\n");
await writer.end();
console.log(Bun.file("written").size);
END
cat >t.mjs <<'END'
import fs from "node:fs";
import { Worker } from "node:worker_threads";
import { execFileSync } from "node:child_process";
import { pipeline } from "node:stream/promises";
import zlib from "node:zlib";
fs.writeFileSync("a", "a".repeat(500000));
await pipeline(fs.createReadStream("a"), zlib.createGzip(), fs.createWriteStream("a.gz"));
await pipeline(fs.createReadStream("a.gz"), zlib.createGunzip(), fs.createWriteStream("b"));
console.log(fs.readFileSync("b").length, fs.statSync("b").size);
const one = async (_, i) => {
    await fs.promises.writeFile("f" + i, String(i));
    return (await fs.promises.readFile("f" + i)).length;
};
console.log((await Promise.all(Array.from({ length: 300 }, one))).reduce((x, y) => x + y));
const works = (i) => `const fs = require("fs"); fs.appendFileSync("w", "${i}".repeat(1000)); fs.mkdirSync("d${i}")`;
const worker = (_, i) => new Promise((done) => new Worker(works(i), { eval: true }).on("exit", done));
console.log(await Promise.all(Array.from({ length: 4 }, worker)), fs.statSync("w").size);
console.log(execFileSync("node", ["-e", "console.log(fs.readdirSync('.').length)"]).toString());
fs.cpSync("d0", "d9", { recursive: true });
const handle = await fs.promises.open("h", "w+");
await handle.writev([Buffer.from("ab"), Buffer.from("cd")]);
console.log((await handle.readv([Buffer.alloc(2), Buffer.alloc(2)], 0)).bytesRead, (await handle.stat()).size);
await handle.truncate(1);
await handle.close();
console.log(fs.existsSync("h"), fs.realpathSync("h").endsWith("/n/h"));
console.log(fs.readdirSync(".", { withFileTypes: true }).filter((e) => e.isDirectory()).length);
for await (const entry of await fs.promises.opendir(".")) if (entry.name === "h") console.log("found");
try { fs.openSync("none/x"); } catch (e) { console.log(e.code, e.syscall); }
END
mkdir src
echo '<!doctype html><div id=a></div><script type=module src=/src/main.ts></script>' >index.html
cat >src/main.ts <<'END'
import "./style.css";
import { twice } from "./lib";
const n: number = twice(21);
document.title = String(n);
import("./late").then((m) => m.late());
END
echo 'export const twice = (n: number): number => n * 2; export const unused = 1;' >src/lib.ts
echo 'export function late() { console.log("late"); }' >src/late.ts
echo 'body { color: red; & p { margin: 0 } }' >src/style.css
# below NAME COMMAND: a shell's command in a directory there; $0 is the directory with all, $1 this one.
below() { srun bash -c "mkdir -p \"\$0/$1\" && cd \"\$0/$1\" && $2" "$AT" "$PWD"; }
said "pnpm: a project" below p 'echo "{\"name\":\"p\",\"version\":\"1.0.0\"}" >package.json && cp "$1"/*.tgz "$0" &&
    pnpm add ../one-1.0.0.tgz ../two-2.0.0.tgz 2>&1 | grep -E "^\+|ERR"; ls -A . node_modules node_modules/.bin'
said "pnpm: it works" below p 'node -p "require(\"one\")(1) + require(\"two\").sum" && ./node_modules/.bin/one'
said "pnpm: again from the store" below p 'rm -r node_modules && pnpm install --offline --frozen-lockfile 2>&1 | grep -E "^\+|ERR"
    node -p "require(\"two\").sum"; find node_modules/ -name "*.js" | wc -l; pnpm list --depth 0 2>&1 | grep -E "one|two"'
said "pnpm: removed" below p 'pnpm remove two 2>&1 | grep -E "^-|ERR"; ls node_modules; pnpm store prune 2>&1 | grep -c ERR; cat package.json'
said "vite" below v 'cp -r "$1/src" "$1/index.html" . && echo "{\"name\":\"v\",\"type\":\"module\"}" >package.json && vite build 2>&1 | timeless
    vite build --minify false --sourcemap --outDir plain 2>&1 | timeless; find dist plain -type f | sort | xargs sha256sum'
said "bun: a project" below b 'echo "{\"name\":\"b\"}" >package.json && bun add ../one-1.0.0.tgz ../two-2.0.0.tgz 2>&1 | grep -E "^(installed|error)"
    ls -A . node_modules; cat package.json; rm -r node_modules; bun install --frozen-lockfile 2>&1 | grep -E "^(\+|error)"; ls node_modules'
said "bun: it runs" below b 'cp "$1/run.ts" . && bun run run.ts'
said "bun: a build" below b 'bun build ./run.ts --target bun --outdir out 2>&1 | timeless; sha256sum out/run.js
    echo "import { test, expect } from \"bun:test\"; test(\"t\", () => expect(1).toBe(1));" >a.test.ts; bun test 2>&1 | grep -E "^ .* (pass|fail)"'
said "node" below n 'cp "$1/t.mjs" . && node t.mjs'
