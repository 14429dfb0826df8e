import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { SequenceInput } from '../../backends/backend.ts';
import { createReferenceBackend } from '../../backends/reference/index.ts';
import { mergedModel } from '../../backends/testing/merged-model.ts';
import type { LoadedAdapter } from '../../models/adapter.ts';
import type { StepRequest } from '../../protocol/client.ts';
import { BACKENDS } from '../../testing/backends.ts';
import {
  must,
  NONE,
  Oracle,
  range,
  startTestHost,
  type TestHost,
  type TestHostOptions,
  tagOf,
} from '../../testing/host.ts';
import { ids, same, Workbench } from '../../testing/workbench.ts';
import { wrapBackend } from '../../testing/wrapped-backend.ts';
import { Adapters } from './adapters.ts';
import { Meter, type Payer } from './meter.ts';

const ADAPTERS = {
  pirate: { seed: 3, rank: 3 },
  quiet: { seed: 4, rank: 1, targets: ['q_proj', 'v_proj', 'down_proj'] },
} as const;
/** Name of the adapter that computes; undefined for the model alone. */
type Who = keyof typeof ADAPTERS | undefined;
const ADAPTER_CHOICES: readonly Who[] = [undefined, 'pirate', 'quiet'];
/** Longer than three pages of eight. */
const TEXT = Array.from({ length: 30 }, (_, i) => (i * 37 + 11) % 96);

/** A host of a model with two adapters, and an oracle with merged weights for each adapter. */
async function start(options: TestHostOptions = {}) {
  const host = await startTestHost({ adapters: ADAPTERS, ...options });
  const oracles = new Map<Who, Oracle>([[undefined, await Oracle.of(host.model)]]);
  for (const [name, { directory }] of host.adapters) {
    const merged = await mergedModel(host.model, directory, join(host.directory, `merged-${name}`));
    oracles.set(name as Who, await Oracle.of(merged));
  }
  return { host, oracleOf: (who: Who) => oracles.get(who)!, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() };
}

async function bench(host: TestHost, oracle: Oracle, name: string): Promise<Workbench> {
  return new Workbench(host, oracle, await host.connect(), name);
}

function request(who: Who, tokens: readonly number[], from: number, pages: Uint32Array): StepRequest {
  return {
    tokens: Uint32Array.from(tokens),
    positions: range(from, from + tokens.length),
    inPages: pages,
    outPages: pages,
    mask: undefined,
    rows: 1,
    output: { tag: 'distributions', val: 5 },
    ...(who === undefined ? {} : { adapter: who }),
  };
}

async function askStep(b: Workbench, ...args: Parameters<typeof request>) {
  const { distributions, cachedTokens } = must(
    await b.inferlet.ask(b.queue, { op: 'step', request: request(...args) }),
  );
  return { distribution: distributions[0]!, cachedTokens };
}

/** Prefills a text in pages of its own and decodes greedily, one step per token. */
async function decode(b: Workbench, who: Who, prompt: readonly number[], count: number): Promise<number[]> {
  const pages = b.pages(Math.ceil((prompt.length + count) / 8));
  const decoded: number[] = [];
  let tokens = prompt;
  for (let from = 0; decoded.length < count; ) {
    const { distribution } = await askStep(b, who, tokens, from, pages);
    from += tokens.length;
    tokens = [distribution.tokens[0]!];
    decoded.push(tokens[0]!);
  }
  b.inferlet.freePages(b.queue, pages);
  return decoded;
}

