import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { randomModel } from '../../models/testing/random-model.ts';
import { randomVisionModel } from '../../models/testing/random-vision-model.ts';
import { createOnnxBackend } from './index.ts';
import { InferenceSession } from './library.ts';
import { LazySession } from './sessions.ts';

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

test('a further session that does not fit the free memory is refused with both figures, and made once it fits', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'pie-room-'));
  t.after(() => rm(directory, { recursive: true, force: true }));
  const shape = { hiddenSize: 64, vocabularySize: 8192, headDim: 16 };
  const model = await randomModel(directory, shape, 3);
  let freeMib = 3;
  const pool = { pageSize: 16, pageCount: 2, bits: 32 } as const;
  const backend = await createOnnxBackend(model, { ...pool, freeBytes: () => freeMib * 2 ** 20 });
  t.after(() => backend.dispose());
  // The head has 8192 × 64 weights of 4 bytes, twice.
  const states = new Float32Array(64).fill(1);
  for (const asked of [backend.project(states, 1, 3), backend.score(states, 1, [Uint32Array.of(1)])])
    await assert.rejects(asked, { name: 'TooLittleMemory', message: /up to 4 MiB, and 3 MiB are free/ });
  const creations = t.mock.method(InferenceSession, 'create');
  const sequence = {
    inputs: { kind: 'tokens', tokens: Uint32Array.of(1, 2) },
    positions: Uint32Array.of(0, 1),
    context: new Uint32Array(),
    mask: 'causal',
    writes: new Uint32Array(),
    output: { kind: 'none' },
    attention: true,
  } as const;
  const [watched] = await backend.forward([sequence]);
  assert.equal(watched?.attention?.length, 2);
  assert.equal(creations.mock.callCount(), 0, 'the decoder of the start also returns attention');
  freeMib = 4;
  assert.equal((await backend.project(states, 1, 3)).tokens.length, 3);
  assert.equal(creations.mock.callCount(), 1);
  freeMib = 1;
  await assert.rejects(
    createOnnxBackend(model, { ...pool, adapters: true, freeBytes: () => freeMib * 2 ** 20 }),
    /adapters need a further copy of weights/,
  );
});

test('`release` succeeds while the creation of the session fails', async () => {
  const session = new LazySession(() => Promise.reject(new Error('no memory')));
  const failed = assert.rejects(session.get(), /no memory/);
  await session.release();
  await failed;
});
