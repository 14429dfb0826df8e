import { randomFrom } from '../harness/random.ts';
import { fastestPeers } from './agents/peers.ts';
import { World } from './agents/world.ts';
import type { Bench, BenchReport } from './bench.ts';
import { type Lengths, poisson, randomWords, sendAt, shareGptLengths } from './load.ts';
import { inTurn } from './rounds.ts';
import { format, formatSpread, isEnoughFor, mean, median, quantile, spread } from './statistics.ts';
import { receiveCompletion } from './streams.ts';

const MODEL = 'stories15m';
const CONTEXT = 256;
/** Requests that node-llama-cpp computes at once. */
const SEQUENCES = 32;
/** Requests a second. */
const RATES = [4, 8, 16, 32, 48];
const QUICK_RATES = [8];
/** Requests at each rate: enough for a 99th percentile. */
const REQUESTS = 240;
const QUICK_REQUESTS = 40;
/** Requests sent one after another, to measure the times without load. */
const UNLOADED_REQUESTS = 16;
const QUICK_UNLOADED_REQUESTS = 8;
const WARM_REQUESTS = 48;
const QUICK_WARM_REQUESTS = 16;
/** Limits of the SLO for the first token and for a later one, as multiples of the times of the faster side without load. */
const SLO = { first: 10, token: 5 } as const;

const PEER = 'node-llama-cpp';
const SIDES = ['platform', PEER] as const;

/** A request of the load: token ids of its prompt, and the tokens to generate. */
interface LoadRequest {
  readonly prompt: readonly number[];
  readonly output: number;
}

/** A request as its client saw it. */
interface ServedRequest {
  readonly tokens: number;
  readonly firstMs: number;
  /** Mean time of the tokens after the first. */
  readonly tokenMs: number;
}

/** Sends a request. When its stream has ended, resolves to a function that evaluates the stream. */
type Serve = (asked: LoadRequest) => Promise<() => ServedRequest>;

/** Measurements of the requests at one rate, on one side and in one round. */
interface Run {
  readonly rate: number;
  readonly side: string;
  readonly round: number;
  readonly firstMs: readonly number[];
  readonly tokenMs: readonly number[];
  readonly tokensPerSecond: number;
  /** Share of the requests within the SLO. */
  readonly within: number;
}

/** The SLO of a round, and the times from which it is derived. */
interface Limits {
  readonly firstMs: number;
  readonly tokenMs: number;
  /** Medians without load, by side. */
  readonly alone: Readonly<Record<string, Pick<ServedRequest, 'firstMs' | 'tokenMs'>>>;
}

