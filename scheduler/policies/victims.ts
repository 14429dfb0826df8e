import { type AccountHolder, isNewer, type MemoryOrder, type Place } from './memory-order.ts';

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

/** A tenant's inferlets that may end, with the newest last, and the excess that it has left. */
interface Ending<H> {
  excess: number;
  readonly isRequesters: boolean;
  readonly holders: H[];
}

/** The inferlets that may end for the requester, in turn. Each end lowers the excess of its tenant, so that the next may belong to another one. */
function* endingOrder<A, H extends Endable<A>>(
  requester: AccountHolder<A>,
  others: readonly H[],
  order: MemoryOrder<A>,
): Generator<H> {
  const byAccount = new Map<A, Ending<H>>();
  for (const other of others.filter((each) => order.precedes(requester, each)).sort((a, b) => order.compare(a, b))) {
    const { account } = other;
    const tenant = byAccount.get(account);
    if (tenant) tenant.holders.push(other);
    else
      byAccount.set(account, {
        excess: order.excess(account),
        isRequesters: account === requester.account,
        holders: [other],
      });
  }
  // The tenant that loses the next inferlet comes last.
  const tenants = [...byAccount.values()].filter(mayEnd).sort((a, b) => (endsBefore(a, b) ? 1 : -1));
  for (let tenant = tenants.pop(); tenant; tenant = tenants.pop()) {
    const holder = tenant.holders.pop() as H;
    tenant.excess -= holder.heldPages;
    if (mayEnd(tenant)) insert(tenants, tenant);
    yield holder;
  }
}

const mayEnd = <H>({ excess, isRequesters, holders }: Ending<H>): boolean =>
  holders.length > 0 && (excess > 0 || isRequesters);

function endsBefore<H extends Place>(a: Ending<H>, b: Ending<H>): boolean {
  const [excessA, excessB] = [Math.max(0, a.excess), Math.max(0, b.excess)];
  return excessA === excessB ? isNewer(a.holders.at(-1) as H, b.holders.at(-1) as H) : excessA > excessB;
}

/** Inserts a tenant into a sorted list by binary search. */
function insert<H extends Place>(tenants: Ending<H>[], tenant: Ending<H>): void {
  let [low, high] = [0, tenants.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (endsBefore(tenant, tenants[middle] as Ending<H>)) low = middle + 1;
    else high = middle;
  }
  tenants.splice(low, 0, tenant);
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
