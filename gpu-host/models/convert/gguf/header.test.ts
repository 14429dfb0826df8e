import assert from 'node:assert/strict';
import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { ModelError } from '../../errors.ts';
import { readGgufHeader } from './header.ts';
import { type Entry, type FileParts, ggufFile, type Tensor } from './testing/write.ts';

const METADATA: Entry[] = [
  ['general.architecture', 'text', 'llama'],
  ['a.list', 'i32', [-1, 2, 3]],
  ['a.text', 'text', ['x', '', 'ü▁']],
  ['a.bool', 'bool', true],
  ['a.float', 'f32', 0.5],
];
const tensor = (name: string, more: Partial<Tensor> = {}): Tensor => ({
  name,
  shape: [2, 8],
  type: 0,
  bytes: Buffer.alloc(64, 1),
  ...more,
});
/** Offset of the first key: the magic, the version and two counts come before it. */
const KEYS_AT = 4 + 4 + 2 * 8;
const PARTS: FileParts = {
  metadata: METADATA,
  tensors: [tensor('a'), tensor('b', { shape: [3], bytes: Buffer.alloc(12) })],
};

describe('readGgufHeader', () => {
  let directory: string;
  let file: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-gguf-header-'));
    file = join(directory, 'x.gguf');
  });
  after(() => rm(directory, { recursive: true, force: true }));

  /** Asserts that the reader refuses the file, and that it does not allocate memory for what the file only claims to have. */
  const refuses = async (bytes: Buffer, message: RegExp, code = 'malformed-weights') => {
    await writeFile(file, bytes);
    const before = process.memoryUsage();
    assert.throws(() => readGgufHeader(file), { name: 'ModelError', code, message });
    const { arrayBuffers, heapUsed } = process.memoryUsage();
    assert.ok(
      arrayBuffers + heapUsed - before.arrayBuffers - before.heapUsed < 16 << 20,
      `${message} took much memory`,
    );
  };

  it('can leave out lists, and reads the rest alike', async () => {
    await writeFile(file, ggufFile(PARTS));
    const [whole, short] = [readGgufHeader(file), readGgufHeader(file, { lists: false })];
    assert.deepEqual(
      [...short.metadata],
      [...whole.metadata].filter(([, value]) => !Array.isArray(value)),
    );
    assert.deepEqual(short.tensors, whole.tensors);
    const bytes = ggufFile(PARTS);
    const cut = bytes.indexOf('a.text') + 30;
    await writeFile(file, bytes.subarray(0, cut));
    assert.throws(() => readGgufHeader(file, { lists: false }), { code: 'malformed-weights' });
  });

  it('reads metadata, and the shapes and offsets of tensors', async () => {
    for (const version of [2, 3]) {
      await writeFile(file, ggufFile({ ...PARTS, version }));
      const { metadata, tensors } = readGgufHeader(file);
      assert.deepEqual(
        [...metadata],
        METADATA.map(([key, , value]) => [key, value]),
      );
      assert.deepEqual([...tensors.keys()], ['a', 'b']);
      const { shape, offset, bytes, type } = tensors.get('a')!;
      assert.deepEqual([shape, offset % 32, bytes, type.name], [[2, 8], 0, 64, 'F32']);
      assert.equal(tensors.get('b')?.offset, offset + 64);
    }
    // The second text crosses the end of the reader's window of 1 MiB.
    const longText = 'x'.repeat(900_000);
    await writeFile(
      file,
      ggufFile({
        metadata: [
          ['a', 'text', longText],
          ['b', 'text', longText],
        ],
        tensors: [],
      }),
    );
    assert.equal(readGgufHeader(file).metadata.get('b'), longText);
  });

  it('refuses a file that is not GGUF of a known version', async () => {
    await refuses(Buffer.alloc(0), /does not begin/);
    await refuses(Buffer.from('GGUF'), /ends within its header/);
    await refuses(Buffer.from('GGML'.padEnd(100, '\0')), /does not begin/);
    await refuses(ggufFile({ ...PARTS, version: 1 }), /version 1 /, 'unsupported-model');
    await refuses(ggufFile({ ...PARTS, version: 3 << 24 }), /big-endian/, 'unsupported-model');
  });

  it('refuses counts and lengths beyond the file before it makes room for them', async () => {
    for (const count of [1000, 2 ** 31, 2 ** 53, 2n ** 64n - 1n]) {
      await refuses(ggufFile({ ...PARTS, tensorCount: count }), /claims \d+ tensors/);
      await refuses(ggufFile({ ...PARTS, keyCount: count }), /claims \d+ keys/);
    }
    // The length of a text stands in the 8 bytes before the text.
    const withSize = (textAfterSize: string, size: bigint) => {
      const bytes = ggufFile(PARTS);
      bytes.writeBigUInt64LE(size, bytes.indexOf(textAfterSize) - 8);
      return bytes;
    };
    await refuses(withSize('general.architecture', 2n ** 63n), /bytes of a text/);
    await refuses(withSize('llama', 2n ** 32n), /bytes of a text/);
    // After the name of a list come its type and the type of its elements, 4 bytes each, then the count of elements.
    const list = ggufFile(PARTS);
    list.writeBigUInt64LE(2n ** 40n, list.indexOf('a.list') + 'a.list'.length + 8);
    await refuses(list, /elements of "a\.list"/);
  });

  it('bounds the sum of the elements of all lists', async () => {
    const many: Entry[] = Array.from({ length: 5 }, (_, i) => [`k${i}`, 'bool', [true]]);
    const bytes = ggufFile({ metadata: many, tensors: [] });
    // The file has two lists of this count. Each of them is below the bound of 2 ** 22 elements; their sum is above the bound.
    const count = 3 * 2 ** 20;
    // The key of a list consists of the length of its name in 8 bytes, the name in 2, the type `list` and the type of the elements in 4 bytes
    // each, and the count of the elements in 8.
    const countAt = 8 + 2 + 2 * 4;
    const keyBytes = countAt + 8;
    bytes.writeBigUInt64LE(BigInt(count), KEYS_AT + countAt);
    const secondKey = ggufFile({ metadata: many.slice(0, 1), tensors: [] }).subarray(KEYS_AT, KEYS_AT + keyBytes);
    // The second list has another name, `z0`.
    secondKey.write('z', 8);
    secondKey.writeBigUInt64LE(BigInt(count), countAt);
    await writeFile(file, bytes.subarray(0, KEYS_AT + keyBytes));
    const handle = await open(file, 'r+');
    // Each element takes one byte. The gap between the two keys reads as zeros.
    await handle.write(secondKey, 0, secondKey.length, KEYS_AT + keyBytes + count);
    // The file is large enough for the claimed lists, but takes no disk space, because it is sparse.
    await handle.truncate(2 ** 30);
    await handle.close();
    assert.throws(() => readGgufHeader(file), {
      code: 'malformed-weights',
      message: /claims 3145728 elements of "z0"/,
    });
  });

  it('bounds the size of the whole header', async () => {
    // Each of 256 texts has the maximum length of 1 MiB, so only their sum with the keys exceeds the bound of 256 MiB. The file is sparse.
    const textBytes = 2 ** 20;
    const keys = Array.from({ length: 256 }, (_, i) => `k${i}`);
    const start = ggufFile({ metadata: [], tensors: [], keyCount: keys.length });
    const handle = await open(file, 'w');
    let at = KEYS_AT;
    await handle.write(start, 0, at, 0);
    for (const key of keys) {
      // Before the text come the length of the key's name, the name, the type and the length of the text. The text itself is zeros.
      const entry = ggufFile({ metadata: [[key, 'text', '']], tensors: [] }).subarray(KEYS_AT);
      const keyBytes = 8 + key.length + 4 + 8;
      entry.writeBigUInt64LE(BigInt(textBytes), keyBytes - 8);
      await handle.write(entry, 0, keyBytes, at);
      at += keyBytes + textBytes;
    }
    await handle.truncate(at);
    await handle.close();
    assert.throws(() => readGgufHeader(file), {
      code: 'malformed-weights',
      message: /header has more than 268435456 bytes/,
    });
  });

  it('refuses unknown types, repeated names, lists of lists and bad alignments', async () => {
    const withType = (key: string, bytesAfterKey: number, type: number) => {
      const bytes = ggufFile(PARTS);
      bytes.writeUInt32LE(type, bytes.indexOf(key) + key.length + bytesAfterKey);
      return bytes;
    };
    await refuses(withType('a.bool', 0, 13), /"a\.bool" has the unknown type 13/);
    await refuses(withType('a.list', 4, 9), /"a\.list" is a list of type 9/);
    await refuses(ggufFile({ ...PARTS, metadata: [...METADATA, ['a.bool', 'bool', true]] }), /key "a\.bool" twice/);
    await refuses(ggufFile({ ...PARTS, tensors: [tensor('a'), tensor('a')] }), /tensor "a" twice/);
    await refuses(
      ggufFile({ ...PARTS, tensors: [tensor('a', { type: 16 })] }),
      /"a" has the type 16/,
      'unsupported-model',
    );
    await refuses(ggufFile({ ...PARTS, metadata: [['general.alignment', 'u32', 24]] }), /alignment is 24/);
    await refuses(ggufFile({ ...PARTS, metadata: [['general.alignment', 'u32', 0]] }), /alignment is 0/);
  });

  it('refuses tensors that lie outside of the file, overlap or cannot exist', async () => {
    const refusesTensor = (more: Partial<Tensor>, message: RegExp) =>
      refuses(ggufFile({ ...PARTS, tensors: [tensor('a'), tensor('b', more)] }), message);
    await refusesTensor({ offset: 96 }, /"b" has 64 bytes from byte \d+ of a file/);
    await refusesTensor({ offset: 2 ** 52 }, /"b" .* cannot be in the file/);
    await refusesTensor({ offset: 65 }, /"b" has 64 bytes/);
    await refusesTensor({ offset: 32 }, /"b" overlaps/);
    await refusesTensor({ offset: 0 }, /overlaps/);
    await refusesTensor({ shape: [2 ** 40, 2 ** 40] }, /cannot be in the file/);
    await refusesTensor({ shape: [0, 8] }, /cannot be in the file/);
    await refusesTensor({ shape: [] }, /0 dimensions/);
    await refusesTensor({ shape: [1, 1, 1, 1, 16] }, /5 dimensions/);
    // A block of 32 values never spans rows.
    await refusesTensor({ shape: [4, 16], type: 8, bytes: Buffer.alloc(68) }, /cannot be in the file/);
  });

  it('refuses a file that ends within its header; a changed byte causes no error but a ModelError', async () => {
    const whole = ggufFile(PARTS);
    // The tensors take 64 bytes, and 12 padded to 32.
    const headerBytes = whole.length - (64 + 32);
    await fc.assert(
      // If `byte` is null, the file ends before the offset `at`; otherwise `byte` replaces the byte at this offset.
      fc.asyncProperty(fc.nat(headerBytes - 1), fc.option(fc.nat(255)), async (at, byte) => {
        const bytes = byte === null ? whole.subarray(0, at) : Buffer.from(whole).fill(byte, at, at + 1);
        await writeFile(file, bytes);
        try {
          readGgufHeader(file);
          assert.notEqual(byte, null, 'a cut header is refused');
        } catch (error) {
          assert.ok(error instanceof ModelError, String(error));
        }
      }),
      { seed: 3, numRuns: 300 },
    );
  });
});
