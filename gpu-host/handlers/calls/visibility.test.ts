import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { DeviceMemory } from '../../memory/device-memory.ts';
import type { CallFault } from '../../memory/fault.ts';
import { fillSlot } from '../../memory/pool.ts';
import type { PageSpace } from '../../memory/space.ts';
import type { Mask } from '../../protocol/calls.ts';
import { encodeMask } from '../../testing/mask.ts';
import { gatherContext, matrixRows, visibility } from './visibility.ts';

const PAGE_SIZE = 4;
/** Elements that a context leaves for the slots of inputs. */
const ROOM = 3;

interface Slot {
  filled: boolean;
  masked: boolean;
  position: number;
}

/** Pages at addresses 1, 2, … with the given slots. */
function makePages(pages: readonly (readonly Slot[])[]): PageSpace {
  const memory = new DeviceMemory({
    pageSize: PAGE_SIZE,
    pageCount: pages.length + 1,
    device: { pageBytes: 1, copySlots: () => {}, readPage: () => {}, writePage: () => {} },
    prefixCache: false,
    swap: undefined,
    rotates: true,
    terminate: () => {},
  });
  const space = memory.openSpace({ id: 'x', tenant: 't', arrival: 0, maxPages: pages.length + 1 });
  space.allocate(1, pages.length);
  for (const [i, slots] of pages.entries()) {
    const { page } = space.mapping(i + 1);
    let masked = 0;
    for (const [slot, { filled, masked: hidden, position }] of slots.entries()) {
      if (filled) fillSlot(page, slot, position);
      if (hidden) masked |= 1 << slot;
    }
    space.mask(i + 1, masked);
  }
  return space;
}

const slot = fc.record({ filled: fc.boolean(), masked: fc.boolean(), position: fc.nat({ max: 12 }) });
const page = fc.array(slot, { minLength: PAGE_SIZE, maxLength: PAGE_SIZE });
const setup = fc.record({
  pages: fc.array(page, { minLength: 1, maxLength: 4 }),
  positions: fc.array(fc.nat({ max: 14 }), { minLength: 1, maxLength: 5 }),
});

/** Every visible key of the context: its position, its slot in the pool, and its column among all filled slots. */
function keysOf(pages: readonly (readonly Slot[])[]): { position: number; physical: number; column: number }[] {
  const keys: { position: number; physical: number; column: number }[] = [];
  let column = 0;
  for (const [i, slots] of pages.entries()) {
    for (const [at, { filled, masked, position }] of slots.entries()) {
      if (!filled) continue;
      // The pool hands out pages from index 0 on.
      if (!masked) keys.push({ position, physical: i * PAGE_SIZE + at, column });
      column++;
    }
  }
  return keys;
}

function dense(matrix: Uint8Array | 'causal', inputs: number, context: number): number[][] {
  const width = context + inputs;
  const isVisible = (i: number, k: number): number =>
    matrix === 'causal' ? Number(k <= context + i) : matrix[i * width + k]!;
  return Array.from({ length: inputs }, (_, i) => Array.from({ length: width }, (_, k) => isVisible(i, k)));
}

test('without an explicit mask, a query sees the keys at smaller positions and its own key', () => {
  let causal = 0;
  fc.assert(
    fc.property(setup, fc.boolean(), ({ pages, positions }, ascending) => {
      const inputs = Uint32Array.from(ascending ? [...positions].sort((a, b) => a - b) : positions);
      const space = makePages(pages);
      const addresses = Uint32Array.from(pages, (_, i) => i + 1);
      const context = gatherContext(space, space.takePages(addresses, undefined), Math.min(...inputs), ROOM, false);
      const keys = keysOf(pages);
      assert.deepEqual(
        [...context.slots.subarray(0, context.count)],
        keys.map((key) => key.physical),
      );
      assert.ok(context.slots.length >= context.count + ROOM);
      const matrix = visibility(inputs, context, undefined);
      if (matrix === 'causal') causal++;
      const expected = Array.from(inputs, (query, i) => [
        ...keys.map((key) => (key.position < query ? 1 : 0)),
        ...Array.from(inputs, (position, j) => (i === j || position < query ? 1 : 0)),
      ]);
      assert.deepEqual(dense(matrix, inputs.length, context.count), expected);
    }),
    { seed: 11, numRuns: 1500 },
  );
  assert.ok(causal > 20, 'some cases needed no matrix');
});

