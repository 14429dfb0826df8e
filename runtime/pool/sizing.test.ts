import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { ArrivalRate, DEFAULT_SIZING, type PoolDemand, poolTargets } from './sizing.ts';

const MB = 1 << 20;
const policy = (budgetBytes: number) => ({ ...DEFAULT_SIZING, budgetBytes });
const demand = (key: string, parts: Partial<PoolDemand> = {}): PoolDemand => ({
  key,
  min: 0,
  rate: 0,
  idleMs: 0,
  instanceBytes: MB,
  ...parts,
});

const demands = fc
  .array(
    fc.record({
      min: fc.integer({ min: 0, max: 50 }),
      rate: fc.double({ min: 0, max: 500, noNaN: true }),
      idleMs: fc.integer({ min: 0, max: 3_600_000 }),
      instanceBytes: fc.integer({ min: 1000, max: 10 * MB }),
    }),
    { maxLength: 20 },
  )
  .map((items) => items.map((item, i) => ({ ...item, key: `f${i}` })));

describe('pool sizes', () => {
  it('never take more than the budget', () => {
    fc.assert(
      fc.property(demands, fc.integer({ min: 0, max: 200 * MB }), (list, budgetBytes) => {
        const targets = poolTargets(list, policy(budgetBytes));
        const used = list.reduce((sum, { key, instanceBytes }) => sum + (targets.get(key) ?? 0) * instanceBytes, 0);
        assert.ok(used <= budgetBytes);
      }),
      { seed: 31 },
    );
  });

  it('are never below the minimum while the budget allows it', () => {
    fc.assert(
      fc.property(demands, (list) => {
        const targets = poolTargets(list, policy(Number.MAX_SAFE_INTEGER));
        for (const { key, min, rate, idleMs } of list) {
          const target = targets.get(key) ?? 0;
          assert.ok(target >= min);
          assert.ok(
            idleMs >= DEFAULT_SIZING.idleAfterMs ? target === min : target >= Math.max(1, Math.min(rate, 1024)),
          );
        }
      }),
      { seed: 32 },
    );
  });

  it('serve minima before rates, and fast functions before slow ones', () => {
    const list = [
      demand('quick', { rate: 10 }),
      demand('asked', { min: 3, idleMs: 10 ** 9 }),
      demand('slow', { rate: 2 }),
    ];
    assert.deepEqual(Object.fromEntries(poolTargets(list, policy(8 * MB))), { quick: 4, asked: 3, slow: 1 });
  });
});

describe('an arrival rate', () => {
  it('finds a steady rate and forgets it', () => {
    const rate = new ArrivalRate(0, 10_000);
    for (let at = 0; at < 60_000; at += 20) rate.arrive(at);
    assert.ok(Math.abs(rate.at(60_000) - 50) < 1);
    assert.ok(rate.at(160_000) < 0.01);
  });
});
