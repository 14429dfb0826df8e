import { Context, defineInferlet, jacobi, sampler } from '@pie/inferlet';

/** What pie.json's schema lets through. */
interface Input {
  readonly prompt: string;
  readonly block?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly model?: string;
}

/** Continues a text; a block of guesses is corrected all at once, over and over, until it is what the model says. */
export const run = defineInferlet(async (input: Input) => {
  const { prompt, block = 16, maxTokens = 64, temperature = 0, seed, model } = input;
  using ctx = new Context({ model });
  const generation = ctx.fill(prompt).generate({
    speculator: jacobi({ tokens: block }),
    sampler: sampler({ temperature, seed }),
    maxTokens,
  });
  await generation.pipe();
  const { text, tokens, forwardCalls } = generation;
  return { text, tokens, forwardCalls, tokensPerCall: tokens.length / Math.max(1, forwardCalls) };
});
