import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { type Departing, departures, leaseToEnd, type Pinned, pinShare } from './leases.ts';

const tenant = fc.constantFrom('a', 'b', 'c');
const pages = fc.integer({ min: 1, max: 40 });

describe('leases', () => {
  test('tenants that pin within their shares leave some of all pages, and half of each quota, free', () => {
    const request = fc.record({ tenant, pages });
    const quotas = fc.record({ a: fc.nat({ max: 300 }), b: fc.nat({ max: 300 }), c: fc.constant(undefined) });
    fc.assert(
      fc.property(
        fc.nat({ max: 400 }),
        quotas,
        fc.array(request, { maxLength: 60, size: 'max' }),
        (maxPages, quotas, requests) => {
          const pinned = new Map<string, number>();
          for (const { tenant, pages } of requests) {
            const own = pinned.get(tenant) ?? 0;
            const others = [...pinned.values()].reduce((sum, each) => sum + each, 0) - own;
            const quota = quotas[tenant as keyof typeof quotas];
            if (own + pages <= pinShare({ maxPages, others, quota })) pinned.set(tenant, own + pages);
          }
          const totalPinned = [...pinned.values()].reduce((sum, each) => sum + each, 0);
          assert.ok(totalPinned < Math.max(1, maxPages), 'some pages stay free for the next tenant');
          for (const [name, own] of pinned) assert.ok(own <= (quotas[name as keyof typeof quotas] ?? maxPages) / 2);
        },
      ),
      { seed: 11, numRuns: 500 },
    );
  });

  test('a tenant may pin half of what the others leave, and half of its quota', () => {
    assert.equal(pinShare({ maxPages: 100, others: 20 }), 40);
    assert.equal(pinShare({ maxPages: 100, others: 20, quota: 61 }), 30);
    assert.equal(pinShare({ maxPages: 100, others: 120 }), 0);
  });

  test('`leaseToEnd` returns the lease with the least time left of the tenant that pins most', () => {
    const lease: fc.Arbitrary<Pinned> = fc.record({ tenant, pages, leftMs: fc.nat({ max: 1000 }) });
    fc.assert(
      fc.property(fc.array(lease, { minLength: 1, maxLength: 20, size: 'max' }), (leases) => {
        const chosen = leaseToEnd(leases);
        assert.ok(chosen);
        const leasesOf = (name: string) => leases.filter((each) => each.tenant === name);
        const sum = (name: string) => leasesOf(name).reduce((all, { pages }) => all + pages, 0);
        for (const { tenant } of leases) assert.ok(sum(tenant) <= sum(chosen.tenant));
        for (const { leftMs } of leasesOf(chosen.tenant)) assert.ok(leftMs >= chosen.leftMs);
      }),
      { seed: 12, numRuns: 500 },
    );
    assert.equal(leaseToEnd([]), undefined);
  });

  test('the next name to leave belongs to the tenant with the most pages; hints of a tenant order only its own names', () => {
    const nextUseMs = fc.option(fc.integer({ min: -100, max: 100 }), { nil: undefined });
    const name = fc.record({ tenant, pages, nextUseMs });
    fc.assert(
      fc.property(fc.array(name, { maxLength: 24, size: 'max' }), (all) => {
        const names = all.map((each, order) => ({ ...each, order }));
        const departed = [...departures(names)];
        assert.deepEqual(
          departed.toSorted((a, b) => a.order - b.order),
          names,
          'each leaves once',
        );
        const remaining = new Map<string, number>();
        for (const { tenant, pages } of names) remaining.set(tenant, (remaining.get(tenant) ?? 0) + pages);
        for (const each of departed) {
          assert.equal(
            remaining.get(each.tenant),
            Math.max(...remaining.values()),
            'the largest tenant loses the next name',
          );
          remaining.set(each.tenant, (remaining.get(each.tenant) ?? 0) - each.pages);
        }
        for (const owner of ['a', 'b', 'c']) {
          const own = departed.filter(({ tenant }) => tenant === owner);
          for (const [i, each] of own.entries()) for (const later of own.slice(i + 1)) assert.ok(isBefore(each, later));
          const onlyOwnHints = names.map((each) => (each.tenant === owner ? each : { ...each, nextUseMs: undefined }));
          const ownWithoutOtherHints = [...departures(onlyOwnHints)].filter(({ tenant }) => tenant === owner);
          assert.deepEqual(
            ownWithoutOtherHints.map(({ order }) => order),
            own.map(({ order }) => order),
            'the hints of other tenants change nothing',
          );
        }
      }),
      { seed: 13, numRuns: 500 },
    );
  });
});

/** True when `a` must leave before `b`; both names belong to one tenant. */
function isBefore(a: Departing & { order: number }, b: Departing & { order: number }): boolean {
  const [nextUseOfA, nextUseOfB] = [Math.max(0, a.nextUseMs ?? 0), Math.max(0, b.nextUseMs ?? 0)];
  if (nextUseOfA === nextUseOfB) return a.order < b.order;
  // 0 is a name without a valid hint.
  if (nextUseOfA === 0 || nextUseOfB === 0) return nextUseOfA === 0;
  return nextUseOfA > nextUseOfB;
}
