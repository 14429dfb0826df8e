import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ShortQuota } from '#scheduler/quotas/exceeded.ts';
import { AttemptGrants, GrantRetries } from './usage.ts';

const SHORT: ShortQuota = { quota: 'tokens-per-day', limit: 10, resetsAt: 0, scope: 'tenant', isHopeless: false };

/** An attempt that needs tokens until its ceiling is `need`, and the store's part, which the test plays. */
function attempt(need: number) {
  const state = { ceiling: 0, asks: 0, refused: [] as ShortQuota[] };
  const grants = new AttemptGrants({
    tokens: {
      get isShort() {
        return state.ceiling < need;
      },
      ask: () => ({ keep: state.ceiling, need, want: need }),
      grant: (ceiling) => {
        state.ceiling = ceiling ?? Number.POSITIVE_INFINITY;
      },
    },
    retries: new GrantRetries(),
    report: async () => {
      state.asks++;
      assert.notEqual(grants.ask(), null);
    },
    refused: (quota) => void state.refused.push(quota),
  });
  return { state, grants };
}

test('answers to reports of events count as no wait, however many come', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'setImmediate'] });
  const { state, grants } = attempt(5);
  grants.request();
  t.mock.timers.tick(0);
  grants.answered({ ceiling: 0, short: SHORT });
  for (let waits = 1; waits <= 20; waits++) {
    // A report of events every 5 ms carries an ask, too.
    for (let ms = 0; ms < 45; ms += 5) {
      t.mock.timers.tick(5);
      assert.notEqual(grants.ask(), null);
      grants.answered({ ceiling: 0, short: SHORT });
    }
    t.mock.timers.tick(5);
    assert.equal(state.asks, 1 + waits);
    assert.deepEqual(state.refused, [], `wait ${waits} of 20`);
    grants.answered({ ceiling: 0, short: SHORT });
  }
  assert.deepEqual(state.refused, [SHORT]);
});

test('an attempt without room asks again every 50 ms, and gives up after a second of answers', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'setImmediate'] });
  const { state, grants } = attempt(5);
  grants.request();
  grants.request();
  t.mock.timers.tick(0);
  assert.equal(state.asks, 1, 'the requests of one turn share an ask');
  assert.equal(grants.ask(), null, 'one ask at a time');
  // An hour without an answer counts as no wait.
  t.mock.timers.tick(3_600_000);
  for (let waits = 0; waits < 20; waits++) {
    grants.answered({ ceiling: 0, short: SHORT });
    assert.deepEqual(state.refused, []);
    t.mock.timers.tick(50);
    assert.equal(state.asks, 2 + waits);
  }
  grants.answered({ ceiling: 0, short: SHORT });
  assert.deepEqual(state.refused, [SHORT]);
  t.mock.timers.tick(1000);
  assert.equal(state.asks, 21, 'it asks no more');
});

test('a failed ask is repeated without counting as a wait; room ends the wait, and a hopeless need ends it at once', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'setImmediate'] });
  const { state, grants } = attempt(5);
  grants.request();
  t.mock.timers.tick(0);
  for (let i = 0; i < 100; i++) {
    grants.answered(null);
    t.mock.timers.tick(50);
  }
  assert.deepEqual([state.asks, state.refused.length], [101, 0]);
  grants.answered({ ceiling: 3, short: null });
  t.mock.timers.tick(0);
  assert.equal(state.asks, 102, 'the attempt has needed more since the ask');
  grants.answered({ ceiling: 5, short: null });
  t.mock.timers.tick(1000);
  assert.equal(state.asks, 102);
  const other = attempt(5);
  other.grants.request();
  t.mock.timers.tick(0);
  const hopeless = { ...SHORT, isHopeless: true };
  other.grants.answered({ ceiling: 0, short: hopeless });
  assert.deepEqual(other.state.refused, [hopeless]);
});
