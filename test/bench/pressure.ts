import { deploy, modelStats } from '#test/harness/deploy.ts';
import { invoke, type StreamEvent, terminal } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { rotated } from './rounds.ts';
import { format, formatSpread, spread } from './statistics.ts';

const INFERLETS = 128;
const QUICK_INFERLETS = 16;
/** An inferlet generates this many tokens twice. */
const TOKENS_PER_GENERATION = 96;
/** Room for the tokens of the prompt `Story <number>`. */
const PROMPT_TOKENS = 8;
const PAGE_TOKENS = 16;
/** Pages that an inferlet holds at its end, for its prompt and its generated tokens. */
const PAGES_EACH = Math.ceil((TOKENS_PER_GENERATION * 2 + PROMPT_TOKENS) / PAGE_TOKENS);
/** Runs before the clock starts, one after another. */
const WARM_RUNS = 3;
const FACTORS = [1, 2, 4, 8];
const QUICK_FACTORS = [1, 4];
const MAX_ROUNDS = 3;

interface Sample {
  /** Tokens a second of the inferlets that finished. */
  readonly goodput: number;
  readonly finished: number;
  readonly terminated: number;
  readonly other: number;
  readonly elapsedMs: number;
}

/** Runs 128 inferlets on pools of pages for all, half, a quarter and an eighth of them. */
export const pressure: Bench = {
  name: 'pressure',
  help: `${INFERLETS} inferlets generate ${TOKENS_PER_GENERATION * 2} tokens each on a pool of pages that fits all of them, half, a quarter and an eighth. The
baseline is the pool that fits all, on a platform of its own like the others. A round runs the four platforms, beginning with another one each
time. Three rounds at most. Throughput counts the tokens of results, over the time until every inferlet has ended.`,
  quick: `${QUICK_FACTORS.join(' and ')} times the memory (of ${FACTORS.join(', ')}), and ${QUICK_INFERLETS} inferlets instead of ${INFERLETS}; without the runs that admit them in turn.`,
  summary: `${INFERLETS} inferlets at 1, 2, 4 and 8 times the memory: how many finish, and throughput over a pool that fits all`,
  async run({ repetitions, quick, progress }) {
    const rounds = Math.min(MAX_ROUNDS, repetitions);
    const [factors, inferlets] = quick ? [QUICK_FACTORS, QUICK_INFERLETS] : [FACTORS, INFERLETS];
    const samples = new Map<number, Sample[]>(factors.map((factor) => [factor, []]));
    const admittedInTurn = new Map<number, Sample[]>(factors.map((factor) => [factor, []]));
    for (let round = 0; round < rounds; round++) {
      for (const i of rotated(factors.length, round)) {
        const factor = factors[i] ?? 1;
        const sample = await measure(factor, inferlets);
        samples.get(factor)?.push(sample);
        progress(`round ${round + 1}, ${factor}×: ${sample.finished} finished, ${format(sample.goodput, 0)} tokens/s`);
        if (quick) continue;
        const inTurnSample = factor === 1 ? sample : await measure(factor, inferlets, Math.floor(inferlets / factor));
        admittedInTurn.get(factor)?.push(inTurnSample);
        progress(`round ${round + 1}, ${factor}×, admitted in turn: ${format(inTurnSample.goodput, 0)} tokens/s`);
      }
    }
    const uncontended = samples.get(1) ?? [];
    return {
      title: `${inferlets} inferlets × ${TOKENS_PER_GENERATION * 2} tokens on less and less memory`,
      header: [
        'memory asked over memory',
        'finished',
        'terminated',
        'else',
        'tokens/s of the finished',
        'over uncontended',
        'over admitted in turn',
      ],
      rows: factors.map((factor) => {
        const ofFactor = samples.get(factor) ?? [];
        const cellOf = (pick: (sample: Sample) => number) => formatSpread(spread(ofFactor.map(pick)), 0);
        return [
          `${factor}×`,
          cellOf((sample) => sample.finished),
          cellOf((sample) => sample.terminated),
          cellOf((sample) => sample.other),
          cellOf((sample) => sample.goodput),
          formatSpread(spread(ofFactor.map((sample, i) => sample.goodput / (uncontended[i]?.goodput ?? Number.NaN)))),
          quick
            ? ''
            : formatSpread(
                spread(
                  ofFactor.map(
                    (sample, i) => sample.goodput / (admittedInTurn.get(factor)?.[i]?.goodput ?? Number.NaN),
                  ),
                ),
              ),
        ];
      }),
      notes: [
        'All are admitted at once (admission.overcommit allows it), grow page by page, and the platform preempts the newest when no page is free.',
        'Admitted in turn: the client starts only as many at once as the memory holds at their ends.',
        'Throughput counts the tokens in the results of inferlets that finished, over the time until all had ended.',
      ],
      data: { pressed: Object.fromEntries(samples), admitted: Object.fromEntries(admittedInTurn) },
    };
  },
};

/** @param atOnce number of inferlets that the client lets run at once; all by default */
async function measure(factor: number, inferlets: number, atOnce = inferlets): Promise<Sample> {
  const pages = Math.ceil((inferlets * PAGES_EACH) / factor);
  const config = `[[model]]\nname = "stories15m"\npages = ${pages}\nprefix_cache = false\n\n[admission]\novercommit = ${factor * 2}\n`;
  await using platform = await Platform.start({ functions: false, config });
  await deploy(platform, 'pressure');
  const run = async (i: number) =>
    terminal(await invoke(platform, 'pressure', { pages: 0, tokens: TOKENS_PER_GENERATION, prompt: `Story ${i}` }));
  for (let i = 0; i < WARM_RUNS; i++) await run(i);
  const start = performance.now();
  const ends: (StreamEvent | undefined)[] = [];
  let next = 0;
  const client = async (): Promise<void> => {
    while (next < inferlets) ends.push(await run(next++));
  };
  await Promise.all(Array.from({ length: atOnce }, client));
  const elapsedMs = performance.now() - start;
  const stats = await modelStats(platform);
  if (stats.pages.free !== stats.pages.total) throw new Error('pages were lost');
  const results = ends.filter((end) => end?.event === 'result');
  const finished = results.length;
  const tokens = results.reduce((sum, end) => sum + (end?.data.output.tokens.length ?? 0), 0);
  const terminated = ends.filter((end) => end?.event === 'error' && end.data.code === 'terminated').length;
  return {
    goodput: (tokens * 1000) / elapsedMs,
    finished,
    terminated,
    other: inferlets - finished - terminated,
    elapsedMs,
  };
}
