import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { randomFrom, randomVector } from '#test/harness/random.ts';
import {
  COMPARISONS,
  type Comparison,
  type Condition,
  type Entry,
  type FieldValue,
  type Match,
  METRICS,
  type Metric,
} from '../protocol/types.ts';
import { temporaryFolder } from '../testing/folder.ts';
import type { Pieces, Sizes } from './sizes.ts';
import { VectorIndex } from './vector-index.ts';

/** Each seed tests one index with its own random actions. */
const SEEDS = process.env.PIE_TEST_ALL ? 60 : 8;
const ACTIONS_PER_SEED = 40;
const DIMENSIONS = 5;
/** So few ids that upserts often replace entries, and deletes often find some. */
const ID_COUNT = 60;
/** Room for more entries than a test makes. */
const AMPLE_ROOM = () => ({ entries: 1e9, bytes: 1e12 });
/** Sizes so small that a few entries fill the tail, and that queries with a filter use every kind of search. */
const SMALL: Sizes = { tail: 8, maxCompared: 4, width: 32, maxWorded: 1000 };

const FIELDS = ['colour', 'year', 'draft', '__proto__'];
const VALUES: readonly FieldValue[] = ['red', 'blue', 'Äpfel', '\u{1f600}', '\uffee', 1, 0, -2.5, 1e300, true, false];

/** The oracle of the test: keeps the entries in a map, and compares each of them with a query. */
class PlainIndex {
  readonly entries = new Map<string, Entry>();

  /** The `limit` entries with the best scores that fulfil the filter, best first, as pairs of id and score. */
  nearest(metric: Metric, vector: Float32Array, filter: readonly Condition[], limit: number): [string, number][] {
    return this.matching(filter)
      .map((entry): [string, number] => [entry.id, scoreOf(metric, vector, entry.vector)])
      .sort(([, a], [, b]) => b - a)
      .slice(0, limit);
  }

  /** The entries that fulfil all conditions of the filter. */
  matching(filter: readonly Condition[]): Entry[] {
    return [...this.entries.values()].filter(({ metadata }) =>
      filter.every((condition) => fulfils(new Map(metadata), condition)),
    );
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

/** The UTF-8 bytes of a text as hexadecimal digits. Two texts have the same order by these digits as by their bytes. */
const hex = (text: string): string => Buffer.from(text).toString('hex');

/** The score of two vectors; larger is nearer. */
function scoreOf(metric: Metric, one: Float32Array, other: Float32Array): number {
  const product = [...one].reduce((sum, value, i) => sum + value * other[i]!, 0);
  if (metric === 'dot-product') return product;
  if (metric === 'euclidean') return -[...one].reduce((sum, value, i) => sum + (value - other[i]!) ** 2, 0);
  return product / (Math.hypot(...one) * Math.hypot(...other));
}

/** Runs all pieces of a work and returns its result. */
function finish<T>(pieces: Pieces<T>): T {
  for (;;) {
    const { done, value } = pieces.next();
    if (done) return value as T;
  }
}

function randomCondition(pick: <T>(list: readonly T[]) => T, random: () => number): Condition {
  const comparison: Comparison = pick(COMPARISONS);
  const takesSet = comparison === 'equal' || comparison === 'not-equal';
  const valueCount = takesSet ? 1 + Math.floor(random() * 3) : 1;
  const values = Array.from({ length: valueCount }, () => pick(VALUES));
  // The other comparisons take one bound, which may not be a boolean.
  const bound = values.find((value) => typeof value !== 'boolean') ?? 1;
  return { field: pick(FIELDS), comparison, values: takesSet ? values : [bound] };
}

test('after random upserts, deletes, rebuilds and restarts, the index finds the same entries as a plain search', async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    using folder = temporaryFolder();
    const random = randomFrom(seed);
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
    const randomId = () => `e${Math.floor(random() * ID_COUNT)}`;
    const metric = pick(METRICS);
    const directory = path.join(folder.path, 'one');
    mkdirSync(directory);
    let index = VectorIndex.create(directory, { name: 'one', dimensions: DIMENSIONS, metric }, SMALL);
    const plain = new PlainIndex();

    const upsert = () => {
      const ids = new Set(Array.from({ length: 1 + Math.floor(random() * 12) }, randomId));
      const entries = [...ids].map(
        (id): Entry => ({
          id,
          vector: randomVector(DIMENSIONS, random),
          text: random() < 0.5 ? null : pick(['a red fox', 'the blue sea', 'red and blue']),
          metadata: FIELDS.filter(() => random() < 0.6).map((field) => [field, pick(VALUES)] as const),
        }),
      );
      const work = index.upsert(entries, AMPLE_ROOM);
      // The first piece stores all entries, so a call that is cancelled after this piece has the same effect.
      const isCancelled = random() < 0.3;
      if (isCancelled) work.next();
      else finish(work);
      for (const entry of entries) plain.entries.set(entry.id, entry);
    };

    const deleteSome = (step: string) => {
      const ids = Array.from({ length: 6 }, randomId);
      const deletedIds = ids.filter((id) => plain.entries.delete(id));
      assert.equal(finish(index.delete(ids)), deletedIds.length, step);
    };

    const restart = async () => {
      if (random() < 0.7) await index.save();
      index.close();
      // The index can make a lost graph again from its entries.
      const losesGraph = random() < 0.5;
      for (const file of readdirSync(directory)) {
        if (losesGraph && file.startsWith('graph')) rmSync(path.join(directory, file));
      }
      index = finish(VectorIndex.open(directory, SMALL))!;
    };

    const query = (step: string) => {
      const filter = Array.from({ length: Math.floor(random() * 3) }, () => randomCondition(pick, random));
      const limit = 1 + Math.floor(random() * 8);
      const vector = randomVector(DIMENSIONS, random);
      const nearest = finish(index.query({ vector, text: null, filter, limit }));
      assertMatches(nearest, plain.nearest(metric, vector, filter, limit), `${step}: ${JSON.stringify(filter)}`);
      // A cancelled upsert may have left words that are not indexed yet.
      finish(index.absorbExcess());
      const withWord = finish(index.query({ vector: null, text: 'red', filter, limit: 100 }));
      const expected = plain.matching(filter).filter(({ text }) => text?.includes('red'));
      assert.deepEqual(withWord.map(({ id }) => id).sort(), expected.map(({ id }) => id).sort(), step);
    };

    for (let action = 0; action < ACTIONS_PER_SEED; action++) {
      const step = `seed ${seed}, action ${action}, ${metric}`;
      // 40 % upserts, 10 % deletes, 6 % rebuilds, 6 % restarts, and 38 % queries.
      const chance = random();
      if (chance < 0.4) upsert();
      else if (chance < 0.5) deleteSome(step);
      else if (chance < 0.56) finish(index.rebuild());
      else if (chance < 0.62) await restart();
      else query(step);
      assert.equal(index.stats.entries, plain.entries.size, step);
    }
    index.close();
  }
});

/**
 * Asserts that the index found the expected entries in the same order, and nearly the same scores. The search of the graph is approximate in general,
 * but finds every entry of an index as small as these.
 */
function assertMatches(found: readonly Match[], expected: readonly [string, number][], step: string): void {
  assert.deepEqual(
    found.map(({ id }) => id),
    expected.map(([id]) => id),
    step,
  );
  for (const [i, { score }] of found.entries()) {
    const [, expectedScore] = expected[i]!;
    const tolerance = 1e-5 * Math.max(1, Math.abs(expectedScore));
    assert.ok(Math.abs(score - expectedScore) <= tolerance, `${step}: ${score} for ${expectedScore}`);
  }
}
