import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { CollectedLog, silentLog } from '#scheduler/testing/log.ts';
import { Random } from '../backends/testing/scenario.ts';
import type { DeviceClient, GpuHostConnection, HandlerError } from '../protocol/client.ts';
import { bySteps, type DecodedText, firstDifference } from '../testing/decoding.ts';
import { Ended, take } from '../testing/ended.ts';
import { GREEDY, must, range, startTestHost, type TestHost } from '../testing/host.ts';

const SEED = 77;
const INFERLETS = 128;
const NEW_TOKENS = 16;
const PAGE_SIZE = 8;
const random = new Random(SEED);
console.log(`oversubscription: seed ${SEED}`);

const prompts = Array.from({ length: 12 }, () => Array.from({ length: 4 + random.below(44) }, () => random.below(96)));
/** Pages that all inferlets together hold at their ends, without forks. */
const demand = Array.from({ length: INFERLETS }, (_, i) => promptOf(i)).reduce(
  (pages, prompt) => pages + Math.ceil((prompt.length + NEW_TOKENS) / PAGE_SIZE),
  0,
);

function promptOf(index: number): number[] {
  return prompts[index % prompts.length]!;
}

type End = { readonly tokens: readonly number[] } | { readonly error: HandlerError };

/** Decodes greedily and takes pages one by one; now and then forks, or waits for something else. */
async function decode(inferlet: DeviceClient, prompt: readonly number[]): Promise<End> {
  const queue = inferlet.createQueue('tiny');
  try {
    let pages: number[] = [];
    const decoded: number[] = [];
    let inputs = [...prompt];
    let position = 0;
    while (decoded.length < NEW_TOKENS) {
      const needed = Math.ceil((position + inputs.length) / PAGE_SIZE) - pages.length;
      if (needed > 0) pages = [...pages, ...take(inferlet.allocatePages(queue, needed))];
      const ownPages = Uint32Array.from(pages);
      const step = {
        tokens: Uint32Array.from(inputs),
        positions: range(position, position + inputs.length),
        inPages: ownPages,
        outPages: ownPages,
        mask: undefined,
        rows: 1,
        output: { tag: 'sample', val: GREEDY } as const,
      };
      const result = take(await inferlet.ask(queue, { op: 'step', request: step }));
      position += inputs.length;
      inputs = [result.tokens[0]!];
      decoded.push(inputs[0]!);
      if (random.below(6) === 0) await tryFork(inferlet, queue, ownPages, position);
      if (random.below(5) === 0) {
        inferlet.setWaiting(true);
        await new Promise((resolve) => setTimeout(resolve, random.below(4)));
      }
    }
    return { tokens: decoded };
  } catch (error) {
    if (error instanceof Ended) return { error: error.error };
    throw error;
  } finally {
    await inferlet.close();
  }
}

/** Decodes one token on a branch and drops the branch. */
async function tryFork(inferlet: DeviceClient, queue: number, pages: Uint32Array, position: number): Promise<void> {
  if (position % PAGE_SIZE === 0) return;
  const fork = take(inferlet.sharePages(queue, pages));
  take(
    await inferlet.ask(queue, {
      op: 'step',
      request: {
        tokens: Uint32Array.of(5),
        positions: Uint32Array.of(position),
        inPages: fork,
        outPages: fork,
        mask: undefined,
        rows: 0,
        output: { tag: 'none' },
      },
    }),
  );
  inferlet.freePages(queue, fork);
}

function open(connection: GpuHostConnection, arrival: number): DeviceClient {
  return connection.openInferlet({ id: `inferlet ${arrival}`, maxPages: 40, arrival });
}

let alone: Promise<DecodedText[]> | undefined;
/** Continuation of each prompt, decoded alone. It is computed when a test first asks, and not while the file loads. */
function textsAlone(): Promise<DecodedText[]> {
  alone ??= decodeAlone();
  return alone;
}

async function decodeAlone(): Promise<DecodedText[]> {
  await using host = await startTestHost({ backend: 'onnx', model: { prefixCache: false } });
  const inferlet = open(await host.connect(), 1);
  const guest = { inferlet, queue: inferlet.createQueue('tiny') };
  const texts: DecodedText[] = [];
  for (const prompt of prompts) texts.push(await bySteps(guest, prompt, NEW_TOKENS, async () => {}));
  return texts;
}

