/** Continues a text greedily as `functions/text-completion` does, but reads and sends each piece in a loop of its own, for `pie bench http`. */
import { Context, defineInferlet, sampler, send } from '@pie/inferlet';

export const run = defineInferlet(async ({ prompt, maxTokens }: { prompt: string; maxTokens: number }) => {
  using context = new Context();
  context.fill(prompt);
  const generation = context.generate({ maxTokens, sampler: sampler({ temperature: 0 }) });
  for await (const text of generation) await send(text);
  return generation.collect();
});
