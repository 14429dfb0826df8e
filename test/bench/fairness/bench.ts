import { setTimeout as sleep } from 'node:timers/promises';
import { Platform } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';
import { randomFrom } from '../../harness/random.ts';
import { type TextTokens, textTokens } from '../agents/tokens.ts';
import type { Bench, BenchReport } from '../bench.ts';
import { cancelAll } from '../clients.ts';
import { type Lengths, poisson, randomWords, sendAt } from '../load.ts';
import { inTurn } from '../rounds.ts';
import { format, formatSpread, median, spread } from '../statistics.ts';
import { receiveCompletion } from '../streams.ts';
import { boundOf, compareService, type Request, type ServiceComparison, WEIGHTS } from './service.ts';

const MODEL = 'stories15m';
/** Invocations that the platform runs at once. */
const SLOTS = 8;
const EVEN: Lengths = { prompt: 64, output: 64 };
const LONG_PROMPT: Lengths = { prompt: 96, output: 16 };
const LONG_OUTPUT: Lengths = { prompt: 16, output: 96 };
/** Most tokens of a request, prompt and output together: 128 with the even lengths, 112 with the others. */
const LONGEST_REQUEST = EVEN.prompt + EVEN.output;
const LONGEST_PROMPT = LONG_PROMPT.prompt;
/**
 * Maximum difference between the service of two clients while both wait, as the scheduler VTC (Virtual Token Counter, OSDI '24) guarantees it.
 * Service is the weighted number of tokens that a client got. A batch has at most `SLOTS` requests.
 */
const BOUND = boundOf(LONGEST_PROMPT, SLOTS * LONGEST_REQUEST);
/** A load lasts as long as the platform needs to answer this many requests. The service of so many requests is many times `BOUND`. */
const ANSWERED = 400;
const QUICK_ANSWERED = 80;
/** Number of requests at once that warm up the platform, and then measure its capacity. */
const CAPACITY_REQUESTS = 32;

/** The requests of one client. */
interface Load {
  /** Requests a second, as a multiple of the platform's capacity. */
  readonly rate: number;
  readonly lengths: Lengths;
  /** Intervals in which the client sends, as fractions of the load's duration. By default, the client sends all the time: [0, 1]. */
  readonly on?: readonly (readonly [from: number, to: number])[];
}

interface Setting {
  readonly name: string;
  /** The loads of the first and the second client. */
  readonly loads: readonly [Load, Load];
  /** True for a setting that quick runs measure, too. */
  readonly isQuick?: boolean;
}

const load = (rate: number, lengths = EVEN): Load => ({ rate, lengths });

/** The settings of section 5.2 of the paper on VTC (Sheng et al., Fairness in Serving Large Language Models, OSDI '24). */
const SETTINGS: readonly Setting[] = [
  { name: 'both overload, the second three times as much', loads: [load(0.75), load(2.25)], isQuick: true },
  {
    name: 'the first on and off, the second overloads',
    loads: [
      {
        ...load(2),
        on: [
          [0.2, 0.45],
          [0.7, 0.95],
        ],
      },
      load(1.5),
    ],
  },
  { name: 'the first underloaded, the second overloads', loads: [load(0.25), load(2.25)] },
  { name: 'long prompts and long outputs, both overload', loads: [load(4, LONG_PROMPT), load(2, LONG_OUTPUT)] },
];

/** `two tenants`: each client has a tenant and so a queue of its own. `one tenant`, the baseline: both clients share the first tenant's queue. */
const QUEUES = ['two tenants', 'one tenant'] as const;

/** Results of one setting with one choice of `QUEUES`, in one round. */
interface Sample extends ServiceComparison {
  readonly setting: string;
  readonly queues: string;
  /**
   * For each request of the first client, the time from the sending to the first piece of output, in ms. For a request without output, the time
   * until the end of the load.
   */
  readonly firstMs: readonly number[];
  /** Of the output tokens that the first client asked for, the share that arrived before the end of the load, from 0 to 1. */
  readonly answered: number;
}

