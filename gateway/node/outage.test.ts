import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { StoreError } from '#scheduler/store/errors.ts';
import { eventually, submission } from '#scheduler/testing/fixture.ts';
import type { InvokeRequest } from '../app/control.ts';
import { type Frame, FrameParser } from '../client/event-source.ts';
import { ASYNC, ECHO_SCHEMA, Harness, JSON_TYPE, json, SSE } from '../testing/http/harness.ts';
import { GatewayPlatform } from '../testing/platform.ts';

/** Limit on one request of a test. */
const WAIT_MS = 120_000;

/** A platform whose Redis writes to disk before it answers. */
async function startDurable(): Promise<GatewayPlatform> {
  const platform = await GatewayPlatform.start({ appendOnly: true });
  await platform.scheduler.store.call((redis) => redis.config('SET', 'appendfsync', 'always'));
  return platform;
}

/** Reads a stream frame by frame. */
class FrameReader {
  /** Frames that have arrived and that `next` has not returned yet. */
  readonly #waiting: Frame[] = [];
  readonly #parser = new FrameParser();
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;

  constructor(response: Response) {
    this.#reader = response.body!.getReader();
  }

  /** The next frame, or null at the end. */
  async next(): Promise<Frame | null> {
    for (;;) {
      const frame = this.#waiting.shift();
      if (frame !== undefined) return frame;
      const { done, value } = await this.#reader.read();
      if (done) return null;
      this.#waiting.push(...this.#parser.push(new TextDecoder().decode(value)));
    }
  }
}

/** A platform whose Redis keeps its data, with the function `echo`. */
async function startEcho(): Promise<[GatewayPlatform, Harness]> {
  const platform = await startDurable();
  await platform.register({ name: 'echo', input: ECHO_SCHEMA });
  return [platform, new Harness({ url: platform.url, platform, stop: async () => undefined })];
}

