/** An invocation's place in the order of age. */
export interface Place {
  /** Number in the order of arrivals; an older invocation has a smaller number. Children carry the arrival of their root. */
  readonly arrival: number;
  /** Orders invocations with the same arrival: the one that began later has a larger number. No two invocations share both numbers. */
  readonly order: number;
}

export type MemoryDecision<H> =
  /** The request does not fit even without all other invocations. It fails, and no invocation is ended. */
  | { readonly kind: 'refuse' }
  /** The request does not fit beside the older invocations: end the requester. */
  | { readonly kind: 'requester' }
  /** The request fits once these invocations have ended; the newest comes first. */
  | { readonly kind: 'terminate'; readonly victims: readonly H[] };

/** True when `a` is newer than `b`. */
export function isNewer(a: Place, b: Place): boolean {
  return a.arrival === b.arrival ? a.order > b.order : a.arrival > b.arrival;
}

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

/**
 * Chooses the inferlets to end when a request for memory does not fit: first come, first served, so the newest ends first. No inferlet older than the
 * requester is ended, so the oldest always advances (Pie, SOSP '25, section 5.3). No inferlet is ended in vain: if the request would still not fit,
 * none ends, and an inferlet whose end frees no page stays.
 *
 * @param others all other inferlets that hold memory, in any order
 * @param shortfall the request's shortfall while all others stay; the choice changes it
 */
export function chooseVictims<H extends Place>(
  requester: Place,
  others: readonly H[],
  shortfall: Shortfall<H>,
): MemoryDecision<H> {
  const newestFirst = others.filter((other) => isNewer(other, requester)).sort((a, b) => (isNewer(a, b) ? -1 : 1));
  const departed = leaveInTurn(newestFirst, shortfall);
  if (shortfall.missing > 0) {
    for (const other of others) if (!isNewer(other, requester)) shortfall.leave(other);
    return { kind: shortfall.missing > 0 ? 'refuse' : 'requester' };
  }
  // Spares only holders whose end frees no page: the newest ends first, even when the end of one older holder alone would be enough.
  const missingWithoutDeparted = shortfall.missing;
  return {
    kind: 'terminate',
    victims: withoutSpared(departed, shortfall, () => shortfall.missing === missingWithoutDeparted),
  };
}

/**
 * Lets holders leave one after another until the request fits, or all have left.
 * @returns the holders that left
 */
export function leaveInTurn<H>(inTurn: readonly H[], shortfall: Shortfall<H>): readonly H[] {
  let count = 0;
  for (; shortfall.missing > 0 && count < inTurn.length; count++) shortfall.leave(inTurn[count] as H);
  return inTurn.slice(0, count);
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
