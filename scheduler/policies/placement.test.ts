import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { RuntimeGpuHost } from '../runtimes/types.ts';
import { chosenKey, placementKey, preference, servingHost } from './placement.ts';

const HOSTS = ['gpu-host-1', 'gpu-host-2', 'gpu-host-3', 'gpu-host-4'];
/**
 * Random enough to count as draws. A count of draws with the probability p must lie within five standard deviations,
 * 5 √(draws · p · (1 − p)), of its mean.
 */
const KEYS = Array.from({ length: 4000 }, (_, i) => `tenant-${i}`);

describe('placement on GPU hosts', () => {
  test('the preference of a key is a stable order of all hosts', () => {
    for (const key of KEYS.slice(0, 50)) {
      assert.deepEqual(preference(key, HOSTS), preference(key, HOSTS));
      assert.deepEqual([...preference(key, HOSTS)].sort(), [0, 1, 2, 3]);
    }
  });

  test('keys spread evenly over hosts, and the keys of an absent host spread evenly over the others', () => {
    const served = [0, 0, 0, 0];
    const instead = [0, 0, 0, 0];
    for (const key of KEYS) {
      const [first = 0, second = 0] = preference(key, HOSTS);
      served[first]! += 1;
      if (first === 0) instead[second]! += 1;
    }
    for (const count of served) assert.ok(Math.abs(count - 1000) < 5 * Math.sqrt(750), `${served}`);
    const moved = served[0]!;
    for (const count of instead.slice(1))
      assert.ok(Math.abs(count - moved / 3) < 5 * Math.sqrt((moved * 2) / 9), `${instead}`);
  });

  test('the placement key is the tenant, or the root invocation with placement by invocation', () => {
    const job = { tenant: 'acme', id: 'child' };
    const root = { tenant: 'acme', id: 'root' };
    assert.equal(placementKey(undefined, job, root), 'acme');
    assert.equal(placementKey('tenant', job, root), 'acme');
    assert.equal(placementKey('invocation', job, root), 'root');
    assert.equal(placementKey('invocation', job, { ...root, placement: 'key' }), 'key');
    assert.equal(placementKey('tenant', job, { ...root, placement: 'key' }), 'acme');
  });

  test('a new host takes keys, and no key moves between the old hosts', () => {
    for (const key of KEYS.slice(0, 500)) {
      const [before] = preference(key, HOSTS);
      const [after] = preference(key, [...HOSTS, 'gpu-host-5']);
      assert.ok(after === before || after === 4);
    }
  });

  test('the host of an affinity is chosen while it has room, else the less crowded of two hosts that the id draws', () => {
    // 1 is a host that the invocation fills exactly.
    const part = fc.oneof(fc.double({ min: 0.01, max: 2, noNaN: true }), fc.constant(1));
    const hosts = fc.uniqueArray(fc.constantFrom(...HOSTS), { maxLength: 4 });
    const id = fc.stringMatching(/^[A-Za-z0-9_-]{1,20}$/);
    fc.assert(
      fc.property(id, hosts, fc.array(part, { minLength: 4, maxLength: 4 }), part, (id, names, parts, byAffinity) => {
        const asked: string[] = [];
        const crowding = (key: string) => {
          if (key === 'talk') return byAffinity;
          asked.push(key);
          return parts[HOSTS.indexOf(key.slice(1, key.lastIndexOf('/')))] ?? Number.NaN;
        };
        assert.equal(
          chosenKey({ id, affinity: 'talk' }, names, () => 1),
          'talk',
          'the host of the affinity is exactly filled',
        );
        const key = chosenKey({ id, affinity: byAffinity > 1 ? 'talk' : undefined }, names, crowding);
        if (names.length < 2) return assert.equal(key, id);
        const drawn = new Set([...asked, key]);
        assert.ok(drawn.size <= 2);
        const least = Math.min(...[...drawn].map(crowding));
        if (least <= 1) assert.equal(crowding(key), least);
        assert.equal(`@${HOSTS[preference(key, HOSTS)[0] ?? -1]}/${id}`, key);
      }),
      { seed: 14 },
    );
  });

  test('when neither of two hosts has room, ids choose both equally often, and spread evenly where one is gone', () => {
    const two = HOSTS.slice(0, 2);
    const keys = KEYS.map((id) => chosenKey({ id }, two, (key) => (key.startsWith('@gpu-host-1/') ? 1.2 : 1.1)));
    const first = keys.filter((key) => key.startsWith('@gpu-host-1/'));
    assert.ok(Math.abs(first.length - 2000) < 5 * Math.sqrt(1000), `${first.length}`);
    // Another model's hosts, and the hosts that remain: each takes an equal part.
    for (const others of [['x', 'y', 'z', 'u'], HOSTS.slice(1).concat('x')]) {
      const served = others.map(() => 0);
      for (const key of first) served[preference(key, others)[0] ?? -1]! += 1;
      for (const count of served) assert.ok(Math.abs(count - first.length / 4) < 5 * Math.sqrt(375), `${served}`);
    }
  });

  test('ids draw all pairs of hosts equally often', () => {
    const pairs = new Map<string, number>();
    for (const id of KEYS) {
      const asked = new Set<string>();
      // Notes the host of each question; any crowding of at most 1 will do.
      chosenKey({ id }, HOSTS, (key) => asked.add(key.slice(0, key.indexOf('/'))).size / 4);
      const pair = [...asked].sort().join();
      pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
    }
    assert.equal(pairs.size, 6);
    for (const count of pairs.values()) assert.ok(Math.abs(count - 4000 / 6) < 5 * Math.sqrt(556), `${count}`);
  });

  test('choosing between two hosts leaves the fullest of 50 much closer to the mean than hashing ids does', () => {
    const hosts = Array.from({ length: 50 }, (_, i) => `gpu-host-${i}`);
    const fullest = (choose: (id: string, crowding: (key: string) => number) => string) => {
      const used = hosts.map(() => 0);
      // 1,000 invocations on 50 hosts: 20 each in the mean, 28 fill a host.
      const hostOf = (key: string) => preference(key, hosts)[0] ?? -1;
      for (let i = 0; i < 1000; i++) used[hostOf(choose(`inv-${i}`, (key) => (used[hostOf(key)] ?? 0) / 28))]! += 1;
      return Math.max(...used) / 20;
    };
    const hashed = fullest((id) => id);
    const chosen = fullest((id, crowding) => chosenKey({ id }, hosts, crowding));
    // The loads by hashing have a standard deviation of √(1000 · 0.02 · 0.98) = 4.4, and the largest of 50 normal draws is about 2.25
    // deviations above the mean: (20 + 10) / 20 = 1.5. The better of two hosts leaves the fullest about ln ln 50 / ln 2 = 2 above the
    // mean (Mitzenmacher, 2001): 22 / 20 = 1.1. The limits allow 3 invocations below the first estimate and 2 above the second.
    assert.ok(hashed > 1.35 && chosen < 1.2, `${hashed}, ${chosen}`);
  });

  test('servingHost picks the first host that was connected and not draining when the invocation began', () => {
    const host = (name: string, connected: boolean, connectedAt: number): RuntimeGpuHost => ({
      name,
      connected,
      connectedAt,
      models: [],
    });
    for (const tenant of KEYS.slice(0, 100)) {
      const served = { id: 'i', tenant, root: null, startedAt: 500 };
      const [first = 0, second = 0] = preference(tenant, HOSTS.slice(0, 3));
      const hosts = HOSTS.slice(0, 3).map((name) => host(name, true, 100));
      const serving = (changed: Partial<(typeof hosts)[0]>) =>
        servingHost({ gpuHosts: hosts.map((each, i) => (i === first ? { ...each, ...changed } : each)) }, served);
      assert.equal(serving({}), `gpu-host-${first + 1}`);
      assert.equal(serving({ connected: false }), `gpu-host-${second + 1}`, 'not connected');
      assert.equal(serving({ connectedAt: 501 }), `gpu-host-${second + 1}`, 'connected again since then');
      assert.equal(serving({ drain: { since: 501 } }), `gpu-host-${first + 1}`, 'draining since then');
      assert.equal(serving({ drain: { since: 400 } }), `gpu-host-${second + 1}`, 'draining from before');
      assert.equal(serving({ drain: { since: 400, until: 501 } }), `gpu-host-${second + 1}`, 'draining at that time');
      assert.equal(serving({ drain: { since: 300, until: 400 } }), `gpu-host-${first + 1}`, 'drain ended before');
      assert.equal(servingHost({ gpuHosts: hosts }, { ...served, startedAt: null }), null);
      const [byRoot = 0] = preference('r', HOSTS.slice(0, 3));
      const child = { ...served, root: 'r' };
      assert.equal(servingHost({ gpuHosts: hosts, spread: 'invocation' }, child), `gpu-host-${byRoot + 1}`);
      assert.equal(servingHost({ gpuHosts: hosts }, child), `gpu-host-${first + 1}`);
      const placed = { ...child, placement: tenant };
      assert.equal(servingHost({ gpuHosts: hosts, spread: 'invocation' }, placed), `gpu-host-${first + 1}`);
      const named = { ...child, placement: '@gpu-host-3/r' };
      assert.equal(servingHost({ gpuHosts: hosts, spread: 'invocation' }, named), 'gpu-host-3');
      assert.equal(servingHost({ gpuHosts: hosts.slice(0, 1) }, served), null, 'no choice between hosts');
    }
  });
});
