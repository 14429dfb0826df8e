import { setTimeout as sleep } from 'node:timers/promises';
import { deployFunction } from '#gateway/cli/deployment.ts';
import { findFunction } from '#gateway/cli/function-source.ts';
import { PieClient } from '#gateway/client/client.ts';
import { modelStats } from '#test/harness/deploy.ts';
import { invoke, terminal } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench, BenchReport } from './bench.ts';
import { timeFirstMessage } from './clients.ts';
import { probeSteadily } from './load.ts';
import { inTurn } from './rounds.ts';
import { format, formatSpread, quantile, spread } from './statistics.ts';

const MODEL = 'stories15m';
const BATCH = 'text-completion';
/** The same function with latency targets: at once and at its own pace, or at once only. */
const PACED = { name: 'paced-completion', latency: { firstTokenMs: 30, perTokenMs: 15 } };
const PROMPT = { name: 'prompt-completion', latency: { firstTokenMs: 30, perTokenMs: 10_000 } };
/** Invocations of the batch function that run at all times. */
const STREAMS = 16;
/** Words of a batch prompt; no two prompts begin alike, so the prefix cache has none of them. */
const PROMPT_WORDS = 110;
const BATCH_TOKENS = 4;
/** More than the probes that are open at once. */
const GRANTED = 64;
const EVERY_MS = 1000;
const PHASE_MS = 120_000;
const QUICK_PHASE_MS = 30_000;
const WARM_REQUESTS = 10;
const SETTLE_MS = 3000;
const LIVE_INPUT = { prompt: 'The dragon lived on a hill and every morning it flew', maxTokens: 8, temperature: 0 };

/** Measurements of one phase, at the probes and at the batch clients. */
interface Phase {
  /** Times from the request to the first message of the probes, ms. */
  readonly firstMs: readonly number[];
  /** Times from the first message to the end of the stream, for each token after the first, ms. */
  readonly tokenMs: readonly number[];
  /** Batch invocations that ended, a second. */
  readonly batchPerSecond: number;
  /** Mean duration of a device step, ms. */
  readonly stepMs: number;
}

interface Round {
  readonly unloaded: Phase;
  readonly ordinary: Phase;
  readonly prompt: Phase;
  readonly paced: Phase;
}

/** A function with latency targets beside a flood of prompts of its own tenant. */
export const classes: Bench = {
  name: 'classes',
  summary: 'latency targets beside a flood of prompts: time to first message, and what the flood loses',
  help: `${STREAMS} clients of one tenant send prompts of about ${PROMPT_WORDS} words without pause. A client of the same tenant invokes a function with latency
targets every ${EVERY_MS} ms and measures the time to its first message. A round measures the function without the flood, then beside it: with the
quota latency-invocations at 0 (the targets have no effect), at ${GRANTED} with a target for the first token only, and at ${GRANTED} with one for each token. The
last three take turns in which goes first. The baseline of both the times and the flood's throughput is the phase with the quota at 0.`,
  async run({ repetitions, quick, progress }) {
    const phaseMs = quick ? QUICK_PHASE_MS : PHASE_MS;
    const config = `[[model]]\nname = "${MODEL}"\npages = 4096\n`;
    await using platform = await Platform.start({ functions: [BATCH], config });
    for (const one of [PACED, PROMPT]) await deployLive(platform, one);
    for (let i = 0; i < WARM_REQUESTS; i++) {
      for (const { name } of [PACED, PROMPT]) await timeFirstMessage(platform, name, LIVE_INPUT);
      await timeFirstMessage(platform, BATCH, batchInput());
    }
    const rounds: Round[] = [];
    for (let i = 0; i < (quick ? 1 : Math.min(3, repetitions)); i++) {
      const unloaded = await phase(platform, phaseMs, { live: PACED.name, streams: 0, granted: 0 });
      const side = (live: string, granted: number) => () =>
        phase(platform, phaseMs, { live, streams: STREAMS, granted });
      const sides = [side(PACED.name, 0), side(PROMPT.name, GRANTED), side(PACED.name, GRANTED)] as const;
      const [ordinary, prompt, paced] = await inTurn(i, sides);
      rounds.push({ unloaded, ordinary, prompt, paced });
      const [a, b, c, d] = [unloaded, ordinary, prompt, paced].map(({ firstMs }) => format(quantile(firstMs, 0.5), 0));
      progress(
        `round ${i + 1}: first message p50 ${a} ms alone, ${b} ms beside the flood, ${c} and ${d} ms with targets`,
      );
    }
    return report(rounds);
  },
};

