import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hostBytes } from '../memory/host-bytes.ts';
import { type DeviceClient, type RunHandle, SharedPages } from '../protocol/client.ts';
import { Link } from '../protocol/link.ts';
import { encodeCall, type Operation } from '../protocol/operations.ts';
import { MAX_LIST, PROTOCOL_VERSIONS } from '../protocol/wire.ts';
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
} from '../testing/host.ts';

/** A context for runs that are much longer than the window of unread tokens. */
const LONG = { pageCount: 160, shape: { layers: 1, contextLength: 1024 } } as const;
const RUN_TOKENS = 800;

function startRun(inferlet: DeviceClient, queue: number): RunHandle {
  // A page has 8 tokens: 100 pages for the tokens of the run, and one more.
  const pages = must(inferlet.allocatePages(queue, RUN_TOKENS / 8 + 1));
  const request = { token: 1, position: 0, pages, maxTokens: RUN_TOKENS, sampler: GREEDY, stopTokens: NONE };
  return inferlet.run(queue, request);
}

async function drain(run: RunHandle) {
  for (let tokens = 0; ; ) {
    const chunk = await run.next();
    if (chunk.tag === 'err') return { tokens, end: chunk.val.tag };
    tokens += chunk.val.tokens.length;
    if (chunk.val.finished) return { tokens, end: chunk.val.finished };
  }
}

/** Checks that a neighbour on the same connection gets the model's tokens. */
async function checkNeighbour(host: TestHost, connection: Awaited<ReturnType<TestHost['connect']>>): Promise<void> {
  const oracle = await Oracle.of(host.model);
  const neighbour = connection.openInferlet({ id: 'neighbour', maxPages: 40, arrival: 9 });
  const tokens = await generate(neighbour, neighbour.createQueue('tiny'), [1, 5, 9], 8);
  assert.deepEqual(tokens, await oracle.greedy([1, 5, 9], 8));
  await neighbour.close();
  assert.equal(connection.connected, true);
}

test('after its queue was closed, a run goes on: its tokens can be consumed to the end, and it can be stopped', async () => {
  await using host = await startTestHost(LONG);
  const connection = await host.connect();
  for (const way of ['consumed', 'stopped'] as const) {
    const inferlet = connection.openInferlet({ id: way, maxPages: 160, arrival: 1 });
    const queue = inferlet.createQueue('tiny');
    const run = startRun(inferlet, queue);
    inferlet.closeQueue(queue);
    const first = must(await run.next()).tokens.length;
    if (way === 'stopped') run.stop();
    const { tokens, end } = await drain(run);
    if (way === 'consumed') assert.deepEqual([first + tokens, end], [RUN_TOKENS, 'max-tokens']);
    else assert.equal(end, 'stopped');
    // The run is over: a late stop has no effect.
    run.stop();
    await inferlet.close();
  }
  await checkNeighbour(host, connection);
});

test('a call with a list above the limit is refused, and changes neither pages nor their count', async () => {
  await using host = await startTestHost();
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'long', maxPages: 8, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  const pages = must(inferlet.allocatePages(queue, 4));
  const [first = 0] = pages;
  const tooLong = new Uint32Array(MAX_LIST + 1).fill(first);
  const request = { token: 1, position: 0, pages: tooLong, maxTokens: 4, sampler: GREEDY, stopTokens: NONE };
  inferlet.freePages(queue, tooLong);
  assert.equal(inferlet.heldPages, 4);
  assert.equal(tagOf(await inferlet.synchronize(queue)), 'limit-exceeded');
  assert.equal(tagOf(inferlet.sharePages(queue, tooLong)), 'limit-exceeded');
  assert.equal(tagOf(await inferlet.run(queue, request).next()), 'limit-exceeded');
  assert.equal(tagOf(await inferlet.synchronize(queue)), 'ok');
  inferlet.freePages(queue, pages);
  assert.equal(inferlet.heldPages, 0);
  await inferlet.close();
  await checkNeighbour(host, connection);
});

test('a message about an unknown run ends no connection', async () => {
  await using host = await startTestHost();
  const connection = await host.connect();
  let hello: (() => void) | undefined;
  const greeted = new Promise<void>((resolve) => {
    hello = resolve;
  });
  const losses: string[] = [];
  const events = {
    onHello: () => hello?.(),
    onStats: () => {},
    onLost: (cause: string) => losses.push(cause),
  };
  const link = new Link(host.address, events, PROTOCOL_VERSIONS);
  await greeted;
  const put = (queue: number, id: number, operation: Operation) =>
    encodeCall(link.writer, link.pageLists, { inferlet: 1, queue, id }, operation);
  put(0, 0, OPEN_INFERLET);
  put(1, 0, { op: 'create-queue', model: 0 });
  const unknownRun = 77;
  put(1, unknownRun, { op: 'run-stop' });
  put(1, 0, { op: 'close-queue' });
  // Queue 1 is closed, and queue 5 was never open.
  for (const queue of [1, 5]) {
    put(queue, unknownRun, { op: 'run-stop' });
    put(queue, unknownRun, { op: 'run-consumed', tokens: 3 });
  }
  const answered = new Promise<string>((resolve) => {
    link.pending.set(9, {
      settle: ({ kind }) => {
        resolve(kind);
        return true;
      },
      fail: (error) => resolve(error.val),
    });
  });
  put(0, 9, { op: 'close-inferlet' });
  link.flush();
  assert.equal(await answered, 'done');
  assert.deepEqual(losses, []);
  link.close('the test is over');
  await checkNeighbour(host, connection);
});

