import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BACKENDS } from '../testing/backends.ts';
import { GREEDY, generate, must, NONE, Oracle, range, startTestHost, type TestHost, tagOf } from '../testing/host.ts';
import { ids, same, Workbench } from '../testing/workbench.ts';
import { type Watched, watchBackend, wrapBackend } from '../testing/wrapped-backend.ts';

/** Tokens of a text that is longer than three pages of eight. */
const TEXT = Array.from({ length: 30 }, (_, i) => (i * 37 + 11) % 96);

async function bench(host: TestHost, name = 'x', tenant = 'default'): Promise<Workbench> {
  return new Workbench(host, await Oracle.of(host.model), await host.connect(), name, tenant);
}

function statsOf(host: TestHost) {
  return host.host.stats().models[0]!;
}

/** Prefills a text with one row of output; resolves with its distribution. */
async function prefill(b: Workbench, tokens: readonly number[], inPages?: Uint32Array, rows = 1) {
  const pages = b.pages(Math.ceil(tokens.length / 8) + 1);
  const result = must(
    await b.inferlet.ask(b.queue, {
      op: 'step',
      request: {
        tokens: Uint32Array.from(tokens),
        positions: range(0, tokens.length),
        inPages: inPages ?? pages,
        outPages: pages,
        mask: undefined,
        rows,
        output: { tag: 'distributions', val: 5 },
      },
    }),
  );
  return { pages, distributions: result.distributions };
}

