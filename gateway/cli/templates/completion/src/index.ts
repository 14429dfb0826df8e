import { Context, defineInferlet, sampler } from '@pie/inferlet';

/** What pie.json's schema lets through. */
interface Input {
  readonly prompt: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
}

/** Continues a text: each piece is sent as it comes, the whole is the result. */
export const run = defineInferlet(async ({ prompt, maxTokens = 64, temperature = 0.8 }: Input) => {
  using ctx = new Context();
  const generation = ctx.fill(prompt).generate({ maxTokens, sampler: sampler({ temperature }) });
  await generation.pipe();
  return { text: generation.text, tokens: generation.tokens.length };
});
