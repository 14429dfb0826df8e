import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { BurstSize, DEFAULT_SIZING, type PoolDemand, poolTargets } from './sizing.ts';

const MB = 1 << 20;
const policy = (budgetBytes: number) => ({ ...DEFAULT_SIZING, budgetBytes });
const demand = (key: string, parts: Partial<PoolDemand> = {}): PoolDemand => ({
  key,
  min: 0,
  burst: 0,
  idleMs: 0,
  instanceBytes: MB,
  ...parts,
});

const demands = fc
  .array(
    fc.record({
      min: fc.integer({ min: 0, max: 50 }),
      burst: fc.double({ min: 0, max: 2000, noNaN: true }),
      idleMs: fc.integer({ min: 0, max: 3_600_000 }),
      instanceBytes: fc.integer({ min: 1000, max: 10 * MB }),
    }),
    { maxLength: 20, size: 'max' },
  )
  .map((items) => items.map((item, i) => ({ ...item, key: `f${i}` })));

describe('pool sizes', () => {
  it('divide a budget that is too small for all minima evenly', () => {
    const list = [demand('greedy', { min: 100 }), demand('a', { min: 2 }), demand('b', { min: 5 })];
    const targets = poolTargets(list, policy(9 * MB));
    assert.deepEqual([...targets.values()], [4, 2, 3]);
  });

  it('never exceed the budget', () => {
    fc.assert(
      fc.property(demands, fc.integer({ min: 0, max: 200 * MB }), (list, budgetBytes) => {
        const targets = poolTargets(list, policy(budgetBytes));
        const used = list.reduce((sum, { key, instanceBytes }) => sum + (targets.get(key) ?? 0) * instanceBytes, 0);
        assert.ok(used <= budgetBytes);
      }),
      { seed: 31 },
    );
  });

  it('cover the minimum, and the burst of a function in use, while the budget suffices', () => {
    const { idleAfterMs, maxPerFunction } = DEFAULT_SIZING;
    fc.assert(
      fc.property(demands, (list) => {
        const targets = poolTargets(list, policy(Number.MAX_SAFE_INTEGER));
        for (const { key, min, burst, idleMs } of list) {
          const target = targets.get(key) ?? 0;
          assert.ok(target >= min && target <= maxPerFunction);
          if (idleMs >= idleAfterMs) assert.equal(target, min);
          else assert.ok(target >= Math.max(1, Math.min(burst, maxPerFunction)));
        }
      }),
      { seed: 32 },
    );
  });

  it('serve minima first, then one instance of each function in use, then the largest burst', () => {
    const list = [
      demand('large', { burst: 10 }),
      demand('idle', { min: 3, idleMs: 10 ** 9 }),
      demand('small', { burst: 2 }),
    ];
    // Of 8 instances, 3 are the minimum of `idle`; `large` and `small` get one each, and `large` the other 3.
    for (const each of [list, list.toReversed()]) {
      assert.deepEqual(Object.fromEntries(poolTargets(each, policy(8 * MB))), { large: 4, idle: 3, small: 1 });
    }
  });
});

describe('a burst', () => {
  it('is the largest number of arrivals within a second', () => {
    const steady = new BurstSize();
    // 50 arrivals a second.
    for (let at = 0; at < 60_000; at += 20) steady.arrive(at);
    assert.ok(Math.abs(steady.at(60_000) - 50) < 1);
    const sudden = new BurstSize();
    // 900 arrivals within 90 ms.
    for (let i = 0; i < 900; i++) sudden.arrive(1000 + i / 10);
    assert.ok(sudden.at(1100) > 899);
  });

  it('decays within minutes', () => {
    const bursts = new BurstSize();
    for (let i = 0; i < 900; i++) bursts.arrive(0);
    assert.ok(bursts.at(60_000) > 300);
    assert.ok(bursts.at(600_000) < 1);
  });
});