for (const backend of BACKENDS) {
  test(`a prefix that was computed is not computed again, and gives the same tokens (${backend})`, async () => {
    await using host = await startTestHost({ backend });
    await using plain = await startTestHost({ backend, model: { prefixCache: false } });
    const counted: number[] = [];
    for (const each of [host, plain]) {
      const b = await bench(each);
      const expected = await b.oracle.top(TEXT, [...TEXT.keys()], 1, 5);
      same((await prefill(b, TEXT)).distributions[0]!, expected);
      const other = await bench(each, 'y');
      const { pages, distributions } = await prefill(other, TEXT);
      same(distributions[0]!, expected);
      same((await prefill(other, TEXT, NONE)).distributions[0]!, expected, 'without in-pages');
      same(
        await other.probe(pages, 7, TEXT.length),
        await b.oracle.top([...TEXT, 7], [...range(0, TEXT.length + 1)], 1, 5),
        'the pages are the text’s',
      );
      // Count before the generation: when it ends, the device may or may not have computed a guess of one more step.
      counted.push(statsOf(each).tokens);
      assert.deepEqual(await generate(other.inferlet, other.queue, TEXT, 6), await b.oracle.greedy(TEXT, 6));
    }
    // The second and third prefill, and that of the generation, take all but their last token from the cache.
    const cachedTokens = TEXT.length - 1;
    assert.equal(counted[1]! - counted[0]!, 2 * cachedTokens);
    assert.equal(statsOf(host).prefix.hitTokens, 3 * cachedTokens);
    assert.equal(statsOf(plain).prefix.hitTokens, 0);
  });

  test(`when a text departs from an earlier one inside a page, only the rest is computed, with the same tokens (${backend})`, async () => {
    await using host = await startTestHost({ backend });
    const b = await bench(host);
    await prefill(b, TEXT);
    // Two whole pages and five slots of the third are the same.
    const branch = [...TEXT.slice(0, 21), ...Array.from({ length: 6 }, (_, i) => (i * 13 + 5) % 96)];
    const other = await bench(host, 'y');
    const { pages, distributions } = await prefill(other, branch);
    same(distributions[0]!, await b.oracle.top(branch, [...branch.keys()], 1, 5));
    assert.equal(statsOf(host).prefix.hitTokens, 21);
    const positions = [...range(0, branch.length + 1)];
    same(await other.probe(pages, 7, branch.length), await b.oracle.top([...branch, 7], positions, 1, 5));
    // The cached keys of the first text have not changed.
    same((await prefill(other, TEXT)).distributions[0]!, await b.oracle.top(TEXT, [...TEXT.keys()], 1, 5));
    host.host.engines[0]!.memory.audit();
  });

  test(`a forward over token embeds uses the cache as well, and all rows that are asked for are computed (${backend})`, async () => {
    await using host = await startTestHost({ backend });
    const b = await bench(host);
    await prefill(b, TEXT);
    const before = statsOf(host).tokens;
    const pages = b.pages(4);
    const embeds = b.embeds(TEXT.length + 1);
    const inputs = embeds.slice(0, TEXT.length);
    const state = embeds[TEXT.length]!;
    b.inferlet.send(b.queue, {
      op: 'embed-text',
      tokens: Uint32Array.from(TEXT),
      positions: range(0, TEXT.length),
      embeds: inputs,
    });
    b.inferlet.send(b.queue, {
      op: 'forward',
      inPages: NONE,
      inEmbeds: inputs,
      outPages: pages,
      outEmbeds: ids(state),
    });
    const given = must(await b.inferlet.ask(b.queue, { op: 'next-distribution', embed: state, topK: 5 }));
    same(given, await b.oracle.top(TEXT, [...TEXT.keys()], 1, 5));
    assert.equal(statsOf(host).tokens - before, 1);
    const { distributions } = await prefill(b, TEXT, undefined, 10);
    const whole = await b.oracle.top(TEXT, [...TEXT.keys()], 10, 5);
    for (const [row, distribution] of distributions.entries())
      same(distribution, {
        tokens: whole.tokens.slice(row * 5, row * 5 + 5),
        logProbabilities: whole.logProbabilities.slice(row * 5, row * 5 + 5),
      });
    assert.equal(statsOf(host).tokens - before, 1 + 10, 'ten rows need ten inputs');
  });

  test(`32 equal prompts at once cost one prefill and a row each (${backend})`, async () => {
    const prompt = Array.from({ length: 200 }, (_, i) => (i * i * 7 + i * 31 + 5) % 96);
    for (const pageSize of [8, 16]) {
      await using host = await startTestHost({ backend, pageSize, pageCount: 900, shape: { contextLength: 256 } });
      const oracle = await Oracle.of(host.model);
      const connection = await host.connect();
      const guests = Array.from({ length: 32 }, (_, i) =>
        connection.openInferlet({ id: `guest ${i}`, maxPages: 40, arrival: i }),
      );
      const said = await Promise.all(guests.map((guest) => generate(guest, guest.createQueue('tiny'), prompt, 3)));
      const expected = await oracle.greedy(prompt, 3);
      for (const tokens of said) assert.deepEqual(tokens, expected);
      const { tokens, decodeTokens, prefix } = statsOf(host);
      // One prefill, the last input of the 31 other prompts, and two more steps of each guest.
      assert.equal(tokens, prompt.length + 31 + 32 * 2, `pages of ${pageSize}; ${decodeTokens} decoded`);
      assert.equal(prefix.hitTokens, 31 * (prompt.length - 1));
      await Promise.all(guests.map((guest) => guest.close()));
      host.host.engines[0]!.memory.audit();
    }
  });

  test(`the next turn of a conversation finds the decoded text in the cache (${backend})`, async () => {
    await using host = await startTestHost({ backend });
    const b = await bench(host);
    const pages = b.pages(8);
    must(await b.fill(pages, TEXT.slice(0, 5)));
    const run = b.inferlet.run(b.queue, {
      token: TEXT[5]!,
      position: 5,
      pages,
      maxTokens: 20,
      sampler: GREEDY,
      stopTokens: NONE,
    });
    const said: number[] = [];
    for (let finished: string | undefined; !finished; ) {
      const chunk = must(await run.next());
      said.push(...chunk.tokens);
      finished = chunk.finished;
    }
    const before = statsOf(host).tokens;
    const turn = [...TEXT.slice(0, 6), ...said, 50, 51];
    const { distributions } = await prefill(b, turn);
    same(distributions[0]!, await b.oracle.top(turn, [...turn.keys()], 1, 5));
    // Five inputs of the first turn and twenty of its run were computed.
    assert.equal(statsOf(host).tokens - before, turn.length - 25, 'inputs computed before came from the cache');
  });
}

