import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ModelConfig, plainTraits } from '#gpu-host/models/config.ts';
import type { SequenceInput } from '../backend.ts';
import { Random, range } from '../testing/scenario.ts';
import { KvPool } from './kv-pool.ts';
import type { RunCosts } from './packing.ts';
import { SEGMENT_SLOTS } from './packing.ts';
import { separateRows } from './rows.ts';
import { type FoundSegments, KvSegments, segmentInput } from './segments.ts';

const CONFIG = {
  ...plainTraits(2),
  layers: 1,
  kvHeads: 2,
  headDim: 2,
  ropeTheta: 10_000,
  ropeScaling: null,
} as unknown as ModelConfig;
const PAGE = 16;
const PAGES = 24;
/** Only gathering costs anything, so every step wants segments. */
const COSTS = { perColumn: 1, perSegmentRun: 0, perSegment: 0 } as RunCosts;
/** Enough batches without a reader for the removal of a segment; `KvSegments` keeps an unread one for 8. */
const PATIENCE = 10;

function sequenceOf(context: Uint32Array, writes: Uint32Array, mask: SequenceInput['mask'] = 'causal'): SequenceInput {
  return {
    inputs: { kind: 'tokens', tokens: new Uint32Array(writes.length) },
    positions: range(context.length, context.length + writes.length),
    context,
    mask,
    writes,
    output: { kind: 'none' },
  };
}

/** The pool, its segments, and batches as the backend would run them. */
function setUp() {
  const pool = new KvPool(CONFIG, PAGE, PAGES);
  const segments = new KvSegments(CONFIG, pool, COSTS);
  let next = 1;
  const run = (batch: readonly SequenceInput[]): FoundSegments | null => {
    const found = segments.find(batch);
    if (found !== null) check(pool, segments, batch, found);
    for (const { writes } of batch) {
      pool.store(
        Float32Array.from({ length: 2 * 4 * writes.length }, () => next++),
        writes.length,
        0,
        writes,
      );
    }
    segments.learn(batch, found, [separateRows(batch, [...batch.keys()])]);
    return found;
  };
  return { pool, segments, run };
}

/** Asserts that every found segment has the pool's keys and values, and that no two sequences have the same segment. */
function check(
  pool: KvPool,
  segments: KvSegments,
  batch: readonly SequenceInput[],
  { bySequence, count }: FoundSegments,
): void {
  const { kvHeads, headDim } = CONFIG;
  const feeds = segments.feeds(true);
  let wrong = 0;
  const all = bySequence.flat();
  assert.equal(new Set(all).size, all.length);
  assert.ok(all.every((segment) => segment < count));
  assert.ok(count <= (PAGE * PAGES) / SEGMENT_SLOTS);
  batch.forEach(({ context }, index) => {
    bySequence[index].forEach((segment, place) => {
      for (let plane = 0; plane < pool.planes; plane++) {
        const data = feeds[segmentInput(plane)].data as Float32Array;
        for (let i = 0; i < SEGMENT_SLOTS; i++) {
          for (let head = 0; head < kvHeads; head++) {
            const at = ((segment * kvHeads + head) * SEGMENT_SLOTS + i) * headDim;
            const slot = context[place * SEGMENT_SLOTS + i];
            const row = (plane * pool.slotCount + slot) * pool.rowSize + head * headDim;
            for (let d = 0; d < headDim; d++) if (data[at + d] !== pool.data[row + d]) wrong++;
          }
        }
      }
    });
  });
  assert.equal(wrong, 0);
}

/** Prefills `prompt` slots, then decodes `steps` steps. Returns the number of segments that the last step found. */
function decode({ run }: ReturnType<typeof setUp>, slots: Uint32Array, prompt: number, steps: number): number {
  run([sequenceOf(new Uint32Array(0), slots.slice(0, prompt))]);
  let found: FoundSegments | null = null;
  for (let at = prompt; at < prompt + steps; at++) {
    found = run([sequenceOf(slots.slice(0, at), slots.slice(at, at + 1))]);
  }
  return found?.bySequence[0].length ?? 0;
}

