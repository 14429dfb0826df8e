import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { SimCall } from './testing/sim-call.ts';
import { Trace } from './testing/trace.ts';

test('the first call goes at once; calls that come during its step make the next batch', () => {
  const trace = new Trace();
  trace.decode('a');
  const { batch, names } = trace.start();
  assert.deepEqual(names, ['a']);
  trace.decode('b');
  trace.decode('c');
  assert.equal(trace.batcher.next(trace.nowMs).kind, 'idle');
  trace.end(batch);
  assert.deepEqual(trace.step(), ['b', 'c']);
});

test('embed, forward and next-distribution of one queue are one step', () => {
  const trace = new Trace();
  for (const inferlet of ['a', 'b']) {
    trace.push(inferlet, { kind: 'instant', writes: [1] }, `${inferlet} embed`);
    trace.push(inferlet, { kind: 'forward', reads: [1], writes: [2] }, `${inferlet} forward`);
    trace.push(inferlet, { kind: 'project', reads: [2] }, `${inferlet} next`);
  }
  assert.deepEqual(trace.instants(), ['a embed', 'b embed']);
  assert.deepEqual(trace.step(), ['a forward', 'b forward', 'a next', 'b next']);
});

test('a projection that waits for a call outside the step does not join the step', () => {
  const trace = new Trace();
  trace.push('a', { kind: 'forward', writes: [2] }, 'forward');
  trace.push('a', { kind: 'instant', writes: [2] }, 'overwrite');
  trace.push('a', { kind: 'project', reads: [2] }, 'next');
  assert.deepEqual(trace.step(), ['forward']);
  assert.deepEqual(trace.instants(), ['overwrite']);
  assert.deepEqual(trace.step(), ['next']);
});

test('independent calls of one queue share a batch, dependent ones do not', () => {
  const trace = new Trace();
  trace.push('a', { kind: 'forward', writes: [1] }, 'first');
  trace.push('a', { kind: 'forward', writes: [2] }, 'second');
  trace.push('a', { kind: 'forward', reads: [1], writes: [3] }, 'after first');
  trace.push('a', { kind: 'forward', writes: [4] }, 'behind');
  assert.deepEqual(trace.step(), ['first', 'second']);
  assert.deepEqual(trace.step(), ['after first', 'behind']);
});

test('queues of one inferlet that only read the same pages share a batch; a writer waits its turn', () => {
  const trace = new Trace();
  trace.push('a.1', { kind: 'forward', reads: [1], writes: [2] }, 'one');
  trace.push('a.2', { kind: 'forward', reads: [1], writes: [3] }, 'two');
  trace.push('a.3', { kind: 'forward', writes: [1] }, 'writer');
  trace.push('a.4', { kind: 'forward', reads: [1], writes: [4] }, 'later reader');
  assert.deepEqual(trace.step(), ['one', 'two']);
  assert.deepEqual(trace.step(), ['writer']);
  assert.deepEqual(trace.step(), ['later reader']);
});

test('calls that need no step go while a batch computes, unless they touch its pages or embeds', () => {
  const trace = new Trace();
  trace.push('a', { kind: 'forward', reads: [1] }, 'forward');
  const { batch } = trace.start();
  trace.push('a', { kind: 'instant', writes: [9] }, 'allocate');
  trace.push('a', { kind: 'idle', reads: [9], writes: [10] }, 'copy');
  trace.push('a.2', { kind: 'instant', writes: [1] }, 'free');
  trace.push('b', { kind: 'barrier' }, 'b synchronize');
  assert.deepEqual(trace.instants(), ['allocate', 'b synchronize']);
  trace.push('a', { kind: 'barrier' }, 'a synchronize');
  trace.end(batch);
  assert.deepEqual(trace.instants(), ['copy', 'free', 'a synchronize']);
});