test('the host ends an inferlet that asks for too many results at once: each of its calls is answered, and its neighbours go on', async () => {
  // The results of one turn exceed both bounds: that of the inferlet ends it, but that of the connection must not end the connection.
  const limits = { maxInferletUnreadBytes: 1 << 12, maxUnreadBytes: 1 << 11 };
  await using host = await startTestHost({ host: { limits } });
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'curious', maxPages: 8, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  must(inferlet.allocatePages(queue, 8));
  const embeds = must(inferlet.allocateEmbeds(queue, 1));
  inferlet.send(queue, { op: 'embed-text', tokens: Uint32Array.of(3), positions: Uint32Array.of(0), embeds });
  const reads = Array.from({ length: 12_000 }, () =>
    inferlet.ask(queue, { op: 'read-embed', embed: embeds[0] as number }),
  );
  const outcomes = await Promise.all(reads);
  const tags = outcomes.map(tagOf);
  const answeredCount = tags.filter((tag) => tag === 'ok').length;
  // Each result has four words and the embed's floats. The inferlet ends with the first result that is past its bound.
  const resultBytes = 4 * (4 + must(outcomes[0]!).length);
  const fitting = Math.floor(limits.maxInferletUnreadBytes / resultBytes);
  assert.ok(answeredCount > fitting && answeredCount < 10_000, `${answeredCount} results of ${resultBytes} bytes`);
  assert.equal(tags.filter((tag) => tag === 'limit-exceeded').length, tags.length - answeredCount);
  assert.equal(tagOf(await inferlet.synchronize(queue)), 'limit-exceeded');
  await checkNeighbour(host, connection);
  await inferlet.close();
  const { free, cached } = host.host.stats().models[0]!.pages;
  assert.equal(free + cached, 64);
});

test('inferlets that share a limit of pages hold at most that many together, copies of shared pages included', async () => {
  await using host = await startTestHost();
  const connection = await host.connect();
  const sharedPages = new SharedPages('root', 8);
  const heldPages = () => {
    const { free, cached, total } = host.host.stats().models[0]!.pages;
    return total - free - cached;
  };
  // Each inferlet allocates one page and makes five copies of it, which only the host counts.
  const copying = async (id: string) => {
    const inferlet = connection.openInferlet({ id, maxPages: 8, arrival: 1, sharedPages });
    const queue = inferlet.createQueue('tiny');
    const step = async (page: number, position: number) => {
      const call = { tokens: Uint32Array.of(5), positions: Uint32Array.of(position), inPages: NONE, mask: undefined };
      const outPages = Uint32Array.of(page);
      return tagOf(
        await inferlet.ask(queue, { op: 'step', request: { ...call, outPages, rows: 0, output: { tag: 'none' } } }),
      );
    };
    const original = must(inferlet.allocatePages(queue, 1));
    assert.equal(await step(original[0] as number, 0), 'ok');
    const tags: string[] = [];
    for (let i = 0; i < 5; i++) tags.push(await step(must(inferlet.sharePages(queue, original))[0] as number, 1));
    return { inferlet, tags };
  };
  const [first, second] = [await copying('first'), await copying('second')];
  assert.deepEqual(
    first.tags,
    Array.from({ length: 5 }, () => 'ok'),
  );
  // The first inferlet holds 6 of the 8 pages, so the second one has room for its page and one copy.
  assert.deepEqual(second.tags, ['ok', 'limit-exceeded', 'limit-exceeded', 'limit-exceeded', 'limit-exceeded']);
  assert.equal(heldPages(), 8);
  await first.inferlet.close();
  const third = await copying('third');
  assert.deepEqual(
    third.tags,
    Array.from({ length: 5 }, () => 'ok'),
    'the third inferlet has the pages that the first gave back',
  );
  await Promise.all([second, third].map(({ inferlet }) => inferlet.close()));
  assert.equal(heldPages(), 0);
});

test('an inferlet may receive as many results as the bound allows again and again: results that were read do not count', async () => {
  await using host = await startTestHost({ host: { limits: { maxInferletUnreadBytes: 1 << 16 } } });
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'reader', maxPages: 8, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  const embeds = must(inferlet.allocateEmbeds(queue, 1));
  inferlet.send(queue, { op: 'embed-text', tokens: Uint32Array.of(3), positions: Uint32Array.of(0), embeds });
  for (let round = 0; round < 10; round++) {
    const reads = Array.from({ length: 300 }, () =>
      inferlet.ask(queue, { op: 'read-embed', embed: embeds[0] as number }),
    );
    for (const outcome of await Promise.all(reads)) must(outcome);
  }
  await inferlet.close();
});

