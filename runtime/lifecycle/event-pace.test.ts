import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type EventPace, EventPaces } from './event-pace.ts';

/** Writes batches of events for so long, whenever it may. Answers how many events it has written. */
function flood(paces: readonly EventPace[], forMs: number, events = 100, bytes = 0): number {
  let written = 0;
  for (let now = 0; now < forMs; now++) {
    for (const pace of paces) {
      if (pace.pauseMs(now) > 0) continue;
      pace.spend(events, bytes, now);
      written += events;
    }
  }
  return written;
}

describe('the pace of events', () => {
  it('lets a tenant that is alone write as fast as it can', () => {
    const paces = new EventPaces(1000);
    const pace = paces.enter('a', 0);
    assert.equal(flood([pace], 1000), 100_000);
    paces.enter('b', 1000);
    assert.equal(pace.pauseMs(1000), 0, 'and owes nothing for it');
  });

  it('holds a tenant beside another one to its rate, however many attempts it has', () => {
    for (const attempts of [1, 40]) {
      const paces = new EventPaces(1000);
      paces.enter('b', 0);
      const written = flood(
        Array.from({ length: attempts }, () => paces.enter('a', 0)),
        10_000,
      );
      assert.ok(written >= 10_000 && written <= 10_000 + 250 + 100, `${attempts} attempts wrote ${written}`);
    }
  });

  it('counts bytes, too', () => {
    const paces = new EventPaces(1000);
    paces.enter('b', 0);
    const written = flood([paces.enter('a', 0)], 10_000, 1, 512 * 9);
    assert.ok(written >= 1000 && written <= 1030, `${written}`);
  });

  it('leaves a tenant alone that stays below its rate', () => {
    const paces = new EventPaces(1000);
    paces.enter('b', 0);
    const pace = paces.enter('a', 0);
    for (let now = 0; now < 10_000; now += 100) {
      assert.equal(pace.pauseMs(now), 0);
      pace.spend(100, 0, now);
    }
  });

  it('forgets a tenant that has no attempts and has paid', () => {
    const paces = new EventPaces(1000);
    const pace = paces.enter('a', 0);
    using _other = paces.enter('b', 0);
    pace.spend(1000, 0, 0);
    pace[Symbol.dispose]();
    paces.enter('c', 500)[Symbol.dispose]();
    assert.equal(paces.tenants, 3, 'a flood is not forgotten by ending its invocation');
    paces.enter('d', 1001);
    assert.equal(paces.tenants, 2);
  });
});
