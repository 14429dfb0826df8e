import path from 'node:path';
import { bareLoop } from '#gpu-host/backends/bench.ts';
import { randomModel } from '#gpu-host/models/testing/random-model.ts';
import { deployWith } from '#test/harness/deploy.ts';
import { newHome, Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { startTogether } from './clients.ts';
import { BareBackend } from './over-bare.ts';
import { inTurn, warmUp } from './rounds.ts';
import { formatSpread, median, spread } from './statistics.ts';

/** Handler calls. `layer` names the layer and the process that answers. All inferlets together make `calls` calls, and each at least `least`. */
const CALLS = [
  { name: 'random', layer: 'control, sandbox', title: 'random', calls: 100_000, least: 2000 },
  { name: 'tokenize', layer: 'control, runtime', title: 'tokenize, one word', calls: 4000, least: 40 },
  { name: 'allocate', layer: 'control, runtime', title: 'allocate-embeds and free-embeds', calls: 4000, least: 64 },
  { name: 'store', layer: 'control, Redis', title: 'store.get of an absent key', calls: 2000, least: 20 },
  { name: 'synchronize', layer: 'inference, GPU host', title: 'synchronize', calls: 2000, least: 20 },
  { name: 'step', layer: 'inference, GPU host', title: 'step, one token', calls: 2000, least: 20 },
  { name: 'split', layer: 'inference, GPU host', title: 'embed-text, forward, distribution', calls: 2000, least: 20 },
] as const;

/** Inferlets at once. */
const COUNTS = [1, 8, 32, 128, 512];
const QUICK_COUNTS = [1, 32];
/** Part of the calls that a quick run makes. */
const QUICK_PART = 1 / 4;
/** Steps of the bare loop. */
const BARE_STEPS = 64;
/** Enough pages for the bare loop's contexts at the largest number of inferlets. */
const PAGES = 2560;

interface Sample {
  /** Time per call by the inferlets' own clocks: the median of the inferlets. */
  readonly callUs: number;
  /** Calls a second of all inferlets, from the first one's beginning to the last one's end. */
  readonly perSecond: number;
  /** Time of a bare step whose batch has one sequence for each inferlet. */
  readonly bareUs: number;
}

/** Latency of handler calls by layer, and how it grows with the number of inferlets that call. */
export const calls: Bench = {
  name: 'calls',
  summary:
    'time of one handler call of the control and the inference layer, and contention: 1 to 512 inferlets at once',
  help: `Inferlets repeat one handler call on a tiny random model, all at once and each waiting for its own call (Pie, SOSP '25, Figure 10 and
contention): calls of the control layer (random, tokenize, allocate and free an embed, store.get), and of the inference layer (synchronize, a step
of one token, and the same token by three calls). The clocks are the inferlets' own. The baseline of the calls that compute is a bare step of the
same backend with as many sequences, in the benchmark's own process. A round measures every call and the bare step, in turns, at each number of
inferlets; one more round before warms all. The growth is taken over one inferlet in the same round.`,
  quick: `${QUICK_COUNTS.join(' and ')} inferlets (of ${COUNTS.join(', ')}), with a quarter of the calls.`,
  async run({ repetitions, quick, progress }) {
    const [counts, part] = quick ? [QUICK_COUNTS, QUICK_PART] : [COUNTS, 1];
    const samples = new Map<string, Sample[]>();
    const home = await newHome();
    const { directory } = await randomModel(path.join(home, 'model'), {}, 1);
    const config = `[[model]]\nname = "tiny"\nsource = "file:${directory}"\nbits = 32\npages = ${PAGES}\n`;
    await using platform = await Platform.start({ home, functions: false, config });
    await deployWith(platform, 'calls.ts', { name: 'calls', grants: { store: true } });
    await using bare = await BareBackend.open(platform);
    for (let round = 0; round <= repetitions; round++) {
      for (const inferlets of counts) {
        const bareMs = async () =>
          (await bareLoop(bare.backend, { batch: inferlets, context: 1, steps: BARE_STEPS })).msPerStep;
        const sides = CALLS.map((call) => () => callTogether(platform, { ...call, part, inferlets }));
        if (round === 0) {
          await warmUp([bareMs, ...sides]);
          continue;
        }
        const [bareStepMs, ...measured] = await inTurn(round, [bareMs, ...sides]);
        measured.forEach((sample, i) => {
          const key = `${CALLS[i]?.name} ${inferlets}`;
          samples.set(key, [...(samples.get(key) ?? []), { ...sample, bareUs: 1000 * bareStepMs }]);
        });
        progress(`round ${round} of ${repetitions}, ${inferlets} inferlets`);
      }
    }
    const rows = CALLS.flatMap(({ name, layer, title }) => {
      const ofOneInferlet = samples.get(`${name} 1`) ?? [];
      return counts.map((inferlets) => {
        const ofCount = samples.get(`${name} ${inferlets}`) ?? [];
        const spreadOf = (pick: (sample: Sample) => number) => spread(ofCount.map(pick));
        const computes = name === 'step' || name === 'split';
        return {
          name,
          layer,
          title,
          inferlets,
          callUs: spreadOf((sample) => sample.callUs),
          growth: spread(ofCount.map((sample, i) => sample.callUs / (ofOneInferlet[i]?.callUs ?? Number.NaN))),
          perSecond: spreadOf((sample) => sample.perSecond),
          overheadUs: computes ? spreadOf((sample) => sample.callUs - sample.bareUs) : undefined,
        };
      });
    });
    return {
      title: `Handler calls, and contention of ${counts.join(', ')} inferlets at once, tiny model`,
      header: [
        'layer',
        'call',
        'inferlets',
        'µs a call',
        'over one inferlet',
        'calls/s of all',
        'µs beyond the bare step',
      ],
      rows: rows.map((row) => [
        row.layer,
        row.title,
        String(row.inferlets),
        formatSpread(row.callUs, 1),
        formatSpread(row.growth),
        formatSpread(row.perSecond, 0),
        row.overheadUs ? formatSpread(row.overheadUs, 0) : '',
      ]),
      notes: [
        "µs a call: an inferlet's time over its calls by its own clock, the median of the inferlets. Each inferlet waits for a call before it makes the next one.",
        'random is answered within the process of the sandbox, tokenize and allocate-embeds by the runtime, store.get by Redis by way of the runtime. A pair of allocate-embeds and free-embeds counts as one call; every 32 of them share one synchronize.',
        'synchronize goes to the GPU host by way of the runtime and computes nothing. A step computes one token without context; three calls for the same token count as one.',
        `Bare step: the same backend back to back, with as many sequences, over ${BARE_STEPS} steps from an empty context.`,
      ],
      data: rows.map((row) => ({ ...row, samples: samples.get(`${row.name} ${row.inferlets}`) })),
    };
  },
};

/** Lets `inferlets` inferlets make one call over and over, side by side. */
async function callTogether(
  platform: Platform,
  { name, calls: total, least, part, inferlets }: (typeof CALLS)[number] & { part: number; inferlets: number },
): Promise<Omit<Sample, 'bareUs'>> {
  const times = Math.max(least, Math.round((part * total) / inferlets));
  const inputs = Array.from({ length: inferlets }, () => ({ call: name, times }));
  const outputs = await startTogether<{ startedAt: number; elapsedMs: number }>(
    platform,
    'calls',
    inputs,
    async () => {},
  );
  const ends = outputs.map(({ startedAt, elapsedMs }) => startedAt + elapsedMs);
  const spanMs = Math.max(...ends) - Math.min(...outputs.map(({ startedAt }) => startedAt));
  return {
    callUs: (1000 * median(outputs.map(({ elapsedMs }) => elapsedMs))) / times,
    perSecond: (1000 * inferlets * times) / spanMs,
  };
}
