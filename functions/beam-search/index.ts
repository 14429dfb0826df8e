import { type Beam, beamSearch, Context, defineInferlet } from '@pie/inferlet';

/** What pie.json's schema lets through. */
interface Input {
  readonly prompt: string;
  readonly beams?: number;
  readonly maxTokens?: number;
  readonly lengthPenalty?: number;
  readonly model?: string;
}

/** The most probable continuations of a text, all beams in one batch on shared memory. */
export const run = defineInferlet(async (input: Input): Promise<{ beams: readonly Beam[] }> => {
  const { prompt, beams = 4, maxTokens = 16, lengthPenalty = 0, model } = input;
  using ctx = new Context({ model });
  return { beams: await beamSearch(ctx.fill(prompt), { beams, maxTokens, lengthPenalty }) };
});