test('cached tokens take no room in a batch', async () => {
  let watched: Watched | undefined;
  await using host = await startTestHost({
    model: { maxBatchTokens: 64 },
    wrap: (inner) => {
      watched = watchBackend(inner);
      return watched.backend;
    },
  });
  await prefill(await bench(host), TEXT);
  const { connection, oracle } = await bench(host, 'y');
  const guests = Array.from({ length: 8 }, (_, i) =>
    connection.openInferlet({ id: `guest ${i}`, maxPages: 8, arrival: i }),
  );
  const queues = guests.map((guest) => guest.createQueue('tiny'));
  // Allocate first: otherwise the host might begin the first steps while it still allocates pages for the others.
  const pages = guests.map((guest, i) => must(guest.allocatePages(queues[i]!, 4)));
  await Promise.all(guests.map((guest, i) => guest.synchronize(queues[i]!)));
  watched!.batches.length = 0;
  const answers = await Promise.all(
    guests.map((guest, i) => {
      const request = {
        tokens: Uint32Array.from(TEXT),
        positions: range(0, TEXT.length),
        inPages: pages[i]!,
        outPages: pages[i]!,
      };
      return guest.ask(queues[i]!, {
        op: 'step',
        request: { ...request, mask: undefined, rows: 1, output: { tag: 'distributions', val: 5 } },
      });
    }),
  );
  const expected = await oracle.top(TEXT, [...TEXT.keys()], 1, 5);
  for (const answer of answers) same(must(answer).distributions[0]!, expected);
  assert.deepEqual(
    watched!.batches.map((batch) => batch.map(({ positions }) => positions.length)),
    [new Array(8).fill(1)],
  );
});

test('a page that the cache loses while a batch is built is computed before the call that reads it', async () => {
  await using host = await startTestHost({ pageCount: 9 });
  const b = await bench(host);
  const { pages } = await prefill(b, TEXT.slice(0, 25));
  b.inferlet.freePages(b.queue, pages);
  const own = b.pages(1);
  must(await b.fill(own, [1, 2]));
  const fork = must(b.inferlet.sharePages(b.queue, own));
  const other = await bench(host, 'y');
  const theirs = other.pages(5);
  must(await other.inferlet.synchronize(other.queue));
  assert.equal(statsOf(host).pages.free, 0);
  assert.equal(statsOf(host).pages.cached, 3);
  // The first call's copy takes a cached page that the second call was to take.
  const [, , after] = await Promise.all([
    b.fill(fork, [3], 2),
    other.fill(theirs, TEXT),
    other.probe(theirs, 7, TEXT.length),
  ]);
  assert.equal(statsOf(host).prefix.evictions, 1);
  same(after, await b.oracle.top([...TEXT, 7], [...range(0, TEXT.length + 1)], 1, 5));
});

test('each tenant has its own cache', async () => {
  await using host = await startTestHost();
  await prefill(await bench(host), TEXT);
  await prefill(await bench(host, 'y', 'another'), TEXT);
  assert.equal(statsOf(host).prefix.hitTokens, 0);
});

test('a write into a page from the cache changes only the copy of the writer', async () => {
  await using host = await startTestHost();
  const b = await bench(host);
  await prefill(b, TEXT);
  const { pages } = await prefill(b, TEXT);
  b.inferlet.send(b.queue, {
    op: 'copy-slots',
    source: pages[0]!,
    sourceOffset: 3,
    destination: pages[0]!,
    destinationOffset: 0,
    count: 2,
    shift: 0,
  });
  must(await b.inferlet.synchronize(b.queue));
  const { distributions } = await prefill(b, TEXT);
  same(distributions[0]!, await b.oracle.top(TEXT, [...TEXT.keys()], 1, 5));
});

