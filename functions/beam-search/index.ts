import { type Beam, beamSearch, Context, defineInferlet } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt: string;
  readonly beams?: number;
  readonly maxTokens?: number;
  readonly lengthPenalty?: number;
  readonly model?: string;
}

/** Finds the most probable continuations of a text. All beams run in one batch and share the pages of their common prefix. */
export const run = defineInferlet(async (input: Input): Promise<{ beams: readonly Beam[] }> => {
  const { prompt, beams = 4, maxTokens = 16, lengthPenalty = 0, model } = input;
  using ctx = new Context({ model });
  return { beams: await beamSearch(ctx.fill(prompt, { field: 'prompt' }), { beams, maxTokens, lengthPenalty }) };
});
