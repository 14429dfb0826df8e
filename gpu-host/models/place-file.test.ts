import assert from 'node:assert/strict';
import { chmod, lstat, mkdir, mkdtemp, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { placeFile } from './place-file.ts';

describe('placeFile', () => {
  let directory: string;
  let source: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-place-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));
  const make = async (mode: number) => {
    source = join(await mkdtemp(join(directory, 'user-')), 'a.gguf');
    await writeFile(source, 'weights');
    await chmod(source, mode);
    return join(await mkdtemp(join(directory, 'model-')), 'model.gguf');
  };

  it('shares nothing with a file that can be written: a later change of one leaves the other as it is', async () => {
    const destination = await make(0o600);
    const link = `${source}.link`;
    await symlink(source, link);
    assert.match(await placeFile(link, destination), /^(cloned|copied)$/);
    const placed = await lstat(destination);
    assert.ok(placed.isFile());
    assert.equal(placed.mode & 0o777, 0o644);
    await truncate(source, 2);
    assert.equal(await readFile(destination, 'utf8'), 'weights');
  });

  it('links a file that nobody may write, where blocks cannot be shared', async () => {
    const destination = await make(0o444);
    const way = await placeFile(source, destination);
    assert.match(way, /^(cloned|linked)$/);
    const [placed, original] = [await lstat(destination), await lstat(source)];
    assert.equal(placed.ino === original.ino, way === 'linked');
  });

  it('moves a download, which lies inside the directory', async () => {
    const destination = await make(0o600);
    const inside = join(destination, '..', 'incoming');
    await mkdir(inside);
    await writeFile(join(inside, 'b.gguf'), 'weights');
    assert.equal(await placeFile(join(inside, 'b.gguf'), destination), 'moved');
    await assert.rejects(lstat(join(inside, 'b.gguf')), { code: 'ENOENT' });
    assert.equal(await readFile(destination, 'utf8'), 'weights');
  });
});
