import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { HeldInvocation, InvocationEvent } from '../../control.ts';
import { textOf } from '../html/parts.ts';
import { stepsOf, waterfall } from './invocation.ts';

const AT = Date.UTC(2026, 10, 24);
const iso = (ms: number) => new Date(AT + ms).toISOString();
const state = (more: Partial<HeldInvocation> = {}): HeldInvocation => ({
  id: 'inv_1',
  function: 'story',
  version: 'v',
  status: 'succeeded',
  attempts: 1,
  lastEventId: '1-3',
  createdAt: iso(0),
  startedAt: iso(10),
  endedAt: iso(100),
  ...more,
});
const event = (seq: number, name: 'start' | 'metric', data: object): InvocationEvent => ({
  seq,
  epoch: 1,
  event: name,
  data: JSON.stringify(data),
});
const events = [
  event(1, 'start', { coldStart: true }),
  event(2, 'metric', { buildMs: 0, compileMs: 4, instantiateMs: 1, firstCallMs: 2 }),
];

test('the steps follow each other, and the bars of device and CPU time lie within the program', () => {
  const usage = { calls: 1234, gpuMs: 40, cpuMs: 500 };
  assert.deepEqual(
    stepsOf(state({ usage }), events).map(({ name, fromMs, toMs, note }) => [name, fromMs, toMs, note]),
    [
      ['Queue', 0, 10, ''],
      ['Instance', 10, 15, 'cold, compile 4 ms, instantiate 1 ms'],
      ['Program', 15, 100, '1,234 calls, the first after 2 ms'],
      ['Device', 15, 55, 'its share of the batches, in all'],
      ['CPU', 15, 100, 'its own code, in all'],
    ],
  );
  assert.deepEqual(stepsOf(state({ usage }), []), [], 'no steps once the events are deleted');
  assert.equal(
    stepsOf(state(), events)[2]?.note,
    '0 calls',
    'without a counted call, the time of the first call is left out',
  );
});

test('a wait for a person is not part of the queue, and device time is that of all attempts', () => {
  const asked = [{ ...event(1, 'start', {}), event: 'question' as const }, event(2, 'metric', { queuedMs: 3 })];
  assert.deepEqual(
    stepsOf(state({ usage: { gpuMs: 95 } }), asked).map(({ name, fromMs, toMs, note }) => [name, fromMs, toMs, note]),
    [
      ['Earlier attempts', 0, 7, 'with 1 question to a person'],
      ['Queue', 7, 10, ''],
      ['Instance', 10, 10, 'warm'],
      ['Program', 10, 100, '0 calls'],
      ['Device', 0, 95, 'its share of the batches, in all'],
    ],
  );
});

test('the recorded parts of a program lie within its step, with escaped names, and failed parts are marked', async () => {
  const spans = [
    { name: 'search', kind: 'searching', fromMs: 0, toMs: 20 },
    { name: '<b>"answer"</b>', kind: 'decoding', fromMs: 20, toMs: 1000, failed: true },
    { name: ' ', kind: '', fromMs: 20, toMs: 21 },
  ];
  const steps = stepsOf(state(), [event(1, 'start', {}), event(2, 'metric', { compileMs: 5, spans, moreSpans: 1012 })]);
  assert.deepEqual(
    steps.map(({ name, fromMs, toMs, note, part }) => [name, fromMs, toMs, note, part]),
    [
      ['Queue', 0, 10, '', undefined],
      ['Instance', 10, 15, 'warm, compile 5 ms', undefined],
      ['Program', 15, 100, '0 calls', undefined],
      ['search', 15, 35, 'searching', 'ended'],
      ['<b>"answer"</b>', 35, 100, 'decoding, failed', 'failed'],
      ['unnamed', 35, 36, '', 'ended'],
      ['and 1,012 more', 15, 100, '', 'not shown'],
    ],
  );
  const shown = await textOf(waterfall(steps));
  assert.match(
    shown,
    /<li class="part"><span class="step"><span><strong>&lt;b&gt;&quot;answer&quot;&lt;\/b&gt;<\/strong>/,
  );
  assert.match(shown, /class="bar bad" role="img" aria-label="[^"]*: 65 ms, from 35 ms on, failed"/);
  assert.match(shown, /class="bar busy" role="img" aria-label="search: 20 ms, from 15 ms on"/);
  assert.match(shown, /<li class="part"><small>and 1,012 more<\/small><\/li>/);
  assert.equal(shown.match(/<svg/g)?.length, 6, 'the row for the spans that are not shown has no bar');
  assert.doesNotMatch(shown, /<b>/);
});

test('no bar leaves the axis, even if the clocks of gateway and runtime disagree', async () => {
  const ms = fc.integer({ min: -1000, max: 100_000 });
  const span = fc
    .record({ name: fc.string(), kind: fc.string(), fromMs: fc.nat(1e5), lastedMs: fc.nat(1e5) })
    .map(({ lastedMs, ...begun }) => ({ ...begun, toMs: begun.fromMs + lastedMs }));
  const times = fc.record({
    queuedMs: fc.nat(1e5),
    buildMs: fc.nat(1e5),
    compileMs: fc.nat(1e5),
    instantiateMs: fc.nat(1e5),
    spans: fc.array(span, { maxLength: 3 }),
  });
  await fc.assert(
    fc.asyncProperty(ms, fc.nat(100_000), times, fc.nat(1e6), async (started, ended, metric, gpuMs) => {
      const invocation = state({ attempts: 2, startedAt: iso(started), endedAt: iso(ended), usage: { gpuMs } });
      const steps = stepsOf(invocation, [event(1, 'metric', metric)]);
      for (const { fromMs, toMs } of steps) assert.ok(0 <= fromMs && fromMs <= toMs && toMs <= ended);
      const [queue, instance, program] = steps.filter(({ name }) => name !== 'Earlier attempts');
      assert.deepEqual([queue?.toMs, instance?.toMs, program?.toMs], [instance?.fromMs, program?.fromMs, ended]);
      assert.doesNotMatch(await textOf(waterfall(steps)), /NaN|Infinity/);
    }),
    { seed: 18 },
  );
});