test('the second step after a prefill finds all whole segments of the prompt, and later steps find those that have become whole since', () => {
  const slots = new Random(1).permutation(PAGE * PAGES);
  // A segment has 32 slots: 70 slots have two whole segments, and 109 slots three.
  assert.equal(decode(setUp(), slots, 70, 1), 0);
  assert.equal(decode(setUp(), slots, 70, 2), 2);
  assert.equal(decode(setUp(), slots, 70, 40), 3);
});

test('a context whose beginning moves at every step fills no segments', () => {
  const { run, segments } = setUp();
  const slots = new Random(2).permutation(PAGE * PAGES);
  run([sequenceOf(new Uint32Array(0), slots.slice(0, 100))]);
  for (let at = 100; at < 300; at++) run([sequenceOf(slots.slice(at - 100, at), slots.slice(at, at + 1))]);
  assert.equal(segments.count, 0);
});

test('any write to a slot invalidates its segment', () => {
  const slots = range(0, PAGE * PAGES);
  // Each change writes slot 40, which lies in the second of three segments, so that only the first is found.
  const changes: Record<string, (pool: KvPool) => void> = {
    store: (pool) => pool.store(new Float32Array(8), 1, 0, Uint32Array.of(40)),
    copy: (pool) => pool.copy(Uint32Array.of(300), Uint32Array.of(40)),
    page: (pool) => pool.writePage(2, new Uint8Array(pool.pageBytes)),
  };
  for (const [name, change] of Object.entries(changes)) {
    const fixture = setUp();
    assert.equal(decode(fixture, slots, 100, 3), 3);
    change(fixture.pool);
    const found = fixture.run([sequenceOf(slots.slice(0, 103), slots.slice(103, 104))]);
    assert.equal(found?.bySequence[0].length, 1, name);
  }
});

test('sequences with explicit masks use no segments', () => {
  const fixture = setUp();
  const slots = range(0, PAGE * PAGES);
  decode(fixture, slots, 100, 3);
  const mask = new Uint8Array(104).fill(1);
  assert.equal(fixture.run([sequenceOf(slots.slice(0, 103), slots.slice(103, 104), mask)]), null);
});

test('segments that no batch uses are removed, and the others are compacted', () => {
  const random = new Random(3);
  for (let history = 0; history < 20; history++) {
    const { run, segments } = setUp();
    const pages = [...random.permutation(PAGES)];
    let sequences: { pages: number[]; length: number }[] = [];
    for (let batch = 0; batch < 120; batch++) {
      if (random.next() < 0.1) {
        const [removed] = sequences.splice(random.below(sequences.length + 1), 1);
        if (removed !== undefined) pages.unshift(...removed.pages);
      }
      sequences = sequences.filter(({ pages: ownPages, length }) => {
        const isFull = length >= ownPages.length * PAGE;
        if (isFull) pages.unshift(...ownPages);
        return !isFull;
      });
      if (random.next() < 0.2 && pages.length >= 8) sequences.push({ pages: pages.splice(0, 8), length: 0 });
      const inputs = sequences.filter(() => random.next() < 0.9);
      const inputBatch = inputs.map((each) => {
        const slots = each.pages.flatMap((page) => [...range(page * PAGE, (page + 1) * PAGE)]);
        const count = each.length === 0 ? 20 + random.below(60) : 1;
        const before = Uint32Array.from(slots.slice(0, each.length));
        const writes = Uint32Array.from(slots.slice(each.length, each.length + count));
        each.length += count;
        return sequenceOf(before, writes);
      });
      if (inputBatch.length > 0) run(inputBatch);
    }
    for (let batch = 0; batch < PATIENCE + PAGES; batch++) run([sequenceOf(new Uint32Array(0), range(0, 1))]);
    assert.equal(segments.count, 0);
  }
});
