import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';
import { modelStats } from '#test/harness/deploy.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { differingAnswers, measureShapes, type ShapeRow, shapeRows } from './prefix-shapes.ts';
import { QUICK_WORKLOADS, WORKLOADS } from './prefix-workloads.ts';
import { inTurn } from './rounds.ts';
import { format, formatSpread, median, spread } from './statistics.ts';
import { receive } from './streams.ts';

const REQUESTS = 32;
const QUICK_REQUESTS = 4;
const MAX_ROUNDS = 3;
const SHAPE = '135M';
const QUICK_SHAPE = '15M';
const WARM_REQUESTS = 10;
const MAX_TOKENS = 2;
/**
 * Tokens that each of the equal prompts generates. An inferlet that ends leaves only whole pages to the prefix cache, so an inferlet that begins
 * later computes the rest of the last page. With this many tokens, all inferlets begin before the first one ends.
 */
const EQUAL_MAX_TOKENS = 16;
const PAGE_SIZE = 16;
/** Common beginning of every prompt: about 190 tokens of the model's context of 256. */
const SHARED = Array.from({ length: 26 }, (_, i) => `The ${['red', 'blue', 'old'][i % 3]} bird saw a tree.`).join(' ');

interface Sample {
  /** From the request to the first message at the HTTP client. */
  readonly firstMessageMs: readonly number[];
  readonly prefilled: number;
  readonly hitTokens: number;
  readonly lookedUp: number;
  readonly expectedHits: number;
  /** Tokens that concurrent equal prompts prefilled, divided by the tokens of one prompt. */
  readonly prompts: number;
}

/** Requests with a shared prefix and different ends, then equal requests at once, with and without the prefix cache. */
export const prefix: Bench = {
  name: 'prefix',
  summary: 'tokens prefilled and time to first message on shared prefixes, with and without the prefix cache',
  help: `${REQUESTS} HTTP requests one after another, whose prompts share about 190 of the model's 256 tokens. The baseline is a platform with the
prefix cache off. Then as many requests at once, with one prompt of about 200 tokens. A round runs both platforms, which take turns in going
first, each after ${WARM_REQUESTS} requests that warm it. Three rounds at most. Then the workloads of SGLang's section 6.2 (few-shot, reasoning,
content generation, multi-turn chat, agents, a long document) on random weights in the layers of a model of ${SHAPE} parameters, with 2,048 tokens
of context: without cache, with the automatic one, and without it but with a program that saves and opens its prefixes by name (Symphony, Figure
3). A round runs each workload in the three modes, in turns, with prompts of its own; one more round before warms all. The baseline is the mode
without cache.`,
  quick: `${QUICK_REQUESTS} requests instead of ${REQUESTS}, and ${QUICK_WORKLOADS.length} of ${WORKLOADS.length} workloads (chats), on ${QUICK_SHAPE} parameters instead of ${SHAPE}.`,
  async run({ repetitions, quick, progress }) {
    const rounds = Math.min(MAX_ROUNDS, repetitions);
    const requests = quick ? QUICK_REQUESTS : REQUESTS;
    const [shape, workloads] = quick ? ([QUICK_SHAPE, QUICK_WORKLOADS] as const) : ([SHAPE, WORKLOADS] as const);
    const samples: Record<'with' | 'without', Sample[]> = { with: [], without: [] };
    for (let round = 0; round < rounds; round++) {
      const [cached, uncached] = await inTurn(round, [() => measure(true, requests), () => measure(false, requests)]);
      samples.with.push(cached);
      samples.without.push(uncached);
      progress(`round ${round + 1} of ${rounds}`);
    }
    const shapes = await measureShapes({ shape, workloads, rounds }, progress);
    const over = (of: (sample: Sample) => number) =>
      spread(samples.without.map((sample, i) => of(sample) / of(samples.with[i] as Sample)));
    const firstMs = ({ firstMessageMs }: Sample) => median(firstMessageMs);
    const [first] = samples.with;
    const hits = samples.with.map((sample) => sample.hitTokens / sample.lookedUp);
    return {
      title: 'A shared prefix, with and without the prefix cache',
      header: ['figure', 'with', 'without', 'without over with', 'program', 'without over program'],
      rows: [
        [
          'tokens prefilled',
          formatSpread(spread(samples.with.map((sample) => sample.prefilled)), 0),
          formatSpread(spread(samples.without.map((sample) => sample.prefilled)), 0),
          formatSpread(over((sample) => sample.prefilled)),
        ],
        [
          'time to first message, ms (median of the requests)',
          formatSpread(spread(samples.with.map(firstMs)), 1),
          formatSpread(spread(samples.without.map(firstMs)), 1),
          formatSpread(over(firstMs)),
        ],
        [
          'tokens prefilled by equal prompts at once, over those of one prompt',
          formatSpread(spread(samples.with.map((sample) => sample.prompts))),
          formatSpread(spread(samples.without.map((sample) => sample.prompts))),
          formatSpread(over((sample) => sample.prompts)),
        ],
        ['hit rate of the tokens looked up', formatSpread(spread(hits), 3), '', ''],
        ['hit tokens, counted by hand', `${first?.hitTokens} of at least ${first?.expectedHits} expected`, '', ''],
        ...shapeRows(shapes),
      ],
      notes: [
        'Time to first message: from the request to the first text at the HTTP client, the launch of the inferlet included.',
        'Requests come one after another, except for the equal ones. By hand: every request after the first finds the shared prefix at least up to its last whole page.',
        `Workloads with a colon: SGLang's section 6.2 on random weights in the layers of a model of ${shape} parameters, 16 tokens an answer, from the first request to the last answer at the HTTP client. program: no automatic cache; the inferlet saves prefixes by name and opens them. Its inferlets do not wait for each other, so that few-shot questions at once each compute the examples. ${answersOf(shapes)}`,
        `Hit rate ${format(spread(hits).median, 3)}: hit tokens over all tokens that prefills asked for.`,
      ],
      data: { ...samples, shapes },
    };
  },
};

