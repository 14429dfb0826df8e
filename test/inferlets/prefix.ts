/** Prefills a prompt and generates, for tests of the prefix cache. Returns the tokens and the time to the first one. */
import { Context, defineInferlet } from '@pie/inferlet';
import { runtime } from '@pie/inferlet/raw';

interface Input {
  readonly prompt: string;
  readonly maxTokens: number;
}

export const run = defineInferlet(async ({ prompt, maxTokens }: Input) => {
  using context = new Context();
  context.fill(prompt);
  const promptTokens = context.length;
  const start = runtime.now();
  const generation = context.generate({ maxTokens });
  let firstTokenMs = 0;
  for await (const piece of generation.pieces()) {
    if (firstTokenMs === 0 && piece.tokens.length > 0) firstTokenMs = runtime.now() - start;
  }
  return { promptTokens, tokens: generation.tokens, firstTokenMs };
});
