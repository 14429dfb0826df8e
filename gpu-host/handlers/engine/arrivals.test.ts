import assert from 'node:assert/strict';
import { must, NONE, range, tagOf } from '../../testing/host.ts';
import { ids, onOneBackend, PROMPT, Workbench } from '../../testing/workbench.ts';
import type { HostCall } from '../calls/call.ts';

const MANY = 2000;

/** Allocates, writes and frees many embeds. Each of the three calls has many addresses. */
function sendLong(b: Workbench): Uint32Array {
  const embeds = b.embeds(MANY);
  b.embedText(new Uint32Array(MANY).fill(7), range(0, MANY), embeds);
  b.inferlet.freeEmbeds(b.queue, embeds);
  return embeds;
}

/** Counts the long embed-text calls that the host receives (`read`), and the long calls that `submit` orders at once, not in a gap (`atOnce`). */
function watchOrdering(b: Workbench): Disposable & { read: number; atOnce: number } {
  const engine = b.host.host.engines[0]!;
  const { batcher } = engine;
  let isReading = false;
  const counts = { read: 0, atOnce: 0 };
  const submit = engine.submit.bind(engine);
  const push = batcher.push.bind(batcher);
  engine.submit = (queue, id, operation, bytes) => {
    if (operation.op === 'embed-text' && operation.tokens.length === MANY) counts.read++;
    isReading = true;
    submit(queue, id, operation, bytes);
    isReading = false;
  };
  batcher.push = (call, nowMs) => {
    // A call without other unfinished calls of its space needs no ordering.
    if (isReading && (call as HostCall).hasManyAddresses && call.queue.scoreboard.size > 0) counts.atOnce++;
    push(call, nowMs);
  };
  return Object.assign(counts, {
    [Symbol.dispose]: () => {
      Reflect.deleteProperty(engine, 'submit');
      Reflect.deleteProperty(batcher, 'push');
    },
  });
}

/** Collects the calls that the batcher gets. */
function watchPushes(b: Workbench): Disposable & { readonly calls: readonly HostCall[] } {
  const { batcher } = b.host.host.engines[0]!;
  const push = batcher.push.bind(batcher);
  const calls: HostCall[] = [];
  batcher.push = (call, nowMs) => {
    calls.push(call as HostCall);
    push(call, nowMs);
  };
  return { calls, [Symbol.dispose]: () => Reflect.deleteProperty(batcher, 'push') };
}

onOneBackend('calls with many addresses', (handler) => {
  handler('keep their place among the calls of their inferlet', async (b) => {
    void b.fill(b.pages(2), PROMPT);
    const embeds = sendLong(b);
    // This call comes while the long calls wait, and must find the embeds freed.
    b.embedText(ids(7), ids(0), embeds.subarray(0, 1));
    const outcome = await b.inferlet.synchronize(b.queue);
    assert.equal(tagOf(outcome), 'not-owned');
    const fresh = sendLong(b);
    assert.equal(fresh.length, MANY);
    must(await b.inferlet.synchronize(b.queue));
  });

  handler('are told apart from calls with other long lists, which count as long, too', async (b) => {
    using pushed = watchPushes(b);
    const [from, to] = [b.pages(2), b.pages(1)];
    must(await b.fill(from, PROMPT));
    const many = new Uint32Array(MANY);
    b.send({ op: 'copy-tokens', sources: from, indices: many, destinations: to, positions: NONE });
    const [embed] = b.embeds(1);
    const scores = b.ask({ op: 'log-probabilities', embed: embed!, tokens: many });
    const mask = { runs: many, rowLengths: ids(1) };
    const refused = assert.rejects(b.probe(from, 7, PROMPT.length, mask), /invalid-argument/);
    assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'context-overflow');
    assert.equal(tagOf(await scores), 'invalid-argument');
    await refused;
    const long = pushed.calls.filter(({ isLong }) => isLong);
    assert.deepEqual(
      long.map(({ kind }) => kind),
      ['idle', 'project', 'forward'],
    );
    assert.ok(long.every(({ hasManyAddresses }) => !hasManyAddresses));
  });

  handler('do not hold up another tenant, and their inferlet may end before their turn', async (b) => {
    using counts = watchOrdering(b);
    const other = new Workbench(b.host, b.oracle, b.connection, 'other', 'neighbour');
    const pages = other.pages(2);
    void other.fill(pages, PROMPT);
    void b.fill(b.pages(2), PROMPT);
    for (let i = 0; i < 20; i++) sendLong(b);
    const synchronized = b.inferlet.synchronize(b.queue);
    await other.probe(pages, 7, PROMPT.length);
    await b.inferlet.close();
    await synchronized;
    await other.probe(pages, 7, PROMPT.length);
    assert.deepEqual(
      [counts.read, counts.atOnce],
      [20, 0],
      'the host reads the calls behind a long call before it orders the long call',
    );
  });
});
