import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import OpenAI, {
  APIError,
  APIUserAbortError,
  BadRequestError,
  InternalServerError,
  NotFoundError,
  RateLimitError,
} from 'openai';
import { INVOCATION_QUEUE } from '#scheduler/keys.ts';
import { MachineLease } from '#scheduler/machines/lease.ts';
import { openScheduler } from '#scheduler/scheduler.ts';
import { silentLog } from '#scheduler/testing/log.ts';
import { startWorker } from '../../testing/miniflare.ts';
import { Attempt, GatewayPlatform } from '../../testing/platform.ts';

const MAX_WAITING = 3;
const HEARTBEAT_MS = 40;
const DEADLINE_MS = 30_000;
const REQUEST = { model: 'tiny', messages: [{ role: 'user' as const, content: 'Hi' }] };
const STREAMED = { ...REQUEST, stream: true as const };

const chunk = (content: string): string =>
  JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', choices: [{ index: 0, delta: { content } }] });

async function manifestOf(name: string): Promise<{ name: string }> {
  const { main: _, ...manifest } = JSON.parse(await readFile(`functions/${name}/pie.json`, 'utf8'));
  return manifest;
}

interface ShownFunction {
  readonly name: string;
  readonly platform?: true;
}
/** Answers of the function routes: one function, or a list as `functions` or `versions`. */
type FunctionsAnswer = ShownFunction & { readonly functions?: ShownFunction[]; readonly versions?: ShownFunction[] };

let platform: GatewayPlatform;
let worker: Awaited<ReturnType<typeof startWorker>>;
const seenIds = new Set<string>();

before(async () => {
  platform = await GatewayPlatform.start({
    control: { modelAliases: new Map([['gpt-4o-mini', 'tiny']]) },
    serve: { heartbeatMs: HEARTBEAT_MS },
  });
  await platform.scheduler.quotas.setDefaults({ 'waiting-invocations': MAX_WAITING });
  for (const name of ['openai-chat', 'openai-completions', 'openai-responses']) {
    await platform.register(await manifestOf(name));
  }
  worker = await startWorker(platform.url);
});
after(async () => {
  await worker.stop();
  await platform.stop();
});

const headersOf = ({ headers }: Response, names: readonly string[]) => names.map((name) => headers.get(name));
const invocationHeadersOf = (answer: Response) => headersOf(answer, ['content-location', 'idempotency-replayed']);

/** Begins an attempt of the next invocation of a function, as a runtime does. */
async function beginNext(name = 'openai-chat'): Promise<Attempt> {
  const attempt = await platform.attempt(await nextInvocation(name));
  await attempt.start();
  return attempt;
}

async function nextInvocation(name: string): Promise<string> {
  const id = await platform.submitted(name, seenIds);
  seenIds.add(id);
  return id;
}

