import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Trace } from './testing/trace.ts';

const AGING_MS = 100;

/**
 * One call per batch, so that batches show the order. Queues are named `tenant/query.number`; query `a` of a tenant is
 * older than query `b`.
 */
const single = (): Trace => new Trace({ maxCalls: 1, agingMs: AGING_MS });

function setDepth(trace: Trace, queue: string, depth: number): void {
  trace.batcher.setDepth(trace.queue(queue), depth);
}

/** Pushes a forward of one input, and lets a millisecond pass. */
function decode(trace: Trace, queue: string, depth?: number): void {
  if (depth !== undefined) setDepth(trace, queue, depth);
  trace.decode(queue);
  trace.nowMs++;
}

test("a tenant's first query goes first, and within a query the deepest call", () => {
  const trace = single();
  decode(trace, 't/b.1', 9);
  decode(trace, 't/a.1', 1);
  decode(trace, 't/b.2', 3);
  decode(trace, 't/a.2', 7);
  assert.deepEqual(trace.steps().flat(), ['t/a.2', 't/a.1', 't/b.1', 't/b.2']);
});

test('calls with a depth take the turns that their tenant has, and all others keep theirs', () => {
  const trace = single();
  decode(trace, 't/b.1', 9);
  decode(trace, 't/c.1');
  decode(trace, 'u/b.1', 1);
  decode(trace, 't/a.1', 7);
  decode(trace, 'u/a.1');
  assert.deepEqual(trace.steps().flat(), ['t/a.1', 't/c.1', 'u/b.1', 't/b.1', 'u/a.1']);
});

test('the steps of a run take turns of its own tenant, so a call of another tenant keeps its place', () => {
  const trace = single();
  setDepth(trace, 't/a.1', 8);
  trace.push('t/a.1', { kind: 'forward', run: true, tokens: 3 }, 'run');
  decode(trace, 't/b.1', 9);
  decode(trace, 't/c.1', 9);
  decode(trace, 'u/a.1');
  assert.deepEqual(trace.steps().flat(), ['run:1', 'run:1', 'run', 'u/a.1', 't/b.1', 't/c.1']);
  const [placeWithoutDepths, placeWithDepths] = [undefined, 9].map((depth) => {
    const other = single();
    for (const query of ['b', 'a', 'c']) decode(other, `t/${query}.1`, depth);
    decode(other, 'u/a.1');
    return other.steps().flat().indexOf('u/a.1');
  });
  assert.equal(placeWithDepths, placeWithoutDepths);
});

test('a call gives its early turn away only once', () => {
  const trace = single();
  decode(trace, 't/b.1', 0);
  decode(trace, 'u/a.1');
  decode(trace, 't/a.1', 5);
  decode(trace, 't/a.2', 5);
  assert.deepEqual(trace.steps().flat(), ['t/a.1', 'u/a.1', 't/a.2', 't/b.1']);
});

test('a call yields for a time and then keeps its turn, whatever priorities its queue may have', () => {
  for (const maxPriority of [0, 2]) {
    const trace = single();
    trace.queue('t/b.1', maxPriority);
    decode(trace, 't/b.1', 9);
    // A call yields for ten levels of priority at most.
    trace.nowMs = 10 * AGING_MS + 1;
    decode(trace, 't/a.1', 9);
    assert.deepEqual(trace.steps().flat(), ['t/b.1', 't/a.1'], '`t/b.1` has waited longer than a call may yield');
    decode(trace, 't/b.1', 9);
    decode(trace, 't/a.1', 9);
    assert.deepEqual(trace.steps().flat(), ['t/a.1', 't/b.1']);
  }
});

test('a change of priority gives back no turn that a call has given away', () => {
  const trace = single();
  decode(trace, 't/b.1', 0);
  decode(trace, 'u/a.1');
  decode(trace, 't/a.1', 5);
  const order = trace.step();
  for (const priority of [-10, 0]) trace.batcher.setPriority(trace.queue('t/b.1'), priority);
  decode(trace, 't/a.2', 5);
  assert.deepEqual([...order, ...trace.steps().flat()], ['t/a.1', 'u/a.1', 't/a.2', 't/b.1']);
});

test('a call yields while others with a depth wait for it', () => {
  const trace = single();
  setDepth(trace, 't/b.1', 1);
  trace.push('t/b.1', { kind: 'forward', writes: [1] }, 'prompt');
  trace.push('t/b.1', { kind: 'forward', reads: [1] }, 'waits');
  trace.nowMs++;
  decode(trace, 't/a.1', 5);
  assert.deepEqual(trace.steps().flat(), ['t/a.1', 'prompt', 'waits']);
});

test('a call does not yield while one without a depth waits for it', () => {
  const trace = single();
  setDepth(trace, 't/b.1', 0);
  trace.push('t/b.1', { kind: 'forward', writes: [1] }, 'blocker');
  trace.push('t/b.2', { kind: 'forward', reads: [1] }, 'waits');
  trace.nowMs++;
  decode(trace, 't/c.1');
  decode(trace, 't/a.1', 5);
  assert.deepEqual(trace.steps().flat(), ['blocker', 'waits', 't/c.1', 't/a.1']);
});

test('a call that came before its queue had a depth does not yield', () => {
  const trace = single();
  trace.push('t/b.1', { kind: 'forward', writes: [1] }, 'blocker');
  trace.push('t/b.2', { kind: 'forward', reads: [1] }, 'waits');
  trace.nowMs++;
  setDepth(trace, 't/b.1', 0);
  decode(trace, 't/a.1', 5);
  assert.deepEqual(trace.steps().flat(), ['blocker', 'waits', 't/a.1']);
});

test('a run of an older query goes on before the prompts of younger ones', () => {
  const trace = new Trace({ maxCalls: 2, maxTokens: 64 });
  setDepth(trace, 't/a.1', 8);
  setDepth(trace, 't/b.1', 20);
  setDepth(trace, 't/c.1', 20);
  trace.push('t/c.1', { kind: 'forward', tokens: 40 }, 'c');
  trace.push('t/b.1', { kind: 'forward', tokens: 40 }, 'b');
  trace.push('t/a.1', { kind: 'forward', run: true, tokens: 3 }, 'a');
  assert.deepEqual(trace.steps(), [['a:1', 'b:40'], ['a:1', 'c:40'], ['a']]);
});
