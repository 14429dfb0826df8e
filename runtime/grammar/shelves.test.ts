import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { Shelves } from './shelves.ts';

const MAX_BYTES = 100;
const TENANTS = ['a', 'b', 'c', 'd', 'e'];

interface Thing {
  readonly tenant: string;
  readonly bytes: number;
  isUsed: boolean;
}

const act = fc.record({
  kind: fc.constantFrom('add', 'add', 'add', 'release', 'release', 'use'),
  // One tenant acts more often than the others.
  tenant: fc.constantFrom('a', 'a', 'a', ...TENANTS),
  key: fc.nat({ max: 9 }),
  bytes: fc.oneof({ weight: 9, arbitrary: fc.integer({ min: 1, max: 12 }) }, fc.integer({ min: 1, max: 60 })),
  isKept: fc.constantFrom(true, true, true, false),
});

describe('shelves', () => {
  it('keep within their bytes, and take nothing of a tenant within its equal part for one above its own', () => {
    let [evictions, refusals, protectedTimes] = [0, 0, 0];
    fc.assert(
      fc.property(fc.array(act, { maxLength: 300, size: 'max' }), (acts) => {
        const things = new Set<Thing>();
        const heldBy = (tenant: string) =>
          [...things].reduce((sum, thing) => sum + (thing.tenant === tenant ? thing.bytes : 0), 0);
        let claim: { tenant: string; bytes: number } | null = null;
        const shelves = new Shelves<Thing>(MAX_BYTES, (thing) => {
          assert.ok(!thing.isUsed && things.has(thing), 'a thing in use stays');
          if (claim !== null && thing.tenant !== claim.tenant) {
            evictions++;
            // As they were before this thing left.
            const tenants = new Set([...things].map(({ tenant }) => tenant).concat(claim.tenant));
            const equalPart = MAX_BYTES / tenants.size;
            const unused = [...things].filter(({ isUsed }) => !isUsed);
            for (const { tenant } of unused)
              assert.ok(heldBy(tenant) <= heldBy(thing.tenant), 'the tenant that holds most gives way');
            if (heldBy(thing.tenant) <= equalPart) {
              protectedTimes++;
              assert.ok(
                heldBy(claim.tenant) + claim.bytes <= equalPart,
                'only a tenant within its part takes of another',
              );
              assert.ok(!unused.some(({ tenant }) => tenant === claim?.tenant), 'its own unused things go before');
            }
          }
          things.delete(thing);
        });
        for (const { kind, tenant, key, bytes, isKept } of acts) {
          const known = shelves.get(tenant, `${key}`);
          if (kind === 'add') {
            if (known?.isUsed && bytes % 2 === 0) {
              known.isUsed = false;
              shelves.release(known, isKept);
            }
            claim = { tenant, bytes };
            const thing = { tenant, bytes, isUsed: true };
            if (!shelves.add(tenant, `${key}`, bytes, thing)) {
              refusals++;
              const own = [...things].filter((one) => one.tenant === tenant);
              assert.ok(
                own.every(({ isUsed }) => isUsed),
                'a refused tenant has nothing unused left',
              );
            } else things.add(thing);
            claim = null;
          } else if (known !== undefined) {
            known.isUsed = kind === 'use';
            if (kind === 'use') shelves.use(known);
            else shelves.release(known, isKept);
          }
          for (const name of TENANTS) assert.equal(shelves.bytesOf(name), heldBy(name));
          assert.ok([...things].reduce((sum, one) => sum + one.bytes, 0) <= MAX_BYTES);
        }
      }),
      { seed: 7, numRuns: process.env.PIE_TEST_ALL ? 5000 : 300 },
    );
    assert.ok(evictions > 100 && refusals > 100 && protectedTimes > 10, `${[evictions, refusals, protectedTimes]}`);
  });

  it('keep the last 16 unused things of a tenant', () => {
    const forgotten: number[] = [];
    const shelves = new Shelves<number>(1000, (thing) => forgotten.push(thing));
    for (let i = 0; i < 20; i++) {
      shelves.add('a', `${i}`, 1, i);
      shelves.release(i, true);
    }
    assert.deepEqual(forgotten, [0, 1, 2, 3]);
    shelves.use(4);
    shelves.trim('a', 0);
    assert.deepEqual([shelves.get('a', '4'), shelves.get('a', '5'), shelves.bytesOf('a')], [4, undefined, 1]);
  });
});
