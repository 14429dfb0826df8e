import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { LoadedModel } from '#gpu-host/models/load.ts';
import { randomModel } from '../../models/testing/random-model.ts';
import { createTestCudaBackend } from '../testing/cuda.ts';
import { run, sequence } from '../testing/scenario.ts';
import { captureGraphsAhead } from './index.ts';

const POOL = { pageSize: 16, pageCount: 4 };
/** Greedy, 64 candidates and the whole vocabulary of 96, each captured in the engine's two areas (native/engine/step/steps.h). */
const GRAPHS_OF_A_SIZE = 3 * 2;

describe('graphs captured at start', () => {
  let directory: string;
  let model: LoadedModel;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-ahead-'));
    model = await randomModel(join(directory, 'model'), { layers: 1 }, 9);
  });
  after(() => rm(directory, { recursive: true, force: true }));

  test('steps of the captured sizes capture no further graphs, and the start reports what it captured', async () => {
    const lines: string[] = [];
    const start = { warmUpMs: 3_600_000, maxSequences: 3, report: (line: string) => lines.push(line) };
    const backend = await createTestCudaBackend(model, { ...POOL, ...start });
    try {
      const { captured, refused } = backend.graphs?.() ?? {};
      assert.deepEqual([captured, refused], [2 * GRAPHS_OF_A_SIZE, 0], 'sizes 1 and 2');
      assert.match(lines.at(-1) ?? '', /^captured the graphs of all 6 batch shapes in \d+\.\d s$/);
      for (const topK of [1, 40, 96]) {
        const ask = (token: number) => sequence(model.config, Uint32Array.of(token), { output: top(topK) });
        for (let step = 0; step < 8; step++) await run(backend, ...[ask(1), ask(2)].slice(step % 2));
      }
      assert.equal(backend.graphs?.().captured, captured);
      // The start leaves out the size 4, to which a batch of 3 is padded. Its graph is captured in two areas.
      const ask = sequence(model.config, Uint32Array.of(1), { output: top(1) });
      for (let step = 0; step < 6; step++) await run(backend, ask, ask, ask);
      assert.equal(backend.graphs?.().captured, 2 * GRAPHS_OF_A_SIZE + 2);
    } finally {
      await backend.dispose();
    }
  });

  test('the start captures graphs until its limit, and none at a limit of 0', async () => {
    const backend = await createTestCudaBackend(model, { ...POOL, warmUpMs: 0 });
    try {
      assert.equal(backend.graphs?.().captured, 0);
      let steps = 0;
      const counted = {
        config: model.config,
        forward: (batch: Parameters<typeof backend.forward>[0]) => {
          steps++;
          return backend.forward(batch);
        },
      };
      const lines: string[] = [];
      // Each reading of the clock is a second later than the one before.
      let ms = 0;
      const now = () => {
        ms += 1000;
        return ms;
      };
      const options = { maxSequences: 256, limitMs: 20_000, report: (line: string) => lines.push(line), now };
      const captured = await captureGraphsAhead(counted, options);
      assert.ok(steps < 20, `${steps} steps`);
      // Each batch shape takes 6 steps; its graph is captured in two areas. The shapes are 11 sizes × 3 numbers of top tokens.
      assert.equal(captured, Math.floor(steps / 6));
      assert.equal(backend.graphs?.().captured, 2 * captured);
      assert.equal(lines.at(-1), `captured the graphs of ${captured} of 33 batch shapes; warm_up_s is over`);
      assert.match(lines[0] ?? '', /^captures graphs: 1 of 33 batch shapes, up to 1 sequences$/);
    } finally {
      await backend.dispose();
    }
  });
});

function top(topK: number) {
  return { kind: 'top', rows: 1, topK, tokensOnly: true } as const;
}
