import assert from 'node:assert/strict';
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import readline from 'node:readline';
import { PassThrough, type Readable, type Writable } from 'node:stream';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { SchemaValidator } from '#scheduler/functions/schema/validator.ts';
import { GatewayPlatform } from '../../testing/platform.ts';
import { EXIT } from '../failure.ts';
import { Connection } from './connection.ts';

const BIN = fileURLToPath(new URL('../bin.js', import.meta.url));
const STORY = { type: 'object', properties: { prompt: { type: 'string' } }, required: ['prompt'] } as const;
/** Nested lists, whose leaves match the schema under `$defs.leaf` or the one under `not`. */
const TREE = {
  type: 'array',
  items: { anyOf: [{ $ref: '#' }, { $ref: '#/$defs/leaf' }, { $ref: '#/not' }] },
  not: { type: 'number' },
  $defs: { leaf: { type: 'string' } },
} as const;

interface Message {
  readonly id?: number | string | null;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  // biome-ignore lint/suspicious/noExplicitAny: results differ by request
  readonly result?: any;
  readonly error?: { readonly code: number; readonly message: string };
}

describe('pie mcp', () => {
  let platform: GatewayPlatform;
  before(async () => {
    platform = await GatewayPlatform.start();
    await platform.register({ name: 'story', description: 'Tells a story', input: STORY });
    await platform.register({ name: 'shout', input: { type: 'string' } });
    await platform.register({ name: 'free' });
    await platform.register({ name: 'tree', input: TREE });
    await platform.register({ name: 'openai-chat' });
  });
  after(() => platform.stop());

  const start = (...args: string[]) => new Server(platform, args);
  const seenIds = new Set<string>();
  /** The id of the invocation that a call makes. */
  const submitted = async (name: string): Promise<string> => {
    const id = await platform.submitted(name, seenIds);
    seenIds.add(id);
    return id;
  };

  it('agrees on a revision, lists functions with their schemas, and refuses what it does not know', async () => {
    await using server = start();
    for (const [asked, agreed] of [
      ['2025-06-18', '2025-06-18'],
      // The server lacks 2025-03-26, which would require batches, and offers its newest earlier revision.
      ['2025-03-26', '2024-11-05'],
      ['2099-01-01', '2025-06-18'],
    ]) {
      const { result } = await server.ask('initialize', {
        protocolVersion: asked,
        capabilities: {},
        clientInfo: { name: 't', version: '1' },
      });
      assert.deepEqual(
        [result.protocolVersion, result.capabilities, result.serverInfo.name],
        [agreed, { tools: {} }, 'pie'],
      );
    }
    server.tell({ jsonrpc: '2.0', method: 'notifications/initialized' });
    assert.deepEqual((await server.ask('ping')).result, {});
    const { tools, nextCursor } = (await server.ask('tools/list')).result;
    assert.equal(nextCursor, undefined);
    assert.deepEqual(tools, [
      { name: 'free', description: 'free', inputSchema: { type: 'object' } },
      {
        name: 'shout',
        description: 'shout',
        inputSchema: { type: 'object', properties: { input: { type: 'string' } }, required: ['input'] },
      },
      { name: 'story', description: 'Tells a story', inputSchema: STORY },
      {
        name: 'tree',
        description: 'tree',
        inputSchema: {
          type: 'object',
          required: ['input'],
          $defs: TREE.$defs,
          properties: {
            input: {
              type: 'array',
              items: {
                anyOf: [{ $ref: '#/properties/input' }, { $ref: '#/$defs/leaf' }, { $ref: '#/properties/input/not' }],
              },
              not: TREE.not,
            },
          },
        },
      },
    ]);
    const wrapped = new SchemaValidator(tools[3].inputSchema);
    assert.deepEqual(wrapped.check({ input: ['a', [['b'], 7]] }), new SchemaValidator(TREE).check(['a', [['b'], 7]]));
    assert.notDeepEqual(wrapped.check({ input: [null] }), wrapped.check({ input: ['a'] }));
    assert.deepEqual((await server.ask('tools/list', { cursor: 'free' })).result.tools.length, 3);
    // The codes of JSON-RPC: -32601 for an unknown method, -32602 for wrong parameters, -32700 for no JSON, -32600 for
    // no request.
    assert.equal((await server.ask('resources/list')).error?.code, -32601);
    assert.equal((await server.ask('tools/list', { cursor: 1 })).error?.code, -32602);
    for (const name of ['nothing', 'free@live', 'openai-chat'])
      assert.equal((await server.ask('tools/call', { name })).error?.code, -32602);
    assert.equal((await server.ask('tools/call', { name: 'story', arguments: [] })).error?.code, -32602);
    server.tell('not json');
    assert.deepEqual([(await server.next()).error?.code, server.last?.id], [-32700, null]);
    for (const [message, id] of [
      [[{ jsonrpc: '2.0', id: 1, method: 'ping' }], null],
      [{ jsonrpc: '2.0', id: 'null', method: 'ping', params: null }, 'null'],
      [{ jsonrpc: '2.0', id: 'list', method: 'ping', params: [] }, 'list'],
    ]) {
      server.tell(message);
      assert.deepEqual([(await server.next()).error?.code, server.last?.id], [-32600, id]);
    }
    server.tell(' \r');
    server.tell({ jsonrpc: '2.0', method: 'notifications/initialized', params: [] });
    const ping = server.send('ping');
    assert.equal((await server.next()).id, ping, 'blank lines and malformed notifications get no answer');
  });

  it('invokes a function, tells its progress, and returns its messages or its result', async () => {
    await using server = start();
    const called = server.send('tools/call', {
      name: 'story',
      arguments: { prompt: 'Hé' },
      _meta: { progressToken: 'p' },
    });
    const id = await submitted('story');
    assert.deepEqual(await platform.client().input(id), { prompt: 'Hé' });
    const attempt = await platform.attempt(id);
    await attempt.start();
    const progress: Message[] = [];
    // Progress comes at most every 250 ms.
    while (progress.length === 0) {
      await attempt.say('Once ');
      progress.push(...(await server.within(100)));
    }
    await attempt.succeed({ words: 2 });
    assert.deepEqual([progress[0]?.method, progress[0]?.params?.progressToken], ['notifications/progress', 'p']);
    assert.match(String(progress[0]?.params?.message), /^(Once )+$/);
    const { result } = await server.answer(called);
    assert.match(result.content[0].text, /^(Once )+$/);
    assert.deepEqual([result.structuredContent, result.isError], [{ words: 2 }, undefined]);

    const shouted = server.send('tools/call', { name: 'shout', arguments: { input: 'hey' } });
    const other = await submitted('shout');
    assert.equal(await platform.client().input(other), 'hey');
    await (await platform.attempt(other)).succeed(['HEY']);
    assert.deepEqual((await server.answer(shouted)).result, { content: [{ type: 'text', text: '["HEY"]' }] });

    const long = server.send('tools/call', { name: 'free' });
    const [opening, maxLength] = ['{"a":"', 1 << 20];
    // One character below the maximum: the cut goes through the emoji, which has two UTF-16 units.
    const filler = 'x'.repeat(maxLength - 1 - opening.length);
    await (await platform.attempt(await submitted('free'))).succeed({ a: `${filler}🙂` });
    assert.deepEqual((await server.answer(long)).result, {
      content: [
        {
          type: 'text',
          text: `${opening}${filler}\uFFFD\n[cut: the result is longer]\n[no structured content: it has more than ${maxLength} characters]`,
        },
      ],
    });
  });

  it('reports the earlier messages and the question as progress while the function waits for a person', async () => {
    await using server = start('story');
    const params = { name: 'story', arguments: { prompt: 'x' }, _meta: { progressToken: 7 } };
    const called = server.send('tools/call', params);
    const id = await submitted('story');
    const attempt = await platform.attempt(id);
    await attempt.start();
    await attempt.say('A draft. ');
    const { questions } = platform.scheduler;
    // The question is event 3 of the log, after `start` and the message.
    const question = { text: 'Publish?', schema: { type: 'boolean' }, timeoutMs: 60_000, state: '' };
    assert.equal(await questions.ask({ id, tenant: 'default' }, attempt.epoch, 3, question, null), 'waiting');
    const notes = [await server.next(), await server.next()].map(({ params }) => params);
    assert.deepEqual(notes[0], { progressToken: 7, progress: 1, message: 'A draft. ' });
    assert.deepEqual([notes[1]?.progressToken, notes[1]?.progress], [7, 2]);
    assert.match(String(notes[1]?.message), new RegExp(`until 20.*: pie answer ${id}\\nPublish\\?$`));
    await platform.client().answer(id, true);
    const next = await platform.attempt(id);
    await next.start(2);
    await next.say('Done.');
    await next.succeed(null);
    assert.equal((await server.answer(called)).result.content[0].text, 'A draft. Done.');
  });

  it('returns failures and refused arguments as results that the model reads', async () => {
    await using server = start('story');
    const failing = server.send('tools/call', { name: 'story', arguments: { prompt: 'x' } });
    await (await platform.attempt(await submitted('story'))).fail('inferlet-error', 'out of ideas');
    const failed = (await server.answer(failing)).result;
    assert.equal(failed.isError, true);
    assert.match(failed.content[0].text, /out of ideas/);
    const refused = (await server.ask('tools/call', { name: 'story', arguments: { prompt: 7 } })).result;
    assert.equal(refused.isError, true);
    assert.match(refused.content[0].text, /^invalid-input: .*prompt/);
    assert.equal((await server.ask('tools/call', { name: 'free' })).error?.code, -32602);
    assert.equal((await server.ask('tools/list')).result.tools.length, 1);
  });

  it('cancels the calls that the client cancels, and the running calls when the client leaves', async () => {
    const server = start();
    for (const end of [
      (id: number) => server.tell({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id } }),
      () => server.leave(),
    ]) {
      const called = server.send('tools/call', { name: 'free' });
      const id = await submitted('free');
      await platform.attempt(id);
      const { asked } = await platform.cancelOf(id);
      end(called);
      await asked;
    }
    assert.equal(await server.ended, EXIT.ok);
    await assert.rejects(server.next(), /has ended/, 'a cancelled request gets no answer');
  });

  it('ends with the input or a signal while the client does not read', async () => {
    await Promise.all(
      [(server: Server) => server.leave(), (server: Server) => server.kill()].map(async (end) => {
        const server = start('free');
        await server.ask('ping');
        server.stopReading();
        // Each refusal repeats the name of the method, so the refusals fill the pipe.
        for (let i = 0; i < 600; i++) server.send(`nothing/${'x'.repeat(2000)}`);
        await server.flushed();
        end(server);
        assert.equal(await server.ended, EXIT.ok);
      }),
    );
  });

  it('answers a ping while the maximum number of calls runs, and refuses one more call', async () => {
    const pendingAnswers = Array.from({ length: 3 }, () => Promise.withResolvers<object>());
    const [input, output] = [new PassThrough(), new PassThrough()];
    const lines = readline.createInterface({ input: output })[Symbol.asyncIterator]();
    const served = new Connection(output, { request: (_, { at }) => pendingAnswers[Number(at)]!.promise }, 2).serve(
      input,
      AbortSignal.timeout(10_000),
    );
    const next = async () => JSON.parse((await lines.next()).value as string);
    for (const id of [0, 1, 2])
      input.write(`${JSON.stringify({ jsonrpc: '2.0', id, method: 'x', params: { at: id } })}\n`);
    input.write('{"jsonrpc":"2.0","id":"p","method":"ping"}\n');
    // Two calls run, so the third is refused at once. The ping, which came after it, is answered.
    assert.deepEqual([(await next()).id, (await next()).id], [2, 'p']);
    for (const { resolve } of pendingAnswers) resolve({});
    assert.deepEqual([(await next()).id, (await next()).id], [0, 1]);
    input.end();
    await served;
  });

  it('ends with an error when a named function does not exist', async () => {
    await using server = start('story', 'nothing');
    assert.equal(await server.ended, EXIT.refused);
  });
});

