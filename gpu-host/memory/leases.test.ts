import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Lease } from './leases.ts';

test('a lease without time left has a reason for its end, however late the clock is read', () => {
  // If `status` read the clock twice, the lease would end before the first read for one start, and between the reads for the other.
  for (const start of [0, 1]) {
    let now = start;
    // The process loses its core for a millisecond before each read.
    const lease = new Lease(10, () => now++);
    for (let reads = 0; reads < 20; reads++) {
      const { leftMs, ended } = lease.status;
      assert.equal(ended, leftMs > 0 ? undefined : 'expired');
    }
    lease.giveWay();
    assert.equal(lease.status.ended, 'expired', 'a lease that has ended gives nothing');
  }
});

test('a lease that gives way has ended for want of memory', () => {
  const lease = new Lease(10, () => 0);
  assert.deepEqual(lease.status, { leftMs: 10, ended: undefined });
  lease.giveWay();
  assert.deepEqual(lease.status, { leftMs: 0, ended: 'pressure' });
});
