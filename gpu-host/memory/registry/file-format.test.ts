import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import {
  type ByteReader,
  decodeHeader,
  FileDamage,
  FileHead,
  type FileHeader,
  fileSize,
  openStored,
  type StoredFile,
} from './stored.ts';
import { contentsOf, PAGE_BYTES, PAGE_SIZE, snapshotOf, type TestSnapshot } from './testing/page-memory.ts';

const header = (snapshot: TestSnapshot): FileHeader => ({
  tenant: 'tenant',
  name: 'a/name',
  file: { owner: 'function', rights: 'readable' },
  fingerprint: { name: 'model', hash: 'abc' },
  pageSize: PAGE_SIZE,
  pageBytes: PAGE_BYTES,
  pages: snapshot.pages.length,
  tokens: snapshot.tokens,
  nextPosition: snapshot.nextPosition,
});

async function encode(snapshot: TestSnapshot, head = new FileHead(header(snapshot))): Promise<Buffer> {
  for (const [i, { page, masked }] of snapshot.pages.entries()) {
    head.setPage(i, { filled: page.filled, positions: page.positions, masked });
    await head.setData(i, page.content);
  }
  const bytes = await head.seal();
  assert.equal(bytes.length, head.dataOffset);
  return Buffer.concat([bytes, ...snapshot.pages.map(({ page }) => page.content)]);
}

const readerOf =
  (bytes: Buffer): ByteReader =>
  (offset, length) => {
    if (offset + length > bytes.length) throw new FileDamage('it ends early');
    return Buffer.from(bytes.subarray(offset, offset + length));
  };

const openBytes = (bytes: Buffer): Promise<StoredFile> =>
  openStored(async (offset, into) => {
    into.set(readerOf(bytes)(offset, into.length));
  }, bytes.length);

/** Reads the whole file, two pages at a time. */
async function decode(bytes: Buffer): Promise<{ header: FileHeader; snapshot: TestSnapshot }> {
  const file = await openBytes(bytes);
  const { pages: count, tokens, nextPosition } = file.header;
  const data = new Uint8Array(count * PAGE_BYTES);
  for (let first = 0; first < count; first += 2) {
    await file.readPages(first, data.subarray(first * PAGE_BYTES, Math.min(first + 2, count) * PAGE_BYTES));
  }
  const pages = Array.from({ length: count }, (_, index) => {
    const { filled, masked, positions } = file.pageAt(index);
    const content = data.slice(index * PAGE_BYTES, (index + 1) * PAGE_BYTES);
    return { page: { references: 0, filled, positions, content }, masked };
  });
  return { header: file.header, snapshot: { pages, tokens, nextPosition } };
}

test('a snapshot file gives back what was written, bit for bit', async () => {
  for (const pages of [0, 1, 3]) {
    const snapshot = snapshotOf(pages + 7, pages);
    const bytes = await encode(snapshot);
    const back = await decode(bytes);
    assert.deepEqual(back.header, header(snapshot));
    assert.deepEqual(decodeHeader(readerOf(bytes), bytes.length), header(snapshot));
    assert.deepEqual(contentsOf(back.snapshot), contentsOf(snapshot));
    const json = JSON.stringify(header(snapshot)).length;
    assert.equal(bytes.length, json + fileSize(pages, { pageSize: PAGE_SIZE, pageBytes: PAGE_BYTES }));
  }
});

test('a snapshot file has the layout of files that earlier hosts have written', async () => {
  const snapshot = snapshotOf(5, 2);
  const sha256 = (...parts: Uint8Array[]) => createHash('sha256').update(Buffer.concat(parts)).digest();
  const u32 = (...values: number[]) => {
    const bytes = new DataView(new ArrayBuffer(values.length * 4));
    for (const [i, value] of values.entries()) bytes.setUint32(i * 4, value, true);
    return new Uint8Array(bytes.buffer);
  };
  const json = Buffer.from(JSON.stringify(header(snapshot)));
  const start = Buffer.concat([Buffer.from('PIEKVSN\n'), u32(1, json.length), json]);
  const table = snapshot.pages.flatMap(({ page, masked }) => [
    u32(page.filled, masked, ...page.positions),
    sha256(page.content),
  ]);
  const data = snapshot.pages.map(({ page }) => page.content);
  const expected = Buffer.concat([start, sha256(start), ...table, sha256(sha256(start), ...table), ...data]);
  assert.deepEqual(await encode(snapshot), expected);
});

test('a header of the maximum length is read, and the refusal of a truncated file names the byte before which it ends', async () => {
  const snapshot = snapshotOf(3, 1);
  const short = header(snapshot);
  const length = JSON.stringify(short).length;
  const maxLength = 64 * 1024;
  const longest = { ...short, name: short.name.padEnd(short.name.length + maxLength - length, 'n') };
  const bytes = await encode(snapshot, new FileHead(longest));
  assert.deepEqual((await decode(bytes)).header, longest);
  assert.throws(() => new FileHead({ ...longest, name: `${longest.name}n` }), RangeError);
  // Cuts the last byte of the header's checksum: 16 bytes precede the header's JSON, and the 32 bytes of the checksum follow it.
  const cut = (await encode(snapshot)).subarray(0, 16 + length + 31);
  await assert.rejects(openBytes(cut), new FileDamage(`it ends before byte ${16 + length + 32}`));
});

test('a file with a changed byte or another length is refused as damaged', async () => {
  const bytes = await encode(snapshotOf(3, 2));
  for (let i = 0; i < bytes.length; i++) {
    const changed = Buffer.from(bytes);
    changed[i] = (changed[i] as number) ^ (1 << (i % 8));
    await assert.rejects(decode(changed), FileDamage, `byte ${i}`);
  }
  for (let length = 0; length < bytes.length; length++) {
    await assert.rejects(decode(bytes.subarray(0, length)), FileDamage, `${length} bytes`);
    assert.throws(() => decodeHeader(readerOf(bytes.subarray(0, length)), length), FileDamage, `${length} bytes`);
  }
  await assert.rejects(decode(Buffer.concat([bytes, Buffer.alloc(1)])), FileDamage);
});

test('the refusal of a file in another format names the format', async () => {
  const bytes = await encode(snapshotOf(3, 1));
  // The version follows the 8 bytes of the magic.
  bytes.writeUInt32LE(2, 8);
  await assert.rejects(decode(bytes), /it has format 2, and this host reads format 1/);
  await assert.rejects(decode(Buffer.from('not a snapshot at all')), /it does not begin like a snapshot/);
});

test('a file with two swapped pages is refused as damaged', async () => {
  const bytes = await encode(snapshotOf(3, 2));
  const first = bytes.subarray(bytes.length - 2 * PAGE_BYTES, bytes.length - PAGE_BYTES);
  const second = bytes.subarray(bytes.length - PAGE_BYTES);
  const swapped = Buffer.concat([bytes.subarray(0, bytes.length - 2 * PAGE_BYTES), second, first]);
  await assert.rejects(decode(swapped), /checksum of page 0/);
});

test('a read past the last page, or of a part of a page, is refused', async () => {
  const bytes = await encode(snapshotOf(3, 1));
  const file = await openBytes(bytes);
  assert.throws(() => file.pageAt(1), RangeError);
  await assert.rejects(file.readPages(1, new Uint8Array(PAGE_BYTES)), RangeError);
  await assert.rejects(file.readPages(0, new Uint8Array(PAGE_BYTES - 1)), RangeError);
});
