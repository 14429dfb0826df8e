import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import Anthropic, { APIError, AuthenticationError, InternalServerError, RateLimitError } from '@anthropic-ai/sdk';
import { INVOCATION_QUEUE } from '#scheduler/keys.ts';
import { startWorker } from '../../testing/miniflare.ts';
import { type Attempt, GatewayPlatform } from '../../testing/platform.ts';

const FUNCTION = 'anthropic-messages';
const MAX_WAITING = 2;
const REQUEST = { model: 'tiny', max_tokens: 8, messages: [{ role: 'user' as const, content: 'Hi' }] };
const STREAMED = { ...REQUEST, stream: true };
const MESSAGE = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'tiny',
  content: [],
  stop_reason: 'end_turn',
};

let platform: GatewayPlatform;
let worker: Awaited<ReturnType<typeof startWorker>>;
const seenIds = new Set<string>();

before(async () => {
  platform = await GatewayPlatform.start({ serve: { heartbeatMs: 40 } });
  await platform.scheduler.quotas.setDefaults({ 'waiting-invocations': MAX_WAITING });
  const { main: _, ...manifest } = JSON.parse(await readFile(`functions/${FUNCTION}/pie.json`, 'utf8'));
  await platform.register(manifest);
  worker = await startWorker(platform.url);
});
after(async () => {
  await worker.stop();
  await platform.stop();
});

async function nextInvocation(): Promise<string> {
  const id = await platform.submitted(FUNCTION, seenIds);
  seenIds.add(id);
  return id;
}

async function beginNext(): Promise<Attempt> {
  const attempt = await platform.attempt(await nextInvocation());
  await attempt.start();
  return attempt;
}

