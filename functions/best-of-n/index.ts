import { Context, defineInferlet, type Sampler, sampler, scripts, select } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt: string;
  readonly n?: number;
  readonly rank?: 'probability' | 'judge';
  readonly judge?: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly script?: readonly string[];
  readonly model?: string;
}

interface Candidate {
  readonly text: string;
  readonly score: number;
}

/** Generates several continuations of one prompt in parallel and keeps the best. */
export const run = defineInferlet(async (input: Input) => {
  const { prompt, n = 4, rank = 'probability', judge = '\nIs this good? Answer yes or no:', model } = input;
  const { maxTokens = 32, temperature = 1, seed } = input;
  let drawnSeeds = 0;
  // Each candidate has a seed of its own, a 32-bit number.
  const pick = scripts(input.script, () =>
    sampler({ temperature, seed: seed === undefined ? undefined : (seed + drawnSeeds++) >>> 0 }),
  );
  using shared = new Context({ model });
  shared.fill(prompt, { field: 'prompt' });

  async function write(picks: Sampler): Promise<Candidate> {
    using ctx = await shared.fork();
    const generation = ctx.generate({ sampler: picks, maxTokens, logProbabilities: rank === 'probability' });
    const { text, tokens, logProbabilities } = await generation.collect();
    if (logProbabilities) return { text, score: logProbabilities.reduce((a, b) => a + b, 0) / tokens.length };
    ctx.fill(judge);
    const [yes = 0, no = 0] = (await select(ctx, [' yes', ' no'])).logProbabilities;
    return { text, score: yes - no };
  }
  const written = await Promise.all(Array.from({ length: n }, pick).map(write));
  const candidates = written.filter(({ text }) => text !== '').sort((a, b) => b.score - a.score);
  return { best: candidates[0]?.text ?? '', candidates };
});
