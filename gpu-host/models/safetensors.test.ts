import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { ModelError } from './errors.ts';
import { readSafetensorsHeader, readTensor, writeSafetensors } from './safetensors.ts';

/** Builds a safetensors file from a header and data, without checks. */
function file(header: unknown, data: Uint8Array, headerBytes?: bigint): Buffer {
  const json = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(headerBytes ?? BigInt(json.length));
  return Buffer.concat([length, json, data]);
}

describe('safetensors', () => {
  let directory: string;
  let path: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-safetensors-'));
    path = join(directory, 'x.safetensors');
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const refuses = async (bytes: Buffer, message: RegExp) => {
    await writeFile(path, bytes);
    assert.throws(
      () => readSafetensorsHeader(path),
      (error) => error instanceof ModelError && error.code === 'malformed-weights' && message.test(error.message),
    );
  };

  it('reads back what it wrote', async () => {
    const a = Float32Array.from({ length: 6 }, (_, i) => i / 7);
    const b = Float32Array.of(-0, Number.POSITIVE_INFINITY, 1e-40);
    await writeSafetensors(path, [
      { name: 'a', shape: [2, 3], data: () => a },
      { name: 'b', shape: [3], data: () => b },
      { name: 'none', shape: [0, 4], data: () => new Float32Array(0) },
    ]);
    const tensors = readSafetensorsHeader(path);
    assert.deepEqual(tensors.get('a')?.shape, [2, 3]);
    assert.deepEqual(readTensor(tensors.get('a')!), a);
    assert.deepEqual(readTensor(tensors.get('b')!), b);
    assert.equal(readTensor(tensors.get('none')!).length, 0);
    assert.equal(tensors.get('a')!.offset % 64, 0);
    const info = tensors.get('b')!;
    const raw = (await readFile(path)).subarray(info.offset, info.offset + info.bytes);
    assert.equal(raw.readFloatLE(4), Number.POSITIVE_INFINITY, 'offsets are those of the file');
  });

  it('refuses to write values that do not fill the shape', async () => {
    const source = { name: 'a', shape: [2, 2], data: () => new Float32Array(3) };
    await assert.rejects(writeSafetensors(path, [source]), { code: 'wrong-shape' });
  });

  it('reads 16-bit floats', async () => {
    // As float16: 1, −2, 65504 (the largest number), 2^−24 (the smallest above 0). As bfloat16: 1, −2, 2^127, infinity.
    const half = Buffer.from(Uint16Array.of(0x3c00, 0xc000, 0x7bff, 0x0001).buffer);
    const brain = Buffer.from(Uint16Array.of(0x3f80, 0xc000, 0x7f00, 0x7f80).buffer);
    await writeFile(
      path,
      file(
        {
          h: { dtype: 'F16', shape: [4], data_offsets: [0, 8] },
          b: { dtype: 'BF16', shape: [2, 2], data_offsets: [8, 16] },
        },
        Buffer.concat([half, brain]),
      ),
    );
    const tensors = readSafetensorsHeader(path);
    assert.deepEqual([...readTensor(tensors.get('h')!)], [1, -2, 65504, 2 ** -24]);
    assert.deepEqual([...readTensor(tensors.get('b')!)], [1, -2, 2 ** 127, Number.POSITIVE_INFINITY]);
  });

  it('leaves out tensors that are not floats', async () => {
    const header = {
      ids: { dtype: 'I64', shape: [1], data_offsets: [0, 8] },
      x: { dtype: 'F32', shape: [], data_offsets: [8, 12] },
    };
    await writeFile(path, file(header, new Uint8Array(12)));
    assert.deepEqual([...readSafetensorsHeader(path).keys()], ['x']);
  });

  it('refuses hostile files', async () => {
    const f32 = (shape: unknown, data_offsets: unknown) => ({ t: { dtype: 'F32', shape, data_offsets } });
    await refuses(Buffer.alloc(4), /too short/);
    await refuses(file({}, new Uint8Array(0), 2n ** 63n), /header claims/);
    await refuses(file({}, new Uint8Array(0), 1000n), /header claims/);
    await refuses(file('{', new Uint8Array(0)), /not JSON/);
    await refuses(file('[]', new Uint8Array(0)), /not an object/);
    await refuses(file(f32([2], [0, 4]), new Uint8Array(8)), /needs 8 bytes/);
    await refuses(file(f32([2], [0, 8]), new Uint8Array(4)), /ends at byte/);
    await refuses(file(f32([2], [8, 0]), new Uint8Array(8)), /needs 8 bytes/);
    await refuses(file(f32([-2], [0, 8]), new Uint8Array(8)), /"t"/);
    await refuses(file(f32([2 ** 30, 2 ** 30], [0, 8]), new Uint8Array(8)), /needs/);
    await refuses(file(f32([1.5], [0, 6]), new Uint8Array(8)), /"t"/);
    await refuses(file(f32([1], [4, 8]), new Uint8Array(8)), /gap/);
    await refuses(file(f32([1], [0, 4]), new Uint8Array(8)), /after the last tensor/);
    await refuses(file({ t: { dtype: 'X9', shape: [1], data_offsets: [0, 4] } }, new Uint8Array(4)), /unknown type/);
    const overlap = {
      a: { dtype: 'F32', shape: [2], data_offsets: [0, 8] },
      b: { dtype: 'F32', shape: [1], data_offsets: [4, 8] },
    };
    await refuses(file(overlap, new Uint8Array(8)), /overlaps/);
  });

  it('throws only ModelErrors for random bytes', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 60, size: 'max' }), fc.nat(40), async (tail, length) => {
        await writeFile(path, file(Buffer.from(tail).toString('latin1'), tail, BigInt(length)));
        try {
          readSafetensorsHeader(path);
        } catch (error) {
          assert.ok(error instanceof ModelError);
        }
      }),
      { seed: 1, numRuns: 300 },
    );
  });
});