for (const [where, url] of [
  ['on Node', () => platform.url],
  ['in workerd', () => worker.url],
] as const) {
  describe(`the routes of Anthropic's API ${where}`, () => {
    const client = (apiKey = platform.apiKey) => new Anthropic({ baseURL: url(), apiKey, maxRetries: 0 });
    const send = (
      body: object | string,
      headers: Record<string, string> = {},
      path = '/v1/messages',
      method = 'POST',
    ) =>
      fetch(`${url()}${path}`, {
        method,
        headers: { 'x-api-key': platform.apiKey, 'content-type': 'application/json', ...headers },
        ...(method === 'POST' && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      });

    /** Checks a refusal, and returns its message. */
    async function refused(answer: Response, status: number, type: string, code: string): Promise<string> {
      const { error, request_id, ...body } = (await answer.json()) as Record<string, never> & {
        readonly error: { readonly type: string; readonly message: string; readonly details: Record<string, string> };
        readonly request_id: string;
      };
      assert.deepEqual([answer.status, error.type, error.details.error_code], [status, type, code], error.message);
      assert.deepEqual(body, { type: 'error' });
      assert.ok(error.message !== '' && error.details.hint !== '');
      assert.equal(answer.headers.get('content-type'), 'application/json');
      assert.equal(answer.headers.get('request-id'), request_id);
      return error.message;
    }

    it('refuse in the form of that API', async () => {
      await refused(await send(REQUEST, { 'x-api-key': 'pie_wrong' }), 401, 'authentication_error', 'unauthorized');
      const spaced = await send(REQUEST, { 'x-api-key': 'not a key' });
      assert.match(await refused(spaced, 401, 'authentication_error', 'unauthorized'), /x-api-key/);
      const reading = await platform.key(['deploy']);
      await refused(await send(REQUEST, { 'x-api-key': reading }), 403, 'permission_error', 'forbidden');
      const unknown = { ...REQUEST, model: 'nothing' };
      await refused(await send(unknown), 404, 'not_found_error', 'unknown-model');
      await refused(await send({}, {}, '/v1/messages/batches'), 404, 'not_found_error', 'not-found');
      const got = await send({}, {}, '/v1/messages', 'GET');
      await refused(got, 405, 'invalid_request_error', 'method-not-allowed');
      await refused(await send('{"model"'), 400, 'invalid_request_error', 'malformed-json');
      const long = await send({ ...REQUEST, system: 'x'.repeat(5 << 20) });
      await refused(long, 413, 'request_too_large', 'body-too-large');
      const plain = await send(REQUEST, { 'content-type': 'text/plain' });
      await refused(plain, 415, 'invalid_request_error', 'unsupported-media-type');
      const wrong = await send({ ...REQUEST, messages: [{ role: 'user', content: [{ text: 'Hi' }] }] });
      assert.match(await refused(wrong, 400, 'invalid_request_error', 'invalid-parameter'), /^messages\[0\]\.content/);
      for (const name of ['__proto__', 'constructor']) {
        const inherited = await send(JSON.stringify(REQUEST).replace('{', `{"${name}":1,`));
        assert.match(await refused(inherited, 400, 'invalid_request_error', 'invalid-parameter'), new RegExp(name));
      }
      const counted = await send({ model: 'nothing', messages: [] }, {}, '/v1/messages/count_tokens/');
      await refused(counted, 404, 'not_found_error', 'unknown-model');
    });

    it('take the key from either header, and prefer the bearer key', async () => {
      for (const headers of [{}, { 'x-api-key': 'another', authorization: `Bearer ${platform.apiKey}` }] as Record<
        string,
        string
      >[]) {
        const asked = send(REQUEST, headers);
        await (await beginNext()).succeed(MESSAGE);
        const answer = await asked;
        assert.deepEqual([answer.status, await answer.json()], [200, MESSAGE]);
        assert.equal(answer.headers.get('request-id'), answer.headers.get('x-request-id'));
      }
      const wrongBearer = await send(REQUEST, { authorization: 'Bearer another' });
      await refused(wrongBearer, 401, 'authentication_error', 'unauthorized');
      const models = await fetch(`${url()}/v1/models`, { headers: { 'x-api-key': platform.apiKey } });
      assert.equal(models.status, 200);
    });

    it('stream named events without numbers, and end with an error event', async () => {
      const asked = send(STREAMED);
      const attempt = await beginNext();
      await attempt.say('{"type":"message_start","message":{}}');
      const answer = await asked;
      assert.match(answer.headers.get('content-type') ?? '', /^text\/event-stream/);
      await attempt.say('{"type":"message_stop"}');
      await attempt.succeed(null);
      const text = (await answer.text()).replaceAll(': heartbeat\n\n', '');
      assert.equal(
        text,
        'event: message_start\ndata: {"type":"message_start","message":{}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
      );
      const failing = client().messages.create({ ...REQUEST, stream: true });
      const second = await beginNext();
      await second.say('{"type":"message_start","message":{}}');
      const stream = await failing;
      await second.fail('device-lost', 'the card fell out');
      await assert.rejects(Array.fromAsync(stream), (error) => {
        assert.ok(error instanceof APIError, String(error));
        assert.deepEqual([error.type, error.errorCode], ['overloaded_error', 'device-lost']);
        assert.match(error.apiMessage ?? '', /the card fell out/);
        return true;
      });
    });

    it('answer a failed function and a full queue with the classes of the client', async () => {
      for (const [code, type] of [
        ['unavailable', 'overloaded_error'],
        ['trap', 'api_error'],
        ['deadline-exceeded', 'timeout_error'],
      ] as const) {
        const asked = client().messages.create(REQUEST);
        const rejected = assert.rejects(asked, (error) => {
          assert.ok(error instanceof APIError, String(error));
          assert.equal(error instanceof InternalServerError, code !== 'trap');
          assert.deepEqual([error.type, error.errorCode], [type, code]);
          return true;
        });
        await (await beginNext()).fail(code, 'it failed');
        await rejected;
      }
      const waiting = Array.from({ length: MAX_WAITING }, () => client().messages.create(REQUEST));
      const ids: string[] = [];
      while (ids.length < MAX_WAITING) ids.push(await nextInvocation());
      await assert.rejects(client().messages.create(REQUEST), (error) => {
        assert.ok(error instanceof RateLimitError, String(error));
        assert.equal(error.type, 'rate_limit_error');
        assert.ok(Number(error.headers.get('retry-after')) > 0);
        return true;
      });
      for (const id of ids) await (await platform.attempt(id)).succeed(MESSAGE);
      await Promise.all(waiting);
      await assert.rejects(client('pie_wrong').messages.create(REQUEST), AuthenticationError);
    });

    it("give the function the request without nulls, but keep those of a call's input", async () => {
      const call = { type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: null } };
      const messages = [...REQUEST.messages, { role: 'assistant', content: [{ ...call, cache_control: null }] }];
      const inputOf = async (path: string, body: object, result: object) => {
        const asked = send(body, { 'anthropic-version': '2023-06-01', 'anthropic-beta': 'x-2025' }, path);
        const attempt = await beginNext();
        const { store } = platform.scheduler;
        const key = `${store.keys.bull}:${INVOCATION_QUEUE}:${attempt.id}`;
        const job = await store.call((redis) => redis.hget(key, 'data'));
        await attempt.succeed(result);
        assert.deepEqual(await (await asked).json(), result);
        return JSON.parse(JSON.parse(job ?? '').input);
      };
      const cleaned = { ...REQUEST, messages: [...REQUEST.messages, { role: 'assistant', content: [call] }] };
      assert.deepEqual(await inputOf('/v1/messages', { ...REQUEST, messages, system: null }, MESSAGE), cleaned);
      // `stream` does not turn the count into a stream.
      const count = STREAMED;
      assert.deepEqual(await inputOf('/v1/messages/count_tokens', count, { input_tokens: 3 }), {
        ...count,
        count_tokens: true,
      });
    });
  });
}
