/** An invocation's place in the queue. */
export interface Place {
  /** Smaller is older. Children carry the arrival of their root. */
  readonly arrival: number;
  /** Orders invocations of one arrival: the one that began later is newer. No two invocations share both numbers. */
  readonly order: number;
}

export type MemoryDecision<H> =
  /** The request does not fit even without all other invocations. It fails, and no invocation is ended. */
  | { readonly kind: 'refuse' }
  /** The request does not fit beside the older invocations: end the requester. */
  | { readonly kind: 'requester' }
  /** End these invocations, newest first, and the request fits. */
  | { readonly kind: 'terminate'; readonly victims: readonly H[] };

export function isNewer(a: Place, b: Place): boolean {
  return a.arrival === b.arrival ? a.order > b.order : a.arrival > b.arrival;
}

/**
 * The pages that a request lacks, while holders leave and stay. The choice changes this sum by one holder at a time. Counting all pages anew
 * for each question would take time that grows with the square of the number of holders.
 */
export interface Shortfall<H> {
  /** Pages still missing without the holders that left; 0 or less when the request fits. Never grows as holders leave. */
  readonly missing: number;
  /** Moves a holder that stays to those that have left. */
  leave(holder: H): void;
  /** Moves a holder that has left back to those that stay. */
  stay(holder: H): void;
}

/**
 * First come, first served: chooses the inferlets to end when a request for memory does not fit. The newest goes first. No inferlet older
 * than the requester is ended, so the oldest always advances (Pie, SOSP '25, section 5.3). No inferlet is ended in vain: neither when the
 * request would still not fit, nor when the memory of that inferlet does not help.
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
  // Spares only holders whose end frees no page: the newest goes first, even where an older one alone would be enough.
  const remainingShortfall = shortfall.missing;
  return {
    kind: 'terminate',
    victims: withoutSpared(departed, shortfall, () => shortfall.missing === remainingShortfall),
  };
}

/** Lets holders leave one after another until the request fits, or none is left. @returns the holders that left */
export function leaveInTurn<H>(inTurn: readonly H[], shortfall: Shortfall<H>): readonly H[] {
  let count = 0;
  for (; shortfall.missing > 0 && count < inTurn.length; count++) shortfall.leave(inTurn[count] as H);
  return inTurn.slice(0, count);
}

/**
 * Lets each holder stay, from the last to the first, unless the others are not enough without it.
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
