import { FAILURE_CODES } from '#scheduler/invocations/types.ts';
import type { GatewayError } from '../errors/gateway-error.ts';

/** The routes of Anthropic's Messages API begin with this path. */
const MESSAGES_PATH = '/v1/messages';

/** True for addresses at which clients of Anthropic's API expect errors in its form, unknown addresses included. */
export function isMessagesPath(path: string): boolean {
  return path === MESSAGES_PATH || path.startsWith(`${MESSAGES_PATH}/`);
}

/** An error as Anthropic's API sends it. */
interface AnthropicError {
  readonly type: 'error';
  readonly error: {
    readonly type: string;
    readonly message: string;
    /** `error_code` is the stable name of the cause. `hint` and `param` are Pie's own. */
    readonly details: { readonly error_code: string; readonly hint: string; readonly param?: string };
  };
  readonly request_id: string;
}

/** Codes of Anthropic's API for refused parameters. Its clients send the request again without the parameter when they see the code. */
const OWN_CODES: ReadonlyMap<string, string> = new Map([['thread', 'thread_unsupported_request']]);

/** The body of a refusal on these routes. */
export function anthropicError(error: GatewayError, requestId: string): AnthropicError {
  const { code, message, hint, field } = error;
  const ownCode = code === 'invalid-parameter' && field !== undefined ? OWN_CODES.get(field) : undefined;
  const details = { error_code: ownCode ?? code, hint, ...(field !== undefined && { param: field }) };
  return { type: 'error', error: { type: typeOf(error), message, details }, request_id: requestId };
}

/** The last frame of a failed stream on these routes. */
export function anthropicErrorFrame(error: GatewayError, requestId: string): string {
  return `event: error\ndata: ${JSON.stringify(anthropicError(error, requestId))}\n\n`;
}

/** Anthropic's name for the kind of an error. */
function typeOf({ status, code }: GatewayError): string {
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 404) return 'not_found_error';
  if (status === 413) return 'request_too_large';
  if (status === 429) return 'rate_limit_error';
  if (status === 503) return 'overloaded_error';
  if (status === 504) return 'timeout_error';
  // The client cannot help it when the function fails.
  const isFailure = status === 500 || (FAILURE_CODES as readonly string[]).includes(code);
  return isFailure ? 'api_error' : 'invalid_request_error';
}

/** {@link AnthropicError} in `/openapi.json`. */
export const ANTHROPIC_ERROR = {
  type: 'object' as const,
  required: ['type', 'error', 'request_id'],
  properties: {
    type: { const: 'error' },
    error: {
      type: 'object' as const,
      required: ['type', 'message', 'details'],
      properties: {
        type: { type: 'string' as const, example: 'invalid_request_error' },
        message: { type: 'string' as const },
        details: {
          type: 'object' as const,
          required: ['error_code', 'hint'],
          properties: {
            error_code: {
              type: 'string' as const,
              description: 'One of the codes at /docs/errors, or a code of Anthropic that its clients act on',
            },
            hint: { type: 'string' as const, description: 'What to do' },
            param: { type: 'string' as const, description: 'The invalid parameter, such as `messages[0].content`' },
          },
        },
      },
    },
    request_id: { type: 'string' as const },
  },
};
