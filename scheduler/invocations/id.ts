import { randomBytes } from 'node:crypto';

/** An invocation id: it sorts by time, and has 80 random bits, so that a client cannot guess another client's id. */
export function newInvocationId(): string {
  return `inv_${Date.now().toString(36).padStart(9, '0')}${randomBytes(10).toString('hex')}`;
}