for (const [where, url] of [
  ['on Node', () => platform.url],
  ['in workerd', () => worker.url],
] as const) {
  describe(`the OpenAI-compatible routes ${where}`, () => {
    const client = (apiKey = platform.apiKey) => new OpenAI({ baseURL: `${url()}/v1`, apiKey, maxRetries: 0 });
    const raw = (
      body: object | string,
      headers: Record<string, string> = {},
      signal: AbortSignal | null = null,
    ): Promise<Response> =>
      fetch(`${url()}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${platform.apiKey}`, 'content-type': 'application/json', ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
        signal,
      });

    it('stream the messages of the function between heartbeats and end with [DONE]', async () => {
      const streaming = client().chat.completions.create(STREAMED).withResponse();
      const attempt = await beginNext();
      await attempt.say(chunk('a'));
      const { data, request_id } = await streaming;
      const writing = (async () => {
        await sleep(4 * HEARTBEAT_MS);
        await attempt.say(chunk('b'));
        await attempt.succeed(null);
      })();
      const texts: unknown[] = [];
      for await (const { choices } of data) texts.push(choices[0]?.delta.content);
      await writing;
      assert.deepEqual(texts, ['a', 'b']);
      assert.match(request_id ?? '', /^req_/);

      const asked = raw(STREAMED);
      const second = await beginNext();
      await second.say(chunk('a'));
      await second.succeed(null);
      const response = await asked;
      assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
      const text = (await response.text()).replaceAll(': heartbeat\n\n', '');
      assert.equal(text, `data: ${chunk('a')}\n\ndata: [DONE]\n\n`);
    });

    it('name and number the events of /v1/responses, and end without [DONE]', async () => {
      for (const numbered of [false, true]) {
        const asked = client().responses.create({ model: 'tiny', input: 'Hi', stream: true }).asResponse();
        const attempt = await beginNext('openai-responses');
        const types = ['response.created', 'response.in_progress', 'response.completed'];
        const dataOf = (type: string, more: object) => JSON.stringify({ type, ...more, response: { error: null } });
        // A tenant's own function may number its events itself.
        for (const [i, type] of types.entries())
          await attempt.say(dataOf(type, numbered ? { sequence_number: i } : {}));
        await attempt.succeed(null);
        const frames = types.map((type, i) => `event: ${type}\ndata: ${dataOf(type, { sequence_number: i })}\n\n`);
        assert.equal((await (await asked).text()).replaceAll(': heartbeat\n\n', ''), frames.join(''));
      }
    });

    // On Node, the status waits for the first message for ten times as long.
    if (where === 'in workerd')
      it('tell in a comment what constraints a late answer leaves out', async () => {
        const streaming = client().chat.completions.create(STREAMED).asResponse();
        const attempt = await beginNext();
        // The status is sent before the function says anything.
        const response = await streaming;
        assert.equal(response.headers.get('x-pie-dropped-constraints'), null);
        await attempt.say(JSON.stringify({ x_pie_dropped_constraints: ['weather#/properties/odd/pattern'] }));
        await attempt.say(chunk('a'));
        await attempt.succeed(null);
        const comment = ': x-pie-dropped-constraints: weather#/properties/odd/pattern\n\n';
        const text = (await response.text()).replaceAll(': heartbeat\n\n', '');
        assert.equal(text, `${comment}data: ${chunk('a')}\n\ndata: [DONE]\n\n`);
      });

    it('keep a message with line breaks in one frame', async () => {
      const asked = raw(STREAMED);
      const attempt = await beginNext();
      await attempt.say('{\r\n\n"choices": []\n}');
      await attempt.succeed(null);
      const text = (await (await asked).text()).replaceAll(': heartbeat\n\n', '');
      assert.equal(text, 'data: {\ndata: \ndata: "choices": []\ndata: }\n\ndata: [DONE]\n\n');
    });

    it('report a failure within a stream as a frame, without [DONE]', async () => {
      const asked = raw(STREAMED);
      const attempt = await beginNext();
      await attempt.say(chunk('a'));
      await attempt.fail('device-lost', 'The device is gone.');
      const text = await (await asked).text();
      assert.match(
        text,
        /data: \{"error":\{"message":"The device is gone\.","type":"server_error","code":"device-lost"\}\}\n\n$/,
      );

      const streaming = client().chat.completions.create(STREAMED);
      const again = await beginNext();
      await again.say(chunk('a'));
      const stream = await streaming;
      await again.fail('device-lost', 'The device is gone.');
      await assert.rejects(
        async () => {
          for await (const _ of stream);
        },
        (error) => error instanceof APIError && error.code === 'device-lost',
      );
    });

    it('end a stream with an error when an event whose text was sent is lost', async () => {
      const asked = raw(STREAMED);
      const attempt = await beginNext();
      await attempt.append({ event: 'gap', data: { after: 0 } });
      await attempt.say(chunk('a'));
      await attempt.append({ event: 'gap', data: { after: 1 } });
      const text = (await (await asked).text()).replaceAll(': heartbeat\n\n', '');
      assert.match(text, /^data: .*"a".*\n\ndata: \{"error":\{.*"code":"runtime-lost"\}\}\n\n$/s);
      await attempt.fail('cancelled', 'The client left.');
    });

    it('report a failure before the first frame with its HTTP status, streamed or not', async () => {
      for (const request of [STREAMED, REQUEST]) {
        const failing = client().chat.completions.create(request);
        await (await beginNext()).fail('device-lost', 'The device is gone.');
        await assert.rejects(failing, (error) => error instanceof InternalServerError && error.status === 503);
        const refused = client().chat.completions.create(request);
        await (await beginNext()).succeed({ error: { message: 'No.', param: 'n', code: 'invalid_value' } });
        await assert.rejects(refused, (error) => {
          assert.ok(error instanceof BadRequestError, String(error));
          assert.deepEqual([error.param, error.code], ['n', 'invalid-parameter']);
          return true;
        });
      }
    });

    it('cancel the invocation when its client leaves, before or within the stream', async () => {
      // `leaving.test.ts` has the clients that wait for a whole answer.
      const leave = async (begin: (attempt: Attempt) => Promise<void>) => {
        const leaving = new AbortController();
        const asking = client().chat.completions.create(STREAMED, { signal: leaving.signal });
        // The request may end before or after its answer.
        const answered = asking.catch((error: unknown) => assert.ok(error instanceof APIUserAbortError));
        const attempt = await beginNext();
        const { asked } = await platform.cancelOf(attempt.id);
        await begin(attempt);
        leaving.abort();
        await asked;
        await answered;
        await attempt.fail('cancelled', 'The client left.');
      };
      await leave(async () => undefined);
      await leave(async (attempt) => {
        await attempt.say(chunk('a'));
        await sleep(50);
      });
    });

    it('refuse with 429 and Retry-After when too many invocations of the tenant wait', async () => {
      const waiting = Array.from({ length: MAX_WAITING }, () => client().chat.completions.create(REQUEST));
      const ids: string[] = [];
      while (ids.length < MAX_WAITING) ids.push(await nextInvocation('openai-chat'));
      await assert.rejects(client().chat.completions.create(REQUEST), (error) => {
        assert.ok(error instanceof RateLimitError, String(error));
        assert.equal(error.code, 'quota-concurrency');
        assert.equal(error.headers.get('x-should-retry'), 'true');
        assert.ok(Number(error.headers.get('retry-after-ms')) > 0 && Number(error.headers.get('retry-after')) > 0);
        return true;
      });
      for (const id of ids) await (await platform.attempt(id)).succeed({ id: 'chatcmpl-1', choices: [] });
      await Promise.all(waiting);
      const served = client().chat.completions.create(REQUEST);
      await (await beginNext()).succeed({ id: 'chatcmpl-2', choices: [] });
      assert.equal((await served).id, 'chatcmpl-2');
    });

    it('let a client repeat a request that failed with `unavailable`, unless it has an idempotency key', async () => {
      for (const request of [REQUEST, STREAMED]) {
        for (const [headers, retries] of [
          [{}, 'true'],
          [{ 'idempotency-key': crypto.randomUUID() }, 'false'],
        ] as const) {
          const asked = raw(request, headers);
          await (await beginNext()).fail('unavailable', 'too many grammars wait', { retryAfterMs: 2500 });
          const refused = await asked;
          const { error } = (await refused.json()) as { error: { type: string; code: string } };
          assert.deepEqual([refused.status, error.type, error.code], [503, 'server_error', 'unavailable']);
          const retryHeaders = ['x-should-retry', 'retry-after', 'retry-after-ms'];
          assert.deepEqual(headersOf(refused, retryHeaders), [retries, '3', '2500']);
        }
      }
    });

    it("tell a client not to repeat a request to a tenant's own function, which may have other effects", async () => {
      const tenant = `unavailable-${where.replaceAll(' ', '-').toLowerCase()}`;
      const authorization = `Bearer ${await platform.key(['invoke'], tenant)}`;
      const seen = new Set<string>();
      const retriesOf = async (request: object) => {
        const asked = raw(request, { authorization });
        const latest = async () => (await platform.scheduler.invocations.recent(tenant, 'openai-chat'))[0]?.id;
        let id = await latest();
        for (; id === undefined || seen.has(id); id = await latest()) await sleep(5);
        seen.add(id);
        const attempt = await platform.attempt(id);
        await attempt.start();
        await attempt.fail('unavailable', 'the mail server cannot be reached');
        return (await asked).headers.get('x-should-retry');
      };
      for (const request of [REQUEST, STREAMED]) assert.equal(await retriesOf(request), 'true');
      await platform.register(await manifestOf('openai-chat'), tenant);
      for (const request of [REQUEST, STREAMED]) assert.equal(await retriesOf(request), 'false');
    });

    it('take the affinity from the header, or else from prompt_cache_key', async () => {
      const affinityOf = async (parameters: object, headers: Record<string, string> = {}) => {
        const answer = raw({ ...REQUEST, ...parameters }, headers);
        const attempt = await beginNext();
        const { redis, keys } = platform.scheduler.store;
        const affinity = await redis.hget(keys.invocation(attempt.id), 'affinity');
        await attempt.succeed({ id: 'chatcmpl-6' });
        assert.equal((await answer).status, 200);
        return affinity;
      };
      const [one, same, another] = [
        { prompt_cache_key: 'ü 1' },
        { prompt_cache_key: 'ü 1' },
        { prompt_cache_key: '2' },
      ];
      const key = await affinityOf(one);
      assert.match(key ?? '', /^[0-9a-f]{40}$/);
      assert.equal(await affinityOf(same), key);
      assert.notEqual(await affinityOf(another), key);
      const header = { 'x-session-affinity': 's' };
      assert.equal(await affinityOf(one, header), await affinityOf({}, header));
      for (const none of [{}, { prompt_cache_key: '' }, { prompt_cache_key: null }])
        assert.equal(await affinityOf(none), null);
      for (const [parameters, headers, param] of [
        [{ prompt_cache_key: 'x'.repeat(257) }, {}, 'prompt_cache_key'],
        [{}, { 'x-session-affinity': 'x'.repeat(257) }, 'x-session-affinity'],
      ] as const) {
        const answer = await raw({ ...REQUEST, ...parameters }, headers);
        const { error } = (await answer.json()) as { error: { code: string; param: string } };
        assert.deepEqual([answer.status, error.code, error.param], [400, 'invalid-parameter', param]);
      }
    });

    it('attach a repeated request to the first one, and replay the answer after its end', async () => {
      const key = { 'idempotency-key': crypto.randomUUID() };
      const first = raw(REQUEST, key);
      const attempt = await beginNext();
      const joined = raw(REQUEST, key);
      await sleep(20); // The gateway gets the second request before the end.
      await attempt.succeed({ id: 'chatcmpl-5' });
      for (const [asked, replayed] of [
        [first, null],
        [joined, 'true'],
        [raw(REQUEST, key), 'true'],
      ] as const) {
        const answer = await asked;
        assert.deepEqual([answer.status, await answer.json()], [200, { id: 'chatcmpl-5' }]);
        assert.deepEqual(invocationHeadersOf(answer), [`/v1/invocations/${attempt.id}`, replayed]);
      }
      const other = await raw({ ...REQUEST, n: 2 }, key);
      const { error } = (await other.json()) as { error: { code: string } };
      assert.deepEqual([other.status, error.code], [422, 'idempotency-key-reused']);
    });

    it('replay a stream from its beginning to a client that repeats its idempotency key', async () => {
      const key = { 'idempotency-key': crypto.randomUUID() };
      const leave = new AbortController();
      const asking = raw(STREAMED, key, leave.signal);
      const attempt = await beginNext();
      await attempt.say('{"n":1}');
      await (await asking).body?.getReader().read();
      leave.abort();
      await sleep(100); // The gateway notices that the client has left.
      const again = raw(STREAMED, key);
      await attempt.say('{"n":2}');
      await attempt.succeed({});
      const text = (await (await again).text()).replaceAll(': heartbeat\n\n', '');
      assert.equal(text, 'data: {"n":1}\n\ndata: {"n":2}\n\ndata: [DONE]\n\n');
      assert.deepEqual(invocationHeadersOf(await again), [`/v1/invocations/${attempt.id}`, 'true']);
      const { status, cancelReason } = (await platform.scheduler.invocations.get(attempt.id)) ?? {};
      assert.deepEqual([status, cancelReason], ['succeeded', null]);
    });

    it('refuse to replay a stream whose events have expired', async () => {
      const retention = { eventsMs: 1000, resultsMs: 60_000 };
      const shortKeeping = openScheduler({ log: silentLog, connect: platform.redis.connect, retention });
      try {
        const key = { 'idempotency-key': crypto.randomUUID() };
        const asking = raw(STREAMED, key);
        const { id, epoch } = await platform.attempt(await nextInvocation('openai-chat'));
        const attempt = new Attempt(shortKeeping, id, epoch, 1);
        await attempt.start();
        await attempt.say(chunk('a'));
        const first = await asking;
        await attempt.succeed(null);
        await first.text();
        const { store } = shortKeeping;
        const isKept = () => store.call((redis) => redis.exists(store.keys.events(id)));
        for (const until = Date.now() + DEADLINE_MS; (await isKept()) === 1; await sleep(50))
          assert.ok(Date.now() < until, 'the events are kept');
        const again = await raw(STREAMED, key);
        const { error } = (await again.json()) as { error: { code: string } };
        assert.deepEqual([again.status, error.code], [404, 'unknown-invocation']);
      } finally {
        await shortKeeping.close();
      }
    });

    it('refuse a body that is nested too deep', async () => {
      const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
      const body = JSON.stringify({ ...REQUEST, chat_template_kwargs: { a: ['*'] } }).replace('"*"', deep);
      const response = await raw(body);
      const { error, hint } = (await response.json()) as { error: { code: string; message: string }; hint: string };
      assert.deepEqual([response.status, error.code], [400, 'invalid-parameter']);
      assert.match(error.message, /nests lists and objects more than 256 deep/);
      assert.match(hint, /^Send less at once/);
    });

    it('refuse a body that is not an object, with a hint that names no parameter', async () => {
      const response = await raw('[]');
      const { error, hint } = (await response.json()) as { error: { code: string; param?: string }; hint: string };
      assert.deepEqual([response.status, error.code, error.param], [400, 'invalid-parameter', undefined]);
      assert.match(hint, /^Send one JSON object/);
    });

    it('refuse a body whose input passes the limit', async () => {
      // The body is within the limit of 4 MiB. The input is not: it is written anew, with all 21 digits of each number.
      const numbers = `[${Array(830_000).fill('1e20').join()}]`;
      const body = JSON.stringify({ ...REQUEST, chat_template_kwargs: { a: '*' } }).replace('"*"', numbers);
      const response = await raw(body, {}, AbortSignal.timeout(DEADLINE_MS));
      const { error } = (await response.json()) as { error: { code: string } };
      assert.deepEqual([response.status, error.code], [413, 'body-too-large']);
    });

    it('take null members as absent at any depth, except in schemas and in variables of a template', async () => {
      const schema = {
        type: 'object',
        properties: { a: { enum: [null, 1] }, b: { default: null, description: null } },
      };
      const asked = raw({
        ...REQUEST,
        messages: [{ role: 'user', content: 'Hi', name: null, tool_call_id: null, tool_calls: null }],
        tools: [{ type: 'function', function: { name: 'f', description: null, parameters: schema } }],
        tool_choice: null,
        stream_options: { include_usage: null },
        response_format: { type: 'json_schema', json_schema: { name: 'n', description: null, schema, strict: null } },
        chat_template_kwargs: { thinking: null },
      });
      const id = await nextInvocation('openai-chat');
      assert.deepEqual(await platform.client().input(id), {
        ...REQUEST,
        tools: [{ type: 'function', function: { name: 'f', parameters: schema } }],
        stream_options: {},
        response_format: { type: 'json_schema', json_schema: { name: 'n', schema } },
        chat_template_kwargs: { thinking: null },
      });
      const attempt = await platform.attempt(id);
      await attempt.start();
      await attempt.succeed({ id: 'chatcmpl-1' });
      assert.deepEqual(await (await asked).json(), { id: 'chatcmpl-1' });
      const refused = (await (await raw({ ...REQUEST, messages: [{ role: null }] })).json()) as { error: object };
      assert.partialDeepStrictEqual(refused.error, {
        message: 'messages[0].role is missing.',
        param: 'messages[0].role',
      });
    });

    it('find the items and the conversation that a request refers to, among the kept responses of its tenant', async () => {
      const ask = (body: object, by = client()) => by.responses.create({ model: 'tiny', ...body });
      const inputOf = async (id: string) => (await platform.client().input(id)) as Record<string, unknown>;
      const said = (suffix: string) => ({ id: `msg_${suffix}_0`, type: 'message', role: 'assistant', content: [] });
      /** Makes a response as the function does, and returns the input that the function got. */
      const answer = async (body: object, kept: object | null = {}, more: object = {}) => {
        const asking = ask(body);
        const id = await nextInvocation('openai-responses');
        const suffix = id.slice('inv_'.length);
        const input = await inputOf(id);
        const { previous_response_id = null, input: own } = input;
        const response = {
          id: `resp_${suffix}`,
          object: 'response',
          previous_response_id,
          output: [said(suffix)],
          ...more,
        };
        const attempt = await platform.attempt(id);
        await attempt.start();
        await attempt.succeed(kept ? { response, input: own, ...kept } : response);
        assert.deepEqual(JSON.parse(JSON.stringify(await asking)), { ...response, output_text: '' });
        return { response: response.id, item: said(suffix), input };
      };
      const question = (content: string) => ({ role: 'user', content });
      const first = await answer({ input: [question('1')] });
      const second = await answer({ input: [question('2')], previous_response_id: first.response });
      assert.deepEqual(second.input.previous_items, [question('1'), first.item]);
      assert.deepEqual(second.input.input, [question('2')]);
      const third = await answer({ input: [question('3')], previous_response_id: second.response });
      assert.deepEqual(third.input.previous_items, [question('1'), first.item, question('2'), second.item]);

      const reference = (item: { id: string }) => ({ type: 'item_reference', id: item.id });
      const referring = await answer({ input: [reference(second.item), question('4'), { id: first.item.id }] });
      assert.deepEqual(referring.input.input, [second.item, question('4'), first.item]);

      const refused = async (body: object, param: string, message: RegExp, by = client()) => {
        await assert.rejects(ask(body, by), (error) => {
          assert.ok(error instanceof BadRequestError, String(error));
          assert.deepEqual([error.param, error.code], [param, 'invalid-parameter']);
          assert.match(error.message, message);
          return true;
        });
      };
      const retrieved = await client().responses.retrieve(third.response);
      assert.deepEqual([retrieved.id, retrieved.output], [third.response, [third.item]]);
      const foreign = client(await platform.key(['invoke'], 'other'));
      const referred = { input: [question('5'), reference(first.item)] };
      await refused(referred, 'input[1].id', /item_reference to "msg_.*is not kept/, foreign);
      const previous = { input: [], previous_response_id: first.response };
      await refused(previous, 'previous_response_id', /is not kept/, foreign);
      for (const [by, id] of [
        [foreign, first.response],
        [client(), 'resp_1'],
        [client(), first.item.id],
      ] as const)
        await assert.rejects(by.responses.retrieve(id), NotFoundError);
      await refused({ input: [reference({ id: 'msg_1' })] }, 'input[0].id', /no item that this platform made/);
      await refused({ input: [], previous_items: [] }, 'previous_items', /is no parameter of this API/);
      await refused({ input: [], previous_response_id: {} }, 'previous_response_id', /must be the id of a response/);
      const unstored = await answer({ input: [question('6')], store: false }, null);
      await refused({ input: [], previous_response_id: unstored.response }, 'previous_response_id', /is not kept/);
      await refused({ input: [reference(unstored.item)] }, 'input[0].id', /is not kept/);
      const long = await answer({ input: [question('7')] }, { input: undefined });
      await refused({ input: [], previous_response_id: long.response }, 'previous_response_id', /too long to be kept/);
      const other = raw(REQUEST);
      const chat = await beginNext();
      await chat.succeed({ response: { object: 'response', output: [{ id: `msg_${chat.id.slice(4)}_0` }] } });
      await other;
      await refused({ input: [reference({ id: `msg_${chat.id.slice(4)}_0` })] }, 'input[0].id', /is not kept/);
    });

    it('list the items that a kept response answers, and delete it', async () => {
      const user = (content: string) => ({ role: 'user', content });
      /** Makes a response to an input, whose output is one message. */
      const make = async (input: object[], previous: string | null, kept: object = { input }) => {
        const asking = client().responses.create({ model: 'tiny', input: [] });
        const id = await nextInvocation('openai-responses');
        const suffix = id.slice('inv_'.length);
        const output = [{ id: `msg_${suffix}_0`, type: 'message', role: 'assistant', content: [] }];
        const response = { id: `resp_${suffix}`, object: 'response', output, previous_response_id: previous };
        const attempt = await platform.attempt(id);
        await attempt.start();
        await attempt.succeed({ response, ...kept });
        await asking;
        return { id: response.id, suffix };
      };
      const first = await make([user('1'), { id: 'msg_own', type: 'message', role: 'user', content: [] }], null);
      const second = await make([{ role: 'assistant', content: '2' }, user('3')], first.id);
      const list = (id: string, query: object = {}, by = client()) => by.responses.inputItems.list(id, query);
      const idsOf = async (query: object) => {
        const { data, has_more } = await list(second.id, query);
        return [data.map(({ id }) => id), has_more];
      };
      const made = (index: number) => `in_${second.suffix}_${index}`;
      const ids = [made(0), 'msg_own', `msg_${first.suffix}_0`, made(3), made(4)];
      assert.deepEqual(await idsOf({ order: 'asc' }), [ids, false]);
      assert.deepEqual(await idsOf({}), [ids.toReversed(), false]);
      assert.deepEqual(await idsOf({ order: 'asc', limit: 2 }), [ids.slice(0, 2), true]);
      assert.deepEqual(await idsOf({ order: 'asc', limit: 3, after: 'msg_own' }), [ids.slice(2), false]);
      const pages: string[] = [];
      for await (const item of await list(second.id, { limit: 2 })) pages.push(item.id ?? '');
      assert.deepEqual(pages, ids.toReversed());
      const page = await list(second.id, { limit: 2 });
      assert.deepEqual(
        page.data.map((item) => ('content' in item ? item.content : null)),
        [[{ type: 'input_text', text: '3' }], [{ type: 'output_text', text: '2', annotations: [] }]],
      );
      const whole = await client().responses.inputItems.list(second.id, { limit: 2 }).asResponse();
      assert.partialDeepStrictEqual(await whole.json(), { object: 'list', first_id: made(4), last_id: made(3) });
      // Clients give their items the ids that they like: as cursors, these must differ.
      const same = await make(
        [1, 2, 3].map((n) => ({ ...user(`${n}`), id: 'mine' })),
        null,
      );
      const contents: unknown[] = [];
      for await (const item of await list(same.id, { limit: 1, order: 'asc' }))
        contents.push('content' in item && JSON.stringify(item.content).match(/\d/)?.[0]);
      assert.deepEqual(contents, ['1', '2', '3']);

      const refused = async (asking: Promise<unknown>, status: number, code: string, param: string) => {
        await assert.rejects(asking, (error) => {
          assert.ok(error instanceof APIError, String(error));
          assert.deepEqual([error.status, error.code, error.param], [status, code, param], error.message);
          return true;
        });
      };
      for (const [query, param] of [
        [{ limit: 0 }, 'limit'],
        [{ limit: 101 }, 'limit'],
        [{ limit: 'all' }, 'limit'],
        [{ order: 'up' }, 'order'],
        [{ after: 'msg_1' }, 'after'],
      ] as const)
        await refused(list(second.id, query), 400, 'invalid-parameter', param);
      const foreign = client(await platform.key(['invoke'], 'other'));
      const long = await make([], null, {});
      for (const [by, id] of [
        [foreign, second.id],
        [client(), 'resp_1'],
        [client(), `msg_${second.suffix}_0`],
        [client(), `resp_${'1'.repeat(300)}`],
      ] as const) {
        await refused(by.responses.retrieve(id), 404, 'unknown-response', 'response_id');
        await refused(list(id, {}, by), 404, 'unknown-response', 'response_id');
        await refused(by.responses.delete(id), 404, 'unknown-response', 'response_id');
      }
      await refused(list(long.id), 404, 'unknown-response', 'response_id');
      // The client would read no event in a response that is sent whole.
      const streamed = client().responses.retrieve(second.id, { stream: true });
      await refused(streamed, 400, 'invalid-parameter', 'stream');
      assert.equal((await client().responses.retrieve(second.id, { stream: false })).id, second.id);

      const deleted = await fetch(`${url()}/v1/responses/${first.id}`, {
        method: 'DELETE',
        headers: { authorization: `Bearer ${platform.apiKey}` },
      });
      assert.deepEqual(await deleted.json(), { id: first.id, object: 'response', deleted: true });
      await refused(client().responses.retrieve(first.id), 404, 'unknown-response', 'response_id');
      await refused(client().responses.delete(first.id), 404, 'unknown-response', 'response_id');
      await refused(list(second.id), 404, 'unknown-response', 'response_id');
      const referring = { input: [{ type: 'item_reference', id: `msg_${first.suffix}_0` }] };
      await refused(
        client().responses.create({ model: 'tiny', ...(referring as object) }),
        400,
        'invalid-parameter',
        'input[0].id',
      );
      assert.equal((await client().responses.retrieve(second.id)).id, second.id);
    });

    it('bound what kept responses cost, since a tenant may serve the route with a function of its own', async () => {
      /** Makes a response with these members, and returns the end of its id. */
      const make = async (membersOf: (suffix: string) => object) => {
        const asking = client().responses.create({ model: 'tiny', input: [] });
        const id = await nextInvocation('openai-responses');
        const suffix = id.slice('inv_'.length);
        const attempt = await platform.attempt(id);
        await attempt.start();
        const response = { id: `resp_${suffix}`, object: 'response', output: [], ...membersOf(suffix) };
        await attempt.succeed({ response, input: [] });
        await asking;
        return suffix;
      };
      const ask = (body: object) => client().responses.create({ model: 'tiny', ...body });
      const manyNames = Object.fromEntries(Array.from({ length: 60_000 }, (_, i) => [`${i}n`, 0]));
      const costly = await make(() => ({ output: [manyNames] }));
      await assert.rejects(client().responses.retrieve(`resp_${costly}`), NotFoundError);
      const circular = await make((suffix) => ({ previous_response_id: `resp_${suffix}` }));
      await assert.rejects(ask({ input: [], previous_response_id: `resp_${circular}` }), /precedes itself/);
      const long = await make((suffix) => ({ output: [{ id: `msg_${suffix}_0`, text: 'x'.repeat(60_000) }] }));
      const references = (count: number) => Array.from({ length: count }, () => ({ id: `msg_${long}_0` }));
      await assert.rejects(ask({ input: references(5000) }), (error) => {
        assert.ok(error instanceof APIError);
        assert.deepEqual([error.status, error.code], [413, 'body-too-large']);
        return true;
      });
      const asking = ask({ input: references(3) });
      const attempt = await beginNext('openai-responses');
      assert.equal(((await platform.client().input(attempt.id)) as { input: unknown[] }).input.length, 3);
      await attempt.succeed({ id: 'resp_1' });
      await asking;
    });

    it('accept the aliases of models', async () => {
      const { id, ...model } = await client().models.retrieve('gpt-4o-mini');
      assert.deepEqual([id, { ...model }], ['gpt-4o-mini', { ...model, object: 'model', aliasOf: 'tiny' }]);
      const asking = client().chat.completions.create({ ...REQUEST, model: 'gpt-4o-mini', user: null as never });
      const attempt = await beginNext();
      const { store } = platform.scheduler;
      const job = await store.call((redis) =>
        redis.hget(`${store.keys.bull}:${INVOCATION_QUEUE}:${attempt.id}`, 'data'),
      );
      assert.deepEqual(JSON.parse(JSON.parse(job ?? '').input), REQUEST);
      await attempt.succeed({ id: 'chatcmpl-3' });
      await asking;
    });

    it('wait while no runtime has reported its models, as during a restart', async () => {
      const { models = [] } = (await platform.scheduler.runtimes.alive())[0] ?? {};
      await platform.lease.describe({ models: [] });
      const asked = raw(REQUEST);
      try {
        assert.equal(await Promise.race([asked, sleep(300, 'nothing')]), 'nothing');
      } finally {
        await platform.lease.describe({ models });
      }
      await (await beginNext()).succeed({ id: 'chatcmpl-4' });
      assert.equal((await asked).status, 200);
    });

    it("serve another tenant with the platform's function, or with the tenant's own", async () => {
      const tenant = `other-${where.replaceAll(' ', '-').toLowerCase()}`;
      const tenantClient = client(await platform.key(['invoke'], tenant));
      const asking = tenantClient.chat.completions.create(REQUEST);
      let [record] = await platform.scheduler.invocations.recent(tenant, 'openai-chat');
      for (; record === undefined; [record] = await platform.scheduler.invocations.recent(tenant, 'openai-chat'))
        await sleep(5);
      await (await platform.attempt(record.id)).succeed({ id: 'chatcmpl-4' });
      await asking;
      const platformFlags = async (route: string) => {
        const headers = { authorization: `Bearer ${tenantClient.apiKey}` };
        const answer = (await (await fetch(`${url()}/v1/functions${route}`, { headers })).json()) as FunctionsAnswer;
        const all = answer.functions ?? answer.versions ?? [answer];
        return all.filter(({ name }) => name === 'openai-chat').map(({ platform: flag = false }) => flag);
      };
      for (const route of ['', '/openai-chat', '/openai-chat/versions'])
        assert.deepEqual(await platformFlags(route), [true], route);
      await platform.register({ name: 'openai-chat', input: { type: 'object', required: ['secret'] } }, tenant);
      assert.deepEqual(await platformFlags(''), [false]);
      assert.deepEqual(await platformFlags('/openai-chat/versions'), [false, true]);
      await assert.rejects(tenantClient.chat.completions.create(REQUEST), (error) => {
        assert.ok(error instanceof BadRequestError, String(error));
        assert.equal(error.param, 'secret');
        return true;
      });
    });

    it('tell which models are unproven, by the latest proof of a running machine', async () => {
      const store = platform.scheduler.store;
      const claim = (name: string) => {
        const machine = { name, roles: ['gateway'] as const, host: 'h', pid: 1, version: '1', gpuHosts: [] };
        return MachineLease.claim(store, machine, { log: silentLog, onTaken: assert.fail, force: true });
      };
      const unproven = async () => {
        const { data } = await client().models.list();
        const listed = data.map((model) => model as typeof model & { unproven?: string });
        const named = (await client().models.retrieve('tiny')) as { unproven?: string };
        assert.equal(named.unproven, listed.find(({ id }) => id === 'tiny')?.unproven);
        return named.unproven;
      };
      const east = await claim('east');
      const west = await claim('west');
      assert.equal(await unproven(), undefined);
      await east.describe({ proofs: { tiny: { at: 2, fault: 'no answer' }, other: { at: 9, fault: 'none' } } });
      assert.equal(await unproven(), 'no answer');
      await west.describe({ proofs: { tiny: { at: 1, fault: null } } });
      assert.equal(await unproven(), 'no answer', 'an earlier proof does not count');
      await west.describe({ proofs: { tiny: { at: 3, fault: null } } });
      assert.equal(await unproven(), undefined);
      await west.release();
      assert.equal(await unproven(), 'no answer', 'the proofs of a machine that has stopped do not count');
      await east.release();
    });

    it('are part of the API documentation', async () => {
      const { paths } = (await (await fetch(`${url()}/openapi.json`)).json()) as { paths: Record<string, object> };
      for (const path of ['/v1/models/{id}', '/v1/completions', '/v1/chat/completions', '/v1/responses'])
        assert.ok(path in paths, path);
    });
  });
}
