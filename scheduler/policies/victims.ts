/** An invocation's place in line. */
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

/** True when `a` is newer than `b`. */
export function isNewer(a: Place, b: Place): boolean {
  return a.arrival === b.arrival ? a.order > b.order : a.arrival > b.arrival;
}

/**
 * First come, first served: chooses the inferlets to end when a request for memory does not fit. The newest goes first. No inferlet older
 * than the requester is ended, so the oldest always advances (Pie, SOSP '25, section 5.3). No inferlet is ended in vain: neither when the
 * request would still not fit, nor when its memory does not help.
 *
 * @param others all other inferlets that hold memory, in any order
 * @param missing pages still missing after all of `ended` are gone, 0 or less when the request fits; never grows as `ended` grows
 */
export function chooseVictims<H extends Place>(
  requester: Place,
  others: readonly H[],
  missing: (ended: readonly H[]) => number,
): MemoryDecision<H> {
  if (missing(others) > 0) return { kind: 'refuse' };
  const newestFirst = others.filter((other) => isNewer(other, requester)).sort((a, b) => (isNewer(a, b) ? -1 : 1));
  if (missing(newestFirst) > 0) return { kind: 'requester' };
  const needed = newestFirst.slice(0, fewest(newestFirst, missing));
  const left = missing(needed);
  return {
    kind: 'terminate',
    victims: needed.filter((one) => missing(needed.filter((other) => other !== one)) !== left),
  };
}

/** The smallest number of first victims that is enough; all of them together are enough. */
function fewest<H>(newestFirst: readonly H[], missing: (ended: readonly H[]) => number): number {
  let tooFew = -1;
  let enough = newestFirst.length;
  while (enough - tooFew > 1) {
    const middle = (enough + tooFew) >> 1;
    if (missing(newestFirst.slice(0, middle)) > 0) tooFew = middle;
    else enough = middle;
  }
  return enough;
}
