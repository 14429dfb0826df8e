import assert from 'node:assert/strict';
import { once } from 'node:events';
import { renameSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { silentLog } from '#scheduler/testing/log.ts';
import { GpuHostConnection } from '../protocol/client.ts';
import { PageLists } from '../protocol/fields.ts';
import { FrameReader, FrameWriter } from '../protocol/frames.ts';
import { encodeCall, OPERATIONS, type Operation } from '../protocol/operations.ts';
import { FRAME, HELLO_VERSION, MAX_FRAME_WORDS, MAX_LIST, RUN_WINDOW_TOKENS } from '../protocol/wire.ts';
import {
  GREEDY,
  generate,
  must,
  NONE,
  OPEN_INFERLET,
  Oracle,
  range,
  startTestHost,
  type TestHost,
  tagOf,
  until,
} from '../testing/host.ts';
import { GpuHost } from './gpu-host.ts';

/** Pages of a test host, unless its options say otherwise. */
const PAGES = 64;

/** Writes a call of inferlet 1. */
function put(writer: FrameWriter, queue: number, id: number, operation: Operation): void {
  encodeCall(writer, new PageLists(), { inferlet: 1, queue, id }, operation);
}

/** Opens inferlet 1. */
function openInferlet(writer: FrameWriter): void {
  put(writer, 0, 0, OPEN_INFERLET);
}

/** A run from token 1 onwards. */
const runOn = (pages: Uint32Array, maxTokens = 90) => ({
  token: 1,
  position: 0,
  pages,
  maxTokens,
  sampler: GREEDY,
  stopTokens: NONE,
});

/** Pages that no inferlet holds. */
function unheldPages(host: TestHost): number {
  const { free, cached } = host.host.stats().models[0]!.pages;
  return free + cached;
}

/** A peer that sends raw bytes. */
class RawPeer {
  readonly socket: Socket;
  error: { code: string; message: string } | undefined;
  closed = false;

  constructor(path: string) {
    this.socket = connect(path);
    const reader = new FrameReader();
    this.socket.on('data', (chunk) =>
      reader.push(chunk as Buffer, (kind, body, end) => {
        if (kind !== FRAME.error) return;
        body.enter(end);
        this.error = { code: body.text(), message: body.text() };
      }),
    );
    this.socket.on('error', () => {});
    this.socket.on('close', () => {
      this.closed = true;
    });
  }

  greet(): this {
    return this.send((writer) => {
      writer.begin(FRAME.hello);
      writer.putText('{"versions":{"oldest":1,"newest":1}}');
      writer.end();
    });
  }

  send(write: (writer: FrameWriter) => void): this {
    const writer = new FrameWriter();
    write(writer);
    this.socket.write(writer.take());
    return this;
  }

  words(...values: number[]): void {
    this.socket.write(new Uint8Array(Uint32Array.from(values).buffer));
  }

  async ended(): Promise<string | undefined> {
    if (!this.closed) await once(this.socket, 'close');
    return this.error?.code;
  }
}

test('a frame that cannot be read ends its connection with a code; neighbours and their pages are untouched', async () => {
  await using host = await startTestHost();
  const oracle = await Oracle.of(host.model);
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'neighbour', maxPages: 40, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  const story = generate(inferlet, queue, [1, 5, 9], 20);

  const calls = (HELLO_VERSION << 16) | FRAME.calls;
  const bad: [string, (peer: RawPeer) => unknown][] = [
    ['version', (peer) => peer.words(2, ((HELLO_VERSION + 1) << 16) | FRAME.hello)],
    ['version', (peer) => peer.socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n')],
    ['unexpected', (peer) => peer.words(2, calls)],
    ['oversized', (peer) => peer.greet().words(MAX_FRAME_WORDS + 1, calls)],
    ['malformed', (peer) => peer.greet().words(2, (HELLO_VERSION << 16) | 99)],
    ['truncated', (peer) => peer.greet().words(4, calls, 8, OPERATIONS.synchronize.code)],
    ['unexpected', (peer) => peer.greet().greet()],
    ['unexpected', (peer) => peer.greet().words(2, (HELLO_VERSION << 16) | FRAME.results)],
    [
      'malformed',
      (peer) =>
        peer
          .greet()
          .send((writer) =>
            encodeCall(writer, new PageLists(), { inferlet: 7, queue: 1, id: 1 }, { op: 'synchronize' }),
          ),
    ],
    [
      'malformed',
      (peer) =>
        peer.greet().send((writer) => {
          openInferlet(writer);
          put(writer, 1, 0, { op: 'create-queue', model: 5 });
        }),
    ],
    [
      // This peer holds pages when it sends the bad call.
      'malformed',
      (peer) =>
        peer.greet().send((writer) => {
          openInferlet(writer);
          put(writer, 1, 0, { op: 'create-queue', model: 0 });
          put(writer, 1, 0, { op: 'allocate-pages', first: 1, count: 4 });
          openInferlet(writer);
        }),
    ],
  ];
  for (const [code, send] of bad) {
    const peer = new RawPeer(host.address);
    send(peer);
    assert.equal(await peer.ended(), code);
  }
  assert.deepEqual(await story, await oracle.greedy([1, 5, 9], 20));
  await inferlet.close();
  await until(() => unheldPages(host) === PAGES);
});

test('an inferlet that waits also waits on a model that it uses for the first time later', async () => {
  await using host = await startTestHost();
  const peer = new RawPeer(host.address);
  peer.greet().send((writer) => {
    openInferlet(writer);
    put(writer, 0, 0, { op: 'set-waiting', waiting: true });
    put(writer, 1, 0, { op: 'create-queue', model: 0 });
  });
  const { spaces } = host.host.engines[0]!;
  await until(() => spaces.size === 1);
  assert.deepEqual(
    [...spaces].map(({ pages }) => pages.waiting),
    [true],
  );
  peer.socket.destroy();
  await until(() => spaces.size === 0);
});

test('the host closes a peer that sends nothing', async () => {
  await using host = await startTestHost({ host: { limits: { helloMs: 30 } } });
  const peer = new RawPeer(host.address);
  assert.equal(await peer.ended(), 'timeout');
  await until(() => host.host.stats().connections === 0);
});

test('a peer that does not read its results is cut off', async () => {
  await using host = await startTestHost({ host: { limits: { maxUnreadBytes: 1 << 17, maxUnreadMs: 10 } } });
  const peer = new RawPeer(host.address);
  peer.greet().send((writer) => {
    openInferlet(writer);
    put(writer, 1, 0, { op: 'create-queue', model: 0 });
  });
  await once(peer.socket, 'data');
  peer.socket.pause();
  let sent = 0;
  while (host.host.stats().connections === 1) {
    peer.send((writer) => {
      for (let i = 0; i < 2000; i++) put(writer, 1, ++sent, { op: 'next-distribution', embed: 12345, topK: 3 });
    });
    await sleep(1);
  }
  peer.socket.resume();
  assert.equal(await peer.ended(), 'overrun');
});

test('an inferlet that is closed in any state frees all that it holds', async () => {
  await using host = await startTestHost();
  const connection = await host.connect();
  for (const moment of ['idle', 'in a step', 'in a run', 'behind a run', 'failed'] as const) {
    const inferlet = connection.openInferlet({ id: moment, maxPages: 40, arrival: 1 });
    const queue = inferlet.createQueue('tiny');
    const pages = must(inferlet.allocatePages(queue, 12));
    must(inferlet.sharePages(queue, pages));
    const step = {
      tokens: Uint32Array.of(1),
      positions: Uint32Array.of(0),
      inPages: NONE,
      outPages: pages,
      mask: undefined,
      rows: 1,
    };
    const sample = { tag: 'sample' as const, val: GREEDY };
    const pending = [];
    if (moment === 'in a step') pending.push(inferlet.ask(queue, { op: 'step', request: { ...step, output: sample } }));
    if (moment === 'failed')
      await inferlet.ask(queue, { op: 'step', request: { ...step, tokens: Uint32Array.of(999), output: sample } });
    if (moment === 'in a run' || moment === 'behind a run') {
      const run = inferlet.run(queue, runOn(pages));
      must(await run.next());
      if (moment === 'behind a run')
        pending.push(
          inferlet.ask(queue, { op: 'step', request: { ...step, output: sample } }),
          inferlet.synchronize(queue),
        );
      pending.push(drain(run));
    }
    await inferlet.close();
    assert.equal(unheldPages(host), PAGES, moment);
    for (const outcome of await Promise.all(pending)) assert.equal(tagOf(outcome), 'cancelled', moment);
    assert.equal(tagOf(await inferlet.synchronize(queue)), 'cancelled');
    assert.equal(tagOf(inferlet.allocatePages(queue, 1)), 'cancelled');
  }
  const { inferlets, queues } = host.host.stats().models[0]!;
  assert.deepEqual({ inferlets, queues }, { inferlets: 0, queues: 0 });
});

async function drain(run: ReturnType<import('../protocol/client.ts').DeviceClient['run']>) {
  for (;;) {
    const chunk = await run.next();
    if (chunk.tag === 'err' || chunk.val.finished) return chunk;
  }
}

test('a cut connection frees all that its runtime holds', async () => {
  await using host = await startTestHost();
  const connection = await host.connect();
  const outcomes = [];
  for (let i = 0; i < 4; i++) {
    const inferlet = connection.openInferlet({ id: `${i}`, maxPages: 40, arrival: i });
    const queue = inferlet.createQueue('tiny');
    const pages = must(inferlet.allocatePages(queue, 12));
    const run = inferlet.run(queue, runOn(pages));
    must(await run.next());
    outcomes.push(drain(run));
  }
  assert.ok(unheldPages(host) < PAGES);
  connection.close();
  for (const outcome of await Promise.all(outcomes)) assert.equal(tagOf(outcome), 'unavailable');
  await until(() => unheldPages(host) === PAGES);
});

test('the client reconnects: inferlets that were opened before stay lost, and later ones work', async () => {
  await using host = await startTestHost();
  const oracle = await Oracle.of(host.model);
  const connection = await host.connect();
  const causes: string[] = [];
  connection.onLost((cause) => causes.push(cause));
  const old = connection.openInferlet({ id: 'old', maxPages: 40, arrival: 1 });
  const queue = old.createQueue('tiny');
  const pages = must(old.allocatePages(queue, 12));
  const run = old.run(queue, runOn(pages));
  must(await run.next());
  await host.stop();
  assert.equal(tagOf(await drain(run)), 'unavailable');
  assert.equal(tagOf(await old.synchronize(queue)), 'unavailable');
  assert.equal(tagOf(old.allocatePages(queue, 1)), 'unavailable');
  assert.equal(connection.connected, false);
  const offline = connection.openInferlet({ id: 'opened offline', maxPages: 4, arrival: 2 });
  assert.equal(tagOf(await offline.synchronize(offline.createQueue('tiny'))), 'unavailable');
  for (const each of [old, offline]) assert.notEqual(each.lost, undefined);
  await assert.rejects(connection.stats());
  assert.deepEqual(causes, ['the GPU host ended the connection (shutdown): the GPU host is going down']);
  await host.restart();
  await until(() => connection.connected);
  assert.equal(tagOf(await old.synchronize(queue)), 'unavailable', 'the host has freed its memory');
  await old.close();
  await offline.close();
  const fresh = connection.openInferlet({ id: 'fresh', maxPages: 40, arrival: 3 });
  assert.equal(fresh.lost, undefined);
  assert.deepEqual(await generate(fresh, fresh.createQueue('tiny'), [1, 5, 9], 8), await oracle.greedy([1, 5, 9], 8));
});

test('the host ends an inferlet that floods it with calls, and its neighbours go on', async () => {
  await using host = await startTestHost();
  const oracle = await Oracle.of(host.model);
  const connection = await host.connect();
  const flood = connection.openInferlet({ id: 'flood', maxPages: 40, arrival: 1 });
  const queue = flood.createQueue('tiny');
  const [page] = must(flood.allocatePages(queue, 12));
  // No call behind a run begins before the run has ended.
  const run = flood.run(queue, runOn(must(flood.allocatePages(queue, 12))));
  const pending = flood.synchronize(queue);
  for (let i = 0; i < 20_000; i++) flood.send(queue, { op: 'mask-page', page: page!, slots: 0 });
  assert.equal(tagOf(await flood.synchronize(queue)), 'limit-exceeded');
  const neighbour = connection.openInferlet({ id: 'neighbour', maxPages: 40, arrival: 2 });
  assert.deepEqual(
    await generate(neighbour, neighbour.createQueue('tiny'), [1, 5, 9], 8),
    await oracle.greedy([1, 5, 9], 8),
  );
  await neighbour.close();
  assert.equal(unheldPages(host), PAGES, 'the flooding inferlet holds nothing');
  assert.equal(tagOf(await pending), 'limit-exceeded');
  assert.equal(tagOf(await drain(run)), 'limit-exceeded');
  await flood.close();

  const loud = connection.openInferlet({ id: 'loud', maxPages: 40, arrival: 3 });
  const loudQueue = loud.createQueue('tiny');
  const big = range(0, 200_000);
  const asked = loud.synchronize(loudQueue);
  for (let i = 0; i < 100; i++) loud.freePages(loudQueue, big);
  assert.equal(tagOf(await asked), 'limit-exceeded', 'a call from before the flood is answered');
  assert.equal(tagOf(await loud.synchronize(loudQueue)), 'limit-exceeded');
  await loud.close();
  const last = connection.openInferlet({ id: 'after them', maxPages: 40, arrival: 4 });
  assert.deepEqual(await generate(last, last.createQueue('tiny'), [1, 5, 9], 8), await oracle.greedy([1, 5, 9], 8));
});

test('large calls that are sent without awaiting one are all answered with an error', async () => {
  await using host = await startTestHost();
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'wide', maxPages: 40, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  const tokens = range(0, MAX_LIST);
  const rest = { inPages: NONE, outPages: NONE, mask: undefined, rows: 0, output: { tag: 'none' } } as const;
  // Each call has 2 MiB of arguments, so nine of them exceed the 16 MiB that may be unsent.
  const step = () => inferlet.ask(queue, { op: 'step', request: { tokens, positions: tokens, ...rest } });
  const steps = Array.from({ length: 9 }, step);
  for (const outcome of await Promise.all(steps))
    assert.match(outcome.tag === 'err' ? outcome.val.val : '', /bytes of calls were issued without awaiting one/);
  await inferlet.close();
  assert.equal(connection.connected, true);
});

test('32 inferlets at once get the tokens that each gets alone, in large batches', async () => {
  await using host = await startTestHost({ pageCount: 128 });
  const connection = await host.connect();
  const prompts = Array.from({ length: 32 }, (_, i) => [1, 3 + i, 40 - i, 7]);
  const generateTokens = async (prompt: number[], way: 'steps' | 'run') => {
    const inferlet = connection.openInferlet({ id: prompt.join(), maxPages: 8, arrival: 1 });
    const queue = inferlet.createQueue('tiny');
    try {
      if (way === 'steps') return await generate(inferlet, queue, prompt, 16);
      const pages = must(inferlet.allocatePages(queue, 3));
      const fill = {
        tokens: Uint32Array.from(prompt.slice(0, -1)),
        positions: range(0, prompt.length - 1),
        inPages: NONE,
        outPages: pages,
        mask: undefined,
        rows: 0,
      };
      void inferlet.ask(queue, { op: 'step', request: { ...fill, output: { tag: 'none' } } });
      const first = { token: prompt.at(-1)!, position: prompt.length - 1 };
      const run = inferlet.run(queue, { ...runOn(pages, 16), ...first });
      const tokens: number[] = [];
      for (let done = false; !done; ) {
        const chunk = must(await run.next());
        tokens.push(...chunk.tokens);
        done = chunk.finished !== undefined;
      }
      return tokens;
    } finally {
      await inferlet.close();
    }
  };
  const alone: number[][] = [];
  for (const prompt of prompts) alone.push(await generateTokens(prompt, 'steps'));
  host.host.stats({ reset: true });
  assert.deepEqual(await Promise.all(prompts.map((prompt) => generateTokens(prompt, 'steps'))), alone);
  const { meanBatchSize } = host.host.stats({ reset: true }).models[0]!;
  // The mean may be below 32, since load beside this test delays some of the calls.
  assert.ok(meanBatchSize >= 16, `mean batch ${meanBatchSize}`);
  assert.deepEqual(
    await Promise.all(prompts.map((prompt, i) => generateTokens(prompt, i % 2 ? 'steps' : 'run'))),
    alone,
  );
  assert.ok(host.host.stats().models[0]!.meanBatchSize >= 16, 'runs and steps share batches');
});

test('the host computes a run at most a window ahead of the consumed tokens', async () => {
  const tiny = { layers: 1, contextLength: 1024 };
  await using host = await startTestHost({ pageCount: 128, shape: tiny });
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'slow reader', maxPages: 128, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  const pages = must(inferlet.allocatePages(queue, 125));
  const run = inferlet.run(queue, runOn(pages, 1000));
  let taken = must(await run.next()).tokens.length;
  await until(() => host.host.stats().models[0]!.batches >= RUN_WINDOW_TOKENS);
  // A host that did not pause would decode on meanwhile.
  await sleep(20);
  const decoded = host.host.stats().models[0]!.batches;
  assert.ok(decoded <= taken + RUN_WINDOW_TOKENS, `${decoded} tokens for a reader that took ${taken}`);
  for (let finished: string | undefined; !finished; ) {
    const chunk = must(await run.next());
    taken += chunk.tokens.length;
    finished = chunk.finished;
  }
  assert.equal(taken, 1000);
});

test('a host serves connections over TCP', async () => {
  await using host = await startTestHost();
  const tcp = new GpuHost([host.host.engines[0]!.model], { log: silentLog });
  const address = await tcp.listen('127.0.0.1:0');
  const connection = await GpuHostConnection.connect(address);
  const inferlet = connection.openInferlet({ id: 'tcp', maxPages: 8, arrival: 1 });
  assert.equal((await generate(inferlet, inferlet.createQueue('tiny'), [1, 5], 3)).length, 3);
  connection.close();
  await tcp.close();
  await assert.rejects(GpuHostConnection.connect(address, { deadlineMs: 60 }), /no GPU host answered/);
});

test('a second host at the same path is refused; the file of a dead one is replaced', async () => {
  await using host = await startTestHost();
  const second = new GpuHost([host.host.engines[0]!.model], { log: silentLog });
  await assert.rejects(second.listen(host.address), /EADDRINUSE/);
  const leftAddress = `${host.address}-left`; // The file stays, as after a kill: the first host removes only its own address.
  renameSync(host.address, leftAddress);
  await host.stop();
  assert.equal(await second.listen(leftAddress), leftAddress);
  await second.close();
});