test('an inferlet whose pending calls name too many addresses is ended, and its pending calls are answered', async () => {
  await using host = await startTestHost(LONG);
  const connection = await host.connect();
  const inferlet = connection.openInferlet({ id: 'names much', maxPages: 160, arrival: 1 });
  const queue = inferlet.createQueue('tiny');
  const run = startRun(inferlet, queue);
  must(await run.next());
  const pending = inferlet.synchronize(queue);
  // 4 × 200,000 addresses of 4 bytes, with 100 bytes more for each, count 83 MB: more than an inferlet's 64 MiB.
  for (let i = 0; i < 4; i++) inferlet.freeEmbeds(queue, range(i * 200_000, (i + 1) * 200_000));
  const last = inferlet.synchronize(queue);
  assert.equal(tagOf(await pending), 'limit-exceeded');
  assert.equal(tagOf(await last), 'limit-exceeded');
  assert.equal((await drain(run)).end, 'limit-exceeded');
  await checkNeighbour(host, connection);
  await inferlet.close();

  // Addresses that the inferlet has allocated count as well.
  const asker = connection.openInferlet({ id: 'asks much', maxPages: 160, arrival: 2 });
  const blocked = asker.createQueue('tiny');
  const unreadRun = startRun(asker, blocked);
  must(await unreadRun.next());
  const asked = asker.synchronize(blocked);
  for (let i = 0; i < 4; i++) {
    const addresses = must(asker.allocateEmbeds(blocked, 200_000));
    asker.freeEmbeds(blocked, addresses);
  }
  assert.equal(tagOf(await asked), 'limit-exceeded');
  await asker.close();
});

test('inferlets of one tenant share the memory for pending calls and embeds: one that exceeds it is ended, and other tenants have room', async () => {
  // A tenant may have half of the heap's 16 MiB: four inferlets with 2 MB of calls each.
  const bytes = hostBytes(16 << 20, 1 << 20);
  await using host = await startTestHost({ ...LONG, pageCount: 900, host: { bytes } });
  const connection = await host.connect();
  const open = (id: string, tenant: string) => connection.openInferlet({ id, tenant, maxPages: 160, arrival: 1 });
  /** Names 20,000 addresses, 2 MB, behind a run that is not read. */
  const pend = async (inferlet: DeviceClient) => {
    const queue = inferlet.createQueue('tiny');
    const run = startRun(inferlet, queue);
    must(await run.next());
    inferlet.freeEmbeds(queue, range(0, 20_000));
    // Another queue, which does not wait for the run, shows whether the inferlet lives.
    return tagOf(await inferlet.synchronize(inferlet.createQueue('tiny')));
  };
  const many = Array.from({ length: 6 }, (_, i) => open(`many ${i}`, 'many'));
  const ends: string[] = [];
  for (const inferlet of many) ends.push(await pend(inferlet));
  assert.deepEqual(ends, ['ok', 'ok', 'ok', 'ok', 'limit-exceeded', 'limit-exceeded']);
  // The same tenant has room for an ordinary call, and another tenant for 2 MB.
  const small = open('small', 'many');
  assert.equal(tagOf(await small.synchronize(small.createQueue('tiny'))), 'ok');
  const other = open('other', 'other');
  assert.equal(await pend(other), 'ok');
  await Promise.all([...many, small, other].map((inferlet) => inferlet.close()));
  assert.equal(bytes.heap.total, 0);

  // 30,000 embeds count 3 MB: two inferlets fit into the tenant's 8 MiB, the third does not.
  const holders = Array.from({ length: 3 }, (_, i) => open(`holder ${i}`, 'many'));
  const tags: string[] = [];
  for (const inferlet of holders) {
    const queue = inferlet.createQueue('tiny');
    must(inferlet.allocateEmbeds(queue, 30_000));
    tags.push(tagOf(await inferlet.synchronize(queue)));
  }
  assert.deepEqual(tags, ['ok', 'ok', 'limit-exceeded']);
  await Promise.all(holders.map((inferlet) => inferlet.close()));
  assert.equal(bytes.heap.total, 0);
  await checkNeighbour(host, connection);
});

test('a connection on which too many inferlets are opened ends with the reason', async () => {
  await using host = await startTestHost({ host: { limits: { maxInferlets: 2 } } });
  const connection = await host.connect();
  const open = (arrival: number) => connection.openInferlet({ id: `${arrival}`, maxPages: 4, arrival });
  const [first] = [open(1), open(2), open(3)];
  const outcome = await first!.synchronize(first!.createQueue('tiny'));
  assert.match(outcome.tag === 'err' ? outcome.val.val : '', /\(overrun\): more than 2 inferlets are open/);
});