test('while a call without a step takes long, its dependent calls wait and all others go', () => {
  const trace = new Trace();
  trace.push('a', { kind: 'instant', reads: [1] }, 'export');
  trace.push('a', { kind: 'forward', writes: [2] }, 'independent');
  trace.push('a', { kind: 'forward', writes: [1] }, 'dependent');
  trace.push('a', { kind: 'barrier' }, 'synchronize');
  const slow = trace.batcher.takeInstant()!;
  assert.equal((slow as SimCall).name, 'export');
  assert.deepEqual(trace.step(), ['independent']);
  assert.equal(trace.batcher.waiting, 0);
  trace.batcher.finish(slow, trace.nowMs);
  assert.deepEqual(trace.step(), ['dependent']);
  assert.deepEqual(trace.instants(), ['synchronize']);
});

test('a long prefill goes on in chunks together with the decodes', () => {
  const trace = new Trace();
  trace.push('long', { kind: 'forward', tokens: 150 });
  trace.decode('a');
  trace.decode('b');
  // The chunks fill what the decodes leave of the 64 inputs of a batch.
  assert.deepEqual(trace.step(), ['a', 'b', 'long:62']);
  trace.decode('a');
  assert.deepEqual(trace.step(), ['a', 'long:63']);
  assert.deepEqual(trace.step(), ['long:25']);
});

test('a short call, of up to a quarter of a small batch, goes before a long one', () => {
  for (const [tokens, names] of [
    [8, ['a:8', 'b']],
    [9, ['b', 'a:9']],
  ] as const) {
    const trace = new Trace({ maxTokens: 32 });
    trace.push('a', { kind: 'forward', tokens });
    trace.decode('b');
    assert.deepEqual(trace.step(), names);
  }
});

test('many short calls leave a quarter of the tokens to a long one', () => {
  const trace = new Trace({ maxCalls: 100, maxTokens: 40 });
  for (let i = 0; i < 50; i++) trace.decode(`d${i}`);
  trace.push('long', { kind: 'forward', tokens: 100 });
  const names = trace.step();
  assert.equal(names.length, 31, 'thirty short calls and the long one');
  assert.equal(names.at(-1), 'long:10');
});

test('a long call that cannot be cut goes alone once it is the most urgent', () => {
  const trace = new Trace();
  trace.decode('a');
  trace.push('whole', { kind: 'forward', tokens: 100, chunkable: false });
  trace.nowMs += 1;
  trace.decode('b');
  assert.deepEqual(trace.step(), ['a', 'b']);
  trace.decode('a');
  assert.deepEqual(trace.step(), ['whole:100']);
  assert.deepEqual(trace.step(), ['a']);
});

test('a call that cannot be cut is not starved by short ones that leave it too little room', () => {
  const trace = new Trace({ maxCalls: 100 });
  trace.push('whole', { kind: 'forward', tokens: 60, chunkable: false });
  for (let i = 0; i < 50; i++) trace.decode(`d${i}`);
  assert.deepEqual(trace.step(), ['whole:60', 'd0', 'd1', 'd2', 'd3']);
});

test('a batch keeps room for a long call, even when the call becomes ready only while the batch is made', () => {
  const trace = new Trace({ maxCalls: 3 });
  trace.decode('a');
  trace.push('a', { kind: 'forward', tokens: 100 }, 'long');
  trace.decode('b');
  trace.decode('b', 'b again');
  assert.deepEqual(trace.step(), ['a', 'b', 'long:62']);
});

test('projections go together while their scores fit; a larger one goes alone', () => {
  const trace = new Trace({ maxScores: 100 });
  for (const [name, scores] of [
    ['a', 60],
    ['b', 40],
    ['c', 1],
    ['d', 500],
    ['e', 0],
  ] as const)
    trace.push(name, { kind: 'project', scores });
  assert.deepEqual(trace.steps(), [['a', 'b'], ['c'], ['d'], ['e']]);
});

