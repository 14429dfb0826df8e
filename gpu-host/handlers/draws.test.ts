import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { type Backend, NOTHING_DRAWN } from '../backends/backend.ts';
import { createOnnxBackend } from '../backends/onnx/index.ts';
import { createReferenceBackend } from '../backends/reference/index.ts';
import { createTestCudaBackend } from '../backends/testing/cuda.ts';
import { expectedTensors, type LoadedModel, loadModel } from '../models/load.ts';
import { writeSafetensors } from '../models/safetensors.ts';
import { randomModel } from '../models/testing/random-model.ts';
import type { DeviceClient, Outcome, Sampler } from '../protocol/client.ts';
import { BACKENDS } from '../testing/backends.ts';
import { GREEDY, must, NONE, range, startTestHost, tagOf } from '../testing/host.ts';
import { wrapBackend } from '../testing/wrapped-backend.ts';

/** 32-bit words of one row of a token mask, which has a bit for each of the 96 tokens of the models. */
const MASK_WORDS = 3;

/** Samplers without a filter, with top-k, top-p and min-p alone, with all three, and the greedy one. */
const SAMPLERS: readonly Omit<Sampler, 'seed'>[] = [
  { temperature: 1, topK: 0, topP: 1, minP: 0 },
  { temperature: 0.7, topK: 5, topP: 1, minP: 0 },
  { temperature: 1.5, topK: 0, topP: 0.8, minP: 0 },
  { temperature: 2, topK: 0, topP: 1, minP: 0.1 },
  { temperature: 1.1, topK: 40, topP: 0.9, minP: 0.02 },
  { temperature: 0, topK: 0, topP: 1, minP: 0 },
];

/** Per sampler: the tokens of a run, of a step in which every input has an output, and of that step with a token mask. */
async function sampledTokens(inferlet: DeviceClient, queue: number): Promise<number[][]> {
  const all: number[][] = [];
  for (const [i, sampler] of SAMPLERS.entries()) {
    const seeded = { ...sampler, seed: 1000 + i };
    const pages = must(inferlet.allocatePages(queue, 4));
    const run = inferlet.run(queue, {
      token: 5 + i,
      position: 0,
      pages,
      maxTokens: 24,
      sampler: seeded,
      stopTokens: NONE,
    });
    const tokens: number[] = [];
    for (let ended = false; !ended; ) {
      const chunk = must(await run.next());
      tokens.push(...chunk.tokens);
      ended = chunk.finished !== undefined;
    }
    all.push(tokens);
    const inputs = range(3, 15);
    const request = { tokens: inputs, positions: range(0, 12), inPages: NONE, outPages: NONE, mask: undefined };
    const output = { tag: 'sample', val: seeded } as const;
    const allowed = new Uint32Array(MASK_WORDS * inputs.length).map((_, word) => 0x5a5a5a5a ^ (word * 0x01010101));
    for (const more of [{}, { allowed }]) {
      const { tokens: drawn } = must(
        await inferlet.ask(queue, { op: 'step', request: { ...request, rows: 12, output, ...more } }),
      );
      all.push([...drawn]);
    }
    inferlet.freePages(queue, pages);
  }
  return all;
}

test('runs and steps get the tokens that the backend draws, equal on all backends, and the backend gives no candidates', async () => {
  let drawn = 0;
  /** Total size of the outputs beside the drawn tokens. */
  let sizes = 0;
  const watch = (inner: Backend) =>
    wrapBackend(inner, {
      async forward(batch) {
        const outputs = await inner.forward(batch);
        batch.forEach(({ output }, i) => {
          const made = outputs[i];
          if (output.kind !== 'top' || !output.draws) return;
          assert.ok(made?.kind === 'top' && made.drawn?.length === output.rows);
          sizes += made.tokens.length + made.logProbabilities.length;
          drawn += output.rows;
        });
        return outputs;
      },
    });
  const results: number[][][] = [];
  const backends = [...new Set(['reference' as const, ...BACKENDS])];
  for (const backend of backends) {
    await using host = await startTestHost({ backend, seed: 9, wrap: watch });
    const inferlet = (await host.connect()).openInferlet({ id: 'draws', maxPages: 40, arrival: 1 });
    results.push(await sampledTokens(inferlet, inferlet.createQueue('tiny')));
  }
  const [reference, ...others] = results;
  for (const other of others) assert.deepEqual(other, reference);
  // For each sampler, a run draws 24 tokens and each of two steps draws 12.
  assert.equal(drawn, backends.length * (SAMPLERS.length - 1) * (24 + 2 * 12), 'a greedy sampler draws nothing');
  assert.equal(sizes, 0);
  assert.ok(new Set(reference?.flat()).size > 20, 'the samplers give different tokens');
});