test('calls that are not plain text neither take pages from the cache nor add any', async () => {
  await using host = await startTestHost();
  const b = await bench(host);
  await prefill(b, TEXT);
  const tokens = Uint32Array.from(TEXT);
  const rest = { tokens, inPages: NONE, mask: undefined, rows: 0, output: { tag: 'none' } } as const;
  must(
    await b.inferlet.ask(b.queue, { op: 'step', request: { ...rest, positions: range(1, 31), outPages: b.pages(4) } }),
  );
  must(
    await b.inferlet.ask(b.queue, {
      op: 'step',
      request: { ...rest, positions: range(0, 30).reverse(), outPages: b.pages(4) },
    }),
  );
  const fork = b.pages(4);
  b.inferlet.send(b.queue, { op: 'mask-page', page: fork[0]!, slots: 1 });
  must(await b.inferlet.ask(b.queue, { op: 'step', request: { ...rest, positions: range(0, 30), outPages: fork } }));
  // An explicit causal mask: input `i` sees the inputs up to itself.
  const runs: number[] = [];
  for (let i = 0; i < 30; i++) runs.push(0, i + 1, 29 - i);
  const mask = { runs: Uint32Array.from(runs), rowLengths: new Uint32Array(30).fill(3) };
  must(
    await b.inferlet.ask(b.queue, {
      op: 'step',
      request: { ...rest, positions: range(0, 30), outPages: b.pages(4), mask },
    }),
  );
  assert.equal(statsOf(host).prefix.hitTokens, 0);
  assert.equal(statsOf(host).tokens, 5 * 30, 'the first prefill and the four calls computed all their inputs');
  assert.equal(tagOf(await b.inferlet.synchronize(b.queue)), 'ok');
});

test('the cache gives way before any inferlet does', async () => {
  await using host = await startTestHost({ pageCount: 12 });
  const b = await bench(host);
  const { pages } = await prefill(b, TEXT);
  b.inferlet.freePages(b.queue, pages);
  must(await b.inferlet.synchronize(b.queue));
  assert.equal(statsOf(host).pages.cached, 3);
  const all = b.pages(12);
  must(await b.inferlet.synchronize(b.queue));
  assert.equal(statsOf(host).pages.cached, 0);
  assert.equal(statsOf(host).prefix.evictions, 3);
  b.inferlet.freePages(b.queue, all);
  await b.inferlet.close();
  assert.equal(statsOf(host).pages.free, 12);
});

test('a call that fails after it has taken from the cache leaves its pages as they were', async () => {
  let isBroken = false;
  await using host = await startTestHost({
    wrap: (inner) =>
      wrapBackend(inner, {
        forward: (batch) => (isBroken ? Promise.reject(new Error('bus error')) : inner.forward(batch)),
      }),
  });
  const b = await bench(host);
  await prefill(b, TEXT);
  const own = b.pages(5);
  must(await b.fill(own, TEXT.slice(0, 3)));
  isBroken = true;
  const failed = await Promise.all([b.fill(own, TEXT.slice(3, 25), 3), b.fill(own, TEXT.slice(25), 25)]);
  assert.deepEqual(failed.map(tagOf), ['internal', 'internal']);
  isBroken = false;
  await b.inferlet.synchronize(b.queue);
  const other = [...TEXT.slice(0, 3), ...TEXT.slice(3).reverse()];
  must(await b.fill(own, other.slice(3), 3));
  same(
    await b.probe(own, 7, other.length),
    await b.oracle.top([...other, 7], [...range(0, other.length + 1)], 1, 5),
    'another text goes on from the same place',
  );
  same((await prefill(b, TEXT)).distributions[0]!, await b.oracle.top(TEXT, [...TEXT.keys()], 1, 5));
  await b.inferlet.close();
  host.host.engines[0]!.memory.audit();
});
