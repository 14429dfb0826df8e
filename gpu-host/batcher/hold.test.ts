import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Trace } from './testing/trace.ts';

/** A chain of two forwards with a projection, all chosen for one batch beside a call of another inferlet, and held. */
function heldChain() {
  const trace = new Trace({ maxCalls: 8 });
  const first = trace.push('a', { kind: 'forward', reads: [1], fills: [1], writes: [10] }, 'F1');
  const rider = trace.push('a', { kind: 'project', reads: [10] }, 'P1');
  const second = trace.push('a', { kind: 'forward', reads: [1], fills: [1] }, 'F2');
  const last = trace.push('a', { kind: 'barrier' }, 'end');
  const other = trace.decode('z');
  const { batch, names } = trace.start();
  assert.deepEqual(names.toSorted(), ['F1', 'F2', 'P1', 'z']);
  for (const call of [first, second, rider]) trace.batcher.hold(call);
  trace.batcher.finish(other, trace.nowMs);
  trace.batcher.ended(trace.nowMs);
  return { trace, first, second, rider, last, batch };
}

test('held calls keep their order: each goes again behind the one that it follows', () => {
  const { trace, first } = heldChain();
  assert.equal(trace.batcher.waiting, 0);
  trace.decode('z', 'y');
  assert.deepEqual(trace.step(), ['y'], 'others go on');
  assert.deepEqual(trace.instants(), [], 'a barrier waits for held calls');
  trace.batcher.resume(first, trace.nowMs);
  assert.deepEqual(trace.step(), ['F1', 'F2', 'P1']);
  assert.deepEqual(trace.instants(), ['end']);
  assert.equal(trace.queue('a').scoreboard.size, 0);
  assert.equal(trace.queue('a').outstanding, 0);
});

test('a call may be held again and again', () => {
  const { trace, first, second, rider } = heldChain();
  for (let i = 0; i < 3; i++) {
    trace.batcher.resume(first, trace.nowMs);
    assert.deepEqual(trace.start().names, ['F1', 'F2', 'P1']);
    for (const call of [first, second, rider]) trace.batcher.hold(call);
    trace.batcher.ended(trace.nowMs);
  }
  trace.batcher.resume(first, trace.nowMs);
  assert.deepEqual(trace.steps(), [['F1', 'F2', 'P1']]);
});

test('calls that wait for a held one give back what they took, and take it again before they go', () => {
  const { trace, first, second, rider } = heldChain();
  assert.deepEqual(
    [first, second, rider].map(({ acquired }) => acquired),
    [true, false, false],
  );
  trace.batcher.resume(first, trace.nowMs);
  const { batch } = trace.start();
  assert.deepEqual(
    [first, second, rider].map(({ acquired }) => acquired),
    [true, true, true],
  );
  trace.end(batch);
});

test('closing a queue drops its held calls as well', () => {
  const { trace, first, second, rider, last } = heldChain();
  const queue = trace.queue('a');
  assert.deepEqual(new Set(trace.batcher.closeQueue(queue)), new Set([first, second, rider, last]));
  assert.deepEqual([queue.outstanding, queue.scoreboard.size, trace.batcher.waiting], [0, 0, 0]);
});

test('a call that found no room behind a held one waits for it', () => {
  const trace = new Trace({ maxCalls: 1 });
  const first = trace.push('a', { kind: 'forward', reads: [1], fills: [1] }, 'F1');
  const second = trace.push('a', { kind: 'forward', reads: [1], fills: [1] }, 'F2');
  assert.deepEqual(trace.start().names, ['F1']);
  trace.batcher.hold(first);
  trace.batcher.ended(trace.nowMs);
  assert.equal(trace.batcher.waiting, 0);
  assert.equal(second.acquired, false);
  trace.batcher.resume(first, trace.nowMs);
  assert.deepEqual(trace.steps(), [['F1'], ['F2']]);
  assert.equal(second.acquired, true);
});

test('a paused call whose predecessor is held afterwards waits for the predecessor when both are resumed', () => {
  const trace = new Trace({ maxTokens: 20 });
  const first = trace.push('a', { kind: 'forward', fills: [1], tokens: 20 }, 'F1');
  const second = trace.push('a', { kind: 'forward', reads: [1], fills: [1] }, 'F2');
  assert.deepEqual(trace.start().names, ['F1:20']);
  // An older inferlet takes the memory of both calls.
  trace.batcher.pause(second);
  trace.batcher.hold(first);
  trace.batcher.ended(trace.nowMs);
  for (const call of [second, first]) trace.batcher.resume(call, trace.nowMs);
  assert.equal(second.acquired, false, 'the second call waits again');
  assert.deepEqual(trace.steps(), [['F1:20'], ['F2']]);
  assert.equal(trace.queue('a').scoreboard.size, 0);
});
