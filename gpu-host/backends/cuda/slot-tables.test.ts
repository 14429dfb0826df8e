import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { SlotTables } from './slot-tables.ts';

const SLOTS = 8192;
const FREE = 0xffff_ffff;

/** A live sequence: the slots of its context so far. */
interface Live {
  list: number[];
}

/** A batch's change of the live sequences; `which` and `length` select by remainder. */
const change = fc.record({
  kind: fc.constantFrom('start', 'grow', 'grow', 'grow', 'fork', 'move', 'end', 'read', 'fail'),
  which: fc.nat(1000),
  length: fc.integer({ min: 1, max: 900 }),
  rows: fc.integer({ min: 1, max: 40 }),
});

/** The words of all tables on the device. `bring` writes the slots of a batch there, as `kernels/rows/rows.cu` does. */
class Device {
  readonly words = new Uint32Array(SLOTS).fill(FREE);
  brought = 0;

  bring(list: readonly number[], table: number, known: number): void {
    assert.ok(table >= 0 && table + list.length <= SLOTS, 'a table is within the words');
    this.words.set(list.slice(known), table + known);
    this.brought += list.length - known;
  }
}

test('after random schedules, every table equals the list built from scratch', () => {
  let asked = 0;
  let brought = 0;
  let placed = 0;
  fc.assert(
    fc.property(fc.array(change, { minLength: 20, maxLength: 160, size: 'max' }), (changes) => {
      const tables = new SlotTables(SLOTS);
      const device = new Device();
      const live: Live[] = [];
      // Slots of ended sequences are used again.
      const unused = Array.from({ length: 20_000 }, (_, i) => (i * 7919) % 20_000);
      const take = (count: number) => unused.splice(0, count);
      for (const { kind, which, length, rows } of changes) {
        const at = live.length === 0 ? 0 : which % live.length;
        const chosen = live[at];
        if (kind === 'start' && unused.length > 2000) live.push({ list: take(length) });
        else if (kind === 'fork' && chosen && unused.length > 2000)
          live.push({ list: [...chosen.list.slice(0, 1 + (length % chosen.list.length)), ...take(rows)] });
        else if (kind === 'move' && chosen) chosen.list[length % chosen.list.length] = take(1)[0] ?? 0;
        else if (kind === 'end' && chosen) unused.push(...(live.splice(at, 1)[0]?.list ?? []));
        tables.begin();
        const placedRanges: [number, number][] = [];
        for (const [i, sequence] of live.entries()) {
          // Some sequences wait.
          if ((which + i) % 5 === 0) continue;
          const context = Uint32Array.from(sequence.list);
          const reads = kind === 'read' && i === at;
          const own = i === at ? take(rows) : take(1);
          const writes = Uint32Array.from(reads ? [] : own);
          const place = tables.place(context, own.length, writes);
          const list = [...sequence.list, ...(reads ? own.map((_, j) => 30_000 + j) : own)];
          asked += list.length;
          if (place) {
            const { table, known } = place;
            assert.ok(known <= context.length, 'only slots of the context are known');
            device.bring(list, table, known);
            for (const [from, end] of placedRanges)
              assert.ok(end <= table || table + list.length <= from, 'tables of one batch are apart');
            placedRanges.push([table, table + list.length]);
            assert.deepEqual([...device.words.subarray(table, table + list.length)], list);
            placed++;
          } else device.brought += list.length;
          if (reads) unused.push(...own);
          else sequence.list = list;
        }
        if (kind === 'fail') {
          tables.clear();
          device.words.fill(FREE);
          assert.equal(tables.count, 0);
        }
      }
      brought += device.brought;
    }),
    { seed: 5, numRuns: 60 },
  );
  assert.ok(placed > 2000, `${placed} placed`);
  assert.ok(brought < asked / 2, `${brought} of ${asked} words brought`);
});

const listOf = (first: number, length: number) => Uint32Array.from({ length }, (_, i) => first + i);

