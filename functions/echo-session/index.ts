import { defineInferlet, session } from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly greeting?: string;
}

/** Echoes each message until the client sends "bye" or closes the session. */
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
