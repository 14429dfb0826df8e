import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { RuntimeGpuHost } from '../runtimes/types.ts';
import { placementKey, preference, servingHost } from './placement.ts';
import { chosenKey } from './testing/chosen-key.ts';

const HOSTS = ['gpu-host-1', 'gpu-host-2', 'gpu-host-3', 'gpu-host-4'];
/** Keys whose hashes are random enough to count as draws. */
const KEYS = Array.from({ length: 4000 }, (_, i) => `tenant-${i}`);

/** Asserts that a count of draws, each with the probability p, lies within five standard deviations of its mean. */
function assertEven(counts: Iterable<number>, draws: number, p: number): void {
  const deviation = Math.sqrt(draws * p * (1 - p));
  for (const count of counts) assert.ok(Math.abs(count - draws * p) < 5 * deviation, `${count} of ${draws}`);
}

describe('placement on GPU hosts', () => {
  test('`preference` returns the same order of all hosts each time', () => {
    for (const key of KEYS.slice(0, 50)) {
      assert.deepEqual(preference(key, HOSTS), preference(key, HOSTS));
      assert.deepEqual([...preference(key, HOSTS)].sort(), [0, 1, 2, 3]);
    }
  });

  test('keys spread evenly over hosts, and the keys of an absent host spread evenly over the others', () => {
    const served = [0, 0, 0, 0];
    /** The hosts that serve the keys of the first host while it is absent. */
    const servedInstead = [0, 0, 0, 0];
    for (const key of KEYS) {
      const [first = 0, second = 0] = preference(key, HOSTS);
      served[first]! += 1;
      if (first === 0) servedInstead[second]! += 1;
    }
    assertEven(served, KEYS.length, 1 / 4);
    assertEven(servedInstead.slice(1), served[0]!, 1 / 3);
  });

  test('the placement key is the tenant, or with placement by invocation the key or the id of the root invocation', () => {
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

  test('`chosenKey` is the affinity while its host has room, else it names the less crowded of two hosts that the id draws', () => {
    // Crowding of a host; the invocation fills a host with the crowding 1 exactly.
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

  test('when neither of two hosts has room, ids choose both equally often, and the keys of one spread evenly over other hosts', () => {
    const two = HOSTS.slice(0, 2);
    const keys = KEYS.map((id) => chosenKey({ id }, two, (key) => (key.startsWith('@gpu-host-1/') ? 1.2 : 1.1)));
    const keysOfFirst = keys.filter((key) => key.startsWith('@gpu-host-1/'));
    assertEven([keysOfFirst.length], KEYS.length, 1 / 2);
    // The hosts of a model that `gpu-host-1` lacks, and the hosts that remain after its loss: each takes an equal part.
    for (const others of [['x', 'y', 'z', 'u'], HOSTS.slice(1).concat('x')]) {
      const served = others.map(() => 0);
      for (const key of keysOfFirst) served[preference(key, others)[0] ?? -1]! += 1;
      assertEven(served, keysOfFirst.length, 1 / 4);
    }
  });

  test('ids draw all pairs of hosts equally often', () => {
    const pairs = new Map<string, number>();
    for (const id of KEYS) {
      const asked = new Set<string>();
      // Records each host whose crowding `chosenKey` asks for. Any crowding of at most 1 will do.
      const crowding = (key: string) => {
        asked.add(key.slice(0, key.indexOf('/')));
        return asked.size / 4;
      };
      chosenKey({ id }, HOSTS, crowding);
      const pair = [...asked].sort().join();
      pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
    }
    // Four hosts have 4 · 3 / 2 = 6 pairs.
    assert.equal(pairs.size, 6);
    assertEven(pairs.values(), KEYS.length, 1 / 6);
  });

  test('choosing between two hosts leaves the fullest of 50 much closer to the mean than hashing ids does', () => {
    const hosts = Array.from({ length: 50 }, (_, i) => `gpu-host-${i}`);
    const INVOCATIONS = 1000;
    /** Invocations that fill a host; the mean is 1,000 / 50 = 20. */
    const CAPACITY = 28;
    /** The load of the fullest host, as a multiple of the mean load. */
    const fullest = (choose: (id: string, crowding: (key: string) => number) => string) => {
      const used = hosts.map(() => 0);
      const hostOf = (key: string) => preference(key, hosts)[0] ?? -1;
      const crowding = (key: string) => (used[hostOf(key)] ?? 0) / CAPACITY;
      for (let i = 0; i < INVOCATIONS; i++) {
        const host = hostOf(choose(`inv-${i}`, crowding));
        used[host]! += 1;
      }
      return Math.max(...used) / (INVOCATIONS / hosts.length);
    };
    const hashed = fullest((id) => id);
    const chosen = fullest((id, crowding) => chosenKey({ id }, hosts, crowding));
    // With hashing, the loads have a standard deviation of √(1000 · 0.02 · 0.98) = 4.4. The largest of 50 normal draws is about 2.25 deviations, or
    // 10 invocations, above the mean: (20 + 10) / 20 = 1.5. With the better of two hosts, the largest load is about ln ln 50 / ln 2 = 2 above the
    // mean (Mitzenmacher, 2001): 22 / 20 = 1.1. The limits allow 3 invocations below the first estimate and 2 above the second.
    assert.ok(hashed > 1.35 && chosen < 1.2, `${hashed}, ${chosen}`);
  });

  test('`servingHost` returns the first host that was connected and not drained when the invocation began', () => {
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
      /** The serving host when the first host in the tenant's order has changed in this way. */
      const serving = (changed: Partial<(typeof hosts)[0]>) =>
        servingHost({ gpuHosts: hosts.map((each, i) => (i === first ? { ...each, ...changed } : each)) }, served);
      assert.equal(serving({}), `gpu-host-${first + 1}`);
      assert.equal(serving({ connected: false }), `gpu-host-${second + 1}`, 'not connected');
      assert.equal(serving({ connectedAt: 501 }), `gpu-host-${second + 1}`, 'connected after the start');
      assert.equal(serving({ drain: { since: 501 } }), `gpu-host-${first + 1}`, 'drained after the start');
      assert.equal(serving({ drain: { since: 400 } }), `gpu-host-${second + 1}`, 'drained since before the start');
      assert.equal(serving({ drain: { since: 400, until: 501 } }), `gpu-host-${second + 1}`, 'drained at the start');
      assert.equal(
        serving({ drain: { since: 300, until: 400 } }),
        `gpu-host-${first + 1}`,
        'drain ended before the start',
      );
      assert.equal(servingHost({ gpuHosts: hosts }, { ...served, startedAt: null }), null);
      const [byRoot = 0] = preference('r', HOSTS.slice(0, 3));
      const child = { ...served, root: 'r' };
      assert.equal(servingHost({ gpuHosts: hosts, placement: 'invocation' }, child), `gpu-host-${byRoot + 1}`);
      assert.equal(servingHost({ gpuHosts: hosts }, child), `gpu-host-${first + 1}`);
      const placed = { ...child, placement: tenant };
      assert.equal(servingHost({ gpuHosts: hosts, placement: 'invocation' }, placed), `gpu-host-${first + 1}`);
      const named = { ...child, placement: '@gpu-host-3/r' };
      assert.equal(servingHost({ gpuHosts: hosts, placement: 'invocation' }, named), 'gpu-host-3');
      assert.equal(servingHost({ gpuHosts: hosts.slice(0, 1) }, served), null, 'there is only one host');
    }
  });
});
