import assert from 'node:assert/strict';
import { test } from 'node:test';
import { handlerError } from './errors.ts';
import type { DecodedResult } from './results.ts';
import { RemoteRun } from './run.ts';
import { RUN_WINDOW_TOKENS } from './wire.ts';

/** A run, and the list of its calls to the wire. */
function makeRun() {
  const sent: string[] = [];
  const run = new RemoteRun({
    over: () => sent.push('over'),
    reportConsumed: (tokens) => sent.push(`consumed ${tokens}`),
    stop: () => sent.push('stop'),
    piped: () => sent.push('piped'),
  });
  return { run, sent };
}

function tokens(values: number[], finished?: 'stop-token' | 'max-tokens' | 'stopped'): DecodedResult {
  return { kind: 'run', value: { tokens: Uint32Array.from(values), finished } };
}

test('next returns all tokens received so far, then waits', async () => {
  const { run, sent } = makeRun();
  assert.equal(run.settle(tokens([1])), false);
  assert.equal(run.settle(tokens([2, 3])), false);
  assert.deepEqual(await run.next(), { tag: 'ok', val: { tokens: Uint32Array.of(1, 2, 3), finished: undefined } });
  const waiting = run.next();
  const second = await run.next();
  assert.equal(second.tag === 'err' && second.val.tag, 'invalid-argument', 'one next at a time');
  assert.equal(run.settle(tokens([4], 'max-tokens')), true);
  assert.deepEqual(await waiting, { tag: 'ok', val: { tokens: Uint32Array.of(4), finished: 'max-tokens' } });
  assert.deepEqual(sent, ['over']);
  run.stop();
  assert.deepEqual(sent, ['over'], 'a finished run is not stopped');
});

test('discard returns the number of unread tokens once, and next never hands them out', async () => {
  const { run } = makeRun();
  run.settle(tokens([1]));
  await run.next();
  run.settle(tokens([2, 3]));
  assert.deepEqual([run.discard(), run.discard()], [2, 0]);
  run.settle(tokens([4], 'stopped'));
  assert.deepEqual(await run.next(), { tag: 'ok', val: { tokens: Uint32Array.of(4), finished: 'stopped' } });
});

test('tokens are handed over before the error that ended the run', async () => {
  const { run, sent } = makeRun();
  run.settle(tokens([1, 2]));
  assert.equal(run.settle({ kind: 'error', error: handlerError('internal', 'broken') }), true);
  assert.deepEqual(sent, ['over']);
  assert.deepEqual(await run.next(), { tag: 'ok', val: { tokens: Uint32Array.of(1, 2), finished: undefined } });
  assert.deepEqual(await run.next(), { tag: 'err', val: handlerError('internal', 'broken') });
  assert.deepEqual(await run.next(), { tag: 'err', val: handlerError('internal', 'broken') });
});

test('a pending next fails when the connection is lost', async () => {
  const { run, sent } = makeRun();
  const waiting = run.next();
  run.fail(handlerError('unavailable', 'gone'));
  assert.deepEqual(await waiting, { tag: 'err', val: handlerError('unavailable', 'gone') });
  assert.deepEqual(sent, ['over']);
});

test('a result of another kind ends the run', async () => {
  const { run, sent } = makeRun();
  assert.equal(run.settle({ kind: 'text', text: '' }), true);
  assert.deepEqual(sent, ['over']);
  const message = 'the GPU host answered a run with a result of kind text';
  assert.deepEqual(await run.next(), { tag: 'err', val: handlerError('internal', message) });
});

test('the client reports consumed tokens after each quarter of the window, and sends stop only once', async () => {
  const { run, sent } = makeRun();
  const quarter = RUN_WINDOW_TOKENS / 4;
  const take = async (...values: number[]) => {
    run.settle(tokens(values));
    await run.next();
  };
  for (let i = 0; i < quarter - 1; i++) await take(i);
  assert.deepEqual(sent, []);
  await take(7, 8);
  assert.deepEqual(sent, [`consumed ${quarter + 1}`]);
  for (let i = 0; i < quarter - 1; i++) await take(i);
  assert.deepEqual(sent, [`consumed ${quarter + 1}`]);
  await take(9);
  assert.deepEqual(sent, [`consumed ${quarter + 1}`, `consumed ${2 * quarter + 1}`]);
  run.stop();
  run.stop();
  assert.deepEqual(sent.slice(2), ['stop']);
});

test('the client asks for even slices only before the run was stopped or has ended', () => {
  const ends: [sent: string, end: (run: RemoteRun) => void][] = [
    ['stop', (run) => run.stop()],
    ['over', (run) => run.settle(tokens([1], 'stop-token'))],
    ['over', (run) => run.fail(handlerError('unavailable', 'gone'))],
  ];
  for (const [endSignal, end] of ends) {
    const { run, sent } = makeRun();
    run.piped();
    end(run);
    run.piped();
    assert.deepEqual(sent, ['piped', endSignal]);
  }
});