for (const backend of BACKENDS) {
  test(`steps and forwards compute the same as a model with merged weights, whole and in chunks (${backend})`, async () => {
    await using made = await start({ backend, model: { maxBatchTokens: 7, prefixCache: false } });
    const { host, oracleOf } = made;
    for (const who of ['pirate', 'quiet'] as const) {
      const oracle = oracleOf(who);
      const b = await bench(host, oracle, who);
      assert.deepEqual(await decode(b, who, TEXT, 6), await oracle.greedy(TEXT, 6));
      // Embed, forward and distribution are calls here. The last two share one step, and the state goes through the model's own head.
      const pages = b.pages(4);
      const embeds = b.embeds(TEXT.length + 2);
      const [first, last] = [embeds[TEXT.length]!, embeds[TEXT.length + 1]!];
      b.inferlet.send(b.queue, {
        op: 'embed-text',
        tokens: Uint32Array.from(TEXT),
        positions: range(0, TEXT.length),
        embeds: embeds.slice(0, TEXT.length),
      });
      const before = host.host.engines[0]!.stats.fusedProjections;
      b.inferlet.send(b.queue, {
        op: 'forward',
        adapter: who,
        inPages: NONE,
        inEmbeds: embeds.slice(0, 5),
        outPages: pages,
        outEmbeds: ids(first),
      });
      const short = await b.inferlet.ask(b.queue, { op: 'next-distribution', embed: first, topK: 5 });
      same(must(short), await oracle.top(TEXT.slice(0, 5), [...range(0, 5)], 1, 5));
      assert.equal(host.host.engines[0]!.stats.fusedProjections - before, 1);
      const rest = embeds.slice(5, TEXT.length);
      b.inferlet.send(b.queue, {
        op: 'forward',
        adapter: who,
        inPages: pages,
        inEmbeds: rest,
        outPages: pages,
        outEmbeds: ids(last),
      });
      const expected = await oracle.top(TEXT, [...TEXT.keys()], 1, 5);
      same(must(await b.inferlet.ask(b.queue, { op: 'next-distribution', embed: last, topK: 5 })), expected);
      const scores = must(
        await b.inferlet.ask(b.queue, { op: 'log-probabilities', embed: last, tokens: expected.tokens }),
      );
      scores.forEach((score, i) => {
        assert.ok(Math.abs(score - expected.logProbabilities[i]!) < 1e-4);
      });
      // One step writes to a fork, and another one to the original.
      const fork = must(b.inferlet.sharePages(b.queue, pages));
      const forked = await askStep(b, who, [9], TEXT.length, fork);
      same(forked.distribution, await oracle.top([...TEXT, 9], [...range(0, 31)], 1, 5), 'a fork');
      const own = await askStep(b, who, [8], TEXT.length, pages);
      same(own.distribution, await oracle.top([...TEXT, 8], [...range(0, 31)], 1, 5), 'the original');
      await b.inferlet.close();
    }
  });

  test(`calls with different adapters and without one compute their own tokens, in shared batches if the backend can (${backend})`, async () => {
    const batches: (readonly SequenceInput[])[] = [];
    await using made = await start({
      backend,
      pageCount: 256,
      wrap: (inner) =>
        wrapBackend(inner, {
          forward: (batch) => {
            batches.push(batch);
            return inner.forward(batch);
          },
        }),
    });
    const { host, oracleOf } = made;
    const first = await bench(host, oracleOf(undefined), 'first');
    for (const name of Object.keys(ADAPTERS)) must(await first.inferlet.ask(first.queue, { op: 'load-adapter', name }));
    const texts = ADAPTER_CHOICES.flatMap((who) =>
      [0, 1, 2, 3].map((i) => ({ who, prompt: TEXT.map((token) => (token + 7 * i) % 96).slice(0, 9 + i) })),
    );
    const all = await Promise.all(
      texts.map(async ({ who, prompt }, i) => {
        const b = await bench(host, oracleOf(who), `text ${i}`);
        return decode(b, who, prompt, 8);
      }),
    );
    for (const [i, { who, prompt }] of texts.entries())
      assert.deepEqual(all[i], await oracleOf(who).greedy(prompt, 8), `${who ?? 'the model'}, text ${i}`);
    const kinds = batches.map((batch) => new Set(batch.map(({ adapter }) => adapter)).size);
    const mixesAdapters = backend === 'reference' || backend === 'cuda';
    assert.equal(Math.max(...kinds), mixesAdapters ? ADAPTER_CHOICES.length : 1, 'adapters of a batch');
    const shared = new Set(batches.filter(({ length }) => length > 1).map(([first]) => first?.adapter));
    if (!mixesAdapters) assert.equal(shared.size, ADAPTER_CHOICES.length, 'each variant had batches of several calls');
  });

  test(`a prefix is found only with the adapter that computed it (${backend})`, async () => {
    await using made = await start({ backend });
    const { host, oracleOf } = made;
    // In the second round, all tokens but the last come from the cache.
    for (const [round, cached] of [0, TEXT.length - 1].entries()) {
      for (const who of ADAPTER_CHOICES) {
        const b = await bench(host, oracleOf(who), `${who} ${round}`);
        const { distribution, cachedTokens } = await askStep(b, who, TEXT, 0, b.pages(5));
        same(distribution, await b.oracle.top(TEXT, [...TEXT.keys()], 1, 5), `${who} in round ${round}`);
        assert.equal(cachedTokens, cached, `${who} in round ${round}`);
      }
    }
    // A text that an adapter began may go on without the adapter, but the prefix tree does not cache the part without it.
    const b = await bench(host, oracleOf(undefined), 'mixed');
    const pages = b.pages(4);
    await askStep(b, 'pirate', TEXT.slice(0, 8), 0, pages);
    must(
      await b.inferlet.ask(b.queue, {
        op: 'export-pages',
        pages: pages.slice(0, 1),
        name: 'of-a-pirate',
        persistent: false,
      }),
    );
    const { prefix } = host.host.stats().models[0]!;
    const [mixed] = must(await b.inferlet.importPages(b.queue, 'of-a-pirate')).pages;
    const mixedPages = Uint32Array.of(mixed!, ...b.pages(3));
    const { distribution } = await askStep(b, undefined, TEXT.slice(8), 8, mixedPages);
    const alone = await b.oracle.top(TEXT, [...TEXT.keys()], 1, 5);
    assert.ok(Math.abs(distribution.logProbabilities[0]! - alone.logProbabilities[0]!) > 1e-3);
    assert.equal(host.host.stats().models[0]!.prefix.hitTokens, prefix.hitTokens);
    const later = await bench(host, oracleOf(undefined), 'later');
    same((await askStep(later, undefined, TEXT, 0, later.pages(5))).distribution, alone);
  });
}

