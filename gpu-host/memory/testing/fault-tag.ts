import { CallFault } from '../fault.ts';

/** Tag of the error that an action refuses a call with; `none` when it refuses nothing. */
export function tagOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (error instanceof CallFault) return error.error.tag;
    throw error;
  }
  return 'none';
}
