import { rm } from 'node:fs/promises';
import path from 'node:path';
import { randomVisionModel } from '#gpu-host/models/testing/random-vision-model.ts';
import { deploySource, modelStats } from '#test/harness/deploy.ts';
import { type Client, hold, invoke } from '#test/harness/events.ts';
import { newHome, Platform, ROOT } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';
import type { Bench } from './bench.ts';
import { format, formatSpread, spread } from './statistics.ts';

const MODEL = 'stories15m';
const VISION = 'vision';
/** Pages of the pool; the share of each of two tenants is half of them. */
const PAGES = 512;
/** Pages of a tenant within its share. */
const WITHIN = PAGES / 4;
/** Pages of each invocation of a hoarder. Several together want more than pool and swap. */
const OVER = PAGES - 14;
const HOARDERS = 4;
/** The vision model makes 64 embeds of 64 floats of an image, so that the cache holds the embeds of some 64 images. */
const TOWER = {
  hidden_size: 128,
  intermediate_size: 256,
  num_hidden_layers: 6,
  num_attention_heads: 4,
  image_size: 112,
  patch_size: 14,
};
const config = (vision: string) => `[[model]]
name = "${MODEL}"
pages = ${PAGES}
swap_memory_mb = 16
swap_disk_mb = 0

[[model]]
name = "${VISION}"
source = "file:${vision}"
pages = 256
image_cache_mb = 1
`;
/** Functions with input schemas that fill the gateway's cache of compiled schemas, and as many as fit the share of a tenant. */
const SCHEMAS = 24;
const FEW_SCHEMAS = 8;
/** Properties of each schema; the cache holds 40,000 parts of schemas. */
const PROPERTIES = 1900;
const REQUESTS = 20;
const QUICK_REQUESTS = 6;
const MAX_ROUNDS = 6;
const QUICK_ROUNDS = 2;
/** Time after which a hoarder counts as waiting for room, ms. */
const NO_ROOM_MS = 2000;
/** Time that a flood of a cache gets to fill it before the neighbour's requests begin, ms. */
const FILL_MS = 3000;
/** Longest time for which a hoarder goes on, ms: the bench ends it earlier. */
const FOR_MS = 300_000;

/** A request of the neighbour: a function and its input. */
type Ask = readonly [name: string, input: object];

/** What the other tenant does: invocations of `hoard` or `caches`, or requests to functions with large input schemas, one after another. */
type Load =
  | { readonly kind: 'invoke'; readonly name: string; readonly input: object; readonly count: number }
  | { readonly kind: 'request'; readonly functions: number };

interface Row {
  readonly name: string;
  readonly ask: Ask;
  /** The tenant within its share, and the hoarder. */
  readonly loads: readonly [within: Load, over: Load];
}

const PROMPT = 'Once upon a time there was a small town by the sea. '.repeat(10);
const COMPLETION: Ask = ['text-completion', { model: MODEL, prompt: PROMPT, maxTokens: 8 }];
const pages = (mode: string, count: number, invocations: number): Load => ({
  kind: 'invoke',
  name: 'hoard',
  input: { model: MODEL, mode, pages: count, forMs: FOR_MS },
  count: invocations,
});
const caches = (cache: string, model: string, mode: string, count: number): Load => ({
  kind: 'invoke',
  name: 'caches',
  input: { model, cache, mode, forMs: FOR_MS },
  count,
});
const cached = (cache: string, model: string): Ask => ['caches', { model, cache, mode: 'ask' }];

