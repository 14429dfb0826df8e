import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomAdapter } from '../../models/testing/random-model.ts';
import { randomFamily, TINY_FAMILIES } from '../../models/testing/tiny-families.ts';
import type { Backend, SequenceInput } from '../backend.ts';
import { createReferenceBackend } from '../reference/index.ts';
import { createTestCudaBackend } from '../testing/cuda.ts';
import { Random, relativeError, run, sequence } from '../testing/scenario.ts';
import type { CudaBackendOptions } from './index.ts';

const TOLERANCE = 1e-4;
const POOL = { pageSize: 16, pageCount: 32 };
const SLOTS = POOL.pageSize * POOL.pageCount;

describe('layers with windows on a CUDA backend', () => {
  let directory: string;
  /** Windows of 8 in most layers, with another rotation there. */
  let model: LoadedModel;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-cuda-windows-'));
    const { gemma3 } = TINY_FAMILIES;
    const config = { ...gemma3?.config, num_hidden_layers: 3, sliding_window_pattern: 2, max_position_embeddings: 512 };
    model = await randomFamily(join(directory, 'model'), { ...gemma3, config } as never, 5);
  });
  after(() => rm(directory, { recursive: true, force: true }));

  /** Runs `body` with a CUDA backend and the reference. */
  const withBoth = async (
    options: Partial<CudaBackendOptions>,
    body: (check: (...batch: SequenceInput[]) => Promise<void>, both: readonly Backend[]) => Promise<void>,
  ) => {
    const cuda = await createTestCudaBackend(model, { ...POOL, ...options });
    const reference = await createReferenceBackend(model, POOL);
    try {
      await body(
        async (...batch) => {
          const [actual, expected] = [await run(cuda, ...batch), await run(reference, ...batch)];
          for (const [i, each] of expected.entries()) {
            const error = relativeError(actual[i] ?? new Float32Array(0), each);
            assert.ok(error <= TOLERANCE, `sequence ${i}: ${error}`);
          }
        },
        [cuda, reference],
      );
    } finally {
      await cuda.dispose();
    }
  };

  test('decoding over slot tables, in captured graphs, and prompts in several device steps', () =>
    withBoth({ maxRows: 24, maxSequences: 4 }, async (check) => {
      const random = new Random(3);
      const slots = random.permutation(SLOTS);
      const runs = [slots.subarray(0, 170), slots.subarray(170, 340)];
      // Contexts long enough to have a table.
      await check(
        ...runs.map((own) =>
          sequence(model.config, random.tokens(model.config, 140), {
            writes: own.slice(0, 140),
            output: { kind: 'states', rows: 140 },
          }),
        ),
      );
      for (let filled = 140; filled < 152; filled++) {
        const decodes = runs.map((own) =>
          sequence(model.config, random.tokens(model.config, 1), {
            context: own.slice(0, filled),
            writes: own.slice(filled, filled + 1),
          }),
        );
        await check(...decodes);
      }
      // No kept keys, in pieces.
      const context = runs[0]?.slice(0, 152);
      await check(sequence(model.config, random.tokens(model.config, 20), { ...(context && { context }) }));
    }));

  test('the positions of keys follow pages to the host and back, also in queued copies', () =>
    withBoth({}, async (check, [cuda, reference]) => {
      assert.ok(cuda && reference);
      const random = new Random(4);
      const { pageSize } = POOL;
      const page = (number: number) => Uint32Array.from({ length: pageSize }, (_, i) => number * pageSize + i);
      await check(sequence(model.config, random.tokens(model.config, pageSize), { writes: page(1) }));
      const pinned = cuda.allocatePinned?.(cuda.pageBytes);
      assert.ok(pinned);
      cuda.queueReadPage?.(1, pinned);
      // The page gets other keys at other positions while its copy is queued.
      const others = Uint32Array.from({ length: pageSize }, (_, i) => 300 + i);
      await check(
        sequence(model.config, random.tokens(model.config, pageSize), { writes: page(1), positions: others }),
      );
      cuda.queueWritePage?.(2, pinned);
      cuda.settlePages?.();
      await run(reference, sequence(model.config, new Random(4).tokens(model.config, pageSize), { writes: page(2) }));
      for (const context of [page(1), page(2)])
        for (const position of [16, 310, 320])
          await check(
            sequence(model.config, random.tokens(model.config, 1), { context, positions: Uint32Array.of(position) }),
          );
      const bytes = new Uint8Array(cuda.pageBytes);
      cuda.readPage(2, bytes);
      cuda.writePage(3, bytes);
      const moved = new Uint8Array(reference.pageBytes);
      reference.readPage(2, moved);
      reference.writePage(3, moved);
      await check(sequence(model.config, random.tokens(model.config, 3), { context: page(3) }));
    }));

  for (const name of ['gemma3', 'glm4', 'olmo2']) {
    test(`${name}: adapters change the heads in the model's order, and gates`, async () => {
      const family = TINY_FAMILIES[name];
      assert.ok(family);
      const adapted = await randomFamily(join(directory, name), family, 6);
      const adapter = await randomAdapter(join(directory, `${name}-adapter`), adapted.config, 7, { rank: 3 });
      const cuda = await createTestCudaBackend(adapted, POOL);
      const reference = await createReferenceBackend(adapted, POOL);
      try {
        const prompt = new Random(8).tokens(adapted.config, 20);
        const [actual, expected] = await Promise.all(
          [cuda, reference].map(async (backend) => {
            const loaded = await backend.loadAdapter(adapter);
            const plain = sequence(adapted.config, prompt, { output: { kind: 'states', rows: 20 } });
            return run(backend, { ...plain, adapter: loaded }, plain);
          }),
        );
        assert.ok(actual && expected);
        for (const i of [0, 1]) {
          const error = relativeError(actual[i] as Float32Array, expected[i] as Float32Array);
          assert.ok(error <= TOLERANCE, `${error}`);
        }
        assert.ok(relativeError(expected[0] as Float32Array, expected[1] as Float32Array) > 0.05);
      } finally {
        await cuda.dispose();
      }
    });
  }
});
