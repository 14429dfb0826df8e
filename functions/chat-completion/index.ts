import { type ChatMessage, Context, defineInferlet, sampler, session } from '@pie/inferlet';

/** What pie.json's schema lets through. */
interface Input {
  readonly messages?: readonly ChatMessage[];
  readonly talk?: boolean;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly topP?: number;
  readonly seed?: number;
  readonly model?: string;
}

/** Answers a chat; with `talk` it goes on with what the client says next, and computes only what is new. */
export const run = defineInferlet(async (input: Input) => {
  const { talk = false, maxTokens, temperature, topP, seed, model } = input;
  const messages = [...(input.messages ?? [])];
  using ctx = new Context({ model });
  let finishReason: string | undefined;

  async function answer(): Promise<void> {
    const generation = ctx.chat(messages).generate({ maxTokens, sampler: sampler({ temperature, topP, seed }) });
    await generation.pipe();
    messages.push({ role: 'assistant', content: generation.text });
    ({ finishReason } = generation);
  }

  if (messages.length > 0) await answer();
  if (talk) {
    for await (const said of session) {
      messages.push({ role: 'user', content: String(said) });
      await answer();
    }
  }
  return { messages, finishReason };
});