/** Runs on a vocabulary of which the listed tokens hold little: most draws depend on the others. */
test('a run alone, beside others, and continued after a part of it gives the same tokens', async () => {
  const shape = { vocabularySize: 600 };
  const sampler = { temperature: 3, topK: 0, topP: 1, minP: 0 };
  for (const backend of ['reference', 'onnx'] as const) {
    await using host = await startTestHost({ backend, seed: 9, shape });
    const inferlet = (await host.connect()).openInferlet({ id: 'draws', maxPages: 40, arrival: 1 });
    const tokensOf = async (seed: number, parts: readonly number[] = [20]) => {
      // The calls of one queue follow each other.
      const queue = inferlet.createQueue('tiny');
      const pages = must(inferlet.allocatePages(queue, 3));
      const tokens: number[] = [];
      for (const maxTokens of parts) {
        const run = inferlet.run(queue, {
          token: tokens.at(-1) ?? 5,
          position: tokens.length,
          pages,
          maxTokens,
          sampler: { ...sampler, seed },
          stopTokens: NONE,
        });
        for (let ended = false; !ended; ) {
          const chunk = must(await run.next());
          tokens.push(...chunk.tokens);
          ended = chunk.finished !== undefined;
        }
      }
      inferlet.freePages(queue, pages);
      return tokens;
    };
    const alone = await tokensOf(1);
    const beside = await Promise.all([4, 3, 2, 1].map((seed) => tokensOf(seed)));
    assert.deepEqual(beside[3], alone);
    assert.deepEqual(await tokensOf(1, [8, 1, 11]), alone);
    assert.ok(host.host.stats().models[0]!.meanBatchSize > 1, 'the runs share steps');
    assert.ok(new Set(beside.flat()).size > 60, 'tokens from all over the vocabulary');
  }
});

test('when the device draws no token because the logits are not numbers, the call gets an error', async () => {
  const drawNothing = (inner: Backend) =>
    wrapBackend(inner, {
      ahead: false,
      forward: async (batch) => {
        const outputs = await inner.forward(batch);
        return outputs.map((output) =>
          output.kind === 'top' ? { ...output, drawn: Uint32Array.of(NOTHING_DRAWN) } : output,
        );
      },
    });
  await using host = await startTestHost({ wrap: drawNothing });
  const inferlet = (await host.connect()).openInferlet({ id: 'nothing', maxPages: 4, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  const request = {
    tokens: range(1, 3),
    positions: range(0, 2),
    inPages: NONE,
    outPages: NONE,
    mask: undefined,
    rows: 1,
  };
  const output = { tag: 'sample', val: { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 1 } } as const;
  assert.equal(tagOf(await inferlet.ask(queue, { op: 'step', request: { ...request, output } })), 'internal');
});

/** A random model of the test hosts' shape with one NaN weight, which makes all logits NaN. */
async function modelWithoutNumbers(directory: string): Promise<LoadedModel> {
  const shape = { heads: 4, kvHeads: 2, headDim: 8, layers: 2, contextLength: 96 };
  const { config, tensors } = await randomModel(directory, shape, 1);
  const all = expectedTensors(config).map(([name, shape]) => {
    const values = tensors.read(name).slice();
    if (name === 'model.norm.weight') values[3] = Number.NaN;
    return { name, shape, data: () => values };
  });
  await writeSafetensors(join(directory, 'model.safetensors'), all);
  return loadModel(directory);
}

const NO_NUMBERS = /^internal: the model computed no numbers/;
const textOf = (outcome: Outcome<unknown>) => (outcome.tag === 'ok' ? 'ok' : `${outcome.val.tag}: ${outcome.val.val}`);

/** Settings of the backends' page pools. */
const POOL = { pageSize: 8, pageCount: 64 };
for (const [name, create] of Object.entries({
  reference: (model: LoadedModel) => createReferenceBackend(model, POOL),
  onnx: (model: LoadedModel) => createOnnxBackend(model, { ...POOL, bits: 32, threads: 1 }),
  cuda: (model: LoadedModel) => createTestCudaBackend(model, POOL),
})) {
  test(`a greedy step or run on a model that computes no numbers gets an error (${name})`, async () => {
    const directory = await mkdtemp(join(tmpdir(), 'pie-nan-'));
    try {
      const backend = await create(await modelWithoutNumbers(directory));
      {
        await using host = await startTestHost({ wrap: () => backend });
        const inferlet = (await host.connect()).openInferlet({ id: 'greedy', maxPages: 8, arrival: 1 });
        const queue = inferlet.createQueue('tiny');
        const inputs = { tokens: range(3, 6), positions: range(0, 3), inPages: NONE, outPages: NONE, mask: undefined };
        const output = { tag: 'sample', val: GREEDY } as const;
        for (const more of [{}, { allowed: new Uint32Array(2 * MASK_WORDS).fill(0xff) }]) {
          const step = await inferlet.ask(queue, { op: 'step', request: { ...inputs, rows: 2, output, ...more } });
          assert.match(textOf(step), NO_NUMBERS);
        }
        const pages = must(inferlet.allocatePages(queue, 1));
        const request = { token: 5, position: 0, pages, maxTokens: 3, sampler: GREEDY, stopTokens: NONE };
        assert.match(textOf(await inferlet.run(queue, request).next()), NO_NUMBERS);
      }
      await backend.dispose();
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
}