const IMAGES = 'embeds of images';
const ROWS: readonly Row[] = [
  { name: 'KV pages that compute', ask: COMPLETION, loads: [pages('spin', WITHIN, 1), pages('spin', OVER, HOARDERS)] },
  {
    name: 'KV pages and swap, idle',
    ask: COMPLETION,
    loads: [pages('hold', WITHIN, 1), pages('hold', OVER, HOARDERS)],
  },
  // A flood computes different texts of ten pages each. Its baseline computes as many, and leaves none in the cache.
  { name: 'prefix cache', ask: COMPLETION, loads: [pages('compute', 10, 1), pages('flood', 100_000, 1)] },
  { name: 'allocate and free', ask: COMPLETION, loads: [pages('churn', WITHIN, 1), pages('churn', OVER, 1)] },
  // The baseline compiles as many grammars, and drops each at once.
  {
    name: 'compiled grammars',
    ask: cached('grammars', MODEL),
    loads: [caches('grammars', MODEL, 'within', HOARDERS), caches('grammars', MODEL, 'flood', HOARDERS)],
  },
  {
    name: IMAGES,
    ask: cached('images', VISION),
    loads: [caches('images', VISION, 'within', 1), caches('images', VISION, 'flood', 1)],
  },
  {
    name: 'compiled input schemas',
    ask: COMPLETION,
    loads: [
      { kind: 'request', functions: FEW_SCHEMAS },
      { kind: 'request', functions: SCHEMAS },
    ],
  },
];

/** Time to the first token of a small neighbour beside a hoarder, over that beside a tenant within its share. */
export const hoarders: Bench = {
  name: 'hoarders',
  help: `A tenant asks for a few tokens ${REQUESTS} times, each time with the same prompt, grammar or image, beside one other tenant. The other tenant uses one
shared resource in each row: memory of the model's pool of ${PAGES} pages, or a cache. It stays within its share (the baseline), or takes as much as it can
get. Each round measures both, one right after the other, and every second round in the other order. ${MAX_ROUNDS} rounds at most.`,
  quick: `${QUICK_REQUESTS} requests instead of ${REQUESTS}, ${QUICK_ROUNDS} rounds.`,
  summary:
    "a neighbour's time to the first token beside a hoarder of KV pages, swap or a cache, over one within its share",
  async run({ repetitions, quick, progress }) {
    const rounds = quick ? QUICK_ROUNDS : Math.min(MAX_ROUNDS, repetitions);
    const requests = quick ? QUICK_REQUESTS : REQUESTS;
    const home = await newHome();
    const vision = path.join(home, 'vision-model');
    try {
      await randomVisionModel(vision, { text: { vocabularySize: 320, contextLength: 256 }, tower: TOWER }, 7);
      await using platform = await Platform.start({ home, keepHome: true, functions: false, config: config(vision) });
      const [neighbour, other] = [await createTenant(platform, 'neighbour'), await createTenant(platform, 'hoarder')];
      await deployAll(platform, neighbour, other);
      const rows: string[][] = [];
      const data: Record<string, unknown> = {};
      for (const { name, ask, loads } of ROWS) {
        await firstTokensMs(neighbour, ask, requests);
        const ratios: number[] = [];
        const samples = { within: [] as number[], over: [] as number[], failed: 0, missedImages: 0 };
        for (let round = 0; round < rounds; round++) {
          const beside = async (load: Load) => {
            const end = await begin(other, load);
            const before = await modelStats(platform, { model: VISION });
            const measured = await firstTokensMs(neighbour, ask, requests);
            const after = await modelStats(platform, { model: VISION });
            await end();
            return { ...measured, imageHits: after.imageHits - before.imageHits };
          };
          const inOrder = round % 2 === 0 ? [0, 1] : [1, 0];
          const results = new Map<number, Awaited<ReturnType<typeof beside>>>();
          for (const which of inOrder) results.set(which, await beside(loads[which as 0 | 1]));
          const [base, hoarded] = [results.get(0), results.get(1)];
          if (!base || !hoarded) throw new Error('a side was not measured');
          samples.within.push(...base.ms);
          samples.over.push(...hoarded.ms);
          samples.failed += base.failed + hoarded.failed;
          // A hoarder sends each image once, so that all hits are the neighbour's.
          if (name === IMAGES) samples.missedImages += requests - hoarded.imageHits;
          ratios.push(median(hoarded.ms) / median(base.ms));
          progress(
            `round ${round + 1}, ${name}: ${format(median(hoarded.ms), 1)} ms over ${format(median(base.ms), 1)} ms`,
          );
        }
        rows.push([
          name,
          format(median(samples.within), 1),
          format(median(samples.over), 1),
          formatSpread(spread(ratios)),
          String(samples.failed),
        ]);
        data[name] = samples;
      }
      return {
        title: `Time to the first token beside a hoarder (${PAGES} pages, two tenants)`,
        header: [
          'the hoarder takes',
          'ms beside a tenant within its share',
          'ms beside the hoarder',
          'ratio',
          'requests that failed',
        ],
        rows,
        notes: [
          'Medians. The ratio of a round is that of its two medians; the ratios of the rounds have the spread. The target is at most 1.5.',
          'For the row of images, `missedImages` in the data counts the requests whose image the cache had lost.',
        ],
        data,
      };
    } finally {
      await rm(home, { recursive: true, force: true, maxRetries: 10 });
    }
  },
};

