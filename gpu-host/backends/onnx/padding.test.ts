import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { randomModel } from '#gpu-host/models/random-model.ts';
import { Random, range, sequence } from '../testing/scenario.ts';
import { createOnnxBackend } from './index.ts';

test('the share of padding is that of the shapes computed', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'pie-padding-'));
  const random = new Random(1);
  const model = await randomModel(directory, {}, 1);
  const backend = await createOnnxBackend(model, { pageSize: 8, pageCount: 8, bits: 32, threads: 1 });
  try {
    assert.equal(backend.paddingShare?.(), 0);
    const prompt = sequence(model.config, random.tokens(model.config, 10), {
      writes: range(0, 10),
      output: { kind: 'none' },
    });
    await backend.forward([prompt]);
    assert.equal(backend.paddingShare?.(), 0);
    // Two decodes over 10 and 4 keys and their own: 22 pairs computed, 16 of them wanted, after 100 without padding.
    const decode = (start: number, end: number) =>
      sequence(model.config, random.tokens(model.config, 1), { context: range(start, end) });
    await backend.forward([decode(0, 10), decode(3, 7)]);
    assert.equal(backend.paddingShare?.(), 1 - 116 / 122);
  } finally {
    await backend.dispose();
    await rm(directory, { recursive: true, force: true });
  }
});
