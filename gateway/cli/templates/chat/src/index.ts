import { type ChatMessage, Context, defineInferlet, session } from '@pie/inferlet';

/** Input, as the schema in pie.json defines it. */
interface Input {
  readonly system?: string;
  readonly maxTokens?: number;
}

/** A conversation: answers every message of the client, and computes only the new tokens. */
export const run = defineInferlet(async ({ system, maxTokens = 256 }: Input) => {
  using ctx = new Context();
  const messages: ChatMessage[] = system === undefined ? [] : [{ role: 'system', content: system }];
  let turns = 0;
  for await (const message of session) {
    messages.push({ role: 'user', content: String(message) });
    const answer = ctx.chat(messages).generate({ maxTokens });
    await answer.pipe();
    messages.push({ role: 'assistant', content: answer.text });
    turns++;
  }
  return { turns, tokens: ctx.length };
});
