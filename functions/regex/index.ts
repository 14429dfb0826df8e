import { Context, defineInferlet, type GenerationResult, regex, sampler } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly pattern: string;
  readonly prompt?: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly model?: string;
}

/** Continues a prompt with a text that matches a regular expression in full. */
export const run = defineInferlet(async (input: Input): Promise<GenerationResult> => {
  const { pattern, prompt = '', maxTokens = 128, temperature, seed, model } = input;
  using ctx = new Context({ model });
  const options = { constraint: regex(pattern), sampler: sampler({ temperature, seed }), maxTokens };
  return await ctx.fill(prompt, { field: 'prompt' }).generate(options).collect();
});
