import { CallFault } from '../fault.ts';

/** Tag of the CallFault that `action` throws; `none` when it throws nothing. */
export function tagOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (error instanceof CallFault) return error.error.tag;
    throw error;
  }
  return 'none';
}
