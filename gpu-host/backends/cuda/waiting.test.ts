import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { Deadline, SharedWait } from './index.ts';

test('a deadline reports work that does not end, once, and begins again after the process stood still', async () => {
  const texts: string[] = [];
  const deadline = new Deadline(30, (text) => texts.push(text));
  const { promise: work, resolve } = Promise.withResolvers<number>();
  const result = deadline.of(work, 'a step');
  // The timer comes late by more than the allowance.
  const untilMs = performance.now() + 1200;
  while (performance.now() < untilMs);
  await setImmediate();
  await setImmediate();
  assert.deepEqual(texts, [], 'the work gets its time again');
  while (texts.length === 0) await sleep(5);
  assert.deepEqual(texts, ['a step has not ended for 0.03 s: the card hangs']);
  resolve(7);
  assert.equal(await result, 7);
  await assert.rejects(deadline.of(Promise.reject(new Error('broken')), 'a step'), /broken/);
  assert.equal(texts.length, 1);
});

test('callers that come during a wait share the next one', async () => {
  const begun: PromiseWithResolvers<void>[] = [];
  const shared = new SharedWait(() => {
    begun.push(Promise.withResolvers<void>());
    return begun.at(-1)!.promise;
  });
  const ended: string[] = [];
  const wait = (name: string) =>
    shared.wait().then(
      () => void ended.push(name),
      (error: Error) => void ended.push(`${name}: ${error.message}`),
    );
  const waits = [wait('first')];
  await setImmediate();
  waits.push(wait('second'), wait('third'));
  await setImmediate();
  assert.equal(begun.length, 1);
  begun[0]!.resolve();
  await setImmediate();
  assert.deepEqual([ended, begun.length], [['first'], 2]);
  waits.push(wait('fourth'));
  begun[1]!.reject(new Error('lost'));
  await setImmediate();
  assert.deepEqual([ended.splice(0), begun.length], [['first', 'second: lost', 'third: lost'], 3]);
  begun[2]!.resolve();
  await Promise.all(waits);
  assert.deepEqual(ended, ['fourth']);
});
