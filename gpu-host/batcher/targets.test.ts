import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Trace } from './testing/trace.ts';

/** The share of ordinary prefills beside a pressing call is a quarter of a batch: 16 inputs. */
const LIMITS = { maxCalls: 4, maxTokens: 64, agingMs: 100 };
const LONG = { kind: 'forward', tokens: 640 } as const;

/** A trace with the ordinary long prefills `a` and `b`, and a queue `live` with latency targets. */
function withFlood(targets = { firstTokenMs: 15, perTokenMs: 10 }): Trace {
  const trace = new Trace(LIMITS);
  trace.queue('live', 10, targets);
  for (const name of ['a', 'b']) trace.push(name, LONG);
  return trace;
}

test('a prompt that would miss its target goes with the next step, and cuts ordinary prefill to a quarter', () => {
  const trace = withFlood();
  assert.deepEqual(trace.step(10), ['a:64'], 'no call with a target waits: a full chunk');
  trace.nowMs += 1;
  trace.push('live', { kind: 'forward', tokens: 40 });
  assert.deepEqual(trace.step(10), ['live:40', 'a:16']);
  assert.deepEqual(trace.step(10), ['a:64']);
});

test('a long prompt leaves ordinary prefill a quarter, and takes the rest', () => {
  const trace = withFlood();
  trace.step(10);
  trace.push('live', { kind: 'forward', tokens: 100 });
  assert.deepEqual(trace.step(10), ['live:48', 'a:16']);
  assert.deepEqual(trace.step(10), ['live:48', 'a:16']);
  assert.deepEqual(trace.step(10), ['live:4', 'a:16']);
});

test('a call whose target leaves time waits for its turn, and goes when it would otherwise miss the target', () => {
  const trace = withFlood({ firstTokenMs: 45, perTokenMs: 30 });
  trace.step(10);
  trace.push('live', { kind: 'forward', tokens: 40 });
  for (let step = 0; step < 3; step++) assert.deepEqual(trace.step(10), ['a:64']);
  assert.deepEqual(trace.step(10), ['live:40', 'a:16'], 'after one more step it would end at 60, and it is due at 55');
});

test('the pace of a run decides whether prefill beside it is cut', () => {
  for (const [perTokenMs, prefill] of [
    [15, 'a:16'],
    [25, 'a:63'],
  ] as const) {
    const trace = withFlood({ firstTokenMs: 20, perTokenMs });
    trace.step(10);
    trace.push('live', { kind: 'forward', run: true, tokens: 5 });
    assert.deepEqual(trace.step(10), ['live:1', prefill], `${perTokenMs} ms a token`);
  }
});

test('pressing calls go in the order in which they are due', () => {
  const trace = withFlood();
  trace.queue('soon', 10, { firstTokenMs: 5, perTokenMs: 5 });
  trace.step(10);
  trace.push('live', { kind: 'forward', tokens: 40 });
  trace.push('soon', { kind: 'forward', tokens: 40 });
  assert.deepEqual(trace.step(10), ['soon:40', 'live:8', 'a:16']);
});

test('ordinary decodes go on beside a long prompt with a target', () => {
  const trace = withFlood();
  trace.step(10);
  trace.decode('c');
  trace.push('live', { kind: 'forward', tokens: 200 });
  assert.deepEqual(trace.step(10), ['live:47', 'c', 'a:16']);
});

test('at most three steps in a row pass over an ordinary prefill that cannot be cut', () => {
  const trace = new Trace(LIMITS);
  trace.queue('live', 10, { firstTokenMs: 0, perTokenMs: 0 });
  trace.push('whole', { kind: 'forward', tokens: 60, chunkable: false });
  trace.push('live', { kind: 'forward', tokens: 500 });
  assert.deepEqual(
    [trace.step(), trace.step(), trace.step(), trace.step()],
    [['live:48'], ['live:48'], ['live:48'], ['whole:60', 'live:4']],
  );
});

