import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { placementKey, preference } from './placement.ts';

const HOSTS = ['gpu-host-1', 'gpu-host-2', 'gpu-host-3', 'gpu-host-4'];
const KEYS = Array.from({ length: 4000 }, (_, i) => `tenant-${i}`);

describe('placement on GPU hosts', () => {
  test('every key has all hosts in one order, which is its own', () => {
    for (const key of KEYS.slice(0, 50)) {
      assert.deepEqual(preference(key, HOSTS), preference(key, HOSTS));
      assert.deepEqual([...preference(key, HOSTS)].sort(), [0, 1, 2, 3]);
    }
  });

  test('keys spread evenly, and so do those of a host that is away', () => {
    const served = [0, 0, 0, 0];
    const instead = [0, 0, 0, 0];
    for (const key of KEYS) {
      const [first = 0, second = 0] = preference(key, HOSTS);
      served[first]! += 1;
      if (first === 0) instead[second]! += 1;
    }
    for (const count of served) assert.ok(Math.abs(count - 1000) < 5 * Math.sqrt(750), `${served}`);
    for (const count of instead.slice(1)) assert.ok(Math.abs(count - served[0]! / 3) < 90, `${instead}`);
  });

  test('a tenant stays together unless each invocation goes its own way, children with their root', () => {
    const job = { tenant: 'acme', id: 'child' };
    const root = { tenant: 'acme', id: 'root' };
    assert.equal(placementKey(undefined, job, root), 'acme');
    assert.equal(placementKey('tenant', job, root), 'acme');
    assert.equal(placementKey('invocation', job, root), 'root');
  });

  test('one more host moves only what goes to it', () => {
    for (const key of KEYS.slice(0, 500)) {
      const [before] = preference(key, HOSTS);
      const [after] = preference(key, [...HOSTS, 'gpu-host-5']);
      assert.ok(after === before || after === 4);
    }
  });
});
