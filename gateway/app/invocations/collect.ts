import type { InvocationEvent } from '../control.ts';
import { isErrorCode } from '../errors/codes.ts';
import { failureHint, retryAfterHeaders } from '../errors/failures.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import type { Room } from '../http/bodies.ts';
import { resultIn } from '../http/json-text.ts';
import type { Outcome } from '../schemas/invocations.ts';

/** An outcome inside a gateway: its output is usually a `JsonText`. */
export type HeldOutcome = Omit<Outcome, 'messages'> & { readonly messages: readonly unknown[] };

/** A parsed message takes several times the bytes of its text. */
const PARSED_FACTOR = 4;

/**
 * Follows an invocation to its end. Keeps messages up to `maxBytes`, and as far as `room` has memory. Throws the failure of a failed
 * invocation, with the messages before it.
 */
export async function collectOutcome(
  events: AsyncIterable<InvocationEvent>,
  id: string,
  maxBytes: number,
  room: Room,
): Promise<HeldOutcome> {
  const messages: unknown[] = [];
  let bytes = 0;
  let truncated = false;
  // The messages up to the last question: a new attempt does not take them back.
  let checkpoint = { count: 0, bytes: 0, truncated: false };
  for await (const event of events) {
    if (event.event === 'question') checkpoint = { count: messages.length, bytes, truncated };
    else if (event.event === 'start') {
      // A new attempt takes back the messages of the earlier one.
      messages.length = checkpoint.count;
      ({ bytes, truncated } = checkpoint);
      if (checkpoint.count === 0) room.free();
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
      const { code, message, usage, cause, successor, retryAfterMs } = JSON.parse(event.data);
      const knownCode = isErrorCode(code) ? code : 'internal';
      throw new GatewayError(knownCode, String(message), {
        hint: failureHint(knownCode, cause),
        members: {
          messages,
          ...(usage === undefined ? {} : { usage }),
          ...(cause === undefined ? {} : { cause }),
          ...(successor === undefined ? {} : { successor }),
        },
        headers: retryAfterHeaders(retryAfterMs),
      });
    }
  }
  throw new GatewayError('internal', 'The events ended before the outcome of the invocation.');
}
