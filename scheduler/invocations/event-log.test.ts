import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Scheduler } from '../scheduler.ts';
import { SequenceGap, StoreError } from '../store/errors.ts';
import { durably, losingWrites } from '../store/testing/lost-writes.ts';
import { beginAttempt, collect, eventually, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { Items } from './feed.ts';
import type { InvocationEvent, NewEvent } from './types.ts';

const message = (n: number | string) => ({ event: 'message' as const, data: JSON.stringify({ text: `${n}` }) });

/** Begins an invocation and returns calls that write its events. The calls go on through an absence of Redis and after losses of its data. */
async function writer(scheduler: Scheduler) {
  const { id } = submission();
  await scheduler.invocations.create(submission({ id }));
  const attempt = await beginAttempt(scheduler, id, 'r1');
  assert.ok('epoch' in attempt);
  const { epoch } = attempt;
  const sent: NewEvent[] = [];
  /** Repeats a call until it succeeds. When the log lacks sent events (`SequenceGap`), appends these again before the next try. */
  const insist = async <T>(call: () => Promise<T>): Promise<T> => {
    for (;;) {
      try {
        return await call();
      } catch (error) {
        if (error instanceof SequenceGap) {
          const { lastSeq } = error;
          assert.equal(
            await insist(() => scheduler.invocations.append(id, epoch, lastSeq + 1, sent.slice(lastSeq))),
            'ok',
          );
        } else if (!(error instanceof StoreError) || error.code !== 'store-unavailable') throw error;
      }
    }
  };
  return {
    id,
    epoch,
    async write(count: number) {
      const first = sent.length + 1;
      const events = Array.from({ length: count }, (_, i) => message(first + i));
      assert.equal(await insist(() => scheduler.invocations.append(id, epoch, first, events)), 'ok');
      sent.push(...events);
    },
    async finish() {
      const terminal = { event: 'result' as const, data: '{}' };
      const seq = sent.length + 1;
      assert.equal(await insist(() => scheduler.invocations.finish(id, epoch, seq, terminal, null)), 'ok');
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
    const patience = { deadlineMs: 20_000, outageMs: 20_000 };
    scheduler = openTestScheduler(redis, patience);
    reader = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix, ...patience });
  });
  after(async () => {
    await scheduler.close();
    await reader.close();
    await redis.stop();
  });

  test('followers from any position get the stored and the new events until the end', async () => {
    const run = await writer(scheduler);
    await run.write(700);
    const followers = [0, 1, 350, 699, 700].map((afterSeq) => collect(reader.events.follow(run.id, afterSeq)));
    for (let i = 0; i < 50; i += 1) await run.write(1 + (i % 3));
    const last = await run.finish();
    for (const [i, afterSeq] of [0, 1, 350, 699, 700].entries()) {
      assert.deepEqual(numbers((await followers[i]) ?? []), upTo(last, afterSeq + 1));
    }
    assert.deepEqual(numbers(await collect(reader.events.follow(run.id, 0))), upTo(last), 'after the end');
    assert.deepEqual(await collect(reader.events.follow(run.id, last)), [], 'no event follows the terminal one');
  });

  test('a reader that is slower than the writer misses no event', async () => {
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

  test('one read returns a bounded number of bytes, and following returns all events', async () => {
    const { id } = submission();
    await reader.invocations.create(submission({ id }));
    const attempt = await beginAttempt(reader, id, 'r1');
    assert.ok('epoch' in attempt);
    const large = Array.from({ length: 10 }, (_, n) => message('x'.repeat(n === 4 ? 100_000 : 20_000)));
    const small = Array.from({ length: 600 }, () => message('y'));
    assert.equal(await reader.invocations.append(id, attempt.epoch, 1, [...small, ...large]), 'ok');
    const read = async (afterSeq: number, limit?: number) => {
      const { events, complete } = await reader.events.readSome(id, { epoch: null, seq: afterSeq }, limit);
      return [events[0]?.seq, events.at(-1)?.seq, complete];
    };
    assert.deepEqual(await read(0), [1, 600, false], 'a stream entry is read whole');
    assert.deepEqual(await read(600), [601, 603, false], 'events up to 64 KiB');
    assert.deepEqual(await read(603), [604, 604, false], 'the large event 605 does not fit into the same read');
    assert.deepEqual(await read(604), [605, 605, false], 'a single event may exceed the bound');
    assert.deepEqual(await read(605), [606, 608, false]);
    assert.deepEqual(await read(608), [609, 610, true]);
    assert.deepEqual(await read(610), [undefined, undefined, true]);
    assert.deepEqual(await read(3, 6), [4, 600, false], 'a stream entry with more events than the limit is read whole');
    const terminal = { event: 'result' as const, data: '{}' };
    assert.equal(await reader.invocations.finish(id, attempt.epoch, 611, terminal, null), 'ok');
    assert.deepEqual(numbers(await collect(reader.events.follow(id, 0))), upTo(611));
  });

  test('five hundred followers of one log read it a few times', async () => {
    const run = await writer(scheduler);
    await run.write(3);
    const last = await run.finish();
    const countScripts = async () => {
      const stats = await reader.store.call((connection) => connection.info('commandstats'));
      return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1]);
    };
    const scriptsBefore = await countScripts();
    const followers = Array.from({ length: 500 }, () => collect(reader.events.follow(run.id, 0)));
    for (const events of await Promise.all(followers)) assert.deepEqual(numbers(events), upTo(last));
    const scripts = (await countScripts()) - scriptsBefore;
    // No follower joins a read that has begun, so sixteen followers may begin one each. The others share the reads that wait for a turn, a few
    // reads in all, since some followers ask later than others.
    assert.ok(scripts > 0 && scripts <= 50, `Redis ran ${scripts} scripts`);
  });

  test('a follower continues across SIGKILL and restart of Redis, without gap or duplicate', async () => {
    // `kill` waits only a limited time for Redis to write to its disk. `durably` makes sure that the start of the attempt is there.
    const run = await durably(redis, () => writer(scheduler));
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

  describe('after Redis has lost acknowledged writes,', () => {
    const end = { event: 'result' as const, data: '{}' };
    const isGapAfter = (lastSeq: number) => (error: unknown) =>
      error instanceof SequenceGap && error.code === 'sequence-gap' && error.lastSeq === lastSeq;
    /** Follows from the beginning: `seen` grows, and `ended` settles at the end. */
    function follow(id: string) {
      const seen: InvocationEvent[] = [];
      const ended = (async () => {
        for await (const event of reader.events.follow(id, 0)) seen.push(event);
      })();
      ended.catch(() => undefined);
      return { seen, ended };
    }
    /** A run with three events on disk, and four that its follower saw and Redis lost. */
    async function withLostEvents() {
      const run = await writer(scheduler);
      const follower = follow(run.id);
      await run.write(3);
      await losingWrites(redis, async () => {
        await run.write(4);
        await eventually(() => follower.seen.length === 7, 'the events before they are lost');
      });
      assert.equal((await scheduler.invocations.get(run.id))?.seq, 3);
      return { run, ...follower };
    }
    const assertWhole = (events: readonly InvocationEvent[], last: number, epoch: number) => {
      assert.deepEqual(numbers(events), upTo(last));
      assert.deepEqual(
        events.slice(0, -1),
        upTo(last - 1).map((seq) => ({ seq, epoch, ...message(seq) })),
      );
    };

    test('append reports the last stored event, and events sent again are stored once', async () => {
      const { run, seen, ended } = await withLostEvents();
      await assert.rejects(scheduler.invocations.append(run.id, run.epoch, 8, [message(8)]), isGapAfter(3));
      const newFollower = follow(run.id);
      await eventually(() => newFollower.seen.length === 3, 'the events that Redis has kept');
      await run.write(2);
      const last = await run.finish();
      await Promise.all([ended, newFollower.ended]);
      assert.equal(last, 10);
      for (const events of [seen, newFollower.seen, await reader.events.read(run.id, 0)])
        assertWhole(events, last, run.epoch);
    });

    test('finish reports the last stored event, and events sent again may be lost once more', async () => {
      const { run, seen, ended } = await withLostEvents();
      await losingWrites(redis, () => run.write(1));
      await assert.rejects(scheduler.invocations.finish(run.id, run.epoch, 9, end, null), isGapAfter(3));
      const last = await run.finish();
      await ended;
      assert.equal(last, 9);
      for (const events of [seen, await reader.events.read(run.id, 0)]) assertWhole(events, last, run.epoch);
    });

    test('a follower that has seen lost events gets one terminal event', async () => {
      const { run, seen, ended } = await withLostEvents();
      assert.equal(await scheduler.invocations.fail(run.id, 'runtime-lost', 'gone with Redis'), 'ok');
      await ended;
      assert.deepEqual(numbers(seen), [...upTo(7), 3, 4], 'the events, the gap after event 3, the terminal event');
      assert.deepEqual([seen[7]?.event, seen[7]?.data], ['gap', '{"after":3}']);
      assert.deepEqual([seen.at(-1)?.event, JSON.parse(seen.at(-1)?.data ?? '').code], ['error', 'runtime-lost']);
      const from = async (afterSeq: number) =>
        (await collect(reader.events.follow(run.id, afterSeq))).map(({ seq, event }) => [seq, event]);
      assert.deepEqual(await from(3), [[4, 'error']], 'a follower without lost events gets the number in the log');
      assert.deepEqual(await from(4), [], 'a follower that knows number 4 may have seen the terminal event');
      assert.deepEqual(
        await from(7),
        [[8, 'error']],
        'a follower that knows only the number of a lost event gets the next number',
      );
      const { epoch } = run;
      const again = await collect(new Items(reader.events.feed(run.id, { epoch, seq: 7 })));
      assert.deepEqual(again, seen.slice(7), 'a follower that also knows the epoch of a lost event resumes at the gap');
    });

    test('an attempt whose beginning is lost stays stale, although the next attempt begins at the same number', async () => {
      const { id } = submission();
      await scheduler.invocations.create(submission({ id }));
      const { seen, ended } = follow(id);
      const lost = await losingWrites(redis, async () => {
        const attempt = await beginAttempt(scheduler, id, 'r1');
        assert.ok('epoch' in attempt);
        await scheduler.invocations.append(id, attempt.epoch, 1, [message(1), message(2)]);
        await eventually(() => seen.length === 2, 'the events before they are lost');
        return attempt;
      });
      assert.equal((await scheduler.invocations.get(id))?.status, 'queued');
      const appends = () => scheduler.invocations.append(id, lost.epoch, 3, [message(3)]);
      assert.equal(await appends(), 'stale');
      const next = await beginAttempt(scheduler, id, 'r2');
      assert.ok('epoch' in next);
      assert.deepEqual([next.nextSeq, next.attempt], [1, 1]);
      assert.equal(await appends(), 'stale');
      assert.equal(await scheduler.invocations.finish(id, lost.epoch, 3, end, null), 'stale');
      await scheduler.invocations.append(id, next.epoch, 1, [message(1), message(2), message(3)]);
      assert.equal(await scheduler.invocations.finish(id, next.epoch, 4, end, null), 'ok');
      await ended;
      const [gap, ...rest] = seen.slice(2);
      assert.deepEqual(gap, { seq: 0, epoch: next.epoch, event: 'gap', data: '{"after":0}' });
      assert.deepEqual(rest, await reader.events.read(id, 0), 'the reader starts from the first event');
      // A reader that has one of the two lost events, `seen[0]` or `seen[1]`, resumes at the gap, `seen[2]`; any other at the next event.
      for (const [i, { epoch, seq }] of seen.slice(0, -1).entries())
        assert.deepEqual(
          await collect(new Items(reader.events.feed(id, { epoch, seq }))),
          seen.slice(Math.max(i + 1, 2)),
        );
    });

    test('a reader finds the last kept event in a long log', async () => {
      const run = await writer(scheduler);
      for (let i = 0; i < 20; i++) await run.write(1 + (i % 3));
      const lastKeptSeq = (await scheduler.invocations.get(run.id))?.seq ?? 0;
      await losingWrites(redis, () => run.write(30));
      assert.equal(await scheduler.invocations.fail(run.id, 'runtime-lost', 'gone with Redis'), 'ok');
      for (const seq of [lastKeptSeq + 1, lastKeptSeq + 7, lastKeptSeq + 30]) {
        const { lost, events } = await reader.events.readSome(run.id, { epoch: run.epoch, seq });
        assert.deepEqual([lost?.after, numbers(events)], [lastKeptSeq, [lastKeptSeq + 1]]);
      }
      const { lost, events } = await reader.events.readSome(run.id, { epoch: run.epoch, seq: lastKeptSeq });
      assert.deepEqual([lost, numbers(events)], [undefined, [lastKeptSeq + 1]]);
    });

    test('when the record is lost, writes are `stale` and followers fail with `invalid-argument`', async () => {
      const { run, seen, ended } = await losingWrites(redis, async () => {
        const run = await writer(scheduler);
        const follower = follow(run.id);
        await run.write(1);
        await eventually(() => follower.seen.length === 1, 'the event before it is lost');
        return { run, ...follower };
      });
      await assert.rejects(ended, (error) => error instanceof StoreError && error.code === 'invalid-argument');
      assert.deepEqual(numbers(seen), [1]);
      assert.equal(await scheduler.invocations.append(run.id, run.epoch, 2, [message(2)]), 'stale');
      assert.equal(await scheduler.invocations.finish(run.id, run.epoch, 2, end, null), 'stale');
    });
  });

  test('an aborted follower ends and unsubscribes from its channel', async () => {
    const run = await writer(scheduler);
    const abort = new AbortController();
    const following = collect(reader.events.follow(run.id, 0, abort.signal));
    await run.write(2);
    abort.abort();
    const seen = await following;
    assert.ok(seen.length <= 2);
    const { redis: client, keys } = scheduler.store;
    await eventually(
      async () => Number((await client.pubsub('NUMSUB', keys.live(run.id)))[1]) === 0,
      'the channel has no subscriber',
    );
  });

  test('following an unknown invocation fails, and so does following while Redis stays away', async () => {
    await assert.rejects(
      collect(reader.events.follow('unknown', 0)),
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

  test('the log of a function has the log lines and errors of its invocations', async () => {
    const record = submission({ function: 'talker' });
    await scheduler.invocations.create(record);
    const attempt = await beginAttempt(scheduler, record.id, 'r1');
    assert.ok('epoch' in attempt);
    const abort = new AbortController();
    const live: string[] = [];
    const following = (async () => {
      const names = async () => ['talker'];
      for await (const line of reader.logs.follow('default', names, new Map(), abort.signal)) live.push(line.data);
    })();
    await scheduler.invocations.append(record.id, attempt.epoch, 1, [
      { event: 'log', data: '{"message":"a"}' },
      { event: 'message', data: '{"text":"not a log line"}' },
      { event: 'log', data: '{"message":"b"}' },
    ]);
    await scheduler.invocations.fail(record.id, 'internal', 'unreachable');
    await eventually(() => live.length === 3, 'three lines');
    abort.abort();
    await following;
    const lines = await reader.logs.oldest('default', 'talker', { limit: 10 });
    assert.deepEqual(
      lines.map(({ invocation, seq, event }) => [invocation, seq, event]),
      [
        [record.id, 1, 'log'],
        [record.id, 3, 'log'],
        [record.id, 4, 'error'],
      ],
    );
    const last = { after: lines[1]?.cursor ?? '', limit: 10 };
    assert.deepEqual(await reader.logs.oldest('default', 'talker', last), lines.slice(2));
    assert.deepEqual(await reader.logs.newest('default', 'talker', { before: lines[2]?.cursor, limit: 1 }), [lines[1]]);
  });

  test('following the log of a function ends when the signal aborts, although lines arrive faster than the reader reads', async (t) => {
    const line = { cursor: '1-0', function: 'busy', invocation: 'i', seq: 1, at: 1, event: 'log' as const, data: '{}' };
    // Each read returns as many lines as a read may have, so the reader never finds the end of the log.
    const read = t.mock.method(reader.logs, 'oldest', async () => Array.from({ length: 64 }, () => line));
    const abort = new AbortController();
    for await (const _ of reader.logs.follow('default', async () => ['busy'], new Map(), abort.signal)) {
      abort.abort();
      assert.equal(read.mock.callCount(), 1, 'the reader reads no more after the abort');
    }
  });

  test('an idle reader of many logs reads some of them in turn every 5 s, since a wake-up can be lost', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const names = Array.from({ length: 40 }, (_, i) => `idle-${i}`);
    const read = t.mock.method(reader.logs, 'oldest');
    /**
     * Waits until the reader has made `reads` reads, and checks that it makes no more. The reader starts its next read in the turn of the event loop
     * in which the last one ends, so one more turn shows whether there is a next one.
     */
    const waitForReads = async (reads: number) => {
      while (read.mock.callCount() < reads) {
        t.signal.throwIfAborted();
        await nextTurn();
      }
      await Promise.all(read.mock.calls.map((call) => call.result));
      await nextTurn();
      assert.equal(read.mock.callCount(), reads);
    };
    const abort = new AbortController();
    const following = Array.fromAsync(reader.logs.follow('default', async () => names, new Map(), abort.signal));
    // The reader begins with each of the 40 logs.
    await waitForReads(40);
    // Each interval of 5 s adds reads of the next 16 logs; the third one has only the last 8, and the fourth begins again.
    for (const reads of [56, 72, 80, 96]) {
      t.mock.timers.tick(5000);
      await waitForReads(reads);
    }
    // The reads of the first three intervals (16, 16 and 8) are one of each log.
    const logsRead = read.mock.calls.slice(40, 80).map((call) => call.arguments[1]);
    assert.deepEqual(logsRead.sort(), names.toSorted());
    abort.abort();
    assert.deepEqual(await following, []);
  });
});
