import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { FairCache } from './fair-cache.ts';

const MAX_SIZE = 100;
const GROUPS = ['a', 'b', 'c', 'd'];
const KEYS = ['k', 'l', 'm', 'n', 'o', 'p'];

const act = fc.record({
  kind: fc.constantFrom('set', 'set', 'set', 'get', 'delete'),
  // One group acts more often than the others.
  group: fc.constantFrom('a', 'a', 'a', ...GROUPS),
  key: fc.constantFrom(...KEYS),
  size: fc.oneof({ weight: 9, arbitrary: fc.integer({ min: 1, max: 30 }) }, fc.integer({ min: 1, max: MAX_SIZE + 20 })),
});
type Act = (typeof act extends fc.Arbitrary<infer T> ? T : never) & { readonly value: number };

/** A simple model of the cache: entries in order of use, and every sum computed from scratch. */
class Model {
  readonly #groups = new Map<string, Map<string, { value: number; size: number }>>();

  play({ kind, group, key, size, value }: Act): void {
    const entries = this.#groups.get(group) ?? new Map();
    const before = entries.get(key);
    entries.delete(key);
    if (kind === 'get' && before) entries.set(key, before);
    // When several groups are the largest, the one that comes first in the map loses an entry. A group that becomes empty loses its position.
    if (entries.size === 0) this.#groups.delete(group);
    if (kind === 'set' && size <= MAX_SIZE) this.#groups.set(group, entries.set(key, { value, size }));
    while (this.size > MAX_SIZE) {
      const names = [...this.#groups.keys()];
      const largest = names.reduce((best, name) => (this.sizeOf(name) > this.sizeOf(best) ? name : best));
      assert.ok(this.sizeOf(largest) * names.length > MAX_SIZE, 'evicts from a group above its equal part');
      const largestEntries = this.#groups.get(largest);
      largestEntries?.delete([...largestEntries.keys()][0] ?? '');
      if (largestEntries?.size === 0) this.#groups.delete(largest);
    }
  }

  valueOf(group: string, key: string): number | undefined {
    return this.#groups.get(group)?.get(key)?.value;
  }

  sizeOf(group: string): number {
    return [...(this.#groups.get(group)?.values() ?? [])].reduce((sum, { size }) => sum + size, 0);
  }

  get size(): number {
    return GROUPS.reduce((sum, group) => sum + this.sizeOf(group), 0);
  }
}

describe('a fair cache', () => {
  it('stays within its maximum size and evicts the least recently used entry of a group above its equal part', () => {
    fc.assert(
      fc.property(fc.array(act, { maxLength: 200, size: 'max' }), (acts) => {
        const cache = new FairCache<number>(MAX_SIZE);
        const model = new Model();
        for (const [value, { kind, group, key, size }] of acts.entries()) {
          if (kind === 'get') assert.equal(cache.get(group, key), model.valueOf(group, key));
          else if (kind === 'set') cache.set(group, key, value, size);
          else cache.delete(group, key);
          model.play({ kind, group, key, size, value });
          assert.equal(cache.size, model.size);
          assert.ok(cache.size <= MAX_SIZE);
        }
        for (const group of GROUPS)
          for (const key of KEYS) assert.equal(cache.get(group, key), model.valueOf(group, key), `${key} of ${group}`);
      }),
      { seed: 1, numRuns: process.env.PIE_TEST_ALL ? 20_000 : 500 },
    );
  });
});
