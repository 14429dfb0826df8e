import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BatchCall } from './call.ts';
import type { SimCall, SimShape } from './testing/sim-call.ts';
import { Trace } from './testing/trace.ts';

const names = (calls: readonly BatchCall[] | undefined): string[] | undefined =>
  calls?.map((call) => (call as SimCall).name);

/** A forward in place: reads its pages and fills them. */
function decodeOn(...pages: number[]): SimShape {
  return { kind: 'forward', reads: pages, fills: pages };
}

test('a prefill split into two forwards is one batch, in order', () => {
  const trace = new Trace();
  trace.push('a', { kind: 'forward', fills: [1], tokens: 30 }, 'first');
  trace.push('a', { kind: 'forward', reads: [1], fills: [1, 2], tokens: 20 }, 'second');
  const { batch, names: started } = trace.start();
  assert.deepEqual(started, ['first:30', 'second:20']);
  assert.deepEqual(
    batch.forwards.map((grant) => names(grant.after)),
    [undefined, ['first']],
  );
  trace.end(batch);
  assert.equal(trace.batcher.rides.softJoins, 1);
  assert.equal(trace.queue('a').scoreboard.size, 0);
});

test('calls of several queues that follow each other join one batch, behind the calls that were ready before', () => {
  const trace = new Trace({ maxCalls: 8 });
  trace.push('a.1', decodeOn(1), 'A');
  trace.push('a.2', decodeOn(1), 'B');
  trace.push('a.3', decodeOn(1), 'C');
  trace.decode('z');
  const { batch, names: started } = trace.start();
  assert.deepEqual(started, ['A', 'z', 'B', 'C']);
  assert.deepEqual(
    batch.forwards.map((grant) => names(grant.after)),
    [undefined, undefined, ['A'], ['B']],
  );
});

test('a chain is cut at the limits, and goes on where it was cut', () => {
  const decodes = new Trace();
  for (let i = 0; i < 10; i++) decodes.push('a', decodeOn(1), `d${i}`);
  assert.deepEqual(decodes.steps(), [
    ['d0', 'd1', 'd2', 'd3'],
    ['d4', 'd5', 'd6', 'd7'],
    ['d8', 'd9'],
  ]);
  const prefills = new Trace();
  for (let i = 0; i < 3; i++) prefills.push('a', { kind: 'forward', fills: [1], tokens: 30 }, `p${i}`);
  assert.deepEqual(prefills.steps(), [['p0:30', 'p1:30'], ['p2:30']]);
});

test('projections ride with every forward of a chain, also when they stand between the forwards', () => {
  const trace = new Trace({ maxCalls: 8 });
  trace.push('a', { kind: 'forward', reads: [1], fills: [1], writes: [10] }, 'F1');
  trace.push('a', { kind: 'project', reads: [10] }, 'P1');
  trace.push('a', { kind: 'forward', reads: [1], fills: [1], writes: [11] }, 'F2');
  trace.push('a', { kind: 'project', reads: [11] }, 'P2');
  trace.push('a', { kind: 'project', reads: [10] }, 'P1 again');
  // F3 overwrites the state that P1 reads, so it must wait.
  trace.push('a', { kind: 'forward', reads: [1], fills: [1], writes: [10] }, 'F3');
  assert.deepEqual(trace.step(), ['F1', 'F2', 'P1', 'P2', 'P1 again']);
  assert.deepEqual(trace.step(), ['F3']);
  assert.deepEqual(trace.batcher.rides, { softJoins: 1, projections: 3 });
});

test('at most `maxCalls` projections ride with the forwards of a batch', () => {
  const trace = new Trace();
  trace.push('a', { kind: 'forward', writes: [1] }, 'F');
  for (let i = 0; i < 6; i++) trace.push('a', { kind: 'project', reads: [1] }, `P${i}`);
  trace.push('a', { kind: 'forward', fills: [5] }, 'G');
  assert.deepEqual(trace.step(), ['F', 'P0', 'P1', 'P2', 'P3']);
  assert.deepEqual(trace.steps(), [['P4', 'P5'], ['G']]);
});