function hostFor(factor: number, prefixCache: boolean, swap: boolean, log = silentLog): Promise<TestHost> {
  return startTestHost({
    host: { log },
    backend: 'onnx',
    pageCount: Math.ceil(demand / factor),
    model: { prefixCache, ...(swap ? { swapMemoryBytes: 1 << 18, swapDiskBytes: 1 << 22 } : {}) },
  });
}

const report: string[] = [];

for (const factor of [2, 4, 8]) {
  for (const [prefixCache, swap] of [
    [false, false],
    [true, true],
  ] as const) {
    const what = `${factor}× oversubscription, ${prefixCache ? 'with' : 'without'} prefix cache and swap`;
    test(`${what}: each inferlet ends with a result or a cause, the oldest with a result`, {
      timeout: 120_000,
    }, async () => {
      const texts = await textsAlone();
      const log = new CollectedLog();
      await using host = await hostFor(factor, prefixCache, swap, log);
      const connection = await host.connect();
      const ends = await Promise.all(
        Array.from({ length: INFERLETS }, (_, i) => decode(open(connection, i + 1), promptOf(i))),
      );
      let results = 0;
      for (const [i, end] of ends.entries()) {
        if ('tokens' in end) {
          results++;
          assert.ok(firstDifference(end.tokens, texts[i % texts.length]!)?.tie ?? true, `text of inferlet ${i}`);
        } else {
          assert.equal(end.error.tag, 'terminated', `inferlet ${i}: ${end.error.val}`);
          assert.match(end.error.val, /^memory pressure: /);
        }
      }
      assert.ok('tokens' in ends[0]!, 'the oldest');
      if (swap) assert.equal(results, INFERLETS, 'swap had room for all');
      const { pages, terminations, swapsOut } = host.host.stats().models[0]!;
      assert.equal(pages.owned, 0);
      assert.equal(pages.free + pages.cached, pages.total);
      if (!prefixCache) assert.equal(pages.free, pages.total);
      // An inferlet may be terminated after it got its result, so terminations may outnumber missing results.
      assert.ok(terminations >= INFERLETS - results);
      const ended = log.records.filter(({ message }) => message === 'an inferlet was ended to free its memory');
      assert.equal(ended.length, terminations, 'the log names each');
      for (const { fields } of ended) {
        const { heldPages, totalPages } = fields.figures as Record<string, number>;
        assert.match(`${fields.invocation}: ${fields.cause}`, /^inferlet \d+: memory pressure: /);
        assert.ok(totalPages === pages.total && Number(heldPages) >= 0, JSON.stringify(fields));
      }
      host.host.engines[0]!.memory.audit();
      report.push(`${what}: ${results} results, ${terminations} terminated, ${swapsOut} pages swapped out`);
    });
  }
}

test('connections that die with their inferlets under pressure lose no page', { timeout: 120_000 }, async () => {
  await using host = await hostFor(4, true, true);
  const [steady, dying] = [await host.connect(), await host.connect()];
  const texts = await textsAlone();
  const ends = Promise.all(
    Array.from({ length: INFERLETS }, (_, i) => decode(open(i % 2 ? dying : steady, i + 1), promptOf(i))),
  );
  await new Promise((resolve) => setTimeout(resolve, 30));
  dying.close();
  for (const [i, end] of (await ends).entries()) {
    if ('tokens' in end) assert.ok(firstDifference(end.tokens, texts[i % texts.length]!)?.tie ?? true);
    else
      assert.ok(['terminated', ...(i % 2 ? ['unavailable', 'cancelled'] : [])].includes(end.error.tag), end.error.tag);
  }
  const inferlet = open(steady, INFERLETS + 1);
  must(await inferlet.synchronize(inferlet.createQueue('tiny')));
  await inferlet.close();
  // The host notices the end of a connection later, and then frees the pages only after the step under way.
  while (host.host.stats().models[0]!.pages.owned > 0) await new Promise((resolve) => setTimeout(resolve, 2));
  host.host.engines[0]!.memory.audit();
});

after(() => {
  for (const line of report) console.log(line);
});
