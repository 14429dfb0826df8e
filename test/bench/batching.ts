import type { BatchPolicy } from '#gpu-host/batcher/testing/policies.ts';
import type { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { deploy } from '#test/harness/deploy.ts';
import { Platform } from '#test/harness/platform.ts';
import { policyEnvironment } from './batch-policy.ts';
import type { Bench } from './bench.ts';
import { connectStats, startTogether } from './clients.ts';
import { rotated } from './rounds.ts';
import { format, formatSpread, type Spread, spread } from './statistics.ts';

const CLIENTS = 128;
const QUICK_CLIENTS = 16;
const CONTEXT = 16;
const STEPS = 64;
const WAYS = ['split', 'fused'] as const;

const ADAPTIVE: BatchPolicy = { kind: 'adaptive' };
/** The policies that the paper compares (Pie, SOSP '25, Table 5), and one that waits according to the rate of arrivals. */
const POLICIES: readonly BatchPolicy[] = [
  ADAPTIVE,
  { kind: 'eager' },
  { kind: 'k-only', calls: 64, maxWaitMs: 50 },
  { kind: 't-only', intervalMs: 16 },
  { kind: 'rate', maxWaitMs: 5 },
];
const QUICK: readonly string[] = ['adaptive', 't-only'];

interface Sample {
  readonly tokensPerSecond: number;
  readonly meanBatch: number;
}

/** Throughput of many inferlets under each batching policy. */
export const batching: Bench = {
  name: 'batching',
  help: `${CLIENTS} inferlets decode ${STEPS} tokens side by side, with three calls a token and with one, under each batching policy (Pie, SOSP
'25, Table 5). A round measures every policy, each on a platform of its own after one unmeasured run; every round begins with another policy. The
report gives the adaptive policy's tokens a second divided by that of each other policy in the same round.`,
  quick: `${QUICK.length} of ${POLICIES.length} policies (${QUICK.join(' and ')}), and ${QUICK_CLIENTS} inferlets instead of ${CLIENTS}.`,
  summary: `${CLIENTS} inferlets under the batching policies adaptive, eager, k-only, t-only and rate`,
  async run({ repetitions, quick, progress }) {
    const policies = POLICIES.filter(({ kind }) => !quick || QUICK.includes(kind));
    const clients = quick ? QUICK_CLIENTS : CLIENTS;
    const samples = new Map<string, Sample[]>();
    for (let round = 0; round < repetitions; round++) {
      for (const i of rotated(policies.length, round)) {
        const policy = policies[i] ?? ADAPTIVE;
        for (const [way, sample] of await measure(policy, clients, round)) {
          const key = `${way}, ${policy.kind}`;
          samples.set(key, [...(samples.get(key) ?? []), sample]);
          progress(`round ${round + 1}, ${key}: ${format(sample.tokensPerSecond, 0)} tokens/s`);
        }
      }
    }
    const rows = WAYS.flatMap((way) =>
      policies.map(({ kind: name }) => {
        const ofPolicy = samples.get(`${way}, ${name}`) ?? [];
        const adaptive = samples.get(`${way}, adaptive`) ?? [];
        return {
          way,
          policy: name,
          rate: spread(ofPolicy.map((sample) => sample.tokensPerSecond)),
          ratio: spread(
            ofPolicy.map((sample, i) => (adaptive[i]?.tokensPerSecond ?? Number.NaN) / sample.tokensPerSecond),
          ),
          batch: spread(ofPolicy.map((sample) => sample.meanBatch)),
        } satisfies { way: string; policy: string; rate: Spread; ratio: Spread; batch: Spread };
      }),
    );
    return {
      title: `${clients} inferlets × ${STEPS} tokens under each batching policy`,
      // `adaptive over it`: tokens/s of the adaptive policy divided by those of the policy of the row.
      header: ['calls', 'policy', 'tokens/s', 'adaptive over it', 'mean batch'],
      rows: rows.map(({ way, policy, rate, ratio, batch }) => [
        way,
        policy,
        formatSpread(rate, 0),
        formatSpread(ratio),
        formatSpread(batch, 1),
      ]),
      notes: [
        'split: embed, forward and next-distribution as three calls a token; fused: one. Every policy is measured in every round, on a platform of its own that has decoded both ways once before; rounds begin with another policy and way.',
        // A batch leaves: the GPU host starts its step.
        'k-only leaves at 64 ready calls or after 50 ms, t-only every 16 ms (about the time of a step of 128 inferlets), rate waits at most 5 ms.',
      ],
      data: rows,
    };
  },
};

async function measure(policy: BatchPolicy, clients: number, round: number): Promise<[way: string, sample: Sample][]> {
  const config = `[[model]]\nname = "stories15m"\npages = ${clients * 8}\n`;
  await using platform = await Platform.start({ functions: false, config, env: policyEnvironment(policy) });
  await deploy(platform, 'decode');
  const stats = await connectStats(platform);
  const results: [string, Sample][] = [];
  try {
    for (const way of WAYS) await decodeTogether(platform, stats, way, clients); // Warm-up.
    for (const i of rotated(WAYS.length, round)) {
      const way = WAYS[i] ?? WAYS[0];
      results.push([way, await decodeTogether(platform, stats, way, clients)]);
    }
  } finally {
    stats.close();
  }
  return results;
}

/** Measures from the start signal to the last result at the client. */
async function decodeTogether(
  platform: Platform,
  stats: GpuHostConnection,
  way: string,
  clients: number,
): Promise<Sample> {
  const inputs = Array.from({ length: clients }, () => ({ way, context: CONTEXT, steps: STEPS }));
  let startMs = 0;
  const outputs = await startTogether<{ tokens: number; checksum: number }>(platform, 'decode', inputs, async () => {
    await stats.stats({ reset: true });
    startMs = performance.now();
  });
  const elapsedMs = performance.now() - startMs;
  if (new Set(outputs.map(({ checksum }) => checksum)).size !== 1)
    throw new Error(`${way}: equal prompts, different tokens`);
  const tokens = outputs.reduce((sum, output) => sum + output.tokens, 0);
  return {
    tokensPerSecond: (tokens * 1000) / elapsedMs,
    meanBatch: (await stats.stats()).models[0]?.meanBatchSize ?? 0,
  };
}