describe('when Redis dies', () => {
  let platform: GatewayPlatform;
  let h: Harness;
  before(async () => {
    [platform, h] = await startEcho();
  });
  after(() => platform.stop());

  it('a stream continues once Redis is back', async () => {
    const { response, attempt } = await h.stream();
    const reading = new FrameReader(response);
    await attempt.say('before');
    assert.equal((await reading.next())?.id, `${attempt.epoch}-1`);
    await platform.redis.restart();
    await attempt.say('after');
    await attempt.succeed(1);
    assert.deepEqual(
      [(await reading.next())?.id, (await reading.next())?.event, await reading.next()],
      [`${attempt.epoch}-2`, 'result', null],
    );
  });

  it('a removal that took effect is in the audit log, although Redis failed before the answer', async (t) => {
    const { audit, store } = platform.scheduler;
    const versions = [
      await platform.register({ name: 'gone', main: 'a.ts' }),
      await platform.register({ name: 'gone' }),
    ];
    const { redis, keys } = store;
    const read = redis.hvals.bind(redis);
    t.mock.method(redis, 'hvals', async (key: string) => {
      if (key === keys.removedVersions('default', 'gone')) throw new StoreError('store-unavailable', 'Redis is away.');
      return read(key);
    });
    for (const removed of [`/versions/${versions[0]}`, '']) {
      const answer = await h.ask(`/v1/functions/gone${removed}`, { method: 'DELETE' });
      h.refused(answer, 'store-unavailable');
    }
    const acts = (await audit.read({ tenant: 'default', limit: 20 })).filter(({ target }) => target.startsWith('gone'));
    assert.deepEqual(
      acts.map(({ action, target }) => [action, target]),
      [
        ['function.remove', 'gone'],
        ['version.remove', `gone@${versions[0]}`],
      ],
    );
  });

  it('a stream ends with an error while Redis is away, and new requests are refused', async () => {
    const { response, attempt } = await h.stream();
    const reading = new FrameReader(response);
    await attempt.say('before');
    await reading.next();
    // The gateway caches a key for 1.5 s. Let the cache expire and fill it again: the messages below must pass authentication without Redis.
    await sleep(1500);
    await h.ask('/v1/functions');
    await platform.redis.kill();
    const message = (body: string, key: Record<string, string> = {}) =>
      h.ask(`/v1/invocations/${attempt.id}/messages`, { method: 'POST', body, headers: { ...JSON_TYPE, ...key } });
    const [last, refusal, ...messages] = await Promise.all([
      reading.next(),
      h.ask('/v1/functions'),
      message('{"text":"a"}'),
      message('{"text":"a"}', { 'idempotency-key': 'a' }),
      message('{"close":true}'),
    ]);
    const data = JSON.parse(last?.data ?? '{}');
    assert.deepEqual(
      [last?.event, last?.hasId, data.code, data.resumable],
      ['error', false, 'store-unavailable', true],
    );
    assert.equal(await reading.next(), null);
    h.refused(refusal, 'store-unavailable');
    assert.deepEqual([refusal.headers.get('x-should-retry'), refusal.headers.get('retry-after')], ['true', '1']);
    for (const answer of messages) h.refused(answer, 'store-unavailable');
    assert.deepEqual(
      messages.map(({ headers }) => headers.get('x-should-retry')),
      ['false', 'true', 'true'],
      'a repeated message without a key would be delivered twice',
    );
    const health = await fetch(`${platform.url}/readyz`);
    const checks = [{ name: 'store', ok: false, detail: 'does not answer' }];
    assert.deepEqual([health.status, await json(health)], [503, { ready: false, checks }]);
    assert.equal((await fetch(`${platform.url}/healthz`)).status, 200);

    await platform.redis.restart();
    const again = new FrameReader(
      await h.send(`/v1/invocations/${attempt.id}/events`, { headers: { 'last-event-id': '1' } }),
    );
    await attempt.say('after');
    assert.equal((await again.next())?.id, `${attempt.epoch}-2`);
    await attempt.succeed(1);
    assert.equal((await again.next())?.event, 'result');
  });

  it('an invocation that its client cannot find again is cancelled once Redis is back', async () => {
    await platform.register({ name: 'openai-chat' });
    const body = JSON.stringify({ model: 'tiny', messages: [{ role: 'user', content: 'Hi' }] });
    const answer = h.ask('/v1/chat/completions', { method: 'POST', body, headers: JSON_TYPE });
    const { id } = await platform.attempt(await platform.submitted('openai-chat'));
    await platform.redis.kill();
    const refusal = await answer;
    h.refused(refusal, 'store-unavailable');
    assert.equal(refusal.headers.get('x-should-retry'), 'true');
    // The gateway began its first cancel before this read, and both have the same time limit. So the cancel has failed
    // once this read fails.
    const { invocations } = platform.scheduler;
    await assert.rejects(invocations.get(id), { code: 'store-unavailable' });
    await platform.redis.restart();
    await eventually(async () => (await invocations.get(id))?.cancelReason === 'The client left.', 'the cancel');
  });
});

