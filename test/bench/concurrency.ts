import { invoke } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { connectStats, outputOf } from './clients.ts';
import { format, formatSpread, spread } from './statistics.ts';

const CLIENTS = 32;
const MAX_TOKENS = 96;

interface Round {
  readonly aloneMs: number;
  readonly togetherMs: number;
  readonly meanBatch: number;
  readonly differing: number;
}

/** 32 invocations at once against the same 32 one after another. */
export const concurrency: Bench = {
  name: 'concurrency',
  summary: `${CLIENTS} invocations at once against the same ${CLIENTS} one after another`,
  async run({ repetitions, quick, progress }) {
    await using platform = await Platform.start({ functions: ['text-completion'] });
    const stats = await connectStats(platform);
    const inputs = Array.from({ length: CLIENTS }, (_, i) => ({
      prompt: `Once upon a time, number ${i}`,
      maxTokens: MAX_TOKENS,
      temperature: 0,
    }));
    const run = async (input: object) =>
      outputOf<{ text: string }>(await invoke(platform, 'text-completion', input)).text;
    const rounds: Round[] = [];
    try {
      await Promise.all(inputs.map(run)); // Warm-up.
      for (let i = 0; i < (quick ? 1 : repetitions); i++) {
        let start = performance.now();
        const alone: string[] = [];
        for (const input of inputs) alone.push(await run(input));
        const aloneMs = performance.now() - start;
        await stats.stats({ reset: true });
        start = performance.now();
        const together = await Promise.all(inputs.map(run));
        const togetherMs = performance.now() - start;
        const [model] = (await stats.stats()).models;
        const differing = together.filter((text, j) => text !== alone[j]).length;
        rounds.push({ aloneMs, togetherMs, meanBatch: model?.meanBatchSize ?? 0, differing });
        progress(`round ${i + 1}: ${format(aloneMs / togetherMs)}×`);
      }
    } finally {
      stats.close();
    }
    const of = (pick: (round: Round) => number) => spread(rounds.map(pick));
    return {
      title: `${CLIENTS} × ${MAX_TOKENS} tokens, at once and one after another`,
      header: ['figure', 'median (min–max)', 'aim'],
      rows: [
        ['throughput, at once over one after another', formatSpread(of((r) => r.aloneMs / r.togetherMs)), '≥ 2.5'],
        ['mean batch size', formatSpread(of((r) => r.meanBatch)), '≥ 24'],
        [
          'texts that differ',
          formatSpread(
            of((r) => r.differing),
            0,
          ),
          '0',
        ],
        [
          'tokens/s at once',
          formatSpread(
            of((r) => (CLIENTS * MAX_TOKENS * 1000) / r.togetherMs),
            0,
          ),
          '',
        ],
        [
          'tokens/s one after another',
          formatSpread(
            of((r) => (CLIENTS * MAX_TOKENS * 1000) / r.aloneMs),
            0,
          ),
          '',
        ],
      ],
      notes: ['Each round runs both ways; the ratio is taken within the round.'],
      data: rounds,
    };
  },
};
