import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, type TestContext, test } from 'node:test';
import { createGgmlBackend } from '#gpu-host/backends/ggml/index.ts';
import { createOnnxBackend } from '#gpu-host/backends/onnx/index.ts';
import type { ModelConfig } from '#gpu-host/models/config.ts';
import { byteLevelEntries, type TokenizerJson } from '#gpu-host/models/convert/gguf/testing/tokenizer.ts';
import { type FileParts, ggufFile, modelParts } from '#gpu-host/models/convert/gguf/testing/write.ts';
import { type TensorType, TYPES } from '#gpu-host/models/convert/gguf/types.ts';
import { loadModel } from '#gpu-host/models/load.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import { gaussian, randomModel } from '#gpu-host/models/testing/random-model.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';
import { importPeer, PEERS_DIRECTORY } from '#test/bench/engine/install-peers.ts';

/** The part of node-llama-cpp that this test uses. */
interface Llama {
  loadModel(options: { modelPath: string }): Promise<LlamaModel>;
}
interface LlamaModel {
  createContext(options: object): Promise<LlamaContext>;
  tokenize(text: string, specialTokens: boolean, options: 'trimLeadingSpace' | undefined): readonly number[];
  dispose(): Promise<void>;
}
interface LlamaContext {
  getSequence(): {
    controlledEvaluate(input: readonly unknown[]): Promise<readonly ({ next: Next } | undefined)[]>;
  };
  dispose(): Promise<void>;
}
interface Next {
  readonly token: number;
  readonly probabilities: ReadonlyMap<number, number>;
}

const TEXTS = [
  'Once upon a time,  there was\ta girl.\n\n\nShe\'ll say "Hi!" 12345 times…\r\n',
  'def f(x):\n    return {"a": x ** 2}  # комментарий, 中文, 한국어, café',
  "IT'S we'RE 1,234.5678 🙂 <|im_start|>user  ",
];
const STEPS = 24;
const PROMPT = [1, 40, 77, 41, 99, 250, 3];
/** Least probability whose logarithm is compared: the logarithms of rarer tokens mostly show rounding. */
const MIN_PROBABILITY = 0.01;
/**
 * Largest differences of logarithms. llama.cpp rounds keys and values to 16 bits. It rounds the inputs of products with bfloat16 weights to
 * bfloat16, and the inputs of products with blocks of quantised weights to at most 8 bits. Pie's ggml backend rounds inputs in the same way, and keeps
 * keys and values in 32 bits. The ONNX backend rounds the inputs of products with Q8_0, Q4_0 and Q6_K to 8 bits, too, and computes all else in 32-bit
 * floats.
 */
const TOLERANCE = { F32: 0.04, F16: 0.04, BF16: 0.08, blocks: 0.4 } as const;

const BACKENDS = ['onnx', 'ggml'] as const;
type BackendName = (typeof BACKENDS)[number];

const installed = existsSync(path.join(PEERS_DIRECTORY, 'node_modules', 'node-llama-cpp'));
const skip = process.env.PIE_TEST_ALL ? !installed && '`pie bench engine` installs node-llama-cpp' : 'set PIE_TEST_ALL';

