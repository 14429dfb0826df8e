import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';

let redis: TestRedis;
let scheduler: Scheduler;
before(async () => {
  redis = await TestRedis.start();
  scheduler = openTestScheduler(redis);
});
after(async () => {
  await scheduler.close();
  await redis.stop();
});

test('an attempt that was requeued or has ended cannot write, delete, push, pull or broadcast', async () => {
  const { invocations, keyValues, messaging } = scheduler;
  const { queues, broadcasts } = messaging;
  const { id } = submission();
  await invocations.create(submission({ id, restartable: true }));
  const begin = async (runtime: string) => {
    const attempt = await beginAttempt(scheduler, id, runtime);
    assert.ok('epoch' in attempt);
    return { id, epoch: attempt.epoch, nextSeq: attempt.nextSeq };
  };
  const envelope = (text: string) => ({ sender: id, message: { text } });
  const neverAborted = new AbortController().signal;
  const allButPull = (by: { id: string; epoch: number }, text: string) => [
    () => keyValues.write('t', 'k', Buffer.from(text), { by }),
    () => queues.push('t', 'queue', envelope(text), by),
    () => broadcasts.broadcast('t', 'topic', envelope(text), by),
    () => keyValues.delete('t', 'other', by),
  ];
  const first = await begin('r1');
  for (const call of allButPull(first, 'first')) await call();
  assert.deepEqual(await queues.pull('t', 'queue', neverAborted, first), envelope('first'));
  await keyValues.write('t', 'other', Buffer.from('kept'));
  const waitingPull = queues.pull('t', 'queue', neverAborted, first);
  waitingPull.catch(() => undefined);
  assert.equal(await invocations.requeue(id, first.epoch, first.nextSeq, 'for others', null), 'requeued');
  const refused = { code: 'stale-attempt' };
  for (const call of allButPull(first, 'after the requeue')) await assert.rejects(call, refused);
  const second = await begin('r2');
  for (const call of allButPull(first, 'beside the second')) await assert.rejects(call, refused);
  await queues.push('t', 'queue', envelope('second'), second);
  await assert.rejects(waitingPull, refused, 'the pull that began before the requeue');
  await assert.rejects(queues.pull('t', 'queue', neverAborted, first), refused);
  assert.deepEqual(await queues.pull('t', 'queue', neverAborted, second), envelope('second'));
  assert.equal(String((await keyValues.get('t', 'k'))?.value), 'first');
  assert.equal(String((await keyValues.get('t', 'other'))?.value), 'kept');
  await keyValues.write('t', 'k', Buffer.from('second'), { by: second });
  await invocations.finish(id, second.epoch, second.nextSeq, { event: 'result', data: '{}' }, null);
  for (const call of allButPull(second, 'after the end')) await assert.rejects(call, refused);
  await assert.rejects(queues.pull('t', 'queue', neverAborted, second), refused);
});
