import assert from 'node:assert/strict';
import { closeSync, openSync, readSync, truncateSync, writeSync } from 'node:fs';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ModelError } from './errors.ts';
import { type FingerprintOptions, fingerprint } from './fingerprint.ts';
import { type LoadedModel, loadModel } from './load.ts';
import type { StoredTensor } from './safetensors.ts';
import { isBlocked, isPacked } from './tensors.ts';
import { blockedModel } from './testing/blocked-model.ts';
import { randomModel } from './testing/random-model.ts';

const OPTIONS: FingerprintOptions = { backend: 'onnx', bits: 8, headBits: 4, pageSize: 16 };
const EMBEDDINGS = 'model.embed_tokens.weight';

describe('fingerprint', () => {
  let root: string;
  let model: LoadedModel;
  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'pie-fingerprint-'));
    // The embeddings are 4,096 × 64 floats, 1 MiB: larger than the 64 KiB that the samples of a tensor take.
    model = await randomModel(join(root, 'tiny'), { vocabularySize: 4096, hiddenSize: 64 }, 1);
  });
  after(() => rm(root, { recursive: true, force: true }));

  const hashOf = (of: LoadedModel, options: FingerprintOptions = OPTIONS) => fingerprint(of, options).hash;

  /** Inverts one byte, takes the hash, and puts the byte back. */
  const hashWithByte = (info: StoredTensor, byte: number, of = model): string => {
    const fd = openSync(info.file, 'r+');
    try {
      const before = Buffer.alloc(1);
      readSync(fd, before, 0, 1, info.offset + byte);
      writeSync(fd, Uint8Array.of(~(before[0] as number)), 0, 1, info.offset + byte);
      const hash = hashOf(of);
      writeSync(fd, before, 0, 1, info.offset + byte);
      return hash;
    } finally {
      closeSync(fd);
    }
  };

  const plainTensor = (name: string, of = model): StoredTensor => {
    const info = of.tensors.info(name);
    assert.ok(!isBlocked(info) && !isPacked(info));
    return info;
  };

  it('is the same for the same model in any directory', async () => {
    await cp(model.directory, join(root, 'copy'), { recursive: true });
    const copy = await loadModel(join(root, 'copy'));
    assert.equal(hashOf(copy), hashOf(model));
    assert.equal(fingerprint(model, OPTIONS).name, 'tiny (onnx, 8/4 bits, pages of 16)');
    assert.equal(fingerprint(copy, OPTIONS).name, 'copy (onnx, 8/4 bits, pages of 16)');
    assert.equal(fingerprint(model, { ...OPTIONS, precision: 'fp8' }).name, 'tiny (onnx, fp8, pages of 16)');
    assert.match(hashOf(model), /^[0-9a-f]{64}$/);
    assert.equal(
      fingerprint(model, { ...OPTIONS, kv: 'fp8' }).name,
      'tiny (onnx, 8/4 bits, keys and values fp8, pages of 16)',
    );
  });

  it('differs with each option', () => {
    const hashes = [
      OPTIONS,
      { ...OPTIONS, backend: 'reference' },
      { ...OPTIONS, bits: 32 },
      { ...OPTIONS, headBits: 8 },
      { ...OPTIONS, precision: 'int8' },
      { ...OPTIONS, precision: 'fp8' },
      { ...OPTIONS, pageSize: 8 },
      { ...OPTIONS, kv: 'fp8' },
      { ...OPTIONS, bits: 4, headBits: 8 },
    ].map((options) => hashOf(model, options));
    assert.equal(new Set(hashes).size, hashes.length);
  });

  it('differs with the values of the config, but not with the order of its fields', () => {
    for (const change of [{ ropeTheta: 9_999 }, { rmsNormEpsilon: 1e-6 }, { eosTokenIds: [3] }]) {
      assert.notEqual(
        hashOf({ ...model, config: { ...model.config, ...change } }),
        hashOf(model),
        JSON.stringify(change),
      );
    }
    const reordered = Object.fromEntries(Object.entries(model.config).reverse()) as unknown as LoadedModel['config'];
    assert.equal(hashOf({ ...model, config: reordered }), hashOf(model));
  });

  it('differs with every byte of a small tensor', () => {
    const info = plainTensor('model.layers.1.post_attention_layernorm.weight');
    const hash = hashOf(model);
    for (let byte = 0; byte < info.bytes; byte += 13) assert.notEqual(hashWithByte(info, byte), hash, `byte ${byte}`);
    assert.equal(hashOf(model), hash);
  });

  it('reads samples of a large tensor, from its first byte to its last', () => {
    const info = plainTensor(EMBEDDINGS);
    assert.equal(info.bytes, 1 << 20);
    const hash = hashOf(model);
    let sampled = 0;
    for (let byte = 0; byte < info.bytes; byte += 1021) if (hashWithByte(info, byte) !== hash) sampled++;
    // The samples are 64 KiB of 1 MiB, one sixteenth, so they contain about 64 of the 1,028 changed bytes.
    assert.ok(sampled > 50 && sampled < 80, `${sampled} of ${Math.ceil(info.bytes / 1021)} bytes were sampled`);
    for (const byte of [0, 4095, info.bytes - 4096, info.bytes - 1]) assert.notEqual(hashWithByte(info, byte), hash);
  });

  it('differs with levels and scales of a matrix in blocks', async () => {
    // Earlier tests have written to the model's file, so it is opened again.
    const blocked = await blockedModel(await loadModel(model.directory), 'Q4_0', root);
    const info = blocked.tensors.info('model.layers.0.mlp.down_proj.weight');
    assert.ok(isBlocked(info));
    const hash = hashOf(blocked);
    for (const stored of [info.levels, info.scales])
      for (const byte of [0, stored.bytes - 1]) assert.notEqual(hashWithByte(stored, byte, blocked), hash);
    assert.equal(hashOf(blocked), hash);
  });

  it('reports a file that has become shorter', async () => {
    await cp(model.directory, join(root, 'short'), { recursive: true });
    const short = await loadModel(join(root, 'short'));
    const last = plainTensor('lm_head.weight', short);
    truncateSync(last.file, last.offset + last.bytes - 1);
    assert.throws(
      () => hashOf(short),
      (error) => error instanceof ModelError && error.code === 'malformed-weights',
    );
  });
});
