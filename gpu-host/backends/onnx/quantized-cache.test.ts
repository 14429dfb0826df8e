import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { randomModel } from '../../models/testing/random-model.ts';
import { defaultCacheDirectory, quantizedWeights } from './weights.ts';

test('a truncated file of quantised weights is written again', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'pie-quantized-'));
  try {
    const model = await randomModel(join(directory, 'model'), {}, 3);
    const write = () => quantizedWeights(model, 8, 4, join(directory, 'cache'));
    const last = [...(await write()).values()].at(-1)!.scales;
    const { size } = await stat(last.file);
    assert.equal(size, last.offset + last.bytes);
    await truncate(last.file, size - 1);
    await write();
    assert.equal((await stat(last.file)).size, size);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

test('writing quantised weights removes the partial files that killed processes left of these weights', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'pie-quantized-'));
  t.after(() => rm(directory, { recursive: true, force: true }));
  const model = await randomModel(join(directory, 'model'), {}, 3);
  const cache = join(directory, 'cache');
  const write = async () => [...(await quantizedWeights(model, 8, 4, cache)).values()][0]!.values.file;
  const file = await write();
  await rm(file);
  await writeFile(`${file}.x.partial`, 'half');
  await write();
  assert.deepEqual(await readdir(cache), [basename(file)]);
});

test('an empty XDG_CACHE_HOME counts as unset', (t) => {
  const before = process.env.XDG_CACHE_HOME;
  t.after(() => {
    if (before === undefined) delete process.env.XDG_CACHE_HOME;
    else process.env.XDG_CACHE_HOME = before;
  });
  process.env.XDG_CACHE_HOME = '';
  assert.equal(defaultCacheDirectory(), join(homedir(), '.cache', 'pie', 'quantized'));
});
