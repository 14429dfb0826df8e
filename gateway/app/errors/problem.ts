import type { Problem } from '../schemas/platform.ts';
import { CODES, type ErrorCode, RETRYABLE_CODES } from './codes.ts';
import type { GatewayError } from './gateway-error.ts';
import { openAiCode, openAiType } from './openai-names.ts';

/** The problem document of an error. `origin` (scheme and host) makes the document's `type` a URL that a browser can open. */
export function toProblem(error: GatewayError, requestId: string, origin: string): Problem {
  return {
    ...error.members,
    type: `${origin}/docs/errors/${error.code}`,
    title: CODES[error.code].title,
    status: error.status,
    detail: error.message,
    code: error.code,
    hint: error.hint,
    ...(error.field === undefined ? {} : { field: error.field }),
    requestId,
    error: openAiError(error),
  };
}

/** The `error` object that OpenAI-style clients read. */
export function openAiError(error: GatewayError): Problem['error'] {
  return {
    message: error.message,
    type: openAiType(error.status),
    code: openAiCode(error.code),
    ...(error.field === undefined ? {} : { param: error.field }),
  };
}

/** Codes for which `x-should-retry` and `Retry-After` tell the client that the same request may succeed. */
export const RETRYABLE: ReadonlySet<ErrorCode> = new Set(RETRYABLE_CODES);

/** Seconds to wait when the error names no time. A supervisor usually restarts a dead process within this time. */
const RETRY_AFTER_S = 1;

export function problemHeaders(error: GatewayError): Record<string, string> {
  const headers: Record<string, string> = { 'content-type': 'application/problem+json', 'cache-control': 'no-store' };
  if (RETRYABLE.has(error.code)) {
    headers['retry-after'] = String(RETRY_AFTER_S);
    headers['retry-after-ms'] = String(RETRY_AFTER_S * 1000);
    headers['x-should-retry'] = 'true';
  } else if (error.status === 409 || error.status === 429 || error.status >= 500) {
    // OpenAI-style clients retry these statuses by themselves. Keep them from running a failed invocation again without being asked.
    headers['x-should-retry'] = 'false';
  }
  return { ...headers, ...error.headers };
}
