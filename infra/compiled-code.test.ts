import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { forgetCompiledCode } from './compiled-code.ts';

const DAY_MS = 24 * 3600 * 1000;

test('compiled code is removed thirty days after its last use, and its folder with the last file', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'pie-compiled-'));
  try {
    const main = path.join(folder, 'main.mjs');
    writeFileSync(main, `import './other.mjs';`);
    writeFileSync(path.join(folder, 'other.mjs'), 'export const other = 1;');
    const caches = [path.join(folder, 'compile'), path.join(folder, 'compile', 'runtime')];
    for (const NODE_COMPILE_CACHE of caches) {
      spawnSync(process.execPath, [main], { env: { ...process.env, NODE_COMPILE_CACHE }, stdio: 'inherit' });
    }
    // A folder with a file that Node did not make.
    const foreign = path.join(folder, 'compile', 'sandboxes');
    mkdirSync(foreign);
    writeFileSync(path.join(foreign, 'code'), '');
    const files = () =>
      readdirSync(path.join(folder, 'compile'), { recursive: true, encoding: 'utf8' })
        .map((name) => path.join(folder, 'compile', name))
        .filter((file) => statSync(file).isFile() && path.basename(file) !== 'searched');
    const [code] = files().filter((file) => !file.startsWith(foreign));
    // Two modules in each of two caches, and the foreign file.
    assert.equal(files().length, 5, `${files()}`);
    assert.ok(code);

    const now = Date.now();
    const forget = (days: number, signal = new AbortController().signal) =>
      forgetCompiledCode(path.join(folder, 'compile'), now + days * DAY_MS, signal);
    const empty = path.join(folder, 'compile', 'v99.0.0-x64');
    mkdirSync(empty);
    await forget(29);
    assert.equal(files().length, 5);
    assert.ok(existsSync(empty), 'a running process may be about to write there');
    // On day 31, the times of this file say that it was written 31 days ago and loaded 11 days ago.
    utimesSync(code, (now + 20 * DAY_MS) / 1000, now / 1000);
    await forget(31, AbortSignal.abort());
    assert.equal(files().length, 5);
    await forget(31);
    assert.deepEqual(files().sort(), [code, path.join(foreign, 'code')].sort());
    utimesSync(code, now / 1000, now / 1000);
    await forget(31.9);
    assert.ok(existsSync(code), 'the last search was less than a day ago');
    await forget(32.1);
    assert.ok(!existsSync(code));
    await forget(60);
    assert.deepEqual(readdirSync(path.join(folder, 'compile')).sort(), ['runtime', 'sandboxes', 'searched']);
    assert.deepEqual(readdirSync(path.join(folder, 'compile', 'runtime')), []);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
