import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Lease, Leases } from './leases.ts';
import { PageAccount, PagePool, type PageSnapshot } from './pool.ts';
import { snapshotOf } from './space-snapshot.ts';
import { tagOf } from './testing/fault-tag.ts';

test('the status of a lease has a reason for its end exactly when no time is left', () => {
  // If `status` read the clock twice, the lease would end between the two reads for one of these starts, and the status would contradict itself.
  for (const start of [0, 1]) {
    let now = start;
    // The clock advances by a millisecond at each read.
    const lease = new Lease(10, () => now++);
    for (let reads = 0; reads < 20; reads++) {
      const { leftMs, ended } = lease.status;
      assert.equal(ended, leftMs > 0 ? undefined : 'expired');
    }
    lease.giveWay();
    assert.equal(lease.status.ended, 'expired', 'an expired lease does not give way');
  }
});

test('a lease that gives way ends with the reason `pressure`', () => {
  const lease = new Lease(10, () => 0);
  assert.deepEqual(lease.status, { leftMs: 10, ended: undefined });
  lease.giveWay();
  assert.deepEqual(lease.status, { leftMs: 0, ended: 'pressure' });
});

describe('the leases of a model with 64 pages', () => {
  const HOUR_MS = 60 * 60 * 1000;
  const pool = new PagePool(4, 64, () => {});
  const snapshot = (tenant: string, pages: number): PageSnapshot =>
    snapshotOf(
      tenant,
      Array.from({ length: pages }, () => ({ page: pool.blank(new PageAccount(tenant)), masked: 0 })),
    );
  const setUp = (quota?: number) => {
    const clock = { nowMs: 0 };
    return { clock, leases: new Leases({ poolPages: 64, quotaOf: () => quota, now: () => clock.nowMs }) };
  };

  test('a lease lasts 1 ms to an hour', () => {
    const { leases } = setUp();
    assert.deepEqual(
      [0, 1, HOUR_MS, HOUR_MS + 1].map((ms) => tagOf(() => leases.check('a', 1, ms))),
      ['invalid-argument', 'none', 'none', 'invalid-argument'],
    );
  });

  test('the leases of a tenant pin at most half of what others leave of a quarter of the pool, and half of its quota', () => {
    // A quarter of the pool is 16 pages; one tenant alone may pin half of them.
    const { leases } = setUp();
    const tags = (tenant: string, ...pages: number[]) =>
      pages.map((count) => tagOf(() => leases.check(tenant, count, 1)));
    assert.deepEqual(tags('a', 8, 9), ['none', 'limit-exceeded']);
    leases.grant(snapshot('a', 6), 10);
    assert.deepEqual(tags('a', 2, 3), ['none', 'unavailable'], 'its own lease counts');
    assert.deepEqual(tags('b', 5, 6), ['none', 'unavailable'], 'half of the 10 that are left');
    // Half of a quota of 6 pages is 3.
    const limited = setUp(6).leases;
    assert.deepEqual(
      [tagOf(() => limited.check('a', 3, 1)), tagOf(() => limited.check('a', 4, 1))],
      ['none', 'limit-exceeded'],
    );
  });

  test('a snapshot counts once when a new lease replaces its former one', () => {
    const { leases, clock } = setUp();
    const all = snapshot('a', 8);
    leases.grant(all, 10);
    clock.nowMs = 4;
    assert.equal(leases.grant(all, 10).leftMs, 10);
    assert.equal(leases.pages, 8);
    leases.drop(all);
    assert.ok(all.pages.every(({ page }) => !leases.isPinned(page)));
  });

  test('leases that gave way pin nothing, and count as ended early only if they had time left', () => {
    const { leases, clock } = setUp();
    const [longLeased, shortLeased] = [snapshot('a', 2), snapshot('a', 2)];
    const longLease = leases.grant(longLeased, 20);
    const shortLease = leases.grant(shortLeased, 10);
    assert.equal(
      leases.giveWayOne(() => true),
      true,
    );
    assert.deepEqual([shortLease.ended, longLease.ended, leases.endedEarlyCount], ['pressure', undefined, 1]);
    assert.deepEqual([leases.isLeased(shortLeased), leases.isPinned(shortLeased.pages[0]!.page)], [false, false]);
    assert.equal(leases.pages, 2);
    clock.nowMs = 20;
    leases.giveWay(longLeased);
    assert.deepEqual([longLease.ended, leases.isLeased(longLeased), leases.endedEarlyCount], ['expired', false, 1]);
    leases.grant(snapshot('a', 3), 1);
    const otherLease = leases.grant(snapshot('b', 1), 9);
    clock.nowMs = 22;
    assert.equal(
      leases.giveWayOne(() => true),
      true,
    );
    assert.equal(otherLease.ended, 'pressure', 'the lease of tenant a, which pins more pages, has expired');
    assert.equal(
      leases.giveWayOne(() => true),
      false,
    );
  });

  test('only leases of tenants that must give way end', () => {
    const { leases } = setUp();
    leases.grant(snapshot('a', 4), 10);
    const small = leases.grant(snapshot('b', 1), 10);
    assert.equal(
      leases.giveWayOne((tenant) => tenant === 'b'),
      true,
    );
    assert.equal(small.ended, 'pressure');
    assert.equal(
      leases.giveWayOne((tenant) => tenant === 'b'),
      false,
    );
    assert.equal(leases.pages, 4);
  });
});
