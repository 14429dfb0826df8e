import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { affinityKey } from '#scheduler/policies/placement.ts';
import { openScheduler } from '#scheduler/scheduler.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { CODES } from '../../app/errors/codes.ts';
import { type Frame, FrameParser } from '../../client/event-source.ts';
import { ASYNC, frames, type Harness, type Init, JSON_TYPE, json, SSE } from './harness.ts';
import { SUITE_LIMITS } from './suite.ts';

/** Tests of streams, waiting answers, 202, and bad input. */
export function describeInvoking(get: () => Harness): void {
  describe('invoking', () => {
    it('streams the events', async () => {
      const h = get();
      const { response, attempt } = await h.stream();
      assert.equal(response.status, 200);
      assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
      await attempt.start();
      await attempt.say('Once', ' upon');
      await attempt.append({ event: 'log', data: { level: 'info', message: 'hello' } });
      await attempt.succeed({ text: 'Once upon' }, { outputTokens: 2 });
      const seen = await frames(response);
      assert.deepEqual(
        seen.map(({ id, event }) => [id, event]),
        [
          [`${attempt.epoch}-1`, 'start'],
          [`${attempt.epoch}-2`, 'message'],
          [`${attempt.epoch}-3`, 'message'],
          [`${attempt.epoch}-4`, 'log'],
          [`${attempt.epoch}-5`, 'result'],
        ],
      );
      assert.deepEqual(JSON.parse(seen[1]!.data), { text: 'Once' });
      assert.deepEqual(JSON.parse(seen[4]!.data), { output: { text: 'Once upon' }, usage: { outputTokens: 2 } });
    });

    it('sends each event as it is written', async () => {
      const h = get();
      const { response, attempt } = await h.stream();
      const parser = new FrameParser();
      const reader = response.body!.getReader();
      for (const text of ['a', 'b', 'c']) {
        await attempt.say(text);
        let receivedFrames: Frame[] = [];
        while (receivedFrames.length === 0)
          receivedFrames = parser.push(new TextDecoder().decode((await reader.read()).value));
        assert.deepEqual(
          receivedFrames.map(({ data }) => JSON.parse(data)),
          [{ text }],
        );
      }
      await attempt.succeed(1);
      await reader.cancel();
    });

    it('takes compressed bodies, and refuses those that it cannot decode', async () => {
      const h = get();
      const post = (body: Uint8Array, coding: string, headers: Record<string, string> = ASYNC) =>
        h.ask('/v1/functions/echo/invocations', {
          method: 'POST',
          body: new Uint8Array(body),
          headers: { ...JSON_TYPE, 'content-encoding': coding, ...headers },
        });
      const plain = Buffer.from('{"prompt":"a"}');
      assert.equal((await post(gzipSync(plain), 'gzip')).status, 202);
      assert.equal((await post(deflateSync(plain), 'Deflate')).status, 202);
      const other = await post(plain, 'compress');
      h.refused(other, 'unsupported-media-type', 'content-encoding');
      const codings = other.headers.get('accept-encoding') ?? '';
      assert.match(codings, /gzip.*deflate/);
      for (const [coding, press] of [
        ['br', brotliCompressSync],
        ['zstd', zstdCompressSync],
      ] as const) {
        const answer = await post(press(plain), coding);
        if (codings.includes(coding)) assert.equal(answer.status, 202, coding);
        else h.refused(answer, 'unsupported-media-type', 'content-encoding');
      }
      h.refused(await post(plain, 'gzip'), 'malformed-request', 'content-encoding');
      h.refused(await post(gzipSync(plain).subarray(0, -4), 'gzip'), 'malformed-request', 'content-encoding');
      h.refused(await post(gzipSync('{"prompt":'), 'gzip'), 'malformed-json');
      const large = JSON.stringify({ prompt: 'x'.repeat(SUITE_LIMITS.inputBytes) });
      h.refused(await post(gzipSync(large), 'gzip'), 'body-too-large');
      h.refused(await post(gzipSync(Buffer.alloc(64 << 20)), 'gzip'), 'body-too-large');
    });

    it('ends a failed stream with an error that OpenAI clients read', async () => {
      const h = get();
      const { response, attempt } = await h.stream();
      await attempt.fail('inferlet-error', 'the prompt is too long');
      const [frame] = await frames(response);
      assert.equal(frame?.event, 'error');
      const error = { message: 'the prompt is too long', type: 'invalid_request_error', code: 'inferlet-error' };
      assert.deepEqual(JSON.parse(frame?.data ?? ''), {
        code: 'inferlet-error',
        message: 'the prompt is too long',
        hint: CODES['inferlet-error'].hint,
        error,
      });
      const late = await h.stream();
      await late.attempt.fail('deadline-exceeded', 'The deadline of 300 ms has passed.');
      const [lateFrame] = await frames(late.response);
      assert.match(JSON.parse(lateFrame?.data ?? '').hint, /Cancel-After/);
    });

    it('waits for the outcome', async () => {
      const h = get();
      const { answer, attempt } = await h.waiting();
      await attempt.start();
      await attempt.say('x');
      await attempt.append({ event: 'message', data: { base64: 'AAE=' } });
      await attempt.succeed([1]);
      const { headers, body } = await answer;
      assert.equal(headers.get('content-location'), `/v1/invocations/${attempt.id}`);
      assert.deepEqual(body, {
        id: attempt.id,
        status: 'succeeded',
        output: [1],
        messages: [{ text: 'x' }, { base64: 'AAE=' }],
        usage: { outputTokens: 1 },
      });
    });

    it('reports a failure by its status, with the messages before it', async () => {
      const h = get();
      const cases = [
        ['inferlet-error', 422],
        ['deadline-exceeded', 504],
        ['device-lost', 503],
        ['unavailable', 503],
        ['cancelled', 409],
      ] as const;
      for (const [code, status] of cases) {
        const { answer, attempt } = await h.waiting();
        await attempt.say('partial');
        await attempt.fail(code, 'because');
        h.refused(await answer, code);
        const { body, headers } = await answer;
        assert.deepEqual(
          [body.status, body.detail, body.invocation, body.messages],
          [status, 'because', attempt.id, [{ text: 'partial' }]],
        );
        assert.equal(headers.get('x-should-retry'), status === 422 ? null : 'false');
      }
    });

    it('reports when a retry of a failed invocation may succeed, if that is known', async () => {
      const h = get();
      const { answer, attempt } = await h.waiting();
      await attempt.fail('quota-tokens', 'The quota is used up.', { retryAfterMs: 61_500.5 });
      h.refused(await answer, 'quota-tokens');
      const { headers } = await answer;
      // The value is rounded up, so that a client that waits this long does not come too early.
      assert.deepEqual([headers.get('retry-after'), headers.get('retry-after-ms')], ['62', '61501']);
    });

    it('answers at once with 202 when asked to', async () => {
      const h = get();
      const response = await h.invoke(ASYNC);
      const body = await json(response);
      assert.deepEqual(
        [response.status, response.headers.get('preference-applied'), body.status],
        [202, 'respond-async', 'queued'],
      );
      assert.equal(response.headers.get('location'), `/v1/invocations/${body.id}`);
      const attempt = await h.platform.attempt(body.id);
      assert.equal((await h.ask(`/v1/invocations/${body.id}`)).body.status, 'running');
      await attempt.succeed({ done: true });
      const state = (await h.ask(`/v1/invocations/${body.id}`)).body;
      assert.deepEqual([state.status, state.output], ['succeeded', { done: true }]);
      // `<epoch>-<number>`: the epoch is the time in milliseconds at which the attempt began.
      assert.match(state.lastEventId, /^\d{13}-1$/);
    });

    it('invokes a version, and names an unknown one', async () => {
      const h = get();
      const { version } = (await h.ask('/v1/functions/echo')).body;
      const ok = await h.send(`/v1/functions/echo@${version}/invocations`, {
        method: 'POST',
        body: '{"prompt":""}',
        headers: { ...JSON_TYPE, ...ASYNC },
      });
      assert.equal((await json(ok)).version, version);
      const init = { method: 'POST', body: '{"prompt":""}', headers: JSON_TYPE };
      h.refused(await h.ask('/v1/functions/nothing/invocations', init), 'unknown-function');
      h.refused(await h.ask('/v1/functions/echo@000000000000/invocations', init), 'unknown-alias');
    });

    it('refuses each kind of bad input with its own code', async () => {
      const h = get();
      const post = (body: NonNullable<Init['body']>, headers: Record<string, string> = JSON_TYPE) =>
        h.ask('/v1/functions/echo/invocations', { method: 'POST', body, headers });
      const before = await h.invocations();
      h.refused(await post('{"prompt": '), 'malformed-json');
      h.refused(await post(new Uint8Array([0x22, 0xff, 0x22])), 'malformed-json');
      h.refused(await post('{}'), 'invalid-input', '/prompt');
      h.refused(await post(''), 'invalid-input', '/prompt');
      h.refused(await post('{"prompt":1}'), 'invalid-input', '/prompt');
      h.refused(await post('{"prompt":"","maxTokens":0}'), 'invalid-input', '/maxTokens');
      h.refused(await post('{"prompt":"","other":0}'), 'invalid-input', '/other');
      h.refused(
        await post('prompt=x', { 'content-type': 'application/x-www-form-urlencoded' }),
        'unsupported-media-type',
      );
      h.refused(await post(JSON.stringify({ prompt: 'x'.repeat(SUITE_LIMITS.inputBytes) })), 'body-too-large');
      // This body has no declared length.
      const pieces = ['{"prompt":""}', ...Array.from({ length: 50 }, () => ' '.repeat(1000))];
      const unannounced = new ReadableStream<Uint8Array>({
        pull: (controller) => {
          const piece = pieces.pop();
          if (piece === undefined) controller.close();
          else controller.enqueue(new TextEncoder().encode(piece));
        },
      });
      h.refused(await post(unannounced), 'body-too-large');
      assert.deepEqual(await h.invocations(), before, 'no invocation was stored');
    });

    it('waits for the requested time, then answers with the address of the invocation', async () => {
      const h = get();
      for (const prefer of ['wait=0', 'respond-async, wait=0']) {
        const late = await h.invoke({ prefer });
        const state = await json(late);
        assert.deepEqual([late.status, state.status], [202, 'queued']);
        assert.equal(late.headers.get('preference-applied'), 'respond-async, wait=0');
        assert.equal(late.headers.get('location'), `/v1/invocations/${state.id}`);
        await (await h.platform.attempt(state.id)).succeed(1);
      }
      const known = await h.invocations();
      const waiting = h.invoke({ prefer: 'respond-async, wait=30' });
      await (await h.platform.attempt(await h.platform.submitted('echo', known))).succeed(2);
      const inTime = await waiting;
      assert.deepEqual([inTime.status, (await json(inTime)).output], [200, 2]);
      assert.equal(inTime.headers.get('preference-applied'), 'wait=30');
    });

    it('sets the requested deadline and refuses an invalid one', async () => {
      const h = get();
      for (const [text, ms] of [
        ['90', 90_000],
        ['1500ms', 1500],
        ['5m', 300_000],
        ['24h', 86_400_000],
      ] as const) {
        const { id } = await json(await h.invoke({ ...ASYNC, 'cancel-after': text }));
        assert.equal((await h.platform.scheduler.invocations.get(id))?.deadlineMs, ms);
        await (await h.platform.attempt(id)).succeed(1);
      }
      const known = await h.invocations();
      const post = (text: string) =>
        h.ask('/v1/functions/echo/invocations', {
          method: 'POST',
          body: '{"prompt":"a"}',
          headers: { ...JSON_TYPE, 'cancel-after': text },
        });
      for (const bad of ['0', '-1', '1.5', 'soon', '25h', '5 m', '1w', '9'.repeat(40)])
        h.refused(await post(bad), 'invalid-input', 'cancel-after');
      assert.deepEqual(await h.invocations(), known, 'no invocation was stored');
      const { id } = await json(await h.invoke({ ...ASYNC, 'cancel-after': '1ms' }));
      // The test platform runs no reaper. The reaper of this second scheduler ends the invocation whose deadline has passed.
      const { connect } = h.platform.redis;
      const other = openScheduler({ log: silentLog, connect, leaseMs: 1000 });
      other.reaper.start();
      const events = await frames(await h.send(`/v1/invocations/${id}/events`));
      assert.equal(JSON.parse(events[0]?.data ?? '').code, 'deadline-exceeded');
      await other.close();
    });

    it('bounds the open invocations with a concurrency key', async () => {
      const h = get();
      const invoke = (key: string, limit?: string) =>
        h.ask('/v1/functions/echo/invocations', {
          method: 'POST',
          body: '{"prompt":"x"}',
          headers: {
            ...JSON_TYPE,
            ...ASYNC,
            'concurrency-key': key,
            ...(limit !== undefined && { 'concurrency-limit': limit }),
          },
        });
      const first = await invoke('user-1');
      assert.equal(first.status, 202, JSON.stringify(first.body));
      const refused = await invoke('user-1');
      h.refused(refused, 'concurrency-key-busy', 'concurrency-key');
      assert.equal(refused.headers.get('retry-after'), '1');
      const second = await invoke('user-1', '2');
      assert.equal(second.status, 202, 'another request may allow more');
      const other = await invoke('user-2');
      assert.equal(other.status, 202, 'another key has its own bound');
      await (await h.platform.attempt(first.body.id)).succeed(null);
      h.refused(await invoke('user-1'), 'concurrency-key-busy', 'concurrency-key');
      await h.ask(`/v1/invocations/${second.body.id}`, { method: 'DELETE' });
      const { redis, keys } = h.platform.scheduler.store;
      assert.equal(await redis.exists(keys.concurrency('default', 'user-1')), 0, 'ended invocations leave no entry');
      await redis.sadd(keys.concurrency('default', 'user-1'), 'inv_lost');
      const third = await invoke('user-1');
      assert.equal(third.status, 202, 'an invocation that the store has lost does not count');
      for (const { id } of [third.body, other.body]) await h.ask(`/v1/invocations/${id}`, { method: 'DELETE' });
      for (const limit of ['0', '1001', 'x', '1.5'])
        h.refused(await invoke('user-1', limit), 'invalid-input', 'concurrency-limit');
      const limitHeaders = { ...JSON_TYPE, ...ASYNC, 'concurrency-limit': '2' };
      const requestWithoutKey = { method: 'POST', body: '{"prompt":"x"}', headers: limitHeaders };
      h.refused(await h.ask('/v1/functions/echo/invocations', requestWithoutKey), 'invalid-input', 'concurrency-key');
    });

    it('stores a session affinity by a key of the tenant, and refuses an invalid one', async () => {
      const h = get();
      const { redis, keys } = h.platform.scheduler.store;
      for (const affinity of ['a', 'user:4711/~', 'x'.repeat(256)]) {
        const { id } = await json(await h.invoke({ ...ASYNC, 'x-session-affinity': affinity }));
        assert.equal(await redis.hget(keys.invocation(id), 'affinity'), affinityKey('default', affinity));
      }
      assert.equal(await redis.hget(keys.invocation(await h.submit()), 'affinity'), null);
      for (const bad of ['', 'x'.repeat(257), 'a b', 'ü']) {
        const answer = await h.ask('/v1/functions/echo/invocations', {
          method: 'POST',
          body: '{"prompt":"a"}',
          headers: { ...JSON_TYPE, 'x-session-affinity': bad },
        });
        h.refused(answer, 'invalid-input', 'x-session-affinity');
      }
    });

    it('refuses webhooks with invalid or private addresses', async () => {
      const h = get();
      const known = await h.invocations();
      for (const bad of [
        'nonsense',
        'ftp://example.com/',
        'http://example.com/',
        'https://user:secret@example.com/',
        'https://127.0.0.1/',
        'https://0x7f.1/',
        'https://2130706433/',
        'https://[::1]/',
        'https://[::ffff:10.0.0.1]/',
        'https://169.254.169.254/latest',
        'https://192.168.1.1:8443/',
        'https://localhost/',
        `https://example.com/${'x'.repeat(2048)}`,
      ]) {
        const answer = await h.ask('/v1/functions/echo/invocations', {
          method: 'POST',
          body: '{"prompt":"a"}',
          headers: { ...JSON_TYPE, 'webhook-url': bad },
        });
        h.refused(answer, 'invalid-webhook', 'webhook-url');
      }
      assert.deepEqual(await h.invocations(), known, 'no invocation was stored');
      const { id } = await json(await h.invoke({ ...ASYNC, 'webhook-url': 'https://example.com/hook' }));
      const { body } = await h.ask(`/v1/invocations/${id}`);
      assert.deepEqual([body.webhook.url, body.webhook.status], ['https://example.com/hook', 'waiting']);
    });
  });

  describe('an idempotency key', () => {
    const newKey = () => ({ 'idempotency-key': crypto.randomUUID() });

    it('is in flight until its invocation ends, then replays the outcome in the requested form', async () => {
      const h = get();
      const key = newKey();
      const { id } = await json(await h.invoke({ ...ASYNC, ...key }));
      const repeat = (headers: Record<string, string> = {}) =>
        h.ask('/v1/functions/echo/invocations', {
          method: 'POST',
          body: '{"prompt":"a"}',
          headers: { ...JSON_TYPE, ...key, ...headers },
        });
      for (const headers of [{}, ASYNC, SSE]) {
        const refused = await repeat(headers);
        h.refused(refused, 'idempotency-in-flight');
        assert.deepEqual(
          [refused.body.invocation, refused.headers.get('location'), Number(refused.headers.get('retry-after')) > 0],
          [id, `/v1/invocations/${id}`, true],
        );
      }
      const attempt = await h.platform.attempt(id);
      await attempt.say('x');
      await attempt.succeed({ n: 1 });
      const outcome = await repeat();
      assert.deepEqual([outcome.status, outcome.body.id, outcome.body.output], [200, id, { n: 1 }]);
      const state = await repeat(ASYNC);
      assert.deepEqual([state.status, state.body.id, state.body.status], [202, id, 'succeeded']);
      const stream = await h.invoke({ ...SSE, ...key });
      assert.deepEqual(
        (await frames(stream)).map(({ event }) => event),
        ['message', 'result'],
      );
      for (const { headers } of [outcome, state, stream]) assert.equal(headers.get('idempotency-replayed'), 'true');
      assert.equal((await h.invoke({ ...ASYNC, ...newKey() })).headers.has('idempotency-replayed'), false);
    });

    it('replays a failure', async () => {
      const h = get();
      const key = newKey();
      const { id } = await json(await h.invoke({ ...ASYNC, ...key }));
      await (await h.platform.attempt(id)).fail('trap', 'unreachable');
      const init = { method: 'POST', body: '{"prompt":"a"}', headers: { ...JSON_TYPE, ...key } };
      const again = await h.ask('/v1/functions/echo/invocations', init);
      h.refused(again, 'trap');
      assert.deepEqual([again.body.invocation, again.headers.get('idempotency-replayed')], [id, 'true']);
    });

    it('belongs to one function and one body', async () => {
      const h = get();
      const key = newKey();
      await h.platform.register({ name: 'other' });
      const post = (name: string, body: string) =>
        h.ask(`/v1/functions/${name}/invocations`, {
          method: 'POST',
          body,
          headers: { ...JSON_TYPE, ...ASYNC, ...key },
        });
      assert.equal((await post('echo', '{"prompt":"a"}')).status, 202);
      h.refused(await post('echo', '{"prompt":"b"}'), 'idempotency-key-reused', 'idempotency-key');
      h.refused(await post('other', '{"prompt":"a"}'), 'idempotency-key-reused', 'idempotency-key');
    });

    it('makes one invocation of concurrent requests', async () => {
      const h = get();
      const key = newKey();
      const answers = await Promise.all(Array.from({ length: 5 }, () => h.invoke({ ...ASYNC, ...key })));
      assert.deepEqual(answers.map(({ status }) => status).sort(), [202, 409, 409, 409, 409]);
      const bodies = await Promise.all(answers.map(json));
      assert.equal(new Set(bodies.map((body) => body.invocation ?? body.id)).size, 1);
    });
  });
}
