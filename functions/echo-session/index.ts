import { defineInferlet, session } from '@pie/inferlet';

/** What pie.json's schema lets through. */
interface Input {
  readonly greeting?: string;
}

/** Talks back: each message is answered, until the client says "bye" or closes. */
export const run = defineInferlet(async (input: Input = {}): Promise<{ messages: number; ended: 'bye' | 'closed' }> => {
  await session.send(input.greeting ?? 'Say something; "bye" ends it.');
  let messages = 0;
  for await (const message of session) {
    messages++;
    if (message === 'bye') {
      await session.send('bye');
      return { messages, ended: 'bye' };
    }
    await session.send(message);
  }
  return { messages, ended: 'closed' };
});
