import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { detectLayout } from './pull.ts';

describe('detectLayout', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-import-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  it('takes only regular files as GGUF files and llama2.c checkpoints', async () => {
    const folder = join(directory, 'folder.gguf');
    await mkdir(folder);
    execFileSync('mkfifo', [join(directory, 'pipe.gguf'), join(directory, 'pipe.bin')]);
    for (const name of ['', 'folder.gguf', 'pipe.gguf', 'pipe.bin', 'none.gguf'])
      assert.throws(() => detectLayout(join(directory, name)), { code: 'invalid-source' }, name);
    await writeFile(join(folder, 'a.GGUF'), '');
    assert.deepEqual(detectLayout(folder), { root: folder, layout: { kind: 'gguf', file: 'a.GGUF' } });
    await writeFile(join(directory, 'b.gguf'), '');
    for (const path of [directory, join(directory, 'b.gguf')])
      assert.deepEqual(detectLayout(path), { root: directory, layout: { kind: 'gguf', file: 'b.gguf' } });
  });
});
