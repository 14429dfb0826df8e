/** One turn of a chat, greedily; for test/e2e/chat.test.ts. */
import { Context, defineInferlet, send } from '@pie/inferlet';

export const run = defineInferlet(async (input: { question: string }) => {
  using context = new Context();
  const generation = context.chat([{ role: 'user', content: input.question }]).generate({ maxTokens: 48 });
  for await (const text of generation) await send(text);
  return generation.collect();
});