describe('when the gateway stops', () => {
  it('streams that end in time get their result, the others an error, and no new connection is accepted', async () => {
    const platform = await GatewayPlatform.start();
    try {
      await platform.register({ name: 'echo', input: ECHO_SCHEMA });
      const h = new Harness({ url: platform.url, platform, stop: async () => undefined });
      const quick = await h.stream();
      const slow = await h.stream();
      const waiting = await h.waiting();
      const logs = await h.send('/v1/functions/echo/logs', { headers: SSE });
      const closing = platform.server.close(60_000);
      // The drain does not wait for an endless stream.
      assert.match(await logs.text(), /event: error\ndata: \{"code":"shutting-down"/);
      await assert.rejects(fetch(`${platform.url}/healthz`, { headers: { connection: 'close' } }));
      await quick.attempt.succeed(1);
      assert.match(await quick.response.text(), /event: result/);
      // A second call shortens the drain.
      const sooner = platform.server.close(50);
      const text = await slow.response.text();
      assert.match(text, /^(: heartbeat\n\n)*event: error\ndata: \{"code":"shutting-down"/);
      const answer = await waiting.answer;
      h.refused(answer, 'shutting-down');
      assert.equal(answer.body.invocation, waiting.attempt.id);
      assert.equal(answer.headers.get('x-should-retry'), 'false', 'a repeated request would run the function twice');
      await Promise.all([closing, sooner]);
    } finally {
      await platform.stop();
    }
  });
});

describe('a submission that Redis does not answer in time', () => {
  let platform: GatewayPlatform;
  let h: Harness;
  before(async () => {
    [platform, h] = await startEcho();
  });
  after(() => platform.stop());

  /** Submits while Redis stands still. An invocation before that makes the gateway cache function and key, so that only the submission waits. */
  async function submitToStoppedRedis(more: Partial<InvokeRequest> = {}): Promise<void> {
    const call = {
      principal: (await platform.control.authenticate(platform.apiKey))!,
      requestId: 'r',
      traceparent: '',
      signal: AbortSignal.timeout(WAIT_MS),
    };
    const request = { function: { name: 'echo' }, check: () => undefined, input: '{"prompt":"a"}' };
    const first = await platform.control.invoke(call, request);
    await platform.control.cancel(call, first!.id, 'The test has ended.');
    process.kill(platform.redis.pid!, 'SIGSTOP');
    await assert.rejects(platform.control.invoke(call, { ...request, ...more }), { code: 'store-unavailable' });
  }

  /** States of the invocations, once every withdrawal is over. */
  async function statuses(): Promise<string[]> {
    const { withdrawals, invocations } = platform.scheduler;
    await eventually(() => withdrawals.size === 0, 'the withdrawals end');
    return (await invocations.recent('default', 'echo', 200)).map(({ status }) => status);
  }

  it('does not run once Redis goes on, if it has no idempotency key', async () => {
    const known = await h.invocations();
    await submitToStoppedRedis();
    process.kill(platform.redis.pid!, 'SIGCONT');
    // `submitToStoppedRedis` makes an invocation before Redis stops, and one after that.
    await eventually(async () => (await h.invocations()).size === known.size + 2, 'Redis stores the submission');
    assert.deepEqual(new Set(await statuses()), new Set(['cancelled']));
  });

  it('does not run after a restart of Redis, if it has no idempotency key', async () => {
    await submitToStoppedRedis();
    process.kill(platform.redis.pid!, 'SIGKILL');
    await platform.redis.restart();
    assert.deepEqual(new Set(await statuses()), new Set(['cancelled']));
  });

  it('needs no withdrawal when the connection was lost before the submission was sent', async () => {
    const { scheduler } = platform;
    await platform.redis.kill();
    await eventually(() => scheduler.store.redis.status !== 'ready', 'the loss is noticed');
    const lost = submission({ function: 'echo', idempotencyKey: 'single-use' });
    await assert.rejects(scheduler.withdrawals.submit(lost), { code: 'store-unavailable' });
    assert.equal(scheduler.withdrawals.size, 0);
    await platform.redis.restart();
    await eventually(
      () =>
        scheduler.ping().then(
          () => true,
          () => false,
        ),
      'Redis answers',
    );
    // A repeat of the request is a submission of its own.
    const { id, created } = await scheduler.withdrawals.submit(lost);
    assert.deepEqual([id, created], [lost.id, true]);
    await scheduler.cancel(id, 'The test has ended.');
  });

  it('stays queued for the retry of its client, if it has an idempotency key', async () => {
    await submitToStoppedRedis({ idempotencyKey: 'mine' });
    process.kill(platform.redis.pid!, 'SIGCONT');
    assert.deepEqual(
      (await statuses()).filter((status) => status !== 'cancelled'),
      ['queued'],
    );
  });
});

it("a client's submit during an outage of Redis makes one invocation", async () => {
  const platform = await startDurable();
  try {
    await platform.register({ name: 'echo', input: ECHO_SCHEMA });
    const h = new Harness({ url: platform.url, platform, stop: async () => undefined });
    await platform.redis.kill();
    const submitted = platform.client().submit('echo', { prompt: 'a' });
    await sleep(300);
    const [{ id }] = await Promise.all([submitted, platform.redis.restart()]);
    assert.deepEqual(await h.invocations(), new Set([id]));
    assert.equal((await json(await h.invoke(ASYNC))).status, 'queued');
  } finally {
    await platform.stop();
  }
});
