// Checks of Node's fs on a directory; assert says what it saw when one fails.
const fs = require('fs'), path = require('path'), os = require('os'), crypto = require('crypto'), assert = require('assert');
const { pipeline } = require('stream/promises'), zlib = require('zlib'), { spawnSync, execFileSync } = require('child_process');
const { Worker, isMainThread, workerData } = require('worker_threads');

const bytes = (seed, length) => crypto.createHash('shake256', { outputLength: Math.max(length, 1) }).update(String(seed)).digest().subarray(0, length);

if (!isMainThread) {
    for (let i = 0; i < 100; i++) fs.appendFileSync(workerData, `${require('worker_threads').threadId}:${i}\n`);
    return;
}

function synchronous(dir) {
    fs.mkdirSync(dir);
    for (let i = 0; i < 1000; i++) fs.writeFileSync(path.join(dir, 'f' + i), bytes(i, (i * 13) % 9000));
    for (let i = 0; i < 1000; i++) assert(fs.readFileSync(path.join(dir, 'f' + i)).equals(bytes(i, (i * 13) % 9000)), 'file ' + i);
    assert.strictEqual(fs.readdirSync(dir).length, 1000);
    const a = path.join(dir, 'a'), b = path.join(dir, 'b');
    const fd = fs.openSync(a, 'wx+', 0o640);
    assert.strictEqual(fs.writeSync(fd, Buffer.from('0123456789')), 10);
    assert.strictEqual(fs.writeSync(fd, Buffer.from('XY'), 0, 2, 3), 2);
    assert.strictEqual(fs.writevSync(fd, [Buffer.from('aa'), Buffer.from('bbb')]), 5);
    const into = Buffer.alloc(20);
    assert.strictEqual(fs.readSync(fd, into, 0, 20, 0), 15);
    assert.strictEqual(into.toString('utf8', 0, 15), '012XY56789aabbb');
    fs.ftruncateSync(fd, 1000); fs.fsyncSync(fd); fs.fdatasyncSync(fd); fs.fchmodSync(fd, 0o600); fs.futimesSync(fd, 1e9, 1.1e9);
    const st = fs.fstatSync(fd, { bigint: true });
    assert.deepStrictEqual([st.size, st.mode & 0o7777n, st.mtimeNs, st.nlink], [1000n, 0o600n, 1100000000000000000n, 1n]);
    fs.closeSync(fd);
    fs.linkSync(a, b); assert.strictEqual(fs.statSync(b).nlink, 2); assert.strictEqual(fs.statSync(a).ino, fs.statSync(b).ino);
    fs.symlinkSync('a', path.join(dir, 's')); assert.strictEqual(fs.readlinkSync(path.join(dir, 's')), 'a'); assert(fs.lstatSync(path.join(dir, 's')).isSymbolicLink());
    assert.strictEqual(fs.realpathSync(path.join(dir, 's')), a); assert.strictEqual(fs.realpathSync.native(path.join(dir, 's')), a);
    fs.renameSync(b, path.join(dir, 'c')); assert(!fs.existsSync(b)); fs.copyFileSync(a, b); fs.accessSync(b, fs.constants.R_OK);
    for (const [call, code] of [[() => fs.readFileSync(path.join(dir, 'none')), 'ENOENT'], [() => fs.mkdirSync(a), 'EEXIST'], [() => fs.readdirSync(a), 'ENOTDIR'],
        [() => fs.rmdirSync(dir), 'ENOTEMPTY'], [() => fs.readFileSync(dir), 'EISDIR'], [() => fs.openSync(a, 'wx'), 'EEXIST'], [() => fs.readSync(fd, into), 'EBADF']])
        assert.throws(call, { code });
    fs.mkdirSync(path.join(dir, 'p/q/r'), { recursive: true }); fs.cpSync(path.join(dir, 'p'), path.join(dir, 'p2'), { recursive: true }); assert(fs.existsSync(path.join(dir, 'p2/q/r')));
    const t = fs.mkdtempSync(path.join(dir, 'tmp-')); fs.rmdirSync(t);
    assert(fs.statfsSync ? fs.statfsSync(dir).blocks > 0 : true);
    fs.rmSync(dir, { recursive: true }); assert(!fs.existsSync(dir));
}

