import type { HandlerError } from '#gpu-host/protocol/errors.ts';
import type { TextService } from '../texts/service.ts';
import { Account } from '../workers/account.ts';
import type { GuestEnding } from './launch.ts';
import { MAX_RESULT } from './verdict.ts';

/**
 * Why the text that a guest returned is no JSON; null for one that is, and for endings without a result. The guest is charged for the check and
 * not refused it: it has come to its end.
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
