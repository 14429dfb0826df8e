import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { type Pace, Paces } from './paces.ts';

/** Rate of a tenant. It makes one unit per millisecond, so a test's milliseconds are also the units that the rate allows. */
const UNITS_PER_SECOND = 1000;
/** Units of one call of `spend`. */
const SPENDING = 100;
/** Units that the rate allows at once: those of 250 ms. */
const BURST = 250;
/** Units by which a limited tenant may exceed its rate. The tenant may spend its burst, and its last call of `spend` may go beyond the burst. */
const MAX_EXCESS = BURST + SPENDING;
/** A tenant counts as a neighbour for this long after its last work ended. */
const NEIGHBOUR_MS = 10_000;

describe('the pace of a tenant', () => {
  let now: number;
  let paces: Paces;
  beforeEach(() => {
    now = 0;
    paces = new Paces(UNITS_PER_SECOND, () => now);
  });

  /** Advances the clock by `forMs`. In each millisecond, every pace that asks for no pause spends. Returns the sum of the units spent. */
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

  it('a tenant without neighbours spends without pause', () => {
    const pace = paces.enter('a');
    assert.equal(flood([pace], 1000), 1000 * SPENDING);
    paces.enter('b');
    assert.equal(pace.pauseMs(), 0, 'units that `a` spent before `b` came cause no pause');
  });

  it('a tenant with a neighbour is limited to its rate, with one piece of work and with forty', () => {
    const floodMs = 10_000;
    paces.enter('b');
    const spentByOne = flood([paces.enter('a')], floodMs);
    const fortyPaces = Array.from({ length: 40 }, () => paces.enter('c'));
    const spentByForty = flood(fortyPaces, floodMs);
    for (const spent of [spentByOne, spentByForty])
      assert.ok(spent >= floodMs && spent <= floodMs + MAX_EXCESS, `${spent}`);
  });

  it('a tenant is limited until ten seconds after the last work of its neighbour has ended', () => {
    paces.enter('b')[Symbol.dispose]();
    const pace = paces.enter('a');
    const limitedMs = NEIGHBOUR_MS - 1;
    const spent = flood([pace], limitedMs);
    assert.ok(spent <= limitedMs + MAX_EXCESS, `${spent}`);
    now = NEIGHBOUR_MS;
    assert.equal(flood([pace], 100), 100 * SPENDING);
    pace[Symbol.dispose]();
    assert.equal(flood([paces.enter('a')], 100), 100 * SPENDING, 'a tenant is not its own neighbour');
  });

  it('a tenant that works a second time counts as a neighbour for ten seconds after its second work', () => {
    paces.enter('b')[Symbol.dispose]();
    paces.enter('a')[Symbol.dispose]();
    now = 9000;
    for (const name of ['b', 'c']) paces.enter(name)[Symbol.dispose]();
    // The first work of `b` ended 15 s ago, and its second work 6 s ago.
    now = 15_000;
    const spent = flood([paces.enter('c')], 1000);
    assert.ok(spent <= 1000 + MAX_EXCESS, `${spent}`);
  });

  it('a tenant that stays within its rate is not paused', () => {
    paces.enter('b');
    const pace = paces.enter('a');
    // The rate allows 100 units in 100 ms.
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
    // Each `enter` forgets the tenants that are due.
    paces.enter('c')[Symbol.dispose]();
    assert.equal(
      paces.tenants,
      3,
      '`a`, `b` and `c`: after 500 ms the rate has covered half of the 1,000 units of `a`',
    );
    now = 1000;
    paces.enter('d');
    assert.equal(paces.tenants, 2, '`b` and `d`, which have work: `a` is covered, and `c` spent nothing');
  });
});
