import { Context, defineInferlet, sampler } from '@pie/inferlet';

/** Input, as the schema in pie.json defines it. */
interface Input {
  readonly prompt: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
}

/** Continues a text: sends each piece as it is generated, and returns the whole text. */
export const run = defineInferlet(async ({ prompt, maxTokens = 64, temperature = 0.8 }: Input) => {
  using ctx = new Context();
  const generation = ctx.fill(prompt).generate({ maxTokens, sampler: sampler({ temperature }) });
  await generation.pipe();
  return { text: generation.text, tokens: generation.tokens.length };
});