test('a call that only fills a page which an earlier call reads follows the reader, and does not fail with it', () => {
  const trace = new Trace();
  trace.push('a.1', { kind: 'forward', reads: [1] }, 'probe');
  trace.push('a.2', { kind: 'forward', fills: [1] }, 'fill');
  trace.push('a.3', { kind: 'forward', reads: [1] }, 'later reader');
  const { batch, names: started } = trace.start();
  assert.deepEqual(started, ['probe', 'fill', 'later reader']);
  assert.deepEqual(
    batch.forwards.map((grant) => names(grant.after)),
    [undefined, undefined, ['fill']],
  );
});

test('a call that follows a read and needs a fill of the same earlier call depends on that call', () => {
  const trace = new Trace();
  trace.push('a.1', { kind: 'forward', reads: [1], fills: [2] }, 'A');
  // B only follows A's read of page 1, and depends on A's fill of page 2.
  trace.push('a.2', { kind: 'forward', fills: [1], reads: [2] }, 'B');
  // C fills both pages of the A in inferlet b: first the page that A reads, then the page that A fills.
  trace.push('b.1', { kind: 'forward', reads: [1], fills: [2] }, 'A');
  trace.push('b.2', { kind: 'forward', fills: [1, 2] }, 'C');
  const { batch } = trace.start();
  assert.deepEqual(
    batch.forwards.map((grant) => names(grant.after)),
    [undefined, undefined, ['A'], ['A']],
  );
});

test('a cut call brings no follower along before its last part', () => {
  const trace = new Trace();
  trace.push('a.1', { kind: 'forward', fills: [1], tokens: 100 }, 'long');
  trace.push('a.2', decodeOn(1), 'next');
  assert.deepEqual(trace.steps(), [['long:64'], ['long:36', 'next']]);
});

test('a follower joins a batch whole or not at all', () => {
  const trace = new Trace();
  trace.push('a', { kind: 'forward', fills: [1], tokens: 40 }, 'first');
  const second = trace.push('a', { kind: 'forward', fills: [1], tokens: 40 }, 'second');
  second.chunkable = () => {
    assert.equal(second.blockers, 0, 'the batcher asked before the calls that this one follows were done');
    return true;
  };
  trace.push('a', { kind: 'forward', fills: [1], tokens: 40 }, 'third');
  assert.deepEqual(trace.steps(), [['first:40'], ['second:40'], ['third:40']]);
});

test('a call that follows one call of the batch and one outside it does not join the batch', () => {
  const trace = new Trace({ maxCalls: 2 });
  trace.push('a.1', decodeOn(1), 'A');
  trace.push('a.2', { kind: 'forward', fills: [2], tokens: 100 }, 'B');
  trace.push('a.3', { kind: 'forward', reads: [1, 2] }, 'A and B');
  assert.deepEqual(trace.step(), ['A', 'B:63']);
  assert.deepEqual(trace.step(), ['B:37', 'A and B']);
});

test('a run neither has nor is a soft follower', () => {
  const trace = new Trace();
  trace.push('a.1', decodeOn(1), 'before');
  trace.push('a.2', { ...decodeOn(1), run: true, tokens: 2 }, 'run');
  trace.push('a.3', decodeOn(1), 'after');
  assert.deepEqual(trace.steps(), [['before'], ['run:1'], ['run'], ['after']]);
});

test('a call that reads a state, copies a page or frees a page waits until the earlier calls are done', () => {
  const trace = new Trace();
  trace.push('a.1', { kind: 'forward', fills: [1], writes: [10] }, 'F');
  trace.push('a.2', { kind: 'forward', reads: [10, 1] }, 'reads its state');
  trace.push('a.3', { kind: 'idle', reads: [1], writes: [2] }, 'copies its page');
  trace.push('a.4', { kind: 'forward', fills: [2] }, 'fills the copy');
  trace.push('a.5', { kind: 'instant', writes: [1] }, 'free');
  assert.deepEqual(trace.step(), ['F']);
  assert.deepEqual(trace.instants(), ['copies its page']);
  assert.deepEqual(trace.step(), ['reads its state', 'fills the copy']);
  assert.deepEqual(trace.instants(), ['free']);
});