test('a projection whose scores do not fit beside others does not ride with its forward', () => {
  const trace = new Trace({ maxScores: 100 });
  for (const [name, scores] of [
    ['a', 60],
    ['b', 60],
    ['c', 40],
  ] as const) {
    trace.push(name, { kind: 'forward', writes: [1] }, `${name} forward`);
    trace.push(name, { kind: 'project', reads: [1], scores }, `${name} scores`);
  }
  assert.deepEqual(trace.steps(), [['a forward', 'b forward', 'c forward', 'a scores', 'c scores'], ['b scores']]);
});

test('projections of one queue go together', () => {
  const trace = new Trace();
  for (const name of ['one', 'two', 'three']) trace.push('a', { kind: 'project', reads: [1] }, name);
  assert.deepEqual(trace.step(), ['one', 'two', 'three']);
});

test('the narrowest limits still let the most urgent call go', () => {
  const trace = new Trace({ maxCalls: 1, maxTokens: 1, agingMs: 100 });
  trace.decode('a');
  trace.nowMs += 1;
  trace.push('long', { kind: 'forward', tokens: 2 });
  trace.nowMs += 1;
  trace.decode('b');
  assert.deepEqual([trace.step(), trace.step(), trace.step(), trace.step()], [['a'], ['long:1'], ['long'], ['b']]);
});

test('calls past the limit of a batch go first in the next one', () => {
  const trace = new Trace();
  for (const name of ['a', 'b', 'c', 'd', 'e', 'f']) trace.decode(name);
  assert.deepEqual(trace.step(), ['a', 'b', 'c', 'd']);
  trace.decode('a');
  assert.deepEqual(trace.step(), ['e', 'f', 'a']);
});

test('higher priority goes first, until waiting outweighs it', () => {
  const trace = new Trace();
  trace.batcher.setPriority(trace.queue('low'), -1);
  trace.batcher.setPriority(trace.queue('high'), 99);
  trace.decode('low');
  for (const name of ['a', 'b', 'c', 'high', 'd']) trace.decode(name);
  assert.deepEqual(trace.step(), ['high', 'a', 'b', 'c']);
  // 100 ms of waiting outweigh one level, and `low` has waited 200 ms for its level of -1.
  trace.nowMs += 200;
  for (const name of ['a', 'b', 'c', 'e']) trace.decode(name);
  assert.deepEqual(trace.step(), ['d', 'low', 'a', 'b']);
});

test('a priority is clamped to what its queue may have', () => {
  const trace = new Trace();
  const queues = [trace.queue('a', 3), trace.queue('b'), trace.queue('c', 0)];
  for (const queue of queues) trace.batcher.setPriority(queue, 99);
  assert.deepEqual(
    queues.map((queue) => queue.priority),
    [3, 10, 0],
  );
  for (const queue of queues) trace.batcher.setPriority(queue, -4);
  assert.deepEqual(
    queues.map((queue) => queue.priority),
    [-3, -4, 0],
  );
});

test('the kind of call whose oldest call has waited longest goes next', () => {
  const trace = new Trace();
  trace.decode('a');
  trace.nowMs += 1;
  trace.push('b', { kind: 'project', reads: [1] }, 'project');
  assert.deepEqual(trace.step(), ['a']);
  trace.decode('a');
  assert.deepEqual(trace.step(), ['project']);
  assert.deepEqual(trace.step(), ['a']);
});

test('a run rides with the steps of others, holds its queue, and can be paused', () => {
  const trace = new Trace();
  const run = trace.push('r', { kind: 'forward', tokens: 4, run: true }, 'run');
  trace.push('r', { kind: 'forward' }, 'after');
  trace.decode('a');
  assert.deepEqual(trace.step(), ['run:1', 'a']);
  const { batch, names } = trace.start();
  assert.deepEqual(names, ['run:1']);
  trace.nowMs += 1;
  run.left -= 1;
  trace.batcher.pause(run);
  trace.batcher.ended(trace.nowMs);
  assert.equal(batch.forwards.length, 1);
  assert.equal(trace.batcher.next(trace.nowMs).kind, 'idle');
  trace.batcher.resume(run, trace.nowMs);
  assert.deepEqual(trace.step(), ['run:1']);
  assert.deepEqual(trace.step(), ['run']);
  assert.deepEqual(trace.step(), ['after']);
});