/** `pie mcp` as a client starts it. */
class Server implements AsyncDisposable {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string>;
  readonly ended: Promise<number | null>;
  #pending: Promise<IteratorResult<string>> | undefined;
  #lastId = 0;
  /** The message that `next` returned last. */
  last: Message | undefined;

  constructor({ url, apiKey }: GatewayPlatform, args: readonly string[]) {
    this.#child = spawn(process.execPath, [BIN, 'mcp', ...args], {
      env: { ...process.env, PIE_URL: url, PIE_API_KEY: apiKey },
      stdio: ['pipe', 'pipe', 'ignore'],
      timeout: 240_000,
    });
    this.ended = once(this.#child, 'close').then(([code]) => code as number | null);
    this.#lines = readline.createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  tell(message: unknown): void {
    this.#child.stdin.write(`${typeof message === 'string' ? message : JSON.stringify(message)}\n`);
  }

  /** Sends a request, and returns its id. */
  send(method: string, params?: object): number {
    const id = ++this.#lastId;
    this.tell({ jsonrpc: '2.0', id, method, ...(params && { params }) });
    return id;
  }

  ask(method: string, params?: object): Promise<Message> {
    return this.answer(this.send(method, params));
  }

  /** The answer to a request; skips notifications. */
  async answer(id: number): Promise<Message> {
    for (;;) {
      const message = await this.next();
      if (message.id === id) return message;
    }
  }

  async next(): Promise<Message> {
    this.#pending ??= this.#lines.next();
    const { value, done } = await this.#pending;
    this.#pending = undefined;
    if (done) throw new Error('pie mcp has ended');
    const message = JSON.parse(value) as Message & { jsonrpc: string };
    assert.equal(message.jsonrpc, '2.0');
    this.last = message;
    return message;
  }

  /** The next message if one comes in this time. */
  async within(ms: number): Promise<Message[]> {
    this.#pending ??= this.#lines.next();
    const hasMessage = await Promise.race([
      this.#pending.then(() => true),
      new Promise<false>((resolve) => setTimeout(resolve, ms, false)),
    ]);
    return hasMessage ? [await this.next()] : [];
  }

  /** Leaves the server's further output in the pipe. */
  stopReading(): void {
    this.#child.stdout.pause();
  }

  /** Resolves when the server has taken all that was sent. */
  flushed(): Promise<void> {
    return new Promise((resolve) => this.#child.stdin.write('\n', () => resolve()));
  }

  kill(): void {
    this.#child.kill();
  }

  leave(): void {
    this.#child.stdin.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.leave();
    await this.ended;
  }
}
