import { setTimeout as sleep } from 'node:timers/promises';

/** Requests in flight, and their results. */
export interface LoadGenerator<T> {
  /** Number of requests sent so far. */
  readonly sent: number;
  /** Sends no further request, waits for those on their way, and returns all results in the order of sending. */
  stop(): Promise<T[]>;
  /** Waits until the last request has been sent and all have ended. */
  allResults(): Promise<T[]>;
}

/**
 * Sends requests at given times, in ms from now, even while earlier requests are pending. Slow answers delay no later request, which avoids
 * coordinated omission. A failed request ends the sending; `stop` and `allResults` throw its error.
 */
export function sendAt<T>(timesMs: Iterable<number>, send: (index: number) => Promise<T>): LoadGenerator<T> {
  const stopped = new AbortController();
  const requests: Promise<T>[] = [];
  const startMs = performance.now();
  const sending = (async () => {
    for (const atMs of timesMs) {
      const leftMs = startMs + atMs - performance.now();
      if (leftMs > 0) await sleep(leftMs, undefined, { signal: stopped.signal }).catch(() => undefined);
      if (stopped.signal.aborted) return;
      const request = send(requests.length);
      request.catch(() => stopped.abort());
      requests.push(request);
    }
  })();
  const allResults = async () => {
    await sending;
    return Promise.all(requests);
  };
  return {
    get sent() {
      return requests.length;
    },
    stop: () => {
      stopped.abort();
      return allResults();
    },
    allResults,
  };
}

/** Sends a probe at once and then every `everyMs`, until `stop`. */
export const probeSteadily = <T>(everyMs: number, probe: (index: number) => Promise<T>): LoadGenerator<T> =>
  sendAt(steps(everyMs), probe);

function* steps(everyMs: number): Generator<number> {
  for (let i = 0; ; i++) yield i * everyMs;
}

/** Times of a Poisson process without an end, in ms from its beginning. `random` gives numbers from 0 up to 1. */
export function* poisson(perSecond: number, random: () => number): Generator<number> {
  for (let atMs = 0; ; ) {
    atMs += (-Math.log(1 - random()) * 1000) / perSecond;
    yield atMs;
  }
}

/** Tokens of a request. */
export interface Lengths {
  readonly prompt: number;
  readonly output: number;
}

/** Mean lengths of ShareGPT's conversations, and the context to which they were cut (Kwon et al., vLLM, SOSP '23, section 6.2). */
const SHAREGPT = { prompt: 161.31, output: 337.99, context: 2048 };
/** Standard deviation of the logarithms of both lengths. */
const SIGMA = 1;
const MIN_LENGTHS: Lengths = { prompt: 4, output: 2 };

/**
 * Lengths in the manner of ShareGPT for a model with a shorter context: log-normal, with ShareGPT's means times the ratio of the contexts. A
 * prompt takes at most half of the context, and prompt and output together fit in it.
 */
export function shareGptLengths(context: number, random: () => number): Lengths {
  const scale = context / SHAREGPT.context;
  const draw = (mean: number, least: number, most: number) =>
    Math.min(most, Math.max(least, Math.round(logNormal(mean * scale, random))));
  const prompt = draw(SHAREGPT.prompt, MIN_LENGTHS.prompt, context / 2);
  return { prompt, output: draw(SHAREGPT.output, MIN_LENGTHS.output, context - prompt) };
}

/** A log-normal number with this mean, from a normal number by the Box–Muller transform (1958). */
export function logNormal(mean: number, random: () => number): number {
  const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return mean * Math.exp(SIGMA * normal - SIGMA ** 2 / 2);
}

const WORDS =
  'the a big old red blue cat dog bird tree house river boy girl king ran saw had sat and with under to one day'.split(
    ' ',
  );

/** `count` words, of one or more tokens each. Two such texts hardly ever have a page of tokens in common. */
export const randomWords = (count: number, random: () => number): string =>
  Array.from({ length: count }, () => WORDS[Math.floor(random() * WORDS.length)]).join(' ');
