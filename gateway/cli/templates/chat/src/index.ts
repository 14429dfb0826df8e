import { type ChatMessage, Context, defineInferlet, session } from '@pie/inferlet';

/** What pie.json's schema lets through. */
interface Input {
  readonly system?: string;
  readonly maxTokens?: number;
}

/** A conversation: every message of the client is answered, and only what is new is computed. */
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
