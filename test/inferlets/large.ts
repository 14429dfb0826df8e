/** Sends many large messages, without a model. */
import { defineInferlet, send } from '@pie/inferlet';

interface Input {
  readonly messages: number;
  /** Characters of each message after its number. */
  readonly size: number;
}

export const run = defineInferlet(async ({ messages, size }: Input) => {
  const filler = 'x'.repeat(size);
  for (let i = 0; i < messages; i++) await send(`${i} ${filler}`);
  return { messages };
});
