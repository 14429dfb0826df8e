import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { expectedTensors, type LoadedModel, loadModel } from '../load.ts';
import { pullModel } from '../pull.ts';
import { argmax, PlainForward } from '../testing/plain-forward.ts';
import { randomModel } from '../testing/random-model.ts';
import { loadTokenizer } from '../tokenizer.ts';
import { convertLlama2c } from './llama2c.ts';

const VOCABULARY = 280;

/**
 * Encodes a model as llama2.c's `export.py` does, but does not reorder the rows of q and k. In the checkpoint, these rows therefore belong to a
 * rotation of neighbouring pairs.
 */
function checkpointOf({ config, tensors }: LoadedModel): Buffer {
  const { hiddenSize, intermediateSize, layers, heads, kvHeads, contextLength, headDim, tiedEmbeddings } = config;
  const { vocabularySize } = config;
  const header = Int32Array.of(
    hiddenSize,
    intermediateSize,
    layers,
    heads,
    kvHeads,
    tiedEmbeddings ? vocabularySize : -vocabularySize,
    contextLength,
  );
  const perLayer = (suffix: string) =>
    Array.from({ length: layers }, (_, layer) => tensors.read(`model.layers.${layer}.${suffix}.weight`));
  const parts = [
    tensors.read('model.embed_tokens.weight'),
    ...perLayer('input_layernorm'),
    ...perLayer('self_attn.q_proj'),
    ...perLayer('self_attn.k_proj'),
    ...perLayer('self_attn.v_proj'),
    ...perLayer('self_attn.o_proj'),
    ...perLayer('post_attention_layernorm'),
    ...perLayer('mlp.gate_proj'),
    ...perLayer('mlp.down_proj'),
    ...perLayer('mlp.up_proj'),
    tensors.read('model.norm.weight'),
    // The tables of cosines and sines, which readers skip.
    new Float32Array(contextLength * headDim),
    ...(tiedEmbeddings ? [] : [tensors.read('lm_head.weight')]),
  ];
  return Buffer.concat([header, ...parts].map((part) => new Uint8Array(part.buffer, part.byteOffset, part.byteLength)));
}

function tokenizerBin(pieces: readonly { text: string | number; score: number }[]): Buffer {
  const records = pieces.map(({ text, score }) => {
    const bytes = typeof text === 'number' ? Buffer.of(text) : Buffer.from(text);
    const record = Buffer.alloc(8 + bytes.length);
    record.writeFloatLE(score, 0);
    record.writeInt32LE(bytes.length, 4);
    bytes.copy(record, 8);
    return record;
  });
  // The file begins with the length of its longest piece, which readers skip.
  return Buffer.concat([Buffer.alloc(4), ...records]);
}

/** 3 special tokens and 256 bytes. */
const SPECIAL_AND_BYTES = 3 + 256;
const PIECES = [
  { text: '<unk>', score: 0 },
  { text: '\n<s>\n', score: 0 },
  { text: '\n</s>\n', score: 0 },
  ...Array.from({ length: 256 }, (_, byte) => ({ text: byte, score: 0 })),
  { text: 'ab', score: -1 },
  { text: 'bc', score: -2 },
  { text: ' ab', score: -3 },
  { text: 'abc', score: -4 },
  ...[' ', 'a', 'b', 'c'].map((text, i) => ({ text, score: -10 - i })),
  // After the special pieces, the bytes and the 8 pieces above, these fill the vocabulary.
  ...Array.from({ length: VOCABULARY - SPECIAL_AND_BYTES - 8 }, (_, i) => ({ text: `é${i}`, score: -100 - i })),
];