test('closing a queue drops its calls that have not left, and calls that waited for a dropped call go on', () => {
  const trace = new Trace();
  trace.push('a.1', { kind: 'forward', writes: [1] }, 'running');
  const { batch } = trace.start();
  trace.push('a.1', { kind: 'forward', writes: [2] }, 'dropped');
  trace.push('a.2', { kind: 'forward', reads: [2] }, 'waits for dropped');
  trace.push('a.3', { kind: 'forward', reads: [1] }, 'waits for running');
  assert.deepEqual(
    trace.batcher.closeQueue(trace.queue('a.1')).map((call) => (call as SimCall).name),
    ['dropped'],
  );
  trace.end(batch);
  assert.deepEqual(trace.step(), ['waits for dropped', 'waits for running']);
  assert.equal(trace.batcher.queues, 2);
});

test('one step encodes as many images of several queues as fit, and decode goes on between two such steps', () => {
  const trace = new Trace({ maxTokens: 20 });
  for (const inferlet of ['a', 'b', 'c']) trace.push(inferlet, { kind: 'encode', tokens: 9 }, `image of ${inferlet}`);
  trace.nowMs += 1;
  trace.decode('d');
  trace.decode('e');
  assert.deepEqual(trace.steps(), [['image of a', 'image of b'], ['d', 'e'], ['image of c']]);
  trace.push('a', { kind: 'encode', tokens: 50 }, 'large');
  assert.deepEqual(trace.steps(), [['large']]);
});

test('an image that has not arrived keeps its place, and delays only its own queue and calls that read its embed', () => {
  const trace = new Trace();
  const image = trace.push('a.1', { kind: 'encode', writes: [1], late: true }, 'image');
  trace.push('a.1', { kind: 'forward', reads: [1] }, 'after');
  trace.push('a.2', { kind: 'forward', reads: [1] }, 'other queue, same embed');
  trace.push('a.3', { kind: 'forward' }, 'free');
  assert.deepEqual(trace.steps(), [['free']]);
  image.late = false;
  trace.batcher.resume(image, trace.nowMs);
  assert.deepEqual(trace.steps(), [['image'], ['after', 'other queue, same embed']]);
  // Closing a queue also drops an image that has not arrived.
  const never = trace.push('a.1', { kind: 'encode', writes: [1], late: true }, 'never');
  trace.push('a.2', { kind: 'forward', reads: [1] }, 'freed');
  assert.deepEqual(trace.batcher.closeQueue(trace.queue('a.1')), [never]);
  assert.deepEqual(trace.steps(), [['freed']]);
});

test('the model and its adapters take turns for any mix of queues, and priority holds within each', () => {
  const trace = new Trace({ maxCalls: 2 });
  for (const [i, variant] of ['a', 'b', 'a', 'c', 'b', 'a'].entries())
    trace.push('changes', { kind: 'forward', variant }, `${variant}${i}`);
  trace.nowMs += 5;
  for (const name of ['one', 'two', 'three']) trace.decode(name);
  trace.push('other', { kind: 'forward', variant: 'c' }, 'c');
  trace.batcher.setPriority(trace.queue('other'), 5);
  assert.deepEqual(trace.steps(), [['one', 'two'], ['c'], ['three'], ['a0'], ['b1'], ['a2'], ['c3'], ['b4'], ['a5']]);
});