test('calls that go along with a pressing call that cannot be cut keep to the limits', () => {
  const trace = new Trace({ ...LIMITS, maxTokens: 64 });
  trace.queue('live', 10, { firstTokenMs: 0, perTokenMs: 0 });
  trace.push('short', { kind: 'forward', tokens: 16, chunkable: false });
  trace.push('live', { kind: 'forward', tokens: 60, chunkable: false });
  assert.deepEqual(trace.step(), ['live:60']);
  const narrow = new Trace({ ...LIMITS, maxCalls: 1 });
  narrow.queue('live', 10, { firstTokenMs: 0, perTokenMs: 0 });
  narrow.decode('other');
  narrow.decode('live');
  assert.deepEqual(narrow.step(), ['live']);
});

test('pressing calls of an adapter go first, and after three of their steps a call of the model alone', () => {
  const trace = new Trace(LIMITS);
  trace.queue('live', 10, { firstTokenMs: 0, perTokenMs: 0 });
  trace.decode('plain');
  trace.push('live', { kind: 'forward', tokens: 500, variant: 'pirate' });
  const steps = Array.from({ length: 4 }, () => trace.step());
  assert.deepEqual(steps, [['live:64'], ['live:64'], ['live:64'], ['plain']]);
});

test('a step that takes the most urgent ordinary call does not count as passing over the next one', () => {
  const trace = new Trace(LIMITS);
  trace.queue('live', 10, { firstTokenMs: 0, perTokenMs: 0 });
  trace.push('along', { kind: 'forward', variant: 'pirate' });
  trace.decode('plain');
  trace.push('live', { kind: 'forward', tokens: 500, variant: 'pirate' });
  assert.deepEqual(trace.step(), ['live:63', 'along']);
  const steps = Array.from({ length: 4 }, () => trace.step());
  assert.deepEqual(steps, [['live:64'], ['live:64'], ['live:64'], ['plain']]);
});

test('a pressing call goes before an older call of another kind', () => {
  const trace = new Trace(LIMITS);
  trace.queue('live', 10, { firstTokenMs: 0, perTokenMs: 0 });
  trace.push('older', { kind: 'project' });
  trace.nowMs++;
  trace.decode('live');
  assert.deepEqual(trace.steps(), [['live'], ['older']]);
});

test('a call that computes the pages of a pressing one goes first with it', () => {
  const trace = withFlood();
  trace.step(10);
  const keys = [1, 2];
  const maker = trace.push('batch', { kind: 'forward', tokens: 32 });
  maker.pagesToCome = { scope: 's', pageTokens: 16, keys, takes: 2, begun: true };
  const taker = trace.push('live', { kind: 'forward', tokens: 32 });
  taker.pagesToCome = { scope: 's', pageTokens: 16, keys, takes: 2, begun: false };
  assert.deepEqual(trace.step(10), ['batch:32', 'a:16'], 'the step is as short as with the pressing call itself');
});

test('a short prompt has the stricter of the two targets, and the last input of a cut prompt keeps the target of the prompt', () => {
  const slow = { firstTokenMs: 15, perTokenMs: 10_000 };
  const short = withFlood(slow);
  short.step(10);
  short.push('live', { kind: 'forward', tokens: 12 });
  assert.deepEqual(short.step(10), ['live:12', 'a:16']);
  const cut = withFlood(slow);
  cut.step(10);
  cut.push('live', { kind: 'forward', tokens: 49 });
  assert.deepEqual(cut.step(10), ['live:48', 'a:16']);
  assert.deepEqual(cut.step(10), ['live', 'a:16']);
  cut.decode('live');
  assert.deepEqual(cut.step(10), ['live', 'a:63'], 'the next token has time');
});

test('pressing calls leave one place to the others, and a call of a quarter of the inputs counts as short', () => {
  const trace = new Trace(LIMITS);
  for (let i = 0; i < 5; i++) trace.queue(`live${i}`, 10, { firstTokenMs: 1, perTokenMs: 1 });
  trace.decode('a');
  for (let i = 0; i < 5; i++) trace.decode(`live${i}`);
  assert.deepEqual(trace.step(10), ['live0', 'live1', 'live2', 'a']);
  const mixed = new Trace(LIMITS);
  mixed.queue('live', 10, { firstTokenMs: 1, perTokenMs: 1 });
  mixed.push('a', { kind: 'forward', tokens: 16 });
  mixed.push('b', LONG);
  mixed.push('live', LONG);
  assert.deepEqual(mixed.step(10), ['live:32', 'a:16', 'b:16']);
});