/** Poisson arrivals at several rates on the platform and on node-llama-cpp. */
export const serve: Bench = {
  name: 'serve',
  summary:
    'Poisson arrivals with lengths as of ShareGPT: first token, tokens, goodput under an SLO, over node-llama-cpp',
  help: `Sends streaming completions at the times of a Poisson process, whether or not earlier ones have ended, and measures the time to the first
token and the time of each later one. Lengths are log-normal with the means of ShareGPT (161 and 338 tokens, vLLM, SOSP '23) times ${CONTEXT} /
2,048, the model's context over theirs. Goodput: requests a second within the SLO, ${SLO.first} times the first token and ${SLO.token} times the
token of the faster side without load. The baseline is node-llama-cpp behind HTTP with the faster number of threads and ${SEQUENCES} sequences.
Both sides get the same prompts as token ids at the same times and have equally many tokens, which is checked. A round measures ${UNLOADED_REQUESTS} requests
one after another and then each rate; sides take turns in going first.`,
  quick: `${QUICK_RATES.length} of ${RATES.length} rates, ${QUICK_REQUESTS} requests instead of ${REQUESTS}, ${QUICK_UNLOADED_REQUESTS} without load instead of ${UNLOADED_REQUESTS}, and ${QUICK_WARM_REQUESTS} that warm each side instead of ${WARM_REQUESTS}. These are too few for a 99th percentile.`,
  async run({ repetitions, quick, progress }) {
    const [rates, count, unloadedCount] = quick
      ? [QUICK_RATES, QUICK_REQUESTS, QUICK_UNLOADED_REQUESTS]
      : [RATES, REQUESTS, UNLOADED_REQUESTS];
    await using world = await World.start({
      models: [MODEL],
      roundTripsMs: [],
      programs: [],
      peer: { sequences: SEQUENCES },
      progress,
    });
    const { begin } = world.tokensOf(MODEL);
    const load = (count: number, seed: number) => requests(begin, count, seed);
    const serveAt = (url: string): Serve => serveOver(`${url}/v1/completions`, world.platform.apiKey);
    const warmUpRequests = load(quick ? QUICK_WARM_REQUESTS : WARM_REQUESTS, 1);
    const serveTogether = (side: Serve) => Promise.all(warmUpRequests.map(side));
    const peers = await fastestPeers(world.peers, ({ server }) =>
      serveTogether(serveAt(`http://127.0.0.1:${server.port}`)),
    );
    const peer = peers.get(MODEL);
    if (peer === undefined) throw new Error('node-llama-cpp does not run');
    const sides = [serveAt(world.platform.url), serveAt(`http://127.0.0.1:${peer.server.port}`)];
    // `fastestPeers` has warmed up the peer with two runs, so the platform gets two as well.
    for (let i = 0; i < 2; i++) await serveTogether(sides[0] as Serve);
    const runs: Run[] = [];
    const limits: Limits[] = [];
    for (let round = 0; round < repetitions; round++) {
      const withoutLoad = await inTurn(
        round,
        sides.map((side) => () => oneByOne(side, load(unloadedCount, 2))),
      );
      const limit = limitsOf(withoutLoad);
      limits.push(limit);
      for (const rate of rates) {
        const seed = 1000 * (round + 1) + rate;
        const loadRequests = load(count, seed);
        const times = [...poisson(rate, randomFrom(seed)).take(loadRequests.length)];
        const results = await inTurn(
          round,
          sides.map((side) => () => openLoop(side, loadRequests, times)),
        );
        for (const [i, side] of SIDES.entries())
          runs.push({ rate, side, round, ...sampleOf(loadRequests, results[i] as OpenLoopResult, limit) });
        const [own, other] = runs.slice(-SIDES.length);
        progress(
          `round ${round + 1}, ${rate} requests/s: ${format((own?.within ?? 0) * 100, 0)} % within the SLO, node-llama-cpp ${format((other?.within ?? 0) * 100, 0)} %`,
        );
      }
    }
    return report(rates, runs, limits, peer.threads, load(REQUESTS, 3));
  },
};

function report(
  rates: readonly number[],
  runs: readonly Run[],
  limits: readonly Limits[],
  threads: number,
  typical: readonly LoadRequest[],
): BenchReport {
  const goodput = ({ rate, within }: Run) => rate * within;
  return {
    title: `Poisson arrivals, lengths as of ShareGPT, ${MODEL}`,
    header: [
      'requests/s',
      'side',
      'goodput, requests/s',
      'goodput over node-llama-cpp',
      'within the SLO, %',
      'first token ms p50',
      'first token p99',
      'token ms p50',
      'token p99',
      'tokens/s',
    ],
    rows: rates.flatMap((rate) =>
      SIDES.map((side) => {
        const ofSide = runs.filter((run) => run.rate === rate && run.side === side);
        const ofPeer = runs.filter((run) => run.rate === rate && run.side === PEER);
        const cellOf = (value: (run: Run) => number, digits: number) => formatSpread(spread(ofSide.map(value)), digits);
        const quantiles = (times: (run: Run) => readonly number[], digits: number) =>
          [0.5, 0.99].map((q) =>
            ofSide.every((run) => isEnoughFor(q, times(run).length))
              ? cellOf((run) => quantile(times(run), q), digits)
              : '',
          );
        const ratios = ofSide.map((run, i) => goodput(run) / goodput(ofPeer[i] as Run)).filter(Number.isFinite);
        return [
          String(rate),
          side,
          cellOf(goodput, 1),
          side === PEER || ratios.length < ofSide.length ? '' : formatSpread(spread(ratios)),
          cellOf(({ within }) => within * 100, 0),
          ...quantiles(({ firstMs }) => firstMs, 0),
          ...quantiles(({ tokenMs }) => tokenMs, 1),
          cellOf(({ tokensPerSecond }) => tokensPerSecond, 0),
        ];
      }),
    ),
    notes: [
      `Goodput: requests a second within the SLO of the round: first token within ${limits.map(({ firstMs }) => format(firstMs, 0)).join(', ')} ms and ${limits.map(({ tokenMs }) => format(tokenMs, 1)).join(', ')} ms a later token, ${SLO.first} and ${SLO.token} times those of the faster side without load.`,
      `Without load, ms to the first token and a later one: ${SIDES.map((side) => `${side} ${aloneOf(limits, side, 'firstMs')} and ${aloneOf(limits, side, 'tokenMs')}`).join('; ')}. A ratio is missing where node-llama-cpp has no goodput.`,
      `Mean lengths of ${typical.length} requests drawn as those of a round are: ${format(mean(typical.map(({ prompt }) => prompt.length)), 0)} tokens of prompt, ${format(mean(typical.map(({ output }) => output)), 0)} of output. "Token": the mean of the tokens after the first of a request.`,
      'Beyond its capacity a side answers ever later, so its times also depend on the number of requests in a round.',
      `node-llama-cpp: ${threads} threads, the faster number, and ${SEQUENCES} sequences. It sends the id of each token; the platform sends text, and all ids at the end.`,
    ],
    data: { limits, runs },
  };
}