test('each of many calls that read the same embed costs a constant number of reads of a call’s state', () => {
  const trace = new Trace();
  const count = 4096;
  let stateReads = 0;
  for (let i = 0; i < count; i++) {
    const call = trace.push('a', { kind: 'forward', reads: [1] });
    let { state } = call;
    Object.defineProperty(call, 'state', {
      get: () => {
        stateReads++;
        return state;
      },
      set: (next: typeof state) => {
        state = next;
      },
    });
  }
  assert.ok(stateReads < 8 * count, `${stateReads} reads of the state of ${count} calls`);
});

test('tenants take turns with calls that need no step, and the calls of a queue keep their order', () => {
  const trace = new Trace();
  for (const name of ['1', '2', '3']) trace.push('a', { kind: 'instant' }, `a${name}`);
  trace.push('a.2', { kind: 'instant' }, 'other queue of a');
  for (const name of ['1', '2']) trace.push('b', { kind: 'instant' }, `b${name}`);
  trace.push('c', { kind: 'barrier' }, 'c');
  assert.deepEqual(trace.instants(), ['a1', 'b1', 'c', 'other queue of a', 'b2', 'a2', 'a3']);
});

test('copies and instant calls take turns, so that neither kind waits for a flood of the other', () => {
  const trace = new Trace();
  for (const name of ['1', '2', '3']) trace.push(`a.${name}`, { kind: 'instant' }, `a${name}`);
  for (const name of ['1', '2']) trace.push(`b.${name}`, { kind: 'idle' }, `copy ${name}`);
  assert.deepEqual(trace.instants(), ['a1', 'copy 1', 'a2', 'copy 2', 'a3']);
});

test('`tenants` names the tenants whose calls are ready or on the device, and no tenant whose calls all wait', () => {
  const trace = new Trace();
  const tenants = () => [...new Set(trace.batcher.tenants())].sort();
  assert.deepEqual(tenants(), []);
  trace.push('late', { kind: 'forward', late: true });
  trace.push('copier', { kind: 'idle' });
  trace.push('blocked', { kind: 'barrier' });
  trace.push('decoder', { kind: 'forward' });
  trace.push('decoder', { kind: 'forward' });
  trace.push('viewer', { kind: 'encode' });
  assert.deepEqual(tenants(), ['decoder', 'viewer']);
  const { batch } = trace.start();
  assert.deepEqual(tenants(), ['decoder', 'viewer'], 'the decoder computes, the viewer is ready');
  const joining = trace.push('joiner', { kind: 'forward' });
  trace.batcher.adopt(joining);
  assert.deepEqual(tenants(), ['decoder', 'joiner', 'viewer']);
  trace.batcher.finish(joining, 0);
  trace.end(batch);
  trace.steps();
  assert.deepEqual(tenants(), []);
});

test('a call is cut to the inputs that one step can compute of it, also a short one; others fill the batch', () => {
  for (const policy of [{ kind: 'adaptive' }, { kind: 'eager' }] as const) {
    const trace = new Trace({}, { policy });
    trace.push('a', { kind: 'forward', tokens: 50, stepTokens: 20 }, 'long');
    const names = [trace.step(), trace.step(), trace.step()].flat();
    assert.deepEqual(names, ['long:20', 'long:20', 'long:10']);
  }
  const trace = new Trace();
  trace.push('a', { kind: 'forward', tokens: 10, stepTokens: 4 }, 'short');
  trace.push('b', { kind: 'forward', tokens: 50 }, 'other');
  assert.deepEqual(trace.step(), ['short:4', 'other:50']);
  trace.push('c', { kind: 'forward', tokens: 50, stepTokens: 20, chunkable: false }, 'whole');
  assert.deepEqual(trace.step(), ['short:4', 'whole:50']);
});