async function deployAll(platform: Platform, neighbour: TenantClient, other: TenantClient): Promise<void> {
  const limits = { pages: PAGES, cpuMs: FOR_MS, wallMs: FOR_MS };
  const inferlet = (name: string) => path.join(ROOT, `test/inferlets/${name}.ts`);
  await deploySource(platform, path.join(ROOT, 'functions/text-completion'), { apiKey: neighbour.apiKey });
  for (const { apiKey } of [neighbour, other])
    await deploySource(platform, inferlet('caches'), { name: 'caches', apiKey, manifest: { limits } });
  // Admission knows nothing of the pages.
  const manifest = { expectedPages: 0, limits };
  await deploySource(platform, inferlet('hoard'), { name: 'hoard', apiKey: other.apiKey, manifest });
  for (let i = 0; i < SCHEMAS; i++) {
    const names = Array.from({ length: PROPERTIES }, (_, k) => [`p${i}_${k}`, true]);
    await deploySource(platform, inferlet('hoard'), {
      name: `schema-${i}`,
      apiKey: other.apiKey,
      manifest: { input: { type: 'object', properties: Object.fromEntries(names), required: ['none'] } },
    });
  }
}

/** Begins what the other tenant does. Returns a function that ends it. */
async function begin(other: TenantClient, load: Load): Promise<() => Promise<void>> {
  if (load.kind === 'request') {
    let isOver = false;
    const requests = (async () => {
      for (let i = 0; !isOver; i++) {
        // The schema refuses the input.
        const response = await other.fetch(`/v1/functions/schema-${i % load.functions}/invocations`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: '{}',
        });
        await response.arrayBuffer();
      }
    })();
    await new Promise((resolve) => setTimeout(resolve, FILL_MS));
    return async () => {
      isOver = true;
      await requests;
    };
  }
  const ends: Promise<unknown>[] = [];
  for (let i = 0; i < load.count; i++) {
    const one = await Promise.race([
      hold(other, load.name, load.input),
      // A hoarder that finds no room waits, or ends.
      new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), NO_ROOM_MS)),
    ]).catch(() => undefined);
    if (one) ends.push(one.ended);
  }
  if (load.name === 'caches') await new Promise((resolve) => setTimeout(resolve, FILL_MS));
  return async () => {
    await cancelAll(other);
    await Promise.allSettled(ends);
  };
}

/** The neighbour's requests, one after another. */
async function firstTokensMs(
  client: Client,
  [name, input]: Ask,
  requests: number,
): Promise<{ ms: number[]; failed: number }> {
  const ms: number[] = [];
  let failed = 0;
  for (let i = 0; i < requests; i++) {
    const startMs = performance.now();
    let firstMs: number | undefined;
    const events = await invoke(client, name, input, {
      onEvent: ({ event }) => {
        if (event === 'message') firstMs ??= performance.now() - startMs;
      },
    });
    if (events.at(-1)?.event === 'error' || firstMs === undefined) failed++;
    else ms.push(firstMs);
  }
  return { ms, failed };
}

/** Cancels all invocations of a tenant that have not ended. */
async function cancelAll(client: Client): Promise<void> {
  const response = await client.fetch('/v1/invocations?limit=100');
  const { invocations = [] } = (await response.json()) as { invocations?: { id: string; status: string }[] };
  for (const { id, status } of invocations)
    if (status === 'running' || status === 'queued') await client.fetch(`/v1/invocations/${id}`, { method: 'DELETE' });
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}
