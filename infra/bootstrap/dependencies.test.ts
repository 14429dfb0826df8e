import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';

const SCRIPT = `
const [module, root, tools] = process.argv.slice(1);
const { ensureDependencies } = await import(module);
console.log(await ensureDependencies(root, { withTools: tools === 'tools' }, () => undefined).catch(({ message }) => message));
`;

test('packages count as complete for the lock file and the tools that they were installed with, and not after a failed install', async () => {
  const root = await mkdtemp(path.join(os.tmpdir(), 'pie-dependencies-'));
  const module = new URL('./dependencies.js', import.meta.url).href;
  const lock = (text: string) => writeFile(path.join(root, 'package-lock.json'), text);
  const ensure = (tools = '') => {
    const run = spawnSync(process.execPath, ['--input-type=module', '-e', SCRIPT, module, root, tools], {
      encoding: 'utf8',
      env: { PATH: path.join(root, 'programs') },
    });
    assert.equal(run.status, 0, run.stderr);
    return run.stdout;
  };
  try {
    const [bin, programs] = [path.join(root, 'node_modules', '.bin'), path.join(root, 'programs')];
    for (const folder of [bin, programs]) await mkdir(folder, { recursive: true });
    await writeFile(path.join(bin, 'node'), '');
    // Stands in for an install that breaks off.
    await writeFile(path.join(programs, 'npm'), '#!/bin/sh\necho "npm $*"\nexit 1\n', { mode: 0o755 });
    const stamp = (text: string) => writeFile(path.join(root, 'node_modules', '.pie-stamp'), text);
    const older = createHash('sha256').update('older').digest('hex');
    const node = `${path.join(bin, 'node')}\n`;
    await lock('older');
    await stamp(older);
    assert.equal(ensure(), node);
    assert.match(ensure('tools'), /npm install failed/, 'the packages of tests are missing');
    await stamp(`${older} tools`);
    assert.deepEqual([ensure(), ensure('tools')], [node, node]);
    await lock('newer');
    assert.match(ensure(), /npm install failed/);
    await lock('older');
    assert.match(ensure(), /npm install --omit=dev/);
    await mkdir(path.join(root, 'node_modules', '@biomejs'));
    assert.doesNotMatch(ensure(), /--omit=dev/, 'the tools that `npm ci` installed stay');
  } finally {
    await rm(root, { recursive: true, force: true });
  }
});
