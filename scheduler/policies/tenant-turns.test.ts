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

/** A tenant as the test counts it, without the class. */
class Expected {
  running = 0;
  /** Work that waits, in the order of its requests. */
  waiting: { readonly number: number; readonly cancel: () => void }[] = [];
  /** For each other tenant, turns that it got while this one waited and had fewer than its limit. */
  passedBy = new Map<string, number>();

  get couldRun(): boolean {
    return this.waiting.length > 0 && this.running < LIMITS.tenant;
  }
}

describe('turns of tenants', () => {
  it('keep both limits, leave no turn unused, keep the order within a tenant and serve each tenant that waits', () => {
    fc.assert(
      fc.property(steps, (schedule) => {
        const turns = new TenantTurns(LIMITS);
        const tenants = new Map(TENANTS.map((name) => [name, new Expected()]));
        let count = 0;
        const begun = (name: string, number: number) => {
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
            const number = count++;
            const before = tenant.running;
            const cancel = turns.request(name, () => begun(name, number));
            if (tenant.running === before) tenant.waiting.push({ number, cancel });
            else cancel();
          } else if (kind === 'cancel') {
            tenant.waiting.splice(tenant.waiting.length >> 1, 1)[0]?.cancel();
            // A tenant that waits no more, and asks later, is behind the others.
            if (tenant.waiting.length === 0) tenant.passedBy.clear();
          } else if (tenant.running > 0) {
            tenant.running--;
            turns.leave(name);
          }
          const all = [...tenants.values()];
          const running = all.reduce((sum, each) => sum + each.running, 0);
          const waiting = all.reduce((sum, each) => sum + each.waiting.length, 0);
          assert.equal(turns.size, running + waiting);
          assert.ok(running <= LIMITS.all && all.every((each) => each.running <= LIMITS.tenant), 'a limit is exceeded');
          if (running < LIMITS.all) assert.ok(!all.some(({ couldRun }) => couldRun), 'a turn is free while work waits');
        }
      }),
      { numRuns: process.env.PIE_TEST_ALL ? 5000 : 300, seed: 20261129 },
    );
  });

  it('a function that was canceled after its turn began takes nothing out of the queue', () => {
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
