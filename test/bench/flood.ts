import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { deploySource, deployWith } from '#test/harness/deploy.ts';
import { Platform, ROOT, until } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';
import type { Bench, BenchReport } from './bench.ts';
import { timeFirstMessage } from './clients.ts';
import type { Flood } from './flood-client.ts';
import { probeSteadily } from './load.ts';
import { format, formatSpread, isEnoughFor, median, quantile, spread, spreadOver } from './statistics.ts';

const FLOOD_INVOCATIONS = 2000;
const QUICK_FLOOD = 300;
const FUNCTION = 'text-completion';
/** Interval of the second tenant's requests of each kind, with and without the flood. */
const PROBE_EVERY_MS = 500;
/** Time without a flood, half of it before the flood and half after it. */
const UNLOADED_MS = 20_000;
const QUICK_UNLOADED_MS = 6000;
const SUBMITTERS = 64;
const WARM_REQUESTS = 20;
const FLOOD_TIMEOUT_MS = 600_000;
const POLL_MS = 100;
const INPUT = { prompt: 'Once upon a time', maxTokens: 16, temperature: 0 };

/** The second tenant's requests. The aim concerns only the platform's own part: admission and launch. */
const KINDS = [
  { name: 'an inferlet without a model', function: 'ticker', input: { ticks: 1, everyMs: 0 }, aim: 'at most 2' },
  { name: 'a text completion', function: FUNCTION, input: INPUT, aim: '' },
] as const;

/** Times from the request to the first message at the second tenant's client, in ms, by kind. */
type Times = readonly (readonly number[])[];

interface Round {
  readonly unloaded: Times;
  readonly loaded: Times;
  readonly floodMs: number;
}

/** One tenant floods the platform while another invokes at a steady rate. */
export const flood: Bench = {
  name: 'flood',
  summary: `one tenant sends ${FLOOD_INVOCATIONS} invocations at once: how long another one waits for its first token`,
  help: `A second tenant invokes an inferlet without a model and a short text completion, each every ${PROBE_EVERY_MS} ms, and measures at its HTTP client
how long the first message takes. It does so before, during and after a flood: ${FLOOD_INVOCATIONS} text completions that another tenant submits at once,
from a thread of its own. A round is one flood; each round has its own baseline, half of it measured before the flood and half after it.`,
  quick: `${QUICK_FLOOD} invocations instead of ${FLOOD_INVOCATIONS}, and ${QUICK_UNLOADED_MS / 1000} s without them instead of ${UNLOADED_MS / 1000}. The other tenant then has too few requests for a 95th percentile.`,
  async run({ repetitions, quick, progress }) {
    const [invocations, unloadedMs] = quick ? [QUICK_FLOOD, QUICK_UNLOADED_MS] : [FLOOD_INVOCATIONS, UNLOADED_MS];
    const rounds: Round[] = [];
    await using platform = await Platform.start({ functions: [FUNCTION] });
    const other = await createTenant(platform, 'other');
    await deployWith(platform, 'ticker', {}, other.apiKey);
    await deploySource(platform, path.join(ROOT, 'functions', FUNCTION), { apiKey: other.apiKey });
    for (let i = 0; i < WARM_REQUESTS; i++)
      for (const kind of KINDS) await timeFirstMessage(other, kind.function, kind.input);
    for (let i = 0; i < repetitions; i++) {
      const before = await timesDuring(other, () => sleep(unloadedMs / 2));
      const startMs = performance.now();
      const loaded = await timesDuring(other, () => floodWith(platform, invocations));
      const floodMs = performance.now() - startMs;
      const after = await timesDuring(other, () => sleep(unloadedMs / 2));
      const unloaded = before.map((times, kind) => [...times, ...(after[kind] ?? [])]);
      rounds.push({ unloaded, loaded, floodMs });
      const medians = KINDS.map(({ name }, kind) => {
        const [a, b] = [unloaded, loaded].map((times) => format(median(times[kind] ?? []), 1));
        return `${name} ${a} ms without, ${b} ms beside it`;
      });
      progress(
        `round ${i + 1}: the flood took ${format(floodMs / 1000, 1)} s; first message p50: ${medians.join('; ')}`,
      );
    }
    return report(rounds, invocations);
  },
};

