/** Prefills a prompt and generates, for the test of the prefix cache. */
import { Context, defineInferlet } from '@pie/inferlet';

interface Input {
  readonly prompt: string;
  readonly maxTokens: number;
}

export const run = defineInferlet(async ({ prompt, maxTokens }: Input) => {
  using context = new Context();
  context.fill(prompt);
  const promptTokens = context.length;
  const { tokens } = await context.generate({ maxTokens }).collect();
  return { promptTokens, tokens };
});
