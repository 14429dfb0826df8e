import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { importGguf } from '../models/convert/gguf/convert.ts';
import { ggufFile } from '../models/convert/gguf/testing/write.ts';
import { type LoadedModel, loadModel } from '../models/load.ts';
import {
  FAMILY_PROMPT,
  FAMILY_SEED,
  familyGguf,
  randomFamily,
  TINY_FAMILIES,
} from '../models/testing/tiny-families.ts';
import type { Backend } from './backend.ts';
import { createGgmlBackend } from './ggml/index.ts';
import { createOnnxBackend } from './onnx/index.ts';
import { createReferenceBackend } from './reference/index.ts';
import { createTestCudaBackend } from './testing/cuda.ts';
import { range, run, sequence, wholeVocabulary } from './testing/scenario.ts';
import { CUDA_TRAITS, lackingTraits, ONNX_TRAITS } from './traits.ts';

/** What llama.cpp computes with each model's GGUF file in 32-bit floats (`fixtures/gguf-families-golden.ts`). */
const GOLDEN: Readonly<Record<string, readonly Step[]>> = JSON.parse(
  readFileSync(new URL('./fixtures/gguf-families-golden.json', import.meta.url), 'utf8'),
);
interface Step {
  /** The most probable tokens, the greedy one first. */
  readonly tokens: readonly number[];
  readonly logProbabilities: readonly number[];
}

const POOL = { pageSize: 16, pageCount: 8 };
/** Largest mean difference of a log-probability. llama.cpp looks up GELU in a table of 16-bit floats, the reference does not. */
const TOLERANCE = 1e-4;
const GELU_TOLERANCE = 1e-3;

describe('every family, as checkpoint and as GGUF file, continues as llama.cpp does', () => {
  let directory = '';
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-gguf-families-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  for (const [name, family] of Object.entries(TINY_FAMILIES)) {
    it(name, async () => {
      const checkpoint = await randomFamily(join(directory, name), family, FAMILY_SEED);
      const file = join(directory, `${name}.gguf`);
      await writeFile(file, ggufFile(familyGguf(checkpoint, family)));
      const converted = await mkdtemp(join(directory, 'gguf-'));
      await importGguf(file, converted);
      const gguf = await loadModel(converted);
      const tolerance = checkpoint.config.activation === 'gelu' ? GELU_TOLERANCE : TOLERANCE;
      for (const [kind, model] of Object.entries({ checkpoint, gguf })) {
        await compare(`reference, ${kind}`, name, await createReferenceBackend(model, POOL), model, tolerance);
        const ggml = await createGgmlBackend(model, { ...POOL, bits: 32, threads: 1 });
        await compare(`ggml, ${kind}`, name, ggml, model, TOLERANCE);
        if (lackingTraits(model.config, CUDA_TRAITS).length === 0)
          await compare(`cuda, ${kind}`, name, await createTestCudaBackend(model, POOL), model, tolerance);
        if (lackingTraits(model.config, ONNX_TRAITS).length > 0) continue;
        const onnx = await createOnnxBackend(model, { ...POOL, bits: 32, threads: 1 });
        await compare(`onnx, ${kind}`, name, onnx, model, tolerance);
      }
    });
  }
});

async function compare(label: string, name: string, backend: Backend, { config }: LoadedModel, tolerance: number) {
  const golden = GOLDEN[name] ?? [];
  const differences: number[] = [];
  try {
    let slots = 0;
    for (const [i, step] of golden.entries()) {
      const input = Uint32Array.from(i === 0 ? FAMILY_PROMPT : [golden[i - 1]?.tokens[0] ?? 0]);
      const written = range(slots, slots + input.length);
      const context = range(0, slots);
      const output = wholeVocabulary(config, 1);
      const [found] = await run(backend, sequence(config, input, { context, writes: written, output }));
      const logs = [...(found ?? [])];
      const best = logs.indexOf(Math.max(...logs));
      assert.equal(best, step.tokens[0], `${label}: token ${i}`);
      for (const [k, token] of step.tokens.entries())
        differences.push(Math.abs((logs[token] ?? 0) - (step.logProbabilities[k] ?? 0)));
      slots += input.length;
    }
  } finally {
    await backend.dispose();
  }
  const mean = differences.reduce((sum, difference) => sum + difference, 0) / differences.length;
  assert.ok(mean < tolerance, `${label}: log-probabilities differ by ${mean} on average`);
}
