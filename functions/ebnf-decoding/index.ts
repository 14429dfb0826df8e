import { Context, defineInferlet, ebnf, type GenerationResult, sampler } from '@pie/inferlet';
import { earley } from './earley.ts';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly grammar: string;
  readonly prompt?: string;
  readonly engine?: 'platform' | 'guest';
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly model?: string;
}

/** Continues a prompt with a text that fits a grammar. The platform's engine, or a parser inside this inferlet, enforces the grammar. */
export const run = defineInferlet(async (input: Input): Promise<GenerationResult> => {
  const { grammar, prompt = '', engine = 'platform', maxTokens = 128, temperature, seed, model } = input;
  using ctx = new Context({ model });
  ctx.fill(prompt, { field: 'prompt' });
  const options =
    engine === 'guest'
      ? { sampler: earley(grammar, { temperature, seed }, model) }
      : { sampler: sampler({ temperature, seed }), constraint: ebnf(grammar) };
  return await ctx.generate({ ...options, maxTokens }).collect();
});
