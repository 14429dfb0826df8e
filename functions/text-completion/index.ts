import { Context, defineInferlet, type GenerationResult, sampler } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt?: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly topP?: number;
  readonly topK?: number;
  readonly minP?: number;
  readonly stop?: string | readonly string[];
  readonly seed?: number;
  readonly model?: string;
}

/** Continues a text. Sends each piece as it is generated and returns the whole text. */
export const run = defineInferlet(async (input: Input = {}): Promise<GenerationResult> => {
  const { prompt = '', maxTokens, stop = [], model, temperature, topP, topK, minP, seed } = input;
  using ctx = new Context({ model });
  ctx.fill(prompt, { field: 'prompt' });
  return await ctx.generate({ maxTokens, stop, sampler: sampler({ temperature, topP, topK, minP, seed }) }).pipe();
});
