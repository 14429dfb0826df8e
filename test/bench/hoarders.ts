import path from 'node:path';
import { deploySource } from '#test/harness/deploy.ts';
import { type Client, hold, invoke } from '#test/harness/events.ts';
import { Platform, ROOT } from '#test/harness/platform.ts';
import { createTenant } from '#test/harness/tenants.ts';
import type { Bench } from './bench.ts';
import { format, formatSpread, spread } from './statistics.ts';

const MODEL = 'stories15m';
/** Pages of the pool; the share of each of two tenants is half of them. */
const PAGES = 512;
/** Pages of a tenant within its share. */
const WITHIN = PAGES / 4;
/** Pages of each invocation of a hoarder. Several together want more than pool and swap. */
const OVER = PAGES - 14;
const HOARDERS = 4;
const CONFIG = `[[model]]\nname = "${MODEL}"\npages = ${PAGES}\nswap_memory_mb = 16\nswap_disk_mb = 0\n`;
const REQUESTS = 20;
const QUICK_REQUESTS = 8;
const MAX_ROUNDS = 6;
const QUICK_ROUNDS = 3;
/** Time after which a hoarder counts as waiting for room, ms. */
const NO_ROOM_MS = 2000;
/** Longest time for which a hoarder goes on, ms: the bench ends it earlier. */
const FOR_MS = 300_000;

const MODES = [
  { name: 'KV pages that compute', base: 'spin', mode: 'spin', within: WITHIN, over: OVER, invocations: HOARDERS },
  { name: 'KV pages and swap, idle', base: 'hold', mode: 'hold', within: WITHIN, over: OVER, invocations: HOARDERS },
  // A flood computes different texts of ten pages each. Its baseline computes as many, and leaves none in the cache.
  { name: 'prefix cache', base: 'compute', mode: 'flood', within: 10, over: 100_000, invocations: 1 },
  { name: 'allocate and free', base: 'churn', mode: 'churn', within: WITHIN, over: OVER, invocations: 1 },
] as const;

/** Time to the first token of a small neighbour beside a hoarder, over that beside a tenant within its share. */
export const hoarders: Bench = {
  name: 'hoarders',
  help: `A tenant asks for a short completion ${REQUESTS} times, of a prompt that repeats, beside one other tenant. The other tenant holds or takes pages of
the same model in four ways: within its share of the pool of ${PAGES} pages (the baseline), and as many as it can get. Each round measures both, one
right after the other, and every second round in the other order. ${MAX_ROUNDS} rounds at most.`,
  quick: `${QUICK_REQUESTS} requests instead of ${REQUESTS}, ${QUICK_ROUNDS} rounds.`,
  summary:
    "a neighbour's time to the first token beside a hoarder of KV pages, swap and prefix cache, over one within its share",
  async run({ repetitions, quick, progress }) {
    const rounds = quick ? QUICK_ROUNDS : Math.min(MAX_ROUNDS, repetitions);
    const requests = quick ? QUICK_REQUESTS : REQUESTS;
    await using platform = await Platform.start({ functions: false, config: CONFIG });
    const [neighbour, other] = [await createTenant(platform, 'neighbour'), await createTenant(platform, 'hoarder')];
    await deploySource(platform, path.join(ROOT, 'functions/text-completion'), { apiKey: neighbour.apiKey });
    await deploySource(platform, path.join(ROOT, 'test/inferlets/hoard.ts'), {
      name: 'hoard',
      apiKey: other.apiKey,
      // Admission knows nothing of the pages.
      manifest: { expectedPages: 0, limits: { pages: PAGES, cpuMs: FOR_MS, wallMs: FOR_MS } },
    });
    const rows: string[][] = [];
    const data: Record<string, unknown> = {};
    await firstTokensMs(neighbour, requests);
    for (const { name, base: baseMode, mode, within, over, invocations } of MODES) {
      const ratios: number[] = [];
      const samples = { within: [] as number[], over: [] as number[], failed: 0 };
      for (let round = 0; round < rounds; round++) {
        const beside = async (how: string, pages: number, count: number) => {
          const ends: Promise<unknown>[] = [];
          for (let i = 0; i < count; i++) {
            const one = await Promise.race([
              hold(other, 'hoard', { model: MODEL, mode: how, pages, forMs: FOR_MS }),
              // A hoarder that finds no room waits, or ends.
              new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), NO_ROOM_MS)),
            ]).catch(() => undefined);
            if (one) ends.push(one.ended);
          }
          const measured = await firstTokensMs(neighbour, requests);
          await cancelAll(other);
          await Promise.allSettled(ends);
          return measured;
        };
        const measureBase = () => beside(baseMode, within, 1);
        const measureHoarded = () => beside(mode, over, invocations);
        const first = round % 2 === 0 ? await measureBase() : await measureHoarded();
        const second = round % 2 === 0 ? await measureHoarded() : await measureBase();
        const [base, hoarded] = round % 2 === 0 ? [first, second] : [second, first];
        samples.within.push(...base.ms);
        samples.over.push(...hoarded.ms);
        samples.failed += base.failed + hoarded.failed;
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
      ],
      data,
    };
  },
};

/** The neighbour's requests, one after another. */
async function firstTokensMs(client: Client, requests: number): Promise<{ ms: number[]; failed: number }> {
  const ms: number[] = [];
  let failed = 0;
  for (let i = 0; i < requests; i++) {
    const startMs = performance.now();
    let firstMs: number | undefined;
    const events = await invoke(
      client,
      'text-completion',
      { model: MODEL, prompt: 'Once upon a time there was a small town by the sea. '.repeat(10), maxTokens: 8 },
      {
        onEvent: ({ event }) => {
          if (event === 'message') firstMs ??= performance.now() - startMs;
        },
      },
    );
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
