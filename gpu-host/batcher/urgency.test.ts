import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Trace } from './testing/trace.ts';
import { urgency } from './urgency.ts';

const AGING_MS = 100;

/** One call per batch, so that batches show the order. */
function single(): Trace {
  return new Trace({ maxCalls: 1, agingMs: AGING_MS });
}

function setPriority(trace: Trace, name: string, priority: number): void {
  trace.batcher.setPriority(trace.queue(name), priority);
}

test('a call lends its urgency to the one that it waits for', () => {
  const trace = single();
  setPriority(trace, 'a.low', -5);
  setPriority(trace, 'a.high', 5);
  setPriority(trace, 'b', 1);
  trace.push('a.low', { kind: 'forward', writes: [1] }, 'blocker');
  trace.push('a.low', { kind: 'forward' }, 'behind it');
  trace.push('b', { kind: 'forward' }, 'other');
  trace.push('a.high', { kind: 'forward', reads: [1] }, 'urgent');
  assert.deepEqual(trace.steps().flat(), ['blocker', 'urgent', 'other', 'behind it']);
});

test('a call lends its urgency also to the calls ahead of its blockers in their queues, and to the blockers of those calls', () => {
  const trace = single();
  setPriority(trace, 'a.1', -5);
  setPriority(trace, 'a.2', -4);
  setPriority(trace, 'a.3', 5);
  trace.push('a.1', { kind: 'forward' }, 'first');
  trace.push('a.1', { kind: 'forward', writes: [1] }, 'second');
  trace.push('a.2', { kind: 'forward', reads: [1] }, 'third');
  trace.push('a.2', { kind: 'instant', writes: [2] }, 'instant');
  trace.push('a.2', { kind: 'forward' }, 'not waited for');
  trace.decode('b');
  trace.push('a.3', { kind: 'forward', reads: [2] }, 'urgent');
  const order: string[] = [];
  while (trace.batcher.waiting > 0) {
    order.push(...trace.step());
    order.push(...trace.instants());
  }
  assert.deepEqual(order, ['first', 'second', 'third', 'instant', 'urgent', 'b', 'not waited for']);
});

test('a change of priority of a waiting call or its blocker counts, also when the two calls could share a batch', () => {
  for (const change of ['raise', 'lower'] as const) {
    for (const access of [{ writes: [1] }, { fills: [1] }]) {
      const trace = single();
      setPriority(trace, 'a.1', 1);
      setPriority(trace, 'a.2', 1);
      setPriority(trace, 'b', change === 'raise' ? 3 : 0);
      trace.decode('b');
      assert.deepEqual(trace.step(), ['b'], 'the changes so far have been taken into account');
      trace.push('a.1', { kind: 'forward', ...access }, 'blocker');
      trace.decode('b');
      trace.push('a.2', { kind: 'forward', reads: [1] }, 'waits');
      if (change === 'raise') setPriority(trace, 'a.2', 5);
      else setPriority(trace, 'a.1', -5);
      assert.deepEqual(trace.steps().flat(), ['blocker', 'waits', 'b'], `${change} ${Object.keys(access)}`);
    }
  }
});

test('the first priority of an address space counts for the calls that wait already', () => {
  for (const access of [{ writes: [1] }, { fills: [1] }]) {
    const trace = single();
    setPriority(trace, 'b', 3);
    trace.push('a.1', { kind: 'forward', ...access }, 'blocker');
    trace.decode('b');
    trace.push('a.2', { kind: 'forward', reads: [1] }, 'waits');
    setPriority(trace, 'a.2', 5);
    assert.deepEqual(trace.steps().flat(), ['blocker', 'waits', 'b'], `${Object.keys(access)}`);
  }
});

test('a call whose own priority exceeds the lent one goes by its own', () => {
  const trace = single();
  setPriority(trace, 'a.2', 2);
  setPriority(trace, 'b', 3);
  trace.decode('b');
  trace.push('a.1', { kind: 'forward', writes: [1] }, 'blocker');
  trace.push('a.2', { kind: 'forward', reads: [1] }, 'waits');
  setPriority(trace, 'a.1', 5);
  assert.deepEqual(trace.steps().flat(), ['blocker', 'b', 'waits']);
});

test('an urgent call goes before an older one of another kind', () => {
  const trace = single();
  setPriority(trace, 'b', 5);
  trace.push('a', { kind: 'project' }, 'older');
  trace.decode('b');
  assert.deepEqual(trace.steps().flat(), ['b', 'older']);
});

test('a run that others wait for has their priority, and counts as newly arrived with each token', () => {
  const trace = single();
  setPriority(trace, 'a.1', -3);
  setPriority(trace, 'a.2', 2);
  const run = trace.push('a.1', { kind: 'forward', writes: [1], run: true, tokens: 50 }, 'run');
  trace.push('a.2', { kind: 'forward', reads: [1] }, 'waits');
  for (let i = 0; i < 5; i++) trace.step(7);
  assert.equal(run.arrivedMs, trace.nowMs);
  assert.equal(urgency(run, AGING_MS), trace.nowMs - 2 * AGING_MS);
});

test('without priorities the batcher keeps no state for lending', () => {
  const trace = single();
  trace.push('a.1', { kind: 'forward', writes: [1] });
  const waits = trace.push('a.2', { kind: 'forward', reads: [1] });
  assert.equal(waits.blockers, 1);
  assert.equal(waits.links, undefined);
});
