/** Someone who holds or wants pages. */
export interface PageHolder {
  readonly id: string;
  /** Place in line; smaller is older. Children carry their root's. */
  readonly arrival: number;
  /** Pages that ending it would free. */
  readonly pages: number;
}

export type MemoryDecision =
  /** The request can never be met: it fails and nobody is ended. */
  | { readonly kind: 'refuse' }
  /** The requester is the newest: it fails, and its pages go to the others. */
  | { readonly kind: 'requester' }
  /** End these, newest first, and the request fits. */
  | { readonly kind: 'terminate'; readonly victims: readonly string[] };

/**
 * First come, first served: who gives way when `needed` pages are asked and `free` are left. The newest goes first; nobody older than the
 * requester is ever ended, so the oldest always advances (Pie, SOSP '25, section 5.3).
 */
export function chooseVictims(
  requester: PageHolder,
  others: readonly PageHolder[],
  needed: number,
  free: number,
  total: number,
): MemoryDecision {
  if (needed > total - requester.pages) return { kind: 'refuse' };
  const newestFirst = others
    .filter((other) => other.pages > 0)
    .sort((a, b) => b.arrival - a.arrival || (a.id < b.id ? 1 : -1));
  const victims: string[] = [];
  let available = free;
  for (const other of newestFirst) {
    if (available >= needed) break;
    if (other.arrival <= requester.arrival) return { kind: 'requester' };
    victims.push(other.id);
    available += other.pages;
  }
  return available >= needed ? { kind: 'terminate', victims } : { kind: 'requester' };
}
