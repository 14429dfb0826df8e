import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { ImageCache } from './embeds.ts';

const MAX_VALUES = 100;

describe('the cache of image embeds', () => {
  const use = fc.record({
    tenant: fc.constantFrom('a', 'b', 'c'),
    key: fc.integer({ min: 0, max: 12 }).map(String),
    size: fc.integer({ min: 1, max: 120 }),
  });

  it('the cache keeps its bound, finds only images that the tenant put, and evicts the oldest of the tenant that holds most', () => {
    const property = fc.property(fc.array(use, { maxLength: 200, size: 'max' }), (uses) => {
      const cache = new ImageCache(MAX_VALUES * 4);
      // The expected cache: all images in order of use, evicted one by one.
      let tenants: string[] = [];
      let kept: { tenant: string; key: string; values: Float32Array }[] = [];
      const sizeOf = (of: typeof kept) => of.reduce((sum, { values }) => sum + values.length, 0);
      for (const { tenant, key, size } of uses) {
        const entry = kept.find((each) => each.tenant === tenant && each.key === key);
        assert.equal(cache.get(tenant, key), entry?.values);
        if (entry) kept = [...kept.filter((each) => each !== entry), entry];
        else {
          const values = new Float32Array(size);
          cache.put(tenant, key, values);
          if (size <= MAX_VALUES) kept.push({ tenant, key, values });
        }
        const sizeOfTenant = (of: string) => sizeOf(kept.filter((each) => each.tenant === of));
        if (sizeOfTenant(tenant) > 0 && !tenants.includes(tenant)) tenants.push(tenant);
        while (sizeOf(kept) > MAX_VALUES) {
          // Among tenants with equal shares, the one that came first loses.
          const loser = tenants.reduce((most, each) => (sizeOfTenant(each) > sizeOfTenant(most) ? each : most));
          kept.splice(
            kept.findIndex((each) => each.tenant === loser),
            1,
          );
          tenants = tenants.filter((each) => sizeOfTenant(each) > 0);
        }
        assert.equal(cache.bytes, sizeOf(kept) * 4);
      }
      for (const each of kept) assert.equal(cache.get(each.tenant, each.key), each.values);
    });
    fc.assert(property, { seed: 16, numRuns: 300 });
  });

  it('the cache keeps the first values of an image that is put twice, and counts them once', () => {
    const cache = new ImageCache(MAX_VALUES * 4);
    const values = new Float32Array(10);
    cache.put('a', 'key', values);
    cache.put('a', 'key', new Float32Array(10));
    assert.equal(cache.get('a', 'key'), values);
    assert.equal(cache.bytes, 40);
  });

  it('the keys of two images differ when any pixel does', () => {
    const pixels = new Uint8Array(300);
    const key = ImageCache.keyOf(pixels);
    assert.equal(ImageCache.keyOf(pixels.slice()), key);
    pixels[299] = 1;
    assert.notEqual(ImageCache.keyOf(pixels), key);
  });
});
