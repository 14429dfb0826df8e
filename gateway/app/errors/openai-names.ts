import type { CodeEntry, ErrorStatus } from './code-entry.ts';
import { CODES, type ErrorCode } from './codes.ts';

/** The `code` of the `error` object: OpenAI's name where it has one. */
export function openAiCode(code: ErrorCode): string {
  const entry: CodeEntry = CODES[code];
  return entry.openAiCode ?? code;
}

/** The `type` of the `error` object for a failure with this status. */
export function openAiType(status: ErrorStatus): string {
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 404) return 'not_found_error';
  if (status === 429) return 'rate_limit_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}
