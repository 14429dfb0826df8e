import type { HandlerError } from '#gpu-host/protocol/errors.ts';
import type { TextService } from '../texts/service.ts';
import { Account } from '../workers/account.ts';
import type { GuestEnding } from './launch.ts';
import { MAX_RESULT } from './verdict.ts';

/**
 * Returns the error when a guest's result is not JSON, or takes too long to be checked. Returns null for JSON, for endings without a result, and
 * for a result that `verdictOf` refuses for its length. The guest pays for the CPU time of the check, but its CPU limit does not stop the check:
 * the guest has already ended.
 */
export async function resultFault(
  texts: Pick<TextService, 'check'>,
  ending: GuestEnding,
  tenant: string,
  charge: (cpuMs: number) => void,
): Promise<HandlerError | null> {
  if (ending.kind !== 'returned' || !ending.ok || ending.text.length > MAX_RESULT) return null;
  const checked = await texts.check({ tenant, account: new Account({ charge, usedUp: () => false }) }, ending.text);
  return checked.tag === 'err' ? checked.val : null;
}
