import { createHash } from 'node:crypto';

/** What tells requests with the same idempotency key apart: a hash of the function's name and the body. */
export function fingerprintOf(functionName: string, body: string): string {
  return createHash('sha256').update(functionName).update('\0').update(body).digest('base64url');
}
