import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { META_FILE } from './artifact/artifact.ts';
import { readPlainFile } from './plain-file.ts';
import { readArtifactAsItIs } from './store.ts';

const FOREVER = { timeout: 5000 };

suite('files that a build left', () => {
  let folder = '';
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'pie-plain-'));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  test('a regular file is read up to its bound', async () => {
    const path = join(folder, 'plain');
    await writeFile(path, 'twelve bytes');
    assert.equal(String(await readPlainFile(path, 12)), 'twelve bytes');
    await assert.rejects(readPlainFile(path, 11), /12 bytes; 11 is the limit/);
  });

  test('a link, a device, a pipe and a folder are refused', FOREVER, async () => {
    const [link, pipe] = [join(folder, 'link'), join(folder, 'pipe')];
    await symlink('/dev/zero', link);
    execFileSync('mkfifo', [pipe]);
    await assert.rejects(readPlainFile(link, 10), { code: 'ELOOP' });
    for (const path of ['/dev/zero', pipe, folder]) await assert.rejects(readPlainFile(path, 10), /is no file/);
  });

  test('an artifact whose description is a pipe or too long is none', FOREVER, async () => {
    await mkdir(join(folder, 'piped'));
    execFileSync('mkfifo', [join(folder, 'piped', META_FILE)]);
    assert.equal(await readArtifactAsItIs(folder, 'piped'), null);
    await mkdir(join(folder, 'long'));
    await writeFile(join(folder, 'long', META_FILE), '{}');
    // A sparse file: it takes no disk, and would take a gigabyte of memory.
    await truncate(join(folder, 'long', META_FILE), 2 ** 30);
    assert.equal(await readArtifactAsItIs(folder, 'long'), null);
  });
});