/** Measures the difference between the service of two clients with different loads, while both wait, and compares it with VTC's bound. */
export const fairness: Bench = {
  name: 'fairness',
  summary:
    'difference in service of two tenants that both wait, over the bound of VTC; baseline: first come, first served',
  help: `Two clients send completions at the times of Poisson processes, in the settings of the scheduler VTC (Virtual Token Counter: Sheng et
al., OSDI '24, section 5.2): both overload, one is on and off, one is underloaded, prompts or outputs are long. Service counts
${WEIGHTS.input} for a token of a prompt and ${WEIGHTS.output} for one of an output, when the client receives it. Reports the largest difference
between the two clients' service within any window in which both wait, over VTC's bound:
2 × max(${WEIGHTS.input} × the longest prompt, ${WEIGHTS.output} × the most tokens of a batch). A client surely waits while more of its requests
are open than the platform runs at once (${SLOTS}). In the baseline both clients use the key of one tenant, whose invocations the platform serves
first come, first served. Rates are multiples of the measured capacity. A round runs each setting with two tenants and with one, which take turns
in going first.`,
  quick: `1 of ${SETTINGS.length} settings, with both queues, for ${QUICK_ANSWERED} answers instead of ${ANSWERED}.`,
  async run({ repetitions, quick, progress }) {
    const config = `[runtime]\nconcurrency = ${SLOTS}\n\n[[model]]\nname = "${MODEL}"\npages = 1024\n`;
    await using platform = await Platform.start({ functions: ['openai-completions'], config });
    const tokens = await textTokens(MODEL);
    const clients = [await createTenant(platform, 'first'), await createTenant(platform, 'second')] as const;
    for (const client of clients) await capacityOf(platform, tokens, client); // Warm-up.
    const perSecond = await capacityOf(platform, tokens, clients[0]);
    const loadMs = ((quick ? QUICK_ANSWERED : ANSWERED) * 1000) / perSecond;
    const loadSetup = { platform, tokens, clients, perSecond, loadMs };
    const settings = SETTINGS.filter(({ isQuick = false }) => !quick || isQuick);
    const samples: Sample[] = [];
    for (let round = 0; round < repetitions; round++) {
      for (const [i, setting] of settings.entries()) {
        const seed = 100 * round + 10 * i;
        const run = (queues: (typeof QUEUES)[number]) => () => measure(loadSetup, setting, queues, seed);
        const pair = await inTurn(round + i, [run('two tenants'), run('one tenant')]);
        samples.push(...pair);
        const [twoTenants, oneTenant] = pair.map(({ difference }) => format(difference / BOUND));
        progress(`round ${round + 1}, ${setting.name}: ${twoTenants} of the bound, ${oneTenant} in one queue`);
      }
    }
    return report(settings, samples, loadSetup);
  },
};

function report(
  settings: readonly Setting[],
  samples: readonly Sample[],
  { perSecond, loadMs }: LoadSetup,
): BenchReport {
  return {
    title: `Service of two clients while both wait, ${SLOTS} slots, ${MODEL}`,
    header: [
      'setting',
      'queues',
      'over the bound',
      'largest difference',
      'first client, units/s',
      'second client, units/s',
      'first client: first message ms p50',
      'its tokens answered, %',
    ],
    rows: settings.flatMap(({ name }) =>
      QUEUES.map((queues) => {
        const matching = samples.filter((sample) => sample.setting === name && sample.queues === queues);
        const cellOf = (value: (sample: Sample) => number, digits: number) =>
          formatSpread(spread(matching.map(value)), digits);
        // Empty when in some round the clients did not both wait: these values count only the time in which both wait.
        const waitingCellOf = (value: (sample: Sample) => number, digits: number) =>
          matching.some(({ waitedMs }) => waitedMs === 0) ? '' : cellOf(value, digits);
        return [
          name,
          queues,
          waitingCellOf(({ difference }) => difference / BOUND, 2),
          waitingCellOf(({ difference }) => difference, 0),
          ...([0, 1] as const).map((client) =>
            waitingCellOf(({ served, waitedMs }) => (served[client] * 1000) / waitedMs, 0),
          ),
          cellOf(({ firstMs }) => median(firstMs), 0),
          cellOf(({ answered }) => answered * 100, 0),
        ];
      }),
    ),
    notes: [
      `Service: ${WEIGHTS.input} a token of a prompt, ${WEIGHTS.output} a token of an output (units). Bound: ${BOUND} units, from prompts of at most ${LONGEST_PROMPT} tokens and ${SLOTS} requests of at most ${LONGEST_REQUEST} at once.`,
      `Requests: ${[EVEN, LONG_PROMPT, LONG_OUTPUT].map(({ prompt, output }) => `${prompt} + ${output}`).join(', ')} tokens. Capacity: ${format(perSecond, 1)} requests/s of ${EVEN.prompt} + ${EVEN.output}; a load takes ${format(loadMs / 1000, 0)} s.`,
      'Empty cells: the clients did not both wait. Units a second are those within the windows in which they did.',
      'One tenant: both clients share its queue, first come, first served. A request that had not begun at the end of the load counts with its time until then.',
      "Admission charges a tenant its invocations' slots and pages times their duration, not tokens: programs do other work, too. A prompt takes fewer steps than an output of as many tokens, so clients of unlike lengths get equal time and unlike numbers of tokens.",
    ],
    data: samples,
  };
}

