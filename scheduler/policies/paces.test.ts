import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { type Pace, Paces } from './paces.ts';

/** Units that `flood` spends at once. */
const SPENDING = 100;
/** Units by which a tenant may exceed its rate of one unit per ms: the burst of 250 ms, and the last spending. */
const MAX_EXCESS = 250 + SPENDING;

describe('the pace of a tenant', () => {
  let now: number;
  let paces: Paces;
  beforeEach(() => {
    now = 0;
    paces = new Paces(1000, () => now);
  });

  /** Spends for `forMs` whenever a pace allows it. Returns the units spent. */
  function flood(spenders: readonly Pace[], forMs: number): number {
    let spent = 0;
    for (const end = now + forMs; now < end; now++) {
      for (const pace of spenders) {
        if (pace.pauseMs() > 0) continue;
        pace.spend(SPENDING);
        spent += SPENDING;
      }
    }
    return spent;
  }

  it('a tenant that is alone spends without pause', () => {
    const pace = paces.enter('a');
    assert.equal(flood([pace], 1000), 1000 * SPENDING);
    paces.enter('b');
    assert.equal(pace.pauseMs(), 0, 'units that a tenant spent alone cause no pause later');
  });

  it('a tenant beside another one is limited to its rate, however many pieces of work it has', () => {
    paces.enter('b');
    const one = flood([paces.enter('a')], 10_000);
    const forty = flood(
      Array.from({ length: 40 }, () => paces.enter('c')),
      10_000,
    );
    for (const spent of [one, forty]) assert.ok(spent >= 10_000 && spent <= 10_000 + MAX_EXCESS, `${spent}`);
  });

  it('a tenant is limited for ten seconds after the last work of another tenant has ended', () => {
    paces.enter('b')[Symbol.dispose]();
    const pace = paces.enter('a');
    const beside = flood([pace], 9999);
    assert.ok(beside <= 10_000 + MAX_EXCESS, `${beside}`);
    now += 1;
    assert.equal(flood([pace], 100), 100 * SPENDING);
    pace[Symbol.dispose]();
    assert.equal(flood([paces.enter('a')], 100), 100 * SPENDING, 'a tenant is not its own neighbour');
  });

  it('the two tenants whose work ended last count as neighbours, also when one of them had worked earlier', () => {
    paces.enter('b')[Symbol.dispose]();
    paces.enter('a')[Symbol.dispose]();
    now = 9000;
    for (const name of ['b', 'c']) paces.enter(name)[Symbol.dispose]();
    // 15 s after the first work of `b`, but only 6 s after its last.
    now = 15_000;
    const beside = flood([paces.enter('c')], 1000);
    assert.ok(beside <= 1000 + MAX_EXCESS, `${beside}`);
  });

  it('a tenant that stays within its rate is not paused', () => {
    paces.enter('b');
    const pace = paces.enter('a');
    for (; now < 10_000; now += 100) {
      assert.equal(pace.pauseMs(), 0);
      pace.spend(100);
    }
  });

  it('a tenant without work is forgotten once its rate has covered all that it spent', () => {
    using _other = paces.enter('b');
    const pace = paces.enter('a');
    pace.spend(1000);
    pace[Symbol.dispose]();
    now = 500;
    paces.enter('c')[Symbol.dispose]();
    assert.equal(paces.tenants, 3, 'after 500 ms the rate has covered half of the 1,000 units of `a`');
    now = 1000;
    paces.enter('d');
    assert.equal(paces.tenants, 2, 'only `b` and `d` have work');
  });
});
