import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import * as tar from 'tar';
import { unpack } from './npm.ts';

describe('unpack', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-unpack-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  it('reports the first file that cannot be written', async () => {
    await mkdir(join(directory, 'package'));
    for (const name of ['a.json', 'b.json']) await writeFile(join(directory, 'package', name), '{}');
    const tarball = join(directory, 'package.tgz');
    await tar.create({ file: tarball, cwd: directory, gzip: true }, ['package/a.json', 'package/b.json']);
    const target = join(directory, 'target');
    await unpack(tarball, target, null);
    assert.deepEqual((await readdir(target)).sort(), ['a.json', 'b.json']);
    // A folder that is not empty blocks the path of the file.
    await rm(join(target, 'a.json'));
    await mkdir(join(target, 'a.json', 'content'), { recursive: true });
    await assert.rejects(unpack(tarball, target, null), { code: 'ENOTEMPTY' });
    await unpack(tarball, target, ['b.json']);
  });

  it('refuses a package that is too large', async () => {
    const header = new tar.Header({ path: 'package/model.safetensors', type: 'File', mode: 0o644, size: 2 ** 36 + 1 });
    header.encode();
    const tarball = join(directory, 'large.tgz');
    await writeFile(tarball, Buffer.concat([header.block ?? Buffer.alloc(0), Buffer.alloc(1024)]));
    const target = join(directory, 'large');
    await assert.rejects(unpack(tarball, target, null), { code: 'download-failed', message: /more than 68719476736/ });
    assert.deepEqual(await readdir(target), []);
  });
});
