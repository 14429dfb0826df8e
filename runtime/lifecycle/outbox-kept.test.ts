import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import type { NewEvent } from '#scheduler/invocations/types.ts';
import { KeptEvents } from './outbox.ts';

/** Events whose data begins with their numbers. In `KeptEvents`, each costs its data's length and 128 bytes. */
const events = (from: number, count: number, size = 10): NewEvent[] =>
  Array.from({ length: count }, (_, i) => ({ event: 'message', data: `${from + i}`.padEnd(size, '.') }));
const numbers = (taken: readonly NewEvent[] | null) => taken?.map(({ data }) => Number.parseInt(data, 10)) ?? null;

describe('kept events', () => {
  it('are dropped when a later call confirms them, long enough after their acknowledgement', () => {
    const kept = new KeptEvents(5000, 1 << 20);
    kept.add(1, events(1, 2), 1000);
    kept.add(3, events(3, 1), 2000);
    kept.confirm(5999);
    assert.deepEqual(numbers(kept.takeAfter(0)), [1, 2, 3], 'too early for all events');
    kept.add(1, events(1, 2), 1000);
    kept.add(3, events(3, 1), 2000);
    kept.confirm(6000);
    assert.equal(kept.takeAfter(1), null);
    assert.equal(kept.newestAt, 2000);
    assert.deepEqual(numbers(kept.takeAfter(2)), [3]);
    assert.equal(kept.bytes, 0);
    assert.equal(kept.newestAt, null);
  });

  it('are bounded in bytes, for many small events and for one above the bound', () => {
    const kept = new KeptEvents(5000, 10_000);
    for (let seq = 1; seq <= 1000; seq++) {
      kept.add(seq, events(seq, 1, 0), 0);
      assert.ok(kept.bytes <= 10_000);
    }
    assert.equal(kept.takeAfter(900), null);
    assert.deepEqual(numbers(kept.takeAfter(990)), [991, 992, 993, 994, 995, 996, 997, 998, 999, 1000]);
    kept.add(991, events(991, 1, 10_001), 0);
    assert.equal(kept.bytes, 0);
    assert.equal(kept.takeAfter(990), null);
    kept.add(992, events(992, 1, 10_000 - 128), 0);
    assert.equal(kept.bytes, 10_000, 'exactly the bound');
  });

  it('return exactly the events that a log has lost, or null', () => {
    const step = fc.oneof(
      {
        weight: 5,
        arbitrary: fc.record({ add: fc.integer({ min: 1, max: 4 }), size: fc.integer({ min: 1, max: 400 }) }),
      },
      { weight: 2, arbitrary: fc.record({ lose: fc.nat(12) }) },
      { weight: 2, arbitrary: fc.record({ wait: fc.integer({ min: 1, max: 40 }) }) },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60, size: 'max' }), (steps) => {
        const keepMs = 50;
        const maxBytes = 4000;
        const kept = new KeptEvents(keepMs, maxBytes);
        let now = 0;
        /** Time of acknowledgement and cost of each event in the log. */
        const log: { at: number; bytes: number }[] = [];
        const write = (batch: NewEvent[]) => {
          kept.confirm(now);
          kept.add(log.length + 1, batch, now);
          for (const { data } of batch) log.push({ at: now, bytes: data.length + 128 });
        };
        for (const action of steps) {
          if ('wait' in action) now += action.wait;
          else if ('add' in action) write(events(log.length + 1, action.add, action.size));
          else {
            const lost = log.splice(Math.max(0, log.length - action.lose));
            if (lost.length === 0) continue;
            const taken = kept.takeAfter(log.length);
            if (taken === null) {
              // `KeptEvents` drops the events of a whole call at once. The dropped call may hold up to three events, of 400 characters at most,
              // that are not lost.
              const isYoung = lost.every(({ at }) => at + keepMs > now);
              const bytes = lost.reduce((sum, event) => sum + event.bytes, 0);
              assert.ok(!isYoung || bytes + 3 * (400 + 128) > maxBytes, `${lost.length} events of ${bytes} bytes`);
              return;
            }
            assert.deepEqual(
              numbers(taken),
              lost.map((_, i) => log.length + 1 + i),
            );
            while (taken.length > 0) write(taken.splice(0, 4));
          }
          assert.ok(kept.bytes >= 0 && kept.bytes <= maxBytes);
        }
      }),
      { seed: 20261103, numRuns: 1000 },
    );
  });
});
