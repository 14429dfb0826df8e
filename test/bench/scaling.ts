import path from 'node:path';
import { randomModel } from '#gpu-host/models/testing/random-model.ts';
import { GpuHostConnection, type PrefixStats } from '#gpu-host/protocol/client.ts';
import { loadConfig } from '#infra/config.ts';
import type { Client } from '#test/harness/events.ts';
import { newHome, Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { inTurn } from './rounds.ts';
import { format, formatSpread, spread } from './statistics.ts';
import { receive } from './streams.ts';

const HOSTS = 3;
/** Time of a step, whatever its size. Hosts paced in this way do not compete for processors, as if each had its own machine. */
const STEP_MS = 20;
/** Streams that a host computes in one step; its other streams wait. */
const BATCH = 2;
/** Streams open at any time: enough for each host to have a full batch, however they are placed. */
const STREAMS = 18;
const MAX_TOKENS = 24;
const QUICK_TOKENS = 12;
/** Time before the measured time. It is longer than a stream takes, so that streams begin and end evenly in the measured time. */
const RAMP_MS = 5000;
const QUICK_RAMP_MS = 2500;
const MEASURED_MS = 15_000;
const QUICK_MEASURED_MS = 4000;
const MAX_ROUNDS = 3;
const PREFIXES = 4;
const REQUESTS_PER_PREFIX = 8;
const QUICK_REQUESTS_PER_PREFIX = 4;

/** Work and times of a round. */
interface Load {
  readonly maxTokens: number;
  readonly rampMs: number;
  readonly measuredMs: number;
  readonly requestsPerPrefix: number;
}

const WHOLE: Load = {
  maxTokens: MAX_TOKENS,
  rampMs: RAMP_MS,
  measuredMs: MEASURED_MS,
  requestsPerPrefix: REQUESTS_PER_PREFIX,
};
const QUICK: Load = {
  maxTokens: QUICK_TOKENS,
  rampMs: QUICK_RAMP_MS,
  measuredMs: QUICK_MEASURED_MS,
  requestsPerPrefix: QUICK_REQUESTS_PER_PREFIX,
};

interface Side {
  readonly tokensPerSecond: number;
  /** Share of the tokens looked up in prefix caches that were found, for requests with their prefix as affinity. */
  readonly hitRate: number;
  /** The same share for requests without an affinity. */
  readonly hitRateWithout: number;
}

/** Throughput and prefix hits of one tenant on three paced GPU hosts, compared with one host. */
export const scaling: Bench = {
  name: 'scaling',
  summary: `tokens a second and prefix hits of one tenant on ${HOSTS} paced GPU hosts against one`,
  help: `${STREAMS} HTTP clients of one tenant stream ${MAX_TOKENS} tokens each, again and again, for ${(RAMP_MS + MEASURED_MS) / 1000} s, from
${HOSTS} GPU hosts that take ${STEP_MS} ms for a step of at most ${BATCH} streams. The baseline is one such host. Then ${PREFIXES} prefixes with
${REQUESTS_PER_PREFIX} requests each, in turns, one after another: with the prefix as X-Session-Affinity, and without. A round runs both sides,
which take turns in going first, each on a platform of its own. Three rounds at most.`,
  quick: `Streams of ${QUICK_TOKENS} tokens instead of ${MAX_TOKENS} for ${QUICK_MEASURED_MS / 1000} s instead of ${MEASURED_MS / 1000}, and ${QUICK_REQUESTS_PER_PREFIX} requests a prefix instead of ${REQUESTS_PER_PREFIX}, of which fewer find it.`,
  async run({ repetitions, quick, progress }) {
    const sides: Record<'one' | 'three', Side[]> = { one: [], three: [] };
    const rounds = Math.min(MAX_ROUNDS, repetitions);
    const load = quick ? QUICK : WHOLE;
    for (let round = 0; round < rounds; round++) {
      const [one, three] = await inTurn(round, [() => measure(1, load), () => measure(HOSTS, load)]);
      sides.one.push(one);
      sides.three.push(three);
      progress(`round ${round + 1} of ${rounds}: ${format(three.tokensPerSecond / one.tokensPerSecond)}×`);
    }
    const row = (name: string, of: (side: Side) => number, digits: number, aim: string) => [
      name,
      formatSpread(spread(sides.one.map(of)), digits),
      formatSpread(spread(sides.three.map(of)), digits),
      formatSpread(spread(sides.three.map((side, i) => of(side) / of(sides.one[i] as Side)))),
      aim,
    ];
    return {
      title: `One tenant on ${HOSTS} paced GPU hosts and on one`,
      header: ['figure', 'one host', `${HOSTS} hosts`, `${HOSTS} over one`, 'aim'],
      rows: [
        row('tokens/s at the HTTP clients', (side) => side.tokensPerSecond, 0, '≥ 2.7'),
        row('hit rate, affinity by prefix', (side) => side.hitRate, 3, '≥ 0.9'),
        row('hit rate, no affinity', (side) => side.hitRateWithout, 3, ''),
      ],
      notes: [
        `A random model of two small layers; a step takes ${STEP_MS} ms (\`pace\`) and has at most ${BATCH} streams; the placement is "invocation". A stream counts with the share of its time that it spends in the measured time, which begins ${load.rampMs / 1000} s after the first ones.`,
        `Hit rate: tokens found in the caches of all hosts over those looked up, in ${PREFIXES * load.requestsPerPrefix} requests; without an affinity each host computes each prefix once.`,
      ],
      data: sides,
    };
  },
};

async function measure(hosts: number, load: Load): Promise<Side> {
  const home = await newHome();
  // The hosts share this machine's processors. The model is therefore so small that computing takes only a small part of a step's time.
  const { directory } = await randomModel(path.join(home, 'model'), { contextLength: 1024 }, 1);
  const config = `
[gpu_host]
count = ${hosts}
placement = "invocation"

[[model]]
name = "tiny"
source = "file:${directory}"
threads = 1
max_batch_sequences = ${BATCH}
pace = { step_ms = ${STEP_MS} }
`;
  await using platform = await Platform.start({ home, functions: ['text-completion'], config });
  const rate = await tokensPerSecond(platform, load);
  return {
    tokensPerSecond: rate,
    hitRate: await hitRate(platform, load, 'with', (prefix) => ({ 'x-session-affinity': `prefix-${prefix}` })),
    hitRateWithout: await hitRate(platform, load, 'without', () => ({})),
  };
}

/**
 * Each client begins its next stream when one has ended. A stream counts with the share of its time that lies in the measured time: streams that
 * share a device end in groups, and a group that ends at an edge would otherwise count whole or not at all.
 */
async function tokensPerSecond(platform: Platform, { maxTokens, rampMs, measuredMs }: Load): Promise<number> {
  const measuredFromMs = performance.now() + rampMs;
  let tokens = 0;
  const client = async (index: number) => {
    for (let i = 0; performance.now() < measuredFromMs + measuredMs; i++) {
      const prompt = `Once upon a time, number ${index} and ${i}`;
      const beganMs = performance.now() - measuredFromMs;
      const parse = await receive(platform, { prompt, maxTokens, temperature: 0 });
      const stream = parse();
      const endedMs = performance.now() - measuredFromMs;
      const withinMs = Math.max(0, Math.min(endedMs, measuredMs) - Math.max(beganMs, 0));
      tokens += (stream.tokens * withinMs) / (endedMs - beganMs);
    }
  };
  await Promise.all(Array.from({ length: STREAMS }, (_, index) => client(index)));
  return (tokens * 1000) / measuredMs;
}

async function hitRate(
  platform: Platform,
  { requestsPerPrefix }: Load,
  name: string,
  headersOf: (prefix: number) => Record<string, string>,
): Promise<number> {
  const before = await prefixCounts(platform);
  for (let i = 0; i < requestsPerPrefix; i++)
    for (let prefix = 0; prefix < PREFIXES; prefix++) {
      const begin = `${name} ${prefix}: ${`The bird number ${prefix} saw a tree. `.repeat(12)}`;
      const client: Client = {
        fetch: (route, init) =>
          platform.fetch(route, { ...init, headers: { ...(init?.headers as object), ...headersOf(prefix) } }),
      };
      const parse = await receive(client, { prompt: `${begin}It was ${i}.`, maxTokens: 2, temperature: 0 });
      // Parsing throws if the invocation failed.
      parse();
    }
  const after = await prefixCounts(platform);
  const hits = after.hitTokens - before.hitTokens;
  return hits / (hits + after.missTokens - before.missTokens);
}

/** Hits and misses of the prefix caches, summed over all GPU hosts. */
async function prefixCounts(platform: Platform): Promise<Pick<PrefixStats, 'hitTokens' | 'missTokens'>> {
  let [hitTokens, missTokens] = [0, 0];
  for (const { address } of loadConfig(platform.environment).gpuHosts) {
    const connection = await GpuHostConnection.connect(address);
    try {
      const [model] = (await connection.stats({ modelsOnly: true })).models;
      hitTokens += model?.prefix.hitTokens ?? 0;
      missTokens += model?.prefix.missTokens ?? 0;
    } finally {
      connection.close();
    }
  }
  return { hitTokens, missTokens };
}
