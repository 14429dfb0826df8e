import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { randomModel } from '../models/testing/random-model.ts';
import { createGgmlBackend } from './ggml/index.ts';
import { createOnnxBackend } from './onnx/index.ts';
import { createReferenceBackend } from './reference/index.ts';
import { range, run, sequence, wholeVocabulary } from './testing/scenario.ts';

/** Log-probabilities that transformers computes in float64 (`fixtures/families-golden.py`), to eight digits after the point. */
const GOLDEN: Readonly<Record<string, readonly (readonly number[])[]>> = JSON.parse(
  readFileSync(new URL('./fixtures/families-golden.json', import.meta.url), 'utf8'),
);
const SEED = 7;
const POOL = { pageSize: 16, pageCount: 4 };
/** The number of last prompt tokens for which the golden file has log-probabilities. */
const ROWS = 2;
/** The number of tokens computed first. The rest of the prompt reads their keys and values from the pool. */
const PREFIX_TOKENS = 10;

/** Every family; each has different settings that change the computation. */
const MODELS: Readonly<Record<string, Partial<ModelConfig>>> = {
  // With these settings some rotations are scaled, some are not, and some lie in between.
  llama: {
    headDim: 16,
    ropeScaling: {
      type: 'llama3',
      factor: 8,
      lowFrequencyFactor: 1,
      highFrequencyFactor: 4,
      originalContextLength: 32,
    },
  },
  mistral: { ropeScaling: { type: 'linear', factor: 4 }, rmsNormEpsilon: 1e-2 },
  qwen2: { family: 'qwen2', tiedEmbeddings: true, ropeTheta: 1e6 },
  qwen3: { family: 'qwen3', headDim: 12, rmsNormEpsilon: 1e-3 },
};
const promptOf = (vocabularySize: number) => Uint32Array.from({ length: 24 }, (_, i) => (i * 37 + 5) % vocabularySize);

describe('every family of models', () => {
  let directory = '';
  before(async () => {
    directory = process.env.PIE_GOLDEN_MODELS ?? (await mkdtemp(join(tmpdir(), 'pie-families-')));
  });
  after(() => (process.env.PIE_GOLDEN_MODELS ? undefined : rm(directory, { recursive: true, force: true })));

  for (const [family, config] of Object.entries(MODELS)) {
    it(`${family}: probabilities are those of transformers`, async () => {
      const model = await randomModel(join(directory, family), { family, ...config }, SEED);
      const prompt = promptOf(model.config.vocabularySize);
      const expected = GOLDEN[family]?.flat() ?? [];
      assert.equal(expected.length, ROWS * model.config.vocabularySize);
      for (const [create, tolerance] of [
        [() => createReferenceBackend(model, POOL), 1e-5],
        [() => createOnnxBackend(model, { ...POOL, bits: 32, threads: 1 }), 1e-4],
        [() => createGgmlBackend(model, { ...POOL, bits: 32, threads: 1 }), 1e-4],
      ] as const) {
        const backend = await create();
        try {
          const written = range(0, PREFIX_TOKENS);
          await run(
            backend,
            sequence(model.config, prompt.subarray(0, PREFIX_TOKENS), { writes: written, output: { kind: 'none' } }),
          );
          const rest = prompt.subarray(PREFIX_TOKENS);
          const output = wholeVocabulary(model.config, ROWS);
          const [found] = await run(backend, sequence(model.config, rest, { context: written, output }));
          const worst = Math.max(...expected.map((value, i) => Math.abs(value - found[i]!)));
          assert.ok(worst < tolerance, `${backend.name}: a logarithm differs by ${worst}`);
        } finally {
          await backend.dispose();
        }
      }
    });
  }
});
