import assert from 'node:assert/strict';
import { test } from 'node:test';
import { afterDeath, NO_HISTORY } from './supervisor.ts';

test('the first restart comes after 50 ms, and each quick death doubles the pause up to 5 s', () => {
  let history = NO_HISTORY;
  const delays: number[] = [];
  for (let i = 0; i < 12; i++) {
    const next = afterDeath(history, 10);
    delays.push(next.delayMs);
    history = next.history;
  }
  assert.deepEqual(delays.slice(0, 4), [50, 100, 200, 400]);
  assert.equal(delays.at(-1), 5000);
  assert.ok(delays.every((delay, i) => i === 0 || delay >= (delays[i - 1] ?? 0)));
});

test('a life of at least 20 s resets the pause', () => {
  assert.deepEqual(afterDeath({ quickDeaths: 2 }, 19_999), { delayMs: 200, history: { quickDeaths: 3 } });
  assert.deepEqual(afterDeath({ quickDeaths: 9 }, 20_000), { delayMs: 50, history: { quickDeaths: 1 } });
});