function answersOf(shapes: readonly ShapeRow[]): string {
  const { differ, of } = differingAnswers(shapes);
  return `${differ} of ${of} answers differ from those without any cache.`;
}

async function measure(isCached: boolean, requests: number): Promise<Sample> {
  const config = `[[model]]\nname = "stories15m"\nprefix_cache = ${isCached}\n`;
  await using platform = await Platform.start({ functions: ['text-completion'], config });
  const ask = async (prompt: string) => {
    const parse = await receive(platform, { prompt, maxTokens: MAX_TOKENS, temperature: 0 });
    return parse().firstMs;
  };
  // V8 and the engine's arena warm up with prompts of about the measured length. These begin differently, so that no measured prefix is cached.
  for (let i = 0; i < WARM_REQUESTS; i++) await ask(`${i} ${SHARED}`);
  // The reset does not clear the counters of the prefix cache, so they are read before and after.
  const { prefix: before } = await modelStats(platform, { reset: true });
  const firstMessageMs: number[] = [];
  let expectedHits = 0;
  const sharedTokens = await sharedLength();
  for (let i = 0; i < requests; i++) {
    firstMessageMs.push(await ask(`${SHARED} Number ${String.fromCharCode(65 + (i % 26))}${i} went home.`));
    if (i > 0 && isCached) expectedHits += Math.floor(sharedTokens / PAGE_SIZE) * PAGE_SIZE;
  }
  const stats = await modelStats(platform);
  const hitTokens = stats.prefix.hitTokens - before.hitTokens;
  return {
    firstMessageMs,
    prefilled: stats.tokens - stats.decodeTokens,
    hitTokens,
    lookedUp: hitTokens + stats.prefix.missTokens - before.missTokens,
    expectedHits,
    prompts: await atOnce(platform, requests),
  };
}

/** Sends equal prompts at once. Returns the tokens that they prefilled, divided by the tokens of one prompt. */
async function atOnce(platform: Platform, requests: number): Promise<number> {
  const prompt = `Once, long ago, on a green hill beside the sea, ${SHARED}`;
  await modelStats(platform, { reset: true });
  const pending = Array.from({ length: requests }, () =>
    receive(platform, { prompt, maxTokens: EQUAL_MAX_TOKENS, temperature: 0 }),
  );
  const received = (await Promise.all(pending)).map((parse) => parse());
  // A request decodes every token of its answer but the first. `decodeTokens` would also count prompts that compute only their last token.
  const decoded = received.reduce((sum, { tokens }) => sum + tokens - 1, 0);
  return ((await modelStats(platform)).tokens - decoded) / (await promptLength(prompt));
}

/** Tokens that all prompts begin with, the begin-of-text token included. */
const sharedLength = (): Promise<number> => promptLength(`${SHARED} Number`);

/** Tokens of a prompt, the begin-of-text token included. */
async function promptLength(prompt: string): Promise<number> {
  const tokenizer = await loadTokenizer((await pullModel('stories15m')).directory);
  return 1 + tokenizer.encode(prompt).length;
}
