import { invoke } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { connectStats, usageOf } from './clients.ts';
import { format, formatSpread, spread } from './statistics.ts';

const FORKS = 8;
const MAX_TOKENS = 96;

interface Round {
  readonly oneMs: number;
  readonly forksMs: number;
  readonly meanBatch: number;
}

/** Eight forks of one inferlet under `Promise.all` against one. */
export const forks: Bench = {
  name: 'forks',
  summary: `${FORKS} forks of a context within one inferlet, against one`,
  async run({ repetitions, quick, progress }) {
    await using platform = await Platform.start({ functions: ['parallel-generation'] });
    const stats = await connectStats(platform);
    const wallMs = async (branches: number): Promise<number> => {
      const input = {
        prompt: 'Once upon a time there was a little dog',
        branches,
        maxTokens: MAX_TOKENS,
        temperature: 0.8,
        seed: 7,
      };
      return usageOf(await invoke(platform, 'parallel-generation', input)).wallMs ?? 0;
    };
    const rounds: Round[] = [];
    try {
      await wallMs(FORKS); // Warm-up.
      for (let i = 0; i < (quick ? 2 : repetitions * 2); i++) {
        const oneMs = await wallMs(1);
        await stats.stats({ reset: true });
        const forksMs = await wallMs(FORKS);
        const [model] = (await stats.stats()).models;
        rounds.push({ oneMs, forksMs, meanBatch: model?.meanBatchSize ?? 0 });
        progress(`round ${i + 1}: ${format(forksMs / oneMs)}×`);
      }
    } finally {
      stats.close();
    }
    const of = (pick: (round: Round) => number) => spread(rounds.map(pick));
    return {
      title: `${FORKS} forks × ${MAX_TOKENS} tokens in one inferlet, against one fork`,
      header: ['figure', 'median (min–max)', 'aim'],
      rows: [
        [`time of ${FORKS} forks over time of one`, formatSpread(of((r) => r.forksMs / r.oneMs)), '< 2'],
        ['mean batch size', formatSpread(of((r) => r.meanBatch)), `near ${FORKS}`],
      ],
      notes: ["Times are the invocations' own wall times; each round runs both."],
      data: rounds,
    };
  },
};