test('a continued sequence brings only its new slots, until it outgrows its table', () => {
  const tables = new SlotTables(4096);
  let context = listOf(0, 1000);
  let brought = 0;
  for (let step = 0; step < 100; step++) {
    tables.begin();
    const place = tables.place(context, 1, Uint32Array.of(1000 + step));
    assert.ok(place);
    brought += context.length + 1 - place.known;
    context = Uint32Array.from([...context, 1000 + step]);
  }
  // The whole list at the first step and at 1,025 slots; one slot at every other step.
  assert.equal(brought, 1001 + 1025 + 98);
});

test('lists that batches stop using make room after some batches; lists in use are never evicted', () => {
  const tables = new SlotTables(4096);
  const place = (first: number) => tables.place(listOf(first, 1000), 1, Uint32Array.of(first + 1000));
  tables.begin();
  for (const first of [0, 2000, 4000, 6000]) assert.ok(place(first), String(first));
  for (let batch = 0; batch < 32; batch++) {
    tables.begin();
    assert.equal(place(8000), undefined, `batch ${batch}: all room is taken`);
    tables.place(listOf(0, 1001), 1, NONE);
    assert.equal(tables.count, 4);
  }
  tables.begin();
  assert.deepEqual(place(8000), { table: 1024, known: 0 }, 'in the room of the list that waited longest');
  assert.equal(tables.place(listOf(0, 1001), 1, NONE)?.known, 1001, 'the list in use has kept its table');
  assert.equal(tables.count, 4);
});

test('a sequence that keeps no keys takes no table; neither does a short list, nor one larger than all room', () => {
  const tables = new SlotTables(4096);
  tables.begin();
  assert.equal(tables.place(listOf(0, 1000), 1, NONE), undefined);
  assert.equal(tables.place(listOf(0, 127), 1, Uint32Array.of(127)), undefined);
  assert.equal(tables.place(listOf(0, 4096), 1, Uint32Array.of(4096)), undefined);
  assert.equal(tables.count, 0);
});

test('a list larger than all room evicts no other list', () => {
  const tables = new SlotTables(4096);
  tables.begin();
  tables.place(listOf(0, 1000), 1, Uint32Array.of(1000));
  for (let batch = 0; batch < 40; batch++) tables.begin();
  assert.equal(tables.place(listOf(2000, 5000), 1, Uint32Array.of(7000)), undefined);
  assert.equal(tables.count, 1);
});

test('two sequences of a batch never share a table', () => {
  const tables = new SlotTables(8192);
  tables.begin();
  assert.deepEqual(tables.place(listOf(0, 1000), 1, Uint32Array.of(1000)), { table: 0, known: 0 });
  // The second sequence reads what the first writes.
  assert.deepEqual(tables.place(listOf(0, 1001), 1, Uint32Array.of(2000)), { table: 1024, known: 0 });
  tables.begin();
  // Two sequences that only read the same list.
  assert.deepEqual(tables.place(listOf(0, 1001), 1, NONE), { table: 0, known: 1001 });
  assert.equal(tables.place(listOf(0, 1001), 1, NONE), undefined);
});

test('the freed room of small tables serves large tables, and the reverse', () => {
  const tables = new SlotTables(4096 + 512);
  const fill = (length: number, count: number) => {
    for (let batch = 0; batch < 40; batch++) tables.begin();
    const starts = Array.from({ length: count }, (_, i) => {
      const first = 10_000 * i + length;
      return tables.place(listOf(first, length), 1, Uint32Array.of(first + length))?.table ?? -1;
    });
    return starts.sort((a, b) => a - b);
  };
  const all = (size: number) => Array.from({ length: 4608 / size }, (_, i) => i * size);
  for (let round = 0; round < 2; round++) {
    assert.deepEqual(fill(200, 18), all(256));
    assert.deepEqual(fill(4000, 1), [0]);
    assert.deepEqual(fill(500, 9), all(512));
  }
});

const NONE = new Uint32Array(0);