async function promises(dir) {
    const p = fs.promises;
    await p.mkdir(dir);
    await Promise.all(Array.from({ length: 1000 }, (_, i) => p.writeFile(path.join(dir, 'f' + i), bytes(i, (i * 17) % 9000))));
    const all = await Promise.all(Array.from({ length: 1000 }, (_, i) => p.readFile(path.join(dir, 'f' + i))));
    all.forEach((data, i) => assert(data.equals(bytes(i, (i * 17) % 9000)), 'file ' + i));
    const stats = await Promise.all(all.map((_, i) => p.stat(path.join(dir, 'f' + i))));
    stats.forEach((s, i) => assert.strictEqual(s.size, (i * 17) % 9000));
    let n = 0;
    for await (const entry of await p.opendir(dir)) { assert(entry.isFile()); n++; }
    assert.strictEqual(n, 1000);
    const h = await p.open(path.join(dir, 'handle'), 'w+');
    await Promise.all(Array.from({ length: 200 }, (_, i) => h.write(bytes(i, 512), 0, 512, i * 512)));
    await h.datasync();
    const { bytesRead, buffer } = await h.read(Buffer.alloc(512), 0, 512, 150 * 512);
    assert(bytesRead === 512 && buffer.equals(bytes(150, 512)));
    await h.truncate(100); assert.strictEqual((await h.stat()).size, 100); await h.close();
    let lines = 0;
    await p.writeFile(path.join(dir, 'lines'), Array.from({ length: 5000 }, (_, i) => 'line ' + i).join('\n'));
    for await (const _ of (await p.open(path.join(dir, 'lines'))).readLines()) lines++;
    assert.strictEqual(lines, 5000);
    await Promise.all(all.map((_, i) => p.unlink(path.join(dir, 'f' + i))));
    await assert.rejects(p.access(path.join(dir, 'f1')), { code: 'ENOENT' });
    await p.rm(dir, { recursive: true });
}

async function streams(dir) {
    fs.mkdirSync(dir);
    const data = bytes('stream', 3000000), file = path.join(dir, 'data');
    fs.writeFileSync(file, data);
    await pipeline(fs.createReadStream(file), zlib.createGzip(), fs.createWriteStream(file + '.gz'));
    await pipeline(fs.createReadStream(file + '.gz'), zlib.createGunzip(), fs.createWriteStream(file + '.out'));
    assert(fs.readFileSync(file + '.out').equals(data));
    const part = [];
    for await (const chunk of fs.createReadStream(file, { start: 1000000, end: 1999999 })) part.push(chunk);
    assert(Buffer.concat(part).equals(data.subarray(1000000, 2000000)));
    await pipeline(fs.createReadStream(file), fs.createWriteStream(file + '.out', { flags: 'a' }));
    assert.strictEqual(fs.statSync(file + '.out').size, 6000000);
}

async function processes(dir) {
    const out = fs.openSync(path.join(dir, 'out'), 'w');
    assert.strictEqual(spawnSync('sh', ['-c', 'pwd; echo error >&2'], { cwd: dir, stdio: ['ignore', out, out] }).status, 0);
    fs.closeSync(out);
    assert.strictEqual(fs.readFileSync(path.join(dir, 'out'), 'utf8'), dir + '\nerror\n');
    assert.strictEqual(execFileSync('cat', [path.join(dir, 'out')], { encoding: 'utf8' }), dir + '\nerror\n');
    assert.strictEqual(execFileSync(process.execPath, ['-e', 'process.stdout.write(require("fs").readFileSync("out"))'], { cwd: dir, encoding: 'utf8' }), dir + '\nerror\n');
    const log = path.join(dir, 'log');
    await Promise.all([1, 2, 3].map(() => new Promise((done, failed) => new Worker(__filename, { workerData: log }).on('exit', done).on('error', failed))));
    assert.strictEqual(new Set(fs.readFileSync(log, 'utf8').trim().split('\n')).size, 300);
    fs.writeFileSync(path.join(dir, 'module.js'), 'module.exports = require("./other.json").answer'); fs.writeFileSync(path.join(dir, 'other.json'), '{"answer": 42}');
    assert.strictEqual(require(path.join(dir, 'module.js')), 42);
    process.chdir(dir); assert.strictEqual(process.cwd(), dir); assert(fs.existsSync('log'));
}

(async () => {
    const at = process.argv[2];
    synchronous(path.join(at, 'synchronous'));
    await promises(path.join(at, 'promises'));
    await streams(path.join(at, 'streams'));
    await processes(path.join(at, 'streams'));
    console.log("all of Node's checks passed");
})().catch(error => { console.error(error); process.exit(1); });
