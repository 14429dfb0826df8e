import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { createTokenStream } from '#gpu-host/models/token-stream.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import type { Piped, RunChunk } from '#wit/generated/host.ts';
import { TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { value } from '../../testing/outcome.ts';
import type { GrantedModel } from '../device/granted.ts';
import type { Inferlet } from '../session/inferlet.ts';
import type { EventSink } from '../session/session-state.ts';
import type { RunResource } from './fused.ts';

const wordOf = (id: number) => Buffer.from(` ${id}`);
const tokenizer = { stream: () => createTokenStream(wordOf, false) } as GrantedModel['tokenizer'];

/** A connection to a GPU host; both end with the test. */
async function connected(t: TestContext): Promise<GpuHostConnection> {
  const host = await TestGpuHost.start();
  t.after(() => host.stop());
  const connection = await GpuHostConnection.connect(host.address);
  t.after(() => connection.close());
  return connection;
}

/** A tenant's token quota with a single inferlet. */
class Quota {
  readonly hooks = { askForTokens: () => void setImmediate(() => this.answer()) };
  limit: number | null;
  readonly refuses: boolean;
  tokens: Inferlet['tokens'] | undefined;

  /** @param refuses false to let the inferlet wait when the limit has no room */
  constructor(limit: number | null, refuses = true) {
    this.limit = limit;
    this.refuses = refuses;
  }

  open(guest: TestInferlet): TestInferlet {
    this.tokens = guest.inferlet.tokens;
    this.tokens.grant(this.limit);
    return guest;
  }

  answer(): void {
    const { tokens, limit } = this;
    if (!tokens) return;
    const { need } = tokens.ask();
    if (limit === null || need <= limit) tokens.grant(limit);
    else if (this.refuses) tokens.refuseQuota(handlerError('limit-exceeded', `quota tokens: ${need} of ${limit}`));
  }
}

test('a fused run keeps its queue open until the run is dropped', async (t) => {
  const connection = await connected(t);
  const guest = new TestInferlet(connection);
  const { queue } = guest;
  const queues = async () => (await connection.stats()).models[0]?.queues;
  const next = (run: RunResource) => guest.call<Promise<Outcome<RunChunk>>>('fused', '[method]run.next', run);
  const start = (maxTokens: number) => {
    const pages = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', queue, 8));
    const sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };
    const request = { token: 1, position: 0, pages, maxTokens, sampler, stopTokens: new Uint32Array(0) };
    return guest.call<RunResource>('fused', '[constructor]run', queue, request);
  };
  const [first, second] = [start(80), start(80)];
  guest.call('queue', '[resource-drop]queue', queue);
  for (const run of [first, second]) {
    for (let finished: string | undefined; !finished; ) finished = value(await next(run)).finished;
  }
  // Repeated drops of a run release its queue only once.
  for (let i = 0; i < 3; i++) guest.call('fused', '[resource-drop]run', first);
  value(await queue.settle());
  assert.equal(await queues(), 1, 'the second run keeps the queue');
  guest.call('fused', '[resource-drop]run', second);
  // The queue closes after its calls.
  while ((await queues()) !== 0);
  assert.equal(connection.connected, true);
  await guest.end();
});

test('decoded tokens count even when the inferlet does not read them', async (t) => {
  const connection = await connected(t);
  const sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };
  const decoded = async (end: (guest: TestInferlet, run: RunResource) => unknown) => {
    const guest = new TestInferlet(connection, { model: { tokenizer }, tokens: 100 });
    const pages = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, 4));
    const request = { token: 1, position: 0, pages, maxTokens: 64, sampler, stopTokens: new Uint32Array(0) };
    const run = guest.call<RunResource>('fused', '[constructor]run', guest.queue, request);
    value(await guest.queue.settle());
    await end(guest, run);
    assert.deepEqual([guest.inferlet.inputTokens, guest.inferlet.outputTokens], [64, 64]);
    const another = await guest.call<RunResource>('fused', '[constructor]run', guest.queue, request).next();
    assert.equal(another.tag === 'err' && another.val.tag, 'limit-exceeded');
    await guest.end();
  };
  const drop = (guest: TestInferlet, run: RunResource): void => guest.call('fused', '[resource-drop]run', run);
  await decoded(drop);
  await decoded((guest) => guest.end());
  await decoded(async (guest, run) => {
    const pipe = { before: new Uint32Array(0), held: '', stops: [] };
    const piped = guest.call<Promise<Outcome<Piped>>>('fused', '[method]run.pipe', run, pipe);
    drop(guest, run);
    await piped;
  });
});