function report(rounds: readonly Round[]): BenchReport {
  const of = (value: (round: Round) => number, digits: number) => formatSpread(spread(rounds.map(value)), digits);
  const sides = [
    ['without the flood', ({ unloaded }: Round) => unloaded],
    ['beside it, quota 0', ({ ordinary }: Round) => ordinary],
    ['a target for the first token', ({ prompt }: Round) => prompt],
    ['targets for all tokens', ({ paced }: Round) => paced],
  ] as const;
  return {
    title: `a function with latency targets beside ${STREAMS} streams of prompts`,
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
    rows: sides.map(([name, side]) => [
      name,
      ...[0.5, 0.95, 0.99].map((q) => of((round) => quantile(side(round).firstMs, q), 0)),
      ...[0.95, 0.99].map((q) => of((round) => stepsAbove(round, side(round), q), 1)),
      ...[0.5, 0.95].map((q) => of((round) => quantile(side(round).tokenMs, q), 1)),
      of((round) => side(round).batchPerSecond, 2),
      of((round) => side(round).batchPerSecond / round.ordinary.batchPerSecond, 2),
      of((round) => side(round).stepMs, 1),
    ]),
    notes: [
      `Median (min–max) over ${rounds.length} rounds; probes in each: ${rounds.map((round) => sides.map(([, side]) => side(round).firstMs.length).join(', ')).join('; ')}.`,
      'Steps above alone: the quantile of the first message, less that without the flood, in mean steps of the flood at quota 0.',
      `Targets: ${[PROMPT, PACED].map(({ latency }) => `${latency.firstTokenMs} ms to the first token and ${latency.perTokenMs} ms for each later one`).join('; ')}, on the GPU host.`,
    ],
    data: rounds,
  };
}

const stepsAbove = ({ unloaded, ordinary }: Round, side: Phase, q: number): number =>
  (quantile(side.firstMs, q) - quantile(unloaded.firstMs, q)) / ordinary.stepMs;

interface Setup {
  /** The function that the probes invoke. */
  readonly live: string;
  readonly streams: number;
  /** The quota of invocations with targets. */
  readonly granted: number;
}

async function phase(platform: Platform, ms: number, { live, streams, granted }: Setup): Promise<Phase> {
  await grant(platform, granted);
  const stop = new AbortController();
  let ended = 0;
  const stream = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      const end = terminal(await invoke(platform, BATCH, batchInput()));
      if (end?.event !== 'result') throw new Error(`a batch invocation failed: ${JSON.stringify(end?.data)}`);
      ended++;
    }
  };
  const flood = Promise.all(Array.from({ length: streams }, stream));
  flood.catch(() => stop.abort());
  try {
    await sleep(SETTLE_MS);
    await modelStats(platform, { reset: true });
    const from = { ended, at: performance.now() };
    const probing = probeSteadily(EVERY_MS, () => probe(platform, live));
    await sleep(ms, undefined, { signal: stop.signal }).catch(() => undefined);
    const batchPerSecond = ((ended - from.ended) * 1000) / (performance.now() - from.at);
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

let prompts = 0;

function batchInput() {
  const words = Array.from({ length: PROMPT_WORDS }, (_, i) => `${(prompts * 7919 + i * 104_729) % 9973}`.slice(0, 1));
  return { prompt: `${prompts++} ${words.join(' ')}`, maxTokens: BATCH_TOKENS, temperature: 0 };
}

async function deployLive(platform: Platform, changes: object): Promise<void> {
  const source = findFunction(`functions/${BATCH}`, undefined);
  const client = new PieClient({ url: platform.url, apiKey: platform.apiKey });
  await deployFunction(client, { ...source, manifest: { ...source.manifest, ...changes } });
}

async function grant(platform: Platform, invocations: number): Promise<void> {
  const { code, stderr } = await platform.pie(['quota', 'set', 'latency-invocations', String(invocations)]);
  if (code !== 0) throw new Error(stderr);
}
