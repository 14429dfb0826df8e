import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BatchPolicy } from './testing/policies.ts';
import { Trace } from './testing/trace.ts';

/** A trace with one run on the device. A run is alone (`isAlone`) while no other call can go and the policy awaits none. */
function traceWithRun(policy?: BatchPolicy): Trace {
  const trace = new Trace({}, { grace: { maxMs: 1, stepShare: 0.25 }, ...(policy ? { policy } : {}) });
  trace.push('run', { kind: 'forward', run: true, tokens: 100 });
  trace.start();
  return trace;
}

test('a run counts as alone until another call of any kind can go', () => {
  for (const kind of ['forward', 'project', 'encode', 'instant', 'idle'] as const) {
    const trace = traceWithRun();
    assert.equal(trace.batcher.isAlone(trace.nowMs), true);
    trace.push('other', { kind });
    assert.equal(trace.batcher.isAlone(trace.nowMs), false, kind);
  }
});

test('a run counts as alone while the only other calls wait for the run', () => {
  const trace = new Trace();
  trace.push('run', { kind: 'forward', run: true, tokens: 100, fills: [1] });
  trace.start();
  trace.push('run', { kind: 'forward', reads: [1] });
  trace.push('run.2', { kind: 'instant', writes: [1] });
  assert.equal(trace.batcher.isAlone(trace.nowMs), true);
});

test('a run is not alone during the grace period of another queue that was just answered', () => {
  const trace = new Trace({}, { grace: { maxMs: 1, stepShare: 0.25 } });
  const short = trace.push('short', { kind: 'forward', run: true, tokens: 1 });
  trace.push('run', { kind: 'forward', run: true, tokens: 100 });
  trace.start();
  trace.nowMs = 3;
  trace.batcher.finish(short, trace.nowMs);
  assert.equal(trace.batcher.isAlone(3.5), false, 'half of `maxMs` after the answer');
  assert.equal(trace.batcher.isAlone(4.5), true, 'past `maxMs` after the answer');
});

test('a run counts as alone under the policy `eager`, and not under a policy that gathers calls', () => {
  assert.equal(traceWithRun({ kind: 'eager' }).batcher.isAlone(0), true);
  for (const policy of [
    { kind: 'k-only', calls: 1, maxWaitMs: 5 },
    { kind: 'rate', maxWaitMs: 5 },
  ] as const) {
    const trace = new Trace({}, { policy });
    trace.push('run', { kind: 'forward', run: true, tokens: 100 });
    trace.nowMs = 10;
    trace.start();
    assert.equal(trace.batcher.isAlone(10), false);
  }
});

test('the grace period after several steps is a share of the last step', () => {
  const trace = new Trace({}, { grace: { maxMs: 100, stepShare: 0.25 } });
  const run = trace.push('run', { kind: 'forward', run: true, tokens: 100 });
  const short = trace.push('short', { kind: 'forward', run: true, tokens: 1 });
  trace.start();
  for (trace.nowMs = 4; trace.nowMs < 400; trace.nowMs += 4) {
    trace.batcher.goesOn(run, trace.nowMs);
    trace.batcher.stepped(trace.nowMs);
  }
  assert.equal(run.arrivedMs, 396, 'the run counts as newly arrived');
  trace.batcher.finish(short, trace.nowMs);
  trace.batcher.resume(run, trace.nowMs);
  trace.batcher.ended(trace.nowMs);
  const decision = trace.batcher.next(trace.nowMs);
  assert.ok(decision.kind === 'wait' && decision.ms === 1, 'a quarter of 4 ms');
});
