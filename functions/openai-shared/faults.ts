import type { InferletErrorCode } from '@pie/inferlet';

/** True for failures that the request itself causes. Others come from the platform, and the same request may succeed later. */
export function isRequestFault(code: InferletErrorCode): boolean {
  return code === 'invalid-argument' || code === 'unsupported';
}