interface LoadSetup {
  readonly platform: Platform;
  readonly tokens: TextTokens;
  readonly clients: readonly [TenantClient, TenantClient];
  /** The platform's capacity, in requests a second. */
  readonly perSecond: number;
  /** Duration of a load. */
  readonly loadMs: number;
}

/** The platform's capacity in requests a second: sends requests of the even lengths, all at once, and measures the time until all have ended. */
async function capacityOf(platform: Platform, tokens: TextTokens, { apiKey }: TenantClient): Promise<number> {
  const random = randomFrom(1);
  const startMs = performance.now();
  const request = () => complete(platform, apiKey, bodyOf(tokens, EVEN, random));
  await Promise.all(Array.from({ length: CAPACITY_REQUESTS }, request));
  return (CAPACITY_REQUESTS * 1000) / (performance.now() - startMs);
}

/** Runs the loads of both clients of a setting. At the end of the load, cancels the requests that still wait. */
async function measure(
  { platform, tokens, clients, perSecond, loadMs }: LoadSetup,
  { name, loads }: Setting,
  queues: (typeof QUEUES)[number],
  seed: number,
): Promise<Sample> {
  const startMs = performance.now();
  const nowMs = () => performance.now() - startMs;
  const sendings = loads.map((clientLoad, i) => {
    const client = i as 0 | 1;
    const { apiKey } = queues === 'two tenants' ? clients[client] : clients[0];
    const random = randomFrom(seed + client);
    const times = [...sendTimes(clientLoad, perSecond, loadMs, random)];
    return sendAt(times, async (): Promise<Request> => {
      const sentMs = nowMs();
      const request = { client, sentMs, input: clientLoad.lengths.prompt, output: clientLoad.lengths.output };
      try {
        const parse = await complete(platform, apiKey, bodyOf(tokens, clientLoad.lengths, random));
        // Read the clock before `parse`, because the request has ended and parsing takes time, too.
        const endMs = nowMs();
        return { ...request, endMs, ...piecesOf(sentMs, parse()) };
      } catch (error) {
        // The end of the load has cancelled this request before it began. An error before that end is a real one.
        if (nowMs() < loadMs) throw error;
        return { ...request, endMs: loadMs, piecesMs: [] };
      }
    });
  });
  const ended = Promise.all(sendings.map((sending) => sending.allResults()));
  await Promise.race([sleep(loadMs), ended]);
  for (const client of clients) await cancelAll(client, 'queued');
  const requests = (await ended).flat();
  const firstRequests = requests.filter(({ client }) => client === 0);
  const askedTokens = firstRequests.reduce((sum, { output }) => sum + output, 0);
  const answeredTokens = firstRequests.reduce((sum, { piecesMs, output }) => {
    if (piecesMs.length === 0) return sum;
    const piecesInTime = piecesMs.filter((atMs) => atMs <= loadMs).length;
    return sum + (output * piecesInTime) / piecesMs.length;
  }, 0);
  return {
    setting: name,
    queues,
    ...compareService(requests, SLOTS, loadMs),
    firstMs: firstRequests.map(({ sentMs, piecesMs }) => (piecesMs[0] ?? loadMs) - sentMs),
    answered: answeredTokens / askedTokens,
  };
}

/** Times at which a client sends its requests, in ms from the beginning of the load. */
function* sendTimes({ rate, on = [[0, 1]] }: Load, perSecond: number, loadMs: number, random: () => number) {
  for (const atMs of poisson(rate * perSecond, random)) {
    if (atMs > loadMs) return;
    if (on.some(([from, to]) => atMs >= from * loadMs && atMs < to * loadMs)) yield atMs;
  }
}

/** Sends a completion request and resolves when its stream has ended. The returned function parses the stream. */
const complete = (platform: Platform, apiKey: string, body: object) =>
  receiveCompletion(`${platform.url}/v1/completions`, apiKey, body);

/** The body of a request with these lengths. Its prompt has random words, cut to the length in tokens. */
function bodyOf({ begin }: TextTokens, { prompt, output }: Lengths, random: () => number) {
  const tokens = begin(randomWords(prompt, random)).slice(0, prompt);
  return { model: MODEL, prompt: tokens, max_tokens: output, temperature: 0, ignore_eos: true };
}

/**
 * The number of output tokens, and the time at which each piece of the output arrived, in ms from the beginning of the load. `Request` assumes
 * that all pieces have equally many tokens. In fact, the first piece has one token, and each later piece has the tokens of 25 ms. The number of
 * tokens received until any moment is therefore wrong by about one piece.
 */
function piecesOf(sentMs: number, stream: { tokens: number; firstMs: number; gapsMs: readonly number[] }) {
  const piecesMs = [sentMs + stream.firstMs];
  for (const gapMs of stream.gapsMs) piecesMs.push((piecesMs.at(-1) ?? 0) + gapMs);
  return { output: stream.tokens, piecesMs };
}