describe('GGUF against node-llama-cpp on the same file', { skip }, () => {
  let directory: string;
  let llama: Llama;
  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'pie-gguf-oracle-'));
    const { getLlama } = (await importPeer('node-llama-cpp/dist/index.js')) as {
      getLlama(options: object): Promise<Llama>;
    };
    llama = await getLlama({ gpu: false, build: 'never', maxThreads: 1, logLevel: 'error' });
  });
  after(() => rm(directory, { recursive: true, force: true }));

  /** Greedy tokens of llama.cpp after the prompt, each with the probabilities of all candidates. */
  const llamaSteps = async (file: string) => {
    const model = await llama.loadModel({ modelPath: file });
    const context = await model.createContext({ contextSize: 64, batchSize: 64, sequences: 1 });
    try {
      const sequence = context.getSequence();
      const steps: Next[] = [];
      let input = PROMPT;
      for (let i = 0; i < STEPS; i++) {
        const last = [
          input.at(-1),
          { generateNext: { probabilities: true, token: true, options: { temperature: 0 } } },
        ];
        const results = await sequence.controlledEvaluate([...input.slice(0, -1), last]);
        const { next } = results.at(-1)!;
        steps.push(next);
        input = [next.token];
      }
      return steps;
    } finally {
      await context.dispose();
      await model.dispose();
    }
  };
  /** Natural logarithms of the next token's probabilities in Pie, most probable first: after the prompt, and after each of `tokens` but the last. */
  const pieSteps = async (name: BackendName, file: string, tokens: readonly number[]) => {
    const { directory: converted } = await pullModel(`file:${file}`, { cacheDirectory: path.join(directory, 'cache') });
    const model = await loadModel(converted);
    const create = name === 'onnx' ? createOnnxBackend : createGgmlBackend;
    const backend = await create(model, { pageSize: 16, pageCount: 4, bits: 32, threads: 1 });
    try {
      const steps: Map<number, number>[] = [];
      let slots = 0;
      for (const input of [PROMPT, ...tokens.slice(0, -1).map((token) => [token])]) {
        const slotNumbers = Uint32Array.from(input, (_, i) => slots + i);
        const [output] = await backend.forward([
          {
            inputs: { kind: 'tokens', tokens: Uint32Array.from(input) },
            positions: slotNumbers,
            context: Uint32Array.from({ length: slots }, (_, i) => i),
            mask: 'causal',
            writes: slotNumbers,
            output: { kind: 'top', rows: 1, topK: model.config.vocabularySize },
          },
        ]);
        assert.ok(output?.kind === 'top');
        steps.push(new Map(Array.from(output.tokens, (token, i) => [token, output.logProbabilities[i]!])));
        slots += input.length;
      }
      return steps;
    } finally {
      await backend.dispose();
    }
  };
  /** Writes `parts` to a file and compares the logarithms of Pie and llama.cpp on it. With `sameTokens`, the most probable tokens must agree, too. */
  const compare = async (context: TestContext, parts: FileParts, tolerance: number, sameTokens: boolean) => {
    const file = path.join(await mkdtemp(path.join(directory, 'file-')), 'model.gguf');
    await writeFile(file, ggufFile(parts));
    const expected = await llamaSteps(file);
    for (const name of BACKENDS) {
      const found = await pieSteps(
        name,
        file,
        expected.map(({ token }) => token),
      );
      let worst = 0;
      for (const [i, { token, probabilities }] of expected.entries()) {
        const logarithms = found[i]!;
        if (sameTokens) assert.equal(logarithms.keys().next().value, token, `${name}, step ${i}`);
        for (const [id, probability] of probabilities)
          if (probability > MIN_PROBABILITY)
            worst = Math.max(worst, Math.abs(Math.log(probability) - logarithms.get(id)!));
      }
      context.diagnostic(`${name}: largest difference of a logarithm: ${worst.toFixed(4)}`);
      assert.ok(worst < tolerance, `${name}: a logarithm differs by ${worst}`);
    }
  };
  const shape = { hiddenSize: 256, intermediateSize: 512, headDim: 64, vocabularySize: 300 };
  const random = (config: Partial<ModelConfig> = {}) =>
    randomModel(path.join(directory, 'random'), { ...shape, ...config }, 1);

  for (const config of [
    {},
    { tiedEmbeddings: true, heads: 8, headDim: 32 },
    { family: 'qwen2' },
    { family: 'qwen3' },
  ]) {
    test(`F32 weights give llama.cpp's probabilities: ${JSON.stringify(config)}`, async (context) => {
      await compare(context, modelParts(await random(config), 'F32'), TOLERANCE.F32, true);
    });
  }
  for (const encoding of ['F16', 'BF16'] as const) {
    test(`${encoding} weights give llama.cpp's probabilities`, async (context) =>
      compare(context, modelParts(await random(), encoding), TOLERANCE[encoding], true));
  }
  test('linear scaling of positions gives the probabilities of llama.cpp', async (context) => {
    const parts = modelParts(await random(), 'F32');
    const metadata = [...parts.metadata, ['llama.rope.scaling.factor', 'f32', 4] as const];
    await compare(context, { ...parts, metadata }, TOLERANCE.F32, true);
  });
  for (const encoding of ['F32', 'Q8_0', 'Q4_0'] as const) {
    test(`stories15m in ${encoding} gives llama.cpp's probabilities`, async (context) => {
      const model = await loadModel((await pullModel('stories15m')).directory);
      await compare(context, modelParts(model, encoding), TOLERANCE[encoding === 'F32' ? 'F32' : 'blocks'], true);
    });
  }
  for (const pre of ['gpt-2', 'smollm', 'llama-bpe', 'qwen2']) {
    test(`the tokenizer with the pre-tokenizer ${pre} gives llama.cpp's tokens`, async () => {
      const { directory: minimind } = await pullModel('minimind2-small');
      const json = JSON.parse(await readFile(path.join(minimind, 'tokenizer.json'), 'utf8')) as TokenizerJson;
      const file = path.join(directory, `${pre}.gguf`);
      const model = await random({ vocabularySize: 6400 });
      await writeFile(file, ggufFile(modelParts(model, 'F32', byteLevelEntries(json, pre))));
      const converted = await pullModel(`file:${file}`, { cacheDirectory: path.join(directory, 'cache') });
      const tokenizer = await loadTokenizer(converted.directory);
      const peer = await llama.loadModel({ modelPath: file });
      for (const text of TEXTS) {
        assert.deepEqual(
          [...tokenizer.encode(text, { special: true })],
          [...peer.tokenize(text, true, undefined)],
          text,
        );
      }
      await peer.dispose();
    });
  }
  for (const [number, type] of Object.entries(TYPES)) {
    if (type.decode === undefined) continue;
    test(`random ${type.name} blocks give llama.cpp's probabilities`, async (context) => {
      const parts = modelParts(await random(), 'F32');
      const draw = gaussian(Number(number));
      const tensors = parts.tensors.map((tensor) => {
        if (tensor.shape.length === 1 || tensor.name === 'token_embd.weight') return tensor;
        const [rows, columns] = tensor.shape as [number, number];
        return {
          ...tensor,
          type: Number(number),
          bytes: randomBlocks(type, rows * columns, 1.5 / Math.sqrt(columns), draw),
        };
      });
      await compare(context, { ...parts, tensors }, TOLERANCE.blocks, false);
    });
  }
});

