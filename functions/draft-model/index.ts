import { Context, defineInferlet, draft, sampler } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt: string;
  readonly model?: string;
  readonly draft: string;
  readonly lookahead?: number;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
}

/** Continues a text. A cheaper draft model proposes tokens, and the model verifies several of them in one pass. */
export const run = defineInferlet(async (input: Input) => {
  const { prompt, model, lookahead = 4, maxTokens = 64, temperature = 0, seed } = input;
  using drafting = new Context({ model: input.draft });
  using ctx = new Context({ model });
  const generation = ctx.fill(prompt, { field: 'prompt' }).generate({
    speculator: draft(drafting, { tokens: lookahead }),
    sampler: sampler({ temperature, seed }),
    maxTokens,
  });
  await generation.pipe();
  const { text, tokens, forwardCalls } = generation;
  const draftCalls = drafting.forwardCalls;
  return { text, tokens, forwardCalls, draftCalls, tokensPerCall: tokens.length / Math.max(1, forwardCalls) };
});
