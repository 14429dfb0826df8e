import type { InvocationEvent } from '../control.ts';
import { isErrorCode } from '../errors/codes.ts';
import { failureHint } from '../errors/failures.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import type { Room } from '../http/bodies.ts';
import { resultIn } from '../http/json-text.ts';

/** What a waiting client gets of an invocation that succeeded. */
export interface Outcome {
  readonly id: string;
  readonly status: 'succeeded';
  /** A `JsonText` as a rule. */
  readonly output: unknown;
  readonly messages: readonly unknown[];
  readonly messagesTruncated?: true;
  readonly usage?: unknown;
}

/** A parsed message takes several times the bytes of its text. */
const PARSED_FACTOR = 4;

/**
 * Follows an invocation to its end. Messages are kept up to `maxBytes`, and as far as there is room. Throws the failure of one that fails, with the messages that came
 * before it.
 */
export async function collectOutcome(
  events: AsyncIterable<InvocationEvent>,
  id: string,
  maxBytes: number,
  room: Room,
): Promise<Outcome> {
  const messages: unknown[] = [];
  let bytes = 0;
  let truncated = false;
  for await (const event of events) {
    if (event.event === 'start') {
      // What an earlier attempt said was taken back with it.
      messages.length = 0;
      bytes = 0;
      truncated = false;
      room.free();
    } else if (event.event === 'message') {
      bytes += event.data.length;
      truncated ||= bytes > maxBytes || !room.take(PARSED_FACTOR * event.data.length);
      if (!truncated) messages.push(JSON.parse(event.data));
    } else if (event.event === 'result') {
      const { output, usage } = resultIn(event.data);
      return {
        id,
        status: 'succeeded',
        output,
        messages,
        ...(truncated ? { messagesTruncated: true } : {}),
        ...(usage === undefined ? {} : { usage }),
      };
    } else if (event.event === 'error') {
      const { code, message, usage, cause, retryAfterMs } = JSON.parse(event.data);
      const known = isErrorCode(code) ? code : 'internal';
      throw new GatewayError(known, String(message), {
        hint: failureHint(known, cause),
        members: { messages, ...(usage === undefined ? {} : { usage }), ...(cause === undefined ? {} : { cause }) },
        headers: waitFor(retryAfterMs),
      });
    }
  }
  throw new GatewayError('internal', 'The events ended before the outcome of the invocation.');
}

/** When another try may succeed, if the failure says so. Whether there is one is the client's own decision: the invocation has run. */
function waitFor(retryAfterMs: unknown): Record<string, string> {
  if (typeof retryAfterMs !== 'number') return {};
  return { 'retry-after': String(Math.ceil(retryAfterMs / 1000)), 'retry-after-ms': String(Math.ceil(retryAfterMs)) };
}
