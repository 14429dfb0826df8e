import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { deploySource, modelStats } from '#test/harness/deploy.ts';
import { invoke } from '#test/harness/events.ts';
import { Platform, ROOT } from '#test/harness/platform.ts';
import type { Bench, BenchReport } from './bench.ts';
import { outputOf, timeFirstMessage } from './clients.ts';
import { probeSteadily } from './load.ts';
import { inTurn } from './rounds.ts';
import { format, formatSpread, isEnoughFor, quantile, spread, spreadOver } from './statistics.ts';

const MODEL = 'stories15m';
const BATCH = 'text-completion';
/** The function `BATCH` with a latency target for every token. */
const PACED = { name: 'paced-completion', latency: { firstTokenMs: 30, perTokenMs: 15 } };
/** The function `BATCH` with a target for the first token only: 10 s for each later token is no limit in practice. */
const FIRST_TOKEN_ONLY = { name: 'prompt-completion', latency: { firstTokenMs: 30, perTokenMs: 10_000 } };
/** Invocations of the batch function that run at all times. */
const STREAMS = 16;
/** Words of a batch prompt; no two prompts begin alike, so the prefix cache has none of them. */
const PROMPT_WORDS = 110;
const BATCH_TOKENS = 4;
/** Quota of invocations with targets: more than the probes that are open at once. */
const LATENCY_QUOTA = 64;
const PROBE_EVERY_MS = 1000;
const QUICK_PROBE_EVERY_MS = 200;
const PHASE_MS = 120_000;
const QUICK_PHASE_MS = 5000;
const WARM_REQUESTS = 10;
const SETTLE_MS = 3000;
const QUICK_SETTLE_MS = 1500;
const MAX_ROUNDS = 3;
/** Input of the probes: short invocations of a function with latency targets. */
const LIVE_INPUT = { prompt: 'The dragon lived on a hill and every morning it flew', maxTokens: 8, temperature: 0 };

/** Measurements of one phase, at the probes and at the batch clients. */
interface Phase {
  /** Times from the request to the first message of the probes, ms. */
  readonly firstMs: readonly number[];
  /** Mean time of a token after the first, for each probe, ms. */
  readonly tokenMs: readonly number[];
  /** Batch invocations that ended per second. */
  readonly batchPerSecond: number;
  /** Mean duration of a device step, ms. */
  readonly stepMs: number;
}

/** Durations of a phase: the flood before the measurement, the measurement, and the interval of the probes. */
interface Times {
  readonly settleMs: number;
  readonly phaseMs: number;
  readonly everyMs: number;
}

const WHOLE: Times = { settleMs: SETTLE_MS, phaseMs: PHASE_MS, everyMs: PROBE_EVERY_MS };
const QUICK: Times = { settleMs: QUICK_SETTLE_MS, phaseMs: QUICK_PHASE_MS, everyMs: QUICK_PROBE_EVERY_MS };

/** Phases of a round. `ordinary` runs beside the flood with the quota at 0, `prompt` and `paced` with the quota at {@link LATENCY_QUOTA}. */
interface Round {
  readonly unloaded: Phase;
  readonly ordinary: Phase;
  /** Undefined in a quick run. */
  readonly prompt: Phase | undefined;
  readonly paced: Phase;
}

