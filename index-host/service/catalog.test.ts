import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pieces } from '../engine/pieces.ts';
import type { VectorIndex } from '../engine/vector-index.ts';
import type { Metric } from '../protocol/types.ts';
import { temporaryFolder } from '../testing/folder.ts';
import { randomFrom, randomVector } from '../testing/random.ts';
import { answer } from './calls.ts';
import { Catalog, LIMITS, type Limits } from './catalog.ts';
import { Turns } from './turns.ts';

const DIMENSIONS = 4;
const SIGNAL = new AbortController().signal;
const MIB = 2 ** 20;

/** A catalog of one tenant, `one`, and what it reported. */
function catalogIn(directory: string, limits: Partial<Limits> = {}) {
  const errors: unknown[] = [];
  const catalog = new Catalog(directory, new Turns(), { ...LIMITS, ...limits }, (error) => errors.push(error));
  const random = randomFrom(1);
  return {
    ...{ catalog, errors },
    create: (name: string, metric: Metric = 'cosine') =>
      answer(catalog, 'one', { op: 'create', name, dimensions: DIMENSIONS, metric }, new Float32Array(0), SIGNAL),
    upsert(name: string, ids: readonly string[], signal = SIGNAL) {
      const vectors = Float32Array.from(ids.flatMap(() => [...randomVector(DIMENSIONS, random)]));
      const entries = ids.map((id) => ({ id, text: null, metadata: [] }));
      return answer(catalog, 'one', { op: 'upsert', name, entries }, vectors, signal);
    },
    ask: <T>(name: string, work: (index: VectorIndex) => T): Promise<T> =>
      catalog.use('one', name, (index) => once(() => work(index))),
    async [Symbol.asyncDispose]() {
      await catalog.close();
    },
  };
}

// biome-ignore lint/correctness/useYield: one piece.
function* once<T>(work: () => T): Pieces<T> {
  return work();
}

const ids = (from: number, count: number): string[] => Array.from({ length: count }, (_, i) => `e${from + i}`);

test('the graph stays small when a tenant that always has calls waiting replaces the same entries', async () => {
  using folder = temporaryFolder();
  await using one = catalogIn(folder.path);
  await one.create('notes');
  let most = 0;
  let calls = 0;
  const replace = async () => {
    while (calls < 40) {
      await one.upsert('notes', ids(250 * (calls++ % 4), 250));
      most = Math.max(most, await one.ask('notes', (index) => index.memoryBytes));
    }
  };
  await Promise.all([replace(), replace(), replace()]);
  assert.ok(most < 1.5 * MIB, `${most} bytes for 1000 vectors`);
  assert.deepEqual(one.errors, []);
});
