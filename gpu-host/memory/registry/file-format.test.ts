import assert from 'node:assert/strict';
import test from 'node:test';
import {
  type ByteReader,
  decodeFile,
  decodeHeader,
  encodeFile,
  FileDamage,
  type FileHeader,
  fileSize,
} from './file-format.ts';
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

async function encoded(snapshot: TestSnapshot): Promise<Buffer> {
  const pages = snapshot.pages.map(({ page, masked }) => ({ filled: page.filled, positions: page.positions, masked }));
  const data = snapshot.pages.map(({ page }) => page.content);
  return Buffer.concat(await encodeFile(header(snapshot), pages, data));
}

const readerOf =
  (bytes: Buffer): ByteReader =>
  (offset, length) => {
    if (offset + length > bytes.length) throw new FileDamage('it ends early');
    return Buffer.from(bytes.subarray(offset, offset + length));
  };

/** Reads the whole file. */
function decoded(bytes: Buffer): { header: FileHeader; snapshot: TestSnapshot } {
  const file = decodeFile(readerOf(bytes), bytes.length);
  const pages = file.pages.map(({ filled, masked, positions }, index) => {
    const content = new Uint8Array(PAGE_BYTES);
    file.readPage(index, content);
    return { page: { references: 0, filled, positions, content }, masked };
  });
  const { tokens, nextPosition } = file.header;
  return { header: file.header, snapshot: { pages, tokens, nextPosition } };
}

test('gives back what was written, bit for bit', async () => {
  for (const pages of [0, 1, 3]) {
    const snapshot = snapshotOf(pages + 7, pages);
    const bytes = await encoded(snapshot);
    const back = decoded(bytes);
    assert.deepEqual(back.header, header(snapshot));
    assert.deepEqual(decodeHeader(readerOf(bytes), bytes.length), header(snapshot));
    assert.deepEqual(contentsOf(back.snapshot), contentsOf(snapshot));
    const json = JSON.stringify(header(snapshot)).length;
    assert.equal(bytes.length, json + fileSize(pages, { pageSize: PAGE_SIZE, pageBytes: PAGE_BYTES }));
  }
});

test('finds every changed byte and every other length', async () => {
  const bytes = await encoded(snapshotOf(3, 2));
  for (let i = 0; i < bytes.length; i++) {
    const changed = Buffer.from(bytes);
    changed[i] = (changed[i] as number) ^ (1 << (i % 8));
    assert.throws(() => decoded(changed), FileDamage, `byte ${i}`);
  }
  for (let length = 0; length < bytes.length; length++) {
    assert.throws(() => decoded(bytes.subarray(0, length)), FileDamage, `${length} bytes`);
    assert.throws(() => decodeHeader(readerOf(bytes.subarray(0, length)), length), FileDamage, `${length} bytes`);
  }
  assert.throws(() => decoded(Buffer.concat([bytes, Buffer.alloc(1)])), FileDamage);
});

test('says which format it is of when it is of another', async () => {
  const bytes = await encoded(snapshotOf(3, 1));
  bytes.writeUInt32LE(2, 8);
  assert.throws(() => decoded(bytes), /it is of format 2, this host reads 1/);
  assert.throws(() => decoded(Buffer.from('not a snapshot at all')), /does not begin as a snapshot does/);
});

test('two pages that changed places are found out', async () => {
  const bytes = await encoded(snapshotOf(3, 2));
  const first = bytes.subarray(bytes.length - 2 * PAGE_BYTES, bytes.length - PAGE_BYTES);
  const second = bytes.subarray(bytes.length - PAGE_BYTES);
  const swapped = Buffer.concat([bytes.subarray(0, bytes.length - 2 * PAGE_BYTES), second, first]);
  assert.throws(() => decoded(swapped), /checksum of page 0/);
});

test('refuses a page that is not there', async () => {
  const bytes = await encoded(snapshotOf(3, 1));
  const file = decodeFile(readerOf(bytes), bytes.length);
  assert.throws(() => file.readPage(1, new Uint8Array(PAGE_BYTES)), RangeError);
  assert.throws(() => file.readPage(0, new Uint8Array(PAGE_BYTES - 1)), RangeError);
});