test('a fused run cut short by the quota continues after a new allowance, or ends with limit-exceeded', async (t) => {
  const connection = await connected(t);
  const begin = (limit: number | null, refuses = true) => {
    const quota = new Quota(limit, refuses);
    const guest = quota.open(new TestInferlet(connection, { hooks: quota.hooks }));
    const pages = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, 4));
    const sampler = { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 5 };
    const request = { token: 1, position: 0, pages, maxTokens: 40, sampler, stopTokens: new Uint32Array(0) };
    const run = guest.call<RunResource>('fused', '[constructor]run', guest.queue, request);
    // Lists are views of the guest's memory, which the guest may change later.
    pages.fill(0);
    return { guest, run, quota };
  };
  const decode = async ({ guest, run }: ReturnType<typeof begin>) => {
    const tokens: number[] = [];
    for (;;) {
      const chunk = await guest.call<Promise<Outcome<RunChunk>>>('fused', '[method]run.next', run);
      if (chunk.tag === 'err') return { tokens, end: `${chunk.val.tag}: ${chunk.val.val}` };
      tokens.push(...chunk.val.tokens);
      if (chunk.val.finished) return { tokens, end: chunk.val.finished };
    }
  };
  const free = begin(null);
  const whole = await decode(free);
  assert.deepEqual([whole.tokens.length, whole.end], [40, 'max-tokens']);

  // A decoded token takes two tokens of the quota, so 21 have room for 10 decoded tokens.
  const resumed = begin(21, false);
  const raise = (limit: number) => {
    resumed.quota.limit = limit;
    resumed.quota.answer();
  };
  // A ceiling counts from the start of the inferlet: one of 51 has room for 25 tokens.
  raise(51);
  const first = await resumed.guest.call<Promise<Outcome<RunChunk>>>('fused', '[method]run.next', resumed.run);
  raise(1000);
  // A refused call is not on the queue, so it does not end the run.
  const refused = resumed.guest.call<Outcome<Uint32Array>>(
    'allocate',
    'allocate-pages',
    resumed.guest.queue,
    1_000_000,
  );
  assert.equal(refused.tag, 'err');
  const rest = await decode(resumed);
  assert.deepEqual(
    { ...rest, tokens: [...value(first).tokens, ...rest.tokens] },
    whole,
    'the tokens equal those of a single run',
  );
  assert.deepEqual([resumed.guest.inferlet.inputTokens, resumed.guest.inferlet.outputTokens], [40, 40]);

  const short = begin(21);
  const cut = await decode(short);
  assert.deepEqual(cut.tokens, whole.tokens.slice(0, 10));
  assert.equal(cut.end, 'limit-exceeded: quota tokens: 22 of 21');
  assert.deepEqual([short.guest.inferlet.inputTokens, short.guest.inferlet.tokens.charged], [10, 20]);

  const overtaken = begin(21);
  // `settle` is a later call on the queue of the run.
  value(await overtaken.guest.queue.settle());
  overtaken.quota.limit = 1000;
  overtaken.quota.answer();
  assert.match((await decode(overtaken)).end, /^limit-exceeded: .* other calls have been made on its queue since$/);

  const stopped = begin(21);
  stopped.guest.call('fused', '[method]run.stop', stopped.run);
  assert.equal((await decode(stopped)).end, 'stopped');
  for (const { guest } of [free, resumed, short, overtaken, stopped]) await guest.end();
});

test('a run that is dropped while the quota holds it is not sent', async (t) => {
  const connection = await connected(t);
  const quota = new Quota(1, false);
  const guest = quota.open(new TestInferlet(connection, { hooks: quota.hooks }));
  const pages = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, 4));
  const sampler = { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 5 };
  const start = (token: number) => {
    const request = { token, position: 0, pages, maxTokens: 40, sampler, stopTokens: new Uint32Array(0) };
    return guest.call<RunResource>('fused', '[constructor]run', guest.queue, request);
  };
  const [dropped, kept] = [start(1), start(2)];
  assert.equal(guest.inferlet.tokens.isHeld, true);
  guest.call('fused', '[resource-drop]run', dropped);
  quota.limit = 1000;
  quota.answer();
  for (let finished: string | undefined; !finished; )
    finished = value(await guest.call<Promise<Outcome<RunChunk>>>('fused', '[method]run.next', kept)).finished;
  guest.call('fused', '[resource-drop]run', kept);
  value(await guest.queue.settle());
  await guest.end();
  assert.deepEqual([guest.inferlet.inputTokens, guest.inferlet.outputTokens], [40, 40]);
  assert.equal((await connection.stats()).models[0]?.tokens, 40, 'the device has computed the other run alone');
});