test('adapters are listed, loaded once, and leave the device for others when it has no room', async () => {
  let loads = 0;
  const wrap: TestHostOptions['wrap'] = (inner) =>
    wrapBackend(inner, {
      loadAdapter: (adapter) => {
        loads++;
        return inner.loadAdapter(adapter);
      },
    });
  await using probe = await start();
  const room = probe.host.adapters.get('pirate')!.bytes;
  await using made = await start({ wrap, model: { adapterMemoryBytes: room } });
  const b = await bench(made.host, made.oracleOf('quiet'), 'x');
  const loaded = async () =>
    must(await b.inferlet.ask(b.queue, { op: 'list-adapters' })).map(
      ({ name, rank, loaded: there }) => `${name} ${rank} ${there}`,
    );
  assert.deepEqual(await loaded(), ['pirate 3 false', 'quiet 1 false']);
  const results = await Promise.all(
    [1, 2, 3].map(() => b.inferlet.ask(b.queue, { op: 'load-adapter', name: 'pirate' })),
  );
  assert.deepEqual(results.map(tagOf), ['ok', 'ok', 'ok']);
  assert.equal(loads, 1);
  assert.deepEqual(await loaded(), ['pirate 3 true', 'quiet 1 false']);
  assert.deepEqual(await decode(b, 'quiet', [5, 6, 7], 3), await b.oracle.greedy([5, 6, 7], 3));
  assert.equal(loads, 2);
  assert.deepEqual(await loaded(), ['pirate 3 false', 'quiet 1 true']);
  // Use both concurrently, again and again: each result is right, however often the adapters swap places.
  const names = ['pirate', 'quiet', 'pirate', 'quiet'] as const;
  const texts = await Promise.all(
    names.map(async (who, i) => decode(await bench(made.host, made.oracleOf(who), `both ${i}`), who, [9, 8, 7], 4)),
  );
  for (const [i, who] of names.entries()) assert.deepEqual(texts[i], await made.oracleOf(who).greedy([9, 8, 7], 4));
});

/** The adapters of a model, on a device that goes on with each read only when the test calls `go`. */
async function gatedAdapters({ model, adapters: known }: TestHost, maxBytes?: number) {
  const paid = new Map<Payer, number>();
  const spendEvenly = (ms: number, payers: readonly Payer[]) => {
    for (const payer of payers) paid.set(payer, (paid.get(payer) ?? 0) + ms / payers.length);
  };
  const backend = await createReferenceBackend(model, { pageSize: 8, pageCount: 1 });
  const reads: { readonly name: string; readonly go: () => void }[] = [];
  const released: string[] = [];
  const loadAdapter = async (adapter: LoadedAdapter) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const name = basename(adapter.directory).slice('adapter-'.length);
    reads.push({ name, go: resolve });
    await promise;
    return { ...(await backend.loadAdapter(adapter)), loadMs: 6, release: () => void released.push(name) };
  };
  return { adapters: new Adapters({ loadAdapter }, known, maxBytes, { spendEvenly }), reads, released, paid };
}

