import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { ModelConfig } from '../../config.ts';
import { expectedTensors, type LoadedModel, loadModel } from '../../load.ts';
import { isPacked, readValues } from '../../tensors.ts';
import { argmax, PlainForward } from '../../testing/plain-forward.ts';
import { randomModel } from '../../testing/random-model.ts';
import { convertPacked, widenBlocks } from '../../widen.ts';
import { importGguf } from './convert.ts';
import { type Encoding, type Entry, type FileParts, ggufFile, modelParts } from './testing/write.ts';
import { TYPES } from './types.ts';

/** Sizes with which every row of a matrix consists of whole blocks of 32 values. */
const SHAPE = { hiddenSize: 64, intermediateSize: 96, headDim: 16, vocabularySize: 300 } as const;

const GOLDEN = join(import.meta.dirname, 'fixtures/blocks-golden.json');

describe('importGguf', () => {
  let directory: string;
  let file: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-gguf-'));
    file = join(directory, 'model.gguf');
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const originalModel = (config: Partial<ModelConfig> = {}) =>
    randomModel(join(directory, 'original'), { ...SHAPE, ...config }, 5);
  const convert = async (parts: FileParts): Promise<LoadedModel> => {
    await writeFile(file, ggufFile(parts));
    const out = await mkdtemp(join(directory, 'out-'));
    await importGguf(file, out);
    return loadModel(out);
  };
  const refuses = async (parts: FileParts, error: { code: string; message: RegExp }) => {
    await writeFile(file, ggufFile(parts));
    const out = await mkdtemp(join(directory, 'out-'));
    await assert.rejects(importGguf(file, out), error);
  };
  /** The same parts with `entry` added or replaced. A string names the entry to remove. */
  const withEntry = (parts: FileParts, entry: Entry | string): FileParts => {
    const [key, replacement] = typeof entry === 'string' ? [entry, []] : [entry[0], [entry]];
    return { ...parts, metadata: [...parts.metadata.filter(([name]) => name !== key), ...replacement] };
  };
  const greedyTokens = (model: LoadedModel, pairing: 'half-split' | 'interleaved' = 'half-split'): number[] => {
    const forward = new PlainForward(model, pairing);
    let logits = forward.next(1);
    return Array.from({ length: 24 }, () => {
      const token = argmax(logits);
      logits = forward.next(token);
      return token;
    });
  };

  it('keeps every float for each family and with tied embeddings; Llama gives the same greedy tokens', async () => {
    const variants: Partial<ModelConfig>[] = [
      {},
      { tiedEmbeddings: true, heads: 8, headDim: 16 },
      { family: 'qwen2' },
      { family: 'qwen3' },
    ];
    for (const variant of variants) {
      const model = await originalModel(variant);
      const converted = await convert(modelParts(model, 'F32'));
      assert.deepEqual(converted.config, model.config);
      for (const [name] of expectedTensors(model.config))
        assert.deepEqual(converted.tensors.read(name), model.tensors.read(name), name);
      // The other families need biases, or norms of queries and keys, which `PlainForward` lacks.
      if (model.config.family === 'llama') assert.deepEqual(greedyTokens(converted), greedyTokens(model));
    }
  });

  it("restores Hugging Face's order of the query and key rows, which llama.cpp stores in another order", async () => {
    const model = await originalModel();
    const parts = modelParts(model, 'F32');
    // The reference takes the rows in the file's order and rotates neighbouring pairs. The converted model must give the same tokens.
    const rows = new Map(
      parts.tensors.map(({ name, bytes }) => [name, new Float32Array(new Uint8Array(bytes).buffer)]),
    );
    const stored = (name: string) => {
      const [, layer, projection] = /layers\.(\d+)\.self_attn\.([qk])_proj/.exec(name) ?? [];
      return (layer && rows.get(`blk.${layer}.attn_${projection}.weight`)) || model.tensors.read(name);
    };
    const asStored = { ...model, tensors: { ...model.tensors, read: stored } };
    assert.notDeepEqual(
      stored('model.layers.0.self_attn.q_proj.weight'),
      model.tensors.read('model.layers.0.self_attn.q_proj.weight'),
    );
    assert.deepEqual(greedyTokens(asStored, 'interleaved'), greedyTokens(await convert(parts)));
  });

  it("keeps the file's types", async () => {
    const model = await originalModel();
    const name = 'model.layers.1.mlp.down_proj.weight';
    // Bounds relative to the largest value. F16 rounds to 11 significant bits, and the writer's BF16 cuts off all bits after the eighth.
    // Levels of Q8_0 are off by at most half of 1/127, those of Q4_0 by half of 1/8; these two bounds leave room for the rounding of the scale.
    const relativeErrors: Record<Encoding, number> = { F32: 0, F16: 2 ** -11, BF16: 2 ** -7, Q8_0: 0.005, Q4_0: 0.08 };
    for (const [encoding, error] of Object.entries(relativeErrors) as [Encoding, number][]) {
      const { tensors } = await convert(modelParts(model, encoding));
      const info = tensors.info(name);
      assert.equal(isPacked(info) ? info.type.name : info.dtype, encoding);
      const [exact, values] = [model.tensors.read(name), tensors.read(name)];
      const largest = Math.max(...exact.map(Math.abs));
      const worst = Math.max(...values.map((value, i) => Math.abs(value - exact[i]!)));
      assert.ok(worst <= error * largest, `${encoding}: ${worst / largest}`);
      if (error > 0) assert.notDeepEqual(values, exact);
    }
  });

  it("a converted matrix of every block type has the values that llama.cpp's own package decodes", async () => {
    const golden = JSON.parse(await readFile(GOLDEN, 'utf8'));
    const size = 256;
    const parts = modelParts(await originalModel({ hiddenSize: size, intermediateSize: size }), 'F32');
    for (const [number, { name, decode, exact }] of Object.entries(TYPES)) {
      if (decode === undefined) continue;
      /** `length` bytes: the bytes of `hex`, repeated. */
      const tiled = (hex: string, length: number) =>
        Buffer.concat(Array<Buffer>(Math.ceil(length / (hex.length / 2))).fill(Buffer.from(hex, 'hex')), length);
      const { blocks: hex, values } = golden[name];
      const floatBytes = 4 * size * size;
      const bytes = tiled(hex, (floatBytes * hex.length) / values.length);
      const tensors = parts.tensors.map((tensor) =>
        tensor.name === 'blk.0.ffn_down.weight' ? { ...tensor, type: Number(number), bytes } : tensor,
      );
      const converted = await convert({ ...parts, tensors });
      const stored = 'model.layers.0.mlp.down_proj.weight';
      const blocks = await convertPacked(converted);
      assert.equal(blocks.tensors.info(stored).dtype, exact?.dtype ?? 'F32');
      const expected = new Float32Array(new Uint8Array(tiled(values, floatBytes)).buffer);
      assert.deepEqual(converted.tensors.read(stored), expected, name);
      assert.deepEqual(readValues(blocks.tensors.info(stored)), expected, name);
      assert.deepEqual(readValues((await widenBlocks(converted)).tensors.info(stored)), expected, name);
    }
  });

  it('writes a tensor that is larger than one piece', async () => {
    const model = await originalModel({ vocabularySize: 20_000, tiedEmbeddings: true });
    const converted = await convert(modelParts(model, 'Q8_0'));
    const [exact, values] = [model, converted].map(({ tensors }) => tensors.read('model.embed_tokens.weight'));
    // A piece of 4 MiB has 16,384 rows of 64 floats.
    for (const id of [0, 9_999, 16_383, 16_384, 19_999]) {
      const row = (all: Float32Array) => all.subarray(id * SHAPE.hiddenSize, (id + 1) * SHAPE.hiddenSize);
      const worst = Math.max(...row(values!).map((value, i) => Math.abs(value - row(exact!)[i]!)));
      assert.ok(worst < 0.05, `row ${id}`);
    }
  });

  it("recognises Llama 3's frequency scaling by its divisors, and refuses other divisors", async () => {
    const scaling = {
      type: 'llama3',
      factor: 32,
      lowFrequencyFactor: 1,
      highFrequencyFactor: 4,
      originalContextLength: 8192,
    };
    const { factor, lowFrequencyFactor: low, highFrequencyFactor: high, originalContextLength: context } = scaling;
    const model = await originalModel({ ropeTheta: 500_000 });
    const parts = modelParts(model, 'F32');
    // The divisors that llama.cpp's converter writes (`generate_extra_tensors` of its LlamaModel).
    const divisors = Float32Array.from({ length: SHAPE.headDim / 2 }, (_, i) => {
      const wavelength = 2 * Math.PI * 500_000 ** ((2 * i) / SHAPE.headDim);
      if (wavelength < context / high) return 1;
      if (wavelength > context / low) return factor;
      const smooth = (context / wavelength - low) / (high - low);
      return 1 / ((1 - smooth) / factor + smooth);
    });
    const withDivisors = (values: Float32Array): FileParts => ({
      ...parts,
      tensors: [
        ...parts.tensors,
        { name: 'rope_freqs.weight', shape: [values.length], type: 0, bytes: Buffer.from(values.buffer) },
      ],
    });
    const converted = await convert(withDivisors(divisors));
    assert.deepEqual(converted.config, { ...model.config, ropeScaling: scaling });
    assert.equal((await convert(withDivisors(divisors.map(() => 1)))).config.ropeScaling, null);
    // The second list is so long that it would overflow the stack as arguments of `Math.max`.
    for (const wrong of [divisors.with(3, 9), new Float32Array(500_000).fill(2)])
      await refuses(withDivisors(wrong), { code: 'unsupported-model', message: /rope scaling/ });
  });

  it('reads the factor of linear scaling from either of its keys, with and without the key of the type', async () => {
    const model = await originalModel();
    const parts = modelParts(model, 'F32');
    const type: Entry = ['llama.rope.scaling.type', 'text', 'linear'];
    const none: Entry = ['llama.rope.scaling.type', 'text', 'none'];
    const factor: Entry = ['llama.rope.scaling.factor', 'f32', 4];
    for (const [entries, ropeScaling] of [
      [[type, factor], { type: 'linear', factor: 4 }],
      [[factor], { type: 'linear', factor: 4 }],
      [[['llama.rope.scale_linear', 'f32', 2]], { type: 'linear', factor: 2 }],
      [[none, factor], null],
      [[type], null],
    ] as const) {
      const scaled = { ...parts, metadata: [...parts.metadata, ...entries] };
      assert.deepEqual((await convert(scaled)).config, { ...model.config, ropeScaling }, JSON.stringify(entries));
    }
  });

  it('refuses an unsupported or malformed model, and states the reason', async () => {
    // The model has 2 layers.
    const parts = modelParts(await originalModel(), 'F32');
    const extra = { name: 'blk.0.attn_rot', shape: [64], type: 0, bytes: Buffer.alloc(256) };
    const cases: [FileParts, string, RegExp][] = [
      [withEntry(parts, ['general.architecture', 'text', 'mpt']), 'unsupported-model', /"mpt"/],
      [withEntry(parts, 'general.architecture'), 'unsupported-model', /does not state its architecture/],
      [withEntry(parts, ['llama.expert_count', 'u32', 8]), 'unsupported-model', /8 experts/],
      [withEntry(parts, ['llama.rope.scaling.type', 'text', 'ntk']), 'unsupported-model', /"ntk"/],
      [withEntry(parts, ['llama.rope.dimension_count', 'u32', 8]), 'unsupported-model', /part is rotated/],
      [withEntry(parts, 'llama.block_count'), 'malformed-config', /llama\.block_count/],
      [withEntry(parts, ['llama.block_count', 'u32', 3]), 'missing-tensor', /blk\.2\.attn_norm/],
      [withEntry(parts, ['llama.block_count', 'u32', 1]), 'unsupported-model', /"blk\.1\.attn_norm/],
      [withEntry(parts, ['llama.block_count', 'u32', 4_000_000_000]), 'malformed-config', /num_hidden_layers/],
      [withEntry(parts, ['llama.attention.head_count', 'text', '4']), 'malformed-config', /head_count/],
      [withEntry(parts, ['llama.feed_forward_length', 'u32', 128]), 'wrong-shape', /ffn_gate/],
      [{ ...parts, tensors: [...parts.tensors, extra] }, 'unsupported-model', /"blk\.0\.attn_rot"/],
      [{ ...parts, tensors: parts.tensors.slice(1) }, 'malformed-config', /vocab_size/],
    ];
    for (const [wrong, code, message] of cases) await refuses(wrong, { code, message });
  });

  it('refuses a malformed tokenizer before it writes weights', async () => {
    const parts = modelParts(await originalModel(), 'F32');
    await writeFile(file, ggufFile(withEntry(parts, ['tokenizer.chat_template', 'text', '{% if %}'])));
    const out = await mkdtemp(join(directory, 'out-'));
    await assert.rejects(importGguf(file, out), { code: 'malformed-tokenizer' });
    assert.ok(!(await readdir(out)).includes('model.gguf'));
  });
});

describe('blocks of values', () => {
  it("decodes blocks of every type as llama.cpp's own package does", async () => {
    const golden = JSON.parse(await readFile(GOLDEN, 'utf8'));
    const blocked = Object.values(TYPES).filter(({ decode }) => decode !== undefined);
    assert.deepEqual(blocked.map(({ name }) => name).sort(), Object.keys(golden).sort());
    for (const { name, values, bytes, decode } of blocked) {
      const blocks = Buffer.from(golden[name].blocks, 'hex');
      const decoded = new Float32Array((blocks.length / bytes) * values);
      decode?.(new DataView(blocks.buffer, blocks.byteOffset, blocks.byteLength), decoded);
      const expected = new Float32Array(new Uint8Array(Buffer.from(golden[name].values, 'hex')).buffer);
      assert.deepEqual(decoded, expected, name);
    }
  });
});
