import type { InvocationEvent } from '../control.ts';
import { isErrorCode } from '../errors/codes.ts';
import { failureHint, retryAfterHeaders } from '../errors/failures.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import type { CountedRoom } from '../http/bodies.ts';
import { resultIn } from '../http/json-text.ts';
import type { Outcome } from '../schemas/invocations.ts';

/** An outcome that is not serialised yet: `resultIn` gives its output as a `JsonText` where it can. */
export type HeldOutcome = Omit<Outcome, 'messages'> & { readonly messages: readonly unknown[] };

/** Bytes of memory that a parsed message takes per character of its text, by estimate. */
const BYTES_PER_CHARACTER = 4;

/**
 * Follows an invocation to its end, and returns its output and messages. The first message that would exceed `maxCharacters` (UTF-16 code units of
 * the messages' JSON texts) or the memory of `room` is dropped with all later ones; the outcome then has `messagesTruncated`.
 *
 * @throws GatewayError the failure of a failed invocation, with the messages kept before it
 */
export async function collectOutcome(
  events: AsyncIterable<InvocationEvent>,
  id: string,
  maxCharacters: number,
  room: Pick<CountedRoom, 'take' | 'give'>,
): Promise<HeldOutcome> {
  const messages: unknown[] = [];
  let characters = 0;
  let heldBytes = 0;
  let truncated = false;
  // The state at the last question. An attempt begins with `start`, and sends the lost attempt's messages again, but only those after that question.
  let checkpoint = { count: 0, characters: 0, heldBytes: 0, truncated: false };
  for await (const event of events) {
    if (event.event === 'question') checkpoint = { count: messages.length, characters, heldBytes, truncated };
    else if (event.event === 'start') {
      // Drop the messages that the new attempt sends again.
      messages.length = checkpoint.count;
      room.give(heldBytes - checkpoint.heldBytes);
      ({ characters, heldBytes, truncated } = checkpoint);
    } else if (event.event === 'message') {
      const bytes = BYTES_PER_CHARACTER * event.data.length;
      characters += event.data.length;
      truncated ||= characters > maxCharacters || !room.take(bytes);
      if (!truncated) {
        heldBytes += bytes;
        messages.push(JSON.parse(event.data));
      }
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
          ...(truncated ? { messagesTruncated: true } : {}),
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
