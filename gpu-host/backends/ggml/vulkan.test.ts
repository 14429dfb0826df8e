import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import fc from 'fast-check';
import type { ModelError } from '#gpu-host/models/errors.ts';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import { randomFamily, TINY_FAMILIES } from '../../models/testing/tiny-families.ts';
import { createReferenceBackend } from '../reference/index.ts';
import { compare } from '../testing/compare.ts';
import { conformance } from '../testing/conformance/index.ts';
import { POOL } from '../testing/conformance/topic.ts';
import { VARIANTS } from '../testing/models.ts';
import { batches, RANDOM_POOL } from '../testing/random-batch.ts';
import { createGgmlBackend } from './index.ts';
import { Ggml } from './library.ts';

// ggml leaves out drivers that compute on the CPU, such as lavapipe, unless they are chosen by number, and computes products in 16 bits where it can.
// It reads these variables when it loads.
process.env.GGML_VK_VISIBLE_DEVICES ??= '0';
process.env.GGML_VK_DISABLE_F16 ??= '1';
// Lavapipe compiles each kernel for up to seconds, and a little faster without optimisations.
process.env.GALLIVM_PERF ??= 'nopt';

const ALL = process.env.PIE_TEST_ALL === '1';
const found = ALL
  ? await Ggml.open()
      .then((ggml) => ({ ggml, gpu: ggml.device('gpu') }))
      .catch((error: Error) => error)
  : new Error('its driver compiles kernels for minutes: set PIE_TEST_ALL');
/** Largest difference of two ways to compute a value on the device. */
const TOLERANCE = 1e-4;
/** Largest error against the reference: measured 5.8e-4, with the 32-bit kernels of lavapipe. Products in 16 bits have errors of 4e-3. */
const REFERENCE_TOLERANCE = 2e-3;
/** Random batches of each model. Runs with many, which drop graphs, ended in faults of the heap inside lavapipe (Mesa 22.3). */
const RUNS = 2;
if (found instanceof Error) test('ggml on a GPU', { skip: found.message }, () => {});
else {
  const { ggml, gpu } = found;
  conformance({
    name: `ggml, on ${gpu.description}`,
    create: (model) => createGgmlBackend(model, { ...POOL, bits: 32, device: 'gpu' }),
    tolerance: TOLERANCE,
  });

  describe(`ggml on ${gpu.description}`, () => {
    const directories: string[] = [];
    after(async () => {
      for (const directory of directories) await rm(directory, { recursive: true, force: true });
    });
    const make = async (from: (directory: string) => Promise<LoadedModel>) => {
      const directory = await mkdtemp(join(tmpdir(), 'pie-vulkan-'));
      directories.push(directory);
      return from(join(directory, 'model'));
    };
    const tiny = () => make((directory) => randomModel(directory, {}, 5));

    test('the backend reports the GPU that it was asked for, or that there is', async () => {
      const model = await tiny();
      for (const device of ['gpu', 'auto', 'cpu'] as const) {
        const backend = await createGgmlBackend(model, { ...POOL, bits: 32, device, threads: 1 });
        const { name, memory } = backend.device;
        await backend.dispose();
        if (device === 'cpu') assert.deepEqual([name, memory], ['CPU', undefined]);
        else {
          assert.equal(name, gpu.description);
          assert.ok(memory && memory.takenBytes > 0 && memory.takenBytes < memory.totalBytes);
        }
      }
    });

    test('a pool that does not fit the memory is refused', async () => {
      const { totalBytes } = ggml.memory(gpu);
      const pageCount = Math.ceil(totalBytes / 4096);
      const refused = createGgmlBackend(await tiny(), { pageSize: 256, pageCount, bits: 32, device: 'gpu' });
      await assert.rejects(refused, ({ code, message }: ModelError) => {
        assert.match(message, /the keys and values of all pages \(\d+ MiB\) do not fit the memory of/);
        return code === 'unsupported-model';
      });
    });

    const models = [
      ['heads of 4 values', (at: string) => randomModel(at, { headDim: 4 }, 21)] as const,
      ...Object.entries(VARIANTS).map(([name, shape]) => [name, (at: string) => randomModel(at, shape, 21)] as const),
      ...Object.entries(TINY_FAMILIES).map(
        ([name, family]) => [name, (at: string) => randomFamily(at, family, 21)] as const,
      ),
    ];
    for (const [name, from] of models) {
      test(`${name}: random batches, masks, slots, inputs and outputs`, async (context) => {
        const model = await make(from);
        const backend = await createGgmlBackend(model, { ...RANDOM_POOL, bits: 32, device: 'gpu' });
        const reference = await createReferenceBackend(model, RANDOM_POOL);
        let worst = 0;
        try {
          const property = fc.asyncProperty(batches, async (batch) => {
            const error = await compare(model, reference, backend, batch);
            worst = Math.max(worst, error);
            assert.ok(error <= REFERENCE_TOLERANCE, `relative error ${error}`);
          });
          await fc.assert(property, { seed: 42, numRuns: RUNS });
        } finally {
          await backend.dispose();
        }
        context.diagnostic(`largest relative error ${worst.toExponential(1)}`);
      });
    }
  });
}
