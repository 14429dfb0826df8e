import { Context, defineInferlet, jacobi, sampler } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt: string;
  readonly block?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly model?: string;
}

/** Continues a text by Jacobi decoding: the model corrects a whole block of guesses in each pass until the block no longer changes. */
export const run = defineInferlet(async (input: Input) => {
  const { prompt, block = 16, maxTokens = 64, temperature = 0, seed, model } = input;
  using ctx = new Context({ model });
  const generation = ctx.fill(prompt, { field: 'prompt' }).generate({
    speculator: jacobi({ tokens: block }),
    sampler: sampler({ temperature, seed }),
    maxTokens,
  });
  await generation.pipe();
  const { text, tokens, forwardCalls } = generation;
  return { text, tokens, forwardCalls, tokensPerCall: tokens.length / Math.max(1, forwardCalls) };
});