/**
 * Scales of a block by the name of its type. `offsets` are those of its 16-bit scales. `unitDeviation` is the deviation of the values at a first
 * scale of one. A second scale shifts the values; `shiftRatio` is its ratio to the first.
 */
const SCALES: Readonly<
  Record<string, readonly [offsets: readonly number[], unitDeviation: number, shiftRatio?: number]>
> = {
  Q4_0: [[0], 4.6],
  Q4_1: [[0, 2], 4.6, -7.5],
  Q5_0: [[0], 9.2],
  Q5_1: [[0, 2], 9.2, -15.5],
  Q8_0: [[0], 74],
  Q4_K: [[0, 2], 280, 7.5],
  Q5_K: [[0, 2], 570, 15.5],
  Q6_K: [[208], 1370],
  Q2_K: [[80, 82], 13.9, 1.5],
  Q3_K: [[108], 43],
  IQ4_NL: [[0], 67],
  IQ4_XS: [[0], 1250],
};
/** Deviation of the values of MXFP4 at a scale of one; the scale is a power of two, and the block's first byte is its exponent plus 127. */
const MXFP4_DEVIATION = 2.9;

/** Blocks of random bits, with scales that give values of about this standard deviation. */
function randomBlocks(type: TensorType, count: number, deviation: number, draw: () => number): Buffer {
  const bytes = Buffer.alloc((count / type.values) * type.bytes, 0);
  // A buffer keeps the lowest eight bits of each number.
  for (let i = 0; i < bytes.length; i++) bytes[i] = Math.floor(1000 * draw());
  if (type.name === 'MXFP4') {
    const exponent = 127 + Math.round(Math.log2(deviation / MXFP4_DEVIATION));
    for (let block = 0; block < bytes.length; block += type.bytes) bytes[block] = exponent;
    return bytes;
  }
  const [offsets, unitDeviation, shiftRatio = 0] = SCALES[type.name]!;
  const scale = deviation / unitDeviation;
  const scales = Float16Array.of(scale, scale * shiftRatio);
  for (let block = 0; block < bytes.length; block += type.bytes)
    for (const [i, offset] of offsets.entries()) bytes.set(new Uint8Array(scales.buffer, 2 * i, 2), block + offset);
  return bytes;
}
