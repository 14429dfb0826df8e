import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { applyHeap, decodeHeap, encodeHeap, HEAP_BLOCK_BYTES, HeapError, heapBetween, MAX_HEAP_PAGES } from './heap.ts';

const PAGE = 65_536;
const ENGINE = 'ab'.repeat(32);
/** Offset of the words of the header: pages before, pages after, number of runs; the list of runs follows. */
const WORDS = 40;

const memoryOf = (bytes: Uint8Array, maximum: number): WebAssembly.Memory => {
  const memory = new WebAssembly.Memory({ initial: bytes.length / PAGE, maximum });
  new Uint8Array(memory.buffer).set(bytes);
  return memory;
};

const writes = fc.array(fc.record({ at: fc.nat(3 * PAGE - 1), value: fc.nat(255) }), { maxLength: 40 });

/** A small heap, encoded: blocks 1 and 2 and the last block of three pages. */
function example(): Buffer {
  const after = new Uint8Array(3 * PAGE);
  for (const at of [HEAP_BLOCK_BYTES, 2 * HEAP_BLOCK_BYTES, after.length - 1]) after[at] = 1;
  return encodeHeap(heapBetween(ENGINE, new Uint8Array(2 * PAGE), after));
}

test('a memory with the heap applied equals the memory after the evaluation', () => {
  fc.assert(
    fc.property(writes, writes, (base, later) => {
      const before = new Uint8Array(2 * PAGE);
      for (const { at, value } of base) if (at < before.length) before[at] = value;
      const after = new Uint8Array(3 * PAGE);
      after.set(before);
      for (const { at, value } of later) after[at] = value;
      const memory = memoryOf(before, 3);
      applyHeap(decodeHeap(encodeHeap(heapBetween(ENGINE, before, after)), ENGINE), memory);
      assert.ok(Buffer.from(memory.buffer).equals(after));
    }),
    { numRuns: 50 },
  );
});

test('a forged heap is refused, or is itself a heap within its bounds', () => {
  const mutation = fc.record({ at: fc.nat(), value: fc.nat(255), cut: fc.option(fc.nat(), { freq: 8 }) });
  fc.assert(
    fc.property(fc.array(mutation, { minLength: 1, maxLength: 4 }), fc.boolean(), (mutations, inHeader) => {
      let data = example();
      const header = WORDS + 12 + 16;
      for (const { at, value, cut } of mutations) {
        if (cut !== null) data = data.subarray(0, cut % (data.length + 1));
        if (data.length > 0) data[at % (inHeader ? Math.min(header, data.length) : data.length)] = value;
      }
      try {
        const heap = decodeHeap(data, ENGINE);
        assert.ok(heap.runs.every(({ at, bytes }) => at + bytes.length <= heap.pages * PAGE));
        // Each heap has one encoding.
        assert.ok(encodeHeap(heap).equals(data));
      } catch (error) {
        assert.ok(error instanceof HeapError, String(error));
      }
    }),
    { numRuns: 300 },
  );
});

for (const [what, word, value, message] of [
  ['fewer pages than the engine', 1, 1, /cannot grow/],
  ['too many pages', 1, MAX_HEAP_PAGES + 1, /cannot grow/],
  ['a run behind its memory', 5, 3 * 128, /outside of its bounds/],
  ['an empty run', 4, 0, /outside of its bounds/],
  ['runs in the wrong order', 5, 0, /outside of its bounds/],
  ['runs that touch each other', 5, 3, /outside of its bounds/],
  ['more runs than bytes', 2, 0xffffffff, /list of/],
  ['a run longer than the data', 6, 0xffffffff, /outside of its bounds/],
] as const) {
  test(`a heap with ${what} is refused`, () => {
    const data = example();
    data.writeUInt32LE(value, WORDS + 4 * word);
    assert.throws(() => decodeHeap(data, ENGINE), message);
  });
}

test('a heap of another engine, with other bytes behind it, or for another memory is refused', () => {
  const data = example();
  assert.throws(() => decodeHeap(data, 'cd'.repeat(32)), /is for the engine/);
  assert.throws(() => decodeHeap(Buffer.concat([data, Buffer.of(0)]), ENGINE), /1 bytes follow/);
  assert.throws(() => decodeHeap(Buffer.from('hello'), ENGINE), /no heap/);
  const heap = decodeHeap(data, ENGINE);
  assert.throws(() => applyHeap(heap, memoryOf(new Uint8Array(PAGE), 3)), /of 2 pages, not of 1/);
  assert.throws(() => applyHeap(heap, memoryOf(new Uint8Array(2 * PAGE), 2)), /cannot grow to the 3 pages/);
});
