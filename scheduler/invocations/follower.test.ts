import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Follower } from './follower.ts';
import type { InvocationEvent } from './types.ts';

const message = (seq: number): InvocationEvent => ({ seq, epoch: 1, event: 'message', data: `{"text":"${seq}"}` });
const result = (seq: number): InvocationEvent => ({ seq, epoch: 1, event: 'result', data: '{}' });

/**
 * A follower that gets events only by reads of `log`, up to `readCount` events each. `allow` ends its step `before`, and `listen` lets its
 * subscription begin. `ask` takes events as a reader does, and `taken` has their numbers.
 */
function following(t: TestContext, log: readonly InvocationEvent[], readCount = 512) {
  const [before, listening] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let reads = 0;
  const follower = new Follower(
    'inv',
    { epoch: null, seq: 0 },
    {
      before: () => before.promise,
      listen: () => listening.promise.then(() => () => undefined),
      isOwn: false,
      live: { follow: () => () => undefined },
      read: async ({ seq: last }) => {
        reads += 1;
        const rest = log.filter(({ seq }) => seq > last);
        return { events: rest.slice(0, readCount), complete: rest.length <= readCount, runtime: '', end: null };
      },
    },
    () => undefined,
  );
  t.after(() => follower.close());
  const taken: number[] = [];
  /** Takes the events that have arrived, as a reader does each time its client has taken a chunk. */
  const ask = async () => {
    taken.push(...(follower.take() ?? []).map(({ seq }) => seq));
    await turn();
  };
  return { taken, ask, allow: before.resolve, listen: listening.resolve, reads: () => reads };
}

describe('a follower', () => {
  it('a follower does not read the log until its step `before` has ended and it listens, however often its reader asks', async (t: TestContext) => {
    const log = [message(1)];
    const { taken, ask, allow, listen, reads } = following(t, log);
    for (const open of [allow, listen]) {
      for (let i = 0; i < 5; i += 1) await ask();
      assert.equal(reads(), 0);
      open();
    }
    // A read before the subscription would have missed this event, and no message would have announced it.
    log.push(result(2));
    while (taken.length < 2) await ask();
    assert.deepEqual(taken, [1, 2]);
  });

  it('a follower reads the log only for a reader that waits for events', async (t: TestContext) => {
    const { taken, ask, allow, listen, reads } = following(t, [message(1), result(2)], 1);
    allow();
    listen();
    while (taken.length < 1) await ask();
    for (let i = 0; i < 5; i += 1) await turn();
    assert.equal(reads(), 1, 'the reader has not asked for more');
    while (taken.length < 2) await ask();
    assert.deepEqual(taken, [1, 2]);
  });

  it('a follower reads an idle log at intervals, however often its reader asks', async (t: TestContext) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const log = [message(1)];
    const { taken, ask, allow, listen } = following(t, log);
    allow();
    listen();
    while (taken.length < 1) await ask();
    log.push(result(2));
    // The clock moves by at most 20 s; an idle follower reads every 5 s.
    for (let i = 0; i < 100 && taken.length < 2; i += 1) {
      t.mock.timers.tick(200);
      await ask();
    }
    assert.deepEqual(taken, [1, 2]);
  });
});
