import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readFromSandbox } from './messages.ts';

test('the runtime refuses times that would make its sums infinite', () => {
  const beat = (cpuMs: number) => ({
    kind: 'beat',
    used: [{ instance: 1, cpuMs, memoryBytes: 0, calls: 0 }],
    ready: 0,
  });
  const prepared = (ms: number) => ({ kind: 'prepared', instance: 1, ready: true, compileMs: ms, instantiateMs: ms });
  for (const message of [beat, prepared]) {
    assert.deepEqual(readFromSandbox(message(60_000)), message(60_000));
    for (const ms of [1.7e308, 1e306, 1e12, Number.POSITIVE_INFINITY, Number.NaN, -1])
      assert.throws(() => readFromSandbox(message(ms)), /an invalid message/, `${ms}`);
  }
});