/** Yields to other tasks until `condition` holds. */
async function until(condition: () => boolean): Promise<void> {
  // Other threads read the files, so the duration is unknown. The test runner's limit is the deadline.
  while (!condition()) await setImmediate();
}

const spaceOf = (tenant: string) => ({ owner: { tenant }, port: { meter: new Meter(() => undefined) } });

test('an adapter that turns out too large for the device leaves it at once', async () => {
  await using made = await startTestHost({ adapters: ADAPTERS });
  const { bytes } = made.adapters.get('quiet')!;
  const backend = await createReferenceBackend(made.model, { pageSize: 8, pageCount: 1 });
  let released = 0;
  const loadAdapter = async (adapter: LoadedAdapter) => ({
    ...(await backend.loadAdapter(adapter)),
    bytes: bytes + 1,
    release: () => void released++,
  });
  const adapters = new Adapters({ loadAdapter }, made.adapters, bytes);
  await assert.rejects(adapters.load('quiet', spaceOf('a')), /may take/);
  assert.deepEqual([released, adapters.bytes], [1, 0]);
  await adapters.close();
});

test('adapters load one by one, tenants take turns, one load serves all requests, and a request ends with its inferlet', async () => {
  await using made = await startTestHost({ adapters: { ...ADAPTERS, third: { seed: 5, rank: 1 } } });
  const { adapters, reads, paid } = await gatedAdapters(made);
  const [first, second, other] = [spaceOf('a'), spaceOf('a'), spaceOf('b')];
  const ended = adapters.load('quiet', first);
  const loads = [
    ...[0, 1, 2].map(() => adapters.load('pirate', second)),
    adapters.load('third', second),
    adapters.load('quiet', other),
  ];
  adapters.forget(first);
  await assert.rejects(ended, /has ended/);
  for (const name of ['pirate', 'quiet', 'third']) {
    await until(() => reads.at(-1)?.name === name);
    reads.at(-1)?.go();
  }
  await Promise.all(loads);
  assert.equal(reads.length, 3);
  assert.deepEqual(
    [first, second, other].map(({ port }) => paid.get(port.meter)),
    [undefined, 12, 6],
    'each load takes 6 ms, which the inferlets that asked pay',
  );
  assert.ok(adapters.list().every(({ loaded }) => loaded));
  await assert.rejects(adapters.load('nobody', other), /no adapter named nobody/);
  await adapters.close();
});

test('an adapter stays while it is held, and a later request waits behind others that want its room', async () => {
  await using made = await startTestHost({ adapters: ADAPTERS });
  const { adapters, reads, released } = await gatedAdapters(made, made.adapters.get('pirate')!.bytes);
  const arrived: string[] = [];
  const want = (name: string, who: string) => ({
    name,
    space: spaceOf(who),
    arrived: () => arrived.push(who),
    failed: (why: unknown) => assert.fail(String(why)),
  });
  assert.equal(adapters.hold(want('pirate', 'one')), undefined);
  await until(() => reads.length === 1);
  reads[0]!.go();
  await until(() => arrived.length === 1);
  assert.ok(adapters.hold(want('pirate', 'two')), 'the adapter is on the device');
  assert.equal(adapters.hold(want('quiet', 'three')), undefined);
  await setImmediate();
  assert.equal(adapters.hold(want('pirate', 'four')), undefined, 'the adapter is about to leave');
  adapters.release('pirate');
  await setImmediate();
  assert.equal(reads.length, 1, '`two` still holds the adapter');
  adapters.release('pirate');
  await until(() => reads.length === 2);
  reads[1]!.go();
  await until(() => arrived.length === 2);
  adapters.release('quiet');
  await until(() => reads.length === 3);
  reads[2]!.go();
  await until(() => arrived.length === 3);
  assert.deepEqual(arrived, ['one', 'three', 'four']);
  assert.deepEqual(
    reads.map(({ name }) => name),
    ['pirate', 'quiet', 'pirate'],
  );
  assert.deepEqual(released, ['pirate', 'quiet'], 'the memory of adapters that left was freed at once');
});

test('an adapter that no inferlet wants by the end of its read is dropped', async () => {
  await using made = await startTestHost({ adapters: ADAPTERS });
  const { adapters, reads, released } = await gatedAdapters(made);
  const space = spaceOf('a');
  const ended = adapters.load('pirate', space);
  await until(() => reads.length === 1);
  adapters.forget(space);
  await assert.rejects(ended, /has ended/);
  reads[0]!.go();
  await adapters.close();
  assert.deepEqual(released, ['pirate']);
  assert.deepEqual([adapters.bytes, adapters.list().some(({ loaded }) => loaded)], [0, false]);
});

