import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { StoreQueues } from './ask.ts';

const turn = () => new Promise(setImmediate);
/** The bounds of one tenant's calls in the store. */
const MAX_CALLS = 16;
const MAX_BYTES = 2 ** 20;

interface OpenCall {
  readonly tenant: string;
  readonly index: number;
  readonly bytes: number;
  readonly settle: PromiseWithResolvers<void>;
}

describe("the queues of tenants' store calls", { timeout: 240_000 }, () => {
  it('keep their bounds and their order and complete every call, on random schedules', async () => {
    const calls = fc.array(
      fc.record({
        tenant: fc.constantFrom('a', 'b', 'c'),
        bytes: fc.oneof(fc.nat(1000), fc.integer({ min: 2 ** 18, max: 2 ** 21 })),
        fails: fc.boolean(),
        answersAtOnce: fc.integer({ min: 0, max: 3 }),
      }),
      { maxLength: 120, size: 'max' },
    );
    await fc.assert(
      fc.asyncProperty(calls, async (plan) => {
        const queues = new StoreQueues();
        const open: OpenCall[] = [];
        const begun = new Map<string, number>();
        const answer = async (count: number) => {
          for (const asked of open.splice(0, count)) asked.settle.resolve();
          await turn();
        };
        const settled = plan.map(async ({ tenant, bytes, fails }, index) => {
          const settle = Promise.withResolvers<void>();
          const result = queues.during(tenant, bytes, async () => {
            assert.ok(index >= (begun.get(tenant) ?? 0), 'a call overtook another call of its tenant');
            begun.set(tenant, index);
            open.push({ tenant, index, bytes, settle });
            const openOfTenant = open.filter((one) => one.tenant === tenant);
            assert.ok(openOfTenant.length === 1 || openOfTenant.reduce((sum, one) => sum + one.bytes, 0) <= MAX_BYTES);
            assert.ok(openOfTenant.length <= MAX_CALLS);
            await settle.promise;
            if (fails) throw new Error('the store is away');
            return index;
          });
          return result.then(
            (value) => assert.deepEqual([value, fails], [index, false]),
            (error: Error) => assert.deepEqual([error.message, fails], ['the store is away', true]),
          );
        });
        for (const { answersAtOnce } of plan) await answer(answersAtOnce);
        while (open.length > 0) await answer(1);
        await Promise.all(settled);
        assert.equal(queues.tenants, 0);
      }),
      { numRuns: 40 },
    );
  });

  it('have room again after each call, even while another call of the tenant is under way', async () => {
    const queues = new StoreQueues();
    const { promise, resolve } = Promise.withResolvers<void>();
    const lasting = queues.during('a', 1, () => promise);
    for (let i = 0; i < 20; i++) await queues.during('a', MAX_BYTES / 2, turn);
    resolve();
    await lasting;
    assert.equal(queues.tenants, 0);
  });

  it('run a call of one tenant at once although 1000 calls of another wait', async () => {
    const queues = new StoreQueues();
    const { promise, resolve } = Promise.withResolvers<void>();
    let begun = 0;
    const flood = Array.from({ length: 1000 }, () =>
      queues.during('flood', 100, () => {
        begun++;
        return promise;
      }),
    );
    let hasRun = false;
    await queues.during('other', 100, async () => {
      hasRun = true;
    });
    assert.deepEqual([hasRun, begun], [true, MAX_CALLS]);
    resolve();
    await Promise.all(flood);
    assert.deepEqual([begun, queues.tenants], [1000, 0]);
  });
});
