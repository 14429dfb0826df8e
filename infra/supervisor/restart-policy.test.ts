import assert from 'node:assert/strict';
import { test } from 'node:test';
import { afterDeath, NO_HISTORY } from './restart-policy.ts';

test('the first restart is immediate, and quick deaths back off up to a bound', () => {
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

test('a long healthy life resets the back-off', () => {
  const { history } = afterDeath({ quickDeaths: 9 }, 60_000);
  assert.equal(history.quickDeaths, 1);
  assert.equal(afterDeath({ quickDeaths: 9 }, 60_000).delayMs, 50);
});
