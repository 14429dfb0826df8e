import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { SHOWN_AHEAD } from '#scheduler/invocations/log.ts';
import type { FinishOutcome, InvocationEvent, NewEvent, TerminalEvent } from '#scheduler/invocations/types.ts';
import { LiveServer } from '#scheduler/live/server.ts';
import type { Scheduler } from '#scheduler/scheduler.ts';
import { collect, eventually, hold, openTestScheduler, submission } from '#scheduler/testing/fixture.ts';
import { TestRedis } from '#scheduler/testing/redis.ts';
import { attemptLog, silentMeter } from './attempt.ts';
import { Outbox, type OutboxEnd, WriteTicks } from './outbox.ts';

const RESULT: TerminalEvent = { event: 'result', data: '{"output":1}' };

/** A runtime that shows its events on a socket. */
class ShowingRuntime {
  readonly id: string;
  readonly #socket: string;
  readonly #scheduler: Scheduler;
  #live = new LiveServer();
  readonly #ticks = new WriteTicks();

  private constructor(scheduler: Scheduler, id: string, socket: string) {
    this.#scheduler = scheduler;
    this.id = id;
    this.#socket = socket;
  }

  static async start(scheduler: Scheduler, id: string, directory: string): Promise<ShowingRuntime> {
    const runtime = new ShowingRuntime(scheduler, id, path.join(directory, `${id}.sock`));
    const { redis, keys } = scheduler.store;
    const description = { id, name: id, startedAt: 0, slots: 0, live: runtime.#socket };
    await redis.hset(keys.runtimes, id, JSON.stringify(description));
    await runtime.listen();
    return runtime;
  }

  async listen(): Promise<void> {
    await this.#live.listen(this.#socket);
  }

  /** Cuts all followers off. */
  async disconnect(): Promise<void> {
    await this.#live.close();
  }

  /** Begins an attempt of the invocation, or of a new one by default. */
  async begin(id?: string, restartable = false) {
    const { invocations } = this.#scheduler;
    const record = submission({ restartable, ...(id !== undefined && { id }) });
    if (id === undefined) await invocations.create(record);
    await hold(this.#scheduler, record.id, this.id);
    const begun = await invocations.beginAttempt(record.id, this.id, undefined, '', true);
    assert.ok('epoch' in begun, JSON.stringify(begun));
    const identity = { id: record.id, epoch: begun.epoch, showsOwnEvents: true };
    const ends: OutboxEnd[] = [];
    const outbox = new Outbox(begun.nextSeq, attemptLog(invocations, identity, silentMeter()), {
      onEnd: (end) => ends.push(end),
      shows: { begin: (unlogged) => this.#live.begin(record.id, begun.epoch, unlogged), ticks: this.#ticks },
    });
    const finish = (terminal = RESULT) =>
      outbox.finish((seq, last) => invocations.finish(record.id, begun.epoch, seq, terminal, null, last));
    const say = (...texts: string[]) => {
      for (const text of texts) outbox.add('message', JSON.stringify({ text }));
    };
    return { ...identity, outbox, ends, finish, say };
  }
}

/** Asserts that the numbers of events ascend and that no number is used twice. */
function assertAscending(events: readonly InvocationEvent[]): void {
  const numbers = events.map(({ seq }) => seq);
  const ascending = [...new Set(numbers)].sort((a, b) => a - b);
  assert.deepEqual(numbers, ascending);
}

describe('events that are shown before they are logged', () => {
  let redis: TestRedis;
  let directory: string;
  let runtimeScheduler: Scheduler;
  let gatewayScheduler: Scheduler;
  let runtime: ShowingRuntime;
  before(async () => {
    redis = await TestRedis.start();
    directory = await mkdtemp(path.join(tmpdir(), 'pie-shown-'));
  });
  after(async () => {
    await redis.stop();
    await rm(directory, { recursive: true });
  });
  beforeEach(async () => {
    runtimeScheduler = openTestScheduler(redis, { retention: { maxBytes: 100_000 } });
    gatewayScheduler = openTestScheduler(redis, { prefix: runtimeScheduler.store.keys.prefix });
    runtime = await ShowingRuntime.start(runtimeScheduler, 'r1', directory);
  });
  afterEach(async () => {
    await runtime.disconnect();
    await runtimeScheduler.close();
    await gatewayScheduler.close();
  });

  /** Follows an invocation and collects its events. */
  function follow(id: string, afterSeq = 0) {
    const events: InvocationEvent[] = [];
    const ended = (async () => {
      for await (const event of gatewayScheduler.events.follow(id, afterSeq)) events.push(event);
    })();
    const texts = () => events.filter(({ event }) => event === 'message').map(({ data }) => JSON.parse(data).text);
    const hears = (text: string) =>
      eventually(() => texts().includes(text), `the follower gets ${text} after ${texts()}`);
    return { events, ended, texts, hears };
  }

  async function assertLogged(id: string, followed: readonly InvocationEvent[]): Promise<void> {
    const log = await collect(gatewayScheduler.events.follow(id, 0));
    assert.deepEqual(log, followed, 'the log equals the followed events');
  }

  /** Runs `during` while Redis accepts no writes. */
  async function withoutWrites(during: () => Promise<void>): Promise<void> {
    const client = redis.connect();
    await client.client('PAUSE', 600_000, 'WRITE');
    try {
      await during();
    } finally {
      await client.client('UNPAUSE');
      client.disconnect();
    }
  }

  it('reach a follower before the log has them, and the log later', async () => {
    const attempt = await runtime.begin();
    const follower = follow(attempt.id);
    attempt.say('first');
    await follower.hears('first');
    await eventually(
      async () => (await runtimeScheduler.events.read(attempt.id, 0)).length === 1,
      'the event is logged',
    );
    await withoutWrites(async () => {
      attempt.say('second', 'third');
      await follower.hears('third');
    });
    attempt.say('fourth');
    assert.equal(await attempt.finish(), 'ok');
    await follower.ended;
    assert.deepEqual(follower.texts(), ['first', 'second', 'third', 'fourth']);
    await assertLogged(attempt.id, follower.events);
  });

  it('reach a reader live, even if it read twice and the attempt began before its subscription was active', async () => {
    const record = submission();
    await runtimeScheduler.invocations.create(record);
    const mayListen = Promise.withResolvers<void>();
    const seen: string[] = [];
    const feed = gatewayScheduler.events.feed(
      record.id,
      { epoch: null, seq: 0 },
      { before: () => mayListen.promise },
    )(() => take());
    const take = () => seen.push(...(feed.take() ?? []).map(({ data }) => data));
    take();
    take();
    // Leaves time to read the log before the attempt begins: what was read is then outdated.
    await sleep(50);
    const attempt = await runtime.begin(record.id);
    mayListen.resolve();
    const channel = gatewayScheduler.store.keys.live(record.id);
    const client = runtimeScheduler.store.redis;
    await eventually(async () => Number((await client.pubsub('NUMSUB', channel))[1]) === 1, 'the follower listens');
    await withoutWrites(async () => {
      attempt.say('first');
      await eventually(() => seen.length === 1, 'the event comes live');
    });
    feed.close();
    await attempt.finish();
  });

  it('end with one message that carries the last event and the terminal event', async () => {
    const { id, epoch, outbox, say } = await runtime.begin();
    const listener = redis.connect();
    const announced: string[] = [];
    listener.on('message', (_channel, text) => announced.push(text));
    await listener.subscribe(runtimeScheduler.store.keys.live(id));
    const { events, ended, hears } = follow(id);
    say('one');
    await hears('one');
    outbox.addLast('metric', '{}');
    assert.equal(await outbox.almostFlushed(), true);
    const end = (seq: number, lastSeq: number, lastEvents: readonly NewEvent[], lastShownSeq: number) =>
      runtimeScheduler.invocations.finish(id, epoch, seq, RESULT, null, lastSeq, null, lastEvents, lastShownSeq);
    assert.equal(await outbox.finish<FinishOutcome>(end, 'unwritten'), 'ok');
    await ended;
    assert.deepEqual(events, await runtimeScheduler.events.read(id, 0));
    assert.deepEqual(
      events.map(({ event }) => event),
      ['message', 'metric', 'result'],
    );
    await eventually(() => announced.length > 0, 'the end is announced');
    assert.deepEqual(announced, [`${epoch}-2\0metric\0{}\0${epoch}-3\0result\0${RESULT.data}`]);
    listener.disconnect();
  });

  it('of many attempts are written in at most three calls', async () => {
    const attempts = await Promise.all(Array.from({ length: 20 }, () => runtime.begin()));
    const countEvals = async () => {
      const stats = await runtimeScheduler.store.call((connection) => connection.info('commandstats'));
      return [...stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)].reduce(
        (sum, [, calls]) => sum + Number(calls),
        0,
      );
    };
    const calls = await countEvals();
    for (let i = 0; i < 4; i++) {
      for (const { say } of attempts) say(`text ${i}`);
      // The test does not sleep here: on a busy machine, each sleep could last until the next write tick.
      await turn();
    }
    const written = async () =>
      (await Promise.all(attempts.map(({ id }) => runtimeScheduler.events.read(id, 0)))).flat().length;
    await eventually(async () => (await written()) === 4 * attempts.length, 'all events are logged');
    assert.ok((await countEvals()) - calls <= 3, 'at most three calls write all of them');
  });

  it('are bounded in number before the log has them, and later events are shown when there is room', async () => {
    const attempt = await runtime.begin();
    const follower = follow(attempt.id);
    attempt.say('first');
    await follower.hears('first');
    const texts = Array.from({ length: 3 * SHOWN_AHEAD }, (_, i) => `text ${i}`);
    await withoutWrites(async () => {
      for (const text of texts) attempt.say(text);
      // No event is shown while an older one has been missing from the log for 250 ms.
      await sleep(600);
      assert.ok(follower.texts().length <= SHOWN_AHEAD + 1, `${follower.texts().length} are shown`);
      const shownBefore = follower.texts().length;
      attempt.say('late');
      await sleep(50);
      assert.equal(
        follower.texts().length,
        shownBefore,
        'a follower gets no event while others have waited long for the log',
      );
    });
    assert.equal(await attempt.finish(), 'ok');
    await follower.ended;
    assert.deepEqual(follower.texts(), ['first', ...texts, 'late']);
  });

  it('keep their numbers and order when others are only logged, in large bursts and with a slow Redis', async () => {
    const attempt = await runtime.begin();
    const follower = follow(attempt.id);
    const burst = Array.from({ length: SHOWN_AHEAD + 88 }, (_, i) => `text ${i}`);
    attempt.say(...burst);
    await follower.hears(burst.at(-1) ?? '');
    attempt.say('next');
    await follower.hears('next');
    await withoutWrites(async () => {
      attempt.say('slow');
      await sleep(300);
      attempt.say('not shown');
      await sleep(300);
    });
    await follower.hears('not shown');
    // More characters than may be shown before the log has them (64 Ki).
    const large = 'y'.repeat(66_000);
    attempt.say('small');
    attempt.say(large);
    await follower.hears('small');
    await attempt.outbox.flushed();
    attempt.say('last');
    await follower.hears('last');
    assert.equal(await attempt.finish(), 'ok');
    await follower.ended;
    assert.deepEqual(follower.texts(), [...burst, 'next', 'slow', 'not shown', 'small', large, 'last']);
    await assertLogged(attempt.id, follower.events);
  });

  it('come from the log when they are very large, while other followers get theirs as well', async () => {
    const roomy = openTestScheduler(redis);
    const other = await ShowingRuntime.start(roomy, 'r3', directory);
    const gateway = openTestScheduler(redis, { prefix: roomy.store.keys.prefix });
    const [large, small] = [await other.begin(), await other.begin()];
    const texts: string[] = [];
    const followers = [large, small].map(async ({ id }) => {
      for await (const { event, data } of gateway.events.follow(id, 0)) if (event === 'message') texts.push(data);
    });
    const events = ['before', '\u0001'.repeat(1 << 20), 'behind'];
    large.say(...events);
    for (let i = 0; i < 20; i++) {
      small.say(`small ${i}`);
      await sleep(10);
    }
    assert.equal(await large.finish(), 'ok');
    assert.equal(await small.finish(), 'ok');
    await Promise.all(followers);
    assert.equal(texts.length, 23);
    for (const text of events) assert.ok(texts.includes(JSON.stringify({ text })));
    await other.disconnect();
    await roomy.close();
    await gateway.close();
  });

  it('are written at the next tick when the callers of `flushed` do not ask for a write at once', async () => {
    const attempt = await runtime.begin();
    let turnsAfterWrite = 0;
    const written: Promise<boolean>[] = [];
    const firstSeq = attempt.outbox.nextSeq;
    for (let i = 0; i < 10; i++) {
      attempt.say(`text ${i}`);
      written.push(attempt.outbox.flushed(false));
      await turn();
      if (attempt.outbox.nextSeq > firstSeq) turnsAfterWrite++;
    }
    assert.ok(turnsAfterWrite <= 5, 'the writes wait for their ticks');
    assert.ok((await Promise.all(written)).every(Boolean));
    assert.equal(attempt.outbox.nextSeq, firstSeq + 10);
    const lastFlush = attempt.outbox.flushed(false);
    attempt.outbox.close();
    assert.ok(await lastFlush);
  });

  it('become a gap when they are lost with their runtime, and their numbers are not reused', async () => {
    const attempt = await runtime.begin();
    const follower = follow(attempt.id);
    attempt.say('written');
    assert.ok(await attempt.outbox.flushed());
    await withoutWrites(async () => {
      attempt.say('seen', 'seen as well');
      await follower.hears('seen as well');
      attempt.outbox.close();
      await runtime.disconnect();
    });
    // The pending write may have reached Redis, so the log may hold a part of the events.
    await runtimeScheduler.invocations.fail(attempt.id, 'runtime-lost', 'The runtime died.');
    await follower.ended;
    const log = await collect(gatewayScheduler.events.follow(attempt.id, 0));
    assert.deepEqual(log.at(-1), follower.events.at(-1));
    assertAscending(follower.events);
    assert.deepEqual(
      follower.events.slice(-2).map(({ event }) => event),
      ['gap', 'error'],
    );
    const written = log.filter(({ event }) => event === 'message').length;
    assert.deepEqual(JSON.parse(log.at(-2)?.data ?? ''), { after: written });
    // A follower that saw the lost events continues after them.
    const resumed = follow(attempt.id, follower.events.at(-3)?.seq);
    await resumed.ended;
    assert.deepEqual(resumed.events, follower.events.slice(-2));
  });

  it('have larger numbers in the next attempt, on another runtime', async () => {
    const first = await runtime.begin(undefined, true);
    const follower = follow(first.id);
    first.say('of the first');
    await follower.hears('of the first');
    first.outbox.close();
    await runtime.disconnect();
    await runtimeScheduler.runtimes.recover(runtime.id);
    const other = await ShowingRuntime.start(runtimeScheduler, 'r2', directory);
    const second = await other.begin(first.id);
    second.say('of the second');
    await follower.hears('of the second');
    assert.equal(await second.finish(), 'ok');
    await follower.ended;
    await other.disconnect();
    assertAscending(follower.events);
    assert.equal(follower.events.filter(({ event }) => event === 'gap').length, 1);
    const log = await collect(gatewayScheduler.events.follow(first.id, 0));
    for (const event of log)
      assert.deepEqual(
        follower.events.find(({ seq }) => seq === event.seq),
        event,
      );
  });

  it('come from the log while the runtime cannot be reached', async () => {
    await runtime.disconnect();
    const attempt = await runtime.begin();
    const follower = follow(attempt.id);
    attempt.say('first');
    await follower.hears('first');
    await runtime.listen();
    attempt.say('second');
    await follower.hears('second');
    assert.equal(await attempt.finish(), 'ok');
    await follower.ended;
    assert.deepEqual(follower.texts(), ['first', 'second']);
  });

  it('never share a number with the terminal event when the log refuses them', async () => {
    const attempt = await runtime.begin();
    const follower = follow(attempt.id);
    attempt.say('fits');
    assert.ok(await attempt.outbox.flushed());
    attempt.say('x'.repeat(60_000));
    attempt.say('y'.repeat(60_000));
    await eventually(() => attempt.ends.length > 0, 'the log is full');
    assert.deepEqual(attempt.ends, ['full']);
    const error = { event: 'error', data: '{}', code: 'output-limit', message: 'too much' } as const;
    assert.equal(await attempt.finish(error), 'ok');
    await follower.ended;
    assertAscending(follower.events);
    assert.equal(follower.events.at(-1)?.event, 'error');
  });

  it('arrive once and in order through lost connections and pauses of Redis', async () => {
    for (const seed of [1, 2, 3]) {
      let state = seed * 7919;
      const roll = (sides: number) => {
        state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
        return Math.floor(state / 65_536) % sides;
      };
      const attempt = await runtime.begin();
      const followers = Array.from({ length: 3 }, () => ({ ...follow(attempt.id), afterSeq: 0 }));
      const sentTexts: string[] = [];
      for (let step = 0; step < 60; step++) {
        const count = roll(5);
        for (let i = 0; i < count; i++) {
          const text = `${sentTexts.length} ${'.'.repeat(roll(400))}`;
          sentTexts.push(text);
          attempt.say(text);
        }
        const act = roll(12);
        if (act === 0) {
          await runtime.disconnect();
          await sleep(roll(30));
          await runtime.listen();
        } else if (act === 1) await withoutWrites(() => sleep(roll(300)));
        else if (act === 2) assert.ok(await attempt.outbox.flushed());
        else if (act === 3) {
          const afterSeq = roll(sentTexts.length + 1);
          followers.push({ ...follow(attempt.id, afterSeq), afterSeq });
        } else await sleep(roll(20));
      }
      assert.equal(await attempt.finish(), 'ok');
      for (const [i, follower] of followers.entries()) {
        await follower.ended;
        // The first text has number 1.
        assert.deepEqual(follower.texts(), sentTexts.slice(follower.afterSeq), `seed ${seed}, follower ${i}`);
        assert.equal(follower.events.at(-1)?.seq, sentTexts.length + 1);
      }
    }
  });
});