test('a second next or pipe before the answer to the first is refused, and the run continues after a new allowance', async (t) => {
  const guest = new TestInferlet(await connected(t), { model: { tokenizer } });
  const allow = (ceiling: number) => guest.inferlet.tokens.grant(ceiling);
  allow(21);
  const pages = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, 4));
  const sampler = { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 5 };
  const request = { token: 1, position: 0, pages, maxTokens: 40, sampler, stopTokens: new Uint32Array(0) };
  const run = guest.call<RunResource>('fused', '[constructor]run', guest.queue, request);
  const next = () => guest.call<Promise<Outcome<RunChunk>>>('fused', '[method]run.next', run);
  const pipe = { before: new Uint32Array(0), held: '', stops: [] };
  allow(1000);
  const first = next();
  const others = [next(), guest.call<Promise<Outcome<Piped>>>('fused', '[method]run.pipe', run, pipe)];
  for (const outcome of await Promise.all(others)) {
    assert.equal(outcome.tag === 'err' ? outcome.val.tag : 'ok', 'invalid-argument');
  }
  const chunks = [value(await first)];
  while (!chunks.at(-1)?.finished) chunks.push(value(await next()));
  const count = chunks.reduce((sum, { tokens }) => sum + tokens.length, 0);
  assert.deepEqual([count, chunks.at(-1)?.finished], [40, 'max-tokens']);
  await guest.end();
});

test('a run with penalties that continues after a cut by the quota still penalizes the tokens before the cut', async (t) => {
  const connection = await connected(t);
  const decode = async (left: number | null, banned: number) => {
    const guest = new TestInferlet(connection);
    guest.inferlet.tokens.grant(left);
    const pages = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, 4));
    const sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };
    const request = { token: 1, position: 0, pages, maxTokens: 40, sampler, stopTokens: new Uint32Array(0) };
    const biases = { biasTokens: Uint32Array.of(banned), biasValues: Float32Array.of(Number.NEGATIVE_INFINITY) };
    const lists = { ...biases, chosen: Uint32Array.of(3) };
    const changes = { frequency: 0, presence: 50, ...lists };
    const run = guest.call<RunResource>('penalties', 'start-run', guest.queue, request, changes);
    // Lists are views of the guest's memory, which the guest may change later.
    for (const list of [pages, ...Object.values(lists)]) list.fill(0);
    const tokens: number[] = [];
    for (let finished: string | undefined; !finished; ) {
      // Each ceiling counts from the start, so it also covers the tokens that were decoded so far.
      guest.inferlet.tokens.grant(left === null ? null : left + 2 * tokens.length);
      const chunk = value(await guest.call<Promise<Outcome<RunChunk>>>('fused', '[method]run.next', run));
      tokens.push(...chunk.tokens);
      finished = chunk.finished;
    }
    await guest.end();
    return tokens;
  };
  // Ban a token that would come after several cuts: the ban must still hold then.
  const lateToken = (await decode(null, 3))[30] ?? 0;
  const whole = await decode(null, lateToken);
  assert.equal(new Set(whole).size, 40, 'no token twice');
  assert.ok(!whole.includes(3) && !whole.includes(lateToken));
  assert.deepEqual(await decode(16, lateToken), whole);

  const { summary } = new TestInferlet(connection).queue.model ?? {};
  assert.ok(summary);
  const older = new TestInferlet(connection, { model: { summary: { ...summary, traits: ['allocate', 'fused'] } } });
  const none = new Uint32Array();
  const sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };
  const request = { token: 1, position: 0, pages: none, maxTokens: 4, sampler, stopTokens: none };
  const changes = { frequency: 1, presence: 0, biasTokens: none, biasValues: new Float32Array(), chosen: none };
  const refused = await older.call<RunResource>('penalties', 'start-run', older.queue, request, changes).next();
  assert.equal(refused.tag === 'err' && refused.val.tag, 'unsupported', 'a host without the trait has no such runs');
});