/** A function with latency targets beside a flood of prompts of its own tenant. */
export const classes: Bench = {
  name: 'classes',
  summary: 'latency targets beside a flood of prompts: time to first message, and what the flood loses',
  help: `${STREAMS} clients of one tenant send prompts of about ${PROMPT_WORDS} words without pause. A client of the same tenant invokes a
function with latency targets every ${PROBE_EVERY_MS} ms and measures the time to its first message. A round measures the function without the flood,
then beside it: with the quota latency-invocations at 0 (the targets have no effect), at ${LATENCY_QUOTA} with a target for the first token only, and at
${LATENCY_QUOTA} with one for each token. The last three take turns in which goes first. The baseline of both the times and the flood's throughput is
the phase with the quota at 0.`,
  quick: `Without the target for the first token only; phases of ${QUICK_PHASE_MS / 1000} s instead of ${PHASE_MS / 1000} with a probe every ${QUICK_PROBE_EVERY_MS} ms, which have no 99th percentile.`,
  async run({ repetitions, quick, progress }) {
    const times = quick ? QUICK : WHOLE;
    const config = `[[model]]\nname = "${MODEL}"\npages = 4096\n`;
    await using platform = await Platform.start({ functions: [BATCH], config });
    for (const manifest of [PACED, FIRST_TOKEN_ONLY])
      await deploySource(platform, path.join(ROOT, 'functions', BATCH), { manifest });
    for (let i = 0; i < WARM_REQUESTS; i++) {
      for (const { name } of [PACED, FIRST_TOKEN_ONLY]) await timeFirstMessage(platform, name, LIVE_INPUT);
      await timeFirstMessage(platform, BATCH, batchInput());
    }
    const rounds: Round[] = [];
    for (let i = 0; i < Math.min(MAX_ROUNDS, repetitions); i++) {
      const unloaded = await measurePhase(platform, times, { live: PACED.name, streams: 0, granted: 0 });
      const side = (live: string, granted: number) => () =>
        measurePhase(platform, times, { live, streams: STREAMS, granted });
      const floodedPhases = [
        side(PACED.name, 0),
        ...(quick ? [] : [side(FIRST_TOKEN_ONLY.name, LATENCY_QUOTA)]),
        side(PACED.name, LATENCY_QUOTA),
      ];
      const phases = await inTurn<Phase[]>(i, floodedPhases);
      const [ordinary, paced] = [phases[0], phases.at(-1)] as [Phase, Phase];
      rounds.push({ unloaded, ordinary, prompt: quick ? undefined : phases[1], paced });
      const [a, b, c] = [unloaded, ordinary, paced].map(({ firstMs }) => format(quantile(firstMs, 0.5), 0));
      progress(`round ${i + 1}: first message p50 ${a} ms alone, ${b} ms beside the flood, ${c} ms with targets`);
    }
    return report(rounds);
  },
};

function report(rounds: readonly Round[]): BenchReport {
  const namedPhases: readonly (readonly [string, (round: Round) => Phase | undefined])[] = [
    ['without the flood', ({ unloaded }) => unloaded],
    ['beside it, quota 0', ({ ordinary }) => ordinary],
    ['a target for the first token', ({ prompt }) => prompt],
    ['targets for all tokens', ({ paced }) => paced],
  ];
  const sides = namedPhases
    .map(([name, side]) => [name, rounds.flatMap((round) => side(round) ?? [])] as const)
    .filter(([, phases]) => phases.length > 0);
  return {
    title: `A function with latency targets beside ${STREAMS} streams of prompts`,
    header: [
      'phase',
      'first p50, ms',
      'p95',
      'p99',
      'steps above alone, p95',
      'p99',
      'token p50, ms',
      'p95',
      'batch/s',
      'over quota 0',
      'step, ms',
    ],
    rows: sides.map(([name, phases]) => {
      const cellOf = (value: (phase: Phase, round: Round) => number, digits: number) =>
        formatSpread(spread(rounds.map((round, i) => value(phases[i] as Phase, round))), digits);
      const ifEnough = (q: number, cell: string) => (rounds.every((round) => hasQuantile(round, q)) ? cell : '');
      return [
        name,
        ...[0.5, 0.95, 0.99].map((q) =>
          ifEnough(
            q,
            cellOf(({ firstMs }) => quantile(firstMs, q), 0),
          ),
        ),
        ...[0.95, 0.99].map((q) =>
          ifEnough(
            q,
            cellOf((phase, round) => stepsAbove(round, phase, q), 1),
          ),
        ),
        ...[0.5, 0.95].map((q) =>
          ifEnough(
            q,
            cellOf(({ tokenMs }) => quantile(tokenMs, q), 1),
          ),
        ),
        cellOf(({ batchPerSecond }) => batchPerSecond, 2),
        cellOf(({ batchPerSecond }, { ordinary }) => batchPerSecond / ordinary.batchPerSecond, 2),
        cellOf(({ stepMs }) => stepMs, 1),
      ];
    }),
    notes: [
      `Cells: ${spreadOver(rounds.length)}; probes in each: ${rounds.map((_, i) => sides.map(([, phases]) => phases[i]?.firstMs.length).join(', ')).join('; ')}.`,
      'Steps above alone: the quantile of the first message, less that without the flood, in mean steps of the flood at quota 0.',
      `Targets: ${[FIRST_TOKEN_ONLY, PACED].map(({ latency }) => `${latency.firstTokenMs} ms to the first token and ${latency.perTokenMs} ms for each later one`).join('; ')}, on the GPU host.`,
    ],
    data: rounds,
  };
}

