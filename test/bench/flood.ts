import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { Platform, until } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';
import type { Bench } from './bench.ts';
import { probeSteadily } from './clients.ts';
import type { Flood } from './flood-client.ts';
import { format, formatSpread, quantile, spread } from './statistics.ts';
import { receive } from './streams.ts';

const FLOOD = 2000;
const FUNCTION = 'text-completion';
/** Interval of the second tenant's requests, with and without the flood. */
const EVERY_MS = 500;
/** Time without a flood, half of it before the flood and half after it. */
const UNLOADED_MS = 20_000;
const SUBMITTING = 64;
const FLOOD_TIMEOUT_MS = 600_000;
const POLL_MS = 100;
const INPUT = { prompt: 'Once upon a time', maxTokens: 16, temperature: 0 };

interface Round {
  /** Times from the request to the first message at the second tenant's client, in ms. */
  readonly unloaded: readonly number[];
  readonly loaded: readonly number[];
  readonly floodMs: number;
}

/** One tenant floods the platform while another invokes at a steady rate. */
export const flood: Bench = {
  name: 'flood',
  summary: `one tenant sends ${FLOOD} invocations at once: how long another one waits for its first token`,
  help: `A second tenant streams a short text completion every ${EVERY_MS} ms and measures at its HTTP client how long its first message
takes. It does so before, during and after a flood: ${FLOOD} text completions that another tenant submits at once, from a thread of its own.
A round is one flood; each round has its own baseline, half of it measured before the flood and half after it.`,
  async run({ repetitions, quick, progress }) {
    const invocations = quick ? 300 : FLOOD;
    const rounds: Round[] = [];
    await using platform = await Platform.start({ functions: [FUNCTION] });
    const other = await createTenant(platform, 'other');
    const { code, stderr } = await platform.pie(['deploy', `functions/${FUNCTION}`], { apiKey: other.apiKey });
    if (code !== 0) throw new Error(stderr);
    for (let i = 0; i < 20; i++) await firstMessageMs(other); // Warm-up.
    const unloadedMs = (quick ? 0.4 : 1) * UNLOADED_MS;
    for (let i = 0; i < (quick ? 1 : repetitions); i++) {
      const before = await firstMessagesMs(other, () => sleep(unloadedMs / 2));
      const startMs = performance.now();
      const loaded = await firstMessagesMs(other, () => floodWith(platform, invocations));
      const floodMs = performance.now() - startMs;
      const after = await firstMessagesMs(other, () => sleep(unloadedMs / 2));
      rounds.push({ unloaded: [...before, ...after], loaded, floodMs });
      const [a, b] = [quantile([...before, ...after], 0.5), quantile(loaded, 0.5)];
      progress(
        `round ${i + 1}: the flood took ${format(floodMs / 1000, 1)} s; first message p50 ${format(a, 1)} ms without, ${format(b, 1)} ms beside it`,
      );
    }
    return {
      title: `${invocations} invocations of one tenant at once; time to the first message of another tenant`,
      header: ['quantile', 'without the flood, ms', 'beside the flood, ms', 'ratio within a round', 'aim'],
      rows: [0.5, 0.95].map((q) => {
        const of = (value: (round: Round) => number, digits: number) => formatSpread(spread(rounds.map(value)), digits);
        return [
          `p${q * 100}`,
          of(({ unloaded }) => quantile(unloaded, q), 1),
          of(({ loaded }) => quantile(loaded, q), 1),
          of(({ unloaded, loaded }) => quantile(loaded, q) / quantile(unloaded, q), 2),
          q === 0.5 ? 'at most 2' : '',
        ];
      }),
      notes: [
        `Median (min–max) over ${rounds.length} floods of ${format(spread(rounds.map(({ floodMs }) => floodMs)).median / 1000, 1)} s each; ${rounds.map(({ loaded }) => loaded.length).join(', ')} requests of the second tenant beside them.`,
        'The time is from the request to the first bytes of text at the HTTP client: admission, launch, prefill and the first token of a device that it shares with the flood.',
        'The second tenant sends its requests at fixed times, also while earlier ones wait.',
      ],
      data: rounds,
    };
  },
};

async function firstMessageMs(tenant: TenantClient): Promise<number> {
  return (await receive(tenant, INPUT))().firstMs;
}

/** Requests at the steady rate until `meanwhile` has ended. */
async function firstMessagesMs(tenant: TenantClient, meanwhile: () => Promise<unknown>): Promise<number[]> {
  const probing = probeSteadily(EVERY_MS, () => firstMessageMs(tenant));
  try {
    await meanwhile();
  } catch (error) {
    await probing.stop().catch(() => undefined);
    throw error;
  }
  return probing.stop();
}

/** Submits all invocations at once, and waits until the last one has ended. */
async function floodWith(platform: Platform, invocations: number): Promise<void> {
  const { url, apiKey } = platform;
  const workerData: Flood = { url, apiKey, name: FUNCTION, input: INPUT, invocations, atOnce: SUBMITTING };
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
