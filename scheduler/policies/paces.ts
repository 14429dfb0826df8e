/** What a tenant may be ahead of its pace. */
const BURST_MS = 250;
/** A tenant counts as a neighbour for so long after its last work: most clients come again. */
const NEIGHBOUR_MS = 10_000;

interface Tenant {
  works: number;
  /** When it has paid for all that it spent. */
  paidAt: number;
}

/** The pace of one piece of work, such as an attempt or a request, which it shares with all others of its tenant. */
export interface Pace extends Disposable {
  /** Milliseconds to wait before the next units are spent; 0 for none. */
  pauseMs(): number;
  /** So many units are about to be spent. */
  spend(units: number): void;
}

/**
 * How fast tenants may spend what they share: beside others at a rate (the generic cell rate algorithm of ATM networks, I.371), alone as fast as
 * it goes.
 */
export class Paces {
  readonly #perMs: number;
  readonly #clock: () => number;
  readonly #tenants = new Map<string, Tenant>();
  /** Tenants with work. */
  #active = 0;
  /** The last two tenants whose works were all over, and when: one of them is another one. */
  readonly #left = new Map<string, number>();

  /**
   * @param perSecond units of one tenant
   * @param clock milliseconds
   */
  constructor(perSecond: number, clock = () => performance.now()) {
    this.#perMs = perSecond / 1000;
    this.#clock = clock;
  }

  /** Tenants that have work, or have not paid yet. */
  get tenants(): number {
    return this.#tenants.size;
  }

  /** A piece of work begins. Dispose its pace once, when it has ended. */
  enter(name: string): Pace {
    const nowMs = this.#clock();
    for (const [other, { works, paidAt }] of this.#tenants)
      if (works === 0 && paidAt <= nowMs) this.#tenants.delete(other);
    const tenant = this.#tenants.get(name) ?? { works: 0, paidAt: nowMs };
    this.#tenants.set(name, tenant);
    if (tenant.works++ === 0) this.#active++;
    return {
      pauseMs: () => (this.#hasNeighbours(name) ? Math.max(0, tenant.paidAt - BURST_MS - this.#clock()) : 0),
      spend: (units) => {
        // Who disturbs nobody owes nothing.
        if (!this.#hasNeighbours(name)) return;
        tenant.paidAt = Math.max(this.#clock(), tenant.paidAt) + units / this.#perMs;
      },
      [Symbol.dispose]: () => {
        if (--tenant.works > 0) return;
        this.#active--;
        this.#left.delete(name);
        this.#left.set(name, this.#clock());
        const [oldest] = this.#left.keys();
        if (this.#left.size > 2 && oldest !== undefined) this.#left.delete(oldest);
      },
    };
  }

  #hasNeighbours(name: string): boolean {
    if (this.#active > 1) return true;
    const nowMs = this.#clock();
    return [...this.#left].some(([other, leftAt]) => other !== name && nowMs - leftAt < NEIGHBOUR_MS);
  }
}
