import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { type EventPace, EventPaces } from './event-pace.ts';

describe('the pace of events', () => {
  let now: number;
  let paces: EventPaces;
  beforeEach(() => {
    now = 0;
    paces = new EventPaces(1000, () => now);
  });

  /** Writes batches of events for so long, whenever it may. Answers how many events it has written. */
  function flood(all: readonly EventPace[], forMs: number, events = 100, bytes = 0): number {
    let written = 0;
    for (const end = now + forMs; now < end; now++) {
      for (const pace of all) {
        if (pace.pauseMs() > 0) continue;
        pace.spend(events, bytes);
        written += events;
      }
    }
    return written;
  }

  it('lets a tenant that is alone write as fast as it can', () => {
    const pace = paces.enter('a');
    assert.equal(flood([pace], 1000), 100_000);
    paces.enter('b');
    assert.equal(pace.pauseMs(), 0, 'and owes nothing for it');
  });

  it('holds a tenant beside another one to its rate, however many attempts it has', () => {
    paces.enter('b');
    const one = flood([paces.enter('a')], 10_000);
    const forty = flood(
      Array.from({ length: 40 }, () => paces.enter('c')),
      10_000,
    );
    for (const written of [one, forty]) assert.ok(written >= 10_000 && written <= 10_000 + 250 + 100, `${written}`);
  });

  it('does so for ten seconds after the last attempt of the other one', () => {
    paces.enter('b')[Symbol.dispose]();
    const pace = paces.enter('a');
    const beside = flood([pace], 9999);
    assert.ok(beside <= 10_350, `${beside}`);
    now += 1;
    assert.equal(flood([pace], 100), 10_000);
    pace[Symbol.dispose]();
    assert.equal(flood([paces.enter('a')], 100), 10_000, 'nobody is a neighbour of itself');
  });

  it('counts bytes, too', () => {
    paces.enter('b');
    const written = flood([paces.enter('a')], 10_000, 1, 512 * 9);
    assert.ok(written >= 1000 && written <= 1030, `${written}`);
  });

  it('leaves a tenant alone that stays below its rate', () => {
    paces.enter('b');
    const pace = paces.enter('a');
    for (; now < 10_000; now += 100) {
      assert.equal(pace.pauseMs(), 0);
      pace.spend(100, 0);
    }
  });

  it('forgets a tenant that has no attempts and has paid', () => {
    using _other = paces.enter('b');
    const pace = paces.enter('a');
    pace.spend(1000, 0);
    pace[Symbol.dispose]();
    now = 500;
    paces.enter('c')[Symbol.dispose]();
    assert.equal(paces.tenants, 3, 'a flood is not forgotten by ending its invocation');
    now = 1001;
    paces.enter('d');
    assert.equal(paces.tenants, 2);
  });
});
