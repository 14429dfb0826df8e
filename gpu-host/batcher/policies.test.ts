import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  ArrivalRate,
  type BatchPolicy,
  departureOf,
  kOnlyWaitMs,
  rateWaitMs,
  tOnlyWaitMs,
} from './testing/policies.ts';
import { Trace } from './testing/trace.ts';

test('eager: every call leaves alone, in order of arrival, whatever its priority', () => {
  const trace = new Trace({}, { policy: { kind: 'eager' } });
  trace.batcher.setPriority(trace.queue('b'), 5);
  trace.push('a', { kind: 'forward', fills: [1], writes: [10] }, 'F1');
  trace.push('a', { kind: 'forward', fills: [1] }, 'F2');
  trace.push('a', { kind: 'project', reads: [10] }, 'P1');
  trace.decode('b');
  trace.push('c', { kind: 'forward', tokens: 100 }, 'long');
  assert.deepEqual(trace.steps(), [['F1'], ['F2'], ['P1'], ['b'], ['long:64'], ['long:36']]);
  assert.deepEqual(trace.batcher.rides, { softJoins: 0, projections: 0 });
});

test('eager: runs take turns', () => {
  const trace = new Trace({}, { policy: { kind: 'eager' } });
  trace.push('a', { kind: 'forward', run: true, tokens: 3 });
  trace.push('b', { kind: 'forward', run: true, tokens: 3 });
  assert.deepEqual(trace.steps(), [['a:1'], ['b:1'], ['a:1'], ['b:1'], ['a'], ['b']]);
});

test('k-only: waits for `calls` calls, or until the oldest has waited for `maxWaitMs`', () => {
  const policy = { calls: 3, maxWaitMs: 10 };
  assert.equal(kOnlyWaitMs(policy, 2, 4), 6);
  assert.equal(kOnlyWaitMs(policy, 2, 11), 0);
  assert.equal(kOnlyWaitMs(policy, 3, 0), 0);
  const trace = new Trace({}, { policy: { kind: 'k-only', ...policy } });
  trace.decode('a');
  assert.equal(trace.waitMs(), 10);
  trace.nowMs = 4;
  trace.decode('b');
  assert.equal(trace.waitMs(), 6);
  trace.decode('c');
  assert.deepEqual(trace.step(), ['a', 'b', 'c']);
  trace.decode('a');
  trace.nowMs += 10;
  assert.deepEqual(trace.step(), ['a']);
});

test('k-only: a full batch leaves, even when the policy asks for more calls', () => {
  const trace = new Trace({}, { policy: { kind: 'k-only', calls: 100, maxWaitMs: 10 } });
  for (const name of ['a', 'b', 'c', 'd']) trace.decode(name);
  assert.deepEqual(trace.step(), ['a', 'b', 'c', 'd']);
});

test('t-only: batches leave at fixed times', () => {
  assert.equal(tOnlyWaitMs({ intervalMs: 10 }, 13, 13), 7);
  assert.equal(tOnlyWaitMs({ intervalMs: 10 }, 13, 21), 0);
  assert.equal(tOnlyWaitMs({ intervalMs: 10 }, 20, 20), 10);
  const trace = new Trace({}, { policy: { kind: 't-only', intervalMs: 10 } });
  trace.nowMs = 3;
  trace.decode('a');
  assert.equal(trace.waitMs(), 7);
  trace.nowMs = 9;
  trace.decode('b');
  assert.equal(trace.waitMs(), 1);
  trace.nowMs = 10;
  assert.deepEqual(trace.step(13), ['a', 'b']);
  // The tick at 20 passed while the device computed.
  trace.decode('a');
  assert.equal(trace.waitMs(), 7);
  trace.nowMs = 30;
  assert.deepEqual(trace.step(), ['a']);
});

test('rate: a batch waits while the expected cost to the ready calls is less than the gain of the next call', () => {
  const moment = { ready: 2, waitedMs: 0, stepMs: 10, gapMs: 1, sinceMs: 0 };
  assert.equal(rateWaitMs({ maxWaitMs: 50 }, moment), 5);
  assert.equal(rateWaitMs({ maxWaitMs: 50 }, { ...moment, sinceMs: 4 }), 1);
  assert.equal(rateWaitMs({ maxWaitMs: 50 }, { ...moment, sinceMs: 6 }), 0);
  assert.equal(rateWaitMs({ maxWaitMs: 3 }, { ...moment, waitedMs: 1 }), 2);
  assert.equal(rateWaitMs({ maxWaitMs: 50 }, { ...moment, ready: 10 }), 0, 'ten would lose what one gains');
  assert.equal(rateWaitMs({ maxWaitMs: 50 }, { ...moment, gapMs: 5 }), 0);
  assert.equal(rateWaitMs({ maxWaitMs: 50 }, { ...moment, gapMs: undefined }), 0);
});

test('rate: the mean gap between calls is learnt from their arrivals', () => {
  const rate = new ArrivalRate();
  assert.equal(rate.sinceMs(5), Number.POSITIVE_INFINITY);
  rate.arrived(5);
  assert.equal(rate.gapMs, undefined);
  rate.arrived(7);
  assert.equal(rate.gapMs, 2);
  rate.arrived(14);
  assert.equal(rate.gapMs, 3, '2 + 0.2 × (7 - 2)');
  assert.equal(rate.sinceMs(15), 1);
  for (let i = 0; i < 50; i++) rate.arrived(15 + i / 2);
  assert.ok(Math.abs(rate.gapMs - 0.5) < 0.01);
});

test('rate: calls that come often are gathered in a batch, rare calls are not', () => {
  const trace = new Trace({}, { policy: { kind: 'rate', maxWaitMs: 50 } });
  for (const name of ['a', 'b']) {
    trace.decode(name);
    trace.nowMs += 1;
  }
  assert.deepEqual(trace.step(8), ['a', 'b'], 'the duration of a step is not known yet');
  trace.decode('a');
  assert.ok(trace.waitMs() > 0);
  trace.nowMs += 1;
  trace.decode('b');
  assert.equal(trace.waitMs(), 4, 'the 8 ms of a step, divided by the two ready calls');
  trace.nowMs += 4;
  assert.deepEqual(trace.step(8), ['a', 'b']);
  trace.nowMs += 500;
  trace.decode('a');
  assert.equal(trace.waitMs(), 0);
});

test('invalid bounds are refused', () => {
  const bad: BatchPolicy[] = [
    { kind: 'k-only', calls: 0, maxWaitMs: 1 },
    { kind: 'k-only', calls: 2, maxWaitMs: Number.POSITIVE_INFINITY },
    { kind: 't-only', intervalMs: Number.NaN },
    { kind: 'rate', maxWaitMs: -1 },
  ];
  for (const policy of bad) assert.throws(() => departureOf(policy), RangeError);
});