test('a long call is cut shorter while other queues use the device, until they have stayed away for a few batches', () => {
  const trace = new Trace({ maxTokens: 512 });
  trace.push('a', { kind: 'forward', tokens: 500, stepTokens: 100, besideTokens: 10 }, 'long');
  assert.deepEqual(trace.step(), ['long:100'], 'alone');
  trace.push('b', { kind: 'forward', tokens: 1 }, 'decode');
  assert.deepEqual(trace.step(), ['decode', 'long:10']);
  // The inferlet of the decode may send its next call during any of these batches.
  assert.deepEqual(trace.step(), ['long:10']);
  trace.push('b', { kind: 'forward', tokens: 1 }, 'next');
  assert.deepEqual(trace.step(), ['next', 'long:10']);
  const alone = Array.from({ length: 5 }, () => trace.step()).flat();
  assert.deepEqual(alone, ['long:10', 'long:10', 'long:10', 'long:10', 'long:100']);
  trace.push('c', { kind: 'forward', tokens: 80, stepTokens: 80, besideTokens: 20 }, 'other');
  assert.deepEqual(trace.step(), ['long:10', 'other:20'], 'another prompt does not wait for the first one to end');
});

test('no long call of a random schedule has more inputs in a step than its bound beside others, and all short ones go', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.record({
          queue: fc.nat({ max: 4 }),
          tokens: fc.constantFrom(1, 1, 3, 40, 300),
          stepTokens: fc.integer({ min: 60, max: 100 }),
          besideTokens: fc.integer({ min: 1, max: 30 }),
          steps: fc.nat({ max: 6 }),
        }),
        { minLength: 1, maxLength: 30 },
      ),
      (calls) => {
        const trace = new Trace({ maxCalls: 128, maxTokens: 512 });
        const bounds = new Map(calls.map((call, i) => [`${i}`, call]));
        const left = new Map<string, number>();
        const step = () => {
          const waiting = trace.batcher.ready.map(({ queue }) => queue);
          const isShared = new Set(waiting).size > 1;
          const shorts = trace.batcher.ready.filter(({ tokens }) => tokens <= 16).length;
          const went = trace.step().map((one) => one.split(':'));
          for (const [name = '', inputs = '1'] of went) {
            const { tokens, stepTokens, besideTokens } = bounds.get(name) ?? assert.fail(name);
            left.set(name, (left.get(name) ?? tokens) - Number(inputs));
            if (tokens > 16 && Number(inputs) > 16) {
              assert.ok(Number(inputs) <= (isShared ? besideTokens : stepTokens), `${name}: ${inputs} inputs`);
            }
          }
          assert.ok(
            went.length >= Math.min(shorts, trace.batcher.limits.maxCalls - 1),
            'no short call waits for a prompt',
          );
        };
        for (const [i, { queue, steps, ...shape }] of calls.entries()) {
          trace.push(`queue ${queue}`, { kind: 'forward', ...shape }, `${i}`);
          for (let n = 0; n < steps; n++) if (trace.batcher.waiting > 0) step();
        }
        while (trace.batcher.waiting > 0) step();
        assert.ok(
          calls.every((_, i) => left.get(`${i}`) === 0),
          'all calls end',
        );
      },
    ),
    { seed: 5, numRuns: process.env.PIE_TEST_ALL ? 5000 : 200 },
  );
});

test('a call that follows another one waits for the next batch when it would have to be cut', () => {
  const trace = new Trace();
  trace.push('a', { kind: 'forward', fills: [1], tokens: 5 }, 'first');
  trace.push('a', { kind: 'forward', reads: [1], fills: [2], tokens: 10, stepTokens: 6 }, 'follower');
  assert.deepEqual(trace.step(), ['first:5']);
  assert.deepEqual(trace.step(), ['follower:6']);
  assert.deepEqual(trace.step(), ['follower:4']);
});

test('a batch has at most the inputs that are expected to take little time', () => {
  const bounds = { batchInputs: 8 };
  const trace = new Trace({}, { bounds });
  trace.push('a', { kind: 'forward', tokens: 40 }, 'long');
  assert.deepEqual(trace.step(), ['long:8']);
  bounds.batchInputs = 0;
  assert.deepEqual(trace.step(), ['long:1']);
  bounds.batchInputs = 1000;
  assert.deepEqual(trace.step(), ['long:31']);
});