const hasQuantile = ({ unloaded, ordinary, prompt, paced }: Round, q: number): boolean =>
  [unloaded, ordinary, prompt ?? paced, paced].every(({ firstMs }) => isEnoughFor(q, firstMs.length));

const stepsAbove = ({ unloaded, ordinary }: Round, side: Phase, q: number): number =>
  (quantile(side.firstMs, q) - quantile(unloaded.firstMs, q)) / ordinary.stepMs;

interface Setup {
  /** The function that the probes invoke. */
  readonly live: string;
  readonly streams: number;
  /** The quota of invocations with targets. */
  readonly granted: number;
}

async function measurePhase(
  platform: Platform,
  { settleMs, phaseMs, everyMs }: Times,
  { live, streams, granted }: Setup,
): Promise<Phase> {
  await grant(platform, granted);
  const stop = new AbortController();
  let ended = 0;
  const stream = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      outputOf(await invoke(platform, BATCH, batchInput()));
      ended++;
    }
  };
  const flood = Promise.all(Array.from({ length: streams }, stream));
  flood.catch(() => stop.abort());
  try {
    await sleep(settleMs);
    await modelStats(platform, { reset: true });
    const start = { ended, at: performance.now() };
    const probing = probeSteadily(everyMs, () => probe(platform, live));
    await sleep(phaseMs, undefined, { signal: stop.signal }).catch(() => undefined);
    const batchPerSecond = ((ended - start.ended) * 1000) / (performance.now() - start.at);
    const { meanStepMs } = await modelStats(platform);
    const probes = await probing.stop();
    const firstMs = probes.map((one) => one.firstMs);
    return { firstMs, tokenMs: probes.map((one) => one.tokenMs), batchPerSecond, stepMs: meanStepMs };
  } finally {
    stop.abort();
    await flood;
  }
}

async function probe(
  platform: Platform,
  live: string,
): Promise<{ readonly firstMs: number; readonly tokenMs: number }> {
  const startMs = performance.now();
  const { firstMs } = await timeFirstMessage(platform, live, LIVE_INPUT);
  return { firstMs, tokenMs: (performance.now() - startMs - firstMs) / (LIVE_INPUT.maxTokens - 1) };
}

let promptCount = 0;

function batchInput() {
  // The number in front makes each prompt unique; the primes mix the digits that follow.
  const words = Array.from({ length: PROMPT_WORDS }, (_, i) =>
    `${(promptCount * 7919 + i * 104_729) % 9973}`.slice(0, 1),
  );
  return { prompt: `${promptCount++} ${words.join(' ')}`, maxTokens: BATCH_TOKENS, temperature: 0 };
}

async function grant(platform: Platform, invocations: number): Promise<void> {
  const { code, stderr } = await platform.pie(['quota', 'set', 'latency-invocations', String(invocations)]);
  if (code !== 0) throw new Error(stderr);
}