test('a follower that fails first keeps its place until the call that it follows is done', () => {
  const trace = new Trace();
  const first = trace.push('a.1', decodeOn(1), 'first');
  const second = trace.push('a.2', decodeOn(1), 'second');
  trace.push('a.3', { kind: 'instant', writes: [1] }, 'free');
  const { names: started } = trace.start();
  assert.deepEqual(started, ['first', 'second']);
  trace.batcher.finish(second, trace.nowMs);
  assert.deepEqual(trace.instants(), [], 'the first still fills the page');
  trace.push('a.4', { kind: 'instant', reads: [1] }, 'reader');
  assert.deepEqual(trace.instants(), []);
  trace.batcher.finish(first, trace.nowMs);
  trace.batcher.ended(trace.nowMs);
  assert.deepEqual(trace.instants(), ['free', 'reader']);
  assert.equal(trace.queue('a.1').scoreboard.size, 0);
});

test('dependents of a dropped call inherit its dependencies', () => {
  const trace = new Trace();
  trace.push('a.1', { kind: 'forward', writes: [1] }, 'running');
  const { batch } = trace.start();
  trace.push('a.2', { kind: 'forward', writes: [1] }, 'dropped');
  trace.push('a.2', { kind: 'forward', writes: [1] }, 'dropped too');
  trace.push('a.3', { kind: 'instant', reads: [1] }, 'reader');
  assert.deepEqual(names(trace.batcher.closeQueue(trace.queue('a.2'))), ['dropped', 'dropped too']);
  assert.deepEqual(trace.instants(), [], 'the device still writes');
  trace.end(batch);
  assert.deepEqual(trace.instants(), ['reader']);
  assert.equal(trace.queue('a.1').scoreboard.size, 0);
});

test('closing a queue drops followers that are not on the device, and lets the device finish', () => {
  const trace = new Trace();
  trace.push('a.1', { kind: 'forward', fills: [1], tokens: 100 }, 'long');
  const { batch } = trace.start();
  trace.push('a.1', decodeOn(1), 'dropped');
  trace.push('a.2', decodeOn(1), 'other');
  assert.deepEqual(names(trace.batcher.closeQueue(trace.queue('a.1'))), ['dropped']);
  trace.end(batch);
  // The cut call is on the device: the caller ends it or lets it go on.
  assert.deepEqual(trace.step(), ['long:36']);
  assert.deepEqual(trace.step(), ['other']);
  assert.equal(trace.queue('a.1').length, 0);
  assert.equal(trace.queue('a.1').outstanding, 0);
});

test('a call waits for the unfinished writer or reader of one of very many pages, and for each of many readers', () => {
  // The scoreboard removes finished calls from its entries at 4,096 pages, and from a page's readers at 16. The test exceeds both numbers.
  const pages = Array.from({ length: 5000 }, (_, page) => page);
  for (const long of [{ writes: pages }, { reads: pages }]) {
    const trace = new Trace();
    trace.push('a.1', { kind: 'forward', tokens: 100, ...long }, 'long');
    trace.push('a.2', { kind: 'forward', writes: [4] }, 'writer');
    assert.deepEqual(trace.steps(), [['long:64'], ['long:36'], ['writer']]);
  }
  const trace = new Trace({ maxCalls: 64 });
  trace.push('a', { kind: 'forward', reads: [1], tokens: 100 }, 'long');
  for (let i = 0; i < 20; i++) trace.push(`a.${i}`, { kind: 'forward', reads: [1] }, `r${i}`);
  trace.push('a.20', { kind: 'forward', writes: [1] }, 'writer');
  // The first batch has the 20 readers and 44 inputs of `long`.
  assert.deepEqual(trace.steps().slice(1), [['long:56'], ['writer']]);
});