test('a run with penalties continues past 8,192 chosen tokens after a cut; no run may start with more', async (t) => {
  const guest = new TestInferlet(await connected(t));
  const allow = (ceiling: number) => guest.inferlet.tokens.grant(ceiling);
  allow(9);
  const pages = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, 4));
  const sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 0 };
  const request = { token: 1, position: 0, pages, maxTokens: 10, sampler, stopTokens: new Uint32Array(0) };
  const biases = { biasTokens: new Uint32Array(0), biasValues: new Float32Array(0) };
  const start = (chosen: number) => {
    const changes = { frequency: 0, presence: 50, ...biases, chosen: new Uint32Array(chosen).fill(3) };
    const run = guest.call<RunResource>('penalties', 'start-run', guest.queue, request, changes);
    return () => guest.call<Promise<Outcome<RunChunk>>>('fused', '[method]run.next', run);
  };
  const next = start(8190);
  // The device gets a run of four tokens.
  allow(9);
  allow(1000);
  const tokens: number[] = [];
  for (let finished: string | undefined; !finished; ) {
    const chunk = value(await next());
    tokens.push(...chunk.tokens);
    finished = chunk.finished;
  }
  assert.equal(new Set([3, ...tokens]).size, 11, 'no token twice');
  const refused = await start(8193)();
  assert.match(refused.tag === 'err' ? `${refused.val.tag} ${refused.val.val}` : 'ok', /^limit-exceeded 8193 chosen/);
  await guest.end();
});

test('the lists of runs that a quota cuts take at most 32 MiB, which are freed when the runs end or are dropped', async (t) => {
  const connection = await connected(t);
  const guest = new TestInferlet(connection);
  const { outgoing, tokens } = guest.inferlet;
  tokens.grant(50);
  const sampler = { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 5 };
  const start = (pages: Uint32Array) => {
    const request = { token: 1, position: 0, pages, maxTokens: 40, sampler, stopTokens: new Uint32Array(0) };
    return guest.call<RunResource>('fused', '[constructor]run', guest.queue, request);
  };
  const next = (run: RunResource) => guest.call<Promise<Outcome<RunChunk>>>('fused', '[method]run.next', run);
  // Each list has 8 MiB, so four runs reach the bound.
  const runs = Array.from({ length: 5 }, () => start(new Uint32Array(2 << 20)));
  assert.equal(outgoing.bytes, 32 << 20);
  const [firstRun = assert.fail()] = runs;
  const refused = await next(runs.at(-1) ?? assert.fail());
  assert.match(refused.tag === 'err' ? refused.val.val : '', /4 calls with 33554432 bytes are under way/);
  // The GPU host refuses lists of this length.
  assert.equal((await next(firstRun)).tag, 'err');
  assert.equal(outgoing.bytes, 24 << 20);
  for (const run of runs) guest.call('fused', '[resource-drop]run', run);
  assert.deepEqual([outgoing.bytes, outgoing.calls], [0, 0]);
  const pages = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, 4));
  const whole = start(pages);
  assert.equal(outgoing.calls, 1);
  tokens.grant(null);
  for (let finished: string | undefined; !finished; ) finished = value(await next(whole)).finished;
  assert.deepEqual([outgoing.bytes, outgoing.calls], [0, 0]);
  await guest.end();
});

