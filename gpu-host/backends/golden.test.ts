import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type LoadedModel, loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import type { Backend } from './backend.ts';
import { bareLoop } from './bench.ts';
import { createGgmlBackend } from './ggml/index.ts';
import { createOnnxBackend } from './onnx/index.ts';
import { createReferenceBackend } from './reference/index.ts';
import { createTestCudaBackend } from './testing/cuda.ts';
import { range, relativeError, run, sequence, wholeVocabulary } from './testing/scenario.ts';

/** Greedy tokens of stories15M from the beginning-of-text token, from llama2.c. */
const STORY = [9038, 2501, 263, 931, 29892, 727, 471, 263, 2217, 7826, 4257, 365];
const POOL = { pageSize: 16, pageCount: 32 };
const ALL = process.env.PIE_TEST_ALL === '1';

describe('stories15M', () => {
  let model: LoadedModel;
  let cacheDirectory: string;
  before(async () => {
    const { directory } = await pullModel('stories15m');
    model = await loadModel(directory);
    cacheDirectory = await mkdtemp(join(tmpdir(), 'pie-golden-'));
  });
  after(() => rm(cacheDirectory, { recursive: true, force: true }));

  const creators: Readonly<Record<string, () => Promise<Backend>>> = {
    reference: () => createReferenceBackend(model, POOL),
    'onnx, float32': () => createOnnxBackend(model, { ...POOL, bits: 32 }),
    'onnx, float32 with an 8-bit head': () =>
      createOnnxBackend(model, { ...POOL, bits: 32, headBits: 8, cacheDirectory }),
    'ggml, float32': () => createGgmlBackend(model, { ...POOL, bits: 32 }),
    'ggml, 8 bits': () => createGgmlBackend(model, { ...POOL, bits: 8 }),
    'cuda, float32': () => createTestCudaBackend(model, POOL),
    'cuda, bf16': () => createTestCudaBackend(model, { ...POOL, precision: 'bf16' }),
    'cuda, int8': () => createTestCudaBackend(model, { ...POOL, precision: 'int8' }),
    'cuda, fp8': () => createTestCudaBackend(model, { ...POOL, precision: 'fp8' }),
    'cuda, int4': () => createTestCudaBackend(model, { ...POOL, precision: 'int4' }),
    'cuda, bf16, keys and values fp8': () => createTestCudaBackend(model, { ...POOL, precision: 'bf16', kv: 'fp8' }),
    'onnx, 8 bits': () => createOnnxBackend(model, { ...POOL, bits: 8, cacheDirectory }),
  };
  for (const [name, create] of Object.entries(creators)) {
    // Without a card, these precisions emulate tensor cores on the CPU, which is slow.
    const isSlow = /cuda, (int8|fp8|int4)/.test(name) && !ALL;
    test(`greedy tokens: ${name}`, { skip: isSlow && 'set PIE_TEST_ALL=1 to run it' }, async () => {
      const isShort = name.startsWith('cuda, bf16') && !ALL;
      const story = isShort ? STORY.slice(0, 4) : STORY;
      const backend = await create();
      try {
        // An emulated step takes as long for several tokens as for one, so the first step also takes the known tokens.
        const known = isShort ? story.slice(0, 2) : [];
        assert.deepEqual(await greedy(backend, story.length, known), story);
      } finally {
        await backend.dispose();
      }
    });
  }

  const onlyWithAll = { skip: !ALL && 'set PIE_TEST_ALL=1 to run it' };
  test('a whole story is the same on the CPU and on a card', onlyWithAll, async () => {
    const onnx = await createOnnxBackend(model, { ...POOL, bits: 32 });
    const cuda = await createTestCudaBackend(model, POOL);
    try {
      assert.deepEqual(await greedy(cuda, 200), await greedy(onnx, 200));
    } finally {
      await onnx.dispose();
      await cuda.dispose();
    }
  });

  test('float32 agrees with the reference on a trained model', async (context) => {
    const reference = await createReferenceBackend(model, POOL);
    const onnx = await createOnnxBackend(model, { ...POOL, bits: 32 });
    try {
      const tokens = Uint32Array.of(1, ...STORY);
      const prompt = sequence(model.config, tokens, { output: { kind: 'states', rows: tokens.length } });
      const top = { ...prompt, output: wholeVocabulary(model.config) };
      const expected = await run(reference, prompt, top);
      const actual = await run(onnx, prompt, top);
      const errors = expected.map((each, i) => relativeError(actual[i], each));
      context.diagnostic(
        `relative error, states and log-probabilities: ${errors.map((each) => each.toExponential(2))}`,
      );
      for (const error of errors) assert.ok(error <= 1e-4);
    } finally {
      await onnx.dispose();
    }
  });

  test('quantised weights are written once and read again', async () => {
    const options = { ...POOL, bits: 8, headBits: 4, cacheDirectory } as const;
    // A file that is written again has another inode.
    const inodes = async () => {
      const names = (await readdir(cacheDirectory)).sort();
      return Promise.all(names.map(async (name) => (await stat(join(cacheDirectory, name))).ino));
    };
    const stories: number[][] = [];
    const files: number[][] = [];
    for (let i = 0; i < 2; i++) {
      const backend = await createOnnxBackend(model, options);
      stories.push(await greedy(backend, 8));
      files.push(await inodes());
      await backend.dispose();
    }
    assert.deepEqual(stories[1], stories[0]);
    assert.deepEqual(files[1], files[0]);
  });

  test('the bare loop times every step, and refuses contexts that exceed the pool', async () => {
    const backend = await createOnnxBackend(model, { ...POOL, bits: 32 });
    try {
      // The pool has 512 slots, too few for two contexts of 300.
      const result = await bareLoop(backend, { batch: 2, context: 300, steps: 3 }).catch((error: unknown) => error);
      assert.ok(result instanceof RangeError);
      const { stepMs, msPerStep } = await bareLoop(backend, { batch: 2, context: 20, steps: 3 });
      assert.equal(stepMs.length, 3);
      assert.ok(msPerStep > 0);
    } finally {
      await backend.dispose();
    }
  });
});

/** Decodes `count` tokens after the token that begins a text. The first step also takes `known`, the first tokens of the expected result. */
async function greedy(backend: Backend, count: number, known: readonly number[] = []): Promise<number[]> {
  const tokens: number[] = [];
  let inputs = [backend.config.bosTokenId ?? 1, ...known];
  for (let context = 0; tokens.length < count; ) {
    const end = context + inputs.length;
    const step = sequence(backend.config, Uint32Array.from(inputs), {
      context: range(0, context),
      writes: range(context, end),
      output: { kind: 'top', rows: inputs.length, topK: 1, tokensOnly: true },
    });
    const [output] = await backend.forward([step]);
    assert.equal(output.kind, 'top');
    tokens.push(...output.tokens);
    context = end;
    inputs = tokens.slice(-1);
  }
  return tokens;
}
