import { type ChatMessage, Context, chatModel, defineInferlet, sampler, session } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly messages?: readonly ChatMessage[];
  readonly talk?: boolean;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly topP?: number;
  readonly seed?: number;
  readonly model?: string;
}

/** Answers a chat. With `talk`, also answers each later message of the client, and computes only the new tokens. */
export const run = defineInferlet(async (input: Input) => {
  const { talk = false, maxTokens, temperature, topP, seed, model } = input;
  const messages = [...(input.messages ?? [])];
  using ctx = new Context({ model: chatModel(model).name });
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