test('a piped run streams its text while the guest sleeps, waits for room, and returns the sent text', async (t) => {
  const connection = await connected(t);
  const textOf = (tokens: Iterable<number>) => [...tokens].map((id) => ` ${id}`).join('');
  const begin = (sink: Partial<EventSink> = {}, hooks = {}) => {
    const sent: string[] = [];
    const add = (_event: string, data: string) => void sent.push(JSON.parse(data).text);
    const defaultSink = { pendingBytes: 0, add, flushed: () => Promise.resolve(true) };
    const completeSink = Object.defineProperties(defaultSink, Object.getOwnPropertyDescriptors(sink));
    const guest = new TestInferlet(connection, { model: { tokenizer }, sink: completeSink, hooks });
    const start = (stopTokens: readonly number[] = []) => {
      const pages = value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, 4));
      const sampler = { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 5 };
      const tokens = { token: 1, position: 0, pages, maxTokens: 40, stopTokens: Uint32Array.from(stopTokens) };
      return guest.call<RunResource>('fused', '[constructor]run', guest.queue, { ...tokens, sampler });
    };
    const pipe = (run: RunResource, stops: readonly string[] = []) => {
      const request = { before: new Uint32Array(0), held: '', stops };
      return guest.call<Promise<Outcome<Piped>>>('fused', '[method]run.pipe', run, request);
    };
    return { guest, sent, start, pipe };
  };

  const free = begin();
  const whole = value(await free.pipe(free.start()));
  const tokens = [...whole.tokens];
  assert.deepEqual([tokens.length, whole.finished, whole.text], [40, 'max-tokens', textOf(tokens)]);
  assert.equal(free.sent.join(''), whole.text);
  assert.equal(free.guest.inferlet.outputTokens, 40);

  const stopped = begin();
  const stop = `${textOf(tokens.slice(20, 22))} `;
  const cut = value(await stopped.pipe(stopped.start(), ['never', stop]));
  const stopStart = textOf(tokens).indexOf(stop);
  assert.deepEqual([cut.text, cut.stop, cut.finished], [textOf(tokens).slice(0, stopStart), stop, undefined]);
  assert.deepEqual([...cut.tokens], tokens.slice(0, cut.tokens.length));
  assert.equal(stopped.sent.join(''), cut.text);
  assert.equal(stopped.guest.inferlet.outputTokens, cut.tokens.length, 'discarded tokens are not charged');

  const ended = begin();
  const stopTokenIndex = tokens.findIndex((token, index) => index > 5 && tokens.indexOf(token) === index);
  const upTo = value(await ended.pipe(ended.start([tokens[stopTokenIndex] as number])));
  assert.deepEqual([upTo.finished, upTo.text], ['stop-token', textOf(tokens.slice(0, stopTokenIndex))]);
  assert.deepEqual([...upTo.tokens], tokens.slice(0, stopTokenIndex + 1));

  const twice = begin();
  const sharedRun = twice.start();
  const [first, second] = await Promise.all([twice.pipe(sharedRun), twice.pipe(sharedRun)]);
  assert.equal(value(first).text, textOf(tokens), 'a second pipe does not affect the first');
  assert.equal(second.tag === 'err' ? second.val.tag : 'ok', 'invalid-argument');

  const cancelled = begin();
  const cancelledRun = cancelled.start();
  const cancelledPipe = cancelled.pipe(cancelledRun);
  cancelled.guest.inferlet.stop({ tag: 'cancelled', val: 'by the test' });
  const cancelledResult = value(await cancelledPipe);
  assert.deepEqual(
    [cancelledResult.text, cancelledResult.finished],
    [cancelled.sent.join(''), cancelledResult.tokens.length === 40 ? 'max-tokens' : 'stopped'],
  );
  const afterCancel = await cancelled.pipe(cancelledRun);
  assert.equal(afterCancel.tag === 'err' ? afterCancel.val.tag : 'ok', 'cancelled');

  const quota = new Quota(21);
  const limited = begin({}, quota.hooks);
  quota.open(limited.guest);
  const run = limited.start();
  const part = value(await limited.pipe(run));
  assert.deepEqual(
    [part.finished, part.text, [...part.tokens]],
    [undefined, textOf(tokens.slice(0, 10)), tokens.slice(0, 10)],
  );
  const refused = await limited.pipe(run);
  assert.match(refused.tag === 'err' ? `${refused.val.val}` : 'ok', /^quota tokens: /);

  // The second character of the text belongs to the first token.
  const earlyStop = textOf(tokens).charAt(1);
  let isFull = true;
  const ahead = begin({
    get pendingBytes() {
      return isFull ? 2 ** 20 : 0;
    },
    // The device decodes all tokens while the text before the stop string waits for room.
    flushed: async () => {
      value(await ahead.guest.queue.settle());
      isFull = false;
      return true;
    },
  });
  const early = ahead.start();
  assert.equal(value(await ahead.pipe(early, [earlyStop])).tokens.length, 1);
  ahead.guest.call('fused', '[resource-drop]run', early);
  assert.equal(ahead.guest.inferlet.outputTokens, 1, 'tokens decoded after the stop string are not charged');

  const unread = begin();
  const decoded = unread.start();
  value(await unread.guest.queue.settle());
  assert.equal(value(await unread.pipe(decoded, [earlyStop])).tokens.length, 1);
  unread.guest.call('fused', '[resource-drop]run', decoded);
  assert.equal(unread.guest.inferlet.outputTokens, 40, 'tokens decoded before the pipe are charged');

  let waitingBytes = 2 ** 20;
  const flushed = async () => {
    await new Promise(setImmediate);
    waitingBytes = 0;
    return true;
  };
  const sink = {
    get pendingBytes() {
      return waitingBytes;
    },
    flushed,
  };
  const waiting = begin(sink);
  assert.equal(value(await waiting.pipe(waiting.start())).text, waiting.sent.join(''), 'the run waits for room');

  const closed = begin({ pendingBytes: 2 ** 20, flushed: () => Promise.resolve(false) });
  const closedRun = closed.start();
  assert.equal(value(await closed.pipe(closedRun)).text, '', 'no text was sent');
  const afterClose = await closed.pipe(closedRun);
  assert.equal(afterClose.tag === 'err' ? afterClose.val.tag : 'ok', 'closed');
  for (const { guest } of [free, stopped, ended, twice, cancelled, limited, ahead, unread, waiting, closed])
    await guest.end();
});