test('while an adapter is read other inferlets go on; an inferlet that ended while it waited holds nothing', async () => {
  const { promise: read, resolve } = Promise.withResolvers<void>();
  await using made = await start({
    wrap: (inner) =>
      wrapBackend(inner, {
        loadAdapter: async (adapter) => {
          await read;
          return inner.loadAdapter(adapter);
        },
      }),
  });
  const waits = await bench(made.host, made.oracleOf('pirate'), 'waits');
  const ends = await bench(made.host, made.oracleOf('pirate'), 'ends');
  let isDecoded = false;
  const text = decode(waits, 'pirate', [9, 8, 7], 3).finally(() => {
    isDecoded = true;
  });
  const ended = assert.rejects(askStep(ends, 'pirate', [1], 0, ends.pages(1)), /cancelled/);
  const plain = await bench(made.host, made.oracleOf(undefined), 'plain');
  assert.deepEqual(await decode(plain, undefined, [5, 6, 7], 3), await plain.oracle.greedy([5, 6, 7], 3));
  await ends.inferlet.close();
  await ended;
  assert.equal(isDecoded, false);
  resolve();
  assert.deepEqual(await text, await waits.oracle.greedy([9, 8, 7], 3));
});

test('a call whose adapter cannot be used reports the reason, and its dependents fail', async () => {
  await using probe = await start();
  // Room for the smaller adapter.
  const room = probe.host.adapters.get('quiet')!.bytes;
  await using made = await start({ model: { adapterMemoryBytes: room } });
  const b = await bench(made.host, made.oracleOf(undefined), 'x');
  const failure = async (name: string) => {
    const pages = b.pages(1);
    const outcome = await b.inferlet.ask(b.queue, {
      op: 'step',
      request: { ...request(undefined, [1, 2], 0, pages), adapter: name },
    });
    const after = await b.inferlet.ask(b.queue, { op: 'step', request: request(undefined, [3], 2, pages) });
    const embeds = b.embeds(2);
    b.inferlet.send(b.queue, { op: 'embed-text', tokens: ids(1), positions: ids(0), embeds: embeds.slice(0, 1) });
    b.inferlet.send(b.queue, {
      op: 'forward',
      adapter: name,
      inPages: NONE,
      inEmbeds: embeds.slice(0, 1),
      outPages: NONE,
      outEmbeds: embeds.slice(1),
    });
    const state = await b.inferlet.ask(b.queue, { op: 'next-distribution', embed: embeds[1]!, topK: 1 });
    const text = outcome.tag === 'err' ? outcome.val.val : '';
    await b.inferlet.synchronize(b.queue);
    const load = tagOf(await b.inferlet.ask(b.queue, { op: 'load-adapter', name }));
    return { codes: [outcome, after, state].map(tagOf), load, text };
  };
  const missing = await failure('nobody');
  assert.deepEqual(missing.codes, ['not-found', 'dependency-failed', 'dependency-failed']);
  assert.equal(missing.load, 'not-found');
  assert.match(missing.text, /no adapter named nobody; ask list-adapters/);
  const large = await failure('pirate');
  assert.deepEqual(large.codes, ['limit-exceeded', 'dependency-failed', 'dependency-failed']);
  assert.match(large.text, /MiB.*adapter_memory_mb/);
  await writeFile(join(made.host.adapters.get('quiet')!.directory, 'adapter_model.safetensors'), 'changed');
  const changed = await failure('quiet');
  assert.equal(changed.codes[0], 'unavailable');
  assert.match(changed.text, /was changed/);
  // Other inferlets go on.
  assert.deepEqual(await decode(b, undefined, [1, 2, 3], 3), await b.oracle.greedy([1, 2, 3], 3));

  await using bare = await startTestHost();
  const none = await bench(bare, await Oracle.of(bare.model), 'y');
  assert.equal(tagOf(await none.inferlet.ask(none.queue, { op: 'load-adapter', name: 'pirate' })), 'unsupported');
  assert.deepEqual(must(await none.inferlet.ask(none.queue, { op: 'list-adapters' })), []);
  assert.equal(none.connection.models[0]!.traits.includes('adapter'), false);
  assert.ok(b.connection.models[0]!.traits.includes('adapter'));
});
