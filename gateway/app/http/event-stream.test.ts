import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Feed, OpenFeed } from '#scheduler/invocations/feed.ts';
import { FrameParser } from '../../client/event-source.ts';
import { DEFAULT_LIMITS } from '../context.ts';
import type { InvocationEvent } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { Bodies } from './bodies.ts';
import { type EventStreamOptions, eventStreamResponse, feedOf, invocationFrame } from './event-stream.ts';

function respond(
  source: AsyncIterable<InvocationEvent> | OpenFeed<InvocationEvent>,
  options: Partial<EventStreamOptions<InvocationEvent>> = {},
): Response {
  return eventStreamResponse({
    method: 'GET',
    source: typeof source === 'function' ? source : feedOf(source),
    frame: invocationFrame,
    isTerminal: ({ event }) => event === 'result' || event === 'error',
    heartbeatMs: 60_000,
    keepOpen: undefined,
    room: new Bodies(DEFAULT_LIMITS).roomFor('t'),
    onDisconnect: () => undefined,
    onEnd: () => undefined,
    ...options,
  });
}

const message = (seq: number): InvocationEvent => ({
  seq,
  epoch: 9,
  event: 'message',
  data: `{"text":"${seq}"}`,
});
const result: InvocationEvent = { seq: 3, epoch: 9, event: 'result', data: '{"output":1}' };

/** Yields `events`, then waits until `signal` aborts. */
async function* eventsThenWait(events: InvocationEvent[], signal: AbortSignal) {
  yield* events;
  await new Promise((resolve) => signal.addEventListener('abort', resolve));
}

/** A feed of the events that a test passes to `give`. */
class TestFeed implements Feed<InvocationEvent> {
  isClosed = false;
  #isOver = false;
  #events: InvocationEvent[] = [];
  #ready: () => void = () => undefined;

  readonly open: OpenFeed<InvocationEvent> = (ready) => {
    this.#ready = ready;
    return this;
  };

  get waiting(): number {
    return this.#events.length;
  }

  give(...events: InvocationEvent[]): void {
    this.#events.push(...events);
    this.#ready();
  }

