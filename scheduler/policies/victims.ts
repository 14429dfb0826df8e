import { type AccountHolder, isNewer, type MemoryOrder } from './memory-order.ts';

export type MemoryDecision<H> =
  /** The request does not fit even without all other invocations. It fails, and no invocation is ended. */
  | { readonly kind: 'refuse' }
  /** The request does not fit beside the invocations that precede it: end the requester. */
  | { readonly kind: 'requester' }
  /** The request fits once these invocations have ended; the first to end comes first. */
  | { readonly kind: 'terminate'; readonly victims: readonly H[] };

/**
 * The pages that a request lacks when some holders of memory leave and the others stay. A choice moves one holder at a time, so that the sum can be
 * updated. Counting all pages anew each time would take time that grows with the square of the number of holders.
 */
export interface Shortfall<H> {
  /** Pages still missing without the holders that left; 0 or less when the request fits. Never grows as holders leave. */
  readonly missing: number;
  /** Counts a holder as one that leaves. */
  leave(holder: H): void;
  /** Counts a holder that left as one that stays again. */
  stay(holder: H): void;
}

/** An inferlet that holds memory. */
export interface Endable<A> extends AccountHolder<A> {
  /** Pages that it holds, on the device or swapped out. */
  readonly heldPages: number;
}

/**
 * Chooses the inferlets to end when a request for memory does not fit, by `order`: those of the tenant with most pages above its share first, and of
 * each tenant the newest first. No inferlet that precedes the requester is ended, and another tenant loses inferlets only while it holds more than
 * its share. No inferlet is ended in vain: if the request would still not fit, none ends, and an inferlet whose end frees no page stays.
 *
 * @param others all other inferlets that hold memory, in any order
 * @param shortfall the request's shortfall while all others stay; the choice changes it
 */
export function chooseVictims<A, H extends Endable<A>>(
  requester: AccountHolder<A>,
  others: readonly H[],
  shortfall: Shortfall<H>,
  order: MemoryOrder<A>,
): MemoryDecision<H> {
  const departed = leaveInTurn(endingOrder(requester, others, order), shortfall);
  if (shortfall.missing > 0) {
    const leaving = new Set(departed);
    for (const other of others) if (!leaving.has(other)) shortfall.leave(other);
    return { kind: shortfall.missing > 0 ? 'refuse' : 'requester' };
  }
  // Spares only holders whose end frees no page: the newest ends first, even when the end of one older holder alone would be enough.
  const missingWithoutDeparted = shortfall.missing;
  return {
    kind: 'terminate',
    victims: withoutSpared(departed, shortfall, () => shortfall.missing === missingWithoutDeparted),
  };
}

/** The inferlets that may end for the requester, in turn. Each end lowers the excess of its tenant, so that the next may belong to another one. */
function* endingOrder<A, H extends Endable<A>>(
  requester: AccountHolder<A>,
  others: readonly H[],
  order: MemoryOrder<A>,
): Generator<H> {
  /** By tenant: its excess, and its inferlets with the newest last. */
  const tenants = new Map<A, { excess: number; readonly holders: H[] }>();
  for (const other of others.filter((each) => order.precedes(requester, each)).sort((a, b) => order.compare(a, b))) {
    const tenant = tenants.get(other.account);
    if (tenant) tenant.holders.push(other);
    else tenants.set(other.account, { excess: order.excess(other.account), holders: [other] });
  }
  for (;;) {
    let next: { excess: number; readonly holders: H[] } | undefined;
    for (const [account, tenant] of tenants) {
      const newest = tenant.holders.at(-1);
      if (!newest || (tenant.excess <= 0 && account !== requester.account)) continue;
      const rival = next?.holders.at(-1);
      const excess = Math.max(0, tenant.excess);
      const nextExcess = Math.max(0, next?.excess ?? 0);
      if (!rival || excess > nextExcess || (excess === nextExcess && isNewer(newest, rival))) next = tenant;
    }
    const holder = next?.holders.pop();
    if (!next || !holder) return;
    next.excess -= holder.heldPages;
    yield holder;
  }
}

/**
 * Lets holders leave one after another until the request fits, or all have left.
 * @returns the holders that left
 */
export function leaveInTurn<H>(inTurn: Iterable<H>, shortfall: Shortfall<H>): readonly H[] {
  const departed: H[] = [];
  if (shortfall.missing <= 0) return departed;
  for (const holder of inTurn) {
    shortfall.leave(holder);
    departed.push(holder);
    if (shortfall.missing <= 0) break;
  }
  return departed;
}

/**
 * Spares holders that need not leave. Lets one holder after another stay, from the last to the first, and makes it leave again when `isEnough` is
 * false without it.
 *
 * @returns the holders that must leave, in their order
 */
export function withoutSpared<H>(
  departed: readonly H[],
  shortfall: Shortfall<H>,
  isEnough: () => boolean,
): readonly H[] {
  const victims: H[] = [];
  for (const departedHolder of departed.toReversed()) {
    shortfall.stay(departedHolder);
    if (isEnough()) continue;
    shortfall.leave(departedHolder);
    victims.push(departedHolder);
  }
  return victims.reverse();
}