const aloneOf = (limits: readonly Limits[], side: string, time: 'firstMs' | 'tokenMs'): string =>
  formatSpread(spread(limits.map(({ alone }) => alone[side]?.[time] ?? Number.NaN)), 1);

function requests(begin: (text: string) => number[], count: number, seed: number): LoadRequest[] {
  const random = randomFrom(seed);
  return Array.from({ length: count }, () => {
    const { prompt, output }: Lengths = shareGptLengths(CONTEXT, random);
    return { prompt: begin(randomWords(prompt, random)).slice(0, prompt), output };
  });
}

const serveOver =
  (url: string, apiKey: string): Serve =>
  async ({ prompt, output }) => {
    const body = { model: MODEL, prompt, max_tokens: output, temperature: 0, ignore_eos: true };
    const read = await receiveCompletion(url, apiKey, body);
    return () => {
      const { tokens, firstMs, gapsMs } = read();
      const laterMs = gapsMs.reduce((sum, gapMs) => sum + gapMs, 0);
      return { tokens, firstMs, tokenMs: laterMs / (tokens - 1) };
    };
  };

async function oneByOne(serveOne: Serve, loadRequests: readonly LoadRequest[]): Promise<ServedRequest[]> {
  const reads: (() => ServedRequest)[] = [];
  for (const request of loadRequests) reads.push(await serveOne(request));
  return reads.map((read) => read());
}

interface OpenLoopResult {
  readonly elapsedMs: number;
  readonly served: readonly ServedRequest[];
}

async function openLoop(
  serveOne: Serve,
  loadRequests: readonly LoadRequest[],
  timesMs: readonly number[],
): Promise<OpenLoopResult> {
  const startMs = performance.now();
  const reads = await sendAt(timesMs, (i) => serveOne(loadRequests[i] as LoadRequest)).allResults();
  const elapsedMs = performance.now() - startMs;
  return { elapsedMs, served: reads.map((read) => read()) };
}

function limitsOf(alone: readonly (readonly ServedRequest[])[]): Limits {
  const medians = alone.map((list) => ({
    firstMs: median(list.map(({ firstMs }) => firstMs)),
    tokenMs: median(list.map(({ tokenMs }) => tokenMs)),
  }));
  const fastest = (time: 'firstMs' | 'tokenMs') => Math.min(...medians.map((of) => of[time]));
  return {
    firstMs: SLO.first * fastest('firstMs'),
    tokenMs: SLO.token * fastest('tokenMs'),
    alone: Object.fromEntries(SIDES.map((side, i) => [side, medians[i] as ServedRequest])),
  };
}

/** @throws Error when a request did not get the number of tokens that it asked for */
function sampleOf(loadRequests: readonly LoadRequest[], { elapsedMs, served: list }: OpenLoopResult, limits: Limits) {
  const wrongIndex = list.findIndex(({ tokens }, i) => tokens !== loadRequests[i]?.output);
  if (wrongIndex >= 0)
    throw new Error(`${list[wrongIndex]?.tokens} tokens arrived of ${loadRequests[wrongIndex]?.output}`);
  const within = list.filter(({ firstMs, tokenMs }) => firstMs <= limits.firstMs && tokenMs <= limits.tokenMs).length;
  return {
    firstMs: list.map(({ firstMs }) => firstMs),
    tokenMs: list.map(({ tokenMs }) => tokenMs),
    tokensPerSecond: (list.reduce((sum, { tokens }) => sum + tokens, 0) * 1000) / elapsedMs,
    within: within / list.length,
  };
}
