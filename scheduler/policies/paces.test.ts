import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { type Pace, Paces } from './paces.ts';

describe('the pace of a tenant', () => {
  let now: number;
  let paces: Paces;
  beforeEach(() => {
    now = 0;
    paces = new Paces(1000, () => now);
  });

  /** Spends for `forMs`, whenever the pace allows it. Returns the units spent. */
  function flood(spenders: readonly Pace[], forMs: number): number {
    let spent = 0;
    for (const end = now + forMs; now < end; now++) {
      for (const pace of spenders) {
        if (pace.pauseMs() > 0) continue;
        pace.spend(100);
        spent += 100;
      }
    }
    return spent;
  }

  it('lets a tenant that is alone spend without pause', () => {
    const pace = paces.enter('a');
    assert.equal(flood([pace], 1000), 100_000);
    paces.enter('b');
    assert.equal(pace.pauseMs(), 0, 'a tenant that was alone has no debt');
  });

  it('limits a tenant beside another one to its rate, however many items of work it has', () => {
    paces.enter('b');
    const one = flood([paces.enter('a')], 10_000);
    const forty = flood(
      Array.from({ length: 40 }, () => paces.enter('c')),
      10_000,
    );
    for (const spent of [one, forty]) assert.ok(spent >= 10_000 && spent <= 10_000 + 250 + 100, `${spent}`);
  });

  it('limits a tenant for ten seconds after the last work of the other one', () => {
    paces.enter('b')[Symbol.dispose]();
    const pace = paces.enter('a');
    const beside = flood([pace], 9999);
    assert.ok(beside <= 10_350, `${beside}`);
    now += 1;
    assert.equal(flood([pace], 100), 10_000);
    pace[Symbol.dispose]();
    assert.equal(flood([paces.enter('a')], 100), 10_000, 'a tenant is not its own neighbour');
  });

  it('remembers the tenants whose work ended last, although one of them had worked before', () => {
    paces.enter('b')[Symbol.dispose]();
    paces.enter('a')[Symbol.dispose]();
    now = 9000;
    for (const name of ['b', 'c']) paces.enter(name)[Symbol.dispose]();
    now = 15_000;
    const beside = flood([paces.enter('c')], 1000);
    assert.ok(beside <= 1350, `${beside}`);
  });

  it('does not pause a tenant that stays below its rate', () => {
    paces.enter('b');
    const pace = paces.enter('a');
    for (; now < 10_000; now += 100) {
      assert.equal(pace.pauseMs(), 0);
      pace.spend(100);
    }
  });

  it('forgets a tenant once it has no work and has paid', () => {
    using _other = paces.enter('b');
    const pace = paces.enter('a');
    pace.spend(1000);
    pace[Symbol.dispose]();
    now = 500;
    paces.enter('c')[Symbol.dispose]();
    assert.equal(paces.tenants, 3, 'a tenant with debt is remembered after its work ends');
    now = 1000;
    paces.enter('d');
    assert.equal(paces.tenants, 2);
  });
});
