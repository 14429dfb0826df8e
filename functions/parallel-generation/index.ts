import { Context, defineInferlet, type FinishReason, sampler, sendJson } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt?: string;
  readonly branches?: number | readonly string[];
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly model?: string;
}

interface Branch {
  readonly branch: number;
  readonly text: string;
  readonly tokens: readonly number[];
  readonly finishReason: FinishReason;
}

/** Continues one prompt in several branches in parallel. Computes the prompt once and sends pieces as `{"branch", "text"}`. */
export const run = defineInferlet(async (input: Input = {}): Promise<{ branches: Branch[] }> => {
  const { prompt = 'Once upon a time', branches = 3, maxTokens = 64, temperature = 1, seed, model } = input;
  const openings = typeof branches === 'number' ? Array<string>(branches).fill('') : branches;
  using shared = new Context({ model });
  shared.fill(prompt, { field: 'prompt' });

  async function continueBranch(opening: string, branch: number): Promise<Branch> {
    using ctx = await shared.fork();
    if (opening !== '') ctx.fill(opening);
    const picks = sampler({ temperature, seed: seed === undefined ? undefined : (seed + branch) >>> 0 });
    const generation = ctx.generate({ maxTokens, sampler: picks });
    for await (const text of generation) await sendJson({ branch, text });
    const { text, tokens, finishReason } = await generation.collect();
    return { branch, text: opening + text, tokens, finishReason };
  }

  return { branches: await Promise.all(openings.map(continueBranch)) };
});
