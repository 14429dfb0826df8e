/** Somebody's place in line. */
export interface Place {
  /** Smaller is older. Children carry their root's. */
  readonly arrival: number;
  /** Tells those of one arrival apart: who began later is newer. No two are alike in both. */
  readonly order: number;
}

export type MemoryDecision<H> =
  /** The request cannot be met even with everybody else gone: it fails, and nobody is ended. */
  | { readonly kind: 'refuse' }
  /** It does not fit beside those who are older: the requester is the one to end. */
  | { readonly kind: 'requester' }
  /** End these, newest first, and the request fits. */
  | { readonly kind: 'terminate'; readonly victims: readonly H[] };

/** Whether `a` is newer than `b`. */
export function isNewer(a: Place, b: Place): boolean {
  return a.arrival === b.arrival ? a.order > b.order : a.arrival > b.arrival;
}

/**
 * First come, first served: who gives way when a request for memory does not fit. The newest goes first; nobody older than the requester is
 * ever ended, so the oldest always advances (Pie, SOSP '25, section 5.3). Nobody is ended in vain: neither when it would not help, nor
 * who holds nothing that helps.
 *
 * @param others everybody else who holds memory, in any order
 * @param missing pages still missing once all of `ended` are gone, 0 or less when the request fits; never more for more of them
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

/** How many of the first are enough; all of them are. */
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