test('the columns of an explicit mask are filled slots, then inputs; masked slots stay hidden', () => {
  fc.assert(
    fc.property(setup, fc.infiniteStream(fc.boolean()), ({ pages, positions }, bits) => {
      const inputs = Uint32Array.from(positions);
      const filled = pages.flat().filter((one) => one.filled).length;
      const rows = positions.map((_, i) => {
        const row = Array.from({ length: filled + positions.length }, () => (bits.next().value ? 1 : 0));
        row[filled + i] = 1;
        return row;
      });
      const space = makePages(pages);
      const addresses = Uint32Array.from(pages, (_, i) => i + 1);
      const context = gatherContext(space, space.takePages(addresses, undefined), 0, 0, true);
      const matrix = visibility(inputs, context, encodeMask(rows));
      const keys = keysOf(pages);
      const expected = rows.map((row) => [...keys.map((key) => row[key.column]!), ...row.slice(filled)]);
      assert.deepEqual(dense(matrix, inputs.length, context.count), expected);
    }),
    { seed: 12, numRuns: 800 },
  );
});

test('masks of the wrong shape are refused with the reason', () => {
  const space = makePages([[{ filled: true, masked: false, position: 0 }]]);
  const context = gatherContext(space, space.takePages(Uint32Array.of(1), undefined), 5, 0, true);
  const mask = (runs: number[], rowLengths: number[]): Mask => ({
    runs: Uint32Array.from(runs),
    rowLengths: Uint32Array.from(rowLengths),
  });
  const bad: [Mask, RegExp][] = [
    [mask([0, 2], [2]), /1 rows and the call 2 inputs/],
    [mask([0, 3, 0], [2, 2]), /row 1 claims 2 runs; fewer are left/],
    [mask([0, 4, 0, 3], [2, 2]), /row 0 is wider/],
    [mask([0, 2, 0, 3], [2, 2]), /row 0 covers 2 of 1 slots and 2 inputs/],
    [mask([3, 0, 3], [1, 2]), /row 0 hides every key/],
    [mask([0, 3, 0, 3, 7], [2, 2]), /1 runs past its last row/],
  ];
  for (const [given, message] of bad) {
    assert.throws(
      () => visibility(Uint32Array.of(5, 6), context, given),
      (error: CallFault) => {
        assert.equal(error.error.tag, 'invalid-argument');
        assert.match(error.message, message);
        return true;
      },
    );
  }
});

test('an invalid mask is refused before its matrix is allocated', () => {
  const space = makePages([[{ filled: true, masked: true, position: 0 }]]);
  const inputs = 8000;
  const context = gatherContext(space, space.takePages(Uint32Array.of(1), undefined), 5, 0, true);
  const positions = Uint32Array.from({ length: inputs }, (_, i) => 5 + i);
  // Each row hides 0 keys, then shows all.
  const rows = [...positions.keys().flatMap(() => [0, inputs + 1])];
  const rowLengths = new Uint32Array(inputs).fill(2);
  const surplus = { runs: Uint32Array.from([...rows, 1]), rowLengths };
  // The last row shows only the masked slot, and hides all inputs.
  const hiding = { runs: Uint32Array.from([...rows.slice(0, -2), 0, 1, inputs]), rowLengths: rowLengths.slice() };
  hiding.rowLengths[inputs - 1] = 3;
  const before = process.memoryUsage().arrayBuffers;
  assert.throws(() => visibility(positions, context, surplus), /1 runs past its last row/);
  assert.throws(() => visibility(positions, context, hiding), /row 7999 hides every key/);
  const allocatedBytes = process.memoryUsage().arrayBuffers - before;
  assert.ok(allocatedBytes < (inputs * inputs) / 2, `${allocatedBytes} bytes`);
});

test('the matrix rows of a part have the inputs before the part as context', () => {
  // Three inputs over two context slots: three rows of five keys.
  const matrix = Uint8Array.from([1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 1]);
  assert.deepEqual([...matrixRows(matrix, 3, 2, 1, 3)], [1, 1, 0, 1, 0, 0, 1, 1, 1, 1]);
  assert.deepEqual([...matrixRows(matrix, 3, 2, 0, 1)], [1, 0, 1]);
  assert.equal(matrixRows(matrix, 3, 2, 0, 3), matrix);
});
