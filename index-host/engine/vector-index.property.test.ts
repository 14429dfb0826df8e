import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import type { Comparison, Condition, Entry, FieldValue, Match, Metric } from '../protocol/types.ts';
import { COMPARISONS, METRICS } from '../protocol/types.ts';
import { temporaryFolder } from '../testing/folder.ts';
import { randomFrom, randomVector } from '../testing/random.ts';
import type { Pieces } from './pieces.ts';
import type { Sizes } from './sizes.ts';
import { VectorIndex } from './vector-index.ts';

const SEEDS = process.env.PIE_TEST_ALL ? 60 : 8;
const ACTS = 40;
const DIMENSIONS = 5;
const ROOM = () => ({ entries: 1e9, bytes: 1e12 });
/** Sizes so small that entries soon move into the graph, and that filters use every kind of search. */
const SMALL: Sizes = { tail: 8, maxCompared: 4, width: 32, maxWorded: 1000 };

const FIELDS = ['colour', 'year', 'draft', '__proto__'];
const VALUES: readonly FieldValue[] = ['red', 'blue', 'Äpfel', '\u{1f600}', '\uffee', 1, 0, -2.5, 1e300, true, false];

/** The oracle: all entries in a map, compared one by one in plain arithmetic. */
class Plain {
  readonly entries = new Map<string, Entry>();

  near(metric: Metric, vector: Float32Array, filter: readonly Condition[], limit: number): [string, number][] {
    return [...this.entries.values()]
      .filter(({ metadata }) => filter.every((condition) => fulfils(new Map(metadata), condition)))
      .map((entry): [string, number] => [entry.id, score(metric, vector, entry.vector)])
      .sort(([, a], [, b]) => b - a)
      .slice(0, limit);
  }

  all(filter: readonly Condition[]): Set<string> {
    const matching = [...this.entries.values()].filter(({ metadata }) =>
      filter.every((condition) => fulfils(new Map(metadata), condition)),
    );
    return new Set(matching.map(({ id }) => id));
  }
}

function fulfils(metadata: ReadonlyMap<string, FieldValue>, { field, comparison, values }: Condition): boolean {
  const value = metadata.get(field);
  if (comparison === 'equal') return value !== undefined && values.includes(value);
  if (comparison === 'not-equal') return value === undefined || !values.includes(value);
  const bound = values[0]!;
  if (typeof value !== typeof bound) return false;
  const order =
    typeof value === 'string' ? hex(value).localeCompare(hex(String(bound)), 'en') : Number(value) - Number(bound);
  return { less: order < 0, 'at-most': order <= 0, greater: order > 0, 'at-least': order >= 0 }[comparison];
}

/** The hexadecimal digits of a text's UTF-8 bytes. Their order is the order of the bytes. */
const hex = (text: string): string => Buffer.from(text).toString('hex');

function score(metric: Metric, one: Float32Array, other: Float32Array): number {
  const product = [...one].reduce((sum, value, i) => sum + value * other[i]!, 0);
  if (metric === 'dot-product') return product;
  if (metric === 'euclidean') return -[...one].reduce((sum, value, i) => sum + (value - other[i]!) ** 2, 0);
  return product / (Math.hypot(...one) * Math.hypot(...other));
}

function finish<T>(pieces: Pieces<T>): T {
  for (;;) {
    const { done, value } = pieces.next();
    if (done) return value as T;
  }
}

function randomCondition(pick: <T>(list: readonly T[]) => T, random: () => number): Condition {
  const comparison: Comparison = pick(COMPARISONS);
  const takesSet = comparison === 'equal' || comparison === 'not-equal';
  const values = Array.from({ length: takesSet ? 1 + Math.floor(random() * 3) : 1 }, () => pick(VALUES));
  const bound = values.find((one) => typeof one !== 'boolean') ?? 1;
  return { field: pick(FIELDS), comparison, values: takesSet ? values : [bound] };
}

test('after random upserts, deletes and restarts, filtered queries find the matches of a plain search', async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    using folder = temporaryFolder();
    const random = randomFrom(seed);
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
    const metric = pick(METRICS);
    const directory = path.join(folder.path, 'one');
    mkdirSync(directory);
    let index = VectorIndex.create(directory, { name: 'one', dimensions: DIMENSIONS, metric }, SMALL);
    const plain = new Plain();
    for (let act = 0; act < ACTS; act++) {
      const what = `seed ${seed}, act ${act}, ${metric}`;
      const chance = random();
      if (chance < 0.4) {
        const ids = new Set(
          Array.from({ length: 1 + Math.floor(random() * 12) }, () => `e${Math.floor(random() * 60)}`),
        );
        const entries = [...ids].map(
          (id): Entry => ({
            id,
            vector: randomVector(DIMENSIONS, random),
            text: random() < 0.5 ? null : pick(['a red fox', 'the blue sea', 'red and blue']),
            metadata: FIELDS.filter(() => random() < 0.6).map((field) => [field, pick(VALUES)] as const),
          }),
        );
        const work = index.upsert(entries, ROOM);
        // A call that ends early has stored its entries.
        if (random() < 0.3) work.next();
        else finish(work);
        for (const entry of entries) plain.entries.set(entry.id, entry);
      } else if (chance < 0.5) {
        const ids = Array.from({ length: 6 }, () => `e${Math.floor(random() * 60)}`);
        const known = new Set(ids.filter((id) => plain.entries.delete(id)));
        assert.equal(finish(index.delete(ids)), known.size, what);
      } else if (chance < 0.56) {
        finish(index.rebuild());
      } else if (chance < 0.62) {
        if (random() < 0.7) await index.save();
        index.close();
        // The graph's file may be lost, because the index can make the graph again.
        const losesGraph = random() < 0.5;
        for (const file of readdirSync(directory)) {
          if (losesGraph && file.startsWith('graph')) rmSync(path.join(directory, file));
        }
        index = finish(VectorIndex.open(directory, SMALL))!;
      } else {
        const filter = Array.from({ length: Math.floor(random() * 3) }, () => randomCondition(pick, random));
        const limit = 1 + Math.floor(random() * 8);
        const vector = randomVector(DIMENSIONS, random);
        const found = finish(index.query({ vector, text: null, filter, limit }));
        compare(found, plain.near(metric, vector, filter, limit), `${what}: ${JSON.stringify(filter)}`);
        finish(index.absorbExcess());
        const worded = finish(index.query({ vector: null, text: 'red', filter, limit: 100 }));
        const expected = [...plain.all(filter)].filter((id) => plain.entries.get(id)!.text?.includes('red'));
        assert.deepEqual(worded.map(({ id }) => id).sort(), expected.sort(), what);
      }
      assert.equal(index.stats.entries, plain.entries.size, what);
    }
    index.close();
  }
});

/** Requires exact matches: the index has so few entries that the graph's search covers them all. */
function compare(found: readonly Match[], expected: readonly [string, number][], what: string): void {
  assert.deepEqual(
    found.map(({ id }) => id),
    expected.map(([id]) => id),
    what,
  );
  for (const [i, { score }] of found.entries()) {
    const wanted = expected[i]![1];
    assert.ok(Math.abs(score - wanted) <= 1e-5 * Math.max(1, Math.abs(wanted)), `${what}: ${score} for ${wanted}`);
  }
}
