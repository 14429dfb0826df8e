import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { Redis } from 'ioredis';
import { Vital } from '../store/channels.ts';
import { Store } from '../store/store.ts';
import { eventually } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { Control } from './endings.ts';

test('a runtime gets the cancels requested during an interruption, although its first read of them fails', async (t) => {
  const redis = await TestRedis.start();
  t.after(() => redis.stop());
  const prefix = `test-${randomUUID()}`;
  const store = new Store(redis.connect(), { prefix });
  const opened: Redis[] = [];
  const connect = () => {
    opened.push(redis.connect());
    return opened.at(-1)!;
  };
  // Shorter than in production, so that a read behind a blocked connection fails soon.
  const vital = new Vital(connect, { prefix, deadlineMs: 200 });
  t.after(() => vital.close());
  const { store: vitalStore, channels } = vital;
  const [reader, subscriber] = opened;
  assert.ok(reader && subscriber);
  await eventually(() => reader.status === 'ready' && subscriber.status === 'ready', 'the connections');
  const heard: string[] = [];
  const stop = await new Control(store, vital).onCancel('r', (id, reason) => heard.push(`${id}: ${reason}`));

  // A cancel without its message, as if the interruption had lost the message.
  const cancels = store.keys.cancels('r');
  const request = (id: string) => store.call((client) => client.hset(cancels, id, 'enough'));
  await request('first');
  const resumed = Promise.withResolvers<void>();
  await channels.listen(`${prefix}:other`, { message: () => {}, resumed: resumed.resolve });
  // Blocks the reader, so that the read of the cancels after the interruption fails.
  void reader.blpop('nothing', 0).catch(() => undefined);
  subscriber.disconnect(true);
  await resumed.promise;
  // This call waits behind the read of the cancels. The read began earlier, so it has failed once this call fails.
  await assert.rejects(vitalStore.ping(), { code: 'store-unavailable' });
  assert.equal(heard.length, 0);
  await store.call((client) => client.lpush('nothing', 'go'));
  await eventually(() => heard.includes('first: enough'), 'the cancel arrives');
  stop();
});