describe('convertLlama2c', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-llama2c-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const convert = async (checkpoint: Buffer, tokenizer = tokenizerBin(PIECES)) => {
    const files = {
      checkpoint: { file: join(directory, 'model.bin') },
      tokenizer: { file: join(directory, 'tokenizer.bin') },
    };
    await writeFile(files.checkpoint.file, checkpoint);
    await writeFile(files.tokenizer.file, tokenizer);
    await convertLlama2c(files, directory);
    return loadModel(directory);
  };

  it('a converted model gives the same logits, with half-split rotation instead of neighbouring pairs', async () => {
    for (const config of [
      { kvHeads: 4 },
      { kvHeads: 2, tiedEmbeddings: true },
      { kvHeads: 1, headDim: 8, contextLength: 17 },
    ]) {
      const original = await randomModel(join(directory, 'original'), { ...config, vocabularySize: VOCABULARY }, 5);
      const converted = await convert(checkpointOf(original));
      assert.equal(converted.config.tiedEmbeddings, original.config.tiedEmbeddings);
      const theirs = new PlainForward(original, 'interleaved');
      const ours = new PlainForward(converted, 'half-split');
      const wrong = new PlainForward(original, 'half-split');
      let convertedDifference = 0;
      let unconvertedDifference = 0;
      for (const token of [1, 70, 9, 200, 279, 3]) {
        const expected = theirs.next(token);
        const found = ours.next(token);
        const unconverted = wrong.next(token);
        for (const [i, value] of expected.entries()) {
          convertedDifference = Math.max(convertedDifference, Math.abs(value - found[i]!));
          unconvertedDifference = Math.max(unconvertedDifference, Math.abs(value - unconverted[i]!));
        }
      }
      assert.ok(convertedDifference < 1e-12, `largest difference ${convertedDifference}`);
      assert.ok(unconvertedDifference > 0.1, 'the rotation matters for these weights');
    }
  });

  it('keeps every tensor and derives the merges from the scores', async () => {
    const original = await randomModel(join(directory, 'original'), { vocabularySize: VOCABULARY }, 6);
    const converted = await convert(checkpointOf(original));
    for (const [name] of expectedTensors(original.config)) {
      if (!/[qk]_proj/.test(name)) assert.deepEqual(converted.tensors.read(name), original.tensors.read(name), name);
    }
    const tokenizer = await loadTokenizer(directory);
    const tokenTexts = (text: string) =>
      Array.from(tokenizer.encode(text), (id) => Buffer.from(tokenizer.tokenBytes(id)).toString());
    assert.deepEqual(tokenTexts('ab'), [' ab']);
    assert.deepEqual(tokenTexts('aabc'), [' ', 'a', 'abc']);
    assert.deepEqual(tokenTexts('bcabx'), [' ', 'bc', 'ab', 'x']);
    assert.deepEqual([...tokenizer.encode('\n')].at(-1), 3 + 10, 'the token of byte 10');
    assert.equal(tokenizer.decode(tokenizer.encode('abc é 你')), 'abc é 你');
  });

  it('converts a vocabulary of special tokens and bytes only, and refuses a smaller one', async () => {
    const convertFirst = async (vocabularySize: number) => {
      const original = await randomModel(join(directory, 'original'), { vocabularySize }, 6);
      return convert(checkpointOf(original), tokenizerBin(PIECES.slice(0, vocabularySize)));
    };
    await convertFirst(SPECIAL_AND_BYTES);
    assert.deepEqual([...(await loadTokenizer(directory)).encode('\n')].at(-1), 3 + 10, 'the token of byte 10');
    await assert.rejects(convertFirst(SPECIAL_AND_BYTES - 1), {
      code: 'malformed-tokenizer',
      message: /258 has no room/,
    });
  });

  it('refuses files that do not fit together', async () => {
    const original = await randomModel(join(directory, 'original'), { vocabularySize: VOCABULARY }, 6);
    const checkpoint = checkpointOf(original);
    await assert.rejects(convert(Buffer.alloc(10)), { code: 'malformed-weights', message: /too short/ });
    await assert.rejects(convert(Buffer.alloc(100)), { code: 'malformed-weights', message: /not a llama2.c/ });
    await assert.rejects(convert(checkpoint.subarray(0, -4)), { code: 'malformed-weights', message: /implies/ });
    await assert.rejects(convert(checkpoint, tokenizerBin(PIECES.slice(0, -1))), {
      code: 'malformed-tokenizer',
      message: /ends at token 279/,
    });
    await assert.rejects(convert(checkpoint, tokenizerBin([...PIECES, { text: 'x', score: 0 }])), {
      code: 'malformed-tokenizer',
      message: /follow/,
    });
    await assert.rejects(convert(checkpoint, tokenizerBin([...PIECES.slice(0, -1), { text: 'ab', score: 0 }])), {
      message: /spelled/,
    });
    const long = tokenizerBin(PIECES);
    // The length of the first piece is at byte 8, after the length of the longest piece and the first piece's score.
    long.writeInt32LE(2 ** 30, 8);
    await assert.rejects(convert(checkpoint, long), { code: 'malformed-tokenizer', message: /claims/ });
    await writeFile(join(directory, 'model.bin'), checkpoint);
    const wrongHash = {
      checkpoint: { file: join(directory, 'model.bin'), sha256: '00' },
      tokenizer: { file: join(directory, 'tokenizer.bin') },
    };
    await assert.rejects(convertLlama2c(wrongHash, directory), { code: 'checksum-mismatch' });
    const withoutTokenizer = {
      checkpoint: { file: join(directory, 'model.bin') },
      tokenizer: { file: join(directory, 'none') },
    };
    await assert.rejects(convertLlama2c(withoutTokenizer, directory), { code: 'missing-file' });
  });

  it('stories15m begins its story as llama2.c does', async () => {
    const { directory: stories } = await pullModel('stories15m');
    const forward = new PlainForward(await loadModel(stories));
    const tokens: number[] = [];
    let token = 1;
    while (tokens.length < 12) {
      token = argmax(forward.next(token));
      tokens.push(token);
    }
    assert.deepEqual(tokens, [9038, 2501, 263, 931, 29892, 727, 471, 263, 2217, 7826, 4257, 365]);
    assert.equal((await loadTokenizer(stories)).decode(tokens), 'Once upon a time, there was a little girl named L');
  });
});
