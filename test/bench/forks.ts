import { invoke } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { connectStats, outputOf } from './clients.ts';
import { inTurn } from './rounds.ts';
import { format, formatSpread, spread } from './statistics.ts';

const FORKS = 8;
const MAX_TOKENS = 96;

/** One invocation as its client saw it. */
interface Invocation {
  readonly elapsedMs: number;
  /** Tokens of the longest branch, which decides how long the invocation takes. */
  readonly longest: number;
}

interface Round {
  readonly one: Invocation;
  readonly forks: Invocation;
  readonly meanBatch: number;
}

/** Eight forks of a context within one inferlet, generated under `Promise.all`, against one fork. */
export const forks: Bench = {
  name: 'forks',
  summary: `${FORKS} forks of a context within one inferlet, against one`,
  help: `One inferlet forks a context ${FORKS} times and generates up to ${MAX_TOKENS} tokens in each fork under Promise.all. The baseline is the
same inferlet with one fork. Times are from the request to the outcome at the HTTP client, over the tokens of the longest fork. A round runs both,
which take turns in going first.`,
  quick: 'All cases. Each repetition has two rounds.',
  async run({ repetitions, progress }) {
    await using platform = await Platform.start({ functions: ['parallel-generation'] });
    const stats = await connectStats(platform);
    const rounds: Round[] = [];
    try {
      for (const branches of [1, FORKS]) await generateIn(platform, branches); // Warm-up.
      for (let i = 0; i < repetitions * 2; i++) {
        const [one, [forked, meanBatch]] = await inTurn(i, [
          () => generateIn(platform, 1),
          async () => {
            await stats.stats({ reset: true });
            const invocation = await generateIn(platform, FORKS);
            return [invocation, (await stats.stats()).models[0]?.meanBatchSize ?? 0] as const;
          },
        ]);
        rounds.push({ one, forks: forked, meanBatch });
        progress(`round ${i + 1}: ${format(perToken(forked) / perToken(one))}×`);
      }
    } finally {
      stats.close();
    }
    const of = (pick: (round: Round) => number) => spread(rounds.map(pick));
    return {
      title: `${FORKS} forks × at most ${MAX_TOKENS} tokens in one inferlet, against one fork`,
      header: ['figure', 'median (min–max)', 'aim'],
      rows: [
        [
          `time per token of ${FORKS} forks over that of one`,
          formatSpread(of((r) => perToken(r.forks) / perToken(r.one))),
          '< 2',
        ],
        ['ms a token, one fork', formatSpread(of((r) => perToken(r.one))), ''],
        [`ms a token, ${FORKS} forks`, formatSpread(of((r) => perToken(r.forks))), ''],
        ['mean batch size', formatSpread(of((r) => r.meanBatch)), `near ${FORKS}`],
      ],
      notes: [
        'From the request to the outcome at the HTTP client, over the tokens of the longest fork; each round runs both, in turns.',
        `Tokens of the longest fork: ${rounds[0]?.one.longest} of one, ${rounds[0]?.forks.longest} of ${FORKS}.`,
      ],
      data: rounds,
    };
  },
};

const perToken = ({ elapsedMs, longest }: Invocation): number => elapsedMs / longest;

async function generateIn(platform: Platform, branches: number): Promise<Invocation> {
  const prompt = 'Once upon a time there was a little dog';
  const startMs = performance.now();
  const input = { prompt, branches, maxTokens: MAX_TOKENS, temperature: 0.8, seed: 7 };
  const events = await invoke(platform, 'parallel-generation', input);
  const elapsedMs = performance.now() - startMs;
  const output = outputOf<{ branches: readonly { tokens: readonly number[] }[] }>(events);
  return { elapsedMs, longest: Math.max(...output.branches.map(({ tokens }) => tokens.length)) };
}
