import { randomBytes } from 'node:crypto';

/** An id for an invocation: it sorts by time, and has 80 random bits, so that nobody guesses another's. */
export function newInvocationId(): string {
  return `inv_${Date.now().toString(36).padStart(9, '0')}${randomBytes(10).toString('hex')}`;
}