  take(): InvocationEvent[] {
    assert.ok(!this.#isOver, 'the feed was read after the terminal event');
    const events = this.#events.splice(0);
    this.#isOver = events.at(-1)?.event === 'result';
    return events;
  }

  close(): void {
    this.isClosed = true;
  }
}

describe('eventStreamResponse', () => {
  it('writes frames and ends after the terminal event', async () => {
    async function* source() {
      yield message(1);
      yield message(2);
      yield result;
      assert.fail('the source was read after the terminal event');
    }
    const text = await respond(source()).text();
    assert.equal(
      text,
      'id: 9-1\nevent: message\ndata: {"text":"1"}\n\nid: 9-2\nevent: message\ndata: {"text":"2"}\n\nid: 9-3\nevent: result\ndata: {"output":1}\n\n',
    );
  });

  it('keeps a result with line breaks in one frame', async () => {
    for (const end of ['\n', '\r', '\r\n']) {
      const data = ['{"output":{', '', '"a":[1,', '2]},"usage":{}}'].join(end);
      async function* source(): AsyncGenerator<InvocationEvent> {
        yield { ...result, data };
      }
      const frames = new FrameParser().push(await respond(source()).text());
      assert.deepEqual(
        frames.map(({ event, data: received }) => [event, JSON.parse(received)]),
        [['result', { output: { a: [1, 2] }, usage: {} }]],
        JSON.stringify(end),
      );
    }
  });

  it('gives an error event the error object that OpenAI clients read', async () => {
    async function* source(): AsyncGenerator<InvocationEvent> {
      yield { seq: 1, epoch: 9, event: 'error', data: '{"code":"trap","message":"unreachable","usage":{"cpuMs":3}}' };
    }
    const text = await respond(source()).text();
    assert.deepEqual(JSON.parse(text.split('data: ')[1]!), {
      code: 'trap',
      message: 'unreachable',
      usage: { cpuMs: 3 },
      hint: '`pie logs` shows what it wrote before the trap.',
      error: { message: 'unreachable', type: 'invalid_request_error', code: 'trap' },
    });
  });

  it('ends with an error frame without an id when the source ends early or throws', async () => {
    async function* early() {
      yield message(1);
    }
    async function* broken() {
      yield message(1);
      throw new GatewayError('store-unavailable', 'Redis is away.');
    }
    async function* secret() {
      yield message(1);
      throw new Error('password is hunter2');
    }
    const endErrors: unknown[] = [];
    const [first, second, third] = await Promise.all(
      [early(), broken(), secret()].map((source) =>
        respond(source, { onEnd: (error) => endErrors.push(error) }).text(),
      ),
    );
    assert.match(first!, /\n\nevent: error\ndata: \{"code":"internal"/);
    assert.match(second!, /\n\nevent: error\ndata: \{"code":"store-unavailable".*"resumable":true/);
    assert.match(third!, /\n\nevent: error\ndata: \{"code":"internal"/);
    assert.doesNotMatch(third!, /hunter2/);
    assert.equal(endErrors.length, 3);
  });

  it('writes heartbeats only while it has no events to write', async () => {
    const stop = new AbortController();
    const reader = respond(eventsThenWait([message(1)], stop.signal), { heartbeatMs: 5 }).body!.getReader();
    const texts: string[] = [];
    for (let i = 0; i < 4; i++) texts.push(new TextDecoder().decode((await reader.read()).value));
    assert.match(texts[0]!, /^id: 9-1\n/);
    assert.deepEqual(texts.slice(1), [': heartbeat\n\n', ': heartbeat\n\n', ': heartbeat\n\n']);
    await reader.cancel();
    stop.abort();
  });

  it('reports a departed client once, whether the client cancels the stream or its signal aborts', async () => {
    for (const departure of ['cancel', 'signal'] as const) {
      const stop = new AbortController();
      const client = new AbortController();
      let disconnects = 0;
      let ends = 0;
      const response = respond(eventsThenWait([message(1)], stop.signal), {
        client: client.signal,
        onDisconnect: () => {
          disconnects += 1;
        },
        onEnd: () => {
          ends += 1;
        },
      });
      const reader = response.body!.getReader();
      await reader.read();
      if (departure === 'signal') client.abort();
      await reader.cancel().catch(() => undefined);
      assert.deepEqual([disconnects, ends], [1, 1]);
      stop.abort();
    }
  });

  it('ends with an error frame when the gateway stops', async () => {
    const stop = new AbortController();
    const shutdown = new AbortController();
    const response = respond(eventsThenWait([message(1)], stop.signal), { shutdown: shutdown.signal });
    const reader = response.body!.getReader();
    await reader.read();
    shutdown.abort();
    const { value } = await reader.read();
    assert.match(new TextDecoder().decode(value), /^event: error\ndata: \{"code":"shutting-down"/);
    assert.equal((await reader.read()).done, true);
    stop.abort();
  });

  it("ends with an error frame once the client's key is removed, but not when the check itself fails", async () => {
    const stop = new AbortController();
    const answers = [new GatewayError('store-unavailable', 'away'), null, new GatewayError('unauthorized', 'removed')];
    let disconnects = 0;
    const endErrors: unknown[] = [];
    const response = respond(eventsThenWait([message(1)], stop.signal), {
      heartbeatMs: 5,
      recheck: async () => {
        const answer = answers.shift();
        if (answer) throw answer;
      },
      onDisconnect: () => {
        disconnects += 1;
      },
      onEnd: (error) => endErrors.push(error),
    });
    const text = await response.text();
    assert.match(text, /^id: 9-1\n[\s\S]*event: error\ndata: {"code":"unauthorized".*"resumable":false.*}\n\n$/);
    assert.deepEqual([answers.length, disconnects, endErrors.length], [0, 0, 1]);
    stop.abort();
  });

  it('buffers large frames for slow clients within the limit of a tenant, and ends streams beyond the limit', async () => {
    const bodies = new Bodies({ ...DEFAULT_LIMITS, heldBodyBytes: 1_000_000 });
    const large = (seq: number): InvocationEvent => ({
      seq,
      epoch: 9,
      event: 'message',
      data: `{"text":"${'x'.repeat(100_000)}"}`,
    });
    const open = () => {
      async function* source() {
        yield large(1);
        yield large(2);
        yield result;
      }
      return respond(source(), { room: bodies.roomFor('a') });
    };
    const stalled = [open(), open()].map((response) => response.body?.getReader());
    // A frame counts until the server asks for the next one. Each byte counts twice (`HELD_FACTOR`), so two streams hold 400,000 bytes. With a third
    // stream, the tenant would hold more than half of the 1,000,000 bytes, the maximum of a tenant alone.
    for (const reader of stalled) await reader?.read();
    assert.ok(bodies.heldBytes >= 400_000);
    const refused = await open().text();
    assert.match(refused, /^event: error\ndata: \{"code":"gateway-busy".*"resumable":true/);
    for (const reader of stalled) await reader?.cancel();
    assert.equal(bodies.heldBytes, 0);
    const whole = await open().text();
    assert.equal(whole.match(/^id: /gm)?.length, 3);
    assert.equal(bodies.heldBytes, 0);
  });

  it('encodes no frame that cannot fit its room, and holds no bytes of a frame that turns out too large when encoded', async (t) => {
    const encode = t.mock.method(TextEncoder.prototype, 'encode');
    const encodedLength = () => Math.max(...encode.mock.calls.map(({ arguments: [text] }) => text?.length ?? 0));
    const bodies = new Bodies({ ...DEFAULT_LIMITS, heldBodyBytes: 1_000_000 });
    const refused = async (text: string) => {
      const feed = new TestFeed();
      const answer = respond(feed.open, { room: bodies.roomFor('a') }).text();
      feed.give({ ...message(1), data: JSON.stringify({ text }) });
      assert.match(await answer, /^event: error\ndata: \{"code":"gateway-busy"/);
      assert.equal(bodies.heldBytes, 0);
    };
    await refused('x'.repeat(300_000));
    assert.ok(encodedLength() < 1000, 'only the error frame is encoded');
    // A tenant alone may hold 500,000 bytes. These 100,000 characters have 300,000 bytes, each of which counts twice (`HELD_FACTOR`).
    await refused('€'.repeat(100_000));
    assert.ok(encodedLength() > 100_000);
  });

  it('ends and frees its memory when the client takes nothing of a large frame for 30 s', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const bodies = new Bodies(DEFAULT_LIMITS);
    const feed = new TestFeed();
    const ends: unknown[] = [];
    const reader = respond(feed.open, {
      room: bodies.roomFor('a'),
      onDisconnect: () => ends.push('disconnect'),
      onEnd: (error) => ends.push(String(error)),
    }).body!.getReader();
    const large = { ...message(1), data: JSON.stringify({ text: 'x'.repeat(300_000) }) };
    feed.give(large);
    await reader.read();
    t.mock.timers.tick(29_000);
    // The 30 s begin anew when the client takes a piece.
    await reader.read();
    const next = reader.read();
    feed.give(large);
    await next;
    assert.ok(bodies.heldBytes >= 600_000, 'a client that takes pieces may be slow');
    t.mock.timers.tick(30_000);
    assert.deepEqual([bodies.heldBytes, feed.isClosed], [0, false]);
    await assert.rejects(reader.read(), /the client took nothing for too long/);
    assert.equal(feed.isClosed, true);
    assert.deepEqual(ends, ['Error: the client took nothing for too long', 'disconnect']);
  });

  it('sends the rest of a large frame before it ends at a shutdown, and frees the frame when the client leaves', async () => {
    for (const way of ['read', 'cancel', 'signal'] as const) {
      const bodies = new Bodies(DEFAULT_LIMITS);
      const [shutdown, client] = [new AbortController(), new AbortController()];
      const feed = new TestFeed();
      const options = { room: bodies.roomFor('a'), shutdown: shutdown.signal, client: client.signal };
      const reader = respond(feed.open, options).body!.getReader();
      feed.give({ ...message(1), data: JSON.stringify({ text: 'x'.repeat(300_000) }) });
      await reader.read();
      if (way === 'read') {
        shutdown.abort();
        let rest = '';
        for (let read = await reader.read(); !read.done; read = await reader.read())
          rest += new TextDecoder().decode(read.value);
        assert.match(rest, /^x+"\}\n\nevent: error\ndata: \{"code":"shutting-down"/);
      } else if (way === 'cancel') await reader.cancel();
      else client.abort();
      assert.deepEqual([bodies.heldBytes, feed.isClosed], [0, true], way);
    }
  });

  describe('with a large last frame', () => {
    const large: InvocationEvent = { ...result, data: JSON.stringify({ output: 'x'.repeat(600_000) }) };
    const open = () => {
      const bodies = new Bodies(DEFAULT_LIMITS);
      async function* source() {
        yield large;
      }
      return { bodies, reader: respond(source(), { room: bodies.roomFor('a') }).body!.getReader() };
    };

    it('counts the frame until the client has taken all of it', async () => {
      const { bodies, reader } = open();
      let bytes = 0;
      for (let read = await reader.read(); !read.done; read = await reader.read()) {
        bytes += read.value.byteLength;
        assert.ok(bodies.heldBytes >= 600_000);
      }
      assert.ok(bytes > 600_000);
      assert.equal(bodies.heldBytes, 0);
    });

    it('frees its memory when the client leaves in the middle of the frame', async () => {
      const { bodies, reader } = open();
      await reader.read();
      assert.ok(bodies.heldBytes >= 600_000);
      await reader.cancel();
      assert.equal(bodies.heldBytes, 0);
    });

    it('fails and frees its memory when the client takes nothing for 30 s', async (t) => {
      t.mock.timers.enable({ apis: ['setTimeout'] });
      const { bodies, reader } = open();
      await reader.read();
      t.mock.timers.tick(30_000);
      assert.equal(bodies.heldBytes, 0);
      await assert.rejects(reader.read(), /the client took nothing for too long/);
    });
  });

  it('answers HEAD with headers only, without timers and without reading the source', async () => {
    const ends: unknown[] = [];
    const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
    const before = timers();
    const failRead = () => assert.fail('the source was read');
    const response = respond(
      { [Symbol.asyncIterator]: failRead },
      { method: 'HEAD', onEnd: (error) => ends.push(error) },
    );
    assert.equal(timers(), before);
    assert.deepEqual([response.body, ends], [null, [undefined]]);
    assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
  });

  it('writes waiting events as one bounded chunk, and takes no more while the client does not read', async () => {
    const source = new TestFeed();
    const reader = respond(source.open).body!.getReader();
    const chunk = async () => new TextDecoder().decode((await reader.read()).value).match(/^id: .*$/gm);
    const ids = (...seqs: number[]) => seqs.map((seq) => `id: 9-${seq}`);
    source.give(message(1), message(2));
    assert.deepEqual(await chunk(), ids(1, 2));
    const waiting = chunk();
    source.give(message(3), message(4));
    assert.deepEqual(await waiting, ids(3, 4));
    for (const seq of [5, 6, 7]) source.give(message(seq));
    assert.equal(source.waiting, 3, 'events wait in the source');
    assert.deepEqual(await chunk(), ids(5, 6, 7));
    const long = (seq: number) => ({ ...message(seq), data: `{"text":"${'x'.repeat(10_000)}"}` });
    source.give(long(8), long(9), long(10));
    assert.deepEqual([await chunk(), await chunk()], [ids(8, 9), ids(10)]);
    const last = chunk();
    source.give(message(11), { ...result, seq: 12 });
    assert.deepEqual(await last, ids(11, 12));
    assert.ok((await reader.read()).done);
    assert.ok(source.isClosed);
  });

  it('reads at most three events from its source for one read of the client', async () => {
    let produced = 0;
    async function* source() {
      for (;;) yield message(++produced);
    }
    const reader = respond(source()).body!.getReader();
    await reader.read();
    await new Promise((resolve) => setImmediate(resolve));
    assert.ok(produced <= 3, `${produced} events were taken for one read`);
    await reader.cancel();
  });
});
