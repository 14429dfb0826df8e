import { STANDINGS, type Standing } from '../quarantine/policy.ts';
import { type Metered, optionalNumber, pageLimitOf } from '../quotas/exceeded.ts';
import { SequenceGap, StoreError } from '../store/errors.ts';
import type { AttemptLimits } from './types.ts';

/** The answer to a call that reported no usage. */
export function unmetered<Outcome>(outcome: Outcome): Metered<Outcome> {
  return { outcome, exceeded: null, tokens: null, kvPages: null };
}

/** Parses the reply of `attemptLimits` in the scripts. */
export function attemptLimits([ceiling, pages, readAt]: readonly unknown[]): AttemptLimits {
  return { tokenCeiling: optionalNumber(ceiling), kvPages: pageLimitOf(pages, readAt) };
}

/** Parses the reply of `standingOf` in the scripts. */
export function standingFrom(value: unknown): Standing {
  const standing = STANDINGS.find((one) => one === value);
  if (standing === undefined) throw unexpected('standing', value);
  return standing;
}

/** A text of a reply; undefined for '', which scripts return for an absent text. */
export function optionalText(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Returns a reply that must be a list. */
export function tuple(reply: unknown): unknown[] {
  if (!Array.isArray(reply)) throw unexpected('script', reply);
  return reply;
}

/** The error for a reply `[-3, number of the last event]`; null for any other reply. */
export function gap(id: string, seq: number, reply: unknown): SequenceGap | null {
  if (!Array.isArray(reply) || reply[0] !== -3 || typeof reply[1] !== 'number') return null;
  const lastSeq = reply[1];
  return new SequenceGap(
    `Event ${seq} of invocation ${id} does not follow ${lastSeq}, the last one of its log.`,
    lastSeq,
  );
}

/** The error for a reply that the script never gives. */
export function unexpected(script: string, reply: unknown): StoreError {
  return new StoreError('store-corrupt', `The script ${script} answered ${JSON.stringify(reply)}.`);
}
