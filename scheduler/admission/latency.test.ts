import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { DEFAULT_RESERVE } from './job.ts';
import { AdmissionPolicy, type Demand, MAX_OVERTAKEN } from './testing/policy.ts';

/** A limit that no test reaches. */
const MANY = 1_000_000;

describe('admission of invocations with latency targets', () => {
  test('an invocation with latency targets uses the reserve, and goes ahead of others of its tenant on the way to runtimes', () => {
    // The reserve has 2 slots and 22 pages. Outside it are 33 slots and 330 pages: just enough for 33 invocations of 10 pages.
    const policy = new AdmissionPolicy({ slots: 35, starts: 8, reserve: DEFAULT_RESERVE, pages: { m: 352 } });
    for (let i = 1; i <= 40; i++) policy.enter({ id: `b${i}`, tenant: 't', arrival: 100 + i, pages: { m: 10 } }, 0);
    // Begin all admitted invocations except those of the last round, which then take all 8 (`starts`) places on the way.
    for (let admitted = policy.admit(0); policy.admitted < 33; admitted = policy.admit(0))
      for (const { id } of admitted) policy.begin(id);
    const { onTheirWay } = policy;
    assert.deepEqual([policy.admitted, onTheirWay.length], [33, 8]);
    policy.enter({ id: 'live', tenant: 't', arrival: 1, pages: { m: 10 }, latency: true }, 1);
    assert.deepEqual(
      policy.admit(1).map(({ id }) => id),
      ['live'],
    );
    assert.deepEqual(policy.onTheirWay, ['live', ...onTheirWay]);
    for (const id of policy.onTheirWay) policy.begin(id);
    assert.deepEqual(policy.admit(1), [], 'the reserve is not for the ordinary invocations');
  });

  test('a large head starts after a bounded number of overtakings, even if invocations with targets displace it repeatedly', () => {
    const policy = new AdmissionPolicy({ slots: 100, starts: MANY, reserve: 0, pages: { m: 16 } });
    let running: string[] = [];
    let displaced = 0;
    const admit = (now: number) => running.push(...policy.admit(now).map(({ id }) => id));
    for (let i = 0; i < 16; i++) policy.enter({ id: `s${i}`, tenant: 'other', arrival: 200 + i, pages: { m: 1 } }, 0);
    admit(0);
    policy.enter({ id: 'large', tenant: 't', arrival: 100, pages: { m: 14 } }, 0);
    for (let ended = 1; !running.includes('large'); ended++) {
      assert.ok(ended < 100, 'the head starves');
      policy.enter({ id: `t${ended}`, tenant: 'other', arrival: 300 + ended, pages: { m: 1 } }, ended);
      policy.enter({ id: `live${ended}`, tenant: 't', arrival: 1, pages: { m: 1 }, latency: true }, ended);
      displaced++;
      // The oldest running invocation of the other tenant ends, and so does the one with targets.
      const oldest = running.find((id) => !id.startsWith('live')) ?? '';
      for (const id of [oldest, `live${ended}`]) {
        running = running.filter((one) => one !== id);
        policy.leave(id, ended);
        admit(ended);
      }
      running = running.filter((id) => !id.startsWith('live'));
    }
    assert.ok(displaced > MAX_OVERTAKEN, 'the large head was displaced more often than it may be overtaken');
  });

  test("an ordinary invocation runs beside its tenant's invocations with targets, or starts when one of them ends", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 1, max: 4 }),
        fc.array(fc.nat(1000), { minLength: 50, maxLength: 200, size: 'max' }),
        (slots, quota, choices) => {
          const policy = new AdmissionPolicy({ slots, starts: MANY, reserve: 0, pages: {} });
          const openWithTargets = new Set<string>();
          const running: Demand[] = [];
          let arrivals = 0;
          let roundsWithoutOrdinary = 0;
          const fill = () => {
            // The quota grants no more than the tenant may run at once (`create` of `invocations/submission.lua`).
            while (openWithTargets.size < Math.min(quota, slots)) {
              const id = `live${++arrivals}`;
              openWithTargets.add(id);
              policy.enter({ id, tenant: 't', arrival: 1, pages: {}, latency: true }, arrivals);
            }
            while (policy.queue('t').length < 6)
              policy.enter({ id: `b${++arrivals}`, tenant: 't', arrival: 10_000 + arrivals, pages: {} }, arrivals);
          };
          for (const choice of choices) {
            fill();
            running.push(...policy.admit(arrivals));
            roundsWithoutOrdinary = running.some(({ latency }) => !latency) ? 0 : roundsWithoutOrdinary + 1;
            assert.ok(roundsWithoutOrdinary <= 1, 'the ordinary invocations starve');
            const [ended] = running.splice(choice % running.length, 1);
            policy.leave(ended?.id ?? '', arrivals);
            openWithTargets.delete(ended?.id ?? '');
            running.push(...policy.admit(arrivals));
          }
        },
      ),
      { seed: 20261122, numRuns: 300 },
    );
  });
});