function report(rounds: readonly Round[], invocations: number): BenchReport {
  const requests = rounds.map(({ loaded }) => loaded.map((times) => times.length).join(' and '));
  return {
    title: `${invocations} invocations of one tenant at once; time to the first message of another tenant`,
    header: [
      'the other tenant',
      'quantile',
      'without the flood, ms',
      'beside the flood, ms',
      'ratio within a round',
      'aim',
    ],
    rows: KINDS.flatMap(({ name, aim }, kind) =>
      quantilesOf(rounds, kind).map((q) => {
        const cellOf = (value: (round: Round) => number, digits: number) =>
          formatSpread(spread(rounds.map(value)), digits);
        const quantileOfKind = (times: Times) => quantile(times[kind] ?? [], q);
        return [
          name,
          `p${q * 100}`,
          cellOf(({ unloaded }) => quantileOfKind(unloaded), 1),
          cellOf(({ loaded }) => quantileOfKind(loaded), 1),
          cellOf(({ unloaded, loaded }) => quantileOfKind(loaded) / quantileOfKind(unloaded), 2),
          q === 0.5 ? aim : '',
        ];
      }),
    ),
    notes: [
      `A flood a round, ${spreadOver(rounds.length)}; it took ${formatSpread(spread(rounds.map(({ floodMs }) => floodMs / 1000)), 1)} s. Requests of the other tenant beside each: ${requests.join('; ')}.`,
      'The time is from the request to the first message at the HTTP client: admission, launch and, for the text completion, its prefill on a device that it shares with the flood.',
      'The other tenant sends its requests at fixed times, also while earlier ones wait.',
    ],
    data: rounds,
  };
}

/** The quantiles for which every round has enough requests of a kind. */
const quantilesOf = (rounds: readonly Round[], kind: number): number[] =>
  [0.5, 0.95].filter((q) =>
    rounds.every(({ unloaded, loaded }) =>
      [unloaded, loaded].every((times) => isEnoughFor(q, times[kind]?.length ?? 0)),
    ),
  );

/** Sends requests of the kinds in turn, at the steady rate, until `meanwhile` has ended. Returns their times. */
async function timesDuring(tenant: TenantClient, meanwhile: () => Promise<unknown>): Promise<Times> {
  const probing = probeSteadily(PROBE_EVERY_MS / KINDS.length, async (index) => {
    const kind = KINDS[index % KINDS.length] ?? KINDS[0];
    return { kind, ms: (await timeFirstMessage(tenant, kind.function, kind.input)).firstMs };
  });
  try {
    await meanwhile();
  } catch (error) {
    await probing.stop().catch(() => undefined);
    throw error;
  }
  const results = await probing.stop();
  return KINDS.map((kind) => results.filter((result) => result.kind === kind).map(({ ms }) => ms));
}

/** Submits all invocations at once, and waits until the last one has ended. */
async function floodWith(platform: Platform, invocations: number): Promise<void> {
  const { url, apiKey } = platform;
  const workerData: Flood = { url, apiKey, name: FUNCTION, input: INPUT, invocations, atOnce: SUBMITTERS };
  const client = new Worker(new URL('flood-client.ts', import.meta.url), { workerData });
  try {
    await once(client, 'message', { signal: AbortSignal.timeout(FLOOD_TIMEOUT_MS) });
  } finally {
    await client.terminate();
  }
  const isOver = async () => {
    await sleep(POLL_MS);
    const response = await platform.fetch('/v1/invocations?status=queued,running&limit=1');
    return ((await response.json()) as { invocations: readonly unknown[] }).invocations.length === 0;
  };
  await until('the end of the flood', isOver, FLOOD_TIMEOUT_MS);
}
