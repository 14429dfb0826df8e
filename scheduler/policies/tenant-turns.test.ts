import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { TenantTurns } from './tenant-turns.ts';

const LIMITS = { tenant: 2, all: 4 };
const TENANTS = ['a', 'b', 'c', 'd', 'e'];

type Step = { readonly tenant: string; readonly kind: 'request' | 'leave' | 'cancel' };

const steps = fc.array(
  fc.record({
    tenant: fc.constantFrom(...TENANTS),
    kind: fc.constantFrom<Step['kind']>('request', 'request', 'leave', 'leave', 'cancel'),
  }),
  { maxLength: 200, size: 'max' },
);

/** The state of a tenant, as the test counts it independently of `TenantTurns`. */
class Expected {
  running = 0;
  /** Work that waits, in the order of its requests. */
  waiting: { readonly number: number; readonly cancel: () => void }[] = [];
  /** Number of turns that each other tenant has got since this one began to wait for a turn that its limit allows. */
  passedBy = new Map<string, number>();

  /** True when work waits and the tenant's own limit lets it begin. */
  get couldRun(): boolean {
    return this.waiting.length > 0 && this.running < LIMITS.tenant;
  }
}

describe('turns of tenants', () => {
  it('keep both limits, use every free turn, keep the order within a tenant, and serve waiting tenants in rotation', () => {
    fc.assert(
      fc.property(steps, (schedule) => {
        const turns = new TenantTurns(LIMITS);
        const tenants = new Map(TENANTS.map((name) => [name, new Expected()]));
        let requestCount = 0;
        const noteBegun = (name: string, number: number) => {
          const tenant = tenants.get(name) as Expected;
          // Work that begins at once has not been added to `waiting`.
          if (tenant.waiting.length > 0)
            assert.equal(tenant.waiting.shift()?.number, number, 'the oldest begins first');
          tenant.running++;
          tenant.passedBy.clear();
          for (const [other, { couldRun, passedBy }] of tenants) {
            if (other === name || !couldRun) continue;
            passedBy.set(name, (passedBy.get(name) ?? 0) + 1);
            assert.equal(passedBy.get(name), 1, `${other} waits while ${name} gets a second turn`);
          }
        };
        for (const { tenant: name, kind } of schedule) {
          const tenant = tenants.get(name) as Expected;
          if (kind === 'request') {
            const number = requestCount++;
            const before = tenant.running;
            const cancel = turns.request(name, () => noteBegun(name, number));
            if (tenant.running === before) tenant.waiting.push({ number, cancel });
            else cancel();
          } else if (kind === 'cancel') {
            const middle = Math.floor(tenant.waiting.length / 2);
            tenant.waiting.splice(middle, 1)[0]?.cancel();
            // A tenant whose last waiting work was canceled comes behind the others with its next request.
            if (tenant.waiting.length === 0) tenant.passedBy.clear();
          } else if (tenant.running > 0) {
            tenant.running--;
            turns.leave(name);
          }
          const all = [...tenants.values()];
          const running = all.reduce((sum, each) => sum + each.running, 0);
          const waiting = all.reduce((sum, each) => sum + each.waiting.length, 0);
          assert.equal(turns.size, running + waiting);
          assert.ok(running <= LIMITS.all && all.every((each) => each.running <= LIMITS.tenant), 'the limits hold');
          if (running < LIMITS.all)
            assert.ok(!all.some(({ couldRun }) => couldRun), 'no turn is free while work waits');
        }
      }),
      { numRuns: process.env.PIE_TEST_ALL ? 5000 : 300, seed: 20261129 },
    );
  });

  it('canceling work that has begun removes no other work from the queue', () => {
    const turns = new TenantTurns({ tenant: 1, all: 1 });
    const begun: string[] = [];
    const begin = (name: string) => () => void begun.push(name);
    turns.request('a', begin('first'));
    const cancelSecond = turns.request('a', begin('second'));
    turns.request('a', begin('third'));
    turns.leave('a');
    cancelSecond();
    turns.leave('a');
    assert.deepEqual(begun, ['first', 'second', 'third']);
    turns.leave('a');
    assert.equal(turns.size, 0);
  });
});
