import type { PieClient } from '../../client/client.ts';
import { errorFromEvent, PieError } from '../../client/errors.ts';
import { pause } from '../../client/http.ts';
import type { Run, Side } from './task.ts';

/** The function that carries out the task on the platform. */
export const PROGRAM = 'story-agent';

/** Runs the task as one invocation. */
export async function runProgram(client: PieClient, { task, roundTripMs, show, signal }: Side): Promise<Run> {
  const startedAt = performance.now();
  await pause(roundTripMs, signal);
  const stream = await client.invoke(PROGRAM, task, { signal, cancelOnDisconnect: true });
  for await (const event of stream) {
    if (event.event === 'message' && 'text' in event.data) show(event.data.text);
    if (event.event === 'error') throw errorFromEvent(event.data, stream.id);
    if (event.event === 'result') {
      const { text, tokens, promptTokens } = event.data.output as Pick<Run, 'text' | 'tokens' | 'promptTokens'>;
      return { text, tokens, promptTokens, ms: performance.now() - startedAt, requests: 1 };
    }
  }
  throw new PieError('bad-response', 'The stream ended without an outcome.', { invocation: stream.id });
}
