import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  alonePlaces,
  BUSY_RUNS,
  type FleetMember,
  type FleetPolicy,
  leastNeeded,
  outworn,
  pauseAfter,
  sparesToBegin,
  takesAnother,
} from './policy.ts';

const policy: FleetPolicy = { most: 4, spares: 1, idleMs: 100 };

const member = (sandbox: string, fields: Partial<FleetMember<string>> = {}): FleetMember<string> => ({
  sandbox,
  tenant: sandbox,
  runs: 0,
  kept: false,
  idleSinceMs: 0,
  ...fields,
});

describe('the fleet policy', () => {
  it('ends sandboxes that have been idle for `idleMs`, but no spare and no sandbox that keeps ready instances', () => {
    const members = [
      member('idle'),
      member('young', { idleSinceMs: 50 }),
      member('busy', { runs: 1 }),
      member('kept', { kept: true }),
      member('spare', { tenant: null }),
    ];
    assert.deepEqual(outworn(members, policy, 120), ['idle']);
    assert.deepEqual(outworn(members, policy, 150), ['idle', 'young']);
  });

  it('gives up the sandbox that is idle for longest, one with ready instances last, and never a busy one', () => {
    const members = [
      member('idle since 9', { idleSinceMs: 9 }),
      member('idle since 3', { idleSinceMs: 3 }),
      member('busy', { runs: 2 }),
    ];
    assert.equal(leastNeeded(members), 'idle since 3');
    assert.equal(leastNeeded([member('kept', { kept: true }), ...members]), 'idle since 3');
    assert.equal(leastNeeded([member('kept', { kept: true }), member('busy', { runs: 1 })]), 'kept');
    assert.equal(leastNeeded([member('busy', { runs: 1 }), member('spare', { tenant: null })]), undefined);
  });

  it('starts one spare at a time, within the bound', () => {
    assert.equal(sparesToBegin([], policy, 0), 1);
    assert.equal(sparesToBegin([], policy, 1), 0);
    assert.equal(sparesToBegin([member('spare', { tenant: null })], policy, 0), 0);
    assert.equal(
      sparesToBegin(
        ['a', 'b', 'c', 'd'].map((name) => member(name)),
        policy,
        0,
      ),
      0,
    );
  });

  it('gives a tenant another sandbox, up to its bound, when all of its sandboxes are busy', () => {
    assert.equal(takesAnother([BUSY_RUNS], policy), false);
    assert.equal(takesAnother([BUSY_RUNS], { ...policy, perTenant: 2 }), true);
    assert.equal(takesAnother([BUSY_RUNS, BUSY_RUNS], { ...policy, perTenant: 2 }), false);
    assert.equal(takesAnother([BUSY_RUNS, BUSY_RUNS - 1], { ...policy, perTenant: 4 }), false);
  });

  it('waits longer after each failure, up to a bound', () => {
    assert.equal(pauseAfter(0), 0);
    const pauses = Array.from({ length: 20 }, (_, i) => pauseAfter(i + 1));
    assert.ok(pauses.every((pause, i) => i === 0 || pause >= (pauses[i - 1] ?? 0)));
    assert.deepEqual(pauses.slice(0, 3), [100, 200, 400]);
    assert.equal(pauses.at(-1), 10_000);
  });

  it('keeps the fleet within its bound and never ends a busy sandbox, on random histories', () => {
    const event = fc.record({
      tenant: fc.nat(7),
      run: fc.boolean(),
      afterMs: fc.nat(80),
    });
    fc.assert(
      fc.property(fc.array(event, { maxLength: 200, size: 'max' }), (events) => {
        let nowMs = 0;
        let next = 0;
        let members: FleetMember<string>[] = [];
        const change = (sandbox: string, fields: Partial<FleetMember<string>>) => {
          members = members.map((one) => (one.sandbox === sandbox ? { ...one, ...fields } : one));
        };
        for (const { tenant, run, afterMs } of events) {
          nowMs += afterMs;
          const ended = outworn(members, policy, nowMs);
          assert.ok(members.every((one) => one.runs === 0 || !ended.includes(one.sandbox)));
          members = members.filter((one) => !ended.includes(one.sandbox));
          const name = `t${tenant}`;
          const tenantMember = members.find((one) => one.tenant === name);
          if (!run && tenantMember) change(tenantMember.sandbox, { runs: 0, idleSinceMs: nowMs });
          if (run && tenantMember) change(tenantMember.sandbox, { runs: tenantMember.runs + 1 });
          if (run && !tenantMember) {
            const spare = members.find((one) => one.tenant === null);
            const leaving = spare ?? (members.length < policy.most ? undefined : leastNeeded(members));
            if (spare) change(spare.sandbox, { tenant: name, runs: 1 });
            else if (leaving !== undefined || members.length < policy.most) {
              members = members.filter((one) => one.sandbox !== leaving);
              members.push(member(`s${next++}`, { tenant: name, runs: 1 }));
            } else assert.ok(members.every((one) => one.runs > 0));
          }
          if (sparesToBegin(members, policy, 0) > 0) members.push(member(`s${next++}`, { tenant: null }));
          assert.ok(members.length <= policy.most);
        }
      }),
      { seed: 1 },
    );
  });

  it('lets a tenant use a quarter of all sandboxes for lone runs, at least one and at most four', () => {
    const places = (most: number, cores = 64) => alonePlaces({ ...policy, most }, cores);
    assert.deepEqual(
      [1, 3, 8, 16, 64].map((most) => places(most)),
      [1, 1, 2, 4, 4],
    );
    assert.deepEqual(
      [1, 2, 4, 64].map((cores) => places(64, cores)),
      [1, 2, 3, 4],
      'at most one more than half of the cores',
    );
  });
});
