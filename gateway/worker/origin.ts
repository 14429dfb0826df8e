import type { Call } from '../app/control.ts';
import { type ErrorCode, isErrorCode } from '../app/errors/codes.ts';
import { GatewayError } from '../app/errors/gateway-error.ts';
import type { PieClient } from '../client/client.ts';
import { PieError } from '../client/errors.ts';

/** The client of the origin for a call, with the caller's own key. */
export type ClientOf = (call: Call) => PieClient;

/** Options that a request to the origin takes over from the call. */
export function options(call: Call) {
  return { signal: call.signal, requestId: call.requestId, traceparent: call.traceparent };
}

/** Converts the origin's error to a gateway error with the same code, message and field. */
export function translate(error: unknown): unknown {
  if (!(error instanceof PieError)) {
    return error instanceof GatewayError
      ? error
      : new GatewayError('origin-unavailable', 'The connection to the origin broke.', { cause: error });
  }
  if (error.code === 'connection-failed')
    return new GatewayError('origin-unavailable', 'The origin cannot be reached.', { cause: error });
  if (!isErrorCode(error.code))
    return new GatewayError('origin-unavailable', 'The answer of the origin cannot be read.', {
      hint: 'Try again in a few seconds. If the error persists, the operator should check the address and the release of the origin.',
      cause: error,
    });
  return new GatewayError(error.code, error.message, {
    hint: error.hint,
    field: error.field,
    cause: error,
    members: { ...error.quota, ...(error.invocation === undefined ? {} : { invocation: error.invocation }) },
    headers: error.limitHeaders,
  });
}

/** Runs a call of the origin and translates its errors. */
export async function translating<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw translate(error);
  }
}

/** True once the work is done; false when the origin answers with the error `code`: the object does not exist. */
export async function isFound(code: ErrorCode, work: () => Promise<unknown>): Promise<boolean> {
  return (await orNull(code, async () => void (await work()))) !== null;
}

/** Like {@link translating}, but resolves to null when the origin answers with the error `code`. */
export async function orNull<T>(code: ErrorCode, work: () => Promise<T>): Promise<T | null> {
  try {
    return await translating(work);
  } catch (error) {
    if (error instanceof GatewayError && error.code === code) return null;
    throw error;
  }
}
