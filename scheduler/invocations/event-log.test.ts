import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Scheduler } from '../scheduler.ts';
import { StoreError } from '../store/errors.ts';
import { collect, eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import type { InvocationEvent } from './types.ts';

const message = (n: number) => ({ event: 'message' as const, data: JSON.stringify({ text: `${n}` }) });

/** A writer of one invocation that sends a call again until it is answered. */
async function writer(scheduler: Scheduler) {
  const { id } = submission();
  await scheduler.invocations.create(submission({ id }));
  const attempt = await scheduler.invocations.beginAttempt(id, 'r1');
  assert.ok('epoch' in attempt);
  const { epoch } = attempt;
  const patiently = async <T>(call: () => Promise<T>): Promise<T> => {
    for (;;) {
      try {
        return await call();
      } catch (error) {
        if (!(error instanceof StoreError) || error.code !== 'store-unavailable') throw error;
      }
    }
  };
  let seq = 0;
  return {
    id,
    async write(count: number) {
      const events = Array.from({ length: count }, (_, i) => message(seq + i + 1));
      const first = seq + 1;
      seq += count;
      assert.equal(await patiently(() => scheduler.invocations.append(id, epoch, first, events)), 'ok');
    },
    async finish() {
      seq += 1;
      const terminal = { event: 'result' as const, data: '{}' };
      assert.equal(await patiently(() => scheduler.invocations.finish(id, epoch, seq, terminal, null)), 'ok');
      return seq;
    },
  };
}

function numbers(events: readonly InvocationEvent[]): number[] {
  return events.map(({ seq }) => seq);
}

const upTo = (last: number, from = 1) => Array.from({ length: last - from + 1 }, (_, i) => from + i);

describe('event log', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let reader: Scheduler;
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
    scheduler = openTestScheduler(redis);
    reader = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix });
  });
  after(async () => {
    await scheduler.close();
    await reader.close();
    await redis.stop();
  });

  test('followers from every place get what is stored and what comes, to the end', async () => {
    const run = await writer(scheduler);
    await run.write(700);
    const followers = [0, 1, 350, 699, 700].map((afterSeq) => collect(reader.events.follow(run.id, afterSeq)));
    for (let i = 0; i < 50; i += 1) await run.write(1 + (i % 3));
    const last = await run.finish();
    for (const [i, afterSeq] of [0, 1, 350, 699, 700].entries()) {
      assert.deepEqual(numbers((await followers[i]) ?? []), upTo(last, afterSeq + 1));
    }
    assert.deepEqual(numbers(await collect(reader.events.follow(run.id, 0))), upTo(last), 'after the end');
    assert.deepEqual(await collect(reader.events.follow(run.id, last)), [], 'from the terminal event on');
  });

  test('a reader that is slower than the writer misses nothing', async () => {
    const run = await writer(scheduler);
    const seen: number[] = [];
    const following = (async () => {
      for await (const { seq } of reader.events.follow(run.id, 0)) {
        seen.push(seq);
        if (seq % 500 === 1) await new Promise((resolve) => setTimeout(resolve, 20));
      }
    })();
    for (let i = 0; i < 30; i += 1) await run.write(200);
    const last = await run.finish();
    await following;
    assert.deepEqual(seen, upTo(last));
  });

  test('following goes on over a kill -9 and restart of Redis, without gap or duplicate', async () => {
    const run = await writer(scheduler);
    const seen: InvocationEvent[] = [];
    const following = (async () => {
      for await (const event of reader.events.follow(run.id, 0)) seen.push(event);
    })();
    await run.write(10);
    await eventually(() => seen.length === 10, 'the events before the kill');
    for (let round = 0; round < 2; round += 1) {
      const writing = (async () => {
        for (let i = 0; i < 20; i += 1) await run.write(3);
      })();
      await redis.kill();
      await redis.restart();
      await writing;
    }
    const last = await run.finish();
    await following;
    assert.deepEqual(numbers(seen), upTo(last));
    assert.deepEqual(
      seen.slice(0, -1).map(({ data }) => JSON.parse(data).text),
      upTo(last - 1).map(String),
    );
  });

  test('an aborted follower ends and lets go of its channel', async () => {
    const run = await writer(scheduler);
    const abort = new AbortController();
    const following = collect(reader.events.follow(run.id, 0, abort.signal));
    await run.write(2);
    abort.abort();
    const seen = await following;
    assert.ok(seen.length <= 2);
    const [, subscribers] = (await scheduler.store.redis.pubsub('NUMSUB', scheduler.store.keys.live(run.id))) as [
      string,
      number,
    ];
    assert.ok(Number(subscribers) <= 1);
  });

  test('an unknown invocation, and a Redis that stays away, are errors', async () => {
    await assert.rejects(
      collect(reader.events.follow('nobody', 0)),
      (error) => error instanceof StoreError && error.code === 'invalid-argument',
    );
    const run = await writer(scheduler);
    const hasty = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix, outageMs: 300 });
    const following = collect(hasty.events.follow(run.id, 0));
    following.catch(() => undefined);
    await run.write(1);
    await redis.kill();
    await assert.rejects(following, (error) => error instanceof StoreError && error.code === 'store-unavailable');
    await redis.restart();
    await hasty.close();
  });

  test('log lines and the error of a run are in the log of the function', async () => {
    const record = submission({ function: 'talker' });
    await scheduler.invocations.create(record);
    await scheduler.invocations.beginAttempt(record.id, 'r1');
    const abort = new AbortController();
    const live: string[] = [];
    const following = (async () => {
      for await (const { data } of reader.logs.follow('default', 'talker', '0-0', abort.signal)) live.push(data);
    })();
    await scheduler.invocations.append(record.id, 1, 1, [
      { event: 'log', data: '{"message":"a"}' },
      { event: 'message', data: '{"text":"not a log line"}' },
      { event: 'log', data: '{"message":"b"}' },
    ]);
    await scheduler.invocations.fail(record.id, 'trap', 'unreachable');
    await eventually(() => live.length === 3, 'three lines');
    abort.abort();
    await following;
    const lines = await reader.logs.read('default', 'talker');
    assert.deepEqual(
      lines.map(({ invocation, seq, event }) => [invocation, seq, event]),
      [
        [record.id, 1, 'log'],
        [record.id, 3, 'log'],
        [record.id, 4, 'error'],
      ],
    );
    assert.deepEqual((await reader.logs.read('default', 'talker', { after: lines[1]?.cursor ?? '' })).length, 1);
    assert.deepEqual((await reader.logs.read('default', 'talker', { limit: 1 }))[0]?.event, 'error');
  });
});
