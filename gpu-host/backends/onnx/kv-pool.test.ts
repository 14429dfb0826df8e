import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type ModelConfig, plainTraits } from '#gpu-host/models/config.ts';
import { KvPool } from './kv-pool.ts';

const CONFIG = {
  ...plainTraits(2),
  layers: 2,
  kvHeads: 1,
  headDim: 2,
  ropeTheta: 10_000,
  ropeScaling: null,
} as unknown as ModelConfig;
/** Slots of a page. */
const PAGE = 4;
/** Slots of all pages. The pool's null slot follows them. */
const SLOTS = 12;

/** The keys or values of a slot. Planes with even numbers hold keys, those with odd numbers values. */
function row(pool: KvPool, plane: number, slot: number): number[] {
  const start = (plane * pool.slotCount + slot) * pool.rowSize;
  return [...pool.data.subarray(start, start + pool.rowSize)];
}

test('stored rows land in their slots of every plane, and the null slot stays zero', () => {
  const slots = fc.shuffledSubarray(Array.from({ length: SLOTS }, (_, i) => i));
  const property = fc.property(slots, fc.nat(3), (chosen, firstInput) => {
    const pool = new KvPool(CONFIG, PAGE, SLOTS / PAGE);
    // Inputs of other sequences surround those that are stored: `firstInput` of them come before, and one after.
    const inputs = firstInput + chosen.length + 1;
    const newKv = Float32Array.from({ length: pool.planes * inputs * pool.rowSize }, (_, i) => i + 1);
    pool.store(newKv, inputs, firstInput, Uint32Array.from(chosen));
    for (let plane = 0; plane < pool.planes; plane++) {
      for (let slot = 0; slot <= pool.nullSlot; slot++) {
        const at = chosen.indexOf(slot);
        const start = (plane * inputs + firstInput + at) * pool.rowSize;
        const expected = at < 0 ? [0, 0] : [...newKv.subarray(start, start + pool.rowSize)];
        assert.deepEqual(row(pool, plane, slot), expected);
      }
    }
  });
  fc.assert(property, { seed: 5, numRuns: 100 });
});

test('copies read every source before they write', () => {
  const anySlot = fc.nat(SLOTS - 1);
  const destinations = fc.shuffledSubarray(Array.from({ length: SLOTS }, (_, i) => i));
  const property = fc.property(destinations, fc.array(anySlot, { minLength: SLOTS, maxLength: SLOTS }), (to, from) => {
    const pool = new KvPool(CONFIG, PAGE, SLOTS / PAGE);
    pool.data.forEach((_, i) => {
      pool.data[i] = i;
    });
    const unchanged = new KvPool(CONFIG, PAGE, SLOTS / PAGE);
    unchanged.data.set(pool.data);
    pool.copy(Uint32Array.from(from.slice(0, to.length)), Uint32Array.from(to));
    for (let plane = 0; plane < pool.planes; plane++) {
      for (let slot = 0; slot < SLOTS; slot++) {
        const at = to.indexOf(slot);
        assert.deepEqual(row(pool, plane, slot), row(unchanged, plane, at < 0 ? slot : from[at]));
      }
    }
  });
  fc.assert(property, { seed: 6, numRuns: 100 });
});

test('a page that was read is written to another page, and no other slot changes', () => {
  const pool = new KvPool(CONFIG, PAGE, SLOTS / PAGE);
  pool.data.forEach((_, i) => {
    pool.data[i] = i;
  });
  const unchanged = new KvPool(CONFIG, PAGE, SLOTS / PAGE);
  unchanged.data.set(pool.data);
  const bytes = new Uint8Array(pool.pageBytes);
  pool.readPage(0, bytes);
  pool.writePage(2, bytes);
  for (let plane = 0; plane < pool.planes; plane++) {
    for (let slot = 0; slot <= pool.nullSlot; slot++) {
      const source = Math.floor(slot / PAGE) === 2 ? slot - 2 * PAGE : slot;
      assert.deepEqual(row(pool, plane, slot), row(unchanged, plane, source));
    }
  }
});

test('shifts rotate keys and not values, each key by its own shift', () => {
  const pool = new KvPool(CONFIG, PAGE, SLOTS / PAGE);
  for (let plane = 0; plane < pool.planes; plane++) {
    // The sources of the copies, with [1, 0] as keys and as values.
    for (const slot of [0, 1]) pool.data[(plane * pool.slotCount + slot) * pool.rowSize] = 1;
  }
  pool.copy(Uint32Array.of(0, 0, 1), Uint32Array.of(4, 5, 6), Int32Array.of(0, 3, -2));
  for (let plane = 0; plane < pool.planes; plane++) {
    // A head of dimension 2 has one frequency, 1: a shift turns its key by as many radians.
    const turned = (shift: number) => (plane % 2 === 0 ? [Math.cos(shift), Math.sin(shift)] : [1, 0]).map(Math.fround);
    assert.deepEqual(row(pool, plane, 4), [1, 0]);
    assert.deepEqual(row(pool, plane, 5), turned(3));
    assert.deepEqual(row(pool, plane, 6), turned(-2));
    assert.deepEqual(row(pool, plane, 0), [1, 0]);
  }
});
