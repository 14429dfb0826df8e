import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { randomVisionModel } from '#gpu-host/models/vision/random-model.ts';
import { createOnnxBackend } from './index.ts';
import { LazySession } from './lazy-session.ts';
import { InferenceSession } from './library.ts';

test('a start that fails at the vision tower releases the decoders', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'pie-start-'));
  t.after(() => rm(directory, { recursive: true, force: true }));
  const model = await randomVisionModel(directory, {}, 2);
  const info = (name: string) => {
    if (name.startsWith('vision_tower.')) throw new Error('no tower');
    return model.tensors.info(name);
  };
  const { prototype } = InferenceSession as unknown as { prototype: InferenceSession };
  const release = t.mock.method(prototype, 'release');
  const broken = { ...model, tensors: { ...model.tensors, info } };
  await assert.rejects(createOnnxBackend(broken, { pageSize: 16, pageCount: 2, bits: 32, adapters: true }), /no tower/);
  // The decoder, and the decoder for adapters.
  assert.equal(release.mock.callCount(), 2);
});

test('`release` succeeds while the creation of the session fails', async () => {
  const session = new LazySession(() => Promise.reject(new Error('no memory')));
  const failed = assert.rejects(session.get(), /no memory/);
  await session.release();
  await failed;
});
