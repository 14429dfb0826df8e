import { Context, defineInferlet, ngram, sampler } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt: string;
  readonly lookahead?: number;
  readonly longest?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly model?: string;
}

/** Continues a text. Guesses that the last few words have the same continuation as earlier in the text; one pass verifies the guess. */
export const run = defineInferlet(async (input: Input) => {
  const { prompt, lookahead = 8, longest = 3, maxTokens = 64, temperature = 0, seed, model } = input;
  using ctx = new Context({ model });
  const generation = ctx.fill(prompt, { field: 'prompt' }).generate({
    speculator: ngram({ tokens: lookahead, longest }),
    sampler: sampler({ temperature, seed }),
    maxTokens,
  });
  await generation.pipe();
  const { text, tokens, forwardCalls } = generation;
  return { text, tokens, forwardCalls, tokensPerCall: tokens.length / Math.max(1, forwardCalls) };
});
