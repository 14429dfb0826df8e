import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { DEFAULT_LIMITS } from '#scheduler/functions/manifest.ts';
import type { FinishOutcome, NewEvent, TerminalEvent, Usage } from '#scheduler/invocations/types.ts';
import { LiveServer, type Unlogged } from '#scheduler/live/server.ts';
import { openScheduler, type Scheduler } from '#scheduler/scheduler.ts';
import { SequenceGap, StoreError } from '#scheduler/store/errors.ts';
import { durably, losingWrites } from '#scheduler/store/testing/lost-writes.ts';
import { beginAttempt, eventually } from '#scheduler/testing/fixture.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { Outbox, type OutboxEnd, type OutboxOptions, WriteTicks } from './outbox.ts';

describe('an outbox', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  /** A scheduler that gives up its calls before Redis comes back. */
  let hasty: Scheduler;
  before(async () => {
    redis = await TestRedis.start({ appendOnly: true });
    scheduler = openScheduler({
      log: silentLog,
      connect: redis.connect,
      deadlineMs: 20_000,
      retention: { maxBytes: 20_000 },
    });
    hasty = openScheduler({ log: silentLog, connect: redis.connect, deadlineMs: 300 });
  });
  after(async () => {
    await scheduler.close();
    await hasty.close();
    await redis.stop();
  });

  async function beginWithOutbox(options: Partial<OutboxOptions> = {}, writer = scheduler) {
    const { invocations } = scheduler;
    const id = randomUUID();
    const identity = { id, tenant: 'default', function: 'f', version: 'v' };
    await invocations.create({
      ...identity,
      submittedAt: Date.now(),
      deadlineMs: 60_000,
      restartable: false,
      input: 'null',
      limits: DEFAULT_LIMITS,
    });
    const begun = await beginAttempt(scheduler, id, 'runtime');
    assert.ok('epoch' in begun);
    const ends: OutboxEnd[] = [];
    const causes: unknown[] = [];
    let calls = 0;
    let checks = 0;
    let isLogReadable = true;
    const outbox = new Outbox(
      begun.nextSeq,
      {
        append: (seq, events) => {
          calls++;
          return writer.invocations.append(id, begun.epoch, seq, events);
        },
        report: () => assert.fail('no report is expected'),
        lastSeq: async () => {
          if (!isLogReadable) throw new StoreError('store-unavailable', 'not now');
          const record = await invocations.get(id);
          checks++;
          return record?.epoch === begun.epoch ? record.seq : null;
        },
      },
      {
        keepMs: 60_000,
        ...options,
        onEnd: (end, cause) => {
          ends.push(end);
          causes.push(cause);
        },
      },
    );
    const result = (seq: number) =>
      writer.invocations.finish(id, begun.epoch, seq, { event: 'result', data: '{}' }, null);
    return {
      id,
      epoch: begun.epoch,
      outbox,
      ends,
      causes,
      calls: () => calls,
      checks: () => checks,
      /** With false, the outbox cannot read the last number of the log. */
      setLogReadable: (isReadable: boolean) => {
        isLogReadable = isReadable;
      },
      result,
    };
  }

  /** Adds one event at a time and awaits the call of each. */
  async function say(outbox: Outbox, ...texts: string[]) {
    for (const text of texts) {
      outbox.add('message', text);
      assert.equal(await outbox.flushed(), true);
    }
  }

  const dataOf = async (id: string) => (await scheduler.events.read(id, 0)).map(({ data }) => data);

  it('writes the events of one turn of the event loop in one call, in order', async () => {
    const { id, outbox, calls } = await beginWithOutbox();
    for (let i = 0; i < 50; i++) outbox.add('message', String(i));
    assert.equal(await outbox.flushed(), true);
    assert.equal(calls(), 1);
    assert.deepEqual(
      await dataOf(id),
      Array.from({ length: 50 }, (_, i) => String(i)),
    );
    assert.equal(outbox.pendingBytes, 0);
    assert.equal(outbox.nextSeq, 51);
  });

  it('writes each event that arrives during a write, once and in order', async () => {
    const { id, outbox } = await beginWithOutbox();
    for (let i = 0; i < 20; i++) {
      outbox.add('message', `${i}`);
      if (i % 3 === 0) await turn();
    }
    assert.equal(await outbox.flushed(), true);
    assert.deepEqual(
      await dataOf(id),
      Array.from({ length: 20 }, (_, i) => String(i)),
    );
  });

  it('waits for its pace, reports usage meanwhile, and writes at once when the inferlet has ended or the outbox is abandoned', async () => {
    const reportedUsage: Usage[] = [];
    let [pauseMs, abandoned, calls] = [60_000, false, 0];
    const spentEvents: number[] = [];
    const log = {
      append: async () => {
        calls++;
        return 'ok' as never;
      },
      report: async (usage: Usage) => {
        reportedUsage.push(usage);
        return 'ok' as never;
      },
      lastSeq: async () => null,
    };
    const open = () => {
      const pace = { pauseMs: () => pauseMs, spend: (events: number) => void spentEvents.push(Math.floor(events)) };
      return new Outbox(1, log, { pace, keepMs: 60_000, isAbandoned: () => abandoned, onEnd: () => undefined });
    };
    const [endedOutbox, abandonedOutbox, runningOutbox] = [open(), open(), open()];
    for (const outbox of [endedOutbox, abandonedOutbox, runningOutbox])
      for (let i = 0; i < 3; i++) outbox.add('message', 'x');
    await turn();
    await turn();
    assert.equal(calls, 0);
    assert.equal(runningOutbox.report({ outputTokens: 7 } as Usage), true);
    await eventually(() => reportedUsage.length === 1, 'the report is sent');
    assert.equal(calls, 0);
    endedOutbox.hurry();
    await endedOutbox.flushed();
    assert.equal(calls, 1);
    pauseMs = 0;
    await runningOutbox.flushed();
    assert.equal(calls, 2);
    assert.deepEqual(spentEvents, [3, 3]);
    pauseMs = 60_000;
    abandoned = true;
    await abandonedOutbox.flushed();
    for (const outbox of [endedOutbox, abandonedOutbox, runningOutbox]) outbox.close();
  });

  it('sends the usage at the last event of each append, and reports usage without events', async () => {
    const sentUsage: [events: number, tokens: number | undefined][] = [];
    let tokens = 0;
    let answer = Promise.withResolvers<'ok'>();
    const log = {
      append: (_seq: number, events: readonly NewEvent[], usage: Usage | undefined) => {
        sentUsage.push([events.length, usage?.outputTokens]);
        return answer.promise;
      },
      report: async (usage: Usage) => {
        sentUsage.push([0, usage.outputTokens]);
        return 'ok' as const;
      },
      lastSeq: () => assert.fail('no call needs the last number'),
    };
    const usage = () => ({ outputTokens: tokens });
    let marked = usage();
    const marks = {
      mark: () => {
        marked = usage();
      },
      marked: () => marked,
    };
    const outbox = new Outbox(1, log, { usage: marks, onEnd: () => assert.fail('the outbox must not end') });
    for (tokens = 1; tokens <= 3; tokens++) outbox.add('message', `${tokens}`);
    await new Promise((resolve) => setImmediate(resolve));
    tokens = 4;
    outbox.add('message', '4');
    // The token is counted, but its event is not added yet.
    tokens = 5;
    assert.equal(outbox.report(usage()), false, 'waiting events come first');
    answer.resolve('ok');
    answer = Promise.withResolvers();
    answer.resolve('ok');
    assert.ok(await outbox.flushed());
    assert.equal(outbox.reported?.outputTokens, 4);
    assert.equal(outbox.report(usage()), true);
    assert.ok(await outbox.flushed());
    assert.deepEqual(sentUsage, [
      [3, 3],
      [1, 4],
      [0, 5],
    ]);
    outbox.close();
  });

  it('writes an event that arrives at any moment around the end of a call', async () => {
    // An inferlet that answers its client may add an event in any microtask around the end of a write.
    for (let microtasks = 0; microtasks < 20; microtasks++) {
      const written: string[] = [];
      const called = Promise.withResolvers<void>();
      const answer = Promise.withResolvers<'ok'>();
      const outbox = new Outbox(
        1,
        {
          append: (_seq, events) => {
            for (const { data } of events) written.push(data);
            called.resolve();
            return answer.promise;
          },
          report: () => assert.fail('no report is expected'),
          lastSeq: () => assert.fail('no call needs the last number'),
        },
        { onEnd: () => assert.fail('the outbox must not end') },
      );
      outbox.add('message', 'question');
      await called.promise;
      answer.resolve('ok');
      for (let i = 0; i < microtasks; i++) await null;
      outbox.add('message', 'answer');
      for (let turns = 0; turns < 5; turns++) await turn();
      assert.deepEqual(written, ['question', 'answer'], `after ${microtasks} microtasks`);
      assert.equal(outbox.pendingBytes, 0);
      outbox.close();
    }
  });

  it('writes every event once when Redis dies in between', async () => {
    const { id, outbox } = await durably(redis, () => beginWithOutbox());
    outbox.add('message', 'before');
    await outbox.flushed();
    await redis.kill();
    outbox.add('message', 'during');
    const flushed = outbox.flushed();
    await redis.restart();
    outbox.add('message', 'after');
    assert.equal(await flushed, true);
    await outbox.flushed();
    assert.deepEqual(await dataOf(id), ['before', 'during', 'after']);
  });

  it('ends when another attempt owns the invocation', async () => {
    const { id, outbox, ends } = await beginWithOutbox();
    await scheduler.invocations.fail(id, 'runtime-lost', 'taken over');
    outbox.add('message', 'too late');
    assert.equal(await outbox.flushed(), false);
    assert.deepEqual(ends, ['lost']);
    outbox.add('message', 'still');
    assert.equal(outbox.pendingBytes, 0);
  });

  it('ends when the log is full', async () => {
    const { outbox, ends } = await beginWithOutbox();
    outbox.add('message', 'x'.repeat(30_000));
    assert.equal(await outbox.flushed(), false);
    assert.deepEqual(ends, ['full']);
  });

  it('calls `write` once and throws when the end must skip the number of a shown event that a full log refused', async () => {
    const live = new LiveServer();
    const ended = Promise.withResolvers<OutboxEnd>();
    const log = {
      append: async () => 'full' as const,
      report: () => assert.fail('no report is expected'),
      lastSeq: () => assert.fail('no call needs the last number'),
    };
    const shows = { begin: (unlogged: () => Unlogged) => live.begin('any', 1, unlogged), ticks: new WriteTicks() };
    const outbox = new Outbox(1, log, { shows, onEnd: ended.resolve });
    outbox.add('message', 'x');
    assert.equal(await ended.promise, 'full');
    let calls = 0;
    /** Accepts only the number after the log's last one, as the script does that requeues an invocation. */
    const requeue = async (seq: number, lastSeq: number) => {
      calls += 1;
      assert.ok(calls < 10, 'the call is repeated without end');
      if (seq !== lastSeq + 1) throw new SequenceGap('The number is not the next one.', lastSeq);
    };
    await assert.rejects(outbox.finish(requeue), SequenceGap);
    assert.equal(calls, 1);
    await live.close();
  });

  describe('when Redis has lost acknowledged writes', () => {
    it('writes the lost events again, under their numbers, before new events', async () => {
      const { id, outbox, ends } = await beginWithOutbox();
      await say(outbox, '1', '2');
      await losingWrites(redis, () => say(outbox, '3', '4', '5'));
      assert.deepEqual(await dataOf(id), ['1', '2']);
      await say(outbox, '6');
      assert.deepEqual(await dataOf(id), ['1', '2', '3', '4', '5', '6']);
      // A second loss is repaired, too.
      await losingWrites(redis, () => say(outbox, '7'));
      await say(outbox, '8');
      assert.deepEqual(await dataOf(id), ['1', '2', '3', '4', '5', '6', '7', '8']);
      assert.deepEqual([outbox.nextSeq, outbox.pendingBytes, ends], [9, 0, []]);
    });

    it('writes the lost events again before the terminal event', async () => {
      const { id, outbox, ends, result } = await beginWithOutbox();
      await say(outbox, '1');
      await losingWrites(redis, () => say(outbox, '2', '3'));
      assert.equal(await outbox.finish(result), 'ok');
      assert.deepEqual(await dataOf(id), ['1', '2', '3', '{}']);
      assert.deepEqual((await scheduler.invocations.get(id))?.status, 'succeeded');
      assert.deepEqual(ends, []);
    });

    it('writes the lost events again while it is idle, and checks the log only until all events are confirmed', async () => {
      const { id, outbox, checks, setLogReadable } = await beginWithOutbox({ keepMs: 50 });
      await say(outbox, '1');
      await eventually(() => checks() === 1, 'the outbox has checked the log');
      setLogReadable(false);
      await losingWrites(redis, () => say(outbox, '2', '3'));
      setLogReadable(true);
      await eventually(() => checks() === 3, 'one check finds the gap, and the next finds all events');
      assert.deepEqual(await dataOf(id), ['1', '2', '3']);
      await new Promise((resolve) => setTimeout(resolve, 200));
      assert.equal(checks(), 3, 'no event is kept');
    });

    it('ends as `broken` if it has dropped the lost events, and writes the terminal event after the events in the log', async () => {
      // 300 bytes keep two events: each costs 128 bytes and its data.
      const { id, outbox, ends, causes } = await beginWithOutbox({ keepBytes: 300 });
      await say(outbox, '1');
      await losingWrites(redis, () => say(outbox, '2', '3', '4'));
      outbox.add('message', '5');
      assert.equal(await outbox.flushed(), false);
      assert.deepEqual(ends, ['broken']);
      assert.match(String(causes[0]), /lost the events 2 to 4, .* not kept/);
      const failure = { event: 'error', data: '{"code":"internal"}', code: 'internal', message: '' } as const;
      const record = await scheduler.invocations.get(id);
      await outbox.finish((seq) => scheduler.invocations.finish(id, record?.epoch ?? 0, seq, failure, null));
      assert.deepEqual(await dataOf(id), ['1', failure.data]);
    });

    it('refuses a result when the write of the terminal event reveals the loss of dropped events', async () => {
      const { id, outbox, result } = await beginWithOutbox({ keepBytes: 300 });
      await say(outbox, '1');
      await losingWrites(redis, () => say(outbox, '2', '3', '4'));
      await assert.rejects(outbox.finish(result), /lost the events 2 to 4, .* not kept/);
      assert.deepEqual(await dataOf(id), ['1']);
      assert.equal(await outbox.finish(async (seq) => seq), 2, 'another end gets number 2');
    });

    it('drops waiting events when their write reveals a loss, and does not reuse shown numbers', async () => {
      const live = new LiveServer();
      const ticks = new WriteTicks();
      const shows = { begin: (unlogged: () => Unlogged) => live.begin('any', 1, unlogged), ticks };
      const { id, outbox, ends, epoch } = await beginWithOutbox({ keepBytes: 300, shows });
      await say(outbox, '1');
      await losingWrites(redis, () => say(outbox, '2', '3', '4'));
      outbox.add('message', '5');
      outbox.add('message', '6');
      await outbox.almostFlushed();
      const finish = (terminal: TerminalEvent) =>
        outbox.finish<FinishOutcome>(
          (seq, last, events) => scheduler.invocations.finish(id, epoch, seq, terminal, null, last, null, events),
          'unwritten',
        );
      await assert.rejects(finish({ event: 'result', data: '{}' }), /lost the events 2 to 4, .* not kept/);
      assert.deepEqual(ends, ['broken']);
      assert.equal(await finish({ event: 'error', data: '{}', code: 'internal', message: 'lost' }), 'ok');
      const logged = await scheduler.events.read(id, 0);
      // Followers were shown events 5 and 6, so the end has number 7.
      assert.deepEqual(
        logged.map(({ seq, event }) => [seq, event]),
        [
          [1, 'message'],
          [7, 'error'],
        ],
      );
      await live.close();
    });

    it('ends as `lost`, while it is idle, when Redis has lost its attempt', async () => {
      const { id, ends, setLogReadable } = await losingWrites(redis, async () => {
        const begun = await beginWithOutbox({ keepMs: 50 });
        begun.setLogReadable(false);
        await say(begun.outbox, '1');
        return begun;
      });
      setLogReadable(true);
      await eventually(() => ends.length > 0, 'the outbox ends');
      assert.deepEqual(ends, ['lost']);
      assert.equal(await scheduler.invocations.get(id), null);
    });
  });

  it('stops repeating a call once it is abandoned', async () => {
    let abandoned = false;
    const { outbox, ends, result } = await beginWithOutbox({ isAbandoned: () => abandoned }, hasty);
    await redis.kill();
    outbox.add('message', 'no waiter');
    const finished = outbox.finish(result);
    abandoned = true;
    assert.equal(await finished, null);
    assert.deepEqual(ends, ['lost']);
    await redis.restart();
  });
});
