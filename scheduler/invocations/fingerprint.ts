import { createHash } from 'node:crypto';

/** Hash of the function's name and the body, which distinguishes requests with the same idempotency key. */
export function fingerprintOf(functionName: string, body: string): string {
  return createHash('sha256').update(functionName).update('\0').update(body).digest('base64url');
}
