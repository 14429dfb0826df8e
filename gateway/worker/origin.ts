import type { Call } from '../app/control.ts';
import { type ErrorCode, isErrorCode } from '../app/errors/codes.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import type { PieClient } from '../client/client.ts';
import { PieError } from '../client/errors.ts';

/** The client of the origin that goes with a call: it has the caller's own key. */
export type ClientOf = (call: Call) => PieClient;

/** What a request to the origin takes over from the one that it answers. */
export function options(call: Call) {
  return { signal: call.signal, requestId: call.requestId, traceparent: call.traceparent };
}

/** The origin's error as our own: the same code, words and place. */
export function translate(error: unknown): unknown {
  if (!(error instanceof PieError)) {
    return error instanceof GatewayError
      ? error
      : new GatewayError('origin-unavailable', 'The connection to the origin broke.', { cause: error });
  }
  if (!isErrorCode(error.code))
    return new GatewayError('origin-unavailable', 'The origin cannot be reached.', { cause: error });
  return new GatewayError(error.code, error.message, {
    hint: error.hint,
    field: error.field,
    cause: error,
    members: { ...error.quota, ...(error.invocation === undefined ? {} : { invocation: error.invocation }) },
    headers: error.limitHeaders,
  });
}

/** Runs a call of the origin and translates what it throws. */
export async function translating<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw translate(error);
  }
}

/** The same, with null for what the origin does not have. */
export async function orNull<T>(code: ErrorCode, work: () => Promise<T>): Promise<T | null> {
  try {
    return await translating(work);
  } catch (error) {
    if (error instanceof GatewayError && error.code === code) return null;
    throw error;
  }
}
